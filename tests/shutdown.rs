//! Signals: running jobs may finish, other claims are released, no process is left behind.

use std::io::pipe;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use crate::support::{Gate, Preload, Proxy, TestDb, temp_dir, wait_until, wait_until_within};

const SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Returns a script that waits at the gate. It goes on after SIGTERM and SIGINT, and logs each as
/// `asked`.
fn script_that_ignores_sigterm(gate: &Gate) -> String {
    format!("trap 'echo asked >>{}' TERM INT; {}", gate.log().display(), gate.script())
}

/// The end of the line about a result that the tick could neither record nor store.
const UNRECORDED: &str = "; result not recorded, so the run will start again; another tick \
     recovers the run when its lease ends";

#[test]
fn an_idle_tick_ends_at_once_on_any_signal() {
    let db = TestDb::new();
    for signal in SIGNALS {
        let tick = db.jobctl(["tick", "--linger", "--quiet"]).spawn();
        db.wait_until_a_tick_has_the_claim_right();
        tick.signal(signal);
        tick.wait_within(Duration::from_secs(5)).success().stdout("").stderr("");
        assert_eq!(
            db.query("SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL"),
            "0"
        );
    }
}

#[test]
fn a_signal_during_the_start_ends_the_tick() {
    let db = TestDb::new();
    // The tick gets a signal when it calls `socketpair` for the first time, early in its start.
    let signalled = Preload::compile(
        "#define _GNU_SOURCE
         #include <signal.h>
         #include <sys/syscall.h>
         #include <unistd.h>
         int socketpair(int domain, int type, int protocol, int pair[2]) {
             static int calls;
             if (calls++ == 0) raise(SIGTERM);
             return syscall(SYS_socketpair, domain, type, protocol, pair);
         }",
    );
    let tick = signalled.before(db.jobctl(["tick", "--linger", "--max-time", "1h"])).spawn();
    // The signal arrives before or after jobctl begins to catch signals. Both end the tick.
    tick.wait_within(Duration::from_secs(10));
}

#[test]
fn after_a_signal_running_jobs_finish_and_no_run_is_claimed() {
    for signal in SIGNALS {
        let db = TestDb::new();
        let gate = Gate::new();
        let running = gate.enqueue(&db);
        // A waiting run must not make the tick keep its claim right.
        db.enqueue(["shell", "--in", "1h", "--", "true"]);
        let tick = db
            .jobctl(["tick", "--linger", "--grace", "1m", "--lease", "3s", "--worker", "w"])
            .spawn();
        gate.wait_for_starts(1);
        tick.signal(signal);
        db.wait_until_no_tick_has_the_claim_right();
        let late = db.enqueue(["shell", "--", "true"]);

        // The tick renews its lease meanwhile, so no other worker recovers the run.
        let lease = db.of_run(running, "locked_until");
        wait_until("the first lease to be over", || {
            db.query(&format!("SELECT now() > '{lease}'")) == "t"
        });
        db.jobctl(["tick", "--worker", "other", "--shell", "off"]).run().success().stderr("");

        gate.open();
        let tick = tick.wait().success();
        assert!(
            tick.stderr.contains("stopping: 1 running, grace 1m; a second signal ends them now"),
            "{tick}"
        );
        assert_eq!(db.of_run(running, "status, attempts"), "succeeded|1");
        assert_eq!(db.of_run(late, "status, attempts"), "queued|0");
    }
}

#[test]
fn a_tick_claims_nothing_after_a_migration_and_lets_its_running_jobs_finish() {
    let db = TestDb::new();
    let gate = Gate::new();
    let running = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--lease", "3s", "--max-time", "1h"]).spawn();
    gate.wait_for_starts(1);
    // A newer jobctl has migrated the schema.
    db.execute(
        "INSERT INTO jobctl.schema_migrations (version, name, checksum)
         VALUES (9999, '9999_later', 'x')",
    );
    db.wait_until_no_tick_has_the_claim_right();
    // The lease is renewed as before.
    let lease = db.of_run(running, "locked_until");
    wait_until("the lease to be over", || db.query(&format!("SELECT now() > '{lease}'")) == "t");
    gate.open();
    tick.wait().exits(6).stderr_has("the schema is at version 9999");
    assert_eq!(db.of_run(running, "status, attempts"), "succeeded|1");
}

