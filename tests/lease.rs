//! A lease lasts as long as its holder renews it, and no longer.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Gate, Proxy, TestDb, wait_until};

/// Returns the end of a run's lease.
fn lease(db: &TestDb, id: i64) -> String {
    db.of_run(id, "locked_until")
}

#[test]
fn a_job_longer_than_its_lease_is_attempted_once() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "2s"]).spawn();
    gate.wait_for_starts(1);
    let first = lease(&db, id);
    wait_until("the first lease to be over", || {
        db.query(&format!("SELECT now() > '{first}'")) == "t"
    });
    // Another worker finds no lost run, because the lease was renewed.
    db.jobctl(["tick", "--worker", "other"]).run().success().stderr("");
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    assert_eq!(gate.count("start"), 1);
}

#[test]
fn a_locked_row_does_not_delay_the_renewal_of_other_leases() {
    let db = TestDb::new();
    let gate = Gate::new();
    let (locked, unlocked) = (gate.enqueue(&db), gate.enqueue(&db));
    let tick = db.jobctl(["tick", "--lease", "4s"]).spawn();
    gate.wait_for_starts(2);
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    transaction
        .batch_execute(&format!("SELECT FROM jobctl.job_runs WHERE id = {locked} FOR UPDATE"))
        .unwrap();
    let before = lease(&db, locked);
    db.wait_for_renewals(unlocked, 1);
    assert_eq!(lease(&db, locked), before);
    // After the end of that transaction, the row gets its renewal.
    transaction.rollback().unwrap();
    drop(client);
    wait_until("the lease of the locked run to be renewed", || lease(&db, locked) != before);
    gate.open();
    tick.wait().success();
    assert_eq!(db.query("SELECT DISTINCT status, attempts FROM jobctl.job_runs"), "succeeded|1");
}

#[test]
fn the_run_of_a_killed_tick_is_retried_after_its_lease_ends() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "dead"]).spawn();
    gate.wait_for_starts(1);
    tick.signal(Signal::KILL);
    tick.wait();
    gate.open();
    wait_until("the orphan to end", || !gate.has_processes());
    // The lease has not ended yet, so the next tick leaves the run alone.
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.status(id), "running");
    db.expire_leases();
    let tick = db.jobctl(["tick"]).run().success();
    let tick = tick.stderr_has(&format!(
        "run {id} shell attempt 1/10: lease of worker dead expired, next attempt in "
    ));
    assert_eq!(tick.stderr.lines().count(), 1, "{tick}");
    // The default backoff after the first attempt is a minute, longer or shorter by up to a fifth.
    let waits = "status, attempts, error_type, finished_at IS NULL, locked_by IS NULL,
        run_at - now() BETWEEN interval '45 seconds' AND interval '75 seconds'";
    assert_eq!(db.of_run(id, waits), "failed|1|lease_expired|t|t|t");
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--worker", "alive"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
    let history =
        "SELECT attempt, worker, outcome, error_type FROM jobctl.job_attempts ORDER BY attempt";
    assert_eq!(db.query(history), "1|dead|lease_expired|lease_expired\n2|alive|succeeded|");
}

#[test]
fn jobs_survive_a_short_silence_of_the_database() {
    // The proxy cuts all connections, or keeps them and lets no byte pass.
    for cut in [false, true] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let gate = Gate::new();
        let id = gate.enqueue(&db);
        let tick = db.jobctl(["tick", "--lease", "12s"]).through(&proxy).spawn();
        gate.wait_for_starts(1);
        let before = lease(&db, id);
        if cut {
            proxy.cut()
        } else {
            proxy.freeze()
        }
        let connections = proxy.connections();
        if cut {
            wait_until("attempts to reconnect", || proxy.connections() > connections + 2);
        } else {
            // A heartbeat is due after a third of the lease of 12 s, so 8 s before its end.
            let late = format!("SELECT now() > timestamptz '{before}' - interval '7.5 seconds'");
            wait_until("a heartbeat to be half a second late", || db.query(&late) == "t");
        }
        assert_eq!(lease(&db, id), before);
        proxy.restore();
        wait_until("the lease to be renewed", || lease(&db, id) != before);
        gate.open();
        let tick = tick.wait().success().stderr_has("succeeded after");
        assert_eq!(tick.stderr.matches("reconnecting").count(), usize::from(cut), "{tick}");
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
        // The job has started and ended, and only once.
        assert_eq!([gate.count("start"), gate.count("end"), gate.lines().len()], [1, 1, 2]);
    }
}

