//! Every flag of a command can be set as `JOBCTL_<COMMAND>_<FLAG>`.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use crate::cancel::enqueue_in_status;
use crate::docs::all_migrations;
use crate::support::{Invocation, TestDb, jobctl, leave_out, temp_dir};

fn variable(command: &str, flag: &str) -> String {
    format!("JOBCTL_{command}_{}", flag.trim_start_matches("--")).to_uppercase().replace('-', "_")
}

/// A command, one of its flags, and a value that the flag refuses.
const REFUSED: [(&[&str], &str, &str); 72] = [
    (&["next"], "--within", "5"),
    (&["enqueue", "shell", "{}"], "--after", "x"),
    (&["list"], "--before", "x"),
    (&["list"], "--incident", "17"),
    (&["enqueue", "shell", "{}"], "--run-at", "tomorrow"),
    (&["enqueue", "shell", "{}"], "--in", "5"),
    (&["enqueue", "shell", "{}"], "--next", "x y"),
    (&["enqueue", "shell", "{}", "--next", "@daily"], "--time-zone", "Mars/Phobos"),
    (&["enqueue", "shell", "{}"], "--key", "a\tb"),
    (&["enqueue", "shell", "{}"], "--lock", "-a"),
    (&["enqueue", "shell", "{}"], "--worker", "a\tb"),
    (&["enqueue", "shell", "{}"], "--priority", "x"),
    (&["enqueue", "shell", "{}"], "--queue", "a b"),
    (&["enqueue", "shell", "{}"], "--key-scope", "sometimes"),
    (&["enqueue", "shell", "{}", "--key", "k"], "--on-conflict", "merge"),
    (&["enqueue", "shell", "{}", "--key", "k"], "--debounce", "5"),
    (&["enqueue", "shell", "{}"], "--expires-in", "0s"),
    (&["enqueue", "shell", "{}"], "--share", "a\tb"),
    (&["enqueue", "shell", "{}"], "--traceparent", "00-0-0-00"),
    (&["enqueue", "shell", "{}", "--key", "k", "--debounce", "1s"], "--debounce-max", "5"),
    (&["enqueue", "shell", "{}"], "--max-attempts", "0"),
    (&["enqueue", "shell", "{}"], "--timeout", "5"),
    (&["enqueue", "shell", "{}"], "--backoff", "1m"),
    (&["enqueue", "shell"], "--payload-file", "/nowhere/file"),
    (&["enqueue"], "--batch", "/nowhere/file"),
    (&["tick"], "--concurrency", "0"),
    (&["tick"], "--run", "0"),
    (&["tick"], "--max-time", "5"),
    (&["tick"], "--lease", "5"),
    (&["tick"], "--grace", "5"),
    (&["tick"], "--log-format", "xml"),
    (&["list-dead"], "--limit", "0"),
    (&["prune"], "--older-than", "soon"),
    (&["prune"], "--dead-older-than", "soon"),
    (&["prune"], "--archive", "/nowhere/runs.jsonl"),
    (&["list"], "--status", "done"),
    (&["list"], "--job", "x123456789x123456789x123456789x123456789x123456789x123456789x123456789"),
    (&["list"], "--error-type", "bad luck"),
    (&["list"], "--since", "tomorrow"),
    (&["list"], "--until", "1M"),
    (&["list"], "--payload", "order"),
    (&["trail"], "--queue", "a b"),
    (&["list"], "--time-zone", "Mars/Phobos"),
    (&["show", "1", "--output"], "--attempt", "0"),
    (&["next"], "--schedule", "x y"),
    (&["next", "--schedule", "@daily"], "--time-zone", "Mars/Phobos"),
    (&["next", "--schedule", "@daily"], "--from", "noon"),
    (&["next", "--schedule", "@daily"], "--count", "0"),
    (&["apply", "/nowhere/file"], "--as", "a b"),
    (&["once", "k"], "--settle", "somehow"),
    (&["once", "k"], "--if-open", "maybe"),
    (&["check"], "--max-dead", "x"),
    (&["check"], "--max-dead-within", "5"),
    (&["check"], "--max-lag", "5"),
    (&["check"], "--max-tick-age", "5"),
    (&["check"], "--max-running", "5"),
    (&["check"], "--max-failures", "x"),
    (&["check", "--max-failures", "1"], "--within", "5"),
    (&["check"], "--repeat", "5"),
    (&["check"], "--webhook", "a"),
    (&["report"], "--refresh", "5"),
    (&["hold", "--all"], "--for", "5"),
    (&["load"], "--runs", "0"),
    (&["load"], "--rate", "x"),
    (&["load"], "--workers", "65"),
    (&["grants", "--as", "viewer"], "--role", "a\tb"),
    (&["grants", "--role", "a"], "--as", "king"),
    (&["tick"], "--limit", "0"),
    (&["tick"], "--queue", "a b"),
    (&["tick"], "--worker", "a\tb"),
    (&["tick"], "--shell", "some"),
    (&["tick"], "--http-allow", "a b"),
];
/// Switches and flags that take any text or have tests of their own.
const SWITCHES: [&str; 52] = [
    "--direct",
    "--until-idle",
    "--result",
    "--from-queue",
    "--after-any-end",
    "--or-cancel",
    "--then",
    "--color",
    "--format",
    "--header",
    "--database-url",
    "--crontab",
    "--env-file",
    "--system",
    "--systemd",
    "--remove",
    "--report",
    "--json",
    "--dry-run",
    "--prune",
    "--take-over",
    "--all",
    "--all-dead",
    "--all-cancelled",
    "--all-waiting",
    "--yes",
    "--verbose",
    "--now",
    "--again",
    "--force",
    "--group",
    "--had-failures",
    "--output",
    "--follow",
    "--prometheus",
    "--with-output",
    "--watch",
    "--title",
    "--reason",
    "--linger",
    "--list",
    "--quiet",
    "--exec",
    "--resolved",
    "--wait",
    "--enqueued-by",
    "--by",
    "--action",
    "--error",
    "--exit-status",
    "--columns",
    "--sort",
];

