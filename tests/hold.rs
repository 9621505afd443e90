//! `hold` keeps waiting runs from being claimed; `release` lets them start.

use crate::support::{Gate, TestDb, wait_until};

fn tick(db: &TestDb, worker: &str) {
    db.jobctl(["tick", "--worker", worker]).run().success();
}

#[test]
fn held_jobs_and_queues_are_not_claimed() {
    let db = TestDb::new();
    db.apply("[jobs.free]\nshell = 'true'\n[jobs.limited]\nshell = 'true'\nmax_running = 2\n");
    let shell = db.enqueue(["shell", "--", "true"]);
    let free = db.enqueue(["free"]);
    let limited = db.enqueue(["limited"]);
    let limited_mail = db.enqueue(["limited", "--queue", "mail"]);
    let mail = db.enqueue(["free", "--queue", "mail"]);
    db.jobctl(["hold", "--job", "shell"]).run().success().stdout("job\tshell\theld\n");
    db.jobctl(["hold", "--job", "limited"]).run().success();
    db.jobctl(["hold", "--queue", "mail"]).run().success();
    let due = db.jobctl(["tick", "--dry-run"]).run().success().stdout;
    assert_eq!(due.lines().count(), 1, "{due}");
    tick(&db, "a");
    let statuses = [shell, free, limited, limited_mail, mail].map(|run| db.status(run));
    assert_eq!(statuses, ["queued", "succeeded", "queued", "queued", "queued"]);

    let later = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["release", "--job", "limited"]).run().success().stdout("job\tlimited\treleased\n");
    tick(&db, "a");
    let statuses = [limited, limited_mail, later].map(|run| db.status(run));
    assert_eq!(statuses, ["succeeded", "queued", "queued"]);

    db.jobctl(["release", "--job", "shell"]).run().success().stdout("job\tshell\treleased\n");
    db.jobctl(["release", "--queue", "mail"]).run().success().stdout("queue\tmail\treleased\n");
    tick(&db, "a");
    for run in [shell, limited_mail, mail, later] {
        assert_eq!(db.status(run), "succeeded");
    }
}

#[test]
fn a_held_worker_claims_nothing_and_others_do() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["hold", "--worker", "a"]).run().success();
    db.jobctl(["tick", "--dry-run", "--worker", "a"]).run().success().stdout("");
    tick(&db, "a");
    assert_eq!(db.status(run), "queued");
    tick(&db, "b");
    assert_eq!(db.status(run), "succeeded");

    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["hold", "--all"]).run().success().stdout("all\t\theld\n");
    tick(&db, "b");
    assert_eq!(db.status(run), "queued");
}

#[test]
fn during_a_hold_schedules_fire_and_running_runs_finish() {
    let db = TestDb::new();
    let gate = Gate::new();
    let running = gate.enqueue(&db);
    let lingering = db.jobctl(["tick", "--linger"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["hold", "--all"]).run().success();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())");
    gate.open();
    db.wait_for_status(running, "succeeded");
    tick(&db, "b");
    let fired = "SELECT status, attempts FROM jobctl.job_runs WHERE job_type = 'a'";
    assert_eq!(db.query(fired), "queued|0");
    db.jobctl(["release", "--all"]).run().success();
    wait_until("the run to start after the release", || db.query(fired) == "succeeded|1");
    lingering.signal(rustix::process::Signal::TERM);
    lingering.wait().success();
}

#[test]
fn a_lost_run_is_recovered_during_a_hold_but_not_claimed() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--backoff", "fixed:0s", "--", "true"]);
    db.leaves_running();
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'lost', \
         locked_until = now() - interval '1 second', started_at = now()",
    );
    db.jobctl(["hold", "--all"]).run().success();
    tick(&db, "a");
    assert_eq!(db.of_run(run, "status, attempts"), "failed|1");
    db.jobctl(["release", "--all"]).run().success();
    tick(&db, "a");
    assert_eq!(db.of_run(run, "status, attempts"), "succeeded|2");
}

#[test]
fn a_hold_ends_after_its_time() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["hold", "--job", "shell", "--for", "2h"]).run().success();
    let lasts = "SELECT held_until - held_at FROM jobctl.job_holds";
    assert_eq!(db.query(lasts), "02:00:00");
    tick(&db, "a");
    assert_eq!(db.status(run), "queued");
    db.execute("UPDATE jobctl.job_holds SET held_until = now()");
    tick(&db, "a");
    assert_eq!(db.status(run), "succeeded");
    db.jobctl(["hold", "--list"]).run().success().stdout("");
    db.jobctl(["release", "--job", "shell"])
        .run()
        .success()
        .stdout("")
        .stderr("jobctl: no holds of job shell are in force; `jobctl hold --list` prints them\n");
    let release = db.jobctl(["release", "--all", "--json"]).run().success().stdout("[]\n");
    release.stderr_has("no holds of all runs are in force");
}

#[test]
fn several_holds_overlap_and_release_ends_them_all() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["hold", "--job", "shell", "--for", "1h"]).run().success();
    db.jobctl(["hold", "--job", "shell", "--reason", "SMTP is down"]).run().success();
    db.execute("UPDATE jobctl.job_holds SET held_until = now() WHERE held_until IS NOT NULL");
    tick(&db, "a");
    assert_eq!(db.status(run), "queued");
    let holds = db.jobctl(["hold", "--list", "--json"]).run().success().stdout;
    assert!(holds.contains("\"reason\":\"SMTP is down\""), "{holds}");
    db.jobctl(["release", "--job", "shell"]).run().success().stdout("job\tshell\treleased\n");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_holds"), "0");
}

