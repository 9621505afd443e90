//! The problems that `check` reports, and their text.

use serde_json::{Value, json};

use crate::support::{Invocation, Role, TestDb, temp_dir};

/// What `check` prints without a problem.
const FINE: &str = "";

/// A database whose worker ticked a minute ago.
fn db_with_worker() -> TestDb {
    let db = TestDb::new();
    insert_worker(&db, "web1", "1 minute");
    db
}

/// Inserts a worker, or changes its row: it has ticked for almost 90 days, and the last time this
/// long ago.
fn insert_worker(db: &TestDb, worker: &str, ago: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         VALUES ('{worker}', '0.1.0', now() - interval '{ago}', now() - interval '90 days')
         ON CONFLICT (worker) DO UPDATE SET
             last_tick_at = excluded.last_tick_at, ticking_since = excluded.ticking_since"
    ));
}

/// Inserts a run with these columns and values, and returns its id.
fn insert_run(db: &TestDb, job: &str, status: &str, columns: &str, values: &str) -> i64 {
    let sql = format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, {columns}) VALUES ('{job}', \
         '{status}', 1, {values})
         RETURNING id"
    );
    db.query(&sql).parse().unwrap()
}

fn insert_dead(db: &TestDb, job: &str, ago: &str, error: &str) -> i64 {
    let values = format!("now() - interval '{ago}', now() - interval '{ago}', '{error}'");
    insert_run(db, job, "dead", "finished_at, failed_at, last_error", &values)
}

fn insert_due(db: &TestDb, job: &str, ago: &str) -> i64 {
    insert_run(db, job, "queued", "run_at", &format!("now() - interval '{ago}'"))
}

fn insert_running(db: &TestDb, job: &str, ago: &str) -> i64 {
    db.allow_running_runs_at_end();
    let values = format!("'web1', now() + interval '1 minute', now() - interval '{ago}'");
    insert_run(db, job, "running", "locked_by, locked_until, started_at", &values)
}

/// Asserts that `check` prints exactly these lines, except for times, or that it is silent and
/// exits 0.
#[track_caller]
fn assert_prints(check: Invocation<'_>, lines: &str) {
    let finished = check.run().stderr("");
    if lines == FINE {
        finished.success().stdout("");
        return;
    }
    let shown = finished.exits(1).stdout;
    let shown: Vec<_> = shown.lines().map(without_time).collect();
    assert_eq!(shown, lines.lines().collect::<Vec<_>>());
}

/// Replaces the time of a line by `T`.
fn without_time(line: &str) -> String {
    let Some((before, time)) = line.split_once(", since ") else { return line.to_owned() };
    let (time, after) = time.split_at("2026-11-22 02:00 UTC".len());
    assert!(time.starts_with("20") && time.ends_with(" UTC"), "{line}");
    format!("{before}, since T{after}")
}

/// A monitor may have a role of its own that is read-only.
#[test]
fn a_read_only_database_is_a_problem_and_a_read_only_role_is_fine() {
    let db = db_with_worker();
    let role = Role::granted(&db, "viewer");
    let (name, setting) = (role.name(), "default_transaction_read_only = on");
    db.execute(&format!("ALTER ROLE {name} SET {setting}"));
    assert_prints(role.jobctl(["check"]), FINE);
    // The same setting of the database stops the ticks, too.
    db.execute(&format!("ALTER ROLE {name} RESET default_transaction_read_only"));
    db.execute(&format!("ALTER DATABASE {} SET {setting}", db.name()));
    for check in [db.jobctl(["check"]), role.jobctl(["check"])] {
        assert_prints(
            check,
            "default_transaction_read_only is on for this database, so ticks do no work; turn it \
             off with ALTER ROLE, ALTER DATABASE or ALTER SYSTEM",
        );
    }
    db.execute(&format!(
        "BEGIN READ WRITE; ALTER DATABASE {} RESET default_transaction_read_only; COMMIT",
        db.name()
    ));
}

