//! Every flag can be given as `JOBCTL_<FLAG>`.

use std::collections::BTreeSet;

use crate::cancel::run_in;
use crate::support::{Invocation, TestDb, jobctl, temp_dir};

fn variable(flag: &str) -> String {
    format!("JOBCTL_{}", flag.trim_start_matches("--").to_uppercase().replace('-', "_"))
}

/// A command, one of its flags, and a value that the flag refuses.
const REFUSED: [(&[&str], &str, &str); 38] = [
    (&["list-dead"], "--database-url", "mysql://x"),
    (&["enqueue", "shell", "{}"], "--run-at", "tomorrow"),
    (&["enqueue", "shell", "{}"], "--in", "5"),
    (&["enqueue", "shell", "{}"], "--key", "a\tb"),
    (&["enqueue", "shell", "{}"], "--priority", "x"),
    (&["enqueue", "shell", "{}"], "--queue", "a b"),
    (&["enqueue", "shell", "{}"], "--key-scope", "sometimes"),
    (&["enqueue", "shell", "{}"], "--max-attempts", "0"),
    (&["enqueue", "shell", "{}"], "--timeout", "5"),
    (&["enqueue", "shell", "{}"], "--backoff", "1m"),
    (&["enqueue", "shell"], "--payload-file", "/nowhere/file"),
    (&["enqueue"], "--batch", "/nowhere/file"),
    (&["tick"], "--concurrency", "0"),
    (&["tick"], "--max-time", "5"),
    (&["tick"], "--lease", "5"),
    (&["tick"], "--grace", "5"),
    (&["list-dead"], "--limit", "0"),
    (&["prune"], "--older-than", "soon"),
    (&["prune"], "--dead-older-than", "soon"),
    (&["list"], "--status", "done"),
    (&["list"], "--job", "x123456789x123456789x123456789x123456789x123456789x123456789x123456789"),
    (&["list"], "--error-type", "bad luck"),
    (&["list"], "--since", "yesterday"),
    (&["list"], "--until", "1M"),
    (&["show", "1", "--output"], "--attempt", "0"),
    (&["next"], "--schedule", "x y"),
    (&["next", "--schedule", "@daily"], "--time-zone", "Mars/Phobos"),
    (&["next", "--schedule", "@daily"], "--from", "noon"),
    (&["next", "--schedule", "@daily"], "--count", "0"),
    (&["once", "k"], "--settle", "somehow"),
    (&["check"], "--max-dead", "x"),
    (&["check"], "--max-lag", "5"),
    (&["check"], "--max-tick-age", "5"),
    (&["check"], "--max-running", "5"),
    (&["check"], "--max-failures", "x"),
    (&["check", "--max-failures", "1"], "--within", "5"),
    (&["grants", "--as", "viewer"], "--role", "a\tb"),
    (&["grants", "--role", "a"], "--as", "king"),
];
const REFUSED_BY_TICK: [(&[&str], &str, &str); 5] = [
    (&["tick"], "--limit", "0"),
    (&["tick"], "--queue", "a b"),
    (&["tick"], "--worker", "a\tb"),
    (&["tick"], "--shell", "some"),
    (&["tick"], "--http-allow", "a b"),
];
/// Their tests are below.
/// And those of the ones which take any text.
const SWITCHES: [&str; 14] = [
    "--crontab",
    "--json",
    "--dry-run",
    "--prune",
    "--all-dead",
    "--all-waiting",
    "--yes",
    "--force",
    "--group",
    "--output",
    "--prometheus",
    "--title",
    "--linger",
    "--quiet",
];

#[test]
fn a_variable_says_what_its_flag_says() {
    for (command, flag, value) in REFUSED.iter().chain(&REFUSED_BY_TICK) {
        let by_flag = jobctl(command.iter().copied()).args([*flag, value]).run().stdout("");
        let by_variable = jobctl(command.iter().copied()).env(&variable(flag), value).run().stdout("");
        assert!(!by_flag.status.success(), "{by_flag}");
        assert_eq!((by_flag.status, by_flag.stderr), (by_variable.status, by_variable.stderr), "{flag}");
    }
}