#[test]
fn runs_of_a_claim_that_a_signal_interrupts_are_released_without_an_attempt() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": \"true\"}' FROM generate_series(1, 64)",
    );
    let blocker = db.block_claims();
    let tick = db.jobctl(["tick", "--concurrency", "64"]).spawn();
    wait_until("the claim to be blocked", || db.sessions_waiting_for_locks() == 1);
    // The tick waits for the answer to its claim. It sees the signal only afterwards.
    tick.signal(Signal::TERM);
    drop(blocker);
    tick.wait().success().stderr_has("stopping: 0 running, grace 10s\n");
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "queued|0|64"
    );
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0");
}

#[test]
fn a_job_that_exceeds_the_grace_period_is_stopped_and_queued_again() {
    let db = TestDb::new();
    let gate = Gate::new();
    let usual = gate.enqueue(&db);
    let with_one_attempt = db.enqueue(["shell", "--max-attempts", "1", "--", "sleep", "600"]);
    let tick = db.jobctl(["tick", "--grace", "1s", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    db.wait_for_status(with_one_attempt, "running");
    tick.signal(Signal::TERM);
    let tick = tick.wait().success();
    assert!(tick.took >= Duration::from_secs(1), "{tick}");
    assert!(!gate.has_processes());
    assert_eq!(gate.count("end"), 0);

    // Both runs are due again: an interrupted attempt does not use up `max_attempts`.
    let state = "status, attempts, error_type, run_at <= now(), locked_by";
    assert_eq!(db.of_run(usual, state), "queued|1|interrupted|t|");
    assert_eq!(db.of_attempt(usual, 1, "worker, outcome, error_type"), "w|interrupted|interrupted");
    assert_eq!(db.of_run(with_one_attempt, state), "queued|1|interrupted|t|");

    // The next tick makes the second attempt.
    gate.open();
    db.jobctl(["cancel", &with_one_attempt.to_string()]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(usual, "status, attempts"), "succeeded|2");
}

#[test]
fn a_job_that_a_shutdown_lets_finish_with_exit_status_0_has_succeeded() {
    let db = TestDb::new();
    let gate = Gate::new();
    // These commands end with an exit status of their own after SIGTERM.
    let script = format!("trap 'exit 0' TERM; {}", gate.script());
    let finishing = db.enqueue_script(&script);
    let failing = db.enqueue_script(&script.replace("exit 0", "exit 3"));
    // A timeout and a cancellation decide about the run, whatever the exit status is then.
    let command = ["--max-attempts", "1", "--", "sh", "-c", &script];
    let timed_out = db.enqueue([&["shell", "--timeout", "1s"], &command[..]].concat());
    let cancelled = db.enqueue([&["shell"], &command[..]].concat());
    let tick = db.jobctl(["tick", "--grace", "0s"]).spawn();
    gate.wait_for_starts(4);
    db.jobctl(["cancel", &cancelled.to_string()]).run().success();
    db.wait_for_status(cancelled, "cancelled");
    db.wait_for_status(timed_out, "dead");
    // The shutdown stops the first two.
    tick.signal(Signal::TERM);
    tick.wait().success();
    let state = "status, attempts, error_type";
    assert_eq!(db.of_run(finishing, state), "succeeded|1|");
    assert_eq!(db.of_attempt(finishing, 1, "outcome, exit_code"), "succeeded|0");
    assert_eq!(db.of_run(failing, state), "queued|1|interrupted");
    assert_eq!(db.of_run(timed_out, state), "dead|1|timeout");
    assert_eq!(db.of_run(cancelled, state), "cancelled|1|cancelled");
}

#[test]
fn a_job_that_ignores_sigterm_is_killed() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = db.enqueue_script(&script_that_ignores_sigterm(&gate));
    let tick = db.jobctl(["tick", "--grace", "0s"]).spawn();
    gate.wait_for_starts(1);
    tick.signal(Signal::TERM);
    let tick = tick.wait().success();
    // The job had five seconds after SIGTERM.
    assert!(tick.took >= Duration::from_secs(5), "{tick}");
    assert_eq!(gate.count("asked"), 1);
    assert_eq!(gate.count("end"), 0);
    assert!(!gate.has_processes());
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "queued|1|interrupted");
}

