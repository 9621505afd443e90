//! A database that is away, slow, full, locked, read-only, or set up in a surprising way.

use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Gate, Proxy, Role, TestDb, jobctl, temp_dir, wait_until};

#[test]
fn an_unreachable_database_is_one_line_and_exit_5() {
    let db = TestDb::new();
    for freeze in [false, true] {
        let proxy = Proxy::to(&db);
        if freeze {
            proxy.freeze()
        } else {
            proxy.cut()
        }
        let tick = db.jobctl(["tick"]).through(&proxy).run();
        let tick = tick.exits(5).stdout("").complains_once();
        assert!(tick.took < Duration::from_secs(10), "{tick}");
        // The tick does not retry the connection: cron starts the next tick in a minute.
        assert!(proxy.connections() <= 2, "{} connections", proxy.connections());
    }
    // No server listens at this port.
    jobctl(["tick", "--database-url", "postgresql://127.0.0.1:1/x"])
        .run()
        .exits(5)
        .stdout("")
        .complains_once();
}

#[test]
fn killed_sessions_lose_no_run_and_count_no_result_twice() {
    let db = TestDb::new();
    let gate = Gate::new();
    gate.open();
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{}' FROM \
            generate_series(1, 150)",
        serde_json::json!({ "command": format!("{}; sleep 0.1", gate.script()) })
            .to_string()
            .replace('\'', "''")
    ));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let end_sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'jobctl'";
            while !done.load(Ordering::Relaxed) {
                db.query(end_sessions);
                thread::sleep(Duration::from_millis(150));
            }
        });
        for _ in 0..200 {
            // A tick that holds no run exits with 5 when its session ends.
            let tick = db.jobctl(["tick", "--quiet"]).run();
            assert!(matches!(tick.status.code(), Some(0 | 5)), "{tick}");
            if db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'") == "0" {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    // A claim with a lost answer stays until its lease ends.
    db.expire_leases();
    db.jobctl(["tick", "--quiet"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();
    let ends = "SELECT status, count(*), max(attempts) <= 2 FROM jobctl.job_runs GROUP BY status";
    assert_eq!(db.query(ends), "succeeded|150|t", "{}", db.dump());
    let successes = "SELECT count(*), count(DISTINCT run_id) FROM jobctl.job_attempts WHERE \
        outcome = 'succeeded'";
    assert_eq!(db.query(successes), "150|150");
    // Each run started once: no work was repeated.
    assert_eq!(gate.count("start"), 150);
    assert_eq!(gate.count("end"), 150);
}

#[test]
fn a_result_is_recorded_once_if_the_answer_is_lost() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "w"]).through(&proxy).spawn();
    gate.wait_for_starts(1);
    proxy.lose_answer_to(&["jobctl.end_runs", "COMMIT"]);
    gate.open();
    let tick = tick.wait().success();
    assert!(proxy.has_lost());
    let tick = tick.stderr_has(
        "cannot record results: connection closed after COMMIT was sent, so it may have succeeded; \
            0 running, ",
    );
    let tick = tick.stderr_has(&format!("run {id} shell attempt 1/10: succeeded after "));
    // The tick retries without help, so the log suggests nothing.
    tick.prints_nowhere("lost,").prints_nowhere("try again");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    assert_eq!(db.query("SELECT worker, outcome FROM jobctl.job_attempts"), "w|succeeded");
}

#[test]
fn a_result_whose_answer_is_lost_is_not_called_unrecorded() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "2s"]).through(&proxy).spawn();
    gate.wait_for_starts(1);
    // The result is committed, but the answer is lost, and the tick can't connect again.
    proxy.lose_answer_and_cut(&["jobctl.end_runs", "COMMIT"]);
    gate.open();
    let what = format!("run {id} shell attempt 1/10: succeeded after ");
    let tick = tick.wait().exits(5).stderr_has(&what);
    let tick = tick.stderr_has("; the database did not confirm the result");
    tick.prints_nowhere("result not recorded");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn a_claim_is_released_if_the_answer_is_lost() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let id = db.enqueue(["shell", "--max-attempts", "1", "--", "true"]);
    proxy.lose_answer_to(&["Claims due runs", "COMMIT"]);
    let tick = db.jobctl(["tick"]).through(&proxy).run().success();
    let tick = tick.stderr_has(
        "cannot claim runs: connection closed after COMMIT was sent, so it may have succeeded",
    );
    assert!(proxy.has_lost() && proxy.connections() == 2, "{tick}");
    // The lost claim does not count: a second claim could still start the only attempt.
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn an_enqueue_without_an_answer_to_commit_reports_an_unknown_outcome() {
    let db = TestDb::new();
    // The last text that the server gets from the client, and the error.
    for (statement, expected) in [
        (
            "COMMIT\0",
            "cannot enqueue: the database does not answer after COMMIT was sent, so it may have \
                succeeded",
        ),
        (
            "INSERT INTO jobctl.job_runs",
            "cannot enqueue: the database does not answer; try again later",
        ),
    ] {
        let proxy = Proxy::to(&db);
        proxy.freeze_after(statement);
        let enqueue = db.jobctl(["enqueue", "shell", "--", "true"]).through(&proxy).run();
        enqueue.exits(5).stdout("").complains_once().stderr_has(expected);
    }
}

#[test]
fn a_read_only_role_can_read_and_errors_name_the_setting() {
    let db = TestDb::new();
    let role = format!("{}_reader", db.name());
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = \
            on"
    ));
    let url = db.url_as(&role);
    let run =
        |words: &[&str]| db.jobctl(words.iter().copied()).env("JOBCTL_DATABASE_URL", &url).run();
    let refused = run(&["enqueue", "shell", "--", "true"]);
    let listed = run(&["list"]);
    let wanted = format!(
        "{url}{}target_session_attrs=read-write",
        if url.contains('?') { "&" } else { "?" }
    );
    let found_no_writable = db.jobctl(["list", "--database-url", &wanted]).run();
    // A failed assertion must not leave the role behind.
    db.execute(&format!("DROP ROLE {role}"));
    refused
        .exits(7)
        .stdout("")
        .complains_once()
        .stderr_has("default_transaction_read_only is on for this role");
    listed.success();
    found_no_writable.exits(5).stderr_has("default_transaction_read_only is on");
}