#[test]
fn a_job_whose_lease_cannot_be_renewed_is_killed_before_the_lease_ends() {
    // Whether connections are cut or silent, and whether the job has a child.
    for (cut, has_child) in [(false, false), (true, false), (false, true)] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let gate = Gate::new();
        // The job writes a sign of life and ignores SIGTERM; or its child does.
        let (begin, end) = if has_child { ("(", ") & wait") } else { ("", "") };
        let script = format!(
            "echo start $JOBCTL_RUN_ID $JOBCTL_ATTEMPT $$ >>{0}; {begin} trap '' TERM; \
             while [ -e {0} ]; do echo alive $(date +%s.%N) >>{0}; sleep 0.05; done {end}",
            gate.log().display()
        );
        let id = db.enqueue_script(&script);
        let flags = ["--lease", "4s", "--worker", "lonely"];
        let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
        gate.wait_for_starts(1);
        if cut {
            proxy.cut()
        } else {
            proxy.freeze()
        }
        wait_until("the tick to kill the job", || !gate.has_processes());
        // The last sign of life is from before the end of the lease.
        let lines = gate.lines();
        let last = lines.last().and_then(|line| line.strip_prefix("alive ")).unwrap();
        let ended = format!("to_timestamp({last}) < locked_until - interval '0.2 seconds'");
        assert_eq!(db.of_run(id, &ended), "t", "last alive at {last}");
        assert_eq!(db.of_run(id, "status, locked_by"), "running|lonely");
        wait_until("the lease to be over", || db.of_run(id, "locked_until < now()") == "t");
        // Another host recovers the run, and its second attempt succeeds. The tick without a
        // database must not change that.
        db.execute("UPDATE jobctl.job_runs SET payload = '{\"command\": \"true\"}'");
        db.jobctl(["tick", "--worker", "other"]).run().success();
        db.make_waiting_runs_due();
        db.jobctl(["tick", "--worker", "other"]).run().success();
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
        let what = "lease expired: its worker could not renew it and ended the job after ";
        tick.wait()
            .exits(5)
            .stderr_has(&format!("run {id} shell attempt 1/10: {what}"))
            .stderr_has("; result not recorded, so the run will start again");
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
    }
}

#[test]
fn a_job_that_its_tick_killed_for_lack_of_a_lease_is_logged_and_recorded_as_lease_expired() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "4s"]).through(&proxy).spawn();
    gate.wait_for_starts(1);
    proxy.cut();
    wait_until("the tick to kill the job", || !gate.has_processes());
    // No other tick has recovered the run.
    proxy.restore();
    let what = "lease expired: its worker could not renew it and ended the job";
    tick.wait().success().stderr_has(&format!("run {id} shell attempt 1/10: {what} after "));
    let backs_off = "run_at > now() + interval '40 seconds'";
    assert_eq!(
        db.of_run(id, &format!("status, attempts, error_type, {backs_off}")),
        "failed|1|lease_expired|t"
    );
    assert_eq!(db.of_attempt(id, 1, "outcome, error"), format!("lease_expired|{what}"));
}

#[test]
fn a_result_is_recorded_after_an_outage_that_outlasted_the_lease() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "6s"]).through(&proxy).spawn();
    gate.wait_for_starts(1);
    proxy.cut();
    gate.open();
    wait_until("the job to end", || gate.count("end") == 1);
    wait_until("the lease to be over", || db.of_run(id, "locked_until < now()") == "t");
    // No other tick has recovered the run, so its result still counts.
    proxy.restore();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn all_leases_are_renewed_in_one_statement_over_a_slow_connection() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    // Three runs, and nine copies of each: 30 runs.
    let ids: Vec<_> = (0..3).map(|_| gate.enqueue(&db)).collect();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT job_type, payload FROM jobctl.job_runs CROSS JOIN generate_series(1, 9)",
    );
    proxy.delay(Duration::from_millis(75));
    let flags = ["--lease", "4s", "--concurrency", "30"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(30);
    db.wait_for_renewals(ids[0], 2);
    // One statement sets all leases to the same time.
    let leases = "SELECT count(*), count(DISTINCT locked_until), min(locked_until) > now() FROM \
        jobctl.job_runs";
    assert_eq!(db.query(leases), "30|1|t");
    gate.open();
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|30"
    );
}

