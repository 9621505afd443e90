//! Due runs of a limited definition are claimed in turns between shares. Each share has a limit.

use crate::slow_database::slow_down;
use crate::support::{Proxy, Role, TestDb};

/// Enqueues a due run of job `a` for each of these shares, and returns the ids. A run for `-` has
/// no share.
fn enqueue_for_shares(db: &TestDb, shares: &str) -> Vec<i64> {
    let enqueue = |share: &str| match share {
        "-" => db.enqueue(["a"]),
        _ => db.enqueue(["a", "--share", share]),
    };
    shares.split(' ').map(enqueue).collect()
}

/// Inserts a run of this share that worker `b` executes, and returns its id.
fn insert_running_elsewhere(db: &TestDb, share: &str) -> String {
    db.allow_running_runs_at_end();
    db.query(&format!(
        "INSERT INTO jobctl.job_runs
             (job_type, status, attempts, locked_by, locked_until, started_at, share)
         VALUES ('a', 'running', 1, 'b', now() + interval '1 hour', now(), '{share}')
         RETURNING id"
    ))
}

/// Returns the shares of the runs that ended, in the order of their starts.
fn shares_in_order_of_starts(db: &TestDb) -> String {
    db.query(
        "SELECT string_agg(coalesce(share, '-'), ' ' ORDER BY started_at, id)
         FROM jobctl.job_runs WHERE status = 'succeeded'",
    )
}

#[test]
fn shares_take_turns_although_one_share_has_older_runs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    enqueue_for_shares(&db, "big big big big big small mid - - mid");
    db.jobctl(["tick"]).run().success();
    assert_eq!(shares_in_order_of_starts(&db), "big mid small - big mid - big big big");

    // The turns go on after the share of the last claim, here `big`.
    enqueue_for_shares(&db, "big mid mid small");
    db.execute("UPDATE jobctl.job_definitions SET last_share = 'big'");
    db.jobctl(["tick"]).run().success();
    let order = shares_in_order_of_starts(&db);
    assert!(order.ends_with(" mid small big mid"), "{order}");
}

#[test]
fn the_next_share_takes_the_place_of_an_older_run_before_other_jobs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nrate = '9/1d'\n[jobs.b]\nshell = 'true'\nqueue = 'b'\n");
    enqueue_for_shares(&db, "big big big");
    let other = db.enqueue(["b"]);
    enqueue_for_shares(&db, "small");
    // By age, the tick would start two runs of `big`. `small` takes the place of the second run,
    // although the run of job `b` is older than that of `small`.
    db.jobctl(["tick", "--limit", "2"]).run().success();
    assert_eq!(shares_in_order_of_starts(&db), "big small");
    assert_eq!(db.status(other), "queued");
}

#[test]
fn max_running_per_share_limits_each_share_over_all_workers() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running_per_share = 2\nmax_running = 9\n");
    // Without a tick, `show` would say that no worker ticks.
    db.jobctl(["tick"]).run().success();
    let running = ["acme", "acme", "b"].map(|share| insert_running_elsewhere(&db, share));
    let ids = enqueue_for_shares(&db, "acme b - b");
    let shown = db.jobctl(["show", &ids[0].to_string()]).run().success().stdout;
    assert!(shown.contains("2 of at most 2 runs of share acme are running"), "{shown}");
    db.jobctl(["tick"]).run().success();
    let waiting = "SELECT string_agg(share, ' ') FROM jobctl.job_runs WHERE status = 'queued'";
    assert_eq!(db.query(waiting), "acme");

    // With one run of `acme` less, there is room for the waiting one.
    db.execute(&format!("UPDATE jobctl.job_runs SET share = 'other' WHERE id = {}", running[0]));
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query(waiting), "");
}

