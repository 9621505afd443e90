//! The reasons that `check` reports, and their text.

use serde_json::{Value, json};

use crate::support::{Invocation, TestDb};

const FINE: &str = "";

/// A database whose worker ticked a minute ago.
fn db_with_worker() -> TestDb {
    let db = TestDb::new();
    insert_worker(&db, "web1", "1 minute");
    db
}

fn insert_worker(db: &TestDb, worker: &str, ago: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         VALUES ('{worker}', '0.1.0', now() - interval '{ago}', now() - interval '90 days')
         ON CONFLICT (worker) DO UPDATE SET
             last_tick_at = excluded.last_tick_at, ticking_since = excluded.ticking_since"
    ));
}

fn insert(db: &TestDb, job: &str, status: &str, columns: &str, values: &str) -> i64 {
    let sql = format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, {columns}) VALUES ('{job}', \
         '{status}', 1, {values})
         RETURNING id"
    );
    db.query(&sql).parse().unwrap()
}

fn insert_dead(db: &TestDb, job: &str, ago: &str, error: &str) -> i64 {
    let values = format!("now() - interval '{ago}', now() - interval '{ago}', '{error}'");
    insert(db, job, "dead", "finished_at, failed_at, last_error", &values)
}

fn insert_due(db: &TestDb, job: &str, ago: &str) -> i64 {
    insert(db, job, "queued", "run_at", &format!("now() - interval '{ago}'"))
}

fn insert_running(db: &TestDb, job: &str, ago: &str) -> i64 {
    db.leaves_running();
    let values = format!("'web1', now() + interval '1 minute', now() - interval '{ago}'");
    insert(db, job, "running", "locked_by, locked_until, started_at", &values)
}

/// Asserts that `check` prints exactly this line, or that it is silent and exits 0.
#[track_caller]
fn assert_prints(check: Invocation<'_>, line: &str) {
    let finished = check.run().stderr("");
    if line == FINE {
        finished.success().stdout("");
    } else {
        finished.exits(1).stdout(&format!("{line}\n"));
    }
}

#[test]
fn check_is_silent_while_all_is_well() {
    let db = db_with_worker();
    assert_prints(db.jobctl(["check"]), FINE);
    insert_due(&db, "mail", "9 minutes");
    insert(&db, "mail", "queued", "run_at", "now() + interval '1 day'");
    insert_running(&db, "backup", "5 days");
    for _ in 0..3 {
        insert(&db, "mail", "failed", "run_at, failed_at", "now() + interval '1 minute', now()");
    }
    assert_prints(db.jobctl(["check"]), FINE);
    let json: Value =
        serde_json::from_str(&db.jobctl(["check", "--json"]).run().success().stdout).unwrap();
    assert_eq!(json, json!({"fine": true, "reasons": []}));
}