#[test]
fn a_claim_is_released_after_an_outage_longer_than_its_lease() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let id = db.enqueue(["shell", "--max-attempts", "1", "--", "true"]);
    proxy.lose_answer_and_cut(&["Claims due runs", "COMMIT"]);
    let tick = db.jobctl(["tick", "--lease", "2s"]).through(&proxy).spawn();
    wait_until("the loss", || proxy.has_lost());
    // The claim is committed, but its answer is lost. The tick connects again only after its lease.
    let over = "SELECT locked_until < now() FROM jobctl.job_runs";
    wait_until("the lease to be over", || db.query(over) == "t");
    proxy.restore();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn a_tick_that_gave_up_waiting_claims_nothing_later() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    gate.enqueue(&db);
    let next = db.enqueue(["shell", "--max-attempts", "1", "--", "true"]);
    let flags = ["--concurrency", "1", "--lease", "1h"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    wait_until("the claim", || {
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'") == "1"
    });
    // A pooler on the way holds the result and the next claim longer than their timeout.
    proxy.freeze();
    gate.open();
    wait_until("another connection", || proxy.connections() > 1);
    proxy.restore();
    tick.wait().success();
    assert_eq!(db.of_run(next, "status, attempts"), "succeeded|1");
}

#[test]
fn a_lingering_tick_survives_the_end_of_its_session() {
    let db = TestDb::new();
    let tick = db.jobctl(["tick", "--linger", "--max-time", "1h"]).spawn();
    // A tick reconnects only after its session has answered.
    db.wait_for_status(db.enqueue(["shell", "--", "true"]), "succeeded");
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = \
        current_database() AND pid <> pg_backend_pid()",
    );
    let id = db.enqueue(["shell", "--", "true"]);
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success().stderr_has("; 0 running, reconnecting");
}

#[test]
fn a_lingering_tick_survives_an_outage() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let flags = ["--linger", "--max-time", "1h"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    db.wait_for_status(db.enqueue(["shell", "--", "true"]), "succeeded");
    let connections = proxy.connections();
    proxy.cut();
    wait_until("two refusals", || proxy.connections() >= connections + 2);
    proxy.restore();
    db.wait_for_status(db.enqueue(["shell", "--", "true"]), "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
}

#[test]
fn a_lingering_tick_reconnects_when_its_session_ends_before_its_first_exchange() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    proxy.lose_answer_to(&["Claims due runs"]);
    let tick = db.jobctl(["tick", "--linger"]).through(&proxy).spawn();
    wait_until("the session to end", || proxy.has_lost());
    let id = db.enqueue(["shell", "--", "true"]);
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success().stderr_has("; 0 running, reconnecting");
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn a_lingering_tick_goes_on_after_a_lock_for_which_its_statements_gave_up_waiting() {
    let db = TestDb::new();
    let tick = db.jobctl(["tick", "--linger", "--max-time", "1h", "--lease", "6s"]).spawn();
    db.wait_until_a_tick_has_the_claim_right();
    // Another session locks the row of the worker, which each wake-up of the tick updates.
    let mut client = db.client();
    let mut locked = client.transaction().unwrap();
    locked.execute("SELECT FROM jobctl.job_workers FOR UPDATE", &[]).unwrap();
    wait_until("the tick to wait for the lock", || db.sessions_waiting_for_locks() == 1);
    wait_until("the tick to give up", || db.sessions_waiting_for_locks() == 0);
    locked.rollback().unwrap();
    let id = db.enqueue(["shell", "--", "true"]);
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
}

#[test]
fn a_lingering_tick_whose_wake_ups_all_fail_exits_5() {
    let db = TestDb::new();
    let mut client = db.client();
    let mut locked = client.transaction().unwrap();
    locked.batch_execute("LOCK TABLE jobctl.job_workers IN ACCESS EXCLUSIVE MODE").unwrap();
    let flags = ["--linger", "--max-time", "2s", "--lease", "6s"];
    let tick = db.jobctl(["tick"]).args(flags).run().exits(5).complains_once();
    tick.stderr_has("cannot look for due runs: ").stderr_has("another session holds a lock");
    locked.rollback().unwrap();
}

#[test]
fn a_tick_pauses_while_the_database_is_read_only() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick"]).through(&proxy).spawn();
    gate.wait_for_starts(1);
    let read_only = format!("ALTER DATABASE {} SET default_transaction_read_only = on", db.name());
    let end_sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'jobctl'";
    let writable = format!(
        "BEGIN READ WRITE; ALTER DATABASE {} RESET default_transaction_read_only; COMMIT",
        db.name()
    );
    // A new tick ends with an error.
    db.execute(&read_only);
    let refused = db.jobctl(["tick"]).run().exits(7).complains_once();
    refused.stderr_has(
        "default_transaction_read_only is on for this role or database; turn it off \
        with ALTER ROLE",
    );
    // The setting applies to new sessions, so the running tick must connect again to see it.
    db.query(end_sessions);
    gate.open();
    let before = proxy.connections();
    wait_until("tries to write", || proxy.connections() >= before + 2);
    thread::sleep(Duration::from_secs(2));
    let tries = proxy.connections() - before;
    assert!(tries <= 12, "{tries} connections in two seconds");
    assert_eq!(db.of_run(id, "status, attempts"), "running|1");
    // The tick records the result as soon as the database is writable.
    db.execute(&writable);
    let tick = tick.wait().success();
    assert_eq!(tick.stderr.matches("reconnecting").count(), 1, "{tick}");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn a_tick_waits_only_briefly_for_a_locked_table() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    for table in ["job_runs", "job_workers"] {
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        transaction
            .batch_execute(&format!("LOCK TABLE jobctl.{table} IN ACCESS EXCLUSIVE MODE"))
            .unwrap();
        let tick = db.jobctl(["tick"]).run().exits(5).stdout("").complains_once();
        assert!(tick.took < Duration::from_secs(6), "{tick}");
        transaction.rollback().unwrap();
        assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
        assert_eq!(
            db.query("SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL"),
            "0"
        );
    }
}

#[test]
fn a_tick_with_running_jobs_waits_longer_for_a_locked_table() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    let gate = Gate::new();
    let held = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--limit", "2"]).spawn();
    gate.wait_for_starts(1);
    db.wait_for_status(id, "succeeded");
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute("LOCK TABLE jobctl.job_runs IN ACCESS EXCLUSIVE MODE").unwrap();
    gate.open();
    wait_until("the work to end", || !gate.has_processes());
    // A tick without running jobs would have given up by now.
    thread::sleep(Duration::from_millis(2500));
    transaction.rollback().unwrap();
    tick.wait().success();
    assert_eq!(db.of_run(held, "status, attempts"), "succeeded|1");
}

