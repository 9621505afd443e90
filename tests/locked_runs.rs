//! Another session keeps the row of a running run locked, as an application does that replaces the
//! run and does not commit. Ticks do not wait for the row. They store renewed leases and results in
//! the table `job_locked_runs`, beside the row, until the row is unlocked.

use postgres::Client;
use rustix::process::Signal;

use crate::support::{Gate, Role, Running, TestDb, json_string, wait_until};

/// A tick of the worker that holds the runs. Its short lease ends within a test.
const TICK_OF_HOLDER: [&str; 5] = ["tick", "--lease", "3s", "--worker", "w"];
/// Locks the rows of all runs.
const LOCK_ALL: &str = "SELECT FROM jobctl.job_runs FOR UPDATE";
/// The run of a `Shop`: the first one of its database.
const RUN: i64 = 1;
/// How many running runs have an expired lease in their own row.
const EXPIRED_IN_ROW: &str = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'running' AND \
    locked_until < now()";
/// How many valid leases are kept beside the locked rows.
const VALID_BESIDE_ROW: &str =
    "SELECT count(*) FROM jobctl.job_locked_runs WHERE locked_until > now()";
/// How many results are stored beside the locked rows.
const STORED_RESULTS: &str = "SELECT count(*) FROM jobctl.job_locked_runs WHERE result IS NOT NULL";
/// How many leases and results are kept beside rows at all.
const KEPT_BESIDE_ROW: &str = "SELECT count(*) FROM jobctl.job_locked_runs";
/// How many runs and attempts the figures have counted by their ends.
const FIGURES: &str = "SELECT sum(succeeded), sum(failed_attempts), sum(retried_attempts), \
    sum(dead) FROM jobctl.job_figures";

/// A job whose key is live, its worker and its enqueuer.
struct Shop<'db> {
    db: &'db TestDb,
    gate: Gate,
    worker: Role<'db>,
    enqueuer: Role<'db>,
}

impl<'db> Shop<'db> {
    /// Enqueues `RUN`. Its script waits at the gate, and then ends with the command `end`.
    fn new(db: &'db TestDb, end: &str) -> Self {
        let (gate, worker) = (Gate::new(), Role::granted(db, "worker"));
        let enqueuer = Role::granted(db, "enqueuer");
        let script = json_string(&format!("{}\n{end}", gate.script()));
        db.apply(&format!(
            "[jobs.a]\nshell = {script}\nbackoff = 'fixed:1m'\nenqueuers = ['{}']\n",
            enqueuer.name()
        ));
        let shop = Self { db, gate, worker, enqueuer };
        shop.enqueuer.client().batch_execute(&enqueue_statement("")).unwrap();
        shop
    }

    /// Starts a tick, waits for the start of its job, and executes `lock` in a transaction that
    /// stays open. So the row of the run is locked until the returned client ends the transaction.
    fn start_and_lock_row(&self, lock: &str) -> (Running<'db>, Client) {
        let tick = self.worker.jobctl(TICK_OF_HOLDER).spawn();
        self.gate.wait_for_starts(1);
        // The enqueuer replaces the run. All other statements are those of the owner.
        let is_replacement = lock.contains("enqueue");
        let mut locker = if is_replacement { self.enqueuer.client() } else { self.db.client() };
        locker.batch_execute(&format!("BEGIN; {lock}")).unwrap();
        (tick, locker)
    }

    /// Lets another worker look for lost leases and stored results, without starting runs. Returns
    /// its log.
    fn recover_by_other_worker(&self) -> String {
        let other = self.worker.jobctl(["tick", "--worker", "other", "--queue", "none"]);
        other.run().success().stderr
    }

    /// Lets another worker tick, which may also start runs. Returns its log.
    fn tick_of_other_worker(&self) -> String {
        self.worker.jobctl(["tick", "--worker", "other"]).run().success().stderr
    }
}

/// Returns a statement that enqueues a run of `a` with the key `k`.
fn enqueue_statement(more: &str) -> String {
    format!("SELECT jobctl.enqueue('a', '[1]', key => 'k', key_scope => 'live'{more})")
}

