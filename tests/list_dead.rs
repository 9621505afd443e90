//! The output of `list-dead` in each format.

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::retry::answer_at_terminal;
use crate::support::{TestDb, temp_dir};

/// Inserts a run that was marked dead at this second after 08:00. `more` is empty, or SQL such as
/// `, queue = 'mail'` that sets further columns.
fn insert_dead(db: &TestDb, second: u32, more: &str) -> i64 {
    let id = enqueue_in_status(db, "dead");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET finished_at = '2026-01-31 08:00:{second:02}+00', failed_at = \
         '2026-01-31 08:00:{second:02}+00', \
         created_at = '2026-01-31 07:00:00+00', attempts = 3, max_attempts = 5 {more} WHERE id = \
         {id}"
    ));
    id
}

#[test]
fn an_empty_list_prints_no_line_or_an_empty_json_array() {
    let db = TestDb::new();
    db.jobctl(["list-dead"]).run().success().stdout("").stderr("");
    db.jobctl(["list-dead", "--json"]).run().success().stdout("[]\n").stderr("");
}

#[test]
fn only_dead_runs_are_listed() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids = STATUSES.map(|status| (status, enqueue_in_status(&db, status)));
    let finished = db.jobctl(["list-dead"]).run().success();
    let listed: Vec<_> =
        finished.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    let dead =
        ids.iter().find(|(status, _)| *status == "dead").map(|(_, id)| id.to_string()).unwrap();
    assert_eq!(listed, [dead]);
}

#[test]
fn list_dead_shows_the_latest_death_first() {
    let db = TestDb::new();
    // They died at the seconds 2, 1 and 3.
    let first = insert_dead(&db, 2, ", error_type = 'exit_code', last_error = 'exit status 3'");
    let second = insert_dead(&db, 1, "");
    let third = insert_dead(
        &db,
        3,
        ", job_type = 'http', error_type = 'http_status', last_error = 'HTTP status 404'",
    );
    let login = db.query("SELECT session_user");
    let times = |second| {
        let died = format!("2026-01-31T08:00:0{second}.000000Z");
        format!("{died}\t{died}\t\t2026-01-31T07:00:00.000000Z\t\t\t{login}\n")
    };
    let lines = [
        format!("{third}\thttp\tdefault\t3\t5\thttp_status\tHTTP status 404\t\t{}", times(3)),
        format!("{first}\tshell\tdefault\t3\t5\texit_code\texit status 3\t\t{}", times(2)),
        format!("{second}\tshell\tdefault\t3\t5\t\t\t\t{}", times(1)),
    ];
    db.jobctl(["list-dead"]).run().success().stdout(&lines.concat()).stderr("");
    // A limit below and above the number of dead runs.
    db.jobctl(["list-dead", "--limit", "2"]).run().success().stdout(&lines[..2].concat());
    db.jobctl(["list-dead", "--limit", "4"]).run().success().stdout(&lines.concat());
}

