//! Of all runs with one lock, one runs at a time, whatever their jobs and on whichever host.

use crate::support::{Role, TestDb};

const TWO_JOBS: &str = "[jobs.a]\nshell = 'true'\nlock = 'warehouse'\n\
    [jobs.b]\nshell = 'true'\nlock = 'warehouse'\n";

/// Takes this lock: inserts a run that has it and is running on the worker `b`. Returns the run.
fn take_lock(db: &TestDb, lock: &str) -> i64 {
    db.allow_running_runs_at_end();
    let id = db.query(&format!(
        "INSERT INTO jobctl.job_runs
             (job_type, status, attempts, locked_by, locked_until, started_at, lock)
         VALUES ('shell', 'running', 1, 'b', now() + interval '1 hour', now(), '{lock}')
         RETURNING id"
    ));
    id.parse().unwrap()
}

/// Takes the lock from this running run, so that another run can have it.
fn free_lock(db: &TestDb, running: i64) {
    db.execute(&format!("UPDATE jobctl.job_runs SET lock = NULL WHERE id = {running}"));
}

fn tick(db: &TestDb) {
    db.jobctl(["tick"]).run().success();
}

fn tick_queue(db: &TestDb, queue: &str) {
    db.jobctl(["tick", "--queue", queue]).run().success();
}

/// Returns the ids of the pending runs.
fn pending_ids(db: &TestDb) -> String {
    db.query(
        "SELECT string_agg(id::text, ' ' ORDER BY id) FROM jobctl.job_runs
         WHERE status IN ('queued', 'failed')",
    )
}

/// Returns how many pairs of attempts of runs with the same lock ran at the same time.
fn overlaps(db: &TestDb) -> String {
    db.query(
        "WITH ran AS (
             SELECT attempt.run_id, attempt.started_at, attempt.finished_at,
                 coalesce(definition.lock_name, run.lock) AS lock
             FROM jobctl.job_attempts AS attempt
             JOIN jobctl.job_runs AS run ON run.id = attempt.run_id
             LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
         )
         SELECT count(*) FROM ran AS one JOIN ran AS other USING (lock)
         WHERE one.run_id < other.run_id
             AND (one.started_at, one.finished_at) OVERLAPS (other.started_at, other.finished_at)",
    )
}

#[test]
fn a_lock_of_definitions_lets_one_run_at_a_time_over_all_their_jobs() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let holder = take_lock(&db, "warehouse");
    let (a, b) = (db.enqueue(["a"]), db.enqueue(["b"]));
    let without_lock = db.enqueue(["shell", "--", "true"]);
    tick(&db);
    assert_eq!(pending_ids(&db), format!("{a} {b}"));
    assert_eq!(db.status(without_lock), "succeeded");
    db.jobctl(["show", &a.to_string()])
        .run()
        .stdout_has("1 of at most 1 runs with the lock warehouse are running")
        .stdout_has("lock\twarehouse\n");
    // After that, one tick runs both, one after the other.
    free_lock(&db, holder);
    db.jobctl(["tick", "--concurrency", "4"]).run().success();
    assert_eq!(pending_ids(&db), "");
    assert_eq!(overlaps(&db), "0");
}

#[test]
fn a_run_may_bring_a_lock_of_its_own() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nmax_running = 5\n");
    let holder = take_lock(&db, "account:17");
    // Enqueue runs with the lock in all ways: the batch makes the runs 2 to 5, SQL run 6, a flag
    // run 7, and an INSERT run 9. Run 8 has another lock.
    let lines = r#"{"job_type": "a", "lock": "account:17"}
{"job_type": "b", "lock": "account:17"}
{"job_type": "shell", "payload": {"command": "true"}, "lock": "account:17"}
{"job_type": "shell", "payload": {"command": "true"}, "lock": "account:17",
 "idempotency_key": "k", "key_scope": "live"}"#;
    let lines = lines.replace(",\n ", ", ");
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    db.query("SELECT jobctl.enqueue('a', lock => 'account:17')");
    db.enqueue(["a", "--lock", "account:17"]);
    let with_other_lock = db.enqueue(["b", "--lock", "account:18"]);
    db.execute("INSERT INTO jobctl.job_runs (job_type, lock) VALUES ('a', 'account:17')");
    tick(&db);
    assert_eq!(pending_ids(&db), "2 3 4 5 6 7 9");
    assert_eq!(db.status(with_other_lock), "succeeded");
    // The runs 2 and 3 wait for the lock without and with a limit of their job.
    db.jobctl(["show", "3"]).run().stdout_has("runs with the lock account:17 are running");
    // A replacement by key keeps the lock of the run. The last line of the batch has this key.
    let replaced = ["--key", "k", "--key-scope", "live", "--on-conflict", "replace"];
    db.jobctl(["enqueue", "shell"]).args(replaced).args(["--", "true"]).run().success();
    assert_eq!(db.query("SELECT lock FROM jobctl.job_runs WHERE id = 5"), "account:17");
    free_lock(&db, holder);
    db.jobctl(["tick", "--concurrency", "8"]).run().success();
    assert_eq!(pending_ids(&db), "");
    assert_eq!(overlaps(&db), "0");
}

