//! Commands for many runs: one run that can't be changed does not stop the others.

use postgres::Client;

use crate::cancel::enqueue_in_status;
use crate::support::{TestDb, wait_until};

/// The commands for many runs, with a status in which they change a run.
const COMMANDS: [(&[&str], &str); 5] = [
    (&["cancel"], "queued"),
    (&["retry"], "dead"),
    (&["settle"], "dead"),
    (&["edit", "--priority", "5"], "queued"),
    (&["prune"], "dead"),
];

/// The commands for all runs that match.
const COMMANDS_FOR_ALL: [(&[&str], &str); 4] = [
    (&["cancel", "--all", "--yes"], "queued"),
    (&["retry", "--all-dead", "--yes"], "dead"),
    (&["settle", "--all-dead", "--yes"], "dead"),
    (&["edit", "--all-waiting", "--priority", "5", "--yes"], "queued"),
];

/// Makes the database reject each change and the deletion of the runs that match a condition on
/// `OLD`.
pub fn reject_changes_of(db: &TestDb, runs: &str) {
    db.execute(&format!(
        "CREATE OR REPLACE FUNCTION reject_changes_of() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE ''run % is kept'', OLD.id; END';
         DROP TRIGGER IF EXISTS reject ON jobctl.job_runs;
         CREATE TRIGGER reject BEFORE UPDATE OR DELETE ON jobctl.job_runs FOR EACH ROW
             WHEN ({runs}) EXECUTE FUNCTION reject_changes_of()"
    ));
}

fn stop_rejecting(db: &TestDb) {
    db.execute("DROP TRIGGER reject ON jobctl.job_runs");
}

/// Deletes all runs, then enqueues five in this status and returns their ids.
fn replace_all_by_five_runs(db: &TestDb, status: &str) -> Vec<String> {
    db.execute("DELETE FROM jobctl.job_runs");
    (0..5).map(|_| enqueue_in_status(db, status).to_string()).collect()
}

#[test]
fn a_rejected_run_is_named_and_the_others_change() {
    let db = TestDb::new();
    for (command, status) in COMMANDS {
        let runs = replace_all_by_five_runs(&db, status);
        reject_changes_of(&db, &format!("OLD.id = {}", runs[2]));
        let finished = db.jobctl(command.iter().copied()).args(runs.iter().map(|id| &**id));
        let finished = finished.run().exits(1);
        let (verb, bad) = (command[0], &runs[2]);
        let finished =
            finished.stderr(&format!("jobctl: cannot {verb} run {bad}: run {bad} is kept\n"));
        let changed: Vec<_> =
            finished.stdout.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(changed, [&runs[0], &runs[1], &runs[3], &runs[4]], "{command:?}");
        stop_rejecting(&db);
    }
}

#[test]
fn a_rejected_run_does_not_stop_a_command_for_all_runs() {
    let db = TestDb::new();
    for (command, status) in COMMANDS_FOR_ALL {
        let runs = replace_all_by_five_runs(&db, status);
        reject_changes_of(&db, &format!("OLD.id IN ({}, {})", runs[0], runs[4]));
        let finished = db.jobctl(command.iter().copied()).run().exits(1);
        // It prints the number of changed runs: all but the first and the last of five.
        assert!(finished.stdout.ends_with("\t3\n"), "{command:?}: {finished}");
        for bad in [&runs[0], &runs[4]] {
            let verb = command[0];
            let line = format!("jobctl: cannot {verb} run {bad}: run {bad} is kept\n");
            assert!(finished.stderr.contains(&line), "{command:?}: {finished}");
        }
        stop_rejecting(&db);
    }
}

#[test]
fn a_command_sends_a_statement_that_takes_too_long_again_for_fewer_runs() {
    let db = TestDb::new();
    // As if each run took a tenth of the time limit, a statement for more than ten runs is ended.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": \"true\"}' FROM generate_series(1, 50);
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF (SELECT count(*) FROM changed) > 10 THEN
                 RAISE 'canceling statement due to statement timeout' USING ERRCODE = '57014';
             END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER slow AFTER UPDATE ON jobctl.job_runs
             REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    );
    db.jobctl(["cancel", "--all", "--yes"]).run().success().stdout("cancelled\t50\n").stderr("");
}

/// Locks a run's row until the returned client is dropped. `lock` is the strength, such as
/// `UPDATE`.
fn hold_row_lock(db: &TestDb, id: &str, lock: &str) -> Client {
    let mut other = db.client();
    let statement = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {id} FOR {lock}");
    other.batch_execute(&statement).unwrap();
    other
}

#[test]
fn a_locked_run_is_named_and_the_others_change() {
    let db = TestDb::new();
    for (command, status) in COMMANDS {
        let runs = replace_all_by_five_runs(&db, status);
        let other = hold_row_lock(&db, &runs[2], "NO KEY UPDATE");
        let finished = db.jobctl(command.iter().copied()).args(runs.iter().map(|id| &**id));
        let finished = finished.run().exits(4);
        let (verb, locked) = (command[0], &runs[2]);
        let finished = finished.stderr(&format!(
            "jobctl: cannot {verb} run {locked}: another transaction has locked it; try again\n"
        ));
        assert_eq!(finished.stdout.lines().count(), 4, "{command:?}: {finished}");
        drop(other);
    }
}

#[test]
fn cancel_all_does_not_wait_for_a_transaction_that_enqueues_a_run() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    // The application's transaction replaces this run, so it locks the run's row.
    let live = ["--key", "k", "--key-scope", "live"];
    let replaced = db.enqueue(["a"].into_iter().chain(live));
    for _ in 0..5 {
        db.enqueue(["a"]);
    }
    let mut application = db.client();
    let replace = "BEGIN; SELECT jobctl.enqueue('a', '[2]', key => 'k', key_scope => 'live', \
                   on_conflict => 'replace')";
    application.batch_execute(replace).unwrap();
    let cancel = || db.jobctl(["cancel", "--all", "--yes"]).run();
    let why = "another transaction has locked it; try again";
    let finished = cancel().exits(4);
    finished
        .stdout("cancelled\t5\n")
        .stderr(&format!("jobctl: cannot cancel run {replaced}: {why}\n"));
    db.jobctl(["cancel", "--json", &replaced.to_string()]).run().exits(4).stdout(&format!(
        "[{{\"id\":{replaced},\"result\":\"locked\",\"why_not_changed\":\"{why}\"}}]\n"
    ));
    application.batch_execute("COMMIT").unwrap();
    cancel().success().stdout("cancelled\t1\n");
}

#[test]
fn a_command_waits_for_a_run_that_is_locked_for_a_moment() {
    let db = TestDb::new();
    let runs = replace_all_by_five_runs(&db, "queued");
    let mut other = hold_row_lock(&db, &runs[2], "UPDATE");
    let cancel = db.jobctl(["cancel", "--all", "--yes"]).spawn();
    wait_until("the command to wait for the run", || db.sessions_waiting_for_locks() == 1);
    // The others are cancelled already.
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'"), "1");
    other.batch_execute("COMMIT").unwrap();
    cancel.wait().success().stdout("cancelled\t5\n");
}