#[test]
fn variables_are_checked_like_their_flags_and_named_in_errors() {
    for (command, flag, value) in &REFUSED {
        let variable = variable(command[0], flag);
        let by_flag = jobctl(command.iter().copied()).args([*flag, value]).run().stdout("");
        let by_variable = jobctl(command.iter().copied()).env(&variable, value).run().stdout("");
        assert!(!by_flag.status.success(), "{by_flag}");
        assert_eq!(by_flag.status, by_variable.status, "{variable}");
        // Errors about a missing file, for example, do not name the flag.
        if by_flag.stderr.contains(flag) {
            assert!(by_variable.stderr.contains(&format!("'{variable}'")), "{by_variable}");
        }
    }
    let url = jobctl(["list"]).env("JOBCTL_DATABASE_URL", "mysql://x").run().exits(7);
    url.stdout("").stderr_has("the database URL");
}

/// The lists at the top of this file name the flags whose variables the tests below try.
#[test]
fn every_flag_in_the_help_has_a_test_of_its_variable() {
    let known: BTreeSet<_> = REFUSED.iter().map(|(_, flag, _)| *flag).chain(SWITCHES).collect();
    for command in [
        "init",
        "migrate",
        "apply",
        "import-crontab",
        "enqueue",
        "tick",
        "retry",
        "cancel",
        "edit",
        "settle",
        "undo",
        "list",
        "list-dead",
        "failures",
        "trail",
        "show",
        "next",
        "jobs",
        "once",
        "wait",
        "pause",
        "resume",
        "hold",
        "release",
        "prune",
        "load",
        "doctor",
        "grants",
        "status",
        "check",
        "report",
        "completions",
    ] {
        let help = jobctl([command, "--help"]).run().success().stdout;
        let flags =
            help.lines().filter_map(|line| line.trim_start().strip_prefix("--")).map(|line| {
                let name =
                    line.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap();
                format!("--{name}")
            });
        for flag in flags {
            assert!(known.contains(&*flag), "{command} {flag}");
        }
    }
}

