//! `hold` keeps waiting runs from being claimed; `release` lets them start. All commands name holds
//! and pauses from the first minute; a hold or a pause that seems forgotten is a problem.

use serde_json::Value;

use crate::report::text;
use crate::retry::answer_at_terminal;
use crate::support::{Gate, Role, TestDb, temp_dir, wait_until};

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
    // Of five runs, only `free` in the default queue is not held.
    db.jobctl(["hold", "--job", "shell"]).run().success().stdout("job\tshell\theld\n");
    db.jobctl(["hold", "--job", "limited"]).run().success();
    db.jobctl(["hold", "--queue", "mail"]).run().success();
    let due = db.jobctl(["tick", "--dry-run"]).run().success().stdout;
    assert_eq!(due.lines().count(), 1, "{due}");
    tick(&db, "a");
    let statuses = [shell, free, limited, limited_mail, mail].map(|run| db.status(run));
    assert_eq!(statuses, ["queued", "succeeded", "queued", "queued", "queued"]);

    // The job `limited` is released, but its run in the queue `mail` is still held by its queue. A
    // hold also applies to a run that is enqueued after it.
    let later = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["release", "--job", "limited"]).run().success().stdout("job\tlimited\treleased\n");
    tick(&db, "a");
    let statuses = [limited, limited_mail, later].map(|run| db.status(run));
    assert_eq!(statuses, ["succeeded", "queued", "queued"]);

    // After all releases, all runs start.
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

    // A hold of all runs applies to all workers.
    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["hold", "--all"]).run().success().stdout("all\t\theld\n");
    tick(&db, "b");
    assert_eq!(db.status(run), "queued");
}

#[test]
fn a_worker_that_two_people_hold_counts_as_one() {
    let db = TestDb::new();
    // Only a worker that has ticked twice is a regular one.
    tick(&db, "a");
    tick(&db, "a");
    // Two holds of the same worker.
    for _ in 0..2 {
        db.jobctl(["hold", "--worker", "a", "--for", "1h"]).run().success();
    }
    assert_eq!(db.query("SELECT worker, is_held FROM jobctl.seen_workers"), "a|t");
    assert_eq!(db.query("SELECT jobctl.regular_workers(NULL)"), "{a}");
}

#[test]
fn during_a_hold_schedules_fire_and_running_runs_finish() {
    let db = TestDb::new();
    let gate = Gate::new();
    let running = gate.enqueue(&db);
    let lingering = db.jobctl(["tick", "--linger"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["hold", "--all"]).run().success();
    // This schedule is due now.
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
fn a_hold_waits_until_its_running_runs_have_ended() {
    let db = TestDb::new();
    let gate = Gate::new();
    let running = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "web1"]).spawn();
    gate.wait_for_starts(1);
    // This worker and this queue have no running run, so the hold does not wait.
    for target in [["--worker", "web2"], ["--queue", "mail"]] {
        let hold = db.jobctl(["hold", "--until-idle"]).args(target);
        hold.run().success().stderr_has("it is held all the same");
    }
    // These holds have a running run. Each says so on stderr and waits.
    let folder = temp_dir();
    let log = folder.path().join("log");
    let start_hold_that_waits = |target: &[&'static str]| {
        let errors = std::fs::File::create(&log).unwrap();
        let hold = db.jobctl(["hold", "--until-idle"]).args(target.iter().copied());
        let mut hold = hold.stderr_to(errors.into()).spawn();
        wait_until("the hold to wait", || {
            let errors = std::fs::read_to_string(&log).unwrap();
            errors == "jobctl: held; waiting for 1 running run to end\n"
        });
        assert!(hold.is_running());
        hold
    };
    let waiting = [&["--worker", "web1"][..], &["--all"]].map(start_hold_that_waits);
    gate.open();
    for hold in waiting {
        hold.wait().success();
    }
    assert_eq!(db.status(running), "succeeded");
    // All four holds stay in force.
    assert_eq!(db.query("SELECT count(*) FROM jobctl.current_holds"), "4");
    tick.wait().success();
}