#[test]
fn a_role_without_a_free_connection_is_one_line_and_exit_5() {
    let db = TestDb::new();
    let role = format!("{}_role", db.name());
    db.execute(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"));
    let proxy = Proxy::to(&db);
    let url = proxy.url().replacen("postgres:", &format!("{role}:"), 1);
    let tick = db.jobctl(["tick"]).env("JOBCTL_DATABASE_URL", &url).run();
    db.execute(&format!("DROP ROLE {role}"));
    tick.exits(5).stdout("").complains_once().stderr_has("too many connections");
    assert!(proxy.connections() <= 2, "{} connections", proxy.connections());
}

/// A condition on attempts: the output has this word.
const POISONED: &str = "NEW.output LIKE '%poison%'";

/// Rejects attempts of the first run of this database for which the condition holds, with this
/// error, while the table `refuse` has a row.
fn reject_attempts_of_first_run(db: &TestDb, condition: &str, error: &str) {
    db.execute(&format!(
        "CREATE TABLE public.refuse AS SELECT 1 AS one;
         CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.run_id = 1 AND EXISTS (SELECT FROM public.refuse) AND {condition} THEN
                 RAISE EXCEPTION 'refused' USING ERRCODE = '{error}';
             END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_attempts
             FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    ));
}

#[test]
fn a_result_is_recorded_even_if_its_text_cannot_be_stored() {
    // The SQLSTATEs: an invalid byte, a character that the encoding lacks, and a text that is too
    // long.
    for error in ["22021", "22P05", "54000"] {
        let db = TestDb::new();
        reject_attempts_of_first_run(&db, POISONED, error);
        let gate = Gate::new();
        let poisoned = db.enqueue_script(&format!("echo poison; {}", gate.script()));
        let others = [gate.enqueue(&db), gate.enqueue(&db)];
        let tick = db.jobctl(["tick"]).spawn();
        gate.wait_for_starts(3);
        gate.open();
        tick.wait().success().stderr_has(&format!("run {poisoned}: output not stored: "));
        assert_eq!(db.of_run(poisoned, "status, attempts"), "succeeded|1");
        assert_eq!(
            db.of_attempt(poisoned, 1, "outcome, output"),
            "succeeded|[output could not be stored]"
        );
        for id in others {
            assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
        }
    }
}

#[test]
fn a_result_that_the_database_rejects_loses_no_other_result() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    reject_attempts_of_first_run(&db, "true", "P0001");
    let gate = Gate::new();
    let ids = [gate.enqueue(&db), gate.enqueue(&db), gate.enqueue(&db)];
    let tick = db.jobctl(["tick", "--lease", "1h"]).spawn();
    gate.wait_for_starts(3);
    gate.open();
    let tick = tick.wait().success();
    let [rejected, lost, _] = ids;
    let line = format!(
        "run {rejected} shell attempt 1/10: cannot record results: refused; the result is kept"
    );
    assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
    let statuses = ids.map(|id| db.status(id));
    assert_eq!(statuses, ["running", "succeeded", "succeeded"]);
    // The result is still stored after the end of the run's lease, and delays no other run. The
    // second run is changed so as if it had lost its lease, too. A tick recovers it.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', finished_at = NULL, locked_by = \
        'w', locked_until = now() WHERE id = {lost}"
    ));
    db.execute("DELETE FROM jobctl.job_attempts");
    db.expire_leases();
    let fourth = gate.enqueue(&db);
    let tick = db.jobctl(["tick"]).run().success();
    let line = format!("run {rejected}: cannot record stored results: refused");
    assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
    let statuses = [rejected, lost, fourth].map(|id| db.status(id));
    assert_eq!(statuses, ["running", "failed", "succeeded"]);
    // When the trigger rejects nothing more, the next tick records the stored result.
    db.execute("DELETE FROM public.refuse");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(rejected, "status, attempts"), "succeeded|1");
}

#[test]
fn a_run_whose_result_the_database_rejects_takes_no_slot_of_concurrency() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let check_violation = "23514";
    reject_attempts_of_first_run(&db, "true", check_violation);
    let first = db.enqueue(["shell", "--", "true"]);
    let flags = ["--concurrency", "1", "--lease", "1h"];
    let tick = db.jobctl(["tick"]).args(flags).run().success();
    tick.stderr_has("cannot record results: refused; the result is kept");
    let second = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).args(flags).run().success().prints_nowhere("--concurrency");
    assert_eq!([first, second].map(|id| db.status(id)), ["running", "succeeded"], "{tick}");
    let why = db.jobctl(["show", &first.to_string()]).run().success();
    why.stdout_has("its job has ended").stdout_has("the database rejects");
}

#[test]
fn a_result_that_the_database_rejects_delays_no_other() {
    let db = TestDb::new();
    reject_attempts_of_first_run(&db, "true", "XX000");
    let [first, second, third] = [Gate::new(), Gate::new(), Gate::new()];
    let ids = [first.enqueue(&db), second.enqueue(&db), third.enqueue(&db)];
    let tick = db.jobctl(["tick", "--concurrency", "2", "--lease", "1h"]).spawn();
    first.wait_for_starts(1);
    second.wait_for_starts(1);
    first.open();
    wait_until("the end of the first job", || !first.has_processes());
    // The tick still claims other runs.
    third.wait_for_starts(1);
    second.open();
    db.wait_for_status(ids[1], "succeeded");
    db.execute("DELETE FROM public.refuse");
    third.open();
    tick.wait().success();
    for id in ids {
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    }
}

/// Creates a trigger with this timing that rejects updates of runs for which the condition holds.
fn reject_updates(db: &TestDb, timing: &str, condition: &str) {
    db.execute(&format!(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE \
            EXCEPTION 'no'; END $$;
         CREATE {timing} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.refuse()"
    ));
}

#[test]
fn a_claim_that_the_database_rejects_delays_no_other_run() {
    // One trigger fails in the statement, and the other at the commit.
    for timing in [
        "TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs",
        "CONSTRAINT TRIGGER refuse AFTER UPDATE ON jobctl.job_runs DEFERRABLE INITIALLY DEFERRED",
    ] {
        let db = TestDb::new();
        let ids = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
        let rejected = ids[1];
        reject_updates(&db, timing, &format!("NEW.status = 'running' AND NEW.id = {rejected}"));
        let tick = db.jobctl(["tick"]).run().success();
        let line = format!("run {rejected} shell: cannot claim runs: no; put off for 5m");
        assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
        assert_eq!(ids.map(|id| db.status(id)), ["succeeded", "queued", "succeeded", "succeeded"]);
        assert_eq!(
            db.of_run(rejected, "attempts, last_error, run_at > now()"),
            "0|cannot claim runs: no|t"
        );
        // The run is due later now, so it will not be overdue, and `check` must name it.
        let check = db.jobctl(["check"]).run().exits(1);
        check.stdout_has("the database rejects the claim of 1 waiting run of shell");
        db.jobctl(["tick"]).run().success().stderr("");
        // Without the trigger, the run starts when it is due.
        db.execute(&format!(
            "DROP TRIGGER refuse ON jobctl.job_runs; UPDATE jobctl.job_runs SET run_at = \
            now() WHERE id = {rejected}"
        ));
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.of_run(rejected, "status, attempts"), "succeeded|1");
    }
}