#[test]
fn a_variable_applies_to_one_command_only() {
    let db = TestDb::new();
    let dead = enqueue_in_status(&db, "dead");
    // Variables of other commands, and variables that a job's command gets.
    for variable in
        ["JOBCTL_TICK_QUEUE", "JOBCTL_LIST_LIMIT", "JOBCTL_JOB", "JOBCTL_ATTEMPT", "JOBCTL_QUEUE"]
    {
        db.jobctl(["retry", &dead.to_string()]).env(variable, "no such").run().success();
        db.jobctl(["show", &dead.to_string()]).env(variable, "no such").run().success();
    }
    // If `cancel` read the filter of `retry`, it would find no run.
    let cancel = || db.jobctl(["cancel", "--all-waiting", "--yes"]).env("JOBCTL_RETRY_JOB", "http");
    // The dry-run variable of `cancel` makes it a dry run; that of `retry` does not.
    cancel().env("JOBCTL_CANCEL_DRY_RUN", "1").run().success();
    assert_eq!(db.status(dead), "queued");
    cancel().env("JOBCTL_RETRY_DRY_RUN", "1").run().success().stdout_has("cancelled");
    assert_eq!(db.status(dead), "cancelled");
}

/// A variable that is left over, or empty by mistake, must not change other runs than the command
/// line says. Ignoring it would be as dangerous: a filter would be missing.
#[test]
fn no_variable_selects_or_confirms_what_a_command_changes() {
    let assert_refused = |line: &[&str], flag: &str, value: &str| {
        let name = variable(line[0], flag);
        let refused = jobctl(line.iter().copied()).env(&name, value).run().exits(2).stdout("");
        let why = format!("cannot use {name}: no variable selects or confirms what");
        refused
            .complains_once()
            .stderr_has(&why)
            .stderr_has(&format!("and write {flag} instead\n"));
    };
    // All flags below "Which runs:" in the help, except the zone, which selects nothing alone.
    for line in [
        &["retry", "1"][..],
        &["cancel", "1"],
        &["edit", "1", "--priority", "1"],
        &["settle", "1"],
        &["hold", "--queue", "mail"],
        &["release", "--queue", "mail"],
    ] {
        let help = jobctl([line[0], "--help"]).run().success().stdout;
        let (_, which) = help.split_once("\nWhich runs:\n").unwrap();
        let which = which.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
        let flags: Vec<_> =
            which.filter_map(|line| line.trim().split(' ').next()?.strip_prefix("--")).collect();
        assert!(flags.contains(&"job"), "{help}");
        let flags = flags.into_iter().filter(|flag| *flag != "time-zone");
        for flag in flags.chain(help.contains("--yes").then_some("yes")) {
            assert_refused(line, &format!("--{flag}"), "1");
            assert_refused(line, &format!("--{flag}"), "");
        }
    }
    // The same flags by name, and those of commands whose help has no such section.
    for (line, flags) in [
        (&["retry", "1"][..], &["--all-dead", "--all-cancelled", "--again"][..]),
        (&["cancel", "1"], &["--all-waiting", "--all", "--error"]),
        (&["edit", "1", "--priority", "1"], &["--all-waiting", "--from-queue"]),
        (&["settle", "1"], &["--all-dead", "--since"]),
        (&["prune"], &["--yes"]),
        (&["hold", "--queue", "mail"], &["--all", "--worker"]),
        (&["release", "--queue", "mail"], &["--all", "--job"]),
        (&["retry", "1"], &["--force"]),
        (&["apply", "/nowhere/file"], &["--yes", "--take-over"]),
        (&["accept-restore"], &["--yes"]),
        (&["init"], &["--yes"]),
        (&["load"], &["--yes"]),
        (&["enqueue", "a"], &["--job"]),
        (&["pause", "a"], &["--job"]),
        (&["resume", "a"], &["--job"]),
        (&["forget", "web1"], &["--worker"]),
    ] {
        flags.iter().for_each(|flag| assert_refused(line, flag, "1"));
    }
    // The variable of a flag that selects nothing is read.
    let db = TestDb::new();
    db.jobctl(["prune"]).env("JOBCTL_PRUNE_OLDER_THAN", "7d").run().success();
    let doctor = db.jobctl(["doctor"]).env("JOBCTL_CANCEL_JOB", "mail").run();
    doctor
        .stdout_has("does not read JOBCTL_CANCEL_JOB\tunset it, or see the flags of the command\n");
}