#[test]
fn a_wait_fails_if_its_hold_ends_before_the_runs() {
    let db = TestDb::new();
    let gate = Gate::new();
    gate.enqueue(&db);
    let tick = db.jobctl(["tick"]).spawn();
    gate.wait_for_starts(1);
    let hold = db.jobctl(["hold", "--all", "--until-idle"]).spawn();
    wait_until("the hold", || db.query("SELECT count(*) FROM jobctl.current_holds") == "1");
    db.jobctl(["release", "--all"]).run().success();
    hold.wait().exits(4).stderr_has("the hold ended before its runs did");
    gate.open();
    tick.wait().success();
}

#[test]
fn a_lost_run_is_recovered_during_a_hold_but_not_claimed() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--backoff", "fixed:0s", "--", "true"]);
    db.allow_running_runs_at_end();
    // The lease of the run has ended, so the next tick recovers it.
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
    // The hold is neither listed, nor can it be released.
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
    // The first hold has ended; the second one has no end.
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
    // The run is overdue, which is a problem, unless a hold keeps the run.
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

    // The only worker that serves the queue of the run is held, and its host is shut down.
    db.jobctl(["hold", "--worker", "other"]).run().success();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '1 hour', \
         ticking_since = now() - interval '9 days'",
    );
    db.jobctl(["check"]).run().success().stdout("");
    let held = "no worker claims from its queue; worker other is held by ";
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    // A worker of another queue changes nothing.
    db.jobctl(["tick", "--worker", "b", "--queue", "b"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    // If that worker serves all queues, the hold does not keep the run.
    db.execute("UPDATE jobctl.job_workers SET queues = '{}' WHERE worker = 'b'");
    db.jobctl(["show", &run]).run().success().prints_nowhere("is held by");
    // If it has not ticked for ten minutes, the hold keeps the run again.
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '10 minutes' \
         WHERE worker = 'b'",
    );
    db.jobctl(["show", &run]).run().success().stdout_has(held);
    // After the release, the worker that does not tick is a problem.
    db.jobctl(["tick", "--worker", "b", "--queue", "b"]).run().success();
    db.jobctl(["release", "--worker", "other"]).run().success();
    db.jobctl(["check"]).run().exits(1).stdout_has("worker other does not tick");
}

