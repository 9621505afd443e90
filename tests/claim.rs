//! Claims: no run twice, never more than the limit, and one tick of a worker at a time. Only the
//! tick that has the claim right of its worker may claim runs. The row in `job_workers` names this
//! tick in `claiming_tick`, and the end of its right in `claiming_until`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::http_server::HttpServer;
use crate::support::{
    Finished, Gate, Proxy, Running, TestDb, copy_jobctl, leave_out, temp_dir, wait_until,
};

/// Inserts this many due runs that execute a script.
fn insert_commands(db: &TestDb, runs: u32, script: &str) {
    let payload = serde_json::json!({ "command": script }).to_string().replace('\'', "''");
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{payload}' FROM \
            generate_series(1, {runs})"
    ));
}

/// Enqueues a run that keeps a thread busy until the gate opens, then many short runs, then another
/// run that keeps a second thread busy.
fn enqueue_for_two_threads(db: &TestDb, gate: &Gate) {
    gate.enqueue(db);
    insert_commands(db, 60, "true");
    gate.enqueue(db);
}

fn number_of_running_runs(db: &TestDb) -> usize {
    db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'").parse().unwrap()
}

#[test]
fn many_ticks_at_once_start_every_run_exactly_once() {
    let db = TestDb::new();
    let folder = temp_dir();
    let log = folder.path().join("log");
    insert_commands(&db, 400, &format!("echo $JOBCTL_RUN_ID $JOBCTL_ATTEMPT >>{}", log.display()));
    let start = |worker| db.jobctl(["tick", "--quiet"]).args(["--worker", worker]).spawn();
    // Two ticks per worker: one of them has the claim right, and the other one claims nothing.
    let ticks: Vec<Running> = ["a", "a", "b", "b", "c", "c", "d", "d"].map(start).into();
    for tick in ticks {
        tick.wait().success().stderr("");
    }
    let log = fs::read_to_string(log).unwrap();
    let distinct: BTreeSet<_> = log.lines().collect();
    assert_eq!(log.lines().count(), 400);
    assert_eq!(distinct.len(), 400);
    assert!(distinct.iter().all(|line| line.ends_with(" 1")));
    assert_eq!(
        db.query(
            "SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded' AND attempts = 1"
        ),
        "400"
    );
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'"),
        "400"
    );
}

#[test]
fn a_claim_never_exceeds_its_limit_with_any_plan_of_postgresql() {
    let plans = [
        "enable_hashjoin = off, enable_mergejoin = off, enable_material = off, enable_hashagg = \
            off, enable_sort = off",
        "enable_nestloop = off",
        "enable_nestloop = off, enable_hashjoin = off",
        "enable_indexscan = off, enable_bitmapscan = off, enable_indexonlyscan = off",
        "enable_seqscan = off, enable_sort = off",
    ];
    let db = TestDb::new();
    insert_commands(&db, 50, "true");
    // Each plan may claim one run, so the attempts count the plans so far.
    let before =
        format!("ALTER DATABASE {0} RESET ALL; ALTER DATABASE {0} SET jit = off", db.name());
    for (done, plan) in plans.iter().enumerate() {
        let set = |setting| format!("ALTER DATABASE {} SET {setting};", db.name());
        db.execute(&before);
        db.execute(&plan.split(", ").map(set).collect::<String>());
        db.jobctl(["tick", "--limit", "1"]).run().success();
        assert_eq!(
            db.query("SELECT sum(attempts) FROM jobctl.job_runs"),
            (done + 1).to_string(),
            "{plan}"
        );
    }
}

