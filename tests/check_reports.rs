//! `check --exec` and `check --webhook`: problems reach a person once, and not before the receiver
//! has them.

use serde_json::Value;

use crate::support::http_server::HttpServer;
use crate::support::{Finished, Invocation, TestDb, jobctl, temp_dir};

/// Returns a database whose worker ticks, with a dead run.
fn db_with_dead_run() -> TestDb {
    let db = TestDb::new();
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    enqueue_and_let_die(&db);
    db
}

/// Enqueues a run and lets a tick end it dead.
fn enqueue_and_let_die(db: &TestDb) {
    db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "exit 3"]);
    db.jobctl(["tick", "--worker", "web1"]).run().success();
}

/// How the report of `db_with_dead_run` begins.
const DEAD_RUN: &str = "1 dead run of shell, since ";

#[test]
fn a_command_gets_each_problem_once_after_it_has_accepted_it() {
    let db = db_with_dead_run();
    let folder = temp_dir();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (state, reported, fails) = (path("state"), path("reported"), path("fails"));
    // The command writes what it gets to `reported`. It fails while the file `fails` exists.
    let command = format!("cat >{reported}; ! test -e {fails}");
    let check = |flags: &[&'static str]| -> Finished {
        let check = db.jobctl(["check", "--exec", &command]).args(flags.iter().copied());
        check.env("XDG_STATE_HOME", &state).run()
    };
    // Returns what the command got from this check.
    let received = |check: Finished| {
        check.stdout("").stderr("");
        let text = std::fs::read_to_string(&reported).unwrap_or_default();
        let _ = std::fs::remove_file(&reported);
        text
    };
    // While the command fails, the problem stays new.
    std::fs::write(&fails, "").unwrap();
    for _ in 0..2 {
        let failed = check(&[]).exits(1).stdout("");
        failed.stderr("jobctl: cannot report the problems to the command cat: exit status 1\n");
    }
    let missing_command = db.jobctl(["check", "--exec", "no-such-mail ops@example.com"]);
    let failed =
        missing_command.env("XDG_STATE_HOME", &state).env("PATH", "/nowhere").run().exits(1);
    failed
        .stderr_has("to the command no-such-mail: exit status 127 (command not found): ")
        .stderr_has("no-such-mail: not found; PATH is `/nowhere`\n");
    std::fs::remove_file(&fails).unwrap();
    assert!(received(check(&[]).exits(1)).starts_with(&format!("new: {DEAD_RUN}")));
    assert_eq!(received(check(&[]).exits(1)), "");
    enqueue_and_let_die(&db);
    assert!(received(check(&[]).exits(1)).starts_with("new: 2 dead runs of shell, since "));
    // With --resolved, the end of a problem is reported, too. A check with other flags remembers
    // its own reports, so the problem is new for this one.
    assert!(received(check(&["--resolved"]).exits(1)).starts_with("new: 2 dead runs"));
    db.jobctl(["settle", "--all-dead", "--yes", "--reason", "seen"]).run().success();
    assert_eq!(received(check(&[]).success()), "");
    std::fs::write(&fails, "").unwrap();
    check(&["--resolved"]).exits(1).stderr_has("cannot report");
    std::fs::remove_file(&fails).unwrap();
    assert!(received(check(&["--resolved"]).success()).starts_with("resolved: 2 dead runs"));
    assert_eq!(received(check(&["--resolved"]).success()), "");
    // The same news as JSON.
    enqueue_and_let_die(&db);
    let body: Value = serde_json::from_str(&received(check(&["--json"]).exits(1))).unwrap();
    assert_eq!(body["new"][0]["code"], "runs_dead");
    assert_eq!(body["fine"], false);
    assert_eq!(body["known"].as_array().unwrap().len(), 0);
    assert!(body["text"].as_str().unwrap().starts_with(&format!("new: {DEAD_RUN}")), "{body}");
}

#[test]
fn a_webhook_gets_each_problem_once_after_it_has_accepted_it() {
    let db = db_with_dead_run();
    let (server, state) = (HttpServer::start(), temp_dir());
    let check = |path: &str| {
        let check =
            db.jobctl(["check", "--resolved"]).env("JOBCTL_CHECK_WEBHOOK", &server.url(path));
        check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run()
    };
    // The server fails once. The error does not repeat the address, which may be a secret.
    let failed = check("/fail/1/secret").exits(1).stdout("");
    failed
        .stderr_has("cannot report the problems to the webhook of 127.0.0.1: HTTP status 5")
        .prints_nowhere("secret");
    // The second report is accepted, and the third check has nothing new to report.
    check("/fail/1/secret").exits(1).stderr("");
    check("/fail/1/secret").exits(1).stderr("");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let body: Value = serde_json::from_slice(&requests[1].body).unwrap();
    assert!(body["text"].as_str().unwrap().starts_with(&format!("new: {DEAD_RUN}")), "{body}");
    assert_eq!(body["new"][0]["job_type"], "shell");
    db.jobctl(["settle", "--all-dead", "--yes", "--reason", "seen"]).run().success();
    check("/fail/1/secret").success().stderr("");
    let body: Value = serde_json::from_slice(&server.requests()[2].body).unwrap();
    assert_eq!(body["fine"], true);
    assert_eq!(&body["new"], &Value::Array(Vec::new()));
    assert!(body["resolved"][0].as_str().unwrap().starts_with(DEAD_RUN), "{body}");
}

