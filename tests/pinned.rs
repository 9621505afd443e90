//! A run may be for one worker: only that one claims it.

use crate::support::TestDb;

fn tick(db: &TestDb, worker: &str) {
    db.jobctl(["tick", "--worker", worker]).run().success();
}

#[test]
fn only_its_worker_claims_a_pinned_run() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nmax_running = 3\n");
    // Enqueue six runs for web1 in all ways, and run 7 for any worker. In the batch, the flag is
    // the default of the last line.
    let lines = r#"{"job_type": "a", "worker": "web1"}
{"job_type": "shell", "payload": {"command": "true"}, "worker": "web1"}
{"job_type": "b"}"#;
    db.jobctl(["enqueue", "--batch", "-", "--worker", "web1"]).stdin(lines).run().success();
    db.query("SELECT jobctl.enqueue('a', worker => 'web1')");
    db.enqueue(["b", "--worker", "web1"]);
    db.enqueue(["shell", "--worker", "web1", "--lock", "x", "--", "true"]);
    let for_any = db.enqueue(["a"]);
    let waiting = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
    tick(&db, "web2");
    assert_eq!(db.query(waiting), "6");
    assert_eq!(db.status(for_any), "succeeded");
    db.jobctl(["show", "1"])
        .run()
        .stdout_has("no tick of worker web1 has served its queue yet")
        .stdout_has("only_worker\tweb1\n");
    let preview = db.jobctl(["tick", "--dry-run", "--worker", "web2"]).run().success().stdout;
    assert!(!preview.contains("shell"), "{preview}");
    tick(&db, "web1");
    assert_eq!(db.query(waiting), "0");
    let workers = format!(
        "SELECT string_agg(DISTINCT worker, ' ') FROM jobctl.job_attempts
         WHERE run_id <> {for_any}"
    );
    assert_eq!(db.query(&workers), "web1");
}

#[test]
fn a_pinned_run_keeps_its_worker_in_a_retry() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--worker", "web1", "--max-attempts", "1", "--", "false"]);
    tick(&db, "web1");
    assert_eq!(db.status(run), "dead");
    db.jobctl(["retry", &run.to_string()]).run().success();
    tick(&db, "web2");
    assert_eq!(db.status(run), "queued");
    // A tick of another worker for this run does not start it, either.
    db.jobctl(["tick", "--run", &run.to_string(), "--worker", "web2"]).run();
    assert_eq!(db.status(run), "queued");
}

#[test]
fn enqueue_refuses_an_invalid_worker_name() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    for worker in ["", "a\tb", &"x".repeat(256)] {
        let flag = format!("--worker={worker}");
        db.jobctl(["enqueue", "a", &flag]).run().exits(2).stderr_has("worker");
    }
}

/// Lets each worker tick twice. A worker that has ticked only once does not count as one that
/// ticks regularly, so `each_worker` gives it no run.
fn let_tick_twice(db: &TestDb, workers: &[&str]) {
    for worker in workers {
        tick(db, worker);
        tick(db, worker);
    }
}

/// Returns a database in which these workers have ticked twice, with a job that has a schedule, and
/// these keys, and is due now.
fn db_with_due_schedule(workers: &[&str], keys: &str) -> TestDb {
    let db = TestDb::new();
    let_tick_twice(&db, workers);
    db.apply(&format!("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n{keys}\n"));
    // Gives the schedule its first time.
    tick(&db, "any");
    make_schedule_due(&db);
    db
}

/// Makes the schedule due now, and its earlier runs an hour older, so that they have other times.
fn make_schedule_due(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())
         WHERE schedule IS NOT NULL;
         UPDATE jobctl.job_runs SET scheduled_for = scheduled_for - interval '1 hour'",
    );
}

/// Lists the workers of the runs of schedules, with the statuses of the runs.
const WORKERS_AND_STATUSES: &str = "SELECT string_agg(coalesce(worker, '-') || ' ' || status, ', '
                                        ORDER BY worker, id)
                      FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL";

#[test]
fn each_worker_gives_a_run_to_each_worker_that_ticks_regularly() {
    let db = db_with_due_schedule(
        &["web1", "web2", "db_1", "held", "napping", "away"],
        "each_worker = true",
    );
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '61 minutes'
         WHERE worker = 'away'",
    );
    for arguments in [&["held"][..], &["napping", "--for", "1h"]] {
        db.jobctl(["hold", "--worker"]).args(arguments.iter().copied()).run().success();
    }
    tick(&db, "web2");
    // No run is for `any`, which has ticked once, for `held`, which is held without an end, and for
    // `away`, which has not ticked for an hour.
    let waiting = "db_1 queued, napping queued, web1 queued, web2 succeeded";
    assert_eq!(db.query(WORKERS_AND_STATUSES), waiting);
    // Each worker executes only its own run.
    tick(&db, "db_1");
    tick(&db, "any");
    tick(&db, "web2");
    let waiting = "db_1 succeeded, napping queued, web1 queued, web2 succeeded";
    assert_eq!(db.query(WORKERS_AND_STATUSES), waiting);
}