/// Commands, and flags that take any text.
const TEXTS: [(&[&str], &str); 25] = [
    (&["once", "k", "--settle", "done"], "--result"),
    (&["list"], "--error"),
    (&["list"], "--enqueued-by"),
    (&["list"], "--columns"),
    (&["list"], "--sort"),
    (&["list"], "--database-url"),
    (&["list"], "--key"),
    (&["list"], "--job"),
    (&["failures"], "--error"),
    (&["trail"], "--by"),
    (&["trail"], "--action"),
    (&["report"], "--title"),
    (&["report"], "--output"),
    (&["check"], "--exec"),
    (&["check"], "--webhook"),
    (&["check"], "--job"),
    (&["init"], "--exec"),
    (&["init"], "--report"),
    (&["prune"], "--archive"),
    (&["pause", "a"], "--reason"),
    (&["enqueue", "shell"], "--payload-file"),
    (&["enqueue"], "--batch"),
    (&["enqueue", "--batch", "/dev/null"], "--then"),
    (&["cancel", "--all-waiting", "--yes"], "--error"),
    (&["hold"], "--job"),
];

#[test]
fn an_empty_value_is_an_error_that_names_its_flag_or_variable() {
    let assert_refused = |command: &[&str], flag: &str, value: &str| {
        let line = command.iter().copied().chain([flag, value]);
        jobctl(line).run().exits(2).stdout("").stderr_has(flag);
    };
    for (command, flag) in TEXTS {
        ["", " "].iter().for_each(|value| assert_refused(command, flag, value));
    }
    let of_values = REFUSED.iter().map(|(command, flag, _)| (*command, *flag));
    for (command, flag) in of_values.clone() {
        assert_refused(command, flag, "");
    }
    // Lists with an empty element.
    for (command, flag, value) in [
        (&["list"][..], "--columns", "id,,status"),
        (&["list"], "--sort", "id,"),
        (&["list"], "--status", "dead,,failed"),
        (&["check"], "--job", ",mail"),
        (&["failures"], "--job", "mail, ,web"),
        (&["tick"], "--queue", "mail,,web"),
        (&["tick"], "--http-allow", "a.example,"),
        (&["enqueue", "shell", "{}"], "--after", "1,,2"),
        (&["grants", "--role", "a"], "--as", "viewer,"),
    ] {
        assert_refused(command, flag, value);
        let name = variable(command[0], flag);
        let by_variable = jobctl(command.iter().copied()).env(&name, value).run().exits(2);
        by_variable.stdout("").stderr_has(&name);
    }
    // The variable of a switch must not be empty either.
    let switches = [
        (&["list-dead"][..], "--json"),
        (&["tick"], "--quiet"),
        (&["apply", "/nowhere/file"], "--prune"),
        (&["cancel", "1"], "--dry-run"),
        // This switch also excludes a flag of the command line. The error is the empty value.
        (&["list", "--format", "tsv"], "--json"),
    ];
    let settings = TEXTS.into_iter().filter(|(command, flag)| {
        let is_filter = ["cancel", "hold"].contains(&command[0]);
        !is_filter && *flag != "--database-url"
    });
    for (command, flag) in of_values.chain(settings).chain(switches) {
        let name = variable(command[0], flag);
        for value in ["", " \t"] {
            let refused = jobctl(command.iter().copied()).env(&name, value).run().exits(2);
            let why = format!(
                "jobctl: cannot use {name}: its value is empty; give a value, or remove {name}\n"
            );
            refused.stdout("").stderr(&why);
        }
        // The help is printed in spite of a wrong variable.
        jobctl([command[0], "--help"]).env(&name, "").run().success();
    }
    let grants = jobctl(["grants", "--as", "viewer"]).env("JOBCTL_GRANTS_ROLE", "").run().exits(2);
    grants.stderr_has("cannot use JOBCTL_GRANTS_ROLE: its value is empty");
    let run =
        jobctl(["enqueue", "--run", "shell", "--", "true"]).env("JOBCTL_TICK_SHELL", "").run();
    run.exits(2).stderr_has("cannot use JOBCTL_TICK_SHELL: its value is empty");
    // If an empty address were ignored, jobctl would use another database.
    for name in ["JOBCTL_DATABASE_URL", "DATABASE_URL", "JOBCTL_ENV_FILE"] {
        for value in ["", " "] {
            let list = jobctl(["list"]).env(name, value).run().exits(2).stdout("");
            list.stderr(&format!(
                "jobctl: cannot use {name}: its value is empty; give a value, or remove {name}\n"
            ));
        }
    }
    jobctl(["list"]).env("JOBCTL_LOG", "").run().exits(2).stderr_has("JOBCTL_LOG is ``; write off");
}