#[test]
fn an_outage_of_the_database_is_reported_too() {
    let state = temp_dir();
    let reports = state.path().join("reports");
    let command = format!("cat >>{}", reports.display());
    let reported = |flags: &[&str]| {
        let check: Invocation<'_> = jobctl(["check", "--exec", &command]);
        let check = check.args(flags.iter().copied());
        let check = check.env("JOBCTL_DATABASE_URL", "postgresql://127.0.0.1:1/none");
        let check = check.env("XDG_STATE_HOME", state.path().to_str().unwrap());
        check.run().exits(5).stdout("").stderr("");
        let lines = std::fs::read_to_string(&reports).unwrap_or_default();
        std::fs::write(&reports, "").unwrap();
        lines.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(reported(&[]), ["new:"]);
    assert!(reported(&[]).is_empty());
    // As other problems, it is reported again after the time of --repeat. Each set of flags
    // remembers its own reports, so the first one is new again.
    for (repeat, again) in [("0s", &["cannot"][..]), ("1h", &[])] {
        assert_eq!(reported(&["--repeat", repeat]), ["new:"]);
        assert_eq!(reported(&["--repeat", repeat]), again);
    }
}

#[test]
fn an_outage_is_printed_once_and_again_after_the_time_of_repeat() {
    let state = temp_dir();
    let check = |flags: &[&str]| {
        let check: Invocation<'_> = jobctl(["check"]).args(flags.iter().copied());
        let check = check.env("JOBCTL_DATABASE_URL", "postgresql://127.0.0.1:1/none");
        check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(5)
    };
    check(&["--repeat", "1h"]).stderr_has("cannot connect");
    check(&["--repeat", "1h"]).stderr("");
    check(&["--repeat", "0s"]).stderr_has("cannot connect");
    check(&["--repeat", "0s"]).stderr_has("cannot connect");
    // Without a flag that remembers, each call prints it.
    check(&[]).stderr_has("cannot connect");
    check(&[]).stderr_has("cannot connect");
}

#[test]
fn check_refuses_flags_that_do_not_fit_together() {
    for flags in [
        // This flag needs a receiver or a time.
        &["--resolved"][..],
        &["--webhook", "http://a", "--json"],
        &["--webhook", "http://a", "--exec", "true"],
        &["--repeat", "1h", "--json"],
        // No URL.
        &["--webhook", "a"],
    ] {
        let db = db_with_dead_run();
        let state = temp_dir();
        let check = db.jobctl(["check"]).args(flags.iter().copied());
        check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(2).stdout("");
    }
}

/// While no worker ticks, `check` does not say that none serves the queue `q`: the missing worker
/// is the cause. That hidden problem is not over, so `check` must not report it as resolved, and
/// not as new when the worker is back.
#[test]
fn check_reports_a_problem_that_a_missing_worker_hides_neither_as_over_nor_as_new() {
    let db = db_with_dead_run();
    let state = temp_dir();
    // With --max-dead, the dead run is not a problem here.
    let check = || -> String {
        let check = db.jobctl(["check", "--repeat", "1h", "--resolved", "--max-dead", "9"]);
        check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().stdout
    };
    // A run has been due for a day in a queue that the only worker does not serve.
    let id = db.enqueue(["shell", "--queue", "q", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '1 day' WHERE id = {id};
         UPDATE jobctl.job_workers SET queues = '{{default}}'"
    ));
    let first = check();
    assert!(first.starts_with("new: no worker serves queue q"), "{first}");
    assert_eq!(first.lines().count(), 1, "{first}");
    let set_last_tick = |ago: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers SET ticking_since = now() - interval '9 days',
                 last_tick_at = now() - interval '{ago}'"
        ));
    };
    // The worker is missing.
    set_last_tick("1 day");
    let missing = check();
    assert!(missing.starts_with("new: no worker") && !missing.contains(" queue "), "{missing}");
    assert_eq!(missing.lines().count(), 1, "{missing}");
    // The worker is back.
    set_last_tick("1 second");
    let back = check();
    assert!(back.starts_with("resolved: no worker") && !back.contains("new:"), "{back}");
    assert!(!back.contains("resolved: no worker serves"), "{back}");
    // Without a run in the queue, the problem is over.
    db.execute("DELETE FROM jobctl.job_runs WHERE queue = 'q'");
    let over = check();
    assert!(over.starts_with("resolved: no worker serves queue q"), "{over}");
}
