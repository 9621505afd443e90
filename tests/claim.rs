//! Who gets which run: never two, never more than asked for, and one tick of a worker at a time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::http_server::HttpServer;
use crate::support::{Finished, Gate, Proxy, Running, TestDb, leave_out, temp_dir, wait_until};

fn insert(db: &TestDb, runs: u32, script: &str) {
    let payload = serde_json::json!({ "command": script }).to_string().replace('\'', "''");
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{payload}' FROM generate_series(1, {runs})"
    ));
}

/// One of two threads is busy as long as the gate is shut, the other as soon as it has seen many short runs.
fn enqueue_for_two_threads(db: &TestDb, gate: &Gate) {
    gate.enqueue(db);
    insert(db, 60, "true");
    gate.enqueue(db);
}

fn running(db: &TestDb) -> usize {
    db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'").parse().unwrap()
}

#[test]
fn many_ticks_at_once_start_every_run_exactly_once() {
    let db = TestDb::new();
    let folder = temp_dir();
    let log = folder.path().join("log");
    insert(&db, 400, &format!("echo $JOBCTL_RUN_ID $JOBCTL_ATTEMPT >>{}", log.display()));
    let start = |worker| db.jobctl(["tick", "--quiet"]).args(["--worker", worker]).spawn();
    // Two of each name: one of them finds the right taken and leaves everything to the other.
    let ticks: Vec<Running> = ["a", "a", "b", "b", "c", "c", "d", "d"].map(start).into();
    for tick in ticks {
        tick.wait().success().stderr("");
    }
    let log = fs::read_to_string(log).unwrap();
    let distinct: BTreeSet<_> = log.lines().collect();
    assert_eq!((log.lines().count(), distinct.len()), (400, 400));
    assert!(distinct.iter().all(|line| line.ends_with(" 1")));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded' AND attempts = 1"), "400");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'"), "400");
}

#[test]
fn a_claim_takes_no_more_than_asked_for_whatever_the_plan() {
    let plans = [
        "enable_hashjoin = off, enable_mergejoin = off, enable_material = off, enable_hashagg = off, enable_sort = off",
        "enable_nestloop = off",
        "enable_nestloop = off, enable_hashjoin = off",
        "enable_indexscan = off, enable_bitmapscan = off, enable_indexonlyscan = off",
        "enable_seqscan = off, enable_sort = off",
    ];
    let db = TestDb::new();
    insert(&db, 50, "true");
    let before = format!("ALTER DATABASE {0} RESET ALL; ALTER DATABASE {0} SET jit = off", db.name());
    for (done, plan) in plans.iter().enumerate() {
        let set = |setting| format!("ALTER DATABASE {} SET {setting};", db.name());
        db.execute(&before);
        db.execute(&plan.split(", ").map(set).collect::<String>());
        db.jobctl(["tick", "--limit", "1"]).run().success();
        assert_eq!(db.query("SELECT sum(attempts) FROM jobctl.job_runs"), (done + 1).to_string(), "{plan}");
    }
}

#[test]
fn what_a_slow_claim_brings_is_executed() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    insert(&db, 2, "true");
    // Far longer than a claim may wait for a thread.
    proxy.delay(Duration::from_millis(150));
    for started in 1..=2 {
        db.jobctl(["tick", "--limit", "1"]).env("JOBCTL_DATABASE_URL", &proxy.url()).run().success();
        assert_eq!(db.query("SELECT sum(attempts) FROM jobctl.job_runs"), started.to_string());
        // A run is written twice, claimed and finished; nothing was given back in between.
        let writes = || db.query("SELECT pg_stat_get_tuples_updated('jobctl.job_runs'::regclass)").parse().unwrap_or(0);
        wait_until("the statistics of an ended session", || writes() >= 2 * started);
        assert_eq!(writes(), 2 * started);
    }
}