#[test]
fn every_flag_in_the_help_is_tested_here() {
    let known: BTreeSet<_> = REFUSED.iter().chain(&REFUSED_BY_TICK).map(|(_, flag, _)| *flag).chain(SWITCHES).collect();
    for command in [
        "migrate",
        "apply",
        "enqueue",
        "tick",
        "retry",
        "cancel",
        "list",
        "list-dead",
        "show",
        "next",
        "once",
        "pause",
        "resume",
        "prune",
        "doctor",
        "grants",
        "status",
        "check",
        "report",
        "completions",
    ] {
        let help = jobctl([command, "--help"]).run().success().stdout;
        let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")).map(|line| {
            let name = line.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap();
            format!("--{name}")
        });
        for flag in flags {
            assert!(known.contains(&*flag), "{command} {flag}");
        }
    }
}

#[test]
fn what_is_said_for_ticks_does_not_decide_which_runs_are_meant() {
    let db = TestDb::new();
    let dead = run_in(&db, "dead");
    db.jobctl(["retry", &dead.to_string()]).env("JOBCTL_QUEUE", "mail").run().success();
    // What is no flag of a tick's does: it was said for this.
    for (variable, value) in [("JOB", "http"), ("KEY", "x"), ("ERROR_TYPE", "timeout"), ("UNTIL", "1d")] {
        let cancel = db.jobctl(["cancel", "--all-waiting"]).env(&format!("JOBCTL_{variable}"), value).run();
        cancel.success().stdout("");
    }
    db.jobctl(["cancel", "--all-waiting"]).env("JOBCTL_QUEUE", "mail").run().success().stdout_has("cancelled");
}

#[test]
fn where_the_report_is_written_does_not_decide_what_show_prints() {
    let db = TestDb::new();
    let dead = run_in(&db, "dead");
    let folder = temp_dir();
    let page = folder.path().join("x.html");
    let with_page = |line: &str| db.jobctl(line.split(' ')).env("JOBCTL_OUTPUT", page.to_str().unwrap()).run();
    with_page("report").success().stdout("");
    assert!(page.exists());
    with_page(&format!("show {dead}")).success().stdout_has("status:");
    with_page(&format!("show {dead} --output")).exits(3).stderr_has("no attempt has ended");
}

#[test]
fn what_was_said_to_a_tick_is_not_said_to_the_commands_of_its_jobs() {
    let db = TestDb::new();
    let script = "\"$jobctl\" enqueue --database-url \"$url\" shell -- true";
    let outer = serde_json::json!({"command": ["sh", "-c", script], "env": {"jobctl": env!("CARGO_BIN_EXE_jobctl"), "url": db.url()}});
    db.enqueue(["--queue", "mail", "shell", &outer.to_string()]);
    for queues in ["mail", "mail,slow"] {
        db.jobctl(["tick"]).env("JOBCTL_QUEUE", queues).env("JOBCTL_LIMIT", "1").run().success();
        db.execute("UPDATE jobctl.job_runs SET queue = 'mail' WHERE status = 'queued'");
    }
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1"), "succeeded|2");
}

#[test]
fn the_command_line_wins() {
    let db = TestDb::new();
    let id =
        db.jobctl(["enqueue", "--priority", "7", "shell", "--", "true"]).env("JOBCTL_PRIORITY", "3").run().success();
    assert_eq!(db.of_run(id.stdout.trim().parse().unwrap(), "priority"), "7");
    db.jobctl(["list-dead", "--database-url", "mysql://x"]).run().exits(7).stderr_has("the database URL");
}

