//! Settings and locales that others chose for the database or the role, and row level security.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::{Role, TestDb, leave_out, server, temp_dir};

/// Settings that change how text, numbers, times and errors look, or how statements are read.
const SETTINGS: &[(&str, &[&str])] = &[
    ("DateStyle", &["'German'", "'SQL, DMY'", "'Postgres, MDY'"]),
    ("IntervalStyle", &["sql_standard", "iso_8601", "postgres_verbose"]),
    ("TimeZone", &["'America/New_York'", "'Asia/Kathmandu'"]),
    ("array_nulls", &["off"]),
    ("backslash_quote", &["on", "off"]),
    ("bytea_output", &["escape"]),
    ("check_function_bodies", &["off"]),
    ("client_encoding", &["LATIN1", "SQL_ASCII"]),
    ("client_min_messages", &["error", "debug5"]),
    ("default_table_access_method", &["other"]),
    ("default_text_search_config", &["simple"]),
    ("default_transaction_deferrable", &["on"]),
    ("default_transaction_isolation", &["serializable", "'repeatable read'"]),
    ("escape_string_warning", &["off"]),
    ("extra_float_digits", &["-15", "3"]),
    ("lc_messages", &["'C'"]),
    ("lc_monetary", &["'C'"]),
    ("lc_numeric", &["'C'"]),
    ("lc_time", &["'C'"]),
    ("lo_compat_privileges", &["on"]),
    ("plpgsql.check_asserts", &["off"]),
    ("plpgsql.extra_errors", &["'all'"]),
    ("plpgsql.extra_warnings", &["'all'"]),
    ("plpgsql.print_strict_params", &["on"]),
    ("plpgsql.variable_conflict", &["use_column", "use_variable"]),
    ("quote_all_identifiers", &["on"]),
    ("row_security", &["off"]),
    ("search_path", &["public"]),
    ("standard_conforming_strings", &["off"]),
    ("synchronize_seqscans", &["off"]),
    ("timezone_abbreviations", &["'India'"]),
    ("transform_null_equals", &["on"]),
    ("xmlbinary", &["hex"]),
    ("xmloption", &["document"]),
];

/// The settings of the same categories that no round changes, each group with the reason.
const LEFT_OUT: &[&str] = &[
    // Errors and `doctor` name them.
    "default_transaction_read_only",
    "restrict_nonsystem_relation_kind",
    "session_replication_role",
    // Other tests change these time limits.
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "transaction_timeout",
    // Only of the transaction that sets them.
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
    // Where and how PostgreSQL stores and cleans tables, and what it loads.
    "default_tablespace",
    "default_toast_compression",
    "dynamic_library_path",
    "event_triggers",
    "extension_control_path",
    "gin_fuzzy_search_limit",
    "gin_pending_list_limit",
    "local_preload_libraries",
    "session_preload_libraries",
    "temp_tablespaces",
    "vacuum_failsafe_age",
    "vacuum_freeze_min_age",
    "vacuum_freeze_table_age",
    "vacuum_max_eager_freeze_failure_rate",
    "vacuum_multixact_failsafe_age",
    "vacuum_multixact_freeze_min_age",
    "vacuum_multixact_freeze_table_age",
    "vacuum_truncate",
    // Of statements that jobctl does not use.
    "createrole_self_grant",
    "icu_validation_level",
];

/// Names in an order that all these locales share: lists are in the order of the database.
const DEFINITIONS: &str = r##"
[jobs.a]
shell = 'echo "cannot copy \"C:\\x 7\" to IZMIR: DISK FULL" >&2; exit 3'
schedule = '0 9 * * MON-FRI'
time_zone = 'Europe/Istanbul'
timeout = '1h 30m'
rate = '700/1m'
spread = '5m'
expires = '40d'
payload = { a = 1.5, t = 'x\y' }
[jobs.i_job]
shell = 'echo "write: INPUT/OUTPUT ERROR" >&2; exit 1'
max_attempts = 1
[jobs.b]
shell = 'true'
queue = 'w'
[jobs.z]
shell = 'true'
queue = 'v'
on_success = 'b'
[jobs.full]
shell = 'true'
max_waiting = 1
when_full = 'drop_new'
"##;

