//! The interfaces that programs rely on: every field of JSON and TSV, with its type. The expected
//! text is in `interfaces.txt`; `UPDATE_INTERFACES=1` updates it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::TestDb;

/// Fields by name, each with its types.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// The text to compare with `interfaces.txt`.
struct Interfaces<'db> {
    db: &'db TestDb,
    text: String,
}

impl Interfaces<'_> {
    fn json(&self, line: &str) -> String {
        let words = line.split(' ').chain(["--json"]);
        self.db.jobctl(words).run().stdout
    }

    /// Adds all fields that at least one of these command lines prints.
    fn rows(&mut self, name: &str, lines: &[&str]) {
        let mut shape = Shape::new();
        let mut raw = String::new();
        for line in lines {
            raw = self.json(line);
            match serde_json::from_str(&raw).unwrap_or_else(|_| panic!("{line}: {raw}")) {
                Value::Array(rows) => rows.iter().for_each(|row| add(&mut shape, row)),
                row => add(&mut shape, &row),
            }
        }
        self.text += &format!("\njobctl {name}\n{}", show(&shape, &raw));
    }

    /// Adds a line of text.
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text += "\n";
    }

    /// Asserts that the TSV header has the fields of the JSON.
    fn assert_same_in_tsv(&self, line: &str) {
        let words = line.split(' ').chain(["--format", "tsv", "--header"]);
        let tsv = self.db.jobctl(words).run().stdout;
        let json: Value = serde_json::from_str(&self.json(line)).unwrap();
        let row = json.get(0).unwrap_or(&json).as_object().unwrap();
        let header: BTreeSet<_> = tsv.lines().next().unwrap_or_default().split('\t').collect();
        assert_eq!(header, row.keys().map(String::as_str).collect(), "{line}");
        assert!(tsv.lines().all(|line| !line.ends_with('\t')), "{tsv}");
    }
}

/// Adds the fields of a row with their types. Asserts that the names of times end as they must.
fn add(shape: &mut Shape, row: &Value) {
    for (field, value) in row.as_object().unwrap_or_else(|| panic!("{row}")) {
        let Some(kind) = kind(value) else { continue };
        let is_time = ["_at", "_until", "_for"].iter().any(|suffix| field.ends_with(suffix));
        assert!(
            kind == "null" || is_time == (kind == "time") || field == "now",
            "{field}: {value}"
        );
        shape.entry(field.clone()).or_default().insert(kind);
    }
}

/// Returns the type; an empty array has none.
fn kind(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(text) if is_time(text) => "time",
        Value::String(_) => "string",
        Value::Array(values) if values.is_empty() => return None,
        Value::Array(values) if values.iter().all(Value::is_string) => "array of strings",
        Value::Array(values) if values.iter().all(Value::is_i64) => "array of integers",
        Value::Array(_) => "array of objects",
        Value::Object(_) => "object",
    })
}

/// RFC 3339 in UTC with six digits of a second.
fn is_time(text: &str) -> bool {
    let pattern = "0000-00-00T00:00:00.000000Z";
    let fits = |(c, p): (char, char)| if p == '0' { c.is_ascii_digit() } else { c == p };
    text.len() == pattern.len() && text.chars().zip(pattern.chars()).all(fits)
}

/// Returns a line for each field, in the order of the JSON text.
fn show(shape: &Shape, raw: &str) -> String {
    let mut fields: Vec<_> = shape.iter().collect();
    fields.sort_by_key(|(field, _)| raw.find(&format!("\"{field}\":")));
    let line = |(field, kinds): (&String, &BTreeSet<&str>)| {
        // `null` comes last.
        let mut kinds: Vec<_> = kinds.iter().copied().collect();
        kinds.sort_by_key(|kind| *kind == "null");
        format!("  {field}: {}\n", kinds.join(" or "))
    };
    fields.into_iter().map(line).collect()
}