#[test]
fn check_is_silent_while_all_is_well() {
    let db = db_with_worker();
    assert_prints(db.jobctl(["check"]), FINE);
    db.apply("[jobs.mail]\nshell = 'true'\n");
    // A run is overdue after ten minutes. Without --max-running, a run may take any time.
    insert_due(&db, "mail", "9 minutes");
    insert_run(&db, "mail", "queued", "run_at", "now() + interval '1 day'");
    insert_running(&db, "backup", "5 days");
    for _ in 0..3 {
        insert_run(
            &db,
            "mail",
            "failed",
            "run_at, failed_at",
            "now() + interval '1 minute', now()",
        );
    }
    assert_prints(db.jobctl(["check"]), FINE);
    let json: Value =
        serde_json::from_str(&db.jobctl(["check", "--json"]).run().success().stdout).unwrap();
    assert_eq!(json, json!({"fine": true, "findings": [], "facts": []}));
}

/// Returns the line of `check` about dead runs.
fn line_about_dead_runs(runs: &str, job: &str, newest: i64, error: &str) -> String {
    format!(
        "{runs} of {job}, since T (the newest is run {newest}: {error}); \
         `jobctl list-dead --job {job}`; then retry or settle them"
    )
}

/// Returns the line of `check` about overdue runs.
fn line_about_overdue_runs(runs: &str, job: &str, example: i64) -> String {
    format!(
        "{runs} of {job} {} overdue, since T (such as run {example}); \
         `jobctl show {example}` says why",
        if runs.ends_with('s') { "are" } else { "is" }
    )
}

/// Returns the line of `check` about a worker without recent ticks.
fn line_about_silent_worker(what: &str, worker: &str) -> String {
    format!("{what}; see cron on {worker}, its mail, and the log of its ticks")
}