#[test]
fn a_tick_executes_the_run_of_a_slow_claim_instead_of_releasing_it() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    insert_commands(&db, 2, "true");
    // A trigger notes how long after its claim a run is released.
    db.execute(
        "CREATE TABLE releases (after interval);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN
                 INSERT INTO public.releases VALUES (clock_timestamp() - OLD.started_at);
                 RETURN NULL;
             END';
         CREATE TRIGGER note AFTER UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'queued') EXECUTE FUNCTION note()",
    );
    // Far longer than a claim may wait for a thread.
    proxy.delay(Duration::from_millis(150));
    for started in 1..=2 {
        db.jobctl(["tick", "--limit", "1", "--max-time", "20s"]).through(&proxy).run().success();
        assert_eq!(db.query("SELECT sum(attempts) FROM jobctl.job_runs"), started.to_string());
    }
    // Between a claim and its release, the network takes 10 times 150 ms. In that time, a claim may
    // wait up to 250 ms for a thread. So a release within 1.75 s of its claim comes too early.
    let early = "SELECT count(*) FROM releases WHERE after < interval '1.75 s'";
    assert_eq!(db.query(early), "0");
}

#[test]
fn a_tick_runs_all_due_runs_even_if_claims_are_slow() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    // Longer than a claim usually takes, so that the next claims continue after it.
    proxy.delay(Duration::from_millis(15));
    // 200 due runs in six lanes, which are the pairs of three queues and two priorities, and three
    // runs of a queue `early` that become due while the tick works.
    let early =
        "UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour' WHERE queue = 'early'";
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, queue, priority, run_at) \
         SELECT 'shell', '{\"command\": \"true\"}', 'q' || n % 3, n % 2, now() - \
         interval '1 minute' + interval '1 ms' * (n / 4) \
         FROM generate_series(1, 200) AS n; \
         INSERT INTO jobctl.job_runs (job_type, payload, queue, run_at) \
         SELECT 'shell', '{\"command\": \"true\"}', 'early', now() + interval '1 hour' FROM \
         generate_series(1, 3)",
    );
    let tick = db.jobctl(["tick", "--concurrency", "2"]).through(&proxy).spawn();
    wait_until("the first result", || {
        db.query("SELECT count(*) > 0 FROM jobctl.job_attempts") == "t"
    });
    // The tick has not seen the lane of these runs yet.
    db.execute(early);
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|203"
    );
}

#[test]
fn a_release_that_a_trigger_skips_is_named_and_delays_no_other() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let gate = Gate::new();
    enqueue_for_two_threads(&db, &gate);
    // The tick prefetches these runs for the two threads, and releases them when both stay busy.
    let late = [(); 5].map(|()| db.enqueue(["shell", "--", "true"]));
    db.skip_updates(&format!("NEW.id = {} AND NEW.status = 'queued'", late[0]));
    let tick = db.jobctl(["tick", "--concurrency", "2"]).spawn();
    gate.wait_for_starts(2);
    wait_until("the other runs to be released", || {
        let of_late = |id: &i64| db.of_run(*id, "status, attempts, started_at IS NOT NULL");
        late[1..].iter().all(|id| of_late(id) == "queued|0|t")
    });
    gate.open();
    let tick = tick.wait().exits(1);
    tick.stderr_has(&format!(
        "run {}: cannot release claims: a trigger of jobctl.job_runs skips the row",
        late[0]
    ));
    let statuses = late.map(|id| db.status(id));
    assert_eq!(statuses, ["running", "succeeded", "succeeded", "succeeded", "succeeded"]);
}

#[test]
fn an_unstarted_claim_is_released_even_if_its_row_was_locked() {
    let db = TestDb::new();
    let gate = Gate::new();
    enqueue_for_two_threads(&db, &gate);
    let late: Vec<_> = (0..5).map(|_| db.enqueue(["shell", "--", "true"])).collect();
    // Another session locks the first of them between its claim and its release: it queues for the
    // lock while the claim waits in a trigger.
    let holder = db.block_claims_of(&format!("NEW.id = {}", late[0]));
    let tick = db.jobctl(["tick", "--concurrency", "2"]).spawn();
    wait_until("the claim to wait", || db.sessions_waiting_for_locks() >= 1);
    let mut other = db.client();
    let lock = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {} FOR UPDATE", late[0]);
    let locking = std::thread::spawn(move || other.batch_execute(&lock).map(|()| other));
    wait_until("the other session to wait", || db.sessions_waiting_for_locks() >= 2);
    drop(holder);
    let mut other = locking.join().unwrap().unwrap();
    gate.wait_for_starts(2);
    let of_late = |id: &i64| db.of_run(*id, "status, attempts");
    wait_until("the other runs to be released", || {
        late[1..].iter().all(|id| of_late(id) == "queued|0")
    });
    assert_eq!(of_late(&late[0]), "running|1");
    other.batch_execute("COMMIT").unwrap();
    wait_until("the first run to be released", || of_late(&late[0]) == "queued|0");
    gate.open();
    tick.wait().success();
    assert!(late.iter().all(|id| of_late(id) == "succeeded|1"));
}