#[test]
fn a_run_that_can_be_neither_claimed_nor_put_off_delays_no_other() {
    // An error that a trigger raises, and an internal error.
    for error in ["P0001", "XX000"] {
        let db = TestDb::new();
        let ids = [(); 4].map(|()| db.enqueue(["shell", "--", "true"]));
        let rejected = ids[1];
        db.execute(&format!(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{error}'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
                 WHEN (NEW.id = {rejected}) EXECUTE FUNCTION public.refuse()"
        ));
        let tick = db.jobctl(["tick"]).run();
        tick.stderr_has(&format!("run {rejected} shell: cannot claim runs: no"));
        assert_eq!(ids.map(|id| db.status(id)), ["succeeded", "queued", "succeeded", "succeeded"]);
    }
}

#[test]
fn a_claim_that_a_trigger_skips_is_named_and_delays_no_other_run() {
    for (condition, limits) in [
        ("NEW.status = 'running'", ""),
        ("NEW.status = 'running'", "max_running = 9"),
        // The trigger also skips the update that would put the run off.
        ("true", ""),
    ] {
        let db = TestDb::new();
        db.apply(&format!("[jobs.a]\nshell = 'true'\n{limits}\n"));
        let ids = [(); 4].map(|()| db.enqueue(["a"]));
        let skipped = [ids[0], ids[1]];
        db.skip_updates(&format!("NEW.id IN ({}, {}) AND {condition}", ids[0], ids[1]));
        let tick = db.jobctl(["tick", "--concurrency", "1"]).run().success();
        for id in skipped {
            let line = "a: cannot claim runs: a trigger of jobctl.job_runs skips the row; ";
            let lines = tick.stderr.matches(&format!("run {id} {line}")).count();
            assert_eq!(lines, 1, "{tick}");
        }
        let statuses = ids.map(|id| db.status(id));
        assert_eq!(statuses, ["queued", "queued", "succeeded", "succeeded"], "{tick}");
        let is_put_off = condition != "true";
        assert_eq!(db.of_run(skipped[0], "run_at > now()") == "t", is_put_off, "{tick}");
        assert_eq!(tick.stderr.contains("this tick skips the run"), !is_put_off, "{tick}");
    }
}

#[test]
fn an_end_that_a_trigger_skips_is_named_and_delays_no_other_run() {
    const WHY: &str = "a trigger of jobctl.job_runs skips the row";
    const CLAIM: &str = "status = 'running', attempts = 1, locked_by = 'gone', started_at = now(), \
                         locked_until = now() - interval '1 min'";
    /// A way in which a tick ends runs. Here it ends two, and a trigger skips the end of the first.
    struct End {
        /// Columns of runs that the next tick ends in this way.
        columns: &'static str,
        /// The new status.
        new_status: &'static str,
        /// The logged line. ID is the id of the first run, and WHY is the cause.
        line: &'static str,
        /// The statuses of both runs after the tick.
        statuses: [&'static str; 2],
        /// The status and the attempts of the first run after a tick without the trigger.
        after_next_tick: &'static str,
    }
    let ends = [
        End {
            // As enqueued: the tick executes the runs.
            columns: "priority = 0",
            new_status: "succeeded",
            line: "run ID shell attempt 1/10: cannot record results: WHY; the result is kept",
            statuses: ["running", "succeeded"],
            after_next_tick: "succeeded|1",
        },
        End {
            columns: CLAIM,
            new_status: "failed",
            line: "run ID: cannot recover lost leases: WHY",
            statuses: ["running", "failed"],
            after_next_tick: "failed|1",
        },
        End {
            columns: "expires_at = now()",
            new_status: "cancelled",
            line: "run ID: cannot cancel expired runs: WHY",
            statuses: ["queued", "cancelled"],
            after_next_tick: "cancelled|0",
        },
    ];
    for End { columns, new_status, line, statuses, after_next_tick } in ends {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        let ids = [(); 2].map(|()| db.enqueue(["shell", "--", "true"]));
        db.execute(&format!("UPDATE jobctl.job_runs SET {columns}"));
        let first = ids[0];
        db.skip_updates(&format!("NEW.id = {first} AND NEW.status = '{new_status}'"));
        let other = db.enqueue(["shell", "--", "true"]);
        let tick = db.jobctl(["tick"]).run().success().prints_nowhere("lease lost");
        let line = line.replace("ID", &first.to_string()).replace("WHY", WHY);
        assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
        assert_eq!(ids.map(|id| db.status(id)), statuses, "{tick}");
        assert_eq!(db.status(other), "succeeded");
        db.execute("DROP TRIGGER skip ON jobctl.job_runs");
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.of_run(first, "status, attempts"), after_next_tick);
    }
}

#[test]
fn a_cancel_of_all_runs_names_a_run_that_a_trigger_skips() {
    const WHY: &str = "a trigger of jobctl.job_runs skips the row";
    let db = TestDb::new();
    let ids = [(); 2].map(|()| db.enqueue(["shell", "--", "true"]));
    db.skip_updates(&format!("NEW.id = {}", ids[0]));
    db.jobctl(["cancel", "--all-waiting", "--yes"]).run().exits(1).stderr_has(WHY);
    assert_eq!(ids.map(|id| db.status(id)), ["queued", "cancelled"]);
}