const LINES: &str = r#"{"job_type": "a", "next": "0 9 * * FRI", "time_zone": "Europe/Berlin"}
{"job_type": "shell", "payload": {"command": "true"}, "run_at": "2100-01-05T09:30:00+01:00"}
"#;

/// Statements of an application. They name the runs that the commands of `answers` enqueued.
const STATEMENTS: &[&str] = &[
    "SELECT to_char(jobctl.next_time('09:00', days, 'Europe/Berlin', '2026-11-27 12:00Z')
         AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
     FROM unnest('{MON-FRI,mon-fri,FRI,Fri,sun,*}'::text[]) AS days",
    "SELECT jobctl.next_time('09:00', 'frı')",
    "SELECT jobctl.enqueue('z', '{\"s\": \"I\"}', key => 'İ', run_in => '1 minute',
         backoff => 'list:1m, 5m', share => 'i')",
    "SELECT jobctl.enqueue('z', key => 'l', key_scope => 'live', debounce => '1h',
         on_conflict => 'replace'), jobctl.enqueue('z', key => 'l', key_scope => 'live',
         on_conflict => 'replace', run_in => '2h')",
    "SELECT jobctl.enqueue('z', after => '{1}', after_rule => 'any_end')",
    "SELECT jobctl.enqueue('z', backoff => 'list:1m,5x')",
    "SELECT jobctl.enqueue('z', key => '-')",
    "SELECT jobctl.enqueue('nosuch')",
    "SELECT jobctl.record_effect('e', 'I'), jobctl.record_effect('e'), jobctl.effect_result('e')",
    "SELECT id, job, status, stuck FROM jobctl.run_states('{1,2,3,4,5}') ORDER BY id",
    "SELECT id, status, output, result FROM jobctl.results('{1,2,3,4,5}') ORDER BY id",
    "SELECT error_type, cause FROM jobctl.job_attempts ORDER BY run_id",
    "UPDATE jobctl.job_runs SET attempts = 0 WHERE attempts > 0",
    "SELECT jobctl.enqueue('full') IS NULL, jobctl.enqueue('full') IS NULL",
    "SELECT sum(dropped) FROM jobctl.job_figures WHERE job_type = 'full'",
    "SELECT jobctl.schedule('s', 'z', '* * * * *', 'Europe/Berlin')",
    "DELETE FROM jobctl.job_runs WHERE status = 'cancelled'",
    "SELECT count(*) FROM jobctl.job_attempts WHERE run_id NOT IN (SELECT id FROM jobctl.job_runs)",
];

/// Replaces the times in JSON, which differ each time.
fn without_times(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(without_times),
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_time = ["_at", "_until", "_for", "_seconds", "now"]
                    .iter()
                    .any(|end| name.ends_with(end));
                match value {
                    Value::String(_) | Value::Number(_) if is_time => *value = "time".into(),
                    Value::String(key) if key.starts_with("jobctl-hook-") => key.clear(),
                    Value::String(random) if name == "operation" => random.clear(),
                    // Of `show`: an hour may end between two answers.
                    Value::String(due) if due.starts_with("due in ") => due.clear(),
                    Value::Array(counts) if name == "waits" => counts.clear(),
                    _ => without_times(value),
                }
            }
        }
        _ => {}
    }
}