#[test]
fn check_reports_dead_runs_until_they_are_retried() {
    let db = db_with_worker();
    let first = insert_dead(&db, "mail", "40 days", "exit status 3");
    assert_prints(
        db.jobctl(["check"]),
        &line_about_dead_runs("1 dead run", "mail", first, "exit status 3"),
    );
    let second = insert_dead(&db, "send_receipt", "1 minute", "HTTP status 503");
    let third = insert_dead(&db, "mail", "2 minutes", "exit status 4");
    // The job with the most dead runs comes first.
    let all = [
        line_about_dead_runs("2 dead runs", "mail", third, "exit status 4"),
        line_about_dead_runs("1 dead run", "send_receipt", second, "HTTP status 503"),
    ];
    assert_prints(db.jobctl(["check"]), &all.join("\n"));
    assert_prints(db.jobctl(["check", "--max-dead", "2"]), &all.join("\n"));
    assert_prints(db.jobctl(["check", "--max-dead", "3"]), FINE);
    assert_prints(
        db.jobctl(["check", "--max-dead-within", "1h", "--job", "mail"]),
        &line_about_dead_runs("1 dead run", "mail", third, "exit status 4"),
    );
    db.apply("[jobs.mail]\nshell = 'true'\n[jobs.send_receipt]\nshell = 'true'\n");
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn check_reports_runs_that_are_due_longer_than_max_lag() {
    let db = db_with_worker();
    let backup = insert_due(&db, "backup", "2 hours");
    db.apply("[jobs.backup]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n");
    let mail = insert_due(&db, "mail", "3 hours");
    insert_due(&db, "mail", "15 minutes");
    insert_due(&db, "mail", "5 minutes");
    let lines = [
        line_about_overdue_runs("2 runs", "mail", mail),
        line_about_overdue_runs("1 run", "backup", backup),
    ];
    assert_prints(db.jobctl(["check"]), &lines.join("\n"));
    assert_prints(
        db.jobctl(["check", "--max-lag", "150m"]),
        &line_about_overdue_runs("1 run", "mail", mail),
    );
    assert_prints(db.jobctl(["check", "--max-lag", "4h"]), FINE);
    // A definition may have another limit.
    db.apply("[jobs.backup]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\nmax_lag = '170m'\n");
    let late = [
        line_about_overdue_runs("1 run", "backup", backup),
        line_about_overdue_runs("1 run", "mail", mail),
    ]
    .join("\n");
    assert_prints(db.jobctl(["check"]), &late);
    db.apply("[jobs.backup]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\nmax_lag = '4h'\n");
    assert_prints(db.jobctl(["check"]), &line_about_overdue_runs("1 run", "backup", backup));
    // A hold without end that keeps a scheduled job's runs longer than that is reported, too.
    db.jobctl(["hold", "--job", "mail"]).run().success();
    for (max_lag, is_reported) in [("4h", false), ("170m", true)] {
        db.apply(&format!(
            "[jobs.backup]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n\
             schedule = '@yearly'\ntimeout = '1h'\nmax_lag = '{max_lag}'\n"
        ));
        let found = db.jobctl(["check"]).run().exits(1).stdout;
        assert_eq!(found.contains("job mail is held"), is_reported, "{found}");
    }
    db.jobctl(["release", "--job", "mail"]).run().success();
    db.apply("[jobs.backup]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n");
    // Failed runs whose retry is due count, too.
    db.execute("UPDATE jobctl.job_runs SET status = 'failed'");
    db.jobctl(["check"]).run().exits(1);
}

#[test]
fn check_reports_a_late_schedule_and_a_lost_lease() {
    let db = db_with_worker();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n");
    let id = insert_running(&db, "shell", "1 day");
    assert_prints(db.jobctl(["check"]), FINE);
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() - interval '3 hours'");
    assert_prints(
        db.jobctl(["check"]),
        "schedule nightly is late, since T; each tick fires due schedules; \
         see the log of the ticks",
    );
    assert_prints(db.jobctl(["check", "--job", "shell"]), FINE);
    // A paused schedule is not late. Now the lease of the run is lost.
    db.jobctl(["pause", "nightly"]).run().success();
    db.execute("UPDATE jobctl.job_runs SET locked_until = now() - interval '2 hours'");
    assert_prints(
        db.jobctl(["check"]),
        &format!(
            "no tick has recovered 1 run of worker web1 with an expired lease, since T \
             (such as run {id}); each tick recovers such runs, unless another session has locked \
             them; see the log of the ticks"
        ),
    );
    assert_prints(db.jobctl(["check", "--max-lag", "4h"]), FINE);
}

#[test]
fn check_reports_blocked_runs_whose_predecessor_ended_long_ago() {
    let db = db_with_worker();
    db.apply("[jobs.mail]\nshell = 'true'\n[jobs.export]\nshell = 'true'\n");
    let first = db.enqueue(["export", "--in", "1h"]);
    let first_id = first.to_string();
    let last = [(); 2].map(|()| db.enqueue(["mail", "--after", &first_id, "--after-any-end"]));
    // The predecessor ends so, and no tick has decided about the blocked runs yet.
    let end_predecessor = |status: &str, ago: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET status = '{status}', finished_at = now() - interval '{ago}'
             WHERE id = {first};
             UPDATE jobctl.job_dependencies SET state = 'due'"
        ));
    };
    let late = format!(
        "no tick has released or cancelled 2 blocked runs of mail, although a run before them has \
         ended, since T (such as run {}); each tick does so, unless another session has locked \
         the rows, or a trigger rejects or delays the change; see the log of the ticks",
        last[0]
    );
    for status in ["succeeded", "cancelled"] {
        end_predecessor(status, "9 minutes");
        assert_prints(db.jobctl(["check"]), FINE);
        end_predecessor(status, "11 minutes");
        assert_prints(db.jobctl(["check"]), &late);
        assert_prints(db.jobctl(["check", "--max-lag", "1h"]), FINE);
        assert_prints(db.jobctl(["check", "--job", "export"]), FINE);
    }
    // The predecessor ended in the future, because the database's clock was ahead.
    end_predecessor("succeeded", "-1 hour");
    db.jobctl(["check"]).run().exits(1).stdout_has("no tick has released or cancelled 2 blocked");
    // With the rule `success`, a cancelled predecessor keeps them blocked: another finding says so.
    end_predecessor("cancelled", "11 minutes");
    db.execute("UPDATE jobctl.job_dependencies SET rule = 'success'");
    let stuck = db.jobctl(["check"]).run().exits(1).prints_nowhere("no tick has released");
    stuck.stdout_has("2 runs of mail wait for runs that did not succeed");
    // Queued runs no longer wait for a predecessor.
    db.execute("UPDATE jobctl.job_runs SET status = 'queued' WHERE status = 'blocked'");
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn check_reports_an_invalid_schedule_before_its_next_fire() {
    let db = db_with_worker();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n[jobs.other]\nshell = 'true'\n");
    // `apply` would refuse these schedules, but SQL stores them.
    for wrong in [
        "schedule = 'sometimes'",
        "schedule = '0 0 30 2 *'",
        "schedule = '@daily', time_zone = 'Mars'",
    ] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET {wrong} WHERE name = 'nightly'"));
        assert_prints(
            db.jobctl(["check"]),
            "schedule nightly can't fire; `jobctl next nightly` shows the error; \
             correct it and apply the file",
        );
        assert_prints(db.jobctl(["check", "--job", "other"]), FINE);
        db.jobctl(["next", "nightly"]).run().exits(2).complains_once();
    }
    db.jobctl(["doctor"]).run().exits(1).stdout_has("schedule nightly can't fire");
    db.jobctl(["pause", "nightly"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn check_reports_workers_without_recent_ticks() {
    let db = TestDb::new();
    assert_prints(
        db.jobctl(["check"]),
        "no worker has ever ticked; `jobctl init --crontab` lets cron start ticks",
    );
    // A new schema may have no tick yet: cron starts the first one up to a minute after `init`.
    db.execute("UPDATE jobctl.schema_migrations SET applied_at = now() - interval '4 minutes'");
    assert_prints(db.jobctl(["check"]), FINE);
    db.jobctl(["check", "--max-tick-age", "3m"]).run().exits(1);
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
    insert_worker(&db, "web1", "4 hours");
    // While no worker ticks, `check` does not report overdue runs, too.
    insert_due(&db, "shell", "1 hour");
    let no_worker =
        line_about_silent_worker("no worker ticks, since T (the last was web1)", "web1");
    assert_prints(db.jobctl(["check"]), &no_worker);
    db.execute("DELETE FROM jobctl.job_runs");
    assert_prints(db.jobctl(["check", "--max-tick-age", "5h"]), FINE);
    // While one worker ticks, each other worker that stopped is named.
    insert_worker(&db, "web2", "1 second");
    insert_worker(&db, "web3", "3 hours");
    insert_worker(&db, "web4", "2 days");
    let gone = |worker| {
        let line =
            line_about_silent_worker(&format!("worker {worker} does not tick, since T"), worker);
        format!("{line}; if it is gone: `jobctl forget {worker}`")
    };
    let lines = ["web3", "web1", "web4"].map(gone);
    assert_prints(db.jobctl(["check"]), &lines.join("\n"));
}

#[test]
fn a_worker_that_ticked_for_a_day_is_reported_until_it_is_forgotten() {
    // The worker `web1` of this database ticks.
    let db = db_with_worker();
    // Inserts a worker that ticked for this long and stopped 40 days ago.
    let insert_stopped_worker = |worker: &str, ticked: &str| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
             VALUES ('{worker}', '0.1.0', now() - interval '40 days',
                 now() - interval '40 days' - interval '{ticked}')"
        ));
    };
    db.apply("[jobs.mail]\nshell = 'true'\n");
    insert_stopped_worker("friday", "24 hours");
    insert_stopped_worker("pod", "23 hours 59 minutes");
    insert_stopped_worker("by-hand", "0");
    let workers_in_findings = || {
        let check: Value =
            serde_json::from_str(&db.jobctl(["check", "--json"]).run().stdout).unwrap();
        let workers = check["findings"].as_array().unwrap().iter();
        workers.map(|one| one["worker"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(workers_in_findings(), ["friday"]);
    // `prune` deletes the workers that are not reported any more.
    db.jobctl(["prune"]).run().success();
    let workers = "SELECT worker FROM jobctl.job_workers ORDER BY 1";
    assert_eq!(db.query(workers), "friday\nweb1");
    db.jobctl(["status"]).run().success().stdout_has("worker\tfriday\t");
    let page = db.jobctl(["report"]).run().success().stdout;
    assert!(page.contains("<a href=\"#workers\">worker friday does not tick</a>"), "{page}");
    assert!(crate::report::text(&page).contains("Workers ticking 1 of 2 "), "{page}");
    // A tick ends the finding, and so does `forget`.
    db.jobctl(["tick", "--worker", "friday"]).run().success();
    assert_eq!(workers_in_findings(), Vec::<String>::new());
    db.execute("DELETE FROM jobctl.job_workers WHERE worker = 'friday'");
    insert_stopped_worker("friday", "9 days");
    db.jobctl(["forget", "friday"]).run().success().stdout("friday\tforgotten\n").stderr("");
    assert_eq!(workers_in_findings(), Vec::<String>::new());
    assert_eq!(db.query(workers), "web1");
}

#[test]
fn check_reports_a_run_that_runs_longer_than_max_running() {
    let db = db_with_worker();
    insert_running(&db, "mail", "2 hours");
    let id = insert_running(&db, "backup", "26 hours");
    let line = format!(
        "run {id} of backup is still running on web1, since T; `jobctl show {id}`; \
         `jobctl cancel {id}` stops it"
    );
    assert_prints(db.jobctl(["check", "--max-running", "1d"]), &line);
    assert_prints(db.jobctl(["check", "--max-running", "27h"]), FINE);
}

#[test]
fn max_failures_counts_failed_attempts_whatever_became_of_the_run() {
    let db = db_with_worker();
    let succeeded =
        insert_run(&db, "mail", "succeeded", "finished_at, last_error", "now(), 'no route'");
    db.apply("[jobs.mail]\nshell = 'true'\n");
    let failed = insert_run(&db, "mail", "failed", "run_at", "now() + interval '1 day'");
    let attempt = |run: i64, attempt: i32, outcome: &str, ago: &str| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_attempts
                 (run_id, attempt, worker, started_at, finished_at, outcome)
             VALUES ({run}, {attempt}, 'web1', now() - interval '1 day',
                     now() - interval '{ago}', '{outcome}')"
        ));
    };
    // Of six attempts, three failed: 61, 30 and 2 minutes ago. An attempt that lost its lease
    // counts as failed. Interrupted and cancelled attempts did not fail.
    attempt(succeeded, 1, "failed", "61 minutes");
    attempt(succeeded, 2, "failed", "2 minutes");
    attempt(succeeded, 3, "succeeded", "1 minute");
    attempt(failed, 1, "lease_expired", "30 minutes");
    attempt(failed, 2, "interrupted", "3 minutes");
    attempt(failed, 3, "cancelled", "3 minutes");
    let check = |arguments: &[&'static str]| {
        db.jobctl(["check", "--max-failures"]).args(arguments.iter().copied())
    };
    let line = |attempts: &str, within: &str| {
        format!(
            "{attempts} of mail failed within {within} (the newest is run {succeeded}: no route); \
             `jobctl failures --job mail --group` shows why"
        )
    };
    assert_prints(db.jobctl(["check"]), FINE);
    // Two failed within an hour, which is the default: as many as allowed, and one more.
    assert_prints(check(&["2"]), FINE);
    assert_prints(check(&["1"]), &line("2 attempts", "1h"));
    assert_prints(check(&["0", "--within", "10m"]), &line("1 attempt", "10m"));
    assert_prints(check(&["2", "--within", "2h"]), &line("3 attempts", "2h"));
    db.jobctl(["check", "--within", "2h"]).run().exits(2).stdout("");
}

