//! `rate` limits how many runs of a definition start in a time, over all workers.

use crate::support::{TestDb, temp_dir};

const SUCCEEDED: &str = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'";

fn tick(db: &TestDb, worker: &str) {
    db.jobctl(["tick", "--worker", worker]).run().success();
}

/// Moves the times of the rates back, as if this time had passed.
fn let_time_pass(db: &TestDb, time: &str) {
    // `rate_next_at`: the end of the time that all starts so far use up.
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET rate_next_at = rate_next_at - interval '{time}'"
    ));
}

#[test]
fn no_more_runs_start_than_the_rate_allows_over_all_workers() {
    let db = TestDb::new();
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '3/1d'\n");
    for _ in 0..8 {
        db.enqueue(["mail"]);
    }
    let other = db.enqueue(["shell", "--", "true"]);
    tick(&db, "a");
    tick(&db, "b");
    // Three runs of the job, and the run of another job.
    assert_eq!(db.status(other), "succeeded", "other jobs go on");
    assert_eq!(db.query(SUCCEEDED), "4");

    // A third of the day allows one more, and not a second.
    let_time_pass(&db, "8 hours");
    tick(&db, "b");
    tick(&db, "a");
    assert_eq!(db.query(SUCCEEDED), "5");

    let_time_pass(&db, "7 days");
    tick(&db, "a");
    assert_eq!(db.query(SUCCEEDED), "8", "a long pause allows one burst of three");
}

#[test]
fn a_burst_is_how_many_may_start_at_once() {
    let db = TestDb::new();
    // One start an hour, but two at once.
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '24/1d'\nburst = 2\n");
    // Without a tick, `show` would say that no worker ticks.
    tick(&db, "a");
    let ids = [(); 3].map(|()| db.enqueue(["mail"]));

    // The burst of two is used up for another hour.
    db.execute("UPDATE jobctl.job_definitions SET rate_next_at = now() + interval '2 hours'");
    let shown = db.jobctl(["show", &ids[0].to_string()]).run().success().stdout;
    assert!(shown.contains("its rate of 24/1d is used up for another "), "{shown}");
    tick(&db, "a");
    assert_eq!(db.query(SUCCEEDED), "0");

    // Nothing of the rate is used up.
    db.execute("UPDATE jobctl.job_definitions SET rate_next_at = NULL");
    db.jobctl(["tick", "--limit", "2"]).run().success();
    assert_eq!(db.query(SUCCEEDED), "2");
}

#[test]
fn a_rate_counts_every_attempt_and_max_running_holds_beside_it() {
    let db = TestDb::new();
    db.apply(
        "[jobs.mail]\nshell = 'exit 1'\nrate = '2/1d'\nbackoff = 'fixed:0s'\nmax_attempts = 5\n\
         [jobs.both]\nshell = 'true'\nrate = '1000/1d'\nmax_running = 1\n",
    );
    let mail = db.enqueue(["mail"]);
    let both = db.enqueue(["both"]);
    // Another worker executes a run of `both`, so `max_running` is used up.
    db.execute(
        "INSERT INTO jobctl.job_runs
             (job_type, status, attempts, locked_by, locked_until, started_at)
         VALUES ('both', 'running', 1, 'b', now() + interval '1 hour', now())",
    );
    db.allow_running_runs_at_end();
    tick(&db, "a");
    assert_eq!(db.of_run(mail, "status, attempts"), "failed|2");
    assert_eq!(db.status(both), "queued");
}

#[test]
fn a_changed_rate_begins_again_and_an_unchanged_one_goes_on_after_apply() {
    let db = TestDb::new();
    let slow = "[jobs.mail]\nshell = 'true'\nrate = '1/1d'\n";
    db.apply(slow);
    db.enqueue(["mail"]);
    db.enqueue(["mail"]);
    tick(&db, "a");
    // With the same rate, the day's only start is still used up.
    db.apply(&format!("{slow}priority = 1\n"));
    tick(&db, "a");
    assert_eq!(db.query(SUCCEEDED), "1");
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '60/1m'\n");
    tick(&db, "a");
    assert_eq!(db.query(SUCCEEDED), "2");
}

#[test]
fn apply_refuses_a_rate_that_is_not_a_number_and_a_time() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let refuses = |keys: &str, why: &str| {
        let text = format!("[jobs.mail]\nshell = 'true'\n{keys}\n");
        std::fs::write(folder.path().join("jobs.toml"), text).unwrap();
        let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run();
        refused.exits(2).stderr_has(why);
    };
    for rate in ["60", "0/1m", "60/m", "60/1w", "60/1m30s", "1000000/1s", "60/1 m"] {
        refuses(&format!("rate = '{rate}'"), "as in 60/1m");
    }
    refuses("burst = 2", "`burst` needs `rate`; add it");
}