#[test]
fn rate_per_share_limits_the_starts_of_each_share() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    db.apply("[jobs.a]\nshell = 'true'\nrate_per_share = '2/1h'\n");
    let ids = enqueue_for_shares(&db, "acme acme acme acme b - - -");
    worker.jobctl(["tick", "--quiet"]).run().success().stderr("");
    let waiting = "SELECT string_agg(coalesce(share, '-'), ' ' ORDER BY id) FROM jobctl.job_runs
                   WHERE status = 'queued'";
    assert_eq!(db.query(waiting), "acme acme -");
    let third = ids[2].to_string();
    let shown = db.jobctl(["show", &third]).run().success().stdout;
    assert!(shown.contains("the rate of its share of 2/1h is used up for another 29m"), "{shown}");

    // Half an hour later, each share may start one more.
    db.execute("UPDATE jobctl.job_share_rates SET next_at = next_at - interval '30 minutes'");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query(waiting), "acme");

    // No rate is used up for longer than two hours, so the clock was ahead: nothing is used up.
    db.execute("UPDATE jobctl.job_share_rates SET next_at = now() + interval '3 hours'");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query(waiting), "");
    let next = "SELECT next_at < now() + interval '1 hour' FROM jobctl.job_share_rates
                WHERE share = 'acme'";
    assert_eq!(db.query(next), "t");
}

#[test]
fn rates_of_shares_without_runs_are_deleted() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nrate_per_share = '1/1s'\n");
    db.execute(
        "INSERT INTO jobctl.job_share_rates (definition_id, share, next_at)
         SELECT definition.id, 'old ' || number, now() - interval '1 s'
         FROM jobctl.job_definitions AS definition, generate_series(1, 5000) AS number",
    );
    let runs = "INSERT INTO jobctl.job_runs (job_type, share)
                SELECT 'a', 'new ' || number FROM generate_series(1, 200) AS number";
    db.execute(runs);
    // Each claim adds rows for the shares that start, and deletes some of the old rows.
    db.jobctl(["tick", "--concurrency", "100"]).run().success();
    let rows: i64 = db.query("SELECT count(*) FROM jobctl.job_share_rates").parse().unwrap();
    assert!(rows < 5000, "{rows}");

    // With the definition, its rows are deleted.
    db.jobctl(["apply", "--yes", "--prune", "-"])
        .stdin("[jobs.b]\nshell = 'true'\n")
        .run()
        .success();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_share_rates"), "0");
}

#[test]
fn a_worker_role_may_claim_shares_of_a_definition_without_a_limit_too() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    db.apply("[jobs.a]\nshell = 'true'\n");
    enqueue_for_shares(&db, "acme -");
    worker.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.query("SELECT last_share IS NULL FROM jobctl.job_definitions"), "t");

    // With a limit, the claim stores the share whose turn it was.
    db.apply("[jobs.a]\nshell = 'true'\nmax_running_per_share = 1\n");
    enqueue_for_shares(&db, "acme");
    worker.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.query("SELECT last_share FROM jobctl.job_definitions"), "acme");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'"), "0");
}

#[test]
fn every_way_to_enqueue_sets_the_share() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let lines = r#"{"job_type": "a", "share": "x"}
{"job_type": "shell", "payload": {"command": "true"}, "share": "x"}
{"job_type": "shell", "payload": {"command": "true"}, "idempotency_key": "k", "key_scope": "live"}
{"job_type": "a"}"#;
    // The flag is for lines without a share.
    db.jobctl(["enqueue", "--batch", "-", "--share", "y"]).stdin(lines).run().success();
    db.query("SELECT jobctl.enqueue('a', share => 'x')");
    let shares = "SELECT share, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1";
    assert_eq!(db.query(shares), "x|3\ny|2");

    // A replacement gives the run with the live key another share.
    let replace = ["--key", "k", "--key-scope", "live", "--on-conflict", "replace"];
    let enqueue = db.jobctl(["enqueue", "shell", "--share", "z"]).args(replace);
    enqueue.args(["--", "true"]).run().success();
    assert_eq!(db.query(shares), "x|3\ny|1\nz|1");

    let first = db.query("SELECT min(id) FROM jobctl.job_runs WHERE share = 'x'");
    let shown = db.jobctl(["show", &first, "--json"]).run().success().stdout;
    assert!(shown.contains(r#""share":"x""#), "{shown}");
}

#[test]
fn an_invalid_share_is_refused() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    for share in ["", "-x", "a\tb", &"x".repeat(256)] {
        let flag = format!("--share={share}");
        db.jobctl(["enqueue", "a", &flag]).run().exits(2).stderr_has("share");
        let error = db.try_query(&format!("SELECT jobctl.enqueue('a', share => '{share}')"));
        let error = error.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{share}");
        assert!(error.message().starts_with("share must be"), "{error}");
    }
}