#[test]
fn an_empty_value_changes_no_run() {
    let db = TestDb::new();
    let waiting = db.enqueue(["shell", "--", "true"]);
    let dead = enqueue_in_status(&db, "dead");
    for variable in ["JOBCTL_CANCEL_JOB", "JOBCTL_CANCEL_ERROR", "JOBCTL_CANCEL_KEY"] {
        db.jobctl(["cancel", "--all-waiting", "--yes"]).env(variable, "").run().exits(2);
    }
    for value in ["", " "] {
        db.jobctl(["cancel", "--all-waiting", "--yes", "--error", value]).run().exits(2);
        db.jobctl(["settle", "--all-dead", "--yes", "--enqueued-by", value]).run().exits(2);
        db.jobctl(["retry", "--all-dead", "--yes", "--error", value]).run().exits(2);
    }
    db.jobctl(["cancel", "--all-waiting", "--yes", "--key", "*"]).run().exits(2);
    assert_eq!(db.status(waiting), "queued");
    assert_eq!(db.of_run(dead, "status, settled_at IS NULL"), "dead|t");
}

#[test]
fn doctor_reports_unknown_variables() {
    let db = TestDb::new();
    let doctor = |variable: &str| {
        let doctor = db.jobctl(["doctor"]).env(variable, "8").run();
        doctor.stdout.lines().find(|line| line.contains("\tenvironment\t")).unwrap().to_owned()
    };
    for (variable, meant) in [
        ("JOBCTL_CONCURRENCY", "JOBCTL_TICK_CONCURRENCY"),
        ("JOBCTL_OLDER_THAN", "JOBCTL_TICK_OLDER_THAN"),
        ("JOBCTL_LIST_LIMITS", "JOBCTL_LIST_LIMIT"),
        ("JOBCTL_DATABASE", "JOBCTL_DATABASE_URL"),
    ] {
        assert_eq!(
            doctor(variable),
            format!("warn\tenvironment\tjobctl does not read {variable}\tdid you mean {meant}?")
        );
    }
    for known in ["JOBCTL_TICK_CONCURRENCY", "JOBCTL_LIST_DEAD_LIMIT"] {
        assert!(doctor(known).starts_with("ok\t"), "{known}");
    }
    // Doctor knows the variables that a job's command gets.
    let script = "\"$jobctl\" doctor --database-url \"$url\"";
    let environment = serde_json::json!({"jobctl": env!("CARGO_BIN_EXE_jobctl"), "url": db.url()});
    let job = serde_json::json!({"command": ["sh", "-c", script], "env": environment});
    let job = db.enqueue(["--key", "k", "shell", &job.to_string()]);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_attempt(job, 1, "output ~ 'ok\tenvironment\t'"), "t");
}