/// Runs every command of a user in a new database, and returns what they answer. Only values that
/// differ each time are left out, for example times.
fn answers(db: &TestDb) -> Vec<String> {
    db.jobctl(["migrate"]).run().success();
    let folder = temp_dir();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (jobs, changed) = (file("jobs.toml"), file("changed.toml"));
    fs::write(&jobs, DEFINITIONS).unwrap();
    fs::write(&changed, DEFINITIONS.replace("1h 30m", "90s").replace("MON-FRI", "SUN")).unwrap();
    let report = format!("report --output {}", file("report.html"));
    let commands = [
        &format!("apply {jobs} --yes --json"),
        // These enqueue the runs 1 to 7.
        "enqueue a {\"n\":0.1,\"big\":1e20,\"s\":\"a\\\\b\\u00e9\"} --share I",
        "enqueue i_job --key I",
        "enqueue z --queue z",
        "enqueue b --queue w --priority -3 --timeout 90s",
        "enqueue a --run-at 2099-01-01T00:00:00Z --expires-in 40d",
        "enqueue --batch -",
        // Only some of the later commands succeed. Errors are answers, too.
        "tick --dry-run --json",
        "tick --worker w1 --concurrency 1",
        "tick --worker w1 --concurrency 1",
        "edit 5 --timeout 90.5s --run-at 2100-01-01T00:00:00Z --queue Ii --reason I",
        "retry 1 --reason İ",
        "pause a --json",
        "resume a --json",
        "hold --queue I --reason ı",
        "hold --list --json",
        "release --queue I",
        "cancel 1",
        "once e2 -- printf I",
        "once --list --json",
        "wait 3",
        "list --json",
        "list --error disk --json",
        "list --error input/output --json",
        "list --payload n=0.1 --json",
        "failures --json",
        "failures --error izmir --json",
        "failures --error IZMIR --json",
        "failures --error Input --json",
        "failures --group --json",
        "list-dead --json",
        "list-dead --group --json",
        "show 1 --json",
        "show 2 --json",
        "show 5 --json",
        "jobs --json",
        "job a --json",
        "next a --json --from 2026-11-27T12:00:00Z",
        "next --schedule 0_9_*_*_FRI --from 2026-11-27T12:00:00Z --json",
        "trail --json",
        "trail --by INIT --json",
        "trail --by init --json",
        "status --json",
        "status --prometheus",
        "check --json",
        &report,
        &format!("apply {changed} --dry-run --json"),
        "enqueue a --key k --run-at 9999-12-31T23:00:00Z",
        "enqueue a --key k --backoff fixed:0x",
        "enqueue nosuch",
        "edit 99 --in 1h",
        "settle 2",
        "forget w1",
        "accept-restore",
        "migrate --dry-run",
    ];
    // For `trail --by`, which ignores the case.
    db.execute(
        "INSERT INTO jobctl.job_events (action, job, host_user) VALUES ('hold', 'a', 'INIT@x')",
    );
    let mut answers = Vec::new();
    for command in commands {
        // An expression of a schedule has blanks.
        let is_schedule = command.contains("--schedule");
        let word = |word: &str| if is_schedule { word.replace('_', " ") } else { word.to_owned() };
        let words: Vec<_> = command.split(' ').map(word).collect();
        let stdin = if command.contains("--batch") { LINES } else { "" };
        let said = db.jobctl(words.iter().map(String::as_str)).stdin(stdin).run();
        let mut stdout = said.stdout.clone();
        if let Ok(mut json) = serde_json::from_str::<Value>(&stdout) {
            without_times(&mut json);
            stdout = json.to_string();
        } else if command.contains("--prometheus") {
            stdout = stdout.lines().filter(|line| !line.contains("_seconds")).collect();
        }
        // A log has times, and `forget` tells an age.
        let has_times = command.starts_with("tick --worker") || command.starts_with("forget");
        let stderr = if has_times { "" } else { &said.stderr };
        let answer = format!("{command}: {} {stdout}{stderr}", said.status);
        answers.push(answer.replace(folder.path().to_str().unwrap(), ".").replace(db.name(), "db"));
    }

    for statement in STATEMENTS {
        let answer = db.try_query(statement).unwrap_or_else(|error| match error.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => error.to_string(),
        });
        answers.push(format!("{statement}: {answer}"));
    }

    // Schedules of a definition and of an application fire.
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())
         WHERE name = 'a';
         UPDATE jobctl.job_schedules SET next_run_at = date_trunc('minute', now())",
    );
    db.jobctl(["tick", "--worker", "w1", "--queue", "none"]).run().success();
    let fired = "SELECT job_type, schedule, worker, queue FROM jobctl.job_runs
         WHERE scheduled_for IS NOT NULL ORDER BY job_type";
    answers.push(format!("fired: {}", db.query(fired)));

    // The lines of an archive.
    let archive = file("archive");
    let prune = ["prune", "--older-than", "0s", "--dead-older-than", "0s", "--yes", "--archive"];
    db.jobctl(prune.into_iter().chain([archive.as_str()])).run().success();
    for line in fs::read_to_string(&archive).unwrap().lines() {
        // Times in UTC, and lengths of time as `hours:minutes:seconds`.
        let mut run: Value = serde_json::from_str(line).unwrap();
        assert!(run["created_at"].as_str().unwrap().ends_with("+00:00"), "{line}");
        without_times(&mut run);
        answers.push(run.to_string());
    }

    let doctor = db.jobctl(["doctor", "--json"]).run();
    let findings: Vec<Value> = serde_json::from_str(&doctor.stdout).unwrap();
    // The texts of other checks name the database and its settings.
    for finding in findings {
        let check = finding["check"].as_str().unwrap();
        answers.push(if ["objects", "grants", "schema"].contains(&check) {
            finding.to_string()
        } else {
            format!("{check} {}", finding["severity"])
        });
    }
    answers
}