#[test]
fn check_prints_a_line_for_each_finding_and_no_control_character() {
    let db = db_with_worker();
    let late = insert_due(&db, "shell", "3 hours");
    let died = insert_dead(&db, "mail", "1 hour", "one\ntwo\u{1b}[2J");
    let lines = [
        line_about_dead_runs("1 dead run", "mail", died, "one\\ntwo\\u{1b}[2J"),
        line_about_overdue_runs("1 run", "shell", late),
    ];
    assert_prints(db.jobctl(["check"]), &lines.join("\n"));
    let finished = db.jobctl(["check", "--json"]).run().exits(1).stderr("");
    let json: Value = serde_json::from_str(&finished.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(json["fine"], false);
    assert_eq!(findings.len(), 2);
    assert_eq!(findings[1]["code"], "runs_overdue");
    assert_eq!(findings[1]["run_id"], late);
    assert_eq!(findings[1]["job_type"], "shell");
    assert_eq!(findings[0]["found"], "1 dead run of mail");
}

#[test]
fn check_covers_named_jobs_and_refuses_unknown_names() {
    let db = db_with_worker();
    db.apply(
        "[jobs.mail]\nshell = 'true'\n[jobs.backup]\nshell = 'true'\n[jobs.report]\nshell = \
        'true'\n",
    );
    let died = insert_dead(&db, "mail", "1 minute", "exit status 3");
    let late = insert_due(&db, "backup", "3 hours");
    let runs = insert_running(&db, "shell", "3 hours");
    let check = |jobs: &[&'static str]| {
        db.jobctl(["check", "--max-running", "10m"]).args(jobs.iter().copied())
    };
    let died = line_about_dead_runs("1 dead run", "mail", died, "exit status 3");
    let late = line_about_overdue_runs("1 run", "backup", late);
    assert_prints(check(&["--job", "report"]), FINE);
    assert_prints(check(&["--job", "mail"]), &died);
    assert_prints(check(&["--job", "backup", "report"]), &late);
    assert_prints(check(&["--job", "backup,mail"]), &format!("{died}\n{late}"));
    check(&["--job", "shell"])
        .run()
        .exits(1)
        .stdout_has(&format!("run {runs} of shell is still running on web1"));
    check(&["--job", "mail", "bakup"])
        .run()
        .exits(3)
        .stdout("")
        .stderr("jobctl: no definition `bakup`; did you mean `backup`?\n");
    // The runs of a removed definition remain.
    let died = insert_dead(&db, "gone", "1 day", "no definition");
    let died = line_about_dead_runs("1 dead run", "gone", died, "no definition");
    assert_prints(db.jobctl(["check", "--job", "gone"]), &died);
    db.jobctl(["status", "--job", "gone"]).run().success().stdout_has("job\tgone\t");
    // A check of one job also reports that no worker ticks.
    db.execute("DELETE FROM jobctl.job_workers");
    db.jobctl(["check", "--job", "report"]).run().exits(1).stdout_has("no worker");
}

#[test]
fn an_unreachable_database_is_an_error() {
    let db = TestDb::new();
    db.jobctl(["check"])
        .env("JOBCTL_DATABASE_URL", "postgres://127.0.0.1:1/none")
        .run()
        .exits(5)
        .stdout("")
        .complains_once();
}

#[test]
fn a_new_tick_clears_the_complaint_about_its_worker() {
    let db = TestDb::new();
    let tick = || db.jobctl(["tick", "--worker", "web1"]).run().success();
    tick();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '4 hours', version = '0'",
    );
    db.jobctl(["check"]).run().exits(1);
    tick();
    assert_prints(db.jobctl(["check"]), FINE);
    let version = db.query("SELECT version FROM jobctl.job_workers");
    assert!(version.starts_with(concat!(env!("CARGO_PKG_VERSION"), "+tzdata.")), "{version}");
}