#[test]
fn a_last_attempt_is_not_claimed_before_it_can_start() {
    let db = TestDb::new();
    let gate = Gate::new();
    enqueue_for_two_threads(&db, &gate);
    // A trigger notes the order in which runs are claimed after the first 62, which keep the
    // threads busy.
    db.execute(
        "CREATE TABLE claimed (place serial, id bigint);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.claimed (id) VALUES (NEW.id); RETURN NULL; END';
         CREATE TRIGGER note AFTER UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'running' AND NEW.id > 62) EXECUTE FUNCTION note()",
    );
    // Runs 63 to 67 have ten attempts, 68 to 72 have only one, and 73 to 77 have ten.
    for attempts in [10, 1, 10] {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, max_attempts)
             SELECT 'shell', '{{\"command\": \"true\"}}', {attempts} FROM generate_series(1, 5)"
        ));
    }
    let tick = db.jobctl(["tick", "--concurrency", "2"]).spawn();
    gate.wait_for_starts(2);
    let claimed = || db.query("SELECT string_agg(DISTINCT id::text, ',') FROM claimed");
    wait_until("the runs before run 68 to be prefetched", || claimed() == "63,64,65,66,67");
    gate.open();
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|77"
    );
    // The runs with one attempt were claimed before those after them: no run overtakes a run that
    // waits for a thread.
    let in_order = "SELECT min(place) FILTER (WHERE id <= 72) < min(place) FILTER (WHERE id > 72)
        FROM claimed WHERE id > 67";
    assert_eq!(db.query(in_order), "t");
}

#[test]
fn a_tick_that_gets_fewer_threads_than_its_concurrency_executes_all_runs() {
    // The kernel counts all processes of a user, so the tick gets a user of its own.
    if !rustix::process::geteuid().is_root() {
        leave_out("a tick with few threads", "it needs root");
        return;
    }
    let db = TestDb::new();
    let (proxy, server, folder) = (Proxy::to(&db), HttpServer::start(), temp_dir());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("jobctl");
    copy_jobctl(folder.path());
    let payload = serde_json::json!({ "url": server.url("/status/200") });
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'http', '{payload}' FROM \
            generate_series(1, 40)"
    ));
    let limited = format!(
        "exec setpriv --reuid 54321 --clear-groups prlimit --nproc=8 '{}' \"$@\"",
        program.display()
    );
    let tick = db.jobctl(["tick", "--concurrency", "40"]).after(&limited).through(&proxy);
    let line = "cannot run 40 jobs at a time, only ";
    tick.run().success().stderr_has(line).prints_nowhere("panicked");
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|40"
    );
}

#[test]
fn a_tick_far_from_its_database_prefetches_for_the_time_of_an_answer() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    proxy.delay(Duration::from_millis(20));
    // Too long for a prefetch if the database is near.
    insert_commands(&db, 12, "sleep 0.15");
    let tick = db.jobctl(["tick", "--concurrency", "1"]).through(&proxy).spawn();
    wait_until("a prefetch", || number_of_running_runs(&db) > 1);
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|12"
    );
}