#[test]
fn a_hold_older_than_a_day_is_a_problem() {
    let db = TestDb::new();
    tick(&db, "a");
    db.jobctl(["hold", "--queue", "mail", "--reason", "SMTP is down"]).run().success();
    assert_eq!(db.jobctl(["check"]).run().success().stdout, "");
    db.execute("UPDATE jobctl.job_holds SET held_at = now() - interval '25 hours'");
    db.jobctl(["check"]).run().exits(1).stdout_has("queue mail is held by ");
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
    // A name that is known for its scope gets no warning.
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
fn hold_refuses_no_target_several_targets_and_unknown_ones() {
    let db = TestDb::new();
    db.jobctl(["hold"]).run().exits(2);
    db.jobctl(["release", "--all", "--queue", "mail"]).run().exits(2);
    db.jobctl(["hold", "--all", "--list"]).run().exits(2);
    db.jobctl(["hold", "--queue", "no queue"]).run().exits(2);
    db.jobctl(["hold", "--job", "missing"]).run().exits(3).stderr_has("no definition `missing`");
    db.jobctl(["hold", "--all", "--for", "0s"]).run().exits(2);
}

/// Returns the findings and the facts of `check`, as `severity code job queue worker`. A field
/// without a value is `-`.
fn findings_and_facts(db: &TestDb) -> Vec<String> {
    let check: Value =
        serde_json::from_str(&db.jobctl(["check", "--json"]).run().stdout).expect("JSON");
    let list = |field: &str| check[field].as_array().unwrap().clone();
    assert_eq!(check["fine"], list("findings").is_empty());
    let all = list("findings").into_iter().chain(list("facts"));
    let fields = ["severity", "code", "job_type", "queue", "worker"];
    let words = all.map(|one| fields.map(|field| one[field].as_str().unwrap_or("-").to_owned()));
    words.map(|words| words.join(" ")).collect()
}

/// A database whose worker has just ticked, with a scheduled job.
fn db_with_schedule() -> TestDb {
    let db = TestDb::new();
    tick(&db, "web1");
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\ntimeout = '1h'\n");
    db
}

#[test]
fn every_command_names_a_hold_from_its_first_minute() {
    let db = db_with_schedule();
    db.enqueue(["nightly"]);
    db.enqueue(["nightly"]);
    db.jobctl(["hold", "--all", "--reason", "SMTP is down"]).run().success();
    let at_terminal = |command: &str| answer_at_terminal(&db, command, "").0;
    let jobctl = |words: &[&str]| db.jobctl(words.iter().copied()).run().stdout;
    // A hold is not a problem at first, and cron mails what `check` prints. So only a terminal
    // shows it.
    db.jobctl(["check"]).run().success().stdout("").stderr("");
    assert_eq!(jobctl(&["check", "--repeat", "1h"]), "");
    let check = at_terminal("check");
    assert!(check.starts_with("Script") && check.contains("\ninfo: all runs are held"), "{check}");
    for shown in [
        &check,
        &at_terminal("next"),
        &at_terminal("next nightly"),
        &at_terminal("jobs"),
        &at_terminal("jobs nightly"),
        &jobctl(&["doctor"]),
        &jobctl(&["status"]),
        &jobctl(&["status", "--format", "table"]),
        &jobctl(&["report"]),
    ] {
        assert!(shown.contains("all runs are held by "), "{shown}");
        assert!(shown.contains(": SMTP is down"), "{shown}");
    }
    let page = text(&jobctl(&["report"]));
    assert!(page.contains("Now all runs are held by "), "{page}");
    assert!(page.contains("(2 due runs wait)") && !page.contains("All well"), "{page}");
    let metrics = jobctl(&["status", "--prometheus"]);
    assert!(metrics.contains("jobctl_facts{code=\"runs_held\"} 1\n"), "{metrics}");
    assert!(metrics.contains("jobctl_findings{code=\"runs_held\"} 0\n"), "{metrics}");
    // A tick says why it starts nothing.
    let tick = at_terminal("tick");
    assert!(tick.contains("0 dead: nothing else is due; 2 due runs are held\r\n"), "{tick}");
    let tick = at_terminal("tick --dry-run");
    assert!(tick.contains("2 due runs are held\r\n"), "{tick}");
    // After the release, no command names it.
    db.jobctl(["release", "--all"]).run().success();
    assert_eq!(findings_and_facts(&db), [""; 0]);
    assert!(!at_terminal("next").contains("held"));
    assert!(!at_terminal("tick --dry-run").contains("held"));
    assert!(text(&jobctl(&["report"])).contains("All well. "));
}

#[test]
fn a_tick_counts_the_runs_that_each_hold_keeps_from_it() {
    let db = db_with_schedule();
    db.enqueue(["nightly"]);
    let tick_names_held_run = |flags: &str| {
        let shown = answer_at_terminal(&db, &format!("tick --dry-run {flags}"), "").0;
        shown.contains("\njobctl: 1 due run is held\r\n")
    };
    for target in [["--queue", "default"], ["--job", "nightly"], ["--worker", "web1"]] {
        db.jobctl(["hold"]).args(target).run().success();
        assert!(tick_names_held_run("--worker web1"), "{target:?}");
        db.jobctl(["release"]).args(target).run().success();
    }
    assert!(!tick_names_held_run("--worker web1"));
    // A tick of another queue does not start the held run anyway.
    db.jobctl(["hold", "--queue", "default"]).run().success();
    assert!(!tick_names_held_run("--queue mail"));
}

/// A hold seems forgotten if it has no end and is older than a day, or if it keeps a run waiting
/// for over ten minutes.
#[test]
fn a_hold_is_a_problem_if_it_seems_forgotten() {
    // The flags of the hold, and the job, queue and worker of its finding.
    for (target, subject) in [
        (["--all", ""], "- - -"),
        (["--queue", "default"], "- default -"),
        (["--job", "nightly"], "nightly - -"),
        (["--worker", "web1"], "- - web1"),
    ] {
        let db = db_with_schedule();
        let target = target.into_iter().filter(|word| !word.is_empty());
        let hold = |flags: &[&str]| {
            db.execute("DELETE FROM jobctl.job_holds");
            db.jobctl(["hold"]).args(target.clone()).args(flags.iter().copied()).run().success();
        };
        let [bad, info] = ["bad", "info"].map(|severity| format!("{severity} runs_held {subject}"));
        let age = |ago: &str| {
            db.execute(&format!("UPDATE jobctl.job_holds SET held_at = now() - interval '{ago}'"));
        };
        hold(&[]);
        age("23 hours");
        assert_eq!(findings_and_facts(&db), [&*info]);
        age("25 hours");
        assert_eq!(findings_and_facts(&db), [&*bad]);
        hold(&["--for", "2h"]);
        age("25 hours");
        assert_eq!(findings_and_facts(&db), [&*info]);

        // Now the holds are new, and a run waits.
        let run = db.enqueue(["nightly"]);
        make_due_since(&db, run, "9 minutes");
        hold(&[]);
        assert_eq!(findings_and_facts(&db), [&*info]);
        make_due_since(&db, run, "11 minutes");
        assert_eq!(findings_and_facts(&db), [&*bad]);
        hold(&["--for", "2h"]);
        assert_eq!(findings_and_facts(&db), [&*info]);
    }
}

/// Makes a run due since this long ago.
fn make_due_since(db: &TestDb, run: i64, ago: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '{ago}' WHERE id = {run}"
    ));
}