#[track_caller]
fn assert_same_answers(answers: &[String], usual: &[String], database: &str) {
    for (answer, usual) in answers.iter().zip(usual) {
        assert_eq!(answer, usual, "{database}");
    }
    assert_eq!(answers.len(), usual.len(), "{database}");
}

#[test]
fn no_setting_of_a_database_or_a_role_changes_an_answer() {
    let usual = TestDb::empty();
    let known: BTreeSet<_> =
        SETTINGS.iter().map(|(name, _)| *name).chain(LEFT_OUT.iter().copied()).collect();
    let settable = usual.query(
        "SELECT name FROM pg_settings
         WHERE (category ~ '^(Client Connection Defaults|Version and Platform Compatibility)'
                 OR name ~ '^plpgsql[.]')
             AND context IN ('user', 'superuser')",
    );
    let unknown: Vec<_> = settable.lines().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "settings of this PostgreSQL that no test knows: {unknown:?}");

    // Each setting has one or more values that differ from the default. A round sets one value of
    // each.
    let usual = answers(&usual);
    let rounds = SETTINGS.iter().map(|(_, values)| values.len()).max().unwrap();
    for round in 0..rounds {
        let db = TestDb::empty();
        db.execute("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler");
        // The settings of a role reach a session as those of a database do.
        let whose = if round == 1 { "ROLE CURRENT_USER IN DATABASE" } else { "DATABASE" };
        let set: String = SETTINGS
            .iter()
            .filter_map(|(name, values)| Some((name, values.get(round)?)))
            .map(|(name, value)| format!("ALTER {whose} {} SET {name} = {value};", db.name()))
            .collect();
        db.execute(&set);
        assert_same_answers(&answers(&db), &usual, &set);
        // Whatever `default_table_access_method` is, the tables have the usual access method.
        let methods = "SELECT DISTINCT amname FROM pg_class JOIN pg_am ON pg_am.oid = relam
             WHERE relnamespace = 'jobctl'::regnamespace AND relkind = 'r'";
        assert_eq!(db.query(methods), "heap");
    }
}

#[test]
fn errors_in_any_script_differ_in_a_database_with_the_locale_c() {
    // `encoded` creates a database with the locale C, which knows only ASCII letters.
    let db = TestDb::encoded("UTF8");
    db.jobctl(["migrate"]).run().success();
    for error in ["нет места на диске", "соединение разорвано", "ディスクがいっぱいです"]
    {
        let script = format!("echo '{error}'; exit 1");
        db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", &script]);
    }
    db.jobctl(["tick"]).run().success();
    let incidents = db.jobctl(["failures", "--group"]).run().success().stdout;
    assert_eq!(incidents.lines().count(), 3, "{incidents}");
}

