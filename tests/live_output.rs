//! The output of jobs that still run.

use rustix::process::Signal;

use crate::support::{Gate, Proxy, TestDb, wait_until};
use crate::wait::has_ended_a_transaction;

/// Enqueues a run that prints two lines, waits at the gate, and prints a third.
fn enqueue_that_prints_around_gate(db: &TestDb, gate: &Gate) -> i64 {
    let script = format!("printf 'one\\ntwo\\377\\0\\n'\n{}\necho three >&2", gate.script());
    db.enqueue_script(&script)
}

fn wait_for_output(db: &TestDb, id: i64) {
    wait_until("the output", || db.of_run(id, "live_output IS NOT NULL") == "t");
}

#[test]
fn a_running_job_shows_what_it_has_printed() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = enqueue_that_prints_around_gate(&db, &gate);
    let run = id.to_string();
    // A heartbeat stores the output, so a short lease shows it early.
    let follow = db.jobctl(["show", &run, "--output", "--follow"]).spawn();
    let tick = db.jobctl(["tick", "--lease", "2s"]).spawn();
    wait_for_output(&db, id);
    // The bytes 0xFF and 0 become U+FFFD.
    db.jobctl(["show", &run, "--output"]).run().success().stdout("one\ntwo\u{fffd}\u{fffd}\n");
    db.jobctl(["show", &run, "--output", "--attempt", "1"]).run().success().stdout_has("one\n");
    db.jobctl(["show", &run, "--format", "table"])
        .run()
        .success()
        .stdout_has("output so far\n    one\n    two");
    // After the end, the output is that of the attempt.
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, live_output IS NULL"), "succeeded|t");
    follow.wait().success().stderr("").stdout("one\ntwo\u{fffd}\u{fffd}\n--- stderr ---\nthree\n");
}

#[test]
fn an_output_is_followed_through_an_outage() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = enqueue_that_prints_around_gate(&db, &gate);
    let tick = db.jobctl(["tick", "--lease", "2s"]).spawn();
    wait_for_output(&db, id);
    let proxy = Proxy::to(&db);
    let run = id.to_string();
    let follow = db.jobctl(["show", &run, "--output", "--follow"]).env("PGAPPNAME", "follows");
    let follow = follow.through(&proxy).spawn();
    wait_until("the command to follow", || has_ended_a_transaction(&db, "follows"));
    proxy.cut();
    let before = proxy.connections();
    wait_until("the command to connect again", || proxy.connections() > before);
    // The job ends during the outage. The tick does not use the proxy.
    gate.open();
    tick.wait().success();
    proxy.restore();
    let followed = follow.wait().success().stderr_has("waiting for the database: ");
    assert!(followed.stdout.ends_with("three\n"), "{followed}");
}

#[test]
fn the_output_of_a_lost_attempt_is_kept() {
    // The next tick recovers the run of the killed tick, or an operator forces a retry.
    for force in [false, true] {
        let db = TestDb::new();
        let gate = Gate::new();
        let id = enqueue_that_prints_around_gate(&db, &gate);
        let tick = db.jobctl(["tick", "--lease", "2s"]).spawn();
        wait_for_output(&db, id);
        tick.signal(Signal::KILL);
        tick.wait();
        if force {
            db.jobctl(["retry", "--force", &id.to_string()]).run().success();
        } else {
            db.expire_leases();
            db.jobctl(["tick"]).run().success();
        }
        // The job may have printed more later, so the output counts as truncated.
        assert_eq!(
            db.of_attempt(id, 1, "output, output_bytes, output_truncated"),
            "one\ntwo\u{fffd}\u{fffd}\n|14|t"
        );
        assert_eq!(db.of_run(id, "live_output IS NULL"), "t");
    }
}