#[test]
fn check_ignores_a_worker_that_ticked_once() {
    let db = db_with_worker();
    db.jobctl(["tick", "--worker", "by-hand"]).run().success();
    db.execute(
        "UPDATE jobctl.job_workers
         SET last_tick_at = last_tick_at - interval '7 minutes', ticking_since = ticking_since - \
         interval '7 minutes'
         WHERE worker = 'by-hand'",
    );
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn a_gap_of_over_an_hour_starts_a_new_series_of_ticks() {
    let db = db_with_worker();
    // Lets the worker tick after a gap. Returns whether `check` may miss it for over an hour, which
    // depends on how long it had ticked without a gap.
    let is_missed_after_gap = |ago: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers
             SET last_tick_at = now() - interval '{ago}', ticking_since = now() - interval '2 days'"
        ));
        db.jobctl(["tick", "--worker", "web1"]).run().success();
        db.query("SELECT missed_for > interval '1 hour' FROM jobctl.job_workers")
    };
    assert_eq!(is_missed_after_gap("59 minutes"), "t");
    assert_eq!(is_missed_after_gap("61 minutes"), "f");
}

#[test]
fn check_repeats_known_problems_only_after_a_time_and_marks_new_ones() {
    let db = db_with_worker();
    let state = temp_dir();
    let check = || {
        let state = state.path().to_str().unwrap();
        let check = db.jobctl(["check", "--repeat", "1h"]).env("XDG_STATE_HOME", state).run();
        check.stderr("").stdout
    };
    // Makes the last report so old that known problems are reported again.
    let age_last_report = || {
        let folder = state.path().join("jobctl");
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        let mut memory: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        memory["reported_at"] = json!("2026-01-01T00:00:00Z");
        std::fs::write(file, memory.to_string()).unwrap();
    };
    assert_eq!(check(), "");
    insert_due(&db, "shell", "1 hour");
    assert!(check().starts_with("new: 1 run of shell is overdue"));
    assert_eq!(check(), "");
    // The same problem with more runs is not new.
    insert_due(&db, "shell", "1 hour");
    assert_eq!(check(), "");
    age_last_report();
    assert!(check().starts_with("2 runs of shell are overdue"));
    assert_eq!(check(), "");
    insert_dead(&db, "mail", "1 minute", "exit status 3");
    let shown = check();
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("new: 1 dead run of mail"), "{shown}");
    assert!(lines[1].starts_with("2 runs of shell are overdue"), "{shown}");
    // A problem that comes back is new, and so is another dead run.
    db.execute("DELETE FROM jobctl.job_runs WHERE job_type = 'shell'");
    assert_eq!(check(), "");
    insert_due(&db, "shell", "1 hour");
    assert!(check().starts_with("new: 1 run of shell is overdue"));
    insert_dead(&db, "mail", "1 second", "exit status 4");
    assert!(check().starts_with("new: 2 dead runs of mail"));
}