#[test]
fn a_row_that_a_trigger_skips_is_named_by_each_command() {
    const DEFINED: &str =
        "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n[jobs.b]\nshell = 'true'\n";
    let db = TestDb::new();
    db.apply(DEFINED);
    let folder = temp_dir();
    let file = |text: &str| {
        let path = folder.path().join("jobs.toml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let waiting = db.enqueue(["a", "--in", "1h"]).to_string();
    let ended = db.enqueue(["a"]).to_string();
    let dead = db.enqueue(["shell", "--max-attempts", "1", "--", "false"]).to_string();
    db.jobctl(["tick"]).run().success();
    db.jobctl(["edit", "--all-waiting", "--priority", "1", "--yes", "--json"]).run().success();
    db.execute(
        "CREATE FUNCTION public.skip() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RETURN NULL; END'",
    );
    // Asserts that each command fails and names the table, while a trigger skips these changes of
    // it.
    let assert_named = |table: &str, event: &str, commands: &[&[&str]]| {
        db.execute(&format!(
            "CREATE TRIGGER skip BEFORE {event} ON jobctl.{table} FOR EACH ROW
                 EXECUTE FUNCTION public.skip()"
        ));
        for command in commands {
            let said = db.jobctl(command.iter().copied()).run().exits(1).stdout("");
            said.stderr_has(&format!("a trigger of jobctl.{table} skips the row"));
        }
        db.execute(&format!("DROP TRIGGER skip ON jobctl.{table}"));
    };
    let payload = folder.path().join("payload.json");
    fs::write(&payload, "[1]").unwrap();
    assert_named(
        "job_runs",
        "UPDATE",
        &[
            &["edit", &waiting, "--priority", "3"],
            &["edit", &waiting, "--payload-file", payload.to_str().unwrap()],
            &["retry", &waiting],
            &["retry", "--again", &ended],
            &["retry", &dead],
            &["cancel", &waiting],
            &["settle", &dead],
            &["enqueue", "a", "--after", &waiting],
            &["enqueue", "a", "--after", &waiting, "--after", &dead],
        ],
    );
    assert_named(
        "job_runs",
        "INSERT",
        &[
            &["enqueue", "a"],
            &["enqueue", "a", "--key", "k"],
            &["enqueue", "shell", "--", "true"],
            &["enqueue", "shell", "--key", "k", "--", "true"],
        ],
    );
    assert_named(
        "job_runs",
        "DELETE",
        &[&["prune", &ended], &["prune", "--older-than", "0s", "--dead-older-than", "0s", "--yes"]],
    );
    assert_named(
        "job_dependencies",
        "INSERT",
        &[
            &["enqueue", "a", "--after", &waiting],
            &["enqueue", "a", "--after", &waiting, "--after", &dead],
        ],
    );
    assert_named(
        "job_definitions",
        "INSERT OR UPDATE OR DELETE",
        &[
            &["apply", "--yes", &file("[jobs.a]\nshell = 'false'\n[jobs.b]\nshell = 'true'\n")],
            &["pause", "a"],
            &["resume", "a"],
        ],
    );
    let more = DEFINED.to_owned() + "[jobs.n]\nshell = 'true'\n";
    assert_named("job_definitions", "INSERT", &[&["apply", "--yes", &file(&more)]]);
    let fewer = file("[jobs.a]\nshell = 'true'\nschedule = '@daily'\n");
    assert_named(
        "job_definitions",
        "UPDATE OR DELETE",
        &[&["apply", "--yes", &fewer], &["apply", "--yes", "--prune", &fewer]],
    );
    assert_named("job_holds", "INSERT", &[&["hold", "--queue", "q"]]);
    // In a batch, one line of two is skipped. In SQL, the function raises the error.
    db.execute(
        "CREATE TRIGGER skip BEFORE INSERT ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.job_type = 'a') EXECUTE FUNCTION public.skip()",
    );
    let why = "a trigger of jobctl.job_runs skips the row";
    let lines = "{\"job_type\": \"b\"}\n{\"job_type\": \"a\"}\n";
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().exits(1).stderr_has(why);
    let refused = db.try_query("SELECT jobctl.enqueue('a')").unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().message(), why);
    db.execute("DROP TRIGGER skip ON jobctl.job_runs");
    // No command has changed a run or a definition.
    assert_eq!(
        db.query("SELECT id, status, priority FROM jobctl.job_runs ORDER BY id"),
        format!("{waiting}|queued|1\n{ended}|succeeded|0\n{dead}|dead|0")
    );
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_definitions WHERE enabled"), "2");
    // The same for schedules of applications.
    db.execute(
        "CREATE TRIGGER skip BEFORE INSERT OR UPDATE OR DELETE ON jobctl.job_schedules FOR EACH ROW
             EXECUTE FUNCTION public.skip()",
    );
    let refused = db.try_query("SELECT jobctl.schedule('s', 'b', '@daily')").unwrap_err();
    let why = "a trigger of jobctl.job_schedules skips the row";
    assert_eq!(refused.as_db_error().unwrap().message(), why);
}

#[test]
fn a_failed_attempt_is_recorded_while_no_trigger_fires() {
    let db = TestDb::new();
    // With this setting, no trigger of the schema fires.
    db.execute(&format!("ALTER DATABASE {} SET session_replication_role = replica", db.name()));
    let dead = db.enqueue_script("echo 'disk full' >&2; exit 3");
    let failed = db.enqueue(["shell", "--", "sh", "-c", "exit 1"]);
    db.execute(&format!("UPDATE jobctl.job_runs SET max_attempts = 1 WHERE id = {dead}"));
    db.jobctl(["tick"]).run().success().prints_nowhere("cannot record");
    assert_eq!([dead, failed].map(|id| db.status(id)), ["dead", "failed"]);
    // A trigger would look for an incident with the same cause. Without it, each failed attempt is
    // an incident of its own.
    assert_eq!(db.of_attempt(dead, 1, "incident"), format!("{dead}.1"));
    for (arguments, incidents) in
        [(&["failures", "--group"][..], 2), (&["list-dead", "--group"], 1)]
    {
        let listed = db.jobctl(arguments.iter().copied()).run().success();
        assert_eq!(listed.stdout_has("disk full").stdout.lines().count(), incidents);
    }
    db.jobctl(["doctor"]).run().stdout_has("failed attempts have no common incident");
}

/// A text that PostgreSQL stores outside of its row (TOAST).
const LONG: &str = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) AS n)";

#[test]
fn thousands_of_runs_that_cannot_be_claimed_do_not_keep_a_good_one_waiting() {
    // The updates that the trigger rejects, and the number of their runs.
    for (condition, rejected) in [
        ("NEW.status = 'running' AND NEW.queue = 'refused'", 6000),
        // The trigger also rejects the update that would put the runs off.
        ("NEW.queue = 'refused'", 1000),
    ] {
        let db = TestDb::new();
        reject_updates(&db, "TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs", condition);
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, queue)
             SELECT 'shell', '{{\"command\": \"true\"}}', 'refused'
             FROM generate_series(1, {rejected})"
        ));
        let good = db.enqueue(["shell", "--priority", "1", "--", "true"]);
        let tick = db.jobctl(["tick"]).run().success();
        assert_eq!(db.status(good), "succeeded");
        assert_eq!(
            db.query("SELECT status, count(*) FROM jobctl.job_runs WHERE attempts = 0 GROUP BY 1"),
            format!("queued|{rejected}")
        );
        // The log names only some of the runs.
        let lines = tick.stderr.lines().count();
        assert!(lines < 70 && tick.stderr.contains("more runs, for reasons as above"), "{tick}");
    }
}