#[test]
fn the_command_line_overrides_variables() {
    let db = TestDb::new();
    let id = db
        .jobctl(["enqueue", "--priority", "7", "shell", "--", "true"])
        .env("JOBCTL_ENQUEUE_PRIORITY", "3")
        .run()
        .success();
    assert_eq!(db.of_run(id.stdout.trim().parse().unwrap(), "priority"), "7");
    // The variable has a right address, so the error is about the flag.
    db.jobctl(["list-dead", "--database-url", "mysql://x"])
        .run()
        .exits(7)
        .stderr_has("the database URL");
}

#[test]
fn a_variable_that_does_not_fit_the_command_line_is_ignored() {
    let db = TestDb::new();
    let job = db.enqueue(["shell", "--", "true"]).to_string();
    db.jobctl(["tick", "--quiet"]).run().success();
    // A requirement is missing: --count needs a schedule, --attempt needs --output.
    let next = db.jobctl(["next"]).env("JOBCTL_NEXT_COUNT", "3");
    next.env("JOBCTL_NEXT_FROM", "2026-01-01T00:00:00Z").run().success().stdout("").stderr("");
    db.jobctl(["show", &job]).env("JOBCTL_SHOW_ATTEMPT", "1").run().success();
    // An argument excludes the variable's flag.
    let list = db.jobctl(["list", "shell"]).env("JOBCTL_LIST_JOB", "other").run().success();
    assert!(list.stdout.starts_with(&format!("{job}\tshell")), "{list}");
    let prune = db.jobctl(["prune", &job]).env("JOBCTL_PRUNE_OLDER_THAN", "7d");
    prune.run().success().stdout(&format!("{job}\tdeleted\n"));
}

#[test]
fn variables_satisfy_and_exclude_each_other_like_flags() {
    let next = jobctl(["next"]).env("JOBCTL_NEXT_COUNT", "2").env("JOBCTL_NEXT_SCHEDULE", "@daily");
    let next = next.env("JOBCTL_NEXT_TIME_ZONE", "Asia/Tokyo").run().success();
    assert_eq!(next.stdout.lines().count(), 2, "{next}");
    next.stdout_has("+09:00");
    // A batch excludes a key.
    let enqueue = jobctl(["enqueue"]).env("JOBCTL_ENQUEUE_KEY", "k");
    let enqueue = enqueue.env("JOBCTL_ENQUEUE_BATCH", "/nowhere/file").run().exits(2);
    enqueue.stderr_has("JOBCTL_ENQUEUE_BATCH").stderr_has("JOBCTL_ENQUEUE_KEY");
    // An argument is missing if neither the command line nor a variable gives it.
    jobctl(["enqueue"]).env("JOBCTL_ENQUEUE_KEY", "k").run().exits(2).stderr_has("<JOB>");
    // An id excludes both ages: the variable is ignored, and the flag is not.
    jobctl(["prune", "3", "--dead-older-than", "7d"])
        .env("JOBCTL_PRUNE_OLDER_THAN", "7d")
        .run()
        .exits(2)
        .stderr_has("--dead-older-than");
}

#[test]
fn a_switch_variable_is_off_for_0_false_and_no() {
    let db = TestDb::new();
    for (value, json) in
        [("1", true), ("true", true), ("yes", true), ("0", false), ("false", false), ("no", false)]
    {
        let expected = if json { "[]\n" } else { "" };
        db.jobctl(["list-dead"])
            .env("JOBCTL_LIST_DEAD_JSON", value)
            .run()
            .success()
            .stdout(expected)
            .stderr("");
    }
}