/// Adds the shape of the objects in a field.
fn nested(interfaces: &mut Interfaces<'_>, name: &str, line: &str, field: &str) {
    let raw = interfaces.json(line);
    let value: Value = serde_json::from_str(&raw).unwrap();
    let mut shape = Shape::new();
    value[field].as_array().unwrap().iter().for_each(|row| add(&mut shape, row));
    // `show` orders the fields by their place in the text, which begins with this field.
    let from = raw.find(&format!("\"{field}\":")).unwrap();
    interfaces.text += &format!("\njobctl {name}, each of {field}\n{}", show(&shape, &raw[from..]));
}

/// Inserts runs, attempts and workers. Every nullable field is null in one row and set in another.
/// The runs 1 and 2 are running, 3 and 4 are dead, 5 has succeeded, and 6 is overdue.
fn insert_sample_rows(db: &TestDb) {
    db.apply(
        "[jobs.nightly]\nshell = 'true'\nschedule = '0 2 * * *'\ntimeout = '1m'\n\
         [jobs.paused]\nshell = 'true'\nschedule = '0 3 * * *'\n[jobs.plain]\nshell = 'true'\n",
    );
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, queues)
             VALUES ('web1', '1', now(), '{mail}'), ('gone', '1', now(), '{}');
         INSERT INTO jobctl.job_figures (job_type, last_status, last_ended_at, last_succeeded_at) \
             VALUES ('nightly', 'succeeded', now(), now()), ('plain', 'dead', now(), NULL); \
         UPDATE jobctl.job_definitions SET paused_at = now() WHERE name = 'paused';
         INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until, \
             cancel_requested_at, started_at, idempotency_key, scheduled_for, timeout, payload) \
             VALUES \
             ('shell', 'running', 1, 'web1', now() + interval '1 h', now(), now(), 'k', now(), \
             '5s', \
              '{\"command\": \"true\"}'),
             ('shell', 'running', 1, 'web1', now() + interval '1 h', NULL, NULL, NULL, NULL, \
             NULL, '{}');
         UPDATE jobctl.job_runs SET live_output = 'a line' WHERE idempotency_key = 'k';
         INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at, started_at, \
         failed_at, \
             error_type, last_error, idempotency_key) VALUES \
             ('nightly', 'dead', 1, now(), now(), now(), 'exit_code', 'exit status 1', 'd'),
             ('paused', 'dead', 1, now(), NULL, NULL, NULL, NULL, NULL),
             ('plain', 'succeeded', 1, now(), now(), NULL, NULL, NULL, NULL);
         INSERT INTO jobctl.job_runs (job_type, run_at) VALUES ('nightly', now() - interval '1 h');
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, \
         outcome, \
             error_type, error, exit_code, signal, http_status, output) VALUES \
             (3, 1, 'web1', now() - interval '1.5 s', now(), 'failed', 'exit_code', 'e', 1, 9, \
             500, 'o'),
             (3, 2, 'web1', now() - interval '1.5 s', now(), 'succeeded', NULL, NULL, NULL, NULL, \
             NULL, NULL),
             (3, 3, 'web1', now() - interval '2 h', now() - interval '1 h', 'failed', \
             'exit_code', 'e', 1, 9, 500, 'o'),
             (4, 1, 'web1', now() - interval '1.5 s', now(), 'failed', NULL, NULL, NULL, NULL, \
             NULL, NULL),
             (5, 1, 'web1', now() - interval '1.5 s', now(), 'succeeded', NULL, NULL, NULL, NULL, \
             NULL, NULL);
         INSERT INTO jobctl.job_events (action, run_id, host_user, reason, detail) VALUES \
             ('retry', 3, 'ana@web1', 'r', 'd'), ('retry', 3, NULL, NULL, NULL);
         INSERT INTO jobctl.job_events (action, job, host_user, reason) VALUES \
             ('pause', 'paused', 'ana@web1', 'r');
         UPDATE jobctl.job_definitions SET max_running = 1 WHERE name = 'paused';
         INSERT INTO jobctl.job_effects (key, run_id, attempt) VALUES ('k', 3, 1), ('l', NULL, \
             NULL);
         INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
             VALUES (3, 2, 'met'), (4, 3, 'met');
         UPDATE jobctl.job_runs SET settled_at = now() WHERE id = 4;
         SELECT jobctl.schedule('s', 'nightly', '@hourly');
         UPDATE jobctl.job_runs SET schedule = 's' WHERE id = 3",
    );
}