#[test]
fn a_tick_with_idle_threads_keeps_the_claim_right() {
    let db = TestDb::new();
    // Too long for a prefetch, however busy the machine is.
    insert_commands(&db, 4, "sleep 1.1");
    // The claim right lasts as long as the lease here, and is renewed three times in it.
    db.jobctl(["tick", "--concurrency", "1", "--lease", "3s"]).run().success();
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY status"),
        "succeeded|4"
    );
}

/// Starts a tick of worker `w` that goes on until a signal, and waits until it has the claim right:
/// only the tick with this right claims runs for its worker.
fn start_tick_with_claim_right<'db>(db: &'db TestDb, flags: &[&str]) -> Running<'db> {
    let tick = db.jobctl(["tick", "--worker", "w", "--linger"]).args(flags.iter().copied()).spawn();
    db.wait_until_a_tick_has_the_claim_right();
    tick
}

/// Runs a tick of this worker until it ends.
fn tick_as(db: &TestDb, worker: &str) -> Finished {
    db.jobctl(["tick", "--worker", worker, "--concurrency", "8"]).run().success()
}

#[test]
fn only_the_first_of_two_ticks_of_a_worker_claims() {
    let db = TestDb::new();
    let gate = Gate::new();
    gate.enqueue(&db);
    let first = start_tick_with_claim_right(&db, &["--concurrency", "1"]);
    gate.wait_for_starts(1);
    let id = db.enqueue(["shell", "--", "true"]);
    tick_as(&db, "w")
        .stdout("")
        .stderr_has("runs are due, but another tick of this worker claims them");
    assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
    // Another worker has its own claim right.
    tick_as(&db, "other");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    first.signal(Signal::TERM);
    gate.open();
    first.wait().success();
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL"),
        "0"
    );
}