/// Makes the long values of a table, which PostgreSQL stores outside of their rows (TOAST),
/// unreadable, like a damaged disk.
fn make_toast_unreadable(db: &TestDb, table: &str) {
    db.execute(&format!(
        "CREATE TABLE public.lost (text text);
         -- The TOAST table gets the file of another one, which is empty.
         UPDATE pg_class SET relfilenode = lost_toast.relfilenode
         FROM pg_class AS damaged, pg_class AS lost, pg_class AS lost_toast
         WHERE damaged.oid = 'jobctl.{table}'::regclass AND pg_class.oid = damaged.reltoastrelid
             AND lost.oid = 'public.lost'::regclass AND lost_toast.oid = lost.reltoastrelid"
    ));
}

#[test]
fn a_run_that_dies_without_an_attempt_is_in_no_older_incident() {
    let db = TestDb::new();
    db.apply(
        "[jobs.mail]\nshell = 'true'\non_dead = 'alert'\n\
         [jobs.alert]\nshell = 'cat >alert.json'\n",
    );
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload, status, attempts, failed_at, error_type,
             last_error)
         SELECT 'mail', jsonb_build_object('text', {LONG}), 'failed', 1, now(), 'timeout', 'late';
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
             error_type, error)
         SELECT id, 1, 'w', now(), now() - interval '2 days', 'failed', 'timeout', 'late'
         FROM jobctl.job_runs"
    ));
    // The payload of the run, whose first attempt timed out two days ago, can't be read any more.
    // So the run dies without a second attempt.
    make_toast_unreadable(&db, "job_runs");
    let folder = temp_dir();
    let run: i64 = db.query("SELECT id FROM jobctl.job_runs").parse().unwrap();
    db.jobctl(["tick"]).current_dir(folder.path()).run().success();
    assert_eq!(db.of_run(run, "status, attempts, error_type"), "dead|1|bad_payload");
    let alert: Value =
        serde_json::from_slice(&fs::read(folder.path().join("alert.json")).unwrap()).unwrap();
    assert_eq!(alert["error_type"], "bad_payload");
    assert_eq!(&alert["incident"], &Value::Null);
    // An incident is called RUN.ATTEMPT. Attempts count from 1, so 0 means a death without one.
    let [incident, unknown] = [format!("{run}.0"), format!("{}.0", run + 1)];
    db.jobctl(["report"])
        .run()
        .success()
        .stdout_has(&format!("jobctl list --incident {incident}<"));
    db.jobctl(["list", "--incident", &incident]).run().success().stdout_has("mail\tdead\t");
    db.jobctl(["list", "--incident", &unknown]).run().exits(3).stdout("");
}

#[test]
fn an_unreadable_run_ends_dead_and_every_command_survives_it() {
    let db = TestDb::new();
    let insert = "INSERT INTO jobctl.job_runs (job_type, payload, idempotency_key, key_scope)";
    db.execute(&format!(
        "{insert} SELECT 'shell', jsonb_build_object('command', {LONG}), 'k', 'live'"
    ));
    let unreadable: i64 = db.query("SELECT id FROM jobctl.job_runs").parse().unwrap();
    let others = [(); 3].map(|()| db.enqueue(["shell", "--", "true"]));
    make_toast_unreadable(&db, "job_runs");
    // The tick ends the unreadable run, and executes the others.
    db.jobctl(["tick", "--dry-run"]).run().success().stdout_has("shell");
    let tick = db.jobctl(["tick"]).run().success();
    let line = format!("run {unreadable} shell: cannot read runs: ");
    assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
    tick.stderr_has("; dead");
    assert_eq!(others.map(|id| db.status(id)), ["succeeded", "succeeded", "succeeded"]);
    let ended = "status, attempts, error_type, last_error LIKE 'cannot read runs: %', finished_at \
        IS NOT NULL";
    assert_eq!(db.of_run(unreadable, ended), "dead|0|bad_payload|t|t");
    assert_eq!(db.query("SELECT succeeded, dead FROM jobctl.daily_figures"), "3|1");
    // All commands that print runs or change them still work.
    let id = unreadable.to_string();
    db.jobctl(["show", &id])
        .run()
        .success()
        .stdout_has("cannot read the payload: ")
        .stdout_has("bad_payload");
    let shown = db.jobctl(["show", &id, "--json"]).run().success();
    shown.stdout_has("\"payload\":null,\"payload_error\":\"cannot read the payload: ");
    db.jobctl(["list"]).run().success().stdout_has("dead");
    db.jobctl(["list-dead"]).run().success().stdout_has("shell");
    db.jobctl(["status"]).run().success();
    db.jobctl(["check"]).run().exits(1).stdout_has("1 dead run");
    db.jobctl(["report"]).run().success();
    db.jobctl(["doctor"]).run();
    db.jobctl(["retry", &id]).run().success();
    assert_eq!(db.status(unreadable), "queued");
    db.jobctl(["cancel", &id]).run().success();
    assert_eq!(db.status(unreadable), "cancelled");
}

#[test]
fn runs_of_an_unreadable_definition_end_dead_and_do_not_delay_others() {
    let db = TestDb::new();
    db.apply("[jobs.lost]\nshell = 'true'\n\n[jobs.kept]\nshell = 'true'\n");
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET action = action || jsonb_build_object('env', \
            jsonb_build_object('A', {LONG}))
         WHERE name = 'lost'"
    ));
    make_toast_unreadable(&db, "job_definitions");
    let ids = ["lost", "kept", "lost"].map(|job| db.enqueue([job]));
    let tick = db.jobctl(["tick"]).run().success();
    assert_eq!(tick.stderr.matches("lost: cannot read runs: ").count(), 2, "{tick}");
    assert_eq!(
        ids.map(|id| db.of_run(id, "status, error_type")),
        ["dead|bad_payload", "succeeded|", "dead|bad_payload"]
    );
}

/// The claim does not read the results of other runs, so it succeeds; only the execution of this
/// run fails.
#[test]
fn a_run_whose_results_cannot_be_read_delays_no_other() {
    let db = TestDb::new();
    db.apply("[jobs.sum]\nshell = 'cat'\npass_result = true\n[jobs.other]\nshell = 'true'\n");
    let first = db.enqueue_script("true");
    let sum = db.enqueue(["sum", "--after", &first.to_string()]);
    db.jobctl(["tick", "--limit", "1"]).run().success();
    assert_eq!([first, sum].map(|id| db.status(id)), ["succeeded", "queued"]);
    db.execute(&format!("UPDATE jobctl.job_attempts SET output = {LONG}"));
    make_toast_unreadable(&db, "job_attempts");
    let others = [1, 2, 3].map(|_| db.enqueue(["other"]));
    let tick = db.jobctl(["tick"]).run().success();
    assert_eq!(others.map(|id| db.status(id)), ["succeeded"; 3], "{tick}");
    assert!(["queued", "failed", "dead"].contains(&&*db.status(sum)), "{tick}");
    tick.stderr_has(&format!("run {sum} "));
    // `check` and `show` tell a person about it.
    db.jobctl(["check"]).run().exits(1).stdout_has(" of sum");
    db.jobctl(["show", &sum.to_string()]).run().success().stdout_has("cannot read");
}