#[test]
fn where_claims_are_slow_a_tick_still_runs_all_that_is_due() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    // Longer than a claim of a table in order takes, so that the next ones go on where it ended.
    proxy.delay(Duration::from_millis(15));
    let early = "UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour' WHERE queue = 'early'";
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, queue, priority, run_at) \
         SELECT 'shell', '{\"command\": \"true\"}', 'q' || n % 3, n % 2, now() - interval '1 minute' + interval '1 ms' * (n / 4) \
         FROM generate_series(1, 200) AS n; \
         INSERT INTO jobctl.job_runs (job_type, payload, queue, run_at) \
         SELECT 'shell', '{\"command\": \"true\"}', 'early', now() + interval '1 hour' FROM generate_series(1, 3)",
    );
    let tick = db.jobctl(["tick", "--concurrency", "2"]).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
    wait_until("the first result", || db.query("SELECT count(*) > 0 FROM jobctl.job_attempts") == "t");
    // Behind its back, in a lane that it has not seen.
    db.execute(early);
    tick.wait().success();
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|203");
}

#[test]
fn a_claim_that_nobody_could_start_goes_back_though_its_row_is_locked() {
    let db = TestDb::new();
    let gate = Gate::new();
    enqueue_for_two_threads(&db, &gate);
    let late: Vec<_> = (0..5).map(|_| db.enqueue(["shell", "--", "true"])).collect();
    // Another session has the first of them between its claim and its release.
    let holder = db.hold_up_claims_of(&format!("NEW.id = {}", late[0]));
    let waiting = |sessions: &str| {
        db.query(&format!(
            "SELECT count(*) >= {sessions} FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )) == "t"
    };
    let tick = db.jobctl(["tick", "--concurrency", "2"]).spawn();
    wait_until("the claim to be held up", || waiting("1"));
    let mut other = db.client();
    let lock = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {} FOR UPDATE", late[0]);
    let locking = std::thread::spawn(move || other.batch_execute(&lock).map(|()| other));
    wait_until("the other session to wait", || waiting("2"));
    drop(holder);
    let mut other = locking.join().unwrap().unwrap();
    gate.wait_for_starts(2);
    let of_late = |id: &i64| db.of_run(*id, "status, attempts");
    wait_until("the others to go back", || late[1..].iter().all(|id| of_late(id) == "queued|0"));
    assert_eq!(of_late(&late[0]), "running|1");
    other.batch_execute("COMMIT").unwrap();
    wait_until("it to go back, too", || of_late(&late[0]) == "queued|0");
    gate.open();
    tick.wait().success();
    assert!(late.iter().all(|id| of_late(id) == "succeeded|1"));
}

#[test]
fn no_last_attempt_is_claimed_before_it_can_start() {
    let db = TestDb::new();
    let gate = Gate::new();
    enqueue_for_two_threads(&db, &gate);
    db.execute(
        "CREATE TABLE claimed (max_attempts integer);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.claimed VALUES (NEW.max_attempts); RETURN NULL; END';
         CREATE TRIGGER note AFTER UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'running' AND NEW.id > 62) EXECUTE FUNCTION note()",
    );
    for attempts in [10, 1, 10] {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, max_attempts)
             SELECT 'shell', '{{\"command\": \"true\"}}', {attempts} FROM generate_series(1, 5)"
        ));
    }
    let tick = db.jobctl(["tick", "--concurrency", "2"]).spawn();
    gate.wait_for_starts(2);
    let claimed = || db.query("SELECT string_agg(max_attempts::text, ',') FROM (SELECT * FROM claimed LIMIT 10) AS c");
    wait_until("those in front of them to be claimed ahead", || claimed() == "10,10,10,10,10");
    gate.open();
    tick.wait().success();
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|77");
    // In their order: nothing passes what waits for a thread.
    assert_eq!(db.query("SELECT max_attempts FROM claimed OFFSET 5 LIMIT 1"), "1");
}

#[test]
fn a_tick_does_with_fewer_threads_than_it_asked_for() {
    // The kernel counts all processes of a user, so the tick gets a user of its own.
    if !rustix::process::geteuid().is_root() {
        leave_out("a_tick_does_with_fewer_threads_than_it_asked_for", "it needs root");
        return;
    }
    let db = TestDb::new();
    let (proxy, server, folder) = (Proxy::to(&db), HttpServer::start(), temp_dir());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("jobctl");
    fs::copy(env!("CARGO_BIN_EXE_jobctl"), &program).unwrap();
    let payload = serde_json::json!({ "url": server.url("/status/200") });
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'http', '{payload}' FROM generate_series(1, 40)"
    ));
    let limited = format!("exec setpriv --reuid 54321 --clear-groups prlimit --nproc=8 '{}' \"$@\"", program.display());
    let tick = db.jobctl(["tick", "--concurrency", "40"]).after(&limited).env("JOBCTL_DATABASE_URL", &proxy.url());
    tick.run().success().stderr_has("threads instead of 40").nowhere("panicked");
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|40");
}