#[test]
fn interfaces_txt_lists_every_field_of_json_and_tsv() {
    let empty = TestDb::empty();
    let mut interfaces = Interfaces { db: &empty, text: String::new() };
    interfaces.line(
        "Fields of JSON, in their order, with their types. `time` is RFC 3339 in UTC with six",
    );
    interfaces.line(
        "digits of a second. Rows are an array of objects. TSV has the same fields in the same",
    );
    interfaces.line("order, with `--header` in its first line; null is empty.");
    interfaces.rows("migrate", &["migrate"]);
    let db = TestDb::new();
    insert_sample_rows(&db);
    db.allow_running_runs_at_end();
    let folder = crate::support::temp_dir();
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, "[jobs.plain]\nshell = 'false'\n").unwrap();
    let apply = format!("apply {} --dry-run", file.display());
    let mut interfaces = Interfaces { db: &db, text: interfaces.text };
    let set_next_time = |time: &str| {
        let set = "UPDATE jobctl.job_definitions SET next_run_at";
        db.execute(&format!("{set} = {time} WHERE name = 'nightly'"));
    };
    // `apply` also prints what becomes of due times.
    set_next_time("now() - interval '1 minute'");
    interfaces.rows("apply", &[&apply]);
    set_next_time("now() + interval '1 hour'");
    interfaces.rows("list", &["list"]);
    interfaces.rows("list-dead", &["list-dead --all"]);
    interfaces.rows("list-dead --group", &["list-dead --group --all"]);
    interfaces.rows("failures", &["failures"]);
    interfaces.rows("failures --group", &["failures --group"]);
    interfaces.rows("trail", &["trail"]);
    interfaces.rows(
        "show (an object; TSV has a line for each field)",
        &["show 2", "show 3", "show 4", "show 6", "show 1"],
    );
    interfaces
        .line("  (payload_error is a string, and payload null, if the payload cannot be read)");
    nested(&mut interfaces, "show", "show 3", "history");
    nested(&mut interfaces, "show", "show 3", "events");
    interfaces.rows("next", &["next"]);
    interfaces.rows(
        "next NAME",
        &[
            "next nightly",
            "next --within 1d",
            "next --schedule @hourly --time-zone America/New_York --from 2026-11-01T00:00:00Z \
             --count 9",
        ],
    );
    interfaces.rows("jobs", &["jobs"]);
    interfaces.rows(
        "jobs NAME (an object; TSV has a line for each field)",
        &["jobs paused", "jobs plain", "jobs nightly"],
    );
    interfaces
        .rows("status (an object; TSV has a line for each row, with its kind first)", &["status"]);
    nested(&mut interfaces, "status", "status", "jobs");
    nested(&mut interfaces, "status", "status", "flow");
    nested(&mut interfaces, "status", "status", "workers");
    nested(&mut interfaces, "status", "status", "longest_running");
    nested(&mut interfaces, "status", "status", "figures");
    interfaces.rows("check (an object; TSV has a line for each finding)", &["check"]);
    interfaces.rows("tick --dry-run", &["tick --dry-run"]);
    // As TSV, these commands print the fields of their JSON.
    for line in [
        &*apply,
        "list",
        "list-dead",
        "list-dead --group",
        "failures",
        "failures --group",
        "next",
        "next nightly",
        "jobs",
        "tick --dry-run",
        "doctor",
    ] {
        interfaces.assert_same_in_tsv(line);
    }
    interfaces.rows("doctor", &["doctor"]);
    // The commands from here on change runs.
    interfaces.rows("enqueue (an object; TSV has the id only)", &["enqueue plain"]);
    interfaces.rows("once --list", &["once --list"]);
    let totals = "settle --all-dead, retry --all-..., cancel --all..., edit --all-waiting";
    interfaces.rows(totals, &["retry --all-dead --dry-run"]);
    interfaces.line("  (why_not_changed is a string if the runs were refused)");
    interfaces.rows("settle", &["settle 3 5"]);
    interfaces.rows("retry", &["retry 3 5"]);
    interfaces.rows("cancel", &["cancel 3 5"]);
    interfaces.rows("edit", &["edit 3 5 --priority 1"]);
    interfaces.rows("prune ID", &["prune 3 6"]);
    interfaces.rows("prune", &["prune --older-than 0s --dry-run"]);
    interfaces
        .rows("hold", &["hold --queue mail", "hold --job plain --for 1h --reason r", "hold --all"]);
    interfaces.rows("hold --list", &["hold --list"]);
    interfaces.rows("release", &["release --all"]);
    interfaces.rows("forget (an object)", &["forget gone"]);
    interfaces.rows("accept-restore (an object)", &["accept-restore --yes"]);
    interfaces.rows("pause (an object)", &["pause nightly"]);
    interfaces.rows("resume (an object)", &["resume nightly", "resume plain"]);
    // A single run has no rate.
    interfaces.rows(
        "load (an object; TSV has a line for each field)",
        &["load --runs 1 --yes", "load --runs 5 --rate 5 --yes"],
    );
    interfaces
        .line("  (waits are null if no run was claimed, and wal_bytes if the server hides it)");

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interfaces.txt");
    if std::env::var_os("UPDATE_INTERFACES").is_some() {
        std::fs::write(&file, &interfaces.text).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        interfaces.text == expected,
        "run with UPDATE_INTERFACES=1 and see what changed:\n{}",
        interfaces.text
    );
}

