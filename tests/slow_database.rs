//! A database that answers, but slowly: every duty of a tick has its turn.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Gate, Proxy, TestDb, wait_until};

/// With this lease, a tick renews its leases every 5 s (the heartbeat). One statement may take 5 s
/// on the server. Each answer of a transaction takes another second if a proxy delays it by 500 ms
/// each way, so a renewal or a wake can take longer than a heartbeat.
const LEASE: &str = "30s";

/// Lets each changed row of `table` take this long if the condition holds, as a trigger of an audit
/// does.
pub(crate) fn slow_down(db: &TestDb, table: &str, event: &str, condition: &str, seconds: f64) {
    db.execute(&format!(
        "CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END $$;
         CREATE TRIGGER dawdle BEFORE {event} ON jobctl.{table}
             FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.dawdle()"
    ));
}

/// A condition on the updates that renew leases.
const RENEWAL: &str = "OLD.status = 'running' AND NEW.status = 'running'";

/// Waits until a statement of the tick sleeps in the trigger of `slow_down`.
fn wait_for_a_slow_statement(db: &TestDb) {
    let sleeps = "SELECT count(*) > 0 FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    wait_until("a slow statement", || db.query(sleeps) == "t");
}

#[test]
fn a_result_is_recorded_although_renewals_take_longer_than_a_heartbeat() {
    let db = TestDb::new();
    let (proxy, gate) = (Proxy::to(&db), Gate::new());
    let (first, last) = (db.enqueue_script("sleep 6"), gate.enqueue(&db));
    slow_down(&db, "job_runs", "UPDATE", RENEWAL, 1.5);
    let flags = ["--lease", LEASE, "--max-time", "5s"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    proxy.delay(Duration::from_millis(500));
    // The tick records this result while it still renews the lease of the other run.
    db.wait_for_status(first, "succeeded");
    gate.open();
    let tick = tick.wait().success().stderr_has("the database is slow: it took ");
    // It says only once that the database is slow.
    assert_eq!(tick.stderr.matches("is slow").count(), 1, "{tick}");
    assert_eq!(db.of_run(last, "status, attempts"), "succeeded|1");
}

#[test]
fn a_signal_during_a_slow_renewal_ends_the_tick_and_loses_no_result() {
    let db = TestDb::new();
    let (proxy, gate) = (Proxy::to(&db), Gate::new());
    let id = gate.enqueue(&db);
    slow_down(&db, "job_runs", "UPDATE", RENEWAL, 2.0);
    let flags = ["--lease", LEASE, "--linger", "--grace", "0s"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    proxy.delay(Duration::from_millis(500));
    wait_for_a_slow_statement(&db);
    tick.signal(Signal::TERM);
    let tick = tick.wait_within(Duration::from_secs(60)).success();
    // `--grace 0s` interrupts the job at once. That is the result to record.
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "queued|1|interrupted", "{tick}");
}

#[test]
fn runs_start_although_a_wake_takes_longer_than_a_heartbeat() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let ids = [(); 3].map(|()| db.enqueue(["shell", "--", "true"]));
    // This tick inserts the worker's row, so that the slow wake is an update.
    db.jobctl(["tick", "--limit", "1"]).run().success();
    slow_down(&db, "job_workers", "UPDATE", "true", 1.6);
    proxy.delay(Duration::from_millis(450));
    let flags = ["--lease", LEASE, "--max-time", "1m"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    ids.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    tick.wait_within(Duration::from_secs(60)).success().stderr_has("the database is slow: ");
}

/// With this lease, each statement of the tick may take 2 s.
const SHORT_LEASE: [&str; 2] = ["--lease", "12s"];
/// Seconds for one row: longer than a tick's statement may take, and less than a command's may.
const TOO_LONG: f64 = 3.0;

/// Returns a condition on the update that claims this run.
fn condition_on_the_claim_of(id: i64) -> String {
    format!("OLD.status = 'queued' AND NEW.status = 'running' AND OLD.id = {id}")
}

/// Returns a condition on the updates that record results of this run.
fn condition_on_results_of(id: i64) -> String {
    format!("OLD.status = 'running' AND NEW.status <> 'running' AND OLD.id = {id}")
}

#[test]
fn a_result_that_takes_too_long_stops_neither_the_others_nor_the_end_of_the_tick() {
    let db = TestDb::new();
    let slow = db.enqueue(["shell", "--", "true"]);
    slow_down(&db, "job_runs", "UPDATE", &condition_on_results_of(slow), TOO_LONG);
    let others = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
    let tick = db.jobctl(["tick", "--linger", "--max-time", "20s"]).args(SHORT_LEASE).spawn();
    others.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    let late = db.enqueue(["shell", "--", "true"]);
    db.wait_for_status(late, "succeeded");
    let tick = tick.wait_within(Duration::from_secs(40)).success();
    let attempt = format!("run {slow} shell attempt 1/10");
    tick.stderr_has(&format!("{attempt}: cannot record results: canceling statement due to"))
        .stderr_has(&format!("{attempt}: succeeded after"));
    assert_eq!(db.of_run(slow, "status, attempts"), "running|1", "its result is stored");

    // No later tick executes the run again, although its lease has expired.
    db.expire_leases();
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    tick.stderr_has(&format!("run {slow}: cannot record stored results: "));

    // `check` reports a result that no tick has recorded for long.
    db.execute("UPDATE jobctl.job_locked_runs SET written_at = now() - interval '1 hour'");
    let check = db.jobctl(["check"]).run().exits(1);
    check.stdout_has("no tick has recorded 1 stored result").stdout_has(&format!("run {slow}"));

    // When the update is fast again, the next tick records the stored result.
    db.execute("DROP TRIGGER dawdle ON jobctl.job_runs");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(slow, "status, attempts"), "succeeded|1");
    db.jobctl(["check"]).run().success();
}