/// Returns a statement that replaces the run with the key `k`.
fn replace_statement() -> String {
    enqueue_statement(", on_conflict => 'replace'")
}

/// Returns statements of applications that lock the row of the run, each in another way.
fn statements_that_lock_the_run() -> [String; 3] {
    [replace_statement(), LOCK_ALL.to_owned(), "UPDATE jobctl.job_runs SET priority = 0".to_owned()]
}

#[test]
fn a_job_goes_on_while_its_row_is_locked_for_longer_than_its_lease() {
    for lock in statements_that_lock_the_run() {
        let db = TestDb::new();
        let shop = Shop::new(&db, "");
        let (tick, mut locker) = shop.start_and_lock_row(&lock);
        wait_until("the lease in the row to expire", || db.query(EXPIRED_IN_ROW) == "1");
        // The lease beside the row is renewed three times. No other worker recovers the run.
        let lease_beside_row = || db.query("SELECT locked_until FROM jobctl.job_locked_runs");
        for _ in 0..3 {
            let before = lease_beside_row();
            assert_eq!(shop.recover_by_other_worker(), "");
            assert_eq!(db.query(VALID_BESIDE_ROW), "1", "{lock}");
            wait_until("the lease to be renewed", || lease_beside_row() != before);
        }
        locker.batch_execute("COMMIT").unwrap();
        assert_eq!(shop.recover_by_other_worker(), "");
        // The row is unlocked, so the next heartbeat renews the lease in the row.
        wait_until("the row to be renewed", || db.query(EXPIRED_IN_ROW) == "0");
        assert!(shop.gate.has_processes());
        shop.gate.open();
        tick.wait().success().stderr_has("run 1 a attempt 1/10: succeeded after");
        assert_eq!(db.of_run(RUN, "status, attempts"), "succeeded|1");
        let attempts = format!("SELECT attempt FROM jobctl.job_attempts WHERE run_id = {RUN}");
        assert_eq!(db.query(&attempts), "1");
        // The next tick deletes the lease beside the row, which is no longer needed.
        shop.tick_of_other_worker();
        assert_eq!(db.query(KEPT_BESIDE_ROW), "0");
    }
}

#[test]
fn a_cancel_request_reaches_a_run_whose_row_is_locked() {
    let db = TestDb::new();
    let shop = Shop::new(&db, "");
    let tick = shop.worker.jobctl(TICK_OF_HOLDER).spawn();
    shop.gate.wait_for_starts(1);
    // The tick is frozen until the row is locked, so it can't see the request before.
    tick.signal(Signal::STOP);
    db.jobctl(["cancel", &RUN.to_string()]).run().success();
    let mut locker = db.client();
    locker.batch_execute(&format!("BEGIN; {LOCK_ALL}")).unwrap();
    tick.signal(Signal::CONT);
    tick.wait().success().stderr_has("run 1 a attempt 1/10: cancelled after");
    locker.batch_execute("COMMIT").unwrap();
    shop.tick_of_other_worker();
    assert_eq!(db.of_run(RUN, "status, attempts"), "cancelled|1");
}