#[test]
fn a_definition_says_how_many_runs_may_have_the_lock() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nlock = { name = 'gpu', most = 2 }\n");
    // Beside one running run with the lock, a second one may start. Beside two, no run may.
    take_lock(&db, "gpu");
    let first = db.enqueue(["a"]);
    tick(&db);
    assert_eq!(db.status(first), "succeeded");
    take_lock(&db, "gpu");
    let second = db.enqueue(["a"]);
    tick(&db);
    db.jobctl(["show", &second.to_string()])
        .run()
        .stdout_has("2 of at most 2 runs with the lock gpu are running");
    db.jobctl(["jobs", "a"]).run().stdout_has(r#""lock":{"most":2,"name":"gpu"}"#);
    // If definitions give different numbers for one lock, the smallest counts.
    db.apply(
        "[jobs.a]\nshell = 'true'\nlock = { name = 'gpu', most = 9 }\n\
         [jobs.b]\nshell = 'true'\nlock = { name = 'gpu', most = 3 }\n",
    );
    tick(&db);
    assert_eq!(db.status(second), "succeeded");
    assert_eq!(db.query("SELECT jobctl.most_with_lock('gpu')"), "3");
}

#[test]
fn the_lock_of_a_crashed_worker_is_kept_until_its_run_is_recovered() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let lost = take_lock(&db, "warehouse");
    let waiting = db.enqueue(["a"]);
    tick(&db);
    assert_eq!(db.status(waiting), "queued");
    db.expire_leases();
    tick(&db);
    assert_eq!(db.status(waiting), "succeeded");
    assert_eq!(db.of_attempt(lost, 1, "outcome"), "lease_expired");
}

#[test]
fn another_lock_of_a_definition_frees_the_old_one_at_once() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    // A running run of `a` has the lock of its definition.
    db.execute(
        "INSERT INTO jobctl.job_runs
             (job_type, status, attempts, locked_by, locked_until, started_at)
         VALUES ('a', 'running', 1, 'b', now() + interval '1 hour', now())",
    );
    db.allow_running_runs_at_end();
    let [b, a] = [db.enqueue(["b"]), db.enqueue(["a"])];
    tick(&db);
    assert_eq!(pending_ids(&db), format!("{b} {a}"));
    // Now `a` has the lock `office`, which its running run keeps taken. So `b` can start.
    db.apply(&TWO_JOBS.replacen("warehouse", "office", 1));
    tick(&db);
    assert_eq!(pending_ids(&db), a.to_string());
}

#[test]
fn a_wrong_lock_is_refused() {
    let db = TestDb::new();
    // The value of `lock` in a definition, and the error.
    for (lock, why) in [
        ("''", "a lock's name must have 1 to 255 bytes"),
        ("'-a'", "a lock's name must have 1 to 255 bytes"),
        ("3", "must be a string"),
        ("{ name = 'a' }", "a table has `name` and `most`"),
        ("{ name = 'a', most = 0 }", "`most`: must be a whole number from 1 to 999999"),
        ("{ name = 'a', most = 1, x = 1 }", "a table has `name` and `most`"),
    ] {
        let text = format!("[jobs.a]\nshell = 'true'\nlock = {lock}\n");
        let refused = db.jobctl(["apply", "--dry-run", "-"]).stdin(text).run().exits(2);
        refused.stderr_has("`lock`").stderr_has(why);
    }
    db.apply(TWO_JOBS);
    for lock in ["", "-x", "a\tb", &"x".repeat(256)] {
        let flag = format!("--lock={lock}");
        db.jobctl(["enqueue", "shell", &flag, "--", "true"]).run().exits(2).stderr_has("lock");
    }
    // A run of a job with a lock can't bring another one.
    let refused = "the definition has the lock warehouse; leave lock out";
    db.jobctl(["enqueue", "a", "--lock", "b"]).run().exits(2).stderr_has(refused);
}