#[test]
fn releasing_all_ends_only_the_hold_of_all() {
    let db = TestDb::new();
    for hold in [&["--worker", "web1"][..], &["--queue", "mail"], &["--all"]] {
        db.jobctl(["hold"]).args(hold.iter().copied()).run().success();
    }
    let others = "jobctl: other holds stay in force: 2; `jobctl hold --list` prints them\n";
    let release = db.jobctl(["release", "--all"]).run().success();
    release.stdout("all\t\treleased\n").stderr(others);
    let held = "SELECT scope, name FROM jobctl.job_holds ORDER BY 1";
    assert_eq!(db.query(held), "queue|mail\nworker|web1");
}

#[test]
fn show_names_the_hold_and_check_ignores_held_runs() {
    let db = TestDb::new();
    tick(&db, "other");
    let run = db.enqueue(["shell", "--", "true"]).to_string();
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    db.jobctl(["check"]).run().exits(1).stdout_has("shell is overdue");
    db.jobctl(["hold", "--queue", "default", "--reason", "SMTP is down"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    let reason = db.jobctl(["show", &run]).run().success().stdout;
    assert!(reason.contains(": SMTP is down"), "{reason}");
    assert!(reason.contains(": held by "), "{reason}");
    let details = db.jobctl(["show", &run, "--json"]).run().success().stdout;
    assert!(details.contains("\"hold_reason\":\"SMTP is down\""), "{details}");
    db.jobctl(["release", "--queue", "default"]).run().success();

    // The worker that serves the queue is held and shut down; another serves another queue.
    db.jobctl(["hold", "--worker", "other"]).run().success();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '1 hour', \
         ticking_since = now() - interval '9 days'",
    );
    db.jobctl(["check"]).run().success().stdout("");
    let held = "no worker claims from its queue; worker other is held by ";
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    db.jobctl(["tick", "--worker", "b", "--queue", "b"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    // Another worker serves the queue, or ceased to long ago.
    db.execute("UPDATE jobctl.job_workers SET queues = '{}' WHERE worker = 'b'");
    db.jobctl(["show", &run]).run().success().nowhere("is held by");
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '10 minutes' \
         WHERE worker = 'b'",
    );
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    db.jobctl(["tick", "--worker", "b", "--queue", "b"]).run().success();
    db.jobctl(["release", "--worker", "other"]).run().success();
    db.jobctl(["check"]).run().exits(1).stdout_has("worker other does not tick");
}

#[test]
fn a_hold_older_than_a_day_is_a_finding() {
    let db = TestDb::new();
    tick(&db, "a");
    db.jobctl(["hold", "--queue", "mail", "--reason", "SMTP is down"]).run().success();
    db.jobctl(["doctor"]).run().stdout_has("no hold is older than a day");
    db.execute("UPDATE jobctl.job_holds SET held_at = now() - interval '25 hours'");
    let findings = db.jobctl(["doctor"]).run().stdout;
    assert!(findings.contains("queue mail is held by "), "{findings}");
    assert!(findings.contains(": SMTP is down"), "{findings}");
    assert!(findings.contains("`jobctl release --queue mail`"), "{findings}");
}

#[test]
fn holds_are_recorded_and_releasing_them_resumes_no_schedule() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n");
    db.jobctl(["pause", "a"]).run().success();
    db.jobctl(["hold", "--job", "a", "--reason", "incident"]).run().success();
    db.jobctl(["release", "--job", "a", "--reason", "over"]).run().success();
    assert_eq!(db.query("SELECT paused_at IS NOT NULL FROM jobctl.job_definitions"), "t");
    let trail = "SELECT string_agg(action || ' ' || job || ' ' || detail || ' ' || reason, ', ' \
        ORDER BY id) FROM jobctl.job_events WHERE detail LIKE 'job a%'";
    assert_eq!(db.query(trail), "hold a job a incident, release a job a over");
}

#[test]
fn a_hold_warns_of_a_queue_or_a_worker_that_nothing_names() {
    let db = TestDb::new();
    tick(&db, "web1");
    db.enqueue(["shell", "--queue", "mail", "--in", "1h", "--", "true"]);
    let no_queue = "jobctl: no waiting run, definition or worker has the queue `defualt`; it is \
        held all the same; did you mean `default`?\n";
    let no_worker = "jobctl: no worker has ticked as `web2`; it is held all the same; did you mean \
        `web1`?\n";
    for (scope, name, warning) in [
        ("queue", "defualt", no_queue),
        ("queue", "mail", ""),
        ("worker", "web2", no_worker),
        ("worker", "web1", ""),
    ] {
        let hold = db.jobctl(["hold", &format!("--{scope}"), name]).run().success();
        hold.stdout(&format!("{scope}\t{name}\theld\n")).stderr(warning);
    }
}

#[test]
fn a_hold_needs_one_known_target() {
    let db = TestDb::new();
    db.jobctl(["hold"]).run().exits(2);
    db.jobctl(["release", "--all", "--queue", "mail"]).run().exits(2);
    db.jobctl(["hold", "--all", "--list"]).run().exits(2);
    db.jobctl(["hold", "--queue", "no queue"]).run().exits(2);
    db.jobctl(["hold", "--job", "missing"]).run().exits(3).stderr_has("no definition `missing`");
    db.jobctl(["hold", "--all", "--for", "0s"]).run().exits(2);
}
