//! `settle`: a dead run is closed, stays in the history, and is no longer reported.

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::support::{Role, TestDb, wait_until};

#[test]
fn settle_closes_dead_runs_and_refuses_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        let settled = db.jobctl(["settle", &id.to_string()]).run();
        if status == "dead" {
            settled.success().stdout(&format!("{id}\tsettled\n")).stderr("");
        } else {
            settled.exits(4).stdout("").stderr(&format!(
                "jobctl: cannot settle run {id}: its status is {status}; only dead runs can be \
                 settled\n"
            ));
        }
        let is_settled = if status == "dead" { "t" } else { "f" };
        let expected = format!("{status}|{is_settled}");
        assert_eq!(db.of_run(id, "status, settled_at IS NOT NULL"), expected);
    }
    // An unknown id.
    db.jobctl(["settle", "999999"]).run().exits(3);
    assert_eq!(db.query("SELECT action FROM jobctl.job_events"), "settle");
    // Even SQL can't settle the other runs.
    let update = "UPDATE jobctl.job_runs SET settled_at = now()";
    let refused = db.try_query(update).unwrap_err();
    assert!(format!("{refused:?}").contains("only_dead_is_settled"), "{refused:?}");
}

#[test]
fn a_settled_run_stays_in_the_history_and_is_not_reported() {
    let db = TestDb::new();
    let id = db.enqueue_script("exit 64").to_string();
    db.jobctl(["tick", "--quiet"]).run().success();
    db.jobctl(["check"]).run().exits(1).stdout_has("1 dead run");
    db.jobctl(["settle", &id, "--reason", "sent by hand"]).env("SUDO_USER", "ana").run().success();
    db.jobctl(["check"]).run().success().stdout("");
    db.jobctl(["check", "--max-dead", "0", "--max-dead-within", "1h"]).run().success();

    // Commands that report dead runs leave it out, except `list-dead --all`.
    for list_dead in [&["list-dead"][..], &["list-dead", "--group"]] {
        db.jobctl(list_dead.iter().copied()).run().success().stdout("");
        let all = db.jobctl(list_dead.iter().copied()).args(["--all"]).run().success();
        all.stdout_has("shell\t");
    }
    db.jobctl(["list-dead", "--all", "--format", "table"]).run().success().stdout_has("SETTLED");
    db.jobctl(["list-dead", "--format", "table"]).run().success().prints_nowhere("SETTLED");
    db.jobctl(["status", "--json"])
        .run()
        .success()
        .prints_nowhere("runs_dead")
        .prints_nowhere("\"dead_runs\":1");
    db.jobctl(["status", "--prometheus"]).run().success().prints_nowhere("status=\"dead\"} 1");
    db.jobctl(["doctor"]).run().stdout_has("no dead run needs attention");
    let report = db.jobctl(["report"]).run().success();
    report.stdout_has("All well.").prints_nowhere("jobctl list-dead --job");
    assert_eq!(db.query("SELECT * FROM jobctl.dead_runs"), "");

    // Commands that show single runs show it, with the reason and a way back.
    let list = db.jobctl(["list", "--status", "dead"]).run().success();
    assert!(list.stdout.starts_with(&format!("{id}\tshell\tdead\t")), "{list}");
    let shown = db.jobctl(["show", &id, "--format", "table"]).run().success();
    let shown = shown.stdout_has("status:      dead").stdout_has("settled:     2");
    let shown = shown.stdout_has("sent by hand").stdout_has("`jobctl retry ");
    shown.prints_nowhere("`jobctl settle ");

    // A second `settle` keeps the time of the first.
    let settled_at = db.of_run(id.parse().unwrap(), "settled_at");
    db.jobctl(["settle", &id]).run().success();
    assert_eq!(db.of_run(id.parse().unwrap(), "settled_at"), settled_at);
}

#[test]
fn settle_and_retry_by_filter_leave_settled_runs_out() {
    let db = TestDb::new();
    // Exit status 64 is a permanent failure: the runs are dead after one attempt.
    db.apply("[jobs.a]\nshell = 'exit 64'\n");
    let [first, second] = [(); 2].map(|()| db.enqueue(["a"]));
    db.jobctl(["tick", "--quiet"]).run().success();
    let other = enqueue_in_status(&db, "dead");
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["settle", "--job", "a"]).run().exits(2).stderr_has("need --all-dead");
    operator.jobctl(["settle", &first.to_string()]).run().success();
    // Neither command takes the run that is settled already.
    operator
        .jobctl(["settle", "--all-dead", "--yes", "--verbose", "--job", "a"])
        .run()
        .success()
        .stdout(&format!("{second}\tsettled\n"));
    operator
        .jobctl(["retry", "--all-dead", "--yes", "--verbose"])
        .run()
        .success()
        .stdout(&format!("{other}\tqueued\n"));

    // A retry by id takes a settled run. When it fails again, `list-dead` shows it again.
    operator.jobctl(["retry", &first.to_string()]).run().success();
    assert_eq!(db.of_run(first, "status, settled_at"), "queued|");
    db.jobctl(["tick", "--quiet"]).run().success();
    db.jobctl(["list-dead"]).run().success().stdout_has(&format!("{first}\ta\t"));
}

#[test]
fn a_run_that_dies_while_settle_waits_for_it_is_settled() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "running");
    let run = id.to_string();
    // Another session ends the run, and has not committed yet.
    let mut client = db.client();
    let mut other = client.transaction().unwrap();
    other
        .batch_execute(&format!(
            "UPDATE jobctl.job_runs SET status = 'dead', finished_at = now(), locked_by = NULL, \
             locked_until = NULL WHERE id = {id}"
        ))
        .unwrap();
    let settle = db.jobctl(["settle", &run]).spawn();
    wait_until("settle to wait for the row", || db.sessions_waiting_for_locks() == 1);
    other.commit().unwrap();
    settle.wait().success().stdout(&format!("{id}\tsettled\n"));
    assert_eq!(db.of_run(id, "settled_at IS NOT NULL"), "t");
}