#[test]
fn a_locked_run_delays_neither_other_results_nor_claims() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--concurrency", "2", "--max-time", "1h"]).spawn();
    gate.wait_for_starts(1);
    let mut locker = db.client();
    locker
        .batch_execute(&format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {id} FOR UPDATE"))
        .unwrap();
    gate.open();
    wait_until("the job to end", || gate.count("end") == 1);
    // More runs than threads, so they start one after the other.
    let others: Vec<_> = (0..5).map(|_| db.enqueue(["shell", "--", "true"])).collect();
    others.iter().for_each(|other| db.wait_for_status(*other, "succeeded"));
    // The result of the locked run is recorded when its row is unlocked.
    assert_eq!(db.of_run(id, "status, attempts"), "running|1");
    locker.batch_execute("COMMIT").unwrap();
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn leases_are_renewed_while_a_tick_isolates_thousands_of_rejected_runs() {
    let db = TestDb::new();
    let gate = Gate::new();
    let ids = [gate.enqueue(&db), gate.enqueue(&db)];
    let tick =
        db.jobctl(["tick", "--linger", "--lease", "6s", "--max-time", "1h", "--quiet"]).spawn();
    gate.wait_for_starts(2);
    // A trigger rejects the claims of 2,000 due runs. The tick must find each of them, to put them
    // off.
    db.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE \
            EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'running' AND NEW.queue = 'refused') EXECUTE FUNCTION \
             public.refuse();
         INSERT INTO jobctl.job_runs (job_type, payload, queue)
         SELECT 'shell', '{\"command\": \"true\"}', 'refused' FROM generate_series(1, 2000)",
    );
    let put_off =
        "SELECT count(*) > 0 FROM jobctl.job_runs WHERE queue = 'refused' AND run_at > now()";
    wait_until("the search for rejected runs to begin", || db.query(put_off) == "t");
    for id in ids {
        db.wait_for_renewals(id, 3);
    }
    // Results are recorded meanwhile, and a signal ends the search.
    gate.open();
    ids.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    tick.signal(Signal::TERM);
    tick.wait_within(Duration::from_secs(5)).success();
    assert_eq!(ids.map(|id| db.of_run(id, "attempts")), ["1", "1"]);
}

#[test]
fn leases_are_renewed_while_hundreds_of_runs_cannot_be_recovered() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick =
        db.jobctl(["tick", "--linger", "--lease", "3s", "--max-time", "1h", "--quiet"]).spawn();
    gate.wait_for_starts(1);
    // The leases of 500 other runs have ended. A trigger rejects their recovery, each after 10 ms.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, queue, status, attempts, locked_by, \
            locked_until, started_at)
         SELECT 'shell', '{\"command\": \"true\"}', 'refused', 'running', 1, 'dead', now() - \
         interval '1 second', now()
         FROM generate_series(1, 500);
         CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.01); RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (OLD.queue = 'refused') EXECUTE FUNCTION public.refuse()",
    );
    db.wait_for_renewals(id, 3);
    gate.open();
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.of_run(id, "attempts"), "1");
}

#[test]
fn leases_are_renewed_while_hundreds_of_schedules_cannot_be_fired() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick =
        db.jobctl(["tick", "--linger", "--lease", "3s", "--max-time", "1h", "--quiet"]).spawn();
    gate.wait_for_starts(1);
    // 100 schedules are due. A trigger rejects their runs, each after 40 ms.
    db.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.04); RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.queue = 'refused') EXECUTE FUNCTION public.refuse();
         INSERT INTO jobctl.job_definitions (name, kind, action, schedule, next_run_at, queue)
         SELECT 'job_' || n, 'shell', '{\"command\": \"true\"}', '@yearly', date_trunc('year', \
         now()), 'refused'
         FROM generate_series(1, 100) AS n",
    );
    db.wait_for_renewals(id, 3);
    gate.open();
    db.wait_for_status(id, "succeeded");
    // One wake-up has no time for all schedules, and the next ones continue.
    let not_put_off = "SELECT count(*) FROM jobctl.job_definitions WHERE put_off_until IS NULL";
    wait_until("all schedules to be put off", || db.query(not_put_off) == "0");
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.of_run(id, "attempts"), "1");
}

#[test]
fn the_server_releases_the_locks_of_a_host_that_became_unreachable() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    let id = db.enqueue(["shell", "--", "true"]);
    // The server gets the claim, which begins with this comment, but no answer passes the proxy.
    proxy.freeze_after("Claims due runs");
    let tick = db.jobctl(["tick", "--worker", "lost", "--lease", "3s"]).through(&proxy).spawn();
    wait_until("the claim to be cut off", || proxy.is_frozen());
    tick.signal(Signal::KILL);
    // No packet of the client arrives any more, so the server must notice that and end the session.
    wait_until("another worker to execute the run", || {
        db.jobctl(["tick", "--worker", "other", "--quiet"]).run().success();
        db.status(id) == "succeeded"
    });
    drop(tick);
}