#[test]
fn a_renewal_that_takes_too_long_costs_no_lease() {
    // The renewal of the first or of the last of four runs is slow.
    for (slow_index, other_index) in [(0, 3), (3, 0)] {
        let (db, gate) = (TestDb::new(), Gate::new());
        let ids = [(); 4].map(|()| gate.enqueue(&db));
        let slow = ids[slow_index];
        slow_down(&db, "job_runs", "UPDATE", &format!("{RENEWAL} AND OLD.id = {slow}"), TOO_LONG);
        let tick = db.jobctl(["tick", "--quiet"]).args(SHORT_LEASE).spawn();
        gate.wait_for_starts(4);
        // The first renewal finds the slow run. The second one goes on without that run.
        db.wait_for_renewals(ids[other_index], 2);
        // After 15 s, no run would have its lease of 12 s any more without a renewal.
        let ended =
            "SELECT count(*) FROM jobctl.job_runs WHERE started_at < now() - interval '15 s'";
        wait_until("the first leases to be over", || db.query(ended) == "4");
        gate.open();
        let tick = tick.wait().success();
        // The tick reports the slow run once, and no other run.
        let line = format!("run {slow}: cannot renew leases: canceling statement due to");
        assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
        assert_eq!(tick.stderr.matches("cannot renew leases").count(), 1, "{tick}");
        for id in ids {
            assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1", "{tick}");
        }
    }
}

#[test]
fn a_cancel_request_reaches_a_run_whose_renewal_takes_too_long() {
    let (db, gate) = (TestDb::new(), Gate::new());
    let id = gate.enqueue(&db);
    slow_down(&db, "job_runs", "UPDATE", RENEWAL, TOO_LONG);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).spawn();
    gate.wait_for_starts(1);
    // The tick can't renew the lease in the run's row, so it stores the lease in another table.
    wait_until("the lease to be stored", || {
        db.query("SELECT count(*) FROM jobctl.job_locked_runs") == "1"
    });
    db.execute("UPDATE jobctl.job_runs SET cancel_requested_at = now(), locked_until = now()");
    tick.wait().success().stderr_has(&format!("run {id} shell attempt 1/10: cancelled after"));
    assert_eq!(db.of_run(id, "status, attempts"), "cancelled|1");
}