#[test]
fn a_second_signal_ends_the_grace_period() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = db.enqueue_script(&script_that_ignores_sigterm(&gate));
    let tick = db.jobctl(["tick", "--grace", "1h"]).spawn();
    gate.wait_for_starts(1);
    tick.signal(Signal::TERM);
    // Wait until the tick has handled the first signal: the kernel may merge two that come at once.
    db.wait_until_no_tick_has_the_claim_right();
    std::thread::sleep(Duration::from_millis(100));
    let second = Instant::now();
    tick.signal(Signal::TERM);
    tick.wait_within(Duration::from_secs(20)).success();
    // The job did not get the five seconds that follow a SIGTERM.
    assert!(second.elapsed() < Duration::from_secs(4), "took {:?}", second.elapsed());
    assert!(!gate.has_processes());
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "queued|1|interrupted");
}

#[test]
fn signals_of_a_terminal_do_not_reach_the_jobs() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = db.enqueue_script(&script_that_ignores_sigterm(&gate));
    let tick = db.jobctl(["tick", "--grace", "1m", "--linger"]).leads_group().spawn();
    gate.wait_for_starts(1);
    // A terminal sends SIGINT to the whole group at Ctrl-C.
    kill_process_group(tick.pid(), Signal::INT).unwrap();
    db.wait_until_no_tick_has_the_claim_right();
    gate.open();
    tick.wait().success().stderr_has("stopping: ");
    assert_eq!(gate.count("asked"), 0);
    assert_eq!(gate.count("end"), 1);
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_signal_at_any_moment_of_the_start_leaves_no_process_behind() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    gate.open();
    // Half of the signals come this many milliseconds after the start of the process, the others
    // this long after it has connected.
    for moment in 0..50 {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) VALUES
                 ('shell', '{}'), ('shell', '{{\"command\": \"sleep 0.02\"}}')",
            serde_json::json!({ "command": gate.script() }).to_string().replace('\'', "''")
        ));
        let before = proxy.connections();
        let tick = db.jobctl(["tick", "--quiet"]).through(&proxy).spawn();
        if moment % 2 == 1 {
            wait_until("a connection", || proxy.connections() > before);
        }
        std::thread::sleep(Duration::from_millis(moment));
        tick.signal(Signal::TERM);
        let tick = tick.wait();
        // Before jobctl catches signals, the signal kills it. But then it has not even connected.
        let is_killed_early = tick.status.code().is_none() && proxy.connections() == before;
        assert!(tick.status.success() || is_killed_early, "after {moment} ms: {tick}");
        assert_eq!(tick.stderr, "", "after {moment} ms");
        let held = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'";
        assert_eq!(db.query(held), "0", "after {moment} ms: {}", db.dump());
    }
    // All runs succeed, and each that waits at the gate has started once.
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.query("SELECT DISTINCT status, attempts FROM jobctl.job_runs"), "succeeded|1");
    assert_eq!(gate.count("start"), 50);
    assert_eq!(gate.count("end"), 50);
}