#[test]
fn json_has_every_column_with_null_for_a_missing_value() {
    let db = TestDb::new();
    // One run has all values. The other one died earlier and lacks what may be missing.
    let id = insert_dead(
        &db,
        1,
        ", queue = 'mail', idempotency_key = 'k', error_type = 'signal', last_error = 'killed by \
         signal 9'",
    );
    let other = insert_dead(&db, 0, "");
    db.execute(&format!("UPDATE jobctl.job_runs SET failed_at = NULL WHERE id = {other}"));
    let login = db.query("SELECT session_user");
    let finished = db.jobctl(["list-dead", "--json"]).run().success().stderr("");
    let expected = serde_json::json!([
        {
            "id": id, "job_type": "shell", "queue": "mail", "attempts": 3, "max_attempts": 5,
            "error_type": "signal",
            "last_error": "killed by signal \
                9", "idempotency_key": "k", "failed_at": "2026-01-31T08:00:01.000000Z",
            "finished_at": "2026-01-31T08:00:01.000000Z", "settled_at": null,
            "created_at": "2026-01-31T07:00:00.000000Z", "share": null, "worker": null,
            "enqueued_by": login, "last_line": null,
        },
        {
            "id": other, "job_type": "shell", "queue": "default", "attempts": 3, "max_attempts": 5,
            "error_type": null,
            "last_error": null, "idempotency_key": null, "failed_at": null,
            "finished_at": "2026-01-31T08:00:00.000000Z", "settled_at": null,
            "created_at": "2026-01-31T07:00:00.000000Z", "share": null, "worker": null,
            "enqueued_by": login, "last_line": null,
        },
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap(), expected);
    assert_eq!(finished.stdout.lines().count(), 1);
}

/// An attacker's name or error: clear the screen, a link, a BEL, a forged line, a change of text
/// direction, an 8-bit control character.
pub const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]8;;http://x\u{7}\r\n7\tforged\u{202e}\u{9b}2J\u{7f}\u{2028}";
/// How jobctl prints `HOSTILE`.
pub const HARMLESS: &str =
    r"\u{1b}[2J\u{1b}]8;;http://x\u{7}\r\n7\tforged\u{202e}\u{9b}2J\u{7f}\u{2028}";

/// Inserts a run whose text columns are all hostile.
fn insert_hostile(db: &TestDb) -> i64 {
    let id = enqueue_in_status(db, "dead");
    let mut client = db.client();
    let update =
        "UPDATE jobctl.job_runs SET job_type = $1, last_error = $1, error_type = $1 WHERE id = $2";
    client.execute(update, &[&HOSTILE, &id]).unwrap();
    id
}

#[test]
fn control_characters_are_escaped() {
    let db = TestDb::new();
    let id = insert_hostile(&db);
    let list = db.jobctl(["list-dead"]).run().success();
    let start = format!("{id}\t{HARMLESS}\tdefault\t1\t10\t{HARMLESS}\t{HARMLESS}\t\t");
    assert!(list.stdout.starts_with(&start) && list.stdout.lines().count() == 1, "{list}");
    // JSON escapes them, too, and a program reads the original text.
    let finished = db.jobctl(["list-dead", "--json"]).run().success();
    let is_shown = |c: char| !c.is_control() && !"\u{202e}\u{2028}".contains(c);
    assert!(finished.stdout.trim_end_matches('\n').chars().all(is_shown), "{finished}");
    let json: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(json[0]["job_type"], HOSTILE);
}

#[test]
fn a_log_record_stays_one_line_for_any_job_name() {
    let db = TestDb::new();
    // No definition has this name, so the tick logs that the run is dead.
    db.execute("INSERT INTO jobctl.job_runs (job_type) VALUES (E'no\\nsuch\\x1b[2Jjob')");
    let finished = db.jobctl(["tick"]).run().success().stdout("");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
    assert!(finished.stderr.contains(r"no\nsuch\u{1b}[2Jjob"), "{finished}");
    assert_eq!(db.query("SELECT status FROM jobctl.job_runs"), "dead");
}

#[test]
fn a_terminal_shows_an_aligned_table() {
    let db = TestDb::new();
    let id = insert_dead(&db, 1, ", error_type = 'exit_code', last_error = 'exit status 3'");
    insert_hostile(&db);
    let directory = temp_dir();
    let typescript = directory.path().join("typescript");
    let script =
        "script -qec \"stty cols 200; '$jobctl' list-dead\" \"$typescript\" </dev/null >/dev/null";
    db.script(script).env("typescript", typescript.to_str().unwrap()).run().success();
    let shown = std::fs::read_to_string(typescript).unwrap();
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    let header = lines
        .iter()
        .position(|line| line.contains("ATTEMPTS"))
        .unwrap_or_else(|| panic!("{shown}"));
    // Columns are two blanks apart.
    let words = |line: &str| {
        line.split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(lines[header]),
        ["ID", "JOB", "ATTEMPTS", "DIED AT", "ERROR TYPE", "ERROR", "LAST LINE"]
    );
    let row = lines.iter().find(|line| line.contains("exit status 3")).unwrap();
    assert_eq!(
        words(row),
        [&id.to_string(), "shell", "3/5", "2026-01-31T08:00:01Z", "exit_code", "exit status 3"]
    );
    assert_eq!(row.find("3/5"), lines[header].find("ATTEMPTS"));
    // The texts of the other run can't send escape sequences or change the direction of the text.
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
}