/// Figures are less important than results.
#[test]
fn figures_that_take_too_long_delay_no_result() {
    let db = TestDb::new();
    let ids = [(); 2].map(|()| db.enqueue(["shell", "--", "true"]));
    slow_down(&db, "job_figures", "UPDATE", "true", TOO_LONG);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let tick = tick
        .stderr_has("figures are not counted: canceling statement due to statement timeout")
        .prints_nowhere("the result is kept");
    assert_eq!(ids.map(|id| db.status(id)), ["succeeded", "succeeded"], "{tick}");
}

/// Cancels the statements that sleep in the trigger of `slow_down`, as a person can on the server.
fn cancel_slow_statements(db: &TestDb) {
    db.query(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
}

#[test]
fn a_claim_that_a_person_cancels_is_sent_again() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 3\n");
    let ids = [["limited"].as_slice(), &["shell", "--", "true"]]
        .map(|words| db.enqueue(words.iter().copied()));
    slow_down(&db, "job_runs", "UPDATE", "OLD.status = 'queued'", 0.5);
    let tick = db.jobctl(["tick"]).spawn();
    wait_for_a_slow_statement(&db);
    cancel_slow_statements(&db);
    // The tick neither reports an error nor leaves out the jobs with limits.
    let tick = tick.wait().success().stderr_has("succeeded").prints_nowhere("cannot claim");
    let tick = tick.prints_nowhere("jobs with limits");
    assert_eq!(ids.map(|id| db.status(id)), ["succeeded", "succeeded"], "{tick}");
}

#[test]
fn a_tick_whose_claims_a_person_cancels_fails_and_puts_off_no_run() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 3\n");
    let id = db.enqueue(["limited"]);
    slow_down(&db, "job_runs", "UPDATE", "OLD.status = 'queued'", 60.0);
    let mut tick = db.jobctl(["tick"]).spawn();
    while tick.is_running() {
        cancel_slow_statements(&db);
    }
    let tick = tick.wait().exits(5).complains_once();
    tick.stderr_has("cannot claim runs: canceling statement due to user request");
    // A run that can't be claimed is put off, but here the cause is not the run.
    assert_eq!(db.of_run(id, "status, run_at <= now()"), "queued|t");
}

#[test]
fn a_signal_loses_no_result_although_one_takes_too_long() {
    let db = TestDb::new();
    let (slow, gate) = (db.enqueue(["shell", "--", "true"]), Gate::new());
    slow_down(&db, "job_runs", "UPDATE", &condition_on_results_of(slow), 600.0);
    let others = [(); 3].map(|()| gate.enqueue(&db));
    let flags = ["--linger", "--grace", "1s", "--concurrency", "4"];
    let tick = db.jobctl(["tick"]).args(flags).args(SHORT_LEASE).spawn();
    gate.wait_for_starts(3);
    // The signal arrives while the tick waits for the slow result.
    wait_for_a_slow_statement(&db);
    gate.open();
    tick.signal(Signal::TERM);
    let tick = tick.wait_within(Duration::from_secs(60)).success();
    // The tick has stored the slow result, so the next tick can record it.
    db.execute("DROP TRIGGER dawdle ON jobctl.job_runs");
    db.jobctl(["tick", "--limit", "1"]).run().success();
    for id in others.into_iter().chain([slow]) {
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1", "{tick}");
    }
}

#[test]
fn a_claim_that_takes_too_long_names_its_run_and_stops_no_other() {
    let db = TestDb::new();
    let slow = db.enqueue(["shell", "--", "true"]);
    slow_down(&db, "job_runs", "UPDATE", &condition_on_the_claim_of(slow), TOO_LONG);
    let others = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let error = format!("run {slow} shell: cannot claim runs: canceling statement due to");
    let tick = tick.stderr_has(&error).stderr_has("put off for 5m");
    for id in others {
        assert_eq!(db.status(id), "succeeded", "{tick}");
    }
    assert_eq!(db.status(slow), "queued");
    db.jobctl(["check"]).run().exits(1).stdout_has(&format!("run {slow}"));
}

#[test]
fn a_run_that_can_be_neither_claimed_nor_put_off_in_time_stops_no_other() {
    let db = TestDb::new();
    let slow = db.enqueue(["shell", "--", "true"]);
    slow_down(&db, "job_runs", "UPDATE", &format!("OLD.id = {slow}"), TOO_LONG);
    let other = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let tick = tick.stderr_has("this tick skips the run");
    assert_eq!(db.status(other), "succeeded", "{tick}");
}