#[test]
fn the_result_of_a_locked_run_is_recorded_once_its_row_is_free() {
    let select = LOCK_ALL.to_owned();
    let (commit, rollback) = ("COMMIT", "ROLLBACK");
    let (succeeds, fails) = ("echo 7€", "echo 7€; exit 1");
    // The statement that locks the row, the end of its transaction, and the end of the script. Then
    // the expected columns and figures. The columns are: status, attempts, error type, whether the
    // run waits for a retry, and the status and attempts of run 2. Run 2 exists only if its
    // enqueue, which replaces the run, commits.
    let cases = [
        (replace_statement(), rollback, succeeds, "succeeded|1||||", "1|0|0|0"),
        (replace_statement(), commit, succeeds, "succeeded|1|||succeeded|1", "2|0|0|0"),
        (select.clone(), rollback, succeeds, "succeeded|1||||", "1|0|0|0"),
        (replace_statement(), rollback, fails, "failed|1|exit_code|t||", "0|1|1|0"),
        (select, commit, fails, "failed|1|exit_code|t||", "0|1|1|0"),
        // The newer run fails, too.
        (replace_statement(), commit, fails, "cancelled|1|exit_code|f|failed|1", "0|2|1|0"),
    ];
    for (lock, end, script, expected, figures) in cases {
        let db = TestDb::new();
        let shop = Shop::new(&db, script);
        let (tick, mut locker) = shop.start_and_lock_row(&lock);
        shop.gate.open();
        tick.wait().success().stderr_has("run 1 a attempt 1/10: ");
        assert_eq!(db.query(STORED_RESULTS), "1", "{lock}");
        // No other worker recovers the run, and no command says that its lease has expired.
        wait_until("the lease in the row to expire", || db.query(EXPIRED_IN_ROW) == "1");
        assert_eq!(shop.recover_by_other_worker(), "");
        db.jobctl(["show", &RUN.to_string()])
            .run()
            .success()
            .stdout_has("its job has ended")
            .prints_nowhere("expired");
        let report = db.jobctl(["report"]).run().success();
        report.prints_nowhere("lease expired").prints_nowhere("with an expired lease");
        db.jobctl(["check", "--max-lag", "0s"]).run().prints_nowhere("expired lease");
        assert_eq!(db.of_run(RUN, "status, attempts"), "running|1");
        locker.batch_execute(end).unwrap();
        // Pretend that the result was stored 30 seconds ago. The end of the attempt and the backoff
        // count from then.
        db.execute(
            "UPDATE jobctl.job_locked_runs SET written_at = written_at - interval '30 seconds'",
        );
        let log = shop.tick_of_other_worker();
        assert!(log.contains("run 1 attempt 1: stored result of worker w recorded, "), "{log}");
        assert_eq!(db.query(KEPT_BESIDE_ROW), "0");
        // The backoff of a minute began 30 seconds ago.
        let newer = "(SELECT status FROM jobctl.job_runs WHERE id = 2),
            (SELECT attempts FROM jobctl.job_runs WHERE id = 2)";
        let waits = "CASE WHEN error_type IS NOT NULL THEN
            run_at - updated_at BETWEEN interval '15 seconds' AND interval '45 seconds' END";
        let columns = format!("status, attempts, error_type, {waits}, {newer}");
        assert_eq!(db.of_run(RUN, &columns), expected, "{lock} {end} {script}");
        let ended = "worker, output, started_at < finished_at,
            finished_at BETWEEN now() - interval '1 minute' AND now() - interval '30 seconds'";
        assert_eq!(db.of_attempt(RUN, 1, ended), "w|7€\n|t|t");
        let attempts = format!("SELECT count(*) FROM jobctl.job_attempts WHERE run_id = {RUN}");
        assert_eq!(db.query(&attempts), "1");
        assert_eq!(db.query(FIGURES), figures, "{lock} {end} {script}");
        // A further tick records nothing again.
        assert_eq!(shop.tick_of_other_worker(), "");
        assert_eq!(db.query(FIGURES), figures, "{lock} {end} {script}");
    }
}