#[test]
fn a_later_tick_claims_while_an_earlier_one_waits_for_a_long_job() {
    let db = TestDb::new();
    let gate = Gate::new();
    let long = gate.enqueue(&db);
    let first = db.jobctl(["tick", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    let short = db.enqueue(["shell", "--", "true"]);
    // The first tick releases the claim right immediately after its claim.
    wait_until("the short job's end", || {
        tick_as(&db, "w");
        db.status(short) == "succeeded"
    });
    assert_eq!(db.status(long), "running");
    // More ticks find nothing to do, and do not start the long job again.
    let ticks: Vec<_> = (0..30).map(|_| db.jobctl(["tick", "--worker", "w"]).spawn()).collect();
    for tick in ticks {
        tick.wait().success().stdout("").stderr("");
    }
    gate.open();
    first.wait().success();
    assert_eq!(gate.count("start"), 1);
}

#[test]
fn concurrency_limits_all_ticks_of_a_worker_together() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..6 {
        gate.enqueue(&db);
    }
    let first = db.jobctl(["tick", "--worker", "w", "--limit", "2"]).spawn();
    gate.wait_for_starts(2);
    // The first tick releases the claim right soon after its last claim.
    db.wait_until_no_tick_has_the_claim_right();
    let assert_worker_is_full = |tick: Finished| {
        tick.success().stderr_has("of other ticks of this worker use all of --concurrency");
    };
    assert_worker_is_full(db.jobctl(["tick", "--worker", "w", "--concurrency", "2"]).run());
    assert_eq!(number_of_running_runs(&db), 2);
    let second =
        db.jobctl(["tick", "--worker", "w", "--concurrency", "3", "--max-time", "1s"]).spawn();
    gate.wait_for_starts(3);
    db.wait_until_no_tick_has_the_claim_right();
    assert_worker_is_full(db.jobctl(["tick", "--worker", "w", "--concurrency", "3"]).run());
    assert_eq!(number_of_running_runs(&db), 3);
    // Another worker has a concurrency of its own.
    let third =
        db.jobctl(["tick", "--worker", "other", "--concurrency", "1", "--limit", "1"]).spawn();
    gate.wait_for_starts(4);
    assert_eq!(number_of_running_runs(&db), 4);
    gate.open();
    for tick in [first, second, third] {
        tick.wait().success();
    }
}

#[test]
fn the_claim_right_of_a_killed_tick_is_taken_over_at_once() {
    let db = TestDb::new();
    let tick = start_tick_with_claim_right(&db, &[]);
    tick.signal(Signal::KILL);
    assert!(!tick.wait().status.success());
    // The right has not run out. The next tick sees that no process of this host has it any more.
    assert_eq!(
        db.query("SELECT claiming_until > now() + interval '5 seconds' FROM jobctl.job_workers"),
        "t"
    );
    let id = db.enqueue(["shell", "--", "true"]);
    tick_as(&db, "w");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn the_claim_right_of_a_tick_on_another_host_lasts_until_it_expires() {
    let db = TestDb::new();
    tick_as(&db, "w");
    let id = db.enqueue(["shell", "--", "true"]);
    // This host can't know whether the tick on the host `elsewhere` is still alive.
    db.execute(
        "UPDATE jobctl.job_workers SET claiming_tick = 'elsewhere.1.0', claiming_until = now() + \
            interval '5 minutes'",
    );
    tick_as(&db, "w").stderr_has("runs are due, but another tick of this worker claims them");
    assert_eq!(db.status(id), "queued");
    db.execute("UPDATE jobctl.job_workers SET claiming_until = now() - interval '1 second'");
    tick_as(&db, "w");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_busy_worker_holds_only_the_runs_that_it_executes() {
    let db = TestDb::new();
    let gate = Gate::new();
    let long: Vec<_> = (0..4).map(|_| gate.enqueue(&db)).collect();
    let short = db.enqueue(["shell", "--", "true"]);
    let busy = start_tick_with_claim_right(&db, &["--concurrency", "4"]);
    gate.wait_for_starts(4);
    // The tick claims whenever a run ends or a heartbeat is due. Until then another worker may
    // claim the run.
    assert_eq!(number_of_running_runs(&db), 4);
    assert_eq!(db.of_run(short, "status, attempts"), "queued|0");
    tick_as(&db, "idle");
    assert_eq!(db.of_attempt(short, 1, "worker"), "idle");
    assert_eq!(number_of_running_runs(&db), 4);
    gate.open();
    long.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    busy.signal(Signal::TERM);
    busy.wait().success();
}

#[test]
fn a_claim_whose_release_is_rejected_keeps_no_other_from_being_released() {
    let (db, gate) = (TestDb::new(), Gate::new());
    // After many short runs, the tick prefetches runs that turn out to be long.
    insert_commands(&db, 100, ":");
    insert_commands(&db, 40, &gate.script());
    // Run 101 is the first long one, which executes. The database rejects the release of run 103.
    db.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE \
            EXCEPTION 'no' USING ERRCODE = '22023'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'queued' AND OLD.id = 103) EXECUTE FUNCTION public.refuse()",
    );
    db.allow_running_runs_at_end();
    let tick = db.jobctl(["tick", "--concurrency", "1", "--grace", "1m"]).spawn();
    gate.wait_for_starts(1);
    tick.signal(Signal::TERM);
    wait_until("the others to be released", || number_of_running_runs(&db) == 2);
    gate.open();
    let line = "run 103: cannot release claims: no; another tick recovers the run when its lease \
                ends";
    tick.wait().exits(1).stderr_has(line);
    assert_eq!(db.query("SELECT id FROM jobctl.job_runs WHERE status = 'running'"), "103");
}

#[test]
fn prefetched_runs_are_released_uncounted_when_jobs_take_longer() {
    for signal in [None, Some(Signal::TERM)] {
        let db = TestDb::new();
        let gate = Gate::new();
        // After many short runs, the tick prefetches runs that turn out to be long.
        insert_commands(&db, 100, ":");
        insert_commands(&db, 40, &gate.script());
        let tick =
            db.jobctl(["tick", "--worker", "w", "--concurrency", "1", "--grace", "1m"]).spawn();
        gate.wait_for_starts(1);
        match signal {
            Some(signal) => tick.signal(signal),
            None => {
                wait_until("the other runs to be released", || number_of_running_runs(&db) == 1)
            }
        }
        wait_until("the other runs to be released", || number_of_running_runs(&db) == 1);
        let untouched = db.query(
            "SELECT count(*) FROM jobctl.job_runs
             WHERE status = 'queued' AND attempts = 0 AND locked_by IS NULL AND last_error IS NULL",
        );
        // One of 40 long runs executes. On a host that stalls, some of the 100 short runs are
        // released, too.
        let ended =
            || db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'");
        let [untouched, ended_before] = [untouched, ended()].map(|it| it.parse::<u32>().unwrap());
        assert!(untouched >= 39, "{untouched}");
        assert_eq!(untouched + ended_before, 139);
        if signal.is_none() {
            tick.signal(Signal::TERM);
        }
        gate.open();
        tick.wait().success();
        assert_eq!(gate.count("start"), 1);
        assert_eq!(ended(), (ended_before + 1).to_string());
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), ended());
    }
}