#[test]
fn a_limited_job_whose_claim_takes_too_long_names_its_run() {
    let db = TestDb::new();
    db.apply("[jobs.audited]\nshell = 'true'\nmax_running = 3\n");
    let slow = db.enqueue(["audited"]);
    slow_down(&db, "job_runs", "UPDATE", &condition_on_the_claim_of(slow), TOO_LONG);
    let other = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let tick =
        tick.stderr_has(&format!("run {slow} audited: cannot claim runs: canceling statement"));
    assert_eq!(db.status(other), "succeeded", "{tick}");
}

#[test]
fn a_lost_or_expired_run_that_cannot_be_ended_in_time_stops_no_other() {
    // The kind of run, the columns that make it so, and the update by which a tick ends it.
    for (name, columns, ending) in [
        (
            "lost",
            "status = 'running', locked_by = 'gone', attempts = 1,
            started_at = now() - interval '2 h', locked_until = now() - interval '1 h'",
            "OLD.status = 'running'",
        ),
        ("expired", "expires_at = now() - interval '1 h'", "NEW.status = 'cancelled'"),
    ] {
        let db = TestDb::new();
        // No tick can end the lost run.
        db.allow_running_runs_at_end();
        let slow = db.enqueue(["shell", "--", "true"]);
        db.execute(&format!("UPDATE jobctl.job_runs SET {columns} WHERE id = {slow}"));
        slow_down(&db, "job_runs", "UPDATE", &format!("{ending} AND OLD.id = {slow}"), TOO_LONG);
        let other = db.enqueue(["shell", "--", "true"]);
        let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
        let tick = tick
            .stderr_has(&format!("run {slow}: cannot "))
            .stderr_has("canceling statement due to statement timeout");
        assert_eq!(db.status(other), "succeeded", "{name}: {tick}");
    }
}

#[test]
fn a_schedule_whose_run_takes_too_long_to_enqueue_stops_no_other() {
    let db = TestDb::new();
    let job = |name| format!("[jobs.{name}]\nshell = 'true'\nschedule = '* * * * *'\n");
    db.apply(&(job("audited") + &job("other")));
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() - interval '30 s'");
    slow_down(&db, "job_runs", "INSERT", "NEW.job_type = 'audited'", TOO_LONG);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let tick = tick.stderr_has("schedule of `audited` does not fire: ");
    let succeeded = "SELECT string_agg(job_type, ',') FROM jobctl.job_runs
        WHERE status = 'succeeded'";
    assert_eq!(db.query(succeeded), "other", "{tick}");
}

/// Lets the updates of runs for which the condition holds fail with an error that usually does not
/// last: another program's trigger may wait for a lock of its own, or ask another server.
fn reject_with_transient_error(db: &TestDb, condition: &str, code: &str) {
    db.execute(&format!(
        "CREATE OR REPLACE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END $$;
         CREATE OR REPLACE TRIGGER fails BEFORE UPDATE ON jobctl.job_runs
             FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.fails()"
    ));
}

const LOCK_NOT_AVAILABLE: &str = "55P03";
const DEADLOCK_DETECTED: &str = "40P01";
const CONNECTION_FAILURE: &str = "08006";
const ADMIN_SHUTDOWN: &str = "57P01";

#[test]
fn a_claim_that_fails_for_now_names_its_run_and_stops_no_other() {
    for code in [LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED, CONNECTION_FAILURE, ADMIN_SHUTDOWN] {
        let db = TestDb::new();
        let ids = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
        let failing = ids[0];
        let claim = format!("NEW.status = 'running' AND OLD.id = {failing}");
        reject_with_transient_error(&db, &claim, code);
        let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
        let error = format!("run {failing} shell: cannot claim runs: not now; ");
        let tick = tick.stderr_has(&error).stderr_has("put off for 5m");
        let expected = ["queued", "succeeded", "succeeded", "succeeded"];
        assert_eq!(ids.map(|id| db.status(id)), expected, "{code}: {tick}");
        db.jobctl(["check"]).run().exits(1).stdout_has(&format!("run {failing}"));
    }
}