#[test]
fn a_terminal_notes_further_dead_runs_and_groups() {
    let db = TestDb::new();
    // Two dead runs with different error types, so two groups.
    insert_dead(&db, 1, ", error_type = 'timeout'");
    insert_dead(&db, 2, "");
    for (form, which) in [("", "latest"), ("--group", "most frequent")] {
        let says =
            |limit| answer_at_terminal(&db, &format!("list-dead {form} --limit {limit}"), "").0;
        let hint = format!("jobctl: these are the {which} 1; --limit shows more");
        let one = says(1);
        assert!(one.contains(&hint), "{one}");
        assert!(!says(2).contains("these are"), "{form}");
    }
}

#[test]
fn groups_count_dead_runs_by_job_and_error_type() {
    let db = TestDb::new();
    db.jobctl(["list-dead", "--group"]).run().success().stdout("").stderr("");
    db.jobctl(["list-dead", "--group", "--json"]).run().success().stdout("[]\n").stderr("");
    let timeout =
        ", job_type = 'report', error_type = 'timeout', last_error = 'timed out after 5s'";
    let failed = insert_dead(
        &db,
        7,
        ", job_type = 'report', error_type = 'exit_code', last_error = 'exit status 1'",
    );
    let last = insert_dead(&db, 2, timeout);
    insert_dead(&db, 1, &timeout.replace("5s", "6s"));
    let unknown = insert_dead(&db, 3, "");
    enqueue_in_status(&db, "cancelled");
    // The columns are job, error type, count, first and last death, id and error. Id and error are
    // those of the latest death, and not of the newest run.
    let line = format!(
        "report\ttimeout\t2\t2026-01-31T08:00:01.000000Z\t2026-01-31T08:00:02.000000Z\t{last}\t\
         timed out after 5s\n"
    );
    let other = format!(
        "report\texit_code\t1\t2026-01-31T08:00:07.000000Z\t2026-01-31T08:00:07.000000Z\t{failed}\t\
         exit status 1\n"
    );
    let rare = format!(
        "shell\t\t1\t2026-01-31T08:00:03.000000Z\t2026-01-31T08:00:03.000000Z\t{unknown}\n"
    );
    db.jobctl(["list-dead", "--group"])
        .run()
        .success()
        .stdout(&format!("{line}{other}{rare}"))
        .stderr("");
    db.jobctl(["list-dead", "--group", "--limit", "1"]).run().success().stdout(&line);
    // Only deaths of these seconds count: one of the two timeouts, and the run without an error.
    let within = ["--since", "2026-01-31T08:00:02Z", "--until", "2026-01-31T08:00:07Z"];
    let finished = db.jobctl(["list-dead", "--group", "--json"]).args(within).run().success();
    let expected = serde_json::json!([
        {
            "job_type": "shell", "error_type": null, "runs": 1,
            "first_finished_at": "2026-01-31T08:00:03.000000Z",
            "last_finished_at": "2026-01-31T08:00:03.000000Z", "newest_id": unknown,
            "last_error": null, "last_line": null,
        },
        {
            "job_type": "report", "error_type": "timeout", "runs": 1,
            "first_finished_at": "2026-01-31T08:00:02.000000Z",
            "last_finished_at": "2026-01-31T08:00:02.000000Z", "newest_id": last,
            "last_error": "timed out after 5s", "last_line": null,
        },
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap(), expected);
}