#[test]
fn a_tick_that_is_stopped_stores_the_interruption_of_a_locked_run() {
    let db = TestDb::new();
    let shop = Shop::new(&db, "");
    let (tick, mut locker) = shop.start_and_lock_row(LOCK_ALL);
    // The second signal skips the grace time of the jobs.
    tick.signal(Signal::TERM);
    tick.signal(Signal::TERM);
    tick.wait().success().stderr_has("run 1 a attempt 1/10: interrupted after");
    assert_eq!(db.of_run(RUN, "status, attempts"), "running|1");
    locker.batch_execute("ROLLBACK").unwrap();
    let other = ["tick", "--worker", "other", "--queue", "none", "--log-format", "json"];
    let log = shop.worker.jobctl(other).run().success();
    log.stderr_has("recorded, queued")
        .stderr_has(r#","run":1,"attempt":1,"worker":"w","status":"queued"}"#);
    assert_eq!(db.of_run(RUN, "status, attempts, run_at <= now()"), "queued|1|t");
    assert_eq!(db.of_attempt(RUN, 1, "outcome"), "interrupted");
}

#[test]
fn a_stored_result_that_ends_its_run_dead_is_a_warning() {
    let db = TestDb::new();
    // Exit status 65 is permanent: the run is dead at once.
    let shop = Shop::new(&db, "exit 65");
    let (tick, mut locker) = shop.start_and_lock_row(LOCK_ALL);
    shop.gate.open();
    tick.wait().success();
    locker.batch_execute("COMMIT").unwrap();
    // A quiet tick logs only warnings and errors.
    let other = shop.worker.jobctl(["tick", "--worker", "other", "--quiet"]).run().success();
    other.stderr_has("run 1 attempt 1: stored result of worker w recorded, dead");
}

#[test]
fn a_tick_and_show_name_a_locked_definition_as_the_reason_why_its_runs_wait() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 3\n");
    let id = db.enqueue(["limited"]);
    let mut locker = db.client();
    // A claim counts the running runs of a limited job under the lock of its definition.
    locker.batch_execute("BEGIN; SELECT FROM jobctl.job_definitions FOR UPDATE").unwrap();
    for flags in [["--max-time", "20s"].as_slice(), &["--linger", "--max-time", "4s"]] {
        let tick = db.jobctl(["tick", "--quiet"]).args(flags.iter().copied()).run().success();
        let line = "runs of limited do not start: another session has locked its definition";
        assert_eq!(tick.stderr.matches(line).count(), 1, "{tick}");
    }
    let why_locked = "another transaction has locked the definition of its job (server process )";
    assert!(why_waiting(&db, id).contains(why_locked), "{}", why_waiting(&db, id));
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    let check = db.jobctl(["check"]).run().exits(1);
    check.stdout_has("overdue").stdout_has(&format!("`jobctl show {id}` says why"));
    locker.batch_execute("ROLLBACK").unwrap();
    db.jobctl(["tick"]).run().success().prints_nowhere("locked");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_stored_result_of_a_run_that_was_changed_otherwise_changes_nothing() {
    let lost = "status = 'failed', locked_by = NULL, locked_until = NULL, run_at = now() + \
        interval '1 hour'";
    // What the session that has locked the row changes, and the outcome of the first attempt in the
    // history.
    let changes = [
        // A recovery.
        (format!("UPDATE jobctl.job_runs SET {lost}"), "lease_expired"),
        // A recovery, and a later attempt that was recovered, too.
        (format!("UPDATE jobctl.job_runs SET {lost}, attempts = 2"), "lease_expired"),
        // A claim by another worker.
        (
            "UPDATE jobctl.job_runs SET attempts = 2, locked_by = 'x', started_at = now(),
                locked_until = now() + interval '1 hour'"
                .to_owned(),
            "lease_expired",
        ),
        // Another claim with the same number of the attempt.
        ("UPDATE jobctl.job_runs SET started_at = now()".to_owned(), ""),
        // A deletion.
        ("DELETE FROM jobctl.job_runs".to_owned(), ""),
    ];
    for (change, history) in changes {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        let shop = Shop::new(&db, "");
        let (tick, mut locker) = shop.start_and_lock_row(&change);
        shop.gate.open();
        tick.wait().success();
        assert_eq!(db.query(STORED_RESULTS), "1", "{change}");
        locker.batch_execute("COMMIT").unwrap();
        // No lease ends during the test, so the next tick recovers no run.
        db.execute("UPDATE jobctl.job_runs SET locked_until = 'tomorrow' WHERE status = 'running'");
        let rows = || db.query("SELECT run::text FROM jobctl.job_runs AS run");
        let before = rows();
        let log = shop.tick_of_other_worker();
        let line = "run 1 attempt 1: lease lost, stored result of worker w not recorded";
        assert!(log.contains(line), "{change}: {log}");
        assert_eq!(rows(), before, "{change}");
        assert_eq!(db.query(KEPT_BESIDE_ROW), "0", "{change}");
        assert_eq!(db.of_attempt(RUN, 1, "outcome"), history, "{change}");
        // The figures have no row, so the sums are null.
        assert_eq!(db.query(FIGURES), "|||", "{change}");
    }
}

#[test]
fn a_lease_that_has_expired_is_not_kept_beside_a_locked_row() {
    let db = TestDb::new();
    let shop = Shop::new(&db, "");
    let tick = shop.worker.jobctl(TICK_OF_HOLDER).spawn();
    shop.gate.wait_for_starts(1);
    // While the tick is stopped, its lease ends. A recovery then locks the row as this session
    // does.
    tick.signal(Signal::STOP);
    db.expire_leases();
    let mut locker = db.client();
    locker.batch_execute(&format!("BEGIN; {LOCK_ALL}")).unwrap();
    tick.signal(Signal::CONT);
    wait_until("the tick to kill the job", || !shop.gate.has_processes());
    // Another tick can't recover the run, because its row is locked.
    let other = shop.worker.jobctl(["tick", "--worker", "other"]).run().success();
    other.prints_nowhere("run 1 ");
    assert_eq!(db.query(KEPT_BESIDE_ROW), "0");
    locker.batch_execute("COMMIT").unwrap();
    tick.wait().success();
    assert_eq!(db.of_run(RUN, "status, attempts, error_type"), "failed|1|lease_expired");
}

#[test]
fn a_stored_result_that_a_trigger_rejects_does_not_delay_the_result_of_another_run() {
    let db = TestDb::new();
    let (gate, worker) = (Gate::new(), Role::granted(&db, "worker"));
    let [rejected, recorded] = [gate.enqueue(&db), gate.enqueue(&db)];
    let flags = ["--concurrency", "2", "--limit", "2"];
    let tick = worker.jobctl(TICK_OF_HOLDER).args(flags).spawn();
    gate.wait_for_starts(2);
    // Both rows are locked when their jobs end, so the tick stores both results beside the rows.
    let mut locker = db.client();
    locker.batch_execute(&format!("BEGIN; {LOCK_ALL}")).unwrap();
    gate.open();
    tick.wait().success();
    assert_eq!(db.query(STORED_RESULTS), "2");
    locker.batch_execute("COMMIT").unwrap();
    // The next tick records one result. A trigger rejects the other one, with the error `is kept`.
    crate::bulk::reject_changes_of(&db, &format!("OLD.id = {rejected}"));
    let other = worker.jobctl(["tick", "--worker", "other"]).run().success();
    other
        .stderr_has(&format!("run {rejected}: cannot record stored results: "))
        .stderr_has(&format!("run {rejected} is kept"));
    assert_eq!([rejected, recorded].map(|id| db.status(id)), ["running", "succeeded"]);
    // The rejected result stays stored after the end of the lease. Without the trigger, the next
    // tick records it.
    db.execute("DROP TRIGGER reject ON jobctl.job_runs");
    db.expire_leases();
    worker.jobctl(["tick", "--worker", "other"]).run().success();
    let ends = [rejected, recorded].map(|id| db.of_run(id, "status, attempts"));
    assert_eq!(ends, ["succeeded|1", "succeeded|1"]);
    assert_eq!(db.query(KEPT_BESIDE_ROW), "0");
}

#[test]
fn claims_and_commands_treat_a_lease_beside_a_locked_row_as_a_lease() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let waiting = db.enqueue(["shell", "--", "true"]);
    let running = db.query(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         VALUES ('shell', 'running', 1, 'w', now() - interval '2 hours', now())
         RETURNING id",
    );
    db.execute(
        "INSERT INTO jobctl.job_locked_runs (run_id, attempt, worker, started_at, locked_until)
         SELECT id, attempts, 'w', started_at, now() + interval '1 hour'
         FROM jobctl.job_runs WHERE status = 'running'",
    );
    // The lease in the row ended two hours ago, and the lease beside it lasts for an hour. So the
    // only slot of this worker is taken, and no command says that the lease has expired.
    db.jobctl(["tick", "--worker", "w", "--concurrency", "1"]).run().success();
    assert_eq!(db.status(waiting), "queued");
    let show = || db.jobctl(["show", &running]).run().success();
    show().stdout_has("locked_until").prints_nowhere("expired");
    db.jobctl(["check", "--max-lag", "1s", "--max-tick-age", "1d"]).run().prints_nowhere("lease");
    let report = || db.jobctl(["report"]).run().success();
    report().prints_nowhere("lease expired").prints_nowhere("with an expired lease");
    // Without a claim right, only the lease makes `forget` refuse the worker.
    db.execute("UPDATE jobctl.job_workers SET claiming_tick = NULL, claiming_until = NULL");
    db.jobctl(["forget", "w"]).run().exits(4).stderr_has("holds runs");

    // Now the lease beside the row has expired, too, and all commands say so. The next tick
    // recovers the run.
    db.execute("UPDATE jobctl.job_locked_runs SET locked_until = now() - interval '1 hour'");
    show().stdout_has("its lease expired 1h ago");
    report().stdout_has("lease expired").stdout_has("with an expired lease");
    db.jobctl(["check", "--max-lag", "1s", "--max-tick-age", "1d"]).run().stdout_has("lease");
    db.jobctl(["forget", "w"]).run().success();
    db.jobctl(["tick", "--worker", "w", "--concurrency", "1"])
        .run()
        .success()
        .stderr_has("lease of worker w expired");
    assert_eq!(db.status(waiting), "succeeded");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query(KEPT_BESIDE_ROW), "0");
}