#[test]
fn a_tick_calls_1500_urls_although_it_may_open_only_64_files() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let payload = serde_json::json!({ "url": server.url("/echo") });
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'http', '{payload}' FROM \
            generate_series(1, 1500)"
    ));
    db.script("ulimit -n 64; exec \"$jobctl\" tick --concurrency 16 --quiet")
        .run()
        .success()
        .stderr("");
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|1500"
    );
}

#[test]
fn results_are_recorded_while_claims_wait_for_a_lock() {
    let db = TestDb::new();
    let gate = Gate::new();
    let first = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--concurrency", "1", "--lease", "1h"]).spawn();
    gate.wait_for_starts(1);
    // Claims wait now, for longer than a statement may wait for a lock, and fail.
    let blocker = db.block_claims();
    let second = db.enqueue(["shell", "--", "true"]);
    gate.open();
    db.wait_for_status(first, "succeeded");
    assert_eq!(db.of_run(second, "status, attempts"), "queued|0");
    drop(blocker);
    tick.wait().success();
    assert_eq!(db.of_run(second, "status, attempts"), "succeeded|1");
}

#[test]
fn results_are_recorded_even_if_the_worker_row_is_locked() {
    // The lingering tick has the claim right, and would release it at a signal.
    for (flags, signal) in [(&[][..], None), (&["--linger"], Some(Signal::TERM))] {
        let db = TestDb::new();
        let gate = Gate::new();
        let id = gate.enqueue(&db);
        let tick = db
            .jobctl(["tick", "--lease", "1h", "--grace", "1h"])
            .args(flags.iter().copied())
            .spawn();
        gate.wait_for_starts(1);
        wait_until("the claim", || db.status(id) == "running");
        let mut locks = db.client();
        locks.batch_execute("BEGIN; SELECT FROM jobctl.job_workers FOR UPDATE").unwrap();
        signal.into_iter().for_each(|signal| tick.signal(signal));
        gate.open();
        db.wait_for_status(id, "succeeded");
        drop(locks);
        tick.wait().success();
    }
}

#[test]
fn a_tick_that_lost_the_claim_right_claims_nothing() {
    // Another tick takes the right over, or the right ends. The second text is the tick that then
    // has the right.
    let changes = [
        (
            "claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'",
            "elsewhere.1.0",
        ),
        ("claiming_until = now() - interval '1 second'", ""),
    ];
    for (change, after) in changes {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let id = db.enqueue(["shell", "--", "true"]);
        // The tick is stopped between taking the claim right and the claim.
        proxy.freeze_after("COMMIT\0");
        let tick = db.jobctl(["tick"]).through(&proxy).spawn();
        wait_until("the tick to stop", || proxy.is_frozen());
        db.wait_until_a_tick_has_the_claim_right();
        db.execute(&format!("UPDATE jobctl.job_workers SET {change}"));
        proxy.restore();
        tick.wait().success().stderr("");
        assert_eq!(db.of_run(id, "status, attempts"), "queued|0", "{change}");
        assert_eq!(db.query("SELECT claiming_tick FROM jobctl.job_workers"), after);
    }
}