/// Each of these variables changes what its command does.
#[test]
fn the_variables_of_switches_have_the_effect_of_their_flags() {
    let db = TestDb::new();
    let empty = TestDb::empty();
    empty
        .jobctl(["migrate"])
        .env("JOBCTL_MIGRATE_DRY_RUN", "1")
        .run()
        .success()
        .stdout(&all_migrations());
    assert_eq!(empty.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
    db.jobctl(["report"])
        .env("JOBCTL_REPORT_TITLE", "Our shop")
        .run()
        .success()
        .stdout_has("Our shop</title>");
    let dead = enqueue_in_status(&db, "dead");
    db.jobctl(["status"])
        .env("JOBCTL_STATUS_PROMETHEUS", "1")
        .run()
        .success()
        .stdout_has("jobctl_runs{");
    db.jobctl(["list-dead"])
        .env("JOBCTL_LIST_DEAD_GROUP", "1")
        .run()
        .success()
        .stdout_has("shell\t\t1\t");
    db.jobctl(["show", &dead.to_string()])
        .env("JOBCTL_SHOW_JSON", "1")
        .run()
        .success()
        .stdout_has("{\"id\":");
    db.jobctl(["tick"])
        .env("JOBCTL_TICK_QUIET", "1")
        .env("JOBCTL_TICK_JSON", "1")
        .run()
        .success()
        .stdout("")
        .stderr("");
    let lingering = db
        .jobctl(["tick"])
        .env("JOBCTL_TICK_LINGER", "1")
        .env("JOBCTL_TICK_MAX_TIME", "1s")
        .run()
        .success();
    // A tick without `--linger` would end at once, because nothing is due.
    assert!(lingering.took.as_millis() >= 900, "{lingering}");
}

#[test]
fn errors_name_a_variable_that_is_not_utf_8() {
    let script = |name: &str, command: &str| {
        Invocation::script(
            &format!("{name}=$(printf 'a\\377'); export {name}; \"$jobctl\" {command}"),
            None,
        )
    };
    for (name, command) in
        [("JOBCTL_ENQUEUE_KEY", "enqueue shell -- true"), ("JOBCTL_DATABASE_URL", "list")]
    {
        let refused = script(name, command).run().exits(2).stdout("");
        refused.stderr(&format!("jobctl: the variable {name} is not UTF-8\n"));
    }
}

#[test]
fn jobctl_log_sets_the_log_level() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).env("JOBCTL_LOG", "off").run().success().stderr("");
    let why = "jobctl: JOBCTL_LOG is `loud`; write off, error, warn, info, debug or trace\n";
    db.jobctl(["tick"]).env("JOBCTL_LOG", "loud").run().exits(2).stderr(why);
}

#[test]
fn a_file_sets_variables_for_jobctl_and_its_jobs() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = folder.path().join("jobctl.env");
    let url = db.url();
    let text = format!(
        "# secrets\nexport JOBCTL_DATABASE_URL='{url}'\nTOKEN=\"s3cret word\"\nSET=no\n\
         JOBCTL_TICK_QUIET=1\n"
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let with_file = |arguments: &[&'static str]| {
        let command = db.jobctl(arguments.iter().copied()).env("JOBCTL_DATABASE_URL", "");
        command.env("SET", "yes").env("JOBCTL_ENV_FILE", file.to_str().unwrap())
    };
    let show = "echo $TOKEN, $SET, ${JOBCTL_DATABASE_URL-no}, ${JOBCTL_ENV_FILE-no}";
    let id = db.enqueue_script(show);
    // A variable of the environment comes before the file: SET is `yes`. The flag of a tick is also
    // read from the file.
    with_file(&["tick"]).run().success().stderr("");
    assert_eq!(db.of_attempt(id, 1, "output"), "s3cret word, yes, no, no\n");
    with_file(&["doctor"]).run().prints_nowhere("does not read").prints_nowhere("s3cret");
    let once = with_file(&["once", "k", "--", "sh", "-c", show]).run().success();
    once.stdout("s3cret word, yes, no, no\n");
}