#[test]
fn check_reports_dead_runs_until_they_are_retried() {
    let db = db_with_worker();
    let first = insert_dead(&db, "mail", "40 days", "exit status 3");
    assert_prints(
        db.jobctl(["check"]),
        &format!("1 dead run ({first} mail: exit status 3), see `jobctl list-dead`"),
    );
    let second = insert_dead(&db, "send_receipt", "1 minute", "HTTP status 503");
    let both = format!(
        "2 dead runs (newest: {second} send_receipt: HTTP status 503), see `jobctl list-dead`"
    );
    assert_prints(db.jobctl(["check"]), &both);
    assert_prints(db.jobctl(["check", "--max-dead", "1"]), &both);
    assert_prints(db.jobctl(["check", "--max-dead", "2"]), FINE);
    db.jobctl(["retry", "--all-dead"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn check_reports_a_run_that_is_due_longer_than_max_lag() {
    let db = db_with_worker();
    insert_due(&db, "backup", "2 hours 1 second");
    let id = insert_due(&db, "mail", "3 hours 1 second");
    assert_prints(
        db.jobctl(["check"]),
        &format!("run {id} mail has been due for 3h, see `jobctl status`"),
    );
    assert_prints(db.jobctl(["check", "--max-lag", "4h"]), FINE);
    db.execute("UPDATE jobctl.job_runs SET status = 'failed'");
    db.jobctl(["check"]).run().exits(1);
}

#[test]
fn check_reports_a_late_schedule_and_a_lost_lease() {
    let db = db_with_worker();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n");
    let id = insert_running(&db, "shell", "1 day");
    assert_prints(db.jobctl(["check"]), FINE);
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = now() - interval '3 hours 1 second'",
    );
    assert_prints(db.jobctl(["check"]), "schedule nightly is 3h late, see `jobctl status`");
    assert_prints(db.jobctl(["check", "--job", "shell"]), FINE);
    db.jobctl(["pause", "nightly"]).run().success();
    db.execute("UPDATE jobctl.job_runs SET locked_until = now() - interval '2 hours 1 second'");
    assert_prints(
        db.jobctl(["check"]),
        &format!("run {id} shell lost its lease 2h ago, see `jobctl doctor`"),
    );
    assert_prints(db.jobctl(["check", "--max-lag", "4h"]), FINE);
}

#[test]
fn check_reports_an_invalid_schedule_before_its_next_fire() {
    let db = db_with_worker();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n[jobs.other]\nshell = 'true'\n");
    for wrong in [
        "schedule = 'sometimes'",
        "schedule = '0 0 30 2 *'",
        "schedule = '@daily', time_zone = 'Mars'",
    ] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET {wrong} WHERE name = 'nightly'"));
        assert_prints(
            db.jobctl(["check"]),
            "schedule nightly can't fire, see `jobctl next nightly`",
        );
        assert_prints(db.jobctl(["check", "--job", "other"]), FINE);
        db.jobctl(["next", "nightly"]).run().exits(2).complains_once();
    }
    db.jobctl(["doctor"])
        .run()
        .exits(1)
        .stdout_has("schedules\tcan't fire: nightly\t`jobctl next nightly` shows the error");
    db.jobctl(["pause", "nightly"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
}

#[test]
fn check_reports_workers_without_recent_ticks() {
    let db = TestDb::new();
    assert_prints(db.jobctl(["check"]), "no worker has ever ticked, see `jobctl doctor --crontab`");
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    assert_prints(db.jobctl(["check"]), FINE);
    insert_worker(&db, "web1", "4 hours 1 second");
    assert_prints(db.jobctl(["check"]), "no worker has ticked for 4h, see cron on web1");
    assert_prints(db.jobctl(["check", "--max-tick-age", "5h"]), FINE);
    insert_worker(&db, "web2", "1 second");
    insert_worker(&db, "web3", "3 hours 1 second");
    insert_worker(&db, "web4", "2 days");
    assert_prints(
        db.jobctl(["check"]),
        "worker web3 has not ticked for 3h, see its cron; worker web1 has not ticked for 4h, see \
         its cron",
    );
}

#[test]
fn check_reports_a_run_that_runs_longer_than_max_running() {
    let db = db_with_worker();
    insert_running(&db, "mail", "2 hours");
    let id = insert_running(&db, "backup", "26 hours 1 second");
    assert_prints(
        db.jobctl(["check", "--max-running", "1d"]),
        &format!("run {id} backup has been running for 1d 2h on web1, see `jobctl status`"),
    );
    assert_prints(db.jobctl(["check", "--max-running", "27h"]), FINE);
}

#[test]
fn max_failures_counts_a_failed_run_once_in_any_status() {
    let db = db_with_worker();
    let failed_at = |ago: &str| format!("now() - interval '{ago}'");
    let id = insert(
        &db,
        "mail",
        "failed",
        "run_at, failed_at, last_error",
        "now() + interval '1 hour', now(), 'exit status 1'",
    );
    let recent = failed_at("30 minutes");
    insert_dead(&db, "mail", "30 minutes", "exit status 1");
    insert(&db, "mail", "succeeded", "finished_at, failed_at", &format!("now(), {recent}"));
    let retried = insert_running(&db, "mail", "1 minute");
    let interrupted = insert_running(&db, "mail", "1 minute");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET failed_at = {recent} WHERE id IN ({retried}, {interrupted})"
    ));
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET error_type = 'interrupted' WHERE id = {interrupted}"
    ));
    insert(&db, "mail", "cancelled", "finished_at, failed_at", &format!("now(), {recent}"));
    let older = failed_at("61 minutes");
    insert(&db, "mail", "succeeded", "finished_at, failed_at", &format!("now(), {older}"));
    insert(&db, "mail", "failed", "run_at, failed_at", &format!("now(), {older}"));
    let check = |arguments: &[&'static str]| {
        db.jobctl(["check", "--max-dead", "1"]).args(arguments.iter().copied())
    };
    assert_prints(check(&[]), FINE);
    assert_prints(check(&["--max-failures", "4"]), FINE);
    assert_prints(
        check(&["--max-failures", "3"]),
        &format!("4 runs failed within 1h (newest: {id} mail: exit status 1)"),
    );
    assert_prints(
        check(&["--max-failures", "0", "--within", "1m"]),
        &format!("1 run failed within 1m ({id} mail: exit status 1)"),
    );
    assert_prints(
        check(&["--max-failures", "5", "--within", "2h"]),
        &format!("6 runs failed within 2h (newest: {id} mail: exit status 1)"),
    );
    check(&["--within", "2h"]).run().exits(2).stdout("");
}