#[test]
fn a_hold_is_a_problem_only_if_it_keeps_runs_of_a_schedule_that_no_other_worker_may_start() {
    let db = db_with_schedule();
    // The job of this run has no schedule.
    let run = db.enqueue(["shell", "--", "true"]);
    make_due_since(&db, run, "5 hours");
    db.jobctl(["hold", "--all"]).run().success();
    assert_eq!(findings_and_facts(&db), ["info runs_held - - -"]);
    db.jobctl(["release", "--all"]).run().success();

    // The job `nightly` has a schedule. Only the held worker web1 serves its queue.
    let run = db.enqueue(["nightly"]);
    make_due_since(&db, run, "9 minutes");
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id <> {run}"));
    db.jobctl(["tick", "--worker", "web2", "--queue", "other"]).run().success();
    db.jobctl(["hold", "--worker", "web1"]).run().success();
    make_due_since(&db, run, "11 minutes");
    assert_eq!(findings_and_facts(&db), ["bad runs_held - - web1"]);
    // The worker web2 serves the queue, too, so the hold is not the cause.
    db.execute("UPDATE jobctl.job_workers SET queues = '{default}' WHERE worker = 'web2'");
    assert_eq!(
        findings_and_facts(&db),
        ["bad runs_overdue nightly - -", "info runs_held - - web1"]
    );
    // The worker web2 executes no commands, so the hold is the cause.
    db.execute("UPDATE jobctl.job_workers SET excluded_kinds = '{shell}' WHERE worker = 'web2'");
    assert_eq!(findings_and_facts(&db), ["bad runs_held - - web1"]);
}

#[test]
fn a_check_of_one_job_names_only_its_holds() {
    let db = db_with_schedule();
    // The run is in the queue `default`. Of these three holds, only the last one keeps it.
    db.enqueue(["nightly"]);
    for target in [["--job", "shell"], ["--queue", "mail"], ["--queue", "default"]] {
        db.jobctl(["hold"]).args(target).run().success();
    }
    let facts = |job: &str| {
        let check = db.jobctl(["check", "--json", "--job", job]).run().success().stdout;
        let check: Value = serde_json::from_str(&check).unwrap();
        let facts = check["facts"].as_array().unwrap().iter();
        facts.map(|one| one["found"].to_string()).collect::<String>()
    };
    assert!(facts("nightly").starts_with("\"queue default is held by "), "{}", facts("nightly"));
    assert!(facts("shell").starts_with("\"job shell is held by "), "{}", facts("shell"));
}