#[test]
fn no_command_gets_the_secrets_of_jobctl_itself() {
    let (db, folder) = (TestDb::new(), temp_dir());
    // A file with a variable of the jobs and three secrets of jobctl.
    let file = folder.path().join("jobctl.env");
    let text = "TOKEN=of_jobs\nJOBCTL_CHECK_WEBHOOK=https://s3cret.example\n\
                JOBCTL_CHECK_EXEC=s3cret\nJOBCTL_INIT_EXEC=s3cret\n";
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    db.apply(
        "[jobs.script]\nshell = 'env'\non_end = 'hook'\n[jobs.hook]\nshell = 'env'\n\
         [jobs.words]\nshell = ['env']\n",
    );
    let jobctl = |words: &[&'static str]| {
        let jobctl = db.jobctl(words.iter().copied()).current_dir(folder.path());
        jobctl.env("JOBCTL_ENV_FILE", file.to_str().unwrap())
    };
    // Five runs print their environment: two jobs, the hook of one of them, and two runs that are
    // executed alone, by `enqueue --run` and `tick --run`.
    for job in ["script", "words"] {
        db.enqueue([job]);
    }
    jobctl(&["tick", "--quiet"]).run().success().stderr("");
    jobctl(&["enqueue", "--run", "shell", "--", "env"]).run().success();
    let alone = db.enqueue(["shell", "--", "env"]).to_string();
    jobctl(&["tick", "--quiet", "--run"]).args([&*alone]).run().success();
    let outputs = db.query("SELECT output FROM jobctl.job_attempts ORDER BY run_id");
    // `once` and `check --exec` start commands, too. A dead run is a problem for `check`.
    let once = jobctl(&["once", "k", "--", "env"]).run().success().stdout;
    let check = jobctl(&["check", "--exec", "env >reported"]);
    db.execute("UPDATE jobctl.job_runs SET status = 'dead' WHERE job_type = 'words'");
    check.env("XDG_STATE_HOME", folder.path().to_str().unwrap()).run().exits(1);
    let reported = fs::read_to_string(folder.path().join("reported")).unwrap();
    // `init` starts the program `crontab`.
    let crontab = folder.path().join("crontab");
    fs::write(&crontab, "#!/bin/sh\nenv >crontab.env\n").unwrap();
    fs::set_permissions(&crontab, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    jobctl(&["init", "--remove"]).env("PATH", &path).env("HOME", "/dev/null").run();
    let crontab = fs::read_to_string(folder.path().join("crontab.env")).unwrap();
    // Each command got the variable of the jobs, and no variable of jobctl itself.
    assert_eq!(outputs.matches("TOKEN=of_jobs").count(), 5, "{outputs}");
    for seen in [outputs, once, reported, crontab] {
        assert!(seen.contains("TOKEN=of_jobs"), "{seen}");
        for own in ["s3cret", "JOBCTL_DATABASE_URL", "JOBCTL_ENV_FILE"] {
            assert!(!seen.contains(own), "{own}: {seen}");
        }
    }
}

#[test]
fn a_file_of_variables_is_private_and_has_only_variables() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = folder.path().join("jobctl.env");
    let list = || db.jobctl(["list"]).env("JOBCTL_ENV_FILE", file.to_str().unwrap()).run();
    let assert_refused = |why: &str| {
        let refused = list().exits(7).stdout("").complains_once().prints_nowhere("s3cret");
        refused.stderr_has(&format!("cannot use JOBCTL_ENV_FILE {}: {why}", file.display()));
    };
    assert_refused("No such file");
    fs::write(&file, "A=1\ns3cret\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_refused("line 2 is not NAME=VALUE; correct it");
    fs::write(&file, "A=s3cret\n").unwrap();
    list().success();
    for mode in [0o604, 0o602, 0o644, 0o660] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_refused("other users can read it; run `chmod 600`");
    }
    if rustix::process::geteuid().is_root() {
        // As in libpq, a group may read a file of root.
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        list().success();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(65534), None).unwrap();
        assert_refused("it belongs to another user; run `chown`");
    } else {
        leave_out("a file of variables of another user", "a change of owner needs root");
    }
}