#[test]
fn far_from_the_database_runs_are_claimed_ahead_for_as_long_as_an_answer_takes() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    proxy.delay(Duration::from_millis(20));
    // Too long to be claimed ahead where the database is near.
    insert(&db, 12, "sleep 0.15");
    let tick = db.jobctl(["tick", "--concurrency", "1"]).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
    wait_until("more to be claimed than there are threads", || running(&db) > 1);
    tick.wait().success();
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|12");
}

#[test]
fn a_tick_whose_threads_are_often_idle_keeps_its_right() {
    let db = TestDb::new();
    // Too long to be claimed ahead, however busy the machine is.
    insert(&db, 4, "sleep 0.55");
    // The right lasts as long as the lease here, and is renewed three times in it.
    db.jobctl(["tick", "--concurrency", "1", "--lease", "1s"]).run().success();
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY status"), "succeeded|4");
}

/// A tick of worker `w` that lingers with the claim right and runs what waits at the gate.
fn lingering<'db>(db: &'db TestDb, flags: &[&str]) -> Running<'db> {
    let tick = db.jobctl(["tick", "--worker", "w", "--linger"]).args(flags.iter().copied()).spawn();
    wait_until("the tick to have the right", || {
        db.query("SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL") == "1"
    });
    tick
}

fn tick_of(db: &TestDb, worker: &str) -> Finished {
    db.jobctl(["tick", "--worker", worker, "--concurrency", "8"]).run().success()
}

#[test]
fn a_second_tick_of_a_worker_leaves_the_claiming_to_the_first() {
    let db = TestDb::new();
    let gate = Gate::new();
    gate.enqueue(&db);
    let first = lingering(&db, &["--concurrency", "1"]);
    gate.wait_for_starts(1);
    let id = db.enqueue(["shell", "--", "true"]);
    tick_of(&db, "w").stdout("").stderr("");
    assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
    // Another worker is not concerned.
    tick_of(&db, "other");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    first.signal(Signal::TERM);
    gate.open();
    first.wait().success();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL"), "0");
}