#[test]
fn no_locale_of_a_database_changes_an_answer() {
    if server::major() < 15 {
        return;
    }
    let usual = answers(&TestDb::empty());
    for locale in ["tr-TR", "az-AZ", "sv-SE"] {
        match TestDb::with_icu_locale(locale) {
            Ok(db) => assert_same_answers(&answers(&db), &usual, locale),
            Err(why) => leave_out("databases with an ICU locale", &format!("{why:?}")),
        }
    }

    // A letter beyond ASCII has the case of the locale.
    let Ok(db) = TestDb::with_icu_locale("tr-TR") else { return };
    db.jobctl(["migrate"]).run().success();
    db.enqueue_script("echo 'ÇIKIŞ İPTAL' >&2; exit 1");
    db.jobctl(["tick"]).run().success();
    for (text, runs) in [("çikiş", 1), ("iptal", 1), ("çıkış", 0)] {
        let found = db.jobctl(["list", "--error", text]).run().success().stdout;
        assert_eq!(found.lines().count(), runs, "{text}");
    }
}

#[test]
fn a_transaction_pins_the_settings_that_change_a_meaning() {
    let db = TestDb::new();
    // The setting, a value that the database sets, and the value in a transaction of jobctl.
    let pins = [
        ("row_security", "on", "off"),
        ("standard_conforming_strings", "off", "on"),
        ("TimeZone", "'Asia/Kathmandu'", "UTC"),
        ("client_min_messages", "error", "notice"),
        ("extra_float_digits", "-15", "1"),
        ("search_path", "public", "pg_catalog, pg_temp"),
    ];
    for (name, foreign, _) in pins {
        db.execute(&format!("ALTER DATABASE {} SET {name} = {foreign}", db.name()));
    }
    // A trigger notes the settings of the transaction that inserts a run.
    db.execute(
        "CREATE TABLE seen (name text, value text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
             INSERT INTO public.seen SELECT name, setting FROM pg_settings;
             RETURN NEW;
         END$$;
         CREATE TRIGGER see BEFORE INSERT ON jobctl.job_runs FOR EACH ROW EXECUTE FUNCTION see()",
    );
    db.enqueue(["shell", "--", "true"]);
    for (name, _, pinned) in pins {
        assert_eq!(db.query(&format!("SELECT value FROM seen WHERE name = '{name}'")), pinned);
    }
}

#[test]
fn a_day_has_24_hours_in_the_functions_for_applications() {
    let db = TestDb::new();
    // In this zone, a day of October has 25 hours.
    db.execute(&format!(
        "ALTER DATABASE {} SET TimeZone = 'Europe/Berlin';
         INSERT INTO jobctl.job_definitions
             (name, kind, action, schedule, next_run_at, expires, overlap, catch_up)
         VALUES ('a', 'shell', '{{\"command\": \"true\"}}', '0 12 * * *', '2026-10-24 12:00Z',
             '1 day', 'allow', 'all')",
        db.name()
    ));
    db.execute(
        "SELECT jobctl.fire(id, next_run_at, schedule, time_zone, '2026-10-25 12:00Z',
             ARRAY[next_run_at], '0', 0) FROM jobctl.job_definitions;
         SELECT jobctl.enqueue('a', run_at => '2100-10-30 12:00Z')",
    );
    let day = "SELECT extract(epoch FROM expires_at - run_at)::integer FROM jobctl.job_runs";
    assert_eq!(db.query(day), "86400\n86400");

    // A run that waits for another run expires as much later as it starts later. The deletion of
    // run 90 starts the other two. In January or in July, the offset to UTC is not that of today.
    db.execute(
        "DELETE FROM jobctl.job_runs;
         INSERT INTO jobctl.job_runs (id, job_type) VALUES (90, 'a');
         INSERT INTO jobctl.job_runs (id, job_type, status, run_at, expires_at)
         SELECT number, 'a', 'blocked', at, at + interval '24 hours'
         FROM (VALUES (91, '2026-01-15 12:00Z'::timestamptz), (92, '2026-07-15 12:00Z'))
             AS waiting (number, at);
         INSERT INTO jobctl.job_dependencies (run_id, after_id, rule)
         VALUES (91, 90, 'any_end'), (92, 90, 'any_end');
         DELETE FROM jobctl.job_runs WHERE id = 90",
    );
    assert_eq!(db.query(day), "86400\n86400");
}