#[test]
fn check_reports_a_job_that_has_not_succeeded_within_its_max_age() {
    let db = db_with_worker();
    db.apply("[jobs.backup]\nshell = 'true'\nmax_age = '26h'\n[jobs.other]\nshell = 'true'\n");
    let stale = "backup has not succeeded within 1d 2h, since T; `jobctl list --job backup` shows \
                 its runs";
    assert_prints(db.jobctl(["check"]), FINE);
    // A job that has never succeeded counts from its creation.
    db.execute("UPDATE jobctl.job_definitions SET created_at = now() - interval '27 hours'");
    assert_prints(db.jobctl(["check"]), stale);
    db.enqueue(["backup"]);
    db.jobctl(["tick"]).run().success();
    // Pruning does not make the job stale.
    db.execute("DELETE FROM jobctl.job_runs");
    assert_prints(db.jobctl(["check"]), FINE);
    let make_success_too_old =
        "UPDATE jobctl.job_figures SET last_succeeded_at = now() - interval '27 hours'";
    db.execute(make_success_too_old);
    assert_prints(db.jobctl(["check"]), stale);
    db.execute("UPDATE jobctl.job_definitions SET enabled = false WHERE name = 'backup'");
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn tsv_has_the_fields_of_json() {
    let db = db_with_worker();
    insert_dead(&db, "report", "1 hour", "exit status 3");
    let tsv = db.jobctl(["check", "--format", "tsv", "--header"]).run().exits(1).stdout;
    let [names, values] = tsv.lines().collect::<Vec<_>>()[..] else { panic!("{tsv}") };
    let row: Vec<_> = names.split('\t').zip(values.split('\t')).collect();
    for field in [("severity", "bad"), ("code", "runs_dead"), ("job_type", "report")] {
        assert!(row.contains(&field), "{tsv}");
    }
}

/// Names may come from any application that inserts runs.
#[test]
fn commands_in_remedies_quote_names_for_the_shell() {
    let db = db_with_worker();
    // The name with one quote: SQL doubles the quote.
    for name in ["$(touch pwned)", "it''s; x"] {
        insert_dead(&db, name, "1 minute", "exit status 3");
    }
    let shown = db.jobctl(["check"]).run().exits(1).stdout;
    for quoted in ["'$(touch pwned)'", r"'it'\''s; x'"] {
        assert!(shown.contains(&format!("`jobctl list-dead --job {quoted}`; ")), "{shown}");
    }
}

/// Once their predecessors have ended, runs without a definition end dead.
#[test]
fn check_reports_blocked_runs_without_a_definition() {
    let db = db_with_worker();
    db.apply("[jobs.first]\nshell = 'true'\n[jobs.gone]\nshell = 'true'\n");
    let first = db.enqueue(["first", "--in", "1h"]).to_string();
    db.enqueue(["gone", "--after", &first]);
    assert_prints(db.jobctl(["check"]), FINE);
    db.execute("DELETE FROM jobctl.job_definitions WHERE name = 'gone'");
    let found = |runs: &str| {
        format!(
            "gone has no definition; {runs} will end dead; `jobctl apply` a file that defines the \
             job, or cancel the runs"
        )
    };
    assert_prints(db.jobctl(["check"]), &found("1 waiting run"));
    db.execute("INSERT INTO jobctl.job_runs (job_type) VALUES ('gone')");
    assert_prints(db.jobctl(["check", "--job", "gone"]), &found("2 waiting runs"));
}