#[test]
fn check_names_paused_schedules_and_disabled_jobs_with_a_max_age() {
    let db = TestDb::new();
    tick(&db, "web1");
    let jobs = "[jobs.paused]\nshell = 'true'\nschedule = '@yearly'\ntimeout = '1h'\n
        max_age = '26h'\n[jobs.enqueued]\nshell = 'true'\nmax_age = '26h'\n";
    db.apply(&format!("{jobs}[jobs.backup]\nshell = 'true'\nmax_age = '26h'\n"));
    db.jobctl(["pause", "paused", "--reason", "disk is full"]).run().success();
    // Without a schedule, a pause has no effect.
    db.jobctl(["pause", "enqueued"]).run().success();
    // The new file lacks the job `backup`, so `apply` disables it.
    db.apply(jobs);
    assert_eq!(
        findings_and_facts(&db),
        ["info job_disabled backup - -", "info schedule_paused paused - -"]
    );
    let viewer = Role::granted(&db, "viewer");
    let facts = viewer.jobctl(["check", "--json"]).run().success().stdout;
    assert!(facts.contains("\"found\":\"schedule paused is paused by "), "{facts}");
    assert!(facts.contains(": disk is full\""), "{facts}");
    assert!(facts.contains("\"its max_age of 1d 2h is not checked\""), "{facts}");
    assert!(facts.contains("so its max_age of 1d 2h is not checked\""), "{facts}");
    assert!(
        facts.contains(
            "\"as an operator: `jobctl resume paused`, or set `enabled = false` in its file\""
        ),
        "{facts}"
    );
    let page = text(&db.jobctl(["report"]).run().success().stdout);
    assert!(page.contains(" schedule paused is paused by "), "{page}");
    let at_terminal = |command: &str| answer_at_terminal(&db, command, "").0;
    assert!(at_terminal("check").contains("info: job backup is disabled by "));
    assert!(!at_terminal("tick").contains("paused"));

    // The schedule would have fired two days ago. Its pause is not yet a day old.
    db.execute(
        "UPDATE jobctl.job_definitions SET
             next_run_at = CASE WHEN schedule IS NOT NULL THEN now() - interval '2 days' END,
             paused_at = now() - interval '23 hours', created_at = now() - interval '9 days'",
    );
    let tick = at_terminal("tick");
    assert!(tick.contains("nothing else is due; 1 due schedule is paused\r\n"), "{tick}");
    // The times of a pause are skipped on purpose. Only the job without a schedule is stale.
    let stale = "bad job_stale enqueued - -";
    let [paused, backup] = ["schedule_paused paused - -", "info job_disabled backup - -"];
    assert_eq!(findings_and_facts(&db), [stale, backup, &format!("info {paused}")]);
    // A pause that is older than a day is a problem.
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() - interval '25 hours'");
    assert_eq!(findings_and_facts(&db), [stale, &format!("bad {paused}"), backup]);
    let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
    assert!(metrics.contains("jobctl_facts{code=\"job_disabled\"} 1\n"), "{metrics}");
    assert!(metrics.contains("jobctl_findings{code=\"schedule_paused\"} 1\n"), "{metrics}");
}

#[test]
fn enqueue_and_edit_warn_of_a_queue_that_looks_misspelt() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nqueue = 'mail'\nenqueue_may_set = ['queue']\n");
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, queues)
         VALUES ('web1', '1', now(), '{backups}')",
    );
    let warning = |queue: &str, meant: &str| match meant {
        "" => String::new(),
        meant => format!(
            "jobctl: no definition or worker has the queue `{queue}`; did you mean `{meant}`?\n"
        ),
    };
    // A definition has the queue `mail`, and a worker `backups`. `images` resembles no known queue.
    for (queue, meant) in [
        ("mial", "mail"),
        ("backup", "backups"),
        ("mail", ""),
        ("backups", ""),
        ("default", ""),
        ("images", ""),
    ] {
        let warning = warning(queue, meant);
        let enqueue = db.jobctl(["enqueue", "--queue", queue, "shell", "--", "true"]);
        let id: i64 = enqueue.run().success().stderr(&warning).stdout.trim().parse().unwrap();
        assert_eq!(db.of_run(id, "queue"), queue);
        db.jobctl(["enqueue", "--queue", queue, "a"]).run().success().stderr(&warning);
        // A batch warns once.
        let line = format!(r#"{{"job_type": "a", "queue": "{queue}"}}"#);
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(format!("{line}\n{line}\n"));
        batch.run().success().stderr(&warning);
        let id = db.enqueue(["a"]).to_string();
        let edit = db.jobctl(["edit", &id, "--queue", queue]);
        edit.run().success().stderr(&warning);
        db.execute("DELETE FROM jobctl.job_runs");
    }
    // An enqueuer may not read the names of queues, so it gets no warning.
    let role = Role::granted(&db, "enqueuer");
    role.jobctl(["enqueue", "--queue", "mial", "a"]).run().success().stderr("");
}