/// The tables of the schema.
fn tables(db: &TestDb) -> Vec<String> {
    let tables = db.query(
        "SELECT relname FROM pg_class WHERE relnamespace = 'jobctl'::regnamespace AND relkind = 'r'
         ORDER BY relname",
    );
    tables.lines().map(str::to_owned).collect()
}

/// Switches row level security on for a table, also for its owner. `policy` is a condition on the
/// rows that stay visible; an empty text hides all rows.
fn hide_rows(db: &TestDb, table: &str, policy: &str) {
    let policy = match policy {
        "" => String::new(),
        rows => format!("CREATE POLICY p ON jobctl.{table} USING ({rows})"),
    };
    db.execute(&format!(
        "ALTER TABLE jobctl.{table} ENABLE ROW LEVEL SECURITY;
         ALTER TABLE jobctl.{table} FORCE ROW LEVEL SECURITY; {policy}"
    ));
}

/// Switches row level security off again.
fn show_rows_again(db: &TestDb, table: &str) {
    db.execute(&format!(
        "ALTER TABLE jobctl.{table} NO FORCE ROW LEVEL SECURITY;
         ALTER TABLE jobctl.{table} DISABLE ROW LEVEL SECURITY;
         DROP POLICY IF EXISTS p ON jobctl.{table}"
    ));
}

/// Returns the end of the error by which a command names a table whose rows are hidden.
fn error_that_names(table: &str) -> String {
    format!(
        ": row level security hides rows of jobctl.{table} from this role; as the schema's owner, \
         run ALTER TABLE jobctl.{table} DISABLE ROW LEVEL SECURITY\n"
    )
}

/// Creates jobctl's schema as an ordinary role, with a due run and a due schedule, and returns the
/// role.
fn role_that_owns_the_schema(db: &TestDb) -> Role<'_> {
    let owner = Role::new(db);
    db.execute(&format!("CREATE SCHEMA jobctl AUTHORIZATION {}", owner.name()));
    owner.jobctl(["migrate"]).run().success();
    let folder = temp_dir();
    let jobs = folder.path().join("jobs.toml");
    let job = "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\nlock = 'l'\n\
               rate_per_share = '9/1s'\n";
    fs::write(&jobs, job).unwrap();
    owner.jobctl(["apply", "--yes", jobs.to_str().unwrap()]).run().success();
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now());
         SELECT jobctl.enqueue('a', key => 'k'), jobctl.record_effect('e', 'done')",
    );
    owner
}