/// Runs a job that prints, in a tick with this lease. Asserts that the lease is renewed so many
/// times before the job goes on, and that the job succeeds at its first attempt.
#[track_caller]
fn assert_lease_is_renewed(db: &TestDb, lease: &str, renewals: u32) {
    let gate = Gate::new();
    let id = enqueue_that_prints_around_gate(db, &gate);
    let tick = db.jobctl(["tick", "--lease", lease]).spawn();
    gate.wait_for_starts(1);
    db.wait_for_renewals(id, renewals);
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn the_lease_of_a_job_is_renewed_even_if_the_database_rejects_its_output() {
    let db = TestDb::new();
    db.execute("ALTER TABLE jobctl.job_runs ADD CONSTRAINT no_output CHECK (live_output IS NULL)");
    let (lease, renewals) = ("2s", 3);
    assert_lease_is_renewed(&db, lease, renewals);
}

#[test]
fn jobs_that_print_more_than_a_statement_stores_take_turns() {
    let db = TestDb::new();
    let gate = Gate::new();
    // 40 jobs print 9,000 bytes each, again and again. The outputs of a statement have at most
    // 256 KiB.
    let print = "while kill -0 $gate 2>/dev/null; do printf %9000s x; sleep 0.2; done";
    let script = format!("{{ {}\n}} & gate=$!\n{print}", gate.script());
    for _ in 0..40 {
        db.enqueue_script(&script);
    }
    let tick = db.jobctl(["tick", "--lease", "2s", "--concurrency", "40"]).spawn();
    let stored = "SELECT count(live_output) = 40 FROM jobctl.job_runs";
    wait_until("the output of all jobs", || db.query(stored) == "t");
    gate.open();
    tick.wait().success();
}

#[test]
fn other_outputs_are_stored_if_one_is_rejected() {
    let db = TestDb::new();
    db.execute("ALTER TABLE jobctl.job_runs ADD CONSTRAINT plain CHECK (live_output <> E'bad\\n')");
    let gate = Gate::new();
    // The constraint rejects the outputs of two of five jobs.
    let ids = ["good", "bad", "good", "good", "bad"]
        .map(|word| (word, db.enqueue_script(&format!("echo {word}\n{}", gate.script()))));
    let tick = db.jobctl(["tick", "--lease", "3s", "--concurrency", "5"]).spawn();
    gate.wait_for_starts(5);
    for (word, id) in ids {
        if word == "good" {
            wait_for_output(&db, id);
        } else {
            db.wait_for_renewals(id, 2);
        }
    }
    gate.open();
    tick.wait().success();
    for (_, id) in ids {
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    }
}

#[test]
fn the_lease_of_a_job_is_renewed_even_if_its_output_is_slow_to_store() {
    let db = TestDb::new();
    // To store an output takes 60 s. A tick that waited for it would lose its lease of 9 s.
    db.execute(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.live_output IS DISTINCT FROM OLD.live_output)
             EXECUTE FUNCTION public.slow()",
    );
    let (lease, renewals) = ("9s", 2);
    assert_lease_is_renewed(&db, lease, renewals);
}

#[test]
fn an_output_that_a_heartbeat_could_not_store_in_a_locked_row_is_sent_again() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = enqueue_that_prints_around_gate(&db, &gate);
    let tick = db.jobctl(["tick", "--lease", "6s"]).spawn();
    gate.wait_for_starts(1);
    let mut client = db.client();
    let lock = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {id} FOR UPDATE");
    client.batch_execute(&lock).unwrap();
    // The first heartbeat comes after 2 s, a third of the lease, and skips the locked row.
    let late = "now() - started_at > interval '3 seconds'";
    wait_until("the heartbeat to be over", || db.of_run(id, late) == "t");
    client.batch_execute("ROLLBACK").unwrap();
    wait_for_output(&db, id);
    gate.open();
    tick.wait().success();
}

#[test]
fn a_job_goes_on_if_the_database_falls_silent_while_its_output_is_stored() {
    let (db, gate) = (TestDb::new(), Gate::new());
    let proxy = Proxy::to(&db);
    let id = enqueue_that_prints_around_gate(&db, &gate);
    // The server gets the statement with this comment, but its answer does not pass the proxy.
    proxy.freeze_after("Stores what running jobs have printed");
    let url = proxy.url();
    let tick = db.jobctl(["tick", "--lease", "12s"]).env("JOBCTL_DATABASE_URL", &url).spawn();
    wait_until("the output to be sent", || proxy.is_frozen());
    let connections = proxy.connections();
    wait_until("the tick to connect again", || proxy.connections() > connections);
    proxy.restore();
    wait_for_output(&db, id);
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}