#[test]
fn a_limited_job_that_is_too_slow_to_claim_does_not_keep_other_jobs_waiting() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nrate = '9/1d'\n");
    db.enqueue(["a"]);
    let other = db.enqueue(["shell", "--priority", "5", "--", "true"]);
    // A claim with limits updates the definitions. That takes 4 s here, but a statement may take
    // only a sixth of the lease, which is 2 s.
    slow_down(&db, "job_definitions", "UPDATE", "true", 4.0);
    let tick = db.jobctl(["tick", "--lease", "12s", "--quiet"]).run().success();
    tick.stderr_has("claiming runs of jobs with limits took longer");
    assert_eq!(db.status(other), "succeeded");
}

/// Inserts runs of this many shares, which are due in an hour. Then enqueues a due run of the share
/// `z`, whose name sorts after all the others, and returns its id.
fn enqueue_behind_shares(db: &TestDb, shares: usize) -> i64 {
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, share, run_at)
         SELECT 'a', 'share ' || number, now() + interval '1 hour'
         FROM generate_series(1, {shares}) AS number"
    ));
    db.enqueue(["a", "--share", "z"])
}

#[test]
fn a_due_run_behind_more_shares_than_a_claim_looks_at_is_claimed() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    // A claim looks at a thousand shares, and the next claim at the shares after them.
    let last = enqueue_behind_shares(&db, 2500);
    let first = db.enqueue(["a", "--share", "a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!([db.status(last), db.status(first)], ["succeeded"; 2]);

    // The turns begin after `share 7`, so `share 6` comes last.
    db.execute("UPDATE jobctl.job_definitions SET last_share = 'share 7'");
    let last = db.enqueue(["a", "--share", "share 6"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(last), "succeeded");
}

#[test]
fn a_share_with_many_priorities_does_not_keep_the_next_share_waiting() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    let last = enqueue_behind_shares(&db, 3000);
    // All other runs have one share, and a priority each.
    db.execute("UPDATE jobctl.job_runs SET priority = id, share = 'many' WHERE share <> 'z'");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(last), "succeeded");
}

#[test]
fn a_queue_that_is_not_served_hides_no_run_of_the_same_share() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    let served = enqueue_behind_shares(&db, 3000);
    // All runs are due and have one share, but only one of them is in the queue that is served.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET share = 'z', run_at = now();
         UPDATE jobctl.job_runs SET priority = id, queue = 'a' WHERE id <> {served}"
    ));
    db.jobctl(["tick", "--queue", "default"]).run().success();
    assert_eq!(db.status(served), "succeeded");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'"), "3000");
}

#[test]
fn one_tick_serves_all_of_many_limited_definitions() {
    let db = TestDb::new();
    // A claim looks at a thousand definitions. Only each tenth of these has a run.
    db.execute(
        "INSERT INTO jobctl.job_definitions (name, kind, action, max_running)
         SELECT 'job-' || number, 'shell', '{\"command\": [\"true\"]}', 1
         FROM generate_series(1, 1200) AS number;
         INSERT INTO jobctl.job_runs (job_type)
         SELECT 'job-' || number FROM generate_series(1, 1200, 10) AS number",
    );
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"),
        "succeeded|120"
    );
}

#[test]
fn a_lost_connection_is_not_taken_for_a_slow_claim_of_a_limited_job() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    db.enqueue(["a"]);
    // The text is in the header of the statement that claims.
    proxy.freeze_after("Claims due runs");
    let tick = db.jobctl(["tick", "--lease", "3s", "--quiet"]);
    let tick = tick.through(&proxy).run().exits(5);
    tick.stderr_has("the database does not answer")
        .prints_nowhere("claiming runs of jobs with limits took longer");
}