#[test]
fn a_schedule_with_an_unreadable_payload_does_not_delay_others() {
    let db = TestDb::new();
    let job = |name: &str| {
        format!("[jobs.{name}]\nshell = 'true'\nschedule = '@daily'\ncatch_up = 'one'\n")
    };
    db.apply(&(job("lost") + &job("kept")));
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now());
         UPDATE jobctl.job_definitions SET payload = to_jsonb({LONG}) WHERE name = 'lost'"
    ));
    make_toast_unreadable(&db, "job_definitions");
    let tick = db.jobctl(["tick"]).run().success().stderr_has("schedule of `lost` does not fire: ");
    assert_eq!(
        db.query("SELECT job_type, status FROM jobctl.job_runs"),
        "kept|succeeded",
        "{tick}"
    );
}

#[test]
fn a_schedule_whose_row_rejects_updates_delays_no_other() {
    let db = TestDb::new();
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\nschedule = '@yearly'\n");
    db.apply(&(job("refused") + &job("other")));
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now());
         CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE \
         EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_definitions FOR EACH ROW
             WHEN (OLD.name = 'refused') EXECUTE FUNCTION public.refuse()",
    );
    // A schedule that cannot fire is put off, which fails here, too. The other one still fires, and
    // the tick runs the waiting run.
    let waiting = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).run().success();
    assert!(
        tick.stderr.contains("schedule of `refused` does not fire: cannot fire schedules: no"),
        "{tick}"
    );
    assert_eq!(db.status(waiting), "succeeded");
    assert_eq!(
        db.query(
            "SELECT job_type || ' ' || status FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL"
        ),
        "other succeeded"
    );
}

#[test]
fn a_renewal_that_the_database_rejects_loses_no_other_lease() {
    let db = TestDb::new();
    let gate = Gate::new();
    let [refused, other] = [gate.enqueue(&db), gate.enqueue(&db)];
    let tick = db.jobctl(["tick", "--lease", "6s"]).spawn();
    gate.wait_for_starts(2);
    // From now on, the lease of one run can't be renewed.
    reject_updates(
        &db,
        "TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs",
        &format!("NEW.id = {refused} AND NEW.status = 'running'"),
    );
    wait_until("the end of the lease", || db.status(refused) == "failed");
    gate.open();
    let tick = tick.wait().success();
    let line = format!(
        "run {refused}: cannot renew leases: no; another tick recovers the run when its lease"
    );
    assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
    assert_eq!(db.of_run(refused, "error_type, attempts"), "lease_expired|1");
    assert_eq!(db.of_run(other, "status, attempts"), "succeeded|1");
}

/// Rejects renewals of these runs' leases with this error, and counts them in the sequence
/// `refusals`.
fn reject_renewals(db: &TestDb, runs: &str, error: &str) {
    db.execute(&format!(
        "CREATE SEQUENCE public.refusals;
         CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM nextval('public.refusals');
             RAISE EXCEPTION 'refused' USING ERRCODE = '{error}';
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (OLD.status = 'running' AND NEW.status = 'running' AND {runs}) EXECUTE FUNCTION \
             public.refuse()"
    ));
}

fn wait_for_rejected_renewals(db: &TestDb, refusals: i64) {
    wait_until("refused renewals", || {
        db.query(&format!("SELECT is_called AND last_value >= {refusals} FROM public.refusals"))
            == "t"
    });
}

#[test]
fn jobs_survive_an_unexpected_error_of_a_renewal() {
    // A missing privilege, an internal error, and an error of the disk.
    for error in ["42501", "XX000", "58030"] {
        let db = TestDb::new();
        let [held, ended] = [Gate::new(), Gate::new()];
        let ids = [held.enqueue(&db), ended.enqueue(&db)];
        let tick = db.jobctl(["tick", "--lease", "12s"]).spawn();
        held.wait_for_starts(1);
        ended.wait_for_starts(1);
        reject_renewals(&db, "true", error);
        wait_for_rejected_renewals(&db, 2);
        // Results are recorded meanwhile.
        ended.open();
        db.wait_for_status(ids[1], "succeeded");
        db.execute("DROP TRIGGER refuse ON jobctl.job_runs");
        let lease = db.of_run(ids[0], "locked_until");
        wait_until("a renewal", || db.of_run(ids[0], "locked_until") != lease);
        held.open();
        let tick = tick.wait().success();
        assert_eq!(tick.stderr.matches("cannot renew leases: refused; ").count(), 1, "{tick}");
        assert_eq!(ids.map(|id| db.of_run(id, "status, attempts")), ["succeeded|1", "succeeded|1"]);
    }
}

#[test]
fn jobs_survive_a_privilege_that_is_revoked_and_granted_again() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let folder = temp_dir();
    let log = folder.path().join("log");
    let tick = worker
        .jobctl(["tick", "--lease", "12s"])
        .stderr_to(File::create(&log).unwrap().into())
        .spawn();
    gate.wait_for_starts(1);
    let change = |verb: &str, to: &str| {
        db.execute(&format!(
            "{verb} UPDATE (locked_until) ON jobctl.job_runs {to} {}",
            worker.name()
        ));
    };
    // Without this privilege, the lease can't be renewed.
    change("REVOKE", "FROM");
    let warning = "cannot renew leases: permission denied for table job_runs; `jobctl grants ";
    wait_until("a warning", || fs::read_to_string(&log).unwrap().contains(warning));
    change("GRANT", "TO");
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn jobs_stop_before_a_lease_that_cannot_be_renewed_ends() {
    let db = TestDb::new();
    let gate = Gate::new();
    let other = Gate::new();
    let [id, spared] = [gate.enqueue(&db), other.enqueue(&db)];
    let tick = db.jobctl(["tick", "--quiet", "--lease", "4s"]).spawn();
    gate.wait_for_starts(1);
    other.wait_for_starts(1);
    reject_renewals(&db, &format!("NEW.id = {id}"), "XX000");
    let expires = db.of_run(id, "locked_until");
    wait_until("the job's end", || !gate.has_processes());
    // The lease has not ended yet.
    assert_eq!(db.query(&format!("SELECT now() < '{expires}'")), "t");
    other.open();
    let what = "lease expired: its worker could not renew it and ended the job";
    tick.wait().success().stderr_has(&format!("run {id} shell attempt 1/10: {what} after "));
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "failed|1|lease_expired");
    assert_eq!(db.of_run(spared, "status, attempts"), "succeeded|1");
}