#[test]
fn a_result_that_fails_for_now_is_stored_and_stops_no_other() {
    let db = TestDb::new();
    let ids = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
    reject_with_transient_error(&db, &condition_on_results_of(ids[0]), LOCK_NOT_AVAILABLE);
    let tick = db.jobctl(["tick", "--max-time", "20s"]).args(SHORT_LEASE).spawn();
    let tick = tick.wait_within(Duration::from_secs(60)).success();
    let expected = ["running", "succeeded", "succeeded", "succeeded"];
    assert_eq!(ids.map(|id| db.status(id)), expected, "{tick}");
    // The next tick records the stored result once the update works again.
    db.execute("DROP TRIGGER fails ON jobctl.job_runs");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(ids[0], "status, attempts"), "succeeded|1");
}

#[test]
fn a_recovery_that_fails_for_now_stops_neither_others_nor_claims() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let [unrecoverable, lost, due] = [(); 3].map(|()| db.enqueue(["shell", "--", "true"]));
    // Two runs have lost their worker.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', locked_by = 'gone', attempts = 1,
             started_at = now() - interval '2 h', locked_until = now() - interval '1 h'
         WHERE id IN ({unrecoverable}, {lost})"
    ));
    reject_with_transient_error(&db, &format!("OLD.id = {unrecoverable}"), LOCK_NOT_AVAILABLE);
    let tick = db.jobctl(["tick"]).args(SHORT_LEASE).run().success();
    let statuses = [unrecoverable, lost, due].map(|id| db.status(id));
    assert_eq!(statuses, ["running", "failed", "succeeded"], "{tick}");
}

#[test]
fn a_command_names_the_run_that_fails_for_now_and_changes_the_others() {
    let db = TestDb::new();
    let ids = [(); 3].map(|()| db.enqueue(["shell", "--", "true"]));
    reject_with_transient_error(&db, &format!("OLD.id = {}", ids[1]), LOCK_NOT_AVAILABLE);
    let cancel = db.jobctl(["cancel", "--all-waiting", "--yes"]).run().exits(1);
    let cancel = cancel.stderr_has(&format!("cannot cancel run {}: not now", ids[1]));
    assert_eq!(ids.map(|id| db.status(id)), ["cancelled", "queued", "cancelled"], "{cancel}");
}

/// A statement of a command may take 10 s. If that is too short for a single run, the command tries
/// again and waits for five minutes: a person must be able to end a run that no tick can end.
#[test]
fn a_command_for_one_run_tries_again_with_more_time_if_a_trigger_is_slow() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    slow_down(&db, "job_runs", "UPDATE", "true", 10.5);
    db.jobctl(["cancel", &id.to_string()]).run().success().stdout_has("cancelled");
    assert_eq!(db.status(id), "cancelled");
}

/// Returns the finding of `doctor` about slow answers.
fn slow_finding(db: &TestDb) -> String {
    let doctor = db.jobctl(["doctor"]).run().stdout;
    doctor.lines().find(|line| line.contains("\tanswers\t")).unwrap().to_owned()
}

#[test]
fn a_slow_database_is_a_finding_and_a_problem_if_it_lasts() {
    let db = TestDb::new();
    assert_eq!(slow_finding(&db), "ok\tanswers\tno tick has waited for a slow database");
    // An answer that takes over five seconds is slow. Here each claim takes longer.
    slow_down(&db, "job_runs", "UPDATE", "OLD.status = 'queued' AND NEW.status = 'running'", 5.1);
    let tick_slowly = || {
        db.enqueue(["shell", "--", "true"]);
        db.jobctl(["tick", "--worker", "web1"]).run().success().stderr_has("is slow: it took 5.");
    };
    tick_slowly();
    // One slow answer is only a finding of `doctor`.
    let found = slow_finding(&db);
    let is_found = "warn\tanswers\tthe database is slow: a tick of web1 waited 5.";
    assert!(found.starts_with(is_found), "{found}");
    db.jobctl(["check"]).run().success().stdout("");

    // Slow answers over an hour are a problem. The worker keeps the longest wait of this time.
    db.execute(
        "UPDATE jobctl.job_workers SET slow_since = now() - interval '1 hour', slow_seconds = 7",
    );
    tick_slowly();
    db.jobctl(["check"]).run().exits(1).stdout_has("the database is slow: a tick of web1 waited 7");
    db.jobctl(["check", "--max-lag", "2h"]).run().success().stdout("");

    // After ten minutes without a slow answer, the time of slow answers is over.
    db.execute("UPDATE jobctl.job_workers SET slow_at = now() - interval '11 minutes'");
    assert!(slow_finding(&db).starts_with("ok\t"));

    // The next slow answer begins a new time, so the 7 s are forgotten.
    tick_slowly();
    assert!(slow_finding(&db).starts_with(is_found));
}