#[test]
fn ticks_of_four_workers_never_start_runs_with_one_lock_at_the_same_time() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'sleep 0.01'\nlock = 'x'\n[jobs.b]\nshell = 'sleep 0.01'\n\
         [jobs.c]\nshell = 'sleep 0.01'\nrate = '9999/1s'\n",
    );
    // 30 runs of `a` get the lock of their definition. Of `b` and of `c`, ten runs each have the
    // lock `x`, `y` and `z`. The rate of `c` delays no run, but jobs with a limit are claimed in
    // another way.
    for runs in [
        "SELECT 'a', NULL FROM generate_series(1, 30)",
        "SELECT 'b', lock FROM unnest(ARRAY['x', 'y', 'z']) AS lock, generate_series(1, 10)",
        "SELECT 'c', lock FROM unnest(ARRAY['x', 'y', 'z']) AS lock, generate_series(1, 10)",
    ] {
        db.execute(&format!("INSERT INTO jobctl.job_runs (job_type, lock) {runs}"));
    }
    let flags = ["tick", "--concurrency", "4", "--linger", "--max-time", "3s", "--worker"];
    let ticks = ["w1", "w2", "w3", "w4"].map(|worker| db.jobctl(flags).args([worker]).spawn());
    for tick in ticks {
        tick.wait().success();
    }
    // A last tick starts the runs for which these four had no time.
    tick(&db);
    assert_eq!(pending_ids(&db), "");
    assert_eq!(overlaps(&db), "0");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "90");
}

#[test]
fn a_due_run_is_found_behind_thousands_of_locks() {
    let db = TestDb::new();
    // 3,000 runs with a lock each that are not due yet.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, lock, run_at)
         SELECT 'shell', 'lock ' || number, now() + interval '1 hour'
         FROM generate_series(1, 3000) AS number",
    );
    let due = db.enqueue(["shell", "--lock", "z", "--", "true"]);
    tick(&db);
    assert_eq!(db.status(due), "succeeded");
    // 3,000 due runs whose lock is taken.
    take_lock(&db, "taken");
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, lock, priority)
         SELECT 'shell', 'taken', number FROM generate_series(1, 3000) AS number",
    );
    let due = db.enqueue(["shell", "--lock", "zz", "--", "true"]);
    tick(&db);
    assert_eq!(db.status(due), "succeeded");
}

#[test]
fn smaller_priorities_get_the_lock_first() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let third = db.enqueue(["a"]);
    let second = db.enqueue(["b", "--priority", "-1"]);
    let first = db.enqueue(["shell", "--lock", "warehouse", "--priority", "-2", "--", "true"]);
    db.jobctl(["tick", "--concurrency", "4"]).run().success();
    let order = "SELECT string_agg(run_id::text, ' ' ORDER BY started_at) FROM jobctl.job_attempts";
    assert_eq!(db.query(order), format!("{first} {second} {third}"));
}

#[test]
fn a_worker_role_may_claim_runs_with_locks_and_a_tick_for_one_run_obeys_them() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    db.apply(TWO_JOBS);
    // A run with the lock of its definition, and a run with a lock of its own.
    let (a, own) = (db.enqueue(["a"]), db.enqueue(["shell", "--lock", "x", "--", "true"]));
    worker.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!([a, own].map(|run| db.status(run)), ["succeeded", "succeeded"]);

    // A tick for a run whose lock is taken does not start it.
    take_lock(&db, "x");
    let older = db.enqueue(["shell", "--lock", "y", "--", "true"]);
    let without_lock = db.enqueue(["shell", "--lock", "x", "--", "true"]);
    db.jobctl(["tick", "--run", &without_lock.to_string()]).run();
    assert_eq!(db.status(without_lock), "queued");
    // A tick for a run whose lock is free starts only this run, although an older one has the lock,
    // too.
    let wanted = db.enqueue(["shell", "--lock", "y", "--", "true"]);
    db.jobctl(["tick", "--run", &wanted.to_string()]).run().success();
    assert_eq!(db.status(older), "queued");
    assert_eq!(db.status(wanted), "succeeded");
}