#[test]
fn a_tick_whose_claims_the_database_rejects_finishes_its_jobs() {
    let db = TestDb::new();
    let gate = Gate::new();
    let first = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--concurrency", "2"]).spawn();
    gate.wait_for_starts(1);
    reject_updates(&db, "TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs", "OLD.status = 'queued'");
    let second = db.enqueue(["shell", "--", "true"]);
    // The database rejects so many runs that the tick stops looking for each of them.
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT run.job_type, run.payload FROM jobctl.job_runs AS run, generate_series(1, 10000) \
         WHERE run.id = {second}"
    ));
    db.wait_until_no_tick_has_the_claim_right();
    gate.open();
    tick.wait().exits(1).stderr_has("cannot put off a run: no; 1 running");
    assert_eq!([first, second].map(|id| db.status(id)), ["succeeded", "queued"]);
}

#[test]
fn a_tick_that_may_not_record_a_result_ends_and_names_the_grants() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let worker = Role::granted(&db, "worker");
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = worker.jobctl(["tick", "--lease", "3s"]).spawn();
    gate.wait_for_starts(1);
    db.execute(&format!("REVOKE EXECUTE ON FUNCTION jobctl.end_runs FROM {}", worker.name()));
    gate.open();
    let tick = tick.wait().exits(7);
    let tick = tick.stderr_has(&format!("run {id} shell attempt 1/10: succeeded after "));
    let tick = tick.stderr_has("; result not recorded, so the run will start again; another tick");
    tick.stderr_has(
        "permission denied for function end_runs; `jobctl grants --role ROLE --as SET` prints \
         what a role needs",
    );
}

#[test]
fn a_result_is_kept_while_the_disk_is_full() {
    let db = TestDb::new();
    reject_attempts_of_first_run(&db, POISONED, "disk_full");
    let gate = Gate::new();
    let id = db.enqueue_script(&format!("echo poison; {}", gate.script()));
    let folder = temp_dir();
    let log = folder.path().join("log");
    let tick =
        db.jobctl(["tick", "--lease", "3s"]).stderr_to(File::create(&log).unwrap().into()).spawn();
    gate.wait_for_starts(1);
    gate.open();
    wait_until("the work to end", || !gate.has_processes());
    // The lease is still renewed, and the log reports no success before it is recorded.
    let lease = db.of_run(id, "locked_until");
    wait_until("the first lease to be over", || {
        db.query(&format!("SELECT now() > '{lease}'")) == "t"
    });
    db.jobctl(["tick", "--worker", "other"]).run().success().stderr("");
    assert_eq!(db.of_run(id, "status, attempts"), "running|1");
    let said = || fs::read_to_string(&log).unwrap().matches("record results: refused; ").count();
    wait_until("a word about it", || said() > 0);
    db.execute("DELETE FROM public.refuse");
    tick.wait().success();
    assert_eq!(said(), 1);
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    assert_eq!(db.of_attempt(id, 1, "outcome, output"), "succeeded|poison\n");
    // The time at which the job ended, not the time of the recording.
    assert_eq!(db.of_attempt(id, 1, &format!("finished_at < '{lease}'")), "t");
}

#[test]
fn settings_of_the_database_change_no_behaviour() {
    // Each of them would break a statement that relied on the default.
    let settings = [
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "idle_in_transaction_session_timeout = '500ms'",
        "lock_timeout = '1ms'",
        "search_path = nowhere",
        "timezone = 'Pacific/Chatham'",
        "datestyle = 'SQL, DMY'",
        "intervalstyle = sql_standard",
        "extra_float_digits = 0",
        "standard_conforming_strings = off",
        "escape_string_warning = off",
        "row_security = off",
        "client_min_messages = debug1",
    ];
    let db = TestDb::new();
    let set = |setting: &&str| format!("ALTER DATABASE {} SET {setting};", db.name());
    db.execute(&settings.iter().map(set).collect::<String>());
    let gate = Gate::new();
    let long = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "3s"]).spawn();
    gate.wait_for_starts(1);
    let lease = db.of_run(long, "locked_until");
    wait_until("a renewal", || db.of_run(long, "locked_until") != lease);
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(long, "status, attempts"), "succeeded|1");
    let timed = db.enqueue([
        "shell",
        "--run-at",
        "2100-01-05T09:30:00+01:00",
        "--timeout",
        "90s",
        "--",
        "false",
    ]);
    // A time and a duration are stored as given, in spite of the formats and the time zone.
    let utc = "to_char(run_at AT TIME ZONE 'UTC', 'HH24:MI'), extract(epoch FROM timeout)::integer";
    assert_eq!(db.of_run(timed, utc), "08:30|90");
    db.execute(&format!("UPDATE jobctl.job_runs SET run_at = now() WHERE id = {timed}"));
    db.jobctl(["tick"]).run().success().stderr_has("next attempt in ");
    assert_eq!(db.of_run(timed, "status"), "failed");
    let text = timed.to_string();
    db.jobctl(["retry", &text]).run().success();
    db.jobctl(["cancel", &text]).run().success();
    assert_eq!(db.status(timed), "cancelled");
}

#[test]
fn functions_of_other_schemas_never_replace_built_in_ones() {
    let db = TestDb::new();
    // This overload is a better match than `cardinality(anyarray)`.
    db.execute(
        "CREATE FUNCTION public.cardinality(text[]) RETURNS integer LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'called as %', current_user; END$$",
    );
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_slow_statement_is_cancelled_on_the_server() {
    let db = TestDb::new();
    db.execute(
        "CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
         CREATE TRIGGER dawdle BEFORE INSERT ON jobctl.job_workers
             FOR EACH ROW EXECUTE FUNCTION public.dawdle()",
    );
    let tick = db.jobctl(["tick", "--lease", "6s"]).run();
    tick.exits(5)
        .stdout("")
        .complains_once()
        .stderr_has("due to statement timeout; try again, or narrow it down");
}

#[test]
fn a_serialization_failure_is_retried() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    // A serialization failure and a deadlock.
    for error in ["40001", "40P01"] {
        // The first two updates fail. A sequence counts them, because no rollback resets it.
        db.execute(&format!(
            "CREATE SEQUENCE public.met;
             CREATE OR REPLACE FUNCTION public.meet() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('public.met') < 3 THEN
                     RAISE EXCEPTION 'met' USING ERRCODE = '{error}';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER meet BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW EXECUTE FUNCTION \
             public.meet()"
        ));
        db.jobctl(["cancel", &id.to_string()]).run().success();
        assert_eq!(db.status(id), "cancelled", "{error}");
        db.execute("DROP TRIGGER meet ON jobctl.job_runs; DROP SEQUENCE public.met");
        db.jobctl(["retry", &id.to_string()]).run().success();
    }
}