#[test]
fn statements_that_take_too_long_are_sent_for_fewer_runs() {
    let db = TestDb::new();
    let gate = Gate::new();
    let payload = serde_json::json!({ "command": gate.script() }).to_string();
    let payload = payload.replace('\'', "''");
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{payload}' FROM generate_series(1, 12)"
    ));
    // With a lease of 24 s, a statement may take 4 s, so it can change nine runs.
    slow_down(&db, "job_runs", "UPDATE", "true", 0.42);
    // All twelve need 5 s, so the tick must renew and record them with more than one statement.
    let flags = ["--lease", "24s", "--concurrency", "12", "--linger", "--max-time", "1h"];
    let tick = db.jobctl(["tick"]).args(flags).spawn();
    gate.wait_for_starts(12);
    let first = db.query("SELECT max(locked_until) FROM jobctl.job_runs");
    let renewed = format!("SELECT min(locked_until) > '{first}' FROM jobctl.job_runs");
    wait_until("all leases to be renewed", || db.query(&renewed) == "t");
    gate.open();
    let done = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded' AND attempts = 1";
    wait_until("all results", || db.query(done) == "12");
    tick.signal(Signal::TERM);
    tick.wait().success();
}

#[test]
fn expired_runs_delay_neither_a_due_run_nor_the_end_of_the_tick() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, run_at, expires_at)
         SELECT 'shell', '{\"command\": \"true\"}', now() - interval '2 hours',
             now() - interval '1 hour'
         FROM generate_series(1, 3000)",
    );
    let expired = "SELECT count(*) FROM jobctl.job_runs WHERE error_type = 'expired'";
    // A statement may take two seconds, so it can't cancel 500 runs.
    slow_down(&db, "job_runs", "UPDATE", "NEW.status = 'cancelled'", 0.005);
    let id = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick", "--lease", "12s", "--max-time", "5s"]).run().success();
    assert!(tick.took < Duration::from_secs(9), "{tick}");
    assert_eq!(db.status(id), "succeeded", "{tick}");
    // In its time, the tick has cancelled some of the expired runs.
    let first: u32 = db.query(expired).parse().unwrap();
    assert!((1..3000).contains(&first), "{first} expired");
    // The next tick goes on.
    db.jobctl(["tick", "--lease", "12s", "--max-time", "5s"]).run().success();
    assert!(db.query(expired).parse::<u32>().unwrap() > first);
    // Without the trigger, a tick cancels all the others.
    db.execute("DROP TRIGGER dawdle ON jobctl.job_runs");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query(expired), "3000");
}

/// A claim waits for four answers, and for two more if it looks at limits.
#[test]
fn a_far_server_keeps_no_job_from_starting() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 1\n");
    let limited = db.enqueue(["limited"]);
    let other = db.enqueue(["shell", "--priority", "1", "--", "true"]);
    let flags = ["--lease", "12s", "--linger", "--quiet"];
    // A transaction may take 3 s. Six answers, each delayed by 300 ms, fit into that.
    proxy.delay(Duration::from_millis(300));
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    db.wait_for_status(other, "succeeded");
    db.wait_for_status(limited, "succeeded");
    tick.signal(Signal::TERM);
    // If the claim had taken too long, the tick would have left out the jobs with limits.
    tick.wait().prints_nowhere("claiming runs of jobs with limits took longer");
}