#[test]
fn each_worker_gives_no_second_run_to_a_worker_whose_run_still_waits() {
    let db = db_with_due_schedule(&["web1", "web2"], "each_worker = true");
    tick(&db, "web2");
    make_schedule_due(&db);
    tick(&db, "web2");
    // The run of web1 still waits, so web1 got no second one. After it, web1 gets the next one.
    assert_eq!(db.query(WORKERS_AND_STATUSES), "web1 queued, web2 succeeded, web2 succeeded");
    tick(&db, "web1");
    make_schedule_due(&db);
    tick(&db, "web1");
    tick(&db, "web2");
    let done = "web1 succeeded, web1 succeeded, web2 succeeded, web2 succeeded, web2 succeeded";
    assert_eq!(db.query(WORKERS_AND_STATUSES), done);
}

#[test]
fn workers_gives_runs_only_to_workers_that_match_and_skips_a_time_without_any() {
    // In a pattern, only `*` is special. `%` is a wildcard of SQL, but here a letter.
    let workers = ["web1", "web2", "xweb", "w%b1", "db"];
    let db = db_with_due_schedule(&workers, "workers = ['web*', 'w%b*']");
    tick(&db, "db");
    assert_eq!(db.query(WORKERS_AND_STATUSES), "w%b1 queued, web1 queued, web2 queued");

    // No worker matches.
    let db = db_with_due_schedule(&["web1"], "workers = ['mail*']");
    tick(&db, "web1");
    assert_eq!(db.query(WORKERS_AND_STATUSES), "");
    assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), "1");
    db.jobctl(["jobs", "a"]).run().success().stdout_has("mail*");
}

#[test]
fn check_names_the_worker_of_a_late_pinned_run_and_not_its_job() {
    let db = db_with_due_schedule(&["web1", "web2"], "each_worker = true\nexpires = '3d'");
    tick(&db, "web2");
    // `web1` ticked for the last time an hour ago, and its run has been due for 20 minutes.
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '1 hour',
             ticking_since = now() - interval '1 hour' WHERE worker = 'web1';
         UPDATE jobctl.job_runs SET run_at = now() - interval '20 minutes' WHERE worker = 'web1'",
    );
    // This run is for a worker that does not exist.
    db.enqueue(["a", "--worker", "wbe2"]);
    db.execute(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '20 minutes' WHERE worker = 'wbe2'",
    );
    let found = db.jobctl(["check"]).run().exits(1).stdout;
    assert!(found.contains("worker web1 does not tick, and 1 due run is only for it"), "{found}");
    assert!(
        found.contains("worker wbe2 has never ticked, and 1 due run is only for it"),
        "{found}"
    );
    // No finding names the job as overdue.
    assert!(!found.contains("overdue"), "{found}");
}

#[test]
fn enqueue_warns_of_a_worker_name_that_looks_misspelt() {
    let db = TestDb::new();
    tick(&db, "web1");
    let command = ["enqueue", "shell", "--worker", "wbe1", "--", "true"];
    db.jobctl(command)
        .run()
        .success()
        .stderr("jobctl: no tick has named the worker `wbe1`; did you mean `web1`?\n");
    db.jobctl(["enqueue", "shell", "--worker", "new", "--", "true"]).run().success().stderr("");
}

#[test]
fn a_job_after_an_each_worker_job_waits_for_the_runs_of_all_workers() {
    let db = TestDb::new();
    let_tick_twice(&db, &["web1", "web2"]);
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\neach_worker = true\n
         [jobs.b]\nshell = 'true'\nafter = ['a']\n",
    );
    // Gives the schedule its first time.
    tick(&db, "web1");
    make_schedule_due(&db);
    let status = "SELECT string_agg(job_type || ' ' || status, ', ' ORDER BY id)
                  FROM jobctl.job_runs";
    tick(&db, "web1");
    assert_eq!(db.query(status), "a succeeded, a queued, b blocked");
    tick(&db, "web2");
    assert_eq!(db.query(status), "a succeeded, a succeeded, b succeeded");
}
