//! `forget` ends the reports about a worker that is gone for good.

use crate::support::{Gate, Role, TestDb};

/// Inserts a worker that ticked for nine days and stopped two days ago: `check` reports it.
fn insert_stopped_worker(db: &TestDb, worker: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         VALUES ('{worker}', '0.1.0', now() - interval '2 days', now() - interval '11 days')"
    ));
}

fn tick(db: &TestDb, worker: &str) {
    db.jobctl(["tick", "--worker", worker]).run().success();
}

#[test]
fn a_host_that_was_drained_for_good_leaves_no_alarm() {
    let db = TestDb::new();
    let operator = Role::granted(&db, "operator");
    // web2 ticks, and web1 has stopped. A queue has the name web1, too.
    tick(&db, "web2");
    insert_stopped_worker(&db, "web1");
    for target in [["--worker", "web1"], ["--worker", "web2"], ["--queue", "web1"]] {
        operator.jobctl(["hold"]).args(target).run().success();
    }
    // A hold that is older than a day is a problem.
    db.execute(
        "UPDATE jobctl.job_holds SET held_at = now() - interval '2 days' WHERE name = 'web1'
        AND scope = 'worker'",
    );
    db.jobctl(["check"])
        .run()
        .exits(1)
        .stdout_has("worker web1 is held by ")
        .stdout_has("`jobctl release --worker web1`, or `jobctl forget web1`");
    let forget = operator.jobctl(["forget", "web1", "--reason", "scrapped"]);
    forget.env("SUDO_USER", "ana").run().success().stdout("web1\tforgotten\n").stderr("");
    db.jobctl(["check"]).run().success().stdout("");
    // Only the hold of the worker web1 is gone.
    let holds = "SELECT scope, name FROM jobctl.job_holds ORDER BY 1";
    assert_eq!(db.query(holds), "queue|web1\nworker|web2");
    assert_eq!(
        db.query(
            "SELECT split_part(host_user, '@', 1), reason, detail FROM jobctl.job_events
             WHERE action = 'forget'"
        ),
        "ana|scrapped|worker web1"
    );
}

#[test]
fn a_held_worker_that_never_ticked_is_forgotten() {
    let db = TestDb::new();
    db.jobctl(["hold", "--worker", "web9"]).run().success();
    db.jobctl(["forget", "web9"]).run().success().stdout("web9\tforgotten\n").stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_holds"), "0");
    db.jobctl(["forget", "web9"]).run().exits(3).stderr_has("no worker with this name has ticked");
}

#[test]
fn a_worker_at_work_is_not_forgotten() {
    let db = TestDb::new();
    let gate = Gate::new();
    gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "web1"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["hold", "--worker", "web1"]).run().success();
    let refusal = "jobctl: cannot forget web1: it still ticks or holds runs; remove its crontab \
        line, and wait until its runs have ended\n";
    db.jobctl(["forget", "web1"]).run().exits(4).stdout("").stderr(refusal);
    // Without the claim right, the worker still holds its running run.
    db.execute("UPDATE jobctl.job_workers SET claiming_tick = NULL, claiming_until = NULL");
    db.jobctl(["forget", "web1"]).run().exits(4).stdout("").stderr(refusal);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_holds"), "1");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_events WHERE action = 'forget'"), "0");
    gate.open();
    tick.wait().success();

    // Now the worker holds no run. It still ticks until the claim right of its tick has ended.
    let give_claim_right_for = |time: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers
             SET claiming_tick = 't', claiming_until = now() + interval '{time}'"
        ));
    };
    give_claim_right_for("1 minute");
    db.jobctl(["forget", "web1"]).run().exits(4).stdout("").stderr(refusal);
    give_claim_right_for("-1 minute");
    let forget = db.jobctl(["forget", "web1"]).run().success().stdout("web1\tforgotten\n");
    forget.stderr_has("jobctl: web1 ticked ").stderr_has("its next tick starts runs again");
}

#[test]
fn a_dead_host_is_forgotten_while_its_lost_runs_wait() {
    let db = TestDb::new();
    insert_stopped_worker(&db, "web1");
    db.allow_running_runs_at_end();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         VALUES ('shell', 'running', 1, 'web1', now() - interval '2 days', now())",
    );
    db.jobctl(["forget", "web1"]).run().success();
}

#[test]
fn forget_needs_a_known_worker_and_an_operator() {
    let db = TestDb::new();
    insert_stopped_worker(&db, "web1");
    db.jobctl(["forget", "wbe1"]).run().exits(3).stdout("").stderr(
        "jobctl: cannot forget wbe1: no worker with this name has ticked; did you mean `web1`?\n",
    );
    db.jobctl(["forget", ""]).run().exits(2);
    for role in ["viewer", "worker"] {
        Role::granted(&db, role).jobctl(["forget", "web1"]).run().exits(7).complains_once();
    }
    assert_eq!(db.query("SELECT worker FROM jobctl.job_workers"), "web1");
}