#[test]
fn a_tick_that_ends_does_not_release_the_claim_right_of_another() {
    let db = TestDb::new();
    let tick = start_tick_with_claim_right(&db, &["--lease", "1h"]);
    // A tick on another host has taken the right over.
    let other = "claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'";
    db.execute(&format!("UPDATE jobctl.job_workers SET {other}"));
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.query("SELECT claiming_tick FROM jobctl.job_workers"), "elsewhere.1.0");
}

/// The check of a foreign key locks the run until its transaction ends, but not against a claim.
#[test]
fn a_run_that_an_open_transaction_references_is_claimed() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    db.execute("CREATE TABLE orders (run bigint REFERENCES jobctl.job_runs)");
    let mut application = db.client();
    let mut open = application.transaction().unwrap();
    open.execute("INSERT INTO orders VALUES ($1)", &[&id]).unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "succeeded");
    open.commit().unwrap();
}

#[test]
fn a_release_does_not_undo_a_later_claim_of_the_same_attempt() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    // The tick has one slot. Run 101 takes it and waits at the gate, so the tick releases its claim
    // of run 102.
    insert_commands(&db, 100, ":");
    insert_commands(&db, 2, &gate.script());
    // Another tick of the same worker claims the released run at once.
    db.execute(
        "CREATE TABLE gone_back (run bigint);
         CREATE FUNCTION claim_again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.gone_back VALUES (new.id);
             UPDATE jobctl.job_runs
             SET status = 'running', attempts = attempts + 1, locked_by = 'w', locked_until = \
             now() + interval '1 hour',
                 started_at = clock_timestamp()
             WHERE id = new.id;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER claim_again AFTER UPDATE ON jobctl.job_runs DEFERRABLE \
         INITIALLY DEFERRED
             FOR EACH ROW WHEN (old.status = 'running' AND new.status = 'queued') EXECUTE \
             FUNCTION claim_again()",
    );
    // The release is committed, but its answer is lost. So the tick sends the release again: it
    // must not release the new claim, which has the same worker and the same number of the attempt.
    proxy.lose_answer_to(&["Releases claims that were never started", "COMMIT"]);
    let flags = ["--worker", "w", "--concurrency", "1"];
    let tick = db.jobctl(["tick"]).args(flags).through(&proxy).spawn();
    gate.wait_for_starts(1);
    wait_until("the answer to be lost", || proxy.has_lost());
    gate.open();
    tick.wait().success().stderr_has("reconnecting");
    assert_eq!(db.query("SELECT run FROM gone_back"), "102");
    assert_eq!(db.of_run(102, "status, attempts"), "running|1");
}

#[test]
fn a_released_claim_does_not_count_against_the_limit() {
    let db = TestDb::new();
    let gate = Gate::new();
    // After many short runs, the tick prefetches runs that turn out to be long, and releases them.
    insert_commands(&db, 100, ":");
    insert_commands(&db, 40, &gate.script());
    let tick = db.jobctl(["tick", "--concurrency", "1", "--limit", "140"]).spawn();
    gate.wait_for_starts(1);
    wait_until("the other runs to be released", || number_of_running_runs(&db) == 1);
    gate.open();
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|140"
    );
}