#[test]
fn json_lines_equal_the_rows_and_an_empty_tsv_has_its_header() {
    let db = TestDb::new();
    let list =
        |form: &[&str]| db.jobctl(["list"]).args(form.iter().copied()).run().success().stdout;
    // Without runs.
    let header = list(&["--format", "tsv", "--header"]);
    assert!(
        header.starts_with("id\tjob_type\tstatus\t") && header.lines().count() == 1,
        "{header}"
    );
    assert_eq!(list(&["--format", "json-lines"]), "");

    // With two runs.
    db.enqueue(["shell", "--", "true"]);
    db.enqueue(["shell", "--", "true"]);
    let rows: Vec<Value> = serde_json::from_str(&list(&["--json"])).unwrap();
    let lines = list(&["--format", "json-lines"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows, lines);
    let table = list(&["--format", "table"]);
    assert!(table.starts_with(" ID  JOB "), "{table}");

    // Two formats are wrong usage.
    db.jobctl(["list", "--json", "--format", "tsv"]).run().exits(2).stdout("");
    // A flag takes precedence over a variable.
    let by_flag = db.jobctl(["list", "--format", "tsv", "--header"]).env("JOBCTL_LIST_JSON", "1");
    assert!(by_flag.run().success().stdout.starts_with("id\t"));
}

#[test]
fn colour_flags_override_variables_and_auto_needs_a_terminal() {
    let db = TestDb::new();
    crate::cancel::enqueue_in_status(&db, "dead");
    let is_coloured = |flag: &str, variables: &[(&str, &str)]| {
        let list = db.jobctl(["list", "--format", "table", "--color", flag]);
        let list = variables.iter().fold(list, |list, (name, value)| list.env(name, value));
        list.run().success().stdout.contains('\u{1b}')
    };
    assert!(is_coloured("always", &[("NO_COLOR", "1")]));
    assert!(is_coloured("auto", &[("CLICOLOR_FORCE", "1")]));
    assert!(!is_coloured("auto", &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!is_coloured("auto", &[("CLICOLOR_FORCE", "0")]));
    assert!(!is_coloured("auto", &[]));
    assert!(!is_coloured("never", &[("CLICOLOR_FORCE", "1")]));

    // In the first table of `status`, only the number of dead runs is red (31).
    let status = db.jobctl(["status", "--format", "table", "--color", "always"]).run().success();
    let shown = status.stdout;
    let counts: Vec<_> = shown.lines().filter(|line| line.contains(" shell ")).collect();
    assert_eq!(counts.len(), 2, "{shown}");
    assert_eq!(counts[0].matches("\u{1b}[31m").count(), 1, "{counts:?}");
}