#[test]
fn a_stopped_tick_whose_database_is_away_ends_its_jobs_and_exits_within_its_timeouts() {
    // The connection is either cut or silent.
    for cut in [false, true] {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        let proxy = Proxy::to(&db);
        let gate = Gate::new();
        let id = gate.enqueue(&db);
        let flags = ["--grace", "1s", "--lease", "1m"];
        let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
        gate.wait_for_starts(1);
        if cut {
            proxy.cut()
        } else {
            proxy.freeze()
        }
        let asked = Instant::now();
        tick.signal(Signal::TERM);
        wait_until("the job to be ended", || !gate.has_processes());
        // The tick can't record the result. It tries until its timeouts are over.
        let tick = tick.wait().exits(1).stderr_has("cannot record or release 1 run in time");
        assert!(asked.elapsed() < Duration::from_secs(40), "took {:?}", asked.elapsed());
        let what = format!("run {id} shell attempt 1/10: interrupted after ");
        tick.stderr_has(&what).stderr_has(UNRECORDED);
        assert_eq!(db.of_run(id, "status, attempts"), "running|1");
    }
}

#[test]
fn a_tick_that_cannot_release_a_run_exits_1() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--grace", "0s", "--lease", "1m"]).spawn();
    gate.wait_for_starts(1);
    let mut locks = db.client();
    // Without the second lock, the tick would store the result in that table.
    let lock = "BEGIN; SELECT FROM jobctl.job_runs FOR UPDATE;
        LOCK TABLE jobctl.job_locked_runs IN EXCLUSIVE MODE";
    locks.batch_execute(lock).unwrap();
    tick.signal(Signal::TERM);
    let what = format!("run {id} shell attempt 1/10: interrupted after ");
    tick.wait().exits(1).stderr_has(&what).stderr_has(UNRECORDED).stderr_has(
        "jobctl: cannot record or release 1 run in time; other ticks recover them when their \
             leases end; see the log\n",
    );
    assert_eq!(db.of_run(id, "status, attempts"), "running|1");
}

#[test]
fn an_unstarted_run_has_no_attempt_even_if_the_tick_ends_at_once() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    // After a hundred quick runs, the tick prefetches many of the next runs. It has one slot, so
    // only one of those starts.
    for (runs, script) in [(100, ":".to_owned()), (40, gate.script())] {
        let payload = serde_json::json!({ "command": script });
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{payload}' FROM \
                generate_series(1, {runs})"
        ));
    }
    let flags = ["--concurrency", "1", "--grace", "0s"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    // The job ends before the tick can release the prefetched runs.
    proxy.freeze();
    tick.signal(Signal::TERM);
    wait_until("the job to be ended", || !gate.has_processes());
    proxy.restore();
    tick.wait().success().stderr_has("stopping: 1 running, ");
    assert_eq!(gate.count("start"), 1);
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'interrupted'"),
        "1"
    );
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued' AND attempts = 0"),
        "39"
    );
}

#[test]
fn a_signal_ends_the_jobs_before_the_answer_of_a_silent_database_times_out() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let flags = ["--linger", "--grace", "1s", "--lease", "1m"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    db.wait_for_status(id, "running");
    proxy.freeze();
    tick.signal(Signal::TERM);
    // The tick must not wait for the answer until its timeout.
    wait_until_within(Duration::from_secs(8), "the job to be ended", || !gate.has_processes());
    proxy.restore();
    tick.wait();
}

#[test]
fn a_signal_stops_a_tick_that_waits_for_a_renewal() {
    // A second signal skips the grace period, also if both come during the wait.
    for (grace, signals) in [("0s", &[Signal::TERM][..]), ("1h", &[Signal::TERM, Signal::INT])] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let gate = Gate::new();
        let id = gate.enqueue(&db);
        let flags = ["--grace", grace, "--lease", "1m"];
        let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
        gate.wait_for_starts(1);
        proxy.freeze_after("Renews the leases");
        wait_until("the renewal", || proxy.is_frozen());
        signals.iter().for_each(|signal| tick.signal(*signal));
        wait_until("the job to be ended", || !gate.has_processes());
        proxy.restore();
        tick.wait().success().stderr_has("the database does not answer; 1 running, reconnecting");
        assert_eq!(db.of_run(id, "status, attempts, locked_by"), "queued|1|");
    }
}