#[test]
fn claims_find_the_due_runs_among_60000_queues_and_priorities_in_time() {
    let db = TestDb::new();
    // 30,000 priorities in one queue, and 30,000 queues. Each has one run: it is due in each
    // 5000th, and tomorrow in the others.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, priority, queue, run_at)
         SELECT 'shell', '{\"command\": \":\"}', n, 'many',
             now() + CASE WHEN n % 5000 > 0 THEN interval '1 day' ELSE '0' END
         FROM generate_series(1, 30000) AS n;
         INSERT INTO jobctl.job_runs (job_type, payload, queue, run_at)
         SELECT 'shell', '{\"command\": \":\"}', 'q' || n,
             now() + CASE WHEN n % 5000 > 0 THEN interval '1 day' ELSE '0' END
         FROM generate_series(1, 30000) AS n",
    );
    let due = "SELECT count(*) FROM jobctl.job_runs WHERE run_at <= now() AND status = 'queued'";
    assert_eq!(db.query(due), "12", "6 priorities and 6 queues");
    // No claim may take longer than a sixth of the lease.
    db.jobctl(["tick", "--lease", "2s", "--queue", "q5000"]).run().success();
    assert_eq!(db.query(due), "11");
    db.jobctl(["tick", "--lease", "2s"]).run().success();
    assert_eq!(db.query(due), "0");
}

#[test]
fn smaller_priorities_run_first_among_a_thousand() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, priority)
         SELECT 'shell', '{\"command\": \":\"}', -n FROM generate_series(1, 999) AS n",
    );
    db.jobctl(["tick", "--limit", "10", "--concurrency", "1"]).run().success();
    assert_eq!(
        db.query(
            "SELECT min(priority), max(priority) FROM jobctl.job_runs WHERE status = 'succeeded'"
        ),
        "-999|-990"
    );
}

/// There is a run for each combination of 7 statuses, 3 jobs, 2 queues, 2 times at which it is due,
/// and 3 times at which it expires.
#[test]
fn a_claim_takes_the_due_runs_and_no_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.mail]\nshell = 'true'\n[jobs.held]\nshell = 'true'\n");
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, queue, status, run_at, expires_at, attempts,
             started_at, finished_at, locked_by, locked_until)
         SELECT job, queue, status, now() + due_in, now() + expires_in, (status <> 'queued')::int,
             now(), CASE WHEN status IN ('succeeded', 'dead', 'cancelled') THEN now() END,
             CASE WHEN status = 'running' THEN 'other' END,
             CASE WHEN status = 'running' THEN now() + interval '1 hour' END
         FROM unnest(ARRAY['blocked', 'queued', 'failed', 'running', 'succeeded', 'dead',
                 'cancelled']) AS status,
             unnest(ARRAY['mail', 'held', 'gone']) AS job,
             unnest(ARRAY['default', 'slow']) AS queue,
             unnest(ARRAY[interval '-1 hour', '1 hour']) AS due_in,
             unnest(ARRAY[NULL, interval '-1 minute', '2 hours']) AS expires_in",
    );
    // The view `pending_runs` defines "due" for all commands, so a claim must take exactly these
    // runs. The counts below check the view itself.
    let due_sql = "SELECT id FROM jobctl.pending_runs AS run WHERE is_due AND NOT EXISTS (
        SELECT FROM jobctl.current_holds
        WHERE (scope, name) IN (('job', run.job_type), ('queue', run.queue))) ORDER BY id";
    // Due are the queued and the failed run whose time has come, each without an expiry and with
    // one in 2 hours.
    let due_per_job_and_queue = 2 * 2;
    let due_at_first = db.query(due_sql).lines().count();
    assert_eq!(due_at_first, 3 * 2 * due_per_job_and_queue, "3 jobs, 2 queues");
    db.jobctl(["hold", "--job", "held"]).run().success();
    db.jobctl(["hold", "--queue", "slow"]).run().success();
    let due_ids = db.query(due_sql);
    assert_eq!(due_ids.lines().count(), 2 * due_per_job_and_queue, "2 jobs, 1 queue");
    let shown = db.jobctl(["tick", "--dry-run"]).run().success().stdout;
    let shown: BTreeSet<_> = shown.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(shown, due_ids.lines().collect());
    // The job `gone` has no definition. Its runs are claimed, too, and end dead.
    db.jobctl(["tick"]).run().success();
    let claimed = "SELECT run_id FROM jobctl.job_attempts ORDER BY run_id";
    assert_eq!(db.query(claimed), due_ids);
}