#[test]
fn a_run_whose_stored_result_is_unreadable_is_recovered_after_its_lease() {
    let db = TestDb::new();
    let shop = Shop::new(&db, "");
    let (tick, mut locker) = shop.start_and_lock_row(LOCK_ALL);
    shop.gate.open();
    tick.wait().success();
    locker.batch_execute("COMMIT").unwrap();
    // An empty object is not a result.
    db.execute("UPDATE jobctl.job_locked_runs SET result = '{}'");
    db.expire_leases();
    let log = shop.tick_of_other_worker();
    assert!(log.contains("lease lost, stored result of worker w not recorded"), "{log}");
    assert_eq!(db.of_run(RUN, "status, attempts, error_type"), "failed|1|lease_expired");
}

/// Returns the reason that `show` names for a run that does not run. Digits are left out, because
/// process ids and ages change.
fn why_waiting(db: &TestDb, id: i64) -> String {
    let shown = db.jobctl(["show", "--json", &id.to_string()]).run().success().stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown["why_not_running"].as_str().unwrap_or_default().replace(|c: char| c.is_ascii_digit(), "")
}

#[test]
fn show_says_that_a_transaction_keeps_a_run_from_starting() {
    const LOCKED: &str =
        "another transaction has locked it (server process ); ticks skip it until that ends";
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.bad]\nshell = 'exit 1'\nmax_attempts = 1\n");
    let tick = || db.jobctl(["tick"]).run().success();
    let predecessors = ["a", "bad"].map(|job| db.enqueue([job]).to_string()).join(",");
    // The predecessors of `blocked` end in the first tick, and `due` has been due for two hours. So
    // only the locks keep these two runs from starting.
    let blocked = db.enqueue(["a", "--after", &predecessors, "--after-any-end"]);
    let due = db.enqueue(["a"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '2h' WHERE id = {due}"
    ));
    // A row is locked by a SELECT, or has a new version that is not committed.
    for lock in [
        "SELECT FROM jobctl.job_runs WHERE id IN ({ids}) FOR UPDATE",
        "UPDATE jobctl.job_runs SET priority = 1 WHERE id IN ({ids})",
    ] {
        let lock = lock.replace("{ids}", &format!("{blocked}, {due}"));
        let mut locker = db.client();
        locker.batch_execute(&format!("BEGIN; {lock}")).unwrap();
        tick();
        assert_eq!([blocked, due].map(|id| db.status(id)), ["blocked", "queued"]);
        let due_why = why_waiting(&db, due);
        assert!(due_why.ends_with(&format!("ago: {LOCKED}")), "{due_why}");
        assert_eq!(
            why_waiting(&db, blocked),
            format!("each run that it waits for has ended; {LOCKED}")
        );
        locker.batch_execute("ROLLBACK").unwrap();
        let without_lock = "each run that it waits for has ended; the next tick starts it";
        assert_eq!(why_waiting(&db, blocked), without_lock);
        assert!(!why_waiting(&db, due).contains(LOCKED));
    }
    tick();
    assert_eq!([blocked, due].map(|id| db.status(id)), ["succeeded", "succeeded"]);
}