#[test]
fn an_idle_tick_exits_within_grace_and_two_seconds_of_silence() {
    // The database is silent from a claim or from a wake on.
    for text in ["Claims due runs", "INSERT INTO jobctl.job_workers"] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let flags = ["--linger", "--grace", "1s", "--quiet"];
        let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
        db.wait_until_a_tick_has_the_claim_right();
        proxy.freeze_after(text);
        wait_until("the database to be silent", || proxy.is_frozen());
        let asked = Instant::now();
        tick.signal(Signal::TERM);
        // The tick holds nothing, so it does not wait for the answer.
        tick.wait().success().stderr("");
        assert!(asked.elapsed() < Duration::from_secs(3), "{text}: took {:?}", asked.elapsed());
    }
}

#[test]
fn a_signal_ends_a_tick_that_waits_for_its_first_connection() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    proxy.freeze();
    let tick = db.jobctl(["tick", "--quiet"]).through(&proxy).spawn();
    wait_until("an attempt to connect", || proxy.connections() > 0);
    tick.signal(Signal::TERM);
    let tick = tick.wait().success().stderr("");
    assert!(tick.took < Duration::from_secs(2), "{tick}");
}

#[test]
fn a_tick_continues_after_its_stdout_and_stderr_are_closed() {
    let db = TestDb::new();
    let gate = Gate::new();
    let ids = [gate.enqueue(&db), db.enqueue(["shell", "--", "false"]), gate.enqueue(&db)];
    let (stdout_reader, stdout) = pipe().unwrap();
    let (stderr_reader, stderr) = pipe().unwrap();
    let tick =
        db.jobctl(["tick"]).stdout_to(Stdio::from(stdout)).stderr_to(Stdio::from(stderr)).spawn();
    gate.wait_for_starts(2);
    drop((stdout_reader, stderr_reader));
    gate.open();
    tick.wait().success();
    let statuses = ids.map(|id| db.status(id));
    assert_eq!(statuses, ["succeeded", "failed", "succeeded"]);
}

#[test]
fn a_tick_continues_if_its_log_cannot_be_written() {
    let db = TestDb::new();
    let folder = temp_dir();
    let log = folder.path().join("log");
    let id = db.enqueue(["shell", "--", "true"]);
    // No file may grow.
    db.script(&format!("ulimit -f 0; exec \"$jobctl\" tick 2>>{}", log.display())).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_release_does_not_undo_the_claim_of_another_worker() {
    // What may have become of a run between its claim and its release.
    let changes = [
        "locked_by = 'other'",
        "attempts = 2",
        "status = 'failed', locked_by = NULL, locked_until = NULL",
        "status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = now()",
    ];
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids: Vec<_> = changes.iter().map(|_| db.enqueue(["shell", "--", "true"])).collect();
    // The claim waits. Behind it, another session waits for a lock of the table. So that session
    // gets the lock after the claim and before the release.
    let blocker = db.block_claims();
    let tick = db.jobctl(["tick", "--worker", "w"]).spawn();
    wait_until("the claim to be blocked", || db.sessions_waiting_for_locks() == 1);
    let mut other = db.client();
    let locking = std::thread::spawn(move || {
        other.batch_execute("BEGIN; LOCK TABLE jobctl.job_runs IN EXCLUSIVE MODE").unwrap();
        other
    });
    wait_until("the lock of the table to be next", || db.sessions_waiting_for_locks() == 2);
    // The signal stops the tick before it starts a run.
    tick.signal(Signal::TERM);
    drop(blocker);
    let mut other = locking.join().unwrap();
    wait_until("the release to wait for the lock", || db.sessions_waiting_for_locks() == 1);
    for (change, id) in changes.iter().zip(&ids) {
        other
            .batch_execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = {id}"))
            .unwrap();
    }
    // The release changes none of these rows any more.
    let runs = "SELECT string_agg(run::text, ' ' ORDER BY id) FROM jobctl.job_runs AS run";
    let before: String = other.query_one(runs, &[]).unwrap().get(0);
    other.batch_execute("COMMIT").unwrap();
    tick.wait().success();
    assert_eq!(db.query(runs), before);
}