#[test]
fn a_long_job_keeps_no_later_tick_of_its_worker_from_claiming() {
    let db = TestDb::new();
    let gate = Gate::new();
    let long = gate.enqueue(&db);
    let first = db.jobctl(["tick", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    let short = db.enqueue(["shell", "--", "true"]);
    // The first gives its right back right after its claim.
    wait_until("the short job's end", || {
        tick_of(&db, "w");
        db.status(short) == "succeeded"
    });
    assert_eq!(db.status(long), "running");
    let ticks: Vec<_> = (0..30).map(|_| db.jobctl(["tick", "--worker", "w"]).spawn()).collect();
    for tick in ticks {
        tick.wait().success().stdout("").stderr("");
    }
    gate.open();
    first.wait().success();
    assert_eq!(gate.count("start"), 1);
}

#[test]
fn concurrency_holds_over_all_ticks_of_a_worker() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..6 {
        gate.enqueue(&db);
    }
    let first = db.jobctl(["tick", "--worker", "w", "--limit", "2"]).spawn();
    gate.wait_for_starts(2);
    // The first needs no right any more, but gives it back only after its claim.
    wait_until("the right to be free", || db.query("SELECT claiming_tick IS NULL FROM jobctl.job_workers") == "t");
    db.jobctl(["tick", "--worker", "w", "--concurrency", "2"]).run().success().stderr("");
    assert_eq!(running(&db), 2);
    let second = db.jobctl(["tick", "--worker", "w", "--concurrency", "3", "--max-time", "1s"]).spawn();
    gate.wait_for_starts(3);
    wait_until("the right to be free", || db.query("SELECT claiming_tick IS NULL FROM jobctl.job_workers") == "t");
    db.jobctl(["tick", "--worker", "w", "--concurrency", "3"]).run().success().stderr("");
    assert_eq!(running(&db), 3);
    // Another worker has a concurrency of its own.
    let third = db.jobctl(["tick", "--worker", "other", "--concurrency", "1", "--limit", "1"]).spawn();
    gate.wait_for_starts(4);
    assert_eq!(running(&db), 4);
    gate.open();
    for tick in [first, second, third] {
        tick.wait().success();
    }
}

#[test]
fn the_right_of_a_killed_tick_is_taken_over_at_once() {
    let db = TestDb::new();
    let tick = lingering(&db, &[]);
    tick.signal(Signal::KILL);
    assert!(!tick.wait().status.success());
    assert_eq!(db.query("SELECT claiming_until > now() + interval '5 seconds' FROM jobctl.job_workers"), "t");
    let id = db.enqueue(["shell", "--", "true"]);
    tick_of(&db, "w");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn the_right_of_a_tick_on_another_host_is_respected_until_it_ends() {
    let db = TestDb::new();
    tick_of(&db, "w");
    let id = db.enqueue(["shell", "--", "true"]);
    db.execute(
        "UPDATE jobctl.job_workers SET claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'",
    );
    tick_of(&db, "w").stderr("");
    assert_eq!(db.status(id), "queued");
    db.execute("UPDATE jobctl.job_workers SET claiming_until = now() - interval '1 second'");
    tick_of(&db, "w");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn a_busy_worker_holds_no_more_than_it_runs() {
    let db = TestDb::new();
    let gate = Gate::new();
    let long: Vec<_> = (0..4).map(|_| gate.enqueue(&db)).collect();
    let short = db.enqueue(["shell", "--", "true"]);
    let busy = lingering(&db, &["--concurrency", "4"]);
    gate.wait_for_starts(4);
    // It looks for more every time something ends or a heartbeat is due; another is free to take it.
    assert_eq!((running(&db), db.of_run(short, "status, attempts")), (4, "queued|0".to_owned()));
    tick_of(&db, "idle");
    assert_eq!(db.of_attempt(short, 1, "worker"), "idle");
    assert_eq!(running(&db), 4);
    gate.open();
    long.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    busy.signal(Signal::TERM);
    busy.wait().success();
}

#[test]
fn what_was_claimed_ahead_goes_back_uncounted_when_jobs_turn_out_to_be_long() {
    for signal in [None, Some(Signal::TERM)] {
        let db = TestDb::new();
        let gate = Gate::new();
        insert(&db, 100, ":");
        insert(&db, 40, &gate.script());
        let tick = db.jobctl(["tick", "--worker", "w", "--concurrency", "1", "--grace", "1m"]).spawn();
        gate.wait_for_starts(1);
        match signal {
            Some(signal) => tick.signal(signal),
            None => wait_until("the rest to go back", || running(&db) == 1),
        }
        wait_until("the rest to go back", || running(&db) == 1);
        let untouched = db.query(
            "SELECT count(*) FROM jobctl.job_runs
             WHERE status = 'queued' AND attempts = 0 AND locked_by IS NULL AND last_error IS NULL",
        );
        assert_eq!(untouched, "39");
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "100");
        if signal.is_none() {
            tick.signal(Signal::TERM);
        }
        gate.open();
        tick.wait().success();
        assert_eq!(gate.count("start"), 1);
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'"), "101");
    }
}

#[test]
fn what_waits_for_a_thread_takes_no_descriptor() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let payload = serde_json::json!({ "url": server.url("/echo") });
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'http', '{payload}' FROM generate_series(1, 1500)"
    ));
    db.script("ulimit -n 64; exec \"$jobctl\" tick --concurrency 16 --quiet").run().success().stderr("");
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|1500");
}

#[test]
fn results_are_recorded_though_claims_fail() {
    let db = TestDb::new();
    let gate = Gate::new();
    let first = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--concurrency", "1", "--lease", "1h"]).spawn();
    gate.wait_for_starts(1);
    // Longer than a statement may wait for a lock.
    let hold_up = db.hold_up_claims();
    let second = db.enqueue(["shell", "--", "true"]);
    gate.open();
    db.wait_for_status(first, "succeeded");
    assert_eq!(db.of_run(second, "status, attempts"), "queued|0");
    drop(hold_up);
    tick.wait().success();
    assert_eq!(db.of_run(second, "status, attempts"), "succeeded|1");
}