#[test]
fn check_prints_all_reasons_in_one_line() {
    let db = TestDb::new();
    let late = insert_due(&db, "mail", "3 hours 1 second");
    let died = insert_dead(&db, "mail", "1 hour", "one\ntwo\u{1b}[2J");
    let reasons = [
        "no worker has ever ticked, see `jobctl doctor --crontab`".to_owned(),
        format!("run {late} mail has been due for 3h, see `jobctl status`"),
        format!("1 dead run ({died} mail: one\\ntwo\\u{{1b}}[2J), see `jobctl list-dead`"),
    ];
    assert_prints(db.jobctl(["check"]), &reasons.join("; "));
    let finished = db.jobctl(["check", "--json"]).run().exits(1).stderr("");
    let json: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((&json["fine"], json["reasons"].as_array().unwrap().len()), (&json!(false), 3));
    assert_eq!(json["reasons"][0], reasons[0]);
}

#[test]
fn check_covers_named_jobs_and_refuses_unknown_names() {
    let db = db_with_worker();
    db.apply(
        "[jobs.mail]\nshell = 'true'\n[jobs.backup]\nshell = 'true'\n[jobs.report]\nshell = \
        'true'\n",
    );
    let died = insert_dead(&db, "mail", "1 minute", "exit status 3");
    let late = insert_due(&db, "backup", "3 hours 1 second");
    let runs = insert_running(&db, "shell", "3 hours 1 second");
    let limits = ["--max-running", "10m", "--max-failures", "0"];
    let check =
        |jobs: &[&'static str]| db.jobctl(["check"]).args(limits).args(jobs.iter().copied());
    let failed = format!("1 run failed within 1h ({died} mail: exit status 3)");
    let died = format!("1 dead run ({died} mail: exit status 3), see `jobctl list-dead`");
    let late = format!("run {late} backup has been due for 3h, see `jobctl status`");
    let runs = format!("run {runs} shell has been running for 3h on web1, see `jobctl status`");
    assert_prints(check(&["--job", "report"]), FINE);
    assert_prints(check(&["--job", "mail"]), &format!("{died}; {failed}"));
    assert_prints(check(&["--job", "backup", "report"]), &late);
    assert_prints(check(&["--job", "backup,mail"]), &format!("{late}; {died}; {failed}"));
    assert_prints(check(&["--job", "shell"]), &runs);
    check(&["--job", "mail", "bakup"])
        .run()
        .exits(3)
        .stdout("")
        .stderr("jobctl: no definition `bakup`; did you mean `backup`?\n");
    // The runs of a removed definition remain.
    let died = insert_dead(&db, "gone", "1 day", "no definition");
    let died = format!("1 dead run ({died} gone: no definition), see `jobctl list-dead`");
    assert_prints(db.jobctl(["check", "--job", "gone"]), &died);
    db.jobctl(["status", "--job", "gone"]).run().success().stdout_has("job\tgone\t");
    // A check of one job also checks the workers.
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
fn max_failures_counts_a_failed_run_that_is_queued_again() {
    let db = db_with_worker();
    insert(&db, "mail", "queued", "run_at, failed_at", "now() + interval '1 hour', now()");
    db.jobctl(["check", "--max-failures", "0"]).run().exits(1).stdout_has("1 run failed within 1h");
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
    let ticked_for = |ago: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers
             SET last_tick_at = now() - interval '{ago}', ticking_since = now() - interval '2 days'"
        ));
        db.jobctl(["tick", "--worker", "web1"]).run().success();
        db.query("SELECT missed_for > interval '1 hour' FROM jobctl.job_workers")
    };
    assert_eq!(ticked_for("59 minutes"), "t");
    assert_eq!(ticked_for("61 minutes"), "f");
}