#[test]
fn row_level_security_is_an_error_that_names_the_table_and_no_run_ends() {
    let db = TestDb::empty();
    let owner = role_that_owns_the_schema(&db);
    let [worker, viewer, operator] =
        ["worker", "viewer", "operator"].map(|part| Role::granted(&db, part));
    // Each of these policies hides all rows: no id is negative.
    for policy in ["", "false", "id < 0"] {
        for table in ["job_definitions", "job_runs"] {
            hide_rows(&db, table, policy);
            let ticking = [&owner, &worker, &operator];
            for role in ticking {
                role.jobctl(["tick"])
                    .run()
                    .exits(7)
                    .complains_once()
                    .stderr_has(&error_that_names(table));
            }
            for role in ticking.into_iter().chain([&viewer]) {
                let list = if table == "job_runs" { "list" } else { "next" };
                for command in ["check", "status", list] {
                    let said = role.jobctl([command]).run();
                    // A viewer may not read all columns of a list.
                    if !said.stderr.contains("permission denied") {
                        said.exits(7)
                            .stdout("")
                            .complains_once()
                            .stderr_has(&error_that_names(table));
                    }
                }
            }
            owner.jobctl(["enqueue", "a"]).run().exits(7).stderr_has(&error_that_names(table));
            assert_eq!(db.query("SELECT status, attempts FROM jobctl.job_runs"), "queued|0");
            let due = "SELECT next_run_at <= now() FROM jobctl.job_definitions";
            assert_eq!(db.query(due), "t");
            show_rows_again(&db, table);
        }
    }

    // Hidden rows of any table make at least one command fail.
    for table in tables(&db) {
        hide_rows(&db, &table, "false");
        let commands =
            ["check", "list", "status", "failures", "trail", "once --list", "hold --list"];
        // Only ticks read this table.
        let commands = if table == "job_predecessors" { ["tick"; 7] } else { commands };
        let said = commands.map(|command| owner.jobctl(command.split(' ')).run());
        let named = said.iter().filter(|said| said.stderr.ends_with(&error_that_names(&table)));
        if ["job_lock_slots", "job_share_rates"].contains(&&*table) {
            // Only claims read these tables.
            owner.jobctl(["tick"]).run().exits(7).stderr_has(&error_that_names(&table));
        } else {
            assert!(named.count() > 0, "{table}");
        }
        assert_eq!(db.query("SELECT status FROM jobctl.job_runs WHERE status = 'dead'"), "");
        let findings = owner.jobctl(["doctor", "--json"]).run().exits(1).stdout;
        let expected = format!(
            "row level security is on for {table}, so jobctl fails for the roles that it applies to"
        );
        assert!(findings.contains(&expected), "{findings}");
        show_rows_again(&db, &table);
    }

    // No run was lost meanwhile.
    owner.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
}

/// Row-level security hides no row from the owner of a table and from a role with BYPASSRLS.
#[test]
fn a_role_that_row_level_security_does_not_apply_to_ticks_and_lists() {
    let db = TestDb::empty();
    let owner = role_that_owns_the_schema(&db);
    let worker = Role::granted(&db, "worker");
    for table in tables(&db) {
        db.execute(&format!("ALTER TABLE jobctl.{table} ENABLE ROW LEVEL SECURITY"));
    }
    owner.jobctl(["list"]).run().success();
    worker.jobctl(["tick"]).run().exits(7);
    db.execute(&format!("ALTER ROLE {} BYPASSRLS", worker.name()));
    worker.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
}

#[test]
fn no_function_answers_as_if_hidden_rows_did_not_exist() {
    let db = TestDb::empty();
    let owner = role_that_owns_the_schema(&db);
    let application = Role::granted(&db, "enqueuer,effects");
    let mut client = application.client();
    // A policy hides the rows of one table, which the call reads. So the call must fail.
    let calls = [
        ("job_definitions", "SELECT jobctl.enqueue('a')"),
        ("job_runs", "SELECT jobctl.enqueue('a', key => 'k')"),
        ("job_runs", "SELECT jobctl.enqueue('a', after => '{1}')"),
        ("job_runs", "SELECT jobctl.run_states('{1}')"),
        ("job_dependencies", "SELECT jobctl.run_states('{1}')"),
        ("job_attempts", "SELECT jobctl.run_states('{1}')"),
        ("job_runs", "SELECT jobctl.result(1)"),
        ("job_attempts", "SELECT jobctl.results('{1}')"),
        ("job_definitions", "SELECT jobctl.results('{1}')"),
        ("job_effects", "SELECT jobctl.record_effect('e')"),
        ("job_effects", "SELECT jobctl.effect_result('e')"),
    ];
    for (table, call) in calls {
        hide_rows(&db, table, "false");
        let error = client.batch_execute(call).expect_err(call);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.routine(), Some("check_enable_rls"), "{call}: {error}");
        assert!(error.message().contains(table), "{call}: {error}");
        show_rows_again(&db, table);
    }

    // The owner deletes a run, and a trigger its history. That must fail, too.
    owner.jobctl(["tick"]).run().success();
    hide_rows(&db, "job_attempts", "false");
    owner.client().batch_execute("DELETE FROM jobctl.job_runs").unwrap_err();
    show_rows_again(&db, "job_attempts");
}