#[test]
fn a_switch_is_on_unless_its_variable_says_no() {
    let db = TestDb::new();
    for (value, json) in
        [("1", true), ("true", true), ("yes", true), ("0", false), ("false", false), ("no", false), ("", false)]
    {
        let expected = if json { "[]\n" } else { "" };
        db.jobctl(["list-dead"]).env("JOBCTL_JSON", value).run().success().stdout(expected).stderr("");
    }
    let empty = TestDb::empty();
    empty.jobctl(["migrate"]).env("JOBCTL_DRY_RUN", "1").run().success().stdout("0001_initial\n");
    assert_eq!(empty.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
    let id = run_in(&db, "running");
    db.jobctl(["retry", &id.to_string()]).env("JOBCTL_FORCE", "1").run().success();
    let id = run_in(&db, "dead");
    db.jobctl(["retry"]).env("JOBCTL_ALL_DEAD", "1").run().success().stdout(&format!("{id}\tqueued\n"));
    db.jobctl(["cancel"]).env("JOBCTL_ALL_WAITING", "1").run().success().stdout_has("cancelled");
    db.jobctl(["report"]).env("JOBCTL_TITLE", "Our shop").run().success().stdout_has("Our shop</title>");
    let dead = run_in(&db, "dead");
    db.jobctl(["status"]).env("JOBCTL_PROMETHEUS", "1").run().success().stdout_has("jobctl_runs{");
    db.jobctl(["list-dead"]).env("JOBCTL_GROUP", "1").run().success().stdout_has("shell\t\t1\t");
    db.jobctl(["show", &dead.to_string()]).env("JOBCTL_JSON", "1").run().success().stdout_has("{\"id\":");
    db.jobctl(["retry", &dead.to_string()]).env("JOBCTL_YES", "1").run().success();
    // Also where it asks for nothing: a crontab sets it for all commands.
    db.jobctl(["tick"]).env("JOBCTL_QUIET", "1").env("JOBCTL_JSON", "1").run().success().stdout("").stderr("");
    let lingering = db.jobctl(["tick"]).env("JOBCTL_LINGER", "1").env("JOBCTL_MAX_TIME", "1s").run().success();
    assert!(lingering.took.as_millis() >= 900, "{lingering}");
}

#[test]
fn a_variable_that_is_no_text_is_named() {
    let script = |name: &str, command: &str| {
        Invocation::script(&format!("{name}=$(printf 'a\\377'); export {name}; \"$jobctl\" {command}"), None)
    };
    for (name, command) in [("JOBCTL_KEY", "enqueue shell -- true"), ("JOBCTL_DATABASE_URL", "list")] {
        let refused = script(name, command).run().exits(2).stdout("");
        refused.stderr(&format!("jobctl: the variable {name} is not UTF-8\n"));
    }
    let argument = Invocation::script("\"$jobctl\" enqueue \"$(printf 'a\\377')\"", None).run();
    argument.exits(2).stdout("").stderr("jobctl: the argument `a\u{fffd}` is not UTF-8\n");
}

#[test]
fn an_empty_variable_is_none() {
    let db = TestDb::new();
    let mut enqueue = db.jobctl(["enqueue", "shell", "--", "true"]);
    let mut tick = db.jobctl(["tick"]);
    for (command, flag, _) in REFUSED.iter().chain(&REFUSED_BY_TICK) {
        if ["--database-url", "--shell", "--http-allow"].contains(flag) {
            continue;
        }
        if command[0] == "enqueue" {
            enqueue = enqueue.env(&variable(flag), "");
        } else {
            tick = tick.env(&variable(flag), "");
        }
    }
    enqueue.run().success();
    tick.run().success().stderr_has("succeeded");
}

#[test]
fn a_job_that_enqueues_does_not_hand_on_its_own_limit() {
    let db = TestDb::new();
    let script = "test \"$JOBCTL_MAX_ATTEMPTS\" = 3 && \"$jobctl\" enqueue --database-url \"$url\" shell -- true";
    let outer = serde_json::json!({"command": ["sh", "-c", script], "env": {"jobctl": env!("CARGO_BIN_EXE_jobctl"), "url": db.url()}});
    let outer = db.enqueue(["--max-attempts", "3", "shell", &outer.to_string()]);
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.status(outer), "succeeded");
    assert_eq!(db.query(&format!("SELECT max_attempts FROM jobctl.job_runs WHERE id <> {outer}")), "10");
    // Nor does one that lists runs see its own only, nor one that shows a run its own attempt.
    let script = "\"$jobctl\" list --database-url \"$url\" && \"$jobctl\" show 1 --database-url \"$url\"";
    let lister = serde_json::json!({"command": ["sh", "-c", script], "env": {"jobctl": env!("CARGO_BIN_EXE_jobctl"), "url": db.url()}});
    db.execute("INSERT INTO jobctl.job_runs (job_type, run_at) VALUES ('elsewhere', now() + interval '1 hour')");
    let lister = db.enqueue(["shell", &lister.to_string()]);
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.of_attempt(lister, 1, "output ~ 'elsewhere', output ~ 'run: +1'"), "t|t");
    // Elsewhere the variable is a flag like any other.
    let id = db.jobctl(["enqueue", "shell", "--", "true"]).env("JOBCTL_MAX_ATTEMPTS", "3").run().success();
    assert_eq!(db.of_run(id.stdout.trim().parse().unwrap(), "max_attempts"), "3");
}

#[test]
fn the_log_level_has_a_variable_of_its_own() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).env("JOBCTL_LOG", "off").run().success().stderr("");
    let why = "jobctl: JOBCTL_LOG is `loud`; write off, error, warn, info, debug or trace\n";
    db.jobctl(["tick"]).env("JOBCTL_LOG", "loud").run().exits(2).stderr(why);
    db.jobctl(["list-dead"]).env("JOBCTL_LOG", "").run().success().stderr("");
}