#[test]
fn results_are_recorded_though_the_worker_is_locked() {
    // The one that lingers has the right to claim, and would give it back at a signal.
    for (flags, signal) in [(&[][..], None), (&["--linger"], Some(Signal::TERM))] {
        let db = TestDb::new();
        let gate = Gate::new();
        let id = gate.enqueue(&db);
        let tick = db.jobctl(["tick", "--lease", "1h", "--grace", "1h"]).args(flags.iter().copied()).spawn();
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
fn a_tick_that_has_lost_its_right_meanwhile_claims_nothing_and_leaves_it_to_who_has_it() {
    let changes = [
        ("claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'", "elsewhere.1.0"),
        ("claiming_until = now() - interval '1 second'", ""),
    ];
    for (change, after) in changes {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        let id = db.enqueue(["shell", "--", "true"]);
        // Between the right and the claim.
        proxy.freeze_after("How many runs a worker holds");
        let tick = db.jobctl(["tick"]).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
        wait_until("the tick to look", || proxy.is_frozen());
        db.execute(&format!("UPDATE jobctl.job_workers SET {change}"));
        proxy.mend();
        tick.wait().success().stderr("");
        assert_eq!(db.of_run(id, "status, attempts"), "queued|0", "{change}");
        assert_eq!(db.query("SELECT claiming_tick FROM jobctl.job_workers"), after);
    }
}

#[test]
fn a_tick_that_ends_gives_back_no_right_that_another_has_taken_over() {
    let db = TestDb::new();
    let tick = lingering(&db, &["--lease", "1h"]);
    let other = "claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'";
    db.execute(&format!("UPDATE jobctl.job_workers SET {other}"));
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.query("SELECT claiming_tick FROM jobctl.job_workers"), "elsewhere.1.0");
}

#[test]
fn a_run_that_an_application_refers_to_just_now_is_claimed() {
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
fn what_goes_back_is_not_taken_from_who_has_claimed_it_meanwhile_as_the_same_attempt() {
    let db = TestDb::new();
    db.leaves_running();
    let proxy = Proxy::to(&db);
    let gate = Gate::new();
    insert(&db, 100, ":");
    insert(&db, 2, &gate.script());
    // Another tick of the worker is as quick as can be.
    db.execute(
        "CREATE TABLE gone_back (run bigint);
         CREATE FUNCTION claim_again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.gone_back VALUES (new.id);
             UPDATE jobctl.job_runs
             SET status = 'running', attempts = attempts + 1, locked_by = 'w', locked_until = now() + interval '1 hour',
                 started_at = clock_timestamp()
             WHERE id = new.id;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER claim_again AFTER UPDATE ON jobctl.job_runs DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (old.status = 'running' AND new.status = 'queued') EXECUTE FUNCTION claim_again()",
    );
    proxy.lose_answer_to(&["gives back claims that were never started", "COMMIT"]);
    let flags = ["--worker", "w", "--concurrency", "1"];
    let tick = db.jobctl(["tick"]).args(flags).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
    gate.wait_for_starts(1);
    wait_until("the answer to be lost", || proxy.has_lost());
    gate.open();
    tick.wait().success().stderr_has("reconnecting");
    assert_eq!(db.query("SELECT run FROM gone_back"), "102");
    assert_eq!(db.of_run(102, "status, attempts"), "running|1");
}

#[test]
fn what_goes_back_unstarted_does_not_count_against_the_limit() {
    let db = TestDb::new();
    let gate = Gate::new();
    insert(&db, 100, ":");
    insert(&db, 40, &gate.script());
    let tick = db.jobctl(["tick", "--concurrency", "1", "--limit", "140"]).spawn();
    gate.wait_for_starts(1);
    wait_until("the rest to go back", || running(&db) == 1);
    gate.open();
    tick.wait().success();
    assert_eq!(db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"), "succeeded|1|140");
}

#[test]
fn any_number_of_lanes_have_their_turn_in_claims_that_stay_quick() {
    let db = TestDb::new();
    // Tens of thousands of lanes, most with runs of the future; the due runs are in the last ones.
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
    assert_eq!(db.query(due), "12");
    // No claim may take longer than a sixth of the lease.
    db.jobctl(["tick", "--lease", "1s", "--queue", "q5000"]).run().success();
    assert_eq!(db.query(due), "11");
    db.jobctl(["tick", "--lease", "1s"]).run().success();
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
        db.query("SELECT min(priority), max(priority) FROM jobctl.job_runs WHERE status = 'succeeded'"),
        "-999|-990"
    );
}