#[test]
fn runs_with_locks_obey_holds_queues_excluded_kinds_and_expiry() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\n");
    let a = db.enqueue(["a", "--lock", "x"]);
    let b = db.enqueue(["b", "--lock", "y"]);
    let c = db.enqueue(["a", "--lock", "z", "--queue", "mail"]);
    // A hold of the job `b`, and another queue than that of `c`.
    db.jobctl(["hold", "--job", "b", "--reason", "test"]).run().success();
    tick_queue(&db, "default");
    assert_eq!(db.status(a), "succeeded");
    assert_eq!(pending_ids(&db), format!("{b} {c}"));
    // A tick that executes no commands.
    db.jobctl(["release", "--job", "b"]).run().success();
    db.jobctl(["tick", "--shell", "off"]).run().success();
    assert_eq!(pending_ids(&db), format!("{b} {c}"));
    tick_queue(&db, "default");
    assert_eq!(pending_ids(&db), c.to_string());
    // The last run expires.
    db.execute("UPDATE jobctl.job_runs SET expires_at = now()");
    tick(&db);
    assert_eq!(db.status(c), "cancelled");
}

#[test]
fn a_disabled_definition_does_not_limit_how_many_runs_may_have_a_lock() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let most = "SELECT jobctl.most_with_lock('warehouse')";
    assert_eq!(db.query(most), "1");
    // The file does not have `a` and `b` any more, so they are disabled.
    db.apply("[jobs.c]\nshell = 'true'\nlock = { name = 'warehouse', most = 2 }\n");
    assert_eq!(db.query(most), "2");
}

#[test]
fn a_thousand_locks_delay_no_claim() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, lock)
         SELECT 'shell', '{\"command\": \"true\"}', 'account:' || number
         FROM generate_series(1, 1500) AS number",
    );
    let begun = std::time::Instant::now();
    db.jobctl(["tick", "--limit", "20"]).run().success();
    // It would take a minute if a claim read all runs again for each run.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let done = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'";
    assert_eq!(db.query(done), "20");
}

#[test]
fn a_claim_leaves_the_runs_of_other_locks_to_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let [first_run, second_run, _] =
        ["a", "b", "c"].map(|lock| db.enqueue(["shell", "--lock", lock, "--", "true"]));
    // The tick `t` of each worker has the claim right.
    for worker in ["w1", "w2"] {
        db.execute(&format!(
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, claiming_tick,
                 claiming_until)
             VALUES ('{worker}', '', now(), 't', now() + interval '1 hour')"
        ));
    }
    // The claim of one run by a tick `t`, without any limit of jobs or queues.
    let claim = |worker: &str| {
        format!(
            "SELECT id FROM jobctl.claim_runs('{worker}', 't', 1, 60, '{{}}', '{{}}', '{{}}',
                 '{{}}', NULL, NULL, NULL, NULL, 1000000, 8, NULL, NULL, 0, '{{}}', '{{}}', NULL,
                 false)"
        )
    };
    // While the first claim is not committed, the second one skips its lock and takes the next run.
    let mut first = db.client();
    let mut first = first.transaction().unwrap();
    let id: i64 = first.query_one(&claim("w1"), &[]).unwrap().get(0);
    assert_eq!(id, first_run);
    assert_eq!(db.query(&claim("w2")), second_run.to_string());
}

#[test]
fn within_locks_names_the_job_whose_lock_another_claim_is_counting() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--lock", "a", "--", "true"]);
    // Another claim, not yet committed, is counting the runs with the lock.
    let mut other = db.client();
    let mut other = other.transaction().unwrap();
    other.execute("SELECT FROM jobctl.job_lock_slots FOR UPDATE", &[]).unwrap();
    // Of the given runs, the function returns those that may start, and the job of a skipped run.
    let within = format!("SELECT runs, skipped_job FROM jobctl.within_locks('{{{run}}}')");
    assert_eq!(db.query(&within), "{}|shell");
    other.rollback().unwrap();
    assert_eq!(db.query(&within), format!("{{{run}}}|"));
}
