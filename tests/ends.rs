//! Ends of attempts and runs: jobctl.end_runs writes what docs/internals/architecture.md says.

use std::fs;

use crate::docs::root;
use crate::support::TestDb;

/// The columns of the table after its first three: the way, its caller, and the status before.
const COLUMNS: [&str; 8] =
    ["status", "run_at", "error", "failed_at", "counters", "history", "figures", "followers"];

/// Returns examples of a way in which runs end: columns of run 1 before its end, as SQL for UPDATE
/// SET, and more arguments of jobctl.end_runs. Some examples end the run, and others let it wait
/// again, if this way can.
fn scenarios(way: &str) -> Vec<(&'static str, &'static str)> {
    const CLAIM: &str = "workers => '{w}', attempt_numbers => '{1}', claim_times => \
                         ARRAY[(SELECT started_at FROM jobctl.job_runs WHERE id = 1)], \
                         started_ago => '{5}'";
    const FAILED: &str = "next_statuses => '{failed}', next_attempt_in => '{60}', outcomes => \
                          '{failed}', error_types => '{exit_code}', errors => '{broken}'";
    const INTERRUPTED: &str = "next_statuses => '{queued}', next_attempt_in => '{60}', outcomes => \
                               '{interrupted}', error_types => '{interrupted}', errors => '{cut}'";
    const DONE: &str = "next_statuses => '{succeeded}', outcomes => '{succeeded}'";
    const LOST: &str = "next_attempt_in => '{60}', errors => '{lost}'";
    let claim = |set, more: &[&str]| (set, [&[CLAIM], more].concat().join(", ").leak() as &str);
    match way {
        "result" => vec![
            claim("", &[FAILED]),
            claim("", &[INTERRUPTED]),
            claim("", &[DONE]),
            claim("cancel_requested_at = now()", &[FAILED]),
        ],
        "lost" => vec![
            claim("locked_until = now() - interval '1 s'", &[LOST]),
            claim("locked_until = now() - interval '1 s', key_scope = 'replaced'", &[LOST]),
        ],
        "release" => vec![claim("", &[]), claim("cancel_requested_at = now()", &[])],
        "expired" => vec![("expires_at = now()", "")],
        // The run is blocked, or queued.
        "dropped" | "cancel" => vec![("", ""), ("status = 'queued'", "")],
        "unreadable" => vec![("", "errors => '{damaged}'")],
        "predecessor" => vec![("", "errors => '{run 9 is dead}'")],
        _ => vec![("", "")],
    }
}

/// Ends run 1, for which run 2 waits, and returns which of the columns have changed.
fn changes(way: &str, from: &str, set: &str, arguments: &str) -> [bool; 8] {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n");
    let state = match from {
        "the claim" => {
            "status = 'running', attempts = 1, locked_by = 'w', started_at = now(), \
             locked_until = now() + interval '1 min'"
        }
        "blocked" | "waiting" => "status = 'blocked'",
        _ => "status = 'queued'",
    };
    // `priority = 0` changes nothing.
    let set = if set.is_empty() { "priority = 0" } else { set };
    let arguments = if arguments.is_empty() { String::new() } else { format!(", {arguments}") };
    // The values of COLUMNS, in their order.
    let seen = "SELECT jsonb_build_array(
            status, run_at, ARRAY[last_error, error_type], failed_at,
            ARRAY[attempts, uncounted_attempts, snoozed_attempts],
            (SELECT count(*) FROM jobctl.job_attempts),
            (SELECT count(*) FROM jobctl.job_figures),
            (SELECT state FROM jobctl.job_dependencies)
        ) FROM jobctl.job_runs WHERE id = 1";
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (id, job_type, run_at) VALUES (1, 'a', now() - interval '1 h');
         INSERT INTO jobctl.job_runs (id, job_type, status) VALUES (2, 'mail', 'blocked');
         INSERT INTO jobctl.job_dependencies (run_id, after_id) VALUES (2, 1);
         UPDATE jobctl.job_runs SET {state} WHERE id = 1;
         UPDATE jobctl.job_runs SET {set} WHERE id = 1"
    ));
    let read = || serde_json::from_str::<[serde_json::Value; 8]>(&db.query(seen)).unwrap();
    let before = read();
    let ended = format!("SELECT ids FROM jobctl.end_runs('{way}', '{{1}}'{arguments})");
    assert_eq!(db.query(&ended), "{1}", "{way}");
    let after = read();
    std::array::from_fn(|column| before[column] != after[column])
}

#[test]
fn end_runs_writes_what_the_table_of_the_architecture_says() {
    let text = fs::read_to_string(root().join("docs/internals/architecture.md")).unwrap();
    let table = text.split_once("## Ends").unwrap().1.split_once("\n\n- ").unwrap().0;
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut ways = 0;
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (way, from) = (cells[0].trim_matches('`'), cells[2].split(',').next().unwrap());
        let seen: Vec<_> = scenarios(way)
            .into_iter()
            .map(|(set, arguments)| changes(way, from, set, arguments))
            .collect();
        for (at, column) in COLUMNS.iter().enumerate() {
            let cell = cells[at + 3];
            // Whether some examples changed the column, and whether all did.
            let (any, all) = (seen.iter().any(|it| it[at]), seen.iter().all(|it| it[at]));
            // An empty cell says that no end changes the column, and a condition that some do.
            let is_always = cell == "always" || cell == "a row" || cell.starts_with('`');
            let is_true = match cell {
                "" => !any,
                _ if is_always => all,
                _ => any,
            };
            assert!(is_true, "{way}: {column} is `{cell}` in the table; changed: {any} {all}");
        }
        ways += 1;
    }
    assert_eq!(ways, 8);
}
