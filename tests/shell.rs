//! Shell commands: input, environment, exit status and the end of their processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::cron;
use crate::support::{Gate, Role, TestDb, jobctl, leave_out, process, temp_dir, wait_until};

/// Enqueues a command with this payload, and returns the run's id.
fn enqueue(db: &TestDb, payload: &Value) -> i64 {
    // Through a pipe: an argument has a shorter limit than a payload.
    let enqueue = db.jobctl(["enqueue", "shell", "--payload-file", "-"]).stdin(payload.to_string());
    enqueue.run().success().stdout.trim().parse().unwrap()
}

/// Returns the output of a run's first attempt.
fn output(db: &TestDb, id: i64) -> String {
    db.of_attempt(id, 1, "output")
}

/// Executes a payload that must succeed, and returns its output.
#[track_caller]
fn output_of_success(db: &TestDb, payload: &Value) -> String {
    let id = enqueue(db, payload);
    db.jobctl(["tick", "--quiet"]).run().success().stdout("").stderr("");
    assert_eq!(db.status(id), "succeeded", "{}", db.dump());
    output(db, id)
}

#[test]
fn only_exit_status_0_succeeds_and_every_other_result_is_recorded() {
    let db = TestDb::new();
    // The script; the run's status, error type and error; and `exit_code|signal` of the attempt.
    // Exit statuses 8, 64, 65, 77 and 78 are permanent failures. 75 asks for a later attempt.
    let ends = [
        ("exit 0", "succeeded", "", "", "0|"),
        ("exit 1", "failed", "exit_code", "exit status 1", "1|"),
        ("exit 2", "failed", "exit_code", "exit status 2", "2|"),
        ("exit 7", "failed", "exit_code", "exit status 7", "7|"),
        ("exit 8", "dead", "exit_code", "exit status 8", "8|"),
        ("exit 63", "failed", "exit_code", "exit status 63", "63|"),
        ("exit 64", "dead", "exit_code", "exit status 64", "64|"),
        ("exit 65", "dead", "exit_code", "exit status 65", "65|"),
        ("exit 66", "failed", "exit_code", "exit status 66", "66|"),
        ("exit 75", "queued", "exit_code", "exit status 75", "75|"),
        ("exit 77", "dead", "exit_code", "exit status 77", "77|"),
        ("exit 78", "dead", "exit_code", "exit status 78", "78|"),
        ("exit 126", "failed", "exit_code", "exit status 126 (found but not executable)", "126|"),
        ("no-such-command", "failed", "exit_code", "exit status 127 (command not found)", "127|"),
        ("exit 255", "failed", "exit_code", "exit status 255", "255|"),
        ("kill -SEGV $$", "failed", "signal", "killed by SIGSEGV", "|11"),
        ("kill -KILL $$", "failed", "signal", "killed by SIGKILL (out of memory?)", "|9"),
        ("kill -TERM $$", "failed", "signal", "killed by SIGTERM", "|15"),
        ("exit 137", "failed", "exit_code", "exit status 137 (SIGKILL: out of memory?)", "137|"),
    ];
    let runs = ends.map(|end| (db.enqueue_script(end.0), end));
    db.jobctl(["tick"]).run().success();
    for (id, (script, status, error_type, error, how)) in runs {
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error"),
            format!("{status}|1|{error_type}|{error}"),
            "{script}"
        );
        let outcome = match status {
            "succeeded" => "succeeded",
            "queued" => "snoozed",
            _ => "failed",
        };
        // The history also has PATH if a command is not found.
        let error_of = "outcome, error_type, split_part(error, '; ', 1)";
        assert_eq!(
            db.of_attempt(id, 1, &format!("{error_of}, exit_code, signal, http_status")),
            format!("{outcome}|{error_type}|{error}|{how}|"),
            "{script}"
        );
    }
}

#[test]
fn a_string_is_a_script_and_a_list_is_run_without_a_shell() {
    let db = TestDb::new();
    let words = ["printf", "%s,", "$((1+1))", "*", "a b", "", "'", "ü\n"];
    assert_eq!(
        output_of_success(&db, &json!({"command": "echo $((1 + 1)); echo \"$0\""})),
        "2\nsh\n"
    );
    assert_eq!(output_of_success(&db, &json!({"command": words})), "$((1+1)),*,a b,,',ü\n,");

    let id = db.enqueue(["shell", "--", "printf", "%s,", "a b", "$HOME", "--json"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(output(&db, id), "a b,$HOME,--json,");
}

#[test]
fn a_command_reads_only_the_stdin_of_its_payload() {
    let db = TestDb::new();
    let long = "x".repeat(200_000);
    for (stdin, read) in [
        (json!("a\nb"), "a\nb"),
        (json!(""), ""),
        (json!({"id": 5, "of": [1.5, true, "ü"]}), r#"{"id": 5, "of": [1.5, true, "ü"]}"#),
        (json!([]), "[]"),
        (json!(17), "17"),
        (json!(null), "null"),
    ] {
        assert_eq!(output_of_success(&db, &json!({"command": "cat", "stdin": stdin})), read);
    }
    assert_eq!(output_of_success(&db, &json!({"command": "wc -c", "stdin": long})), "200000\n");

    // The command need not read it.
    assert_eq!(output_of_success(&db, &json!({"command": "echo done", "stdin": long})), "done\n");
    assert_eq!(
        output_of_success(
            &db,
            &json!({"command": "exec <&-; sleep 0.1; echo done", "stdin": long})
        ),
        "done\n"
    );

    // With `enqueue shell PAYLOAD -- COMMAND`, the payload is the stdin. The tick's stdin never is.
    let with_payload = db.enqueue(["shell", r#"{"id": 5}"#, "--", "cat"]);
    let without = db.enqueue(["shell", "--", "cat"]);
    db.jobctl(["tick"]).stdin("not for jobs").run().success();
    assert_eq!(output(&db, with_payload), r#"{"id": 5}"#);
    assert_eq!(output(&db, without), "");
}

#[test]
fn a_command_has_no_terminal_and_does_not_print_to_the_ticks_output() {
    let db = TestDb::new();
    let id = db.enqueue_script("test -t 0 || test -t 1 || test -t 2 || { echo no; echo tty >&2; }");
    db.jobctl(["tick", "--quiet"]).run().success().stdout("").stderr("");
    assert_eq!(output(&db, id), "no\n--- stderr ---\ntty\n");
}

#[test]
fn the_environment_names_the_run_and_the_attempt() {
    let db = TestDb::new();
    let script = "env | grep ^JOBCTL_ | sort; exit 1";
    // The payload can't replace these variables.
    let payload =
        json!({"command": script, "env": {"JOBCTL_RUN_ID": "0", "JOBCTL_SCHEDULED_FOR": "never"}})
            .to_string();
    let plain = db.enqueue(["shell", &payload, "--max-attempts", "3"]);
    let keyed = db.enqueue(["shell", &payload, "--key", "weekly: ü", "--max-attempts", "1"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET scheduled_for = '2026-03-08 03:00:00-04' WHERE id = {keyed}"
    ));
    // This tick has such variables itself, as in a job. It does not pass them to its jobs.
    let tick = || {
        db.jobctl(["tick"])
            .env("JOBCTL_SCHEDULED_FOR", "2020")
            .env("JOBCTL_ATTEMPT", "7")
            .run()
            .success()
    };
    tick();
    db.make_waiting_runs_due();
    tick();
    for attempt in [1, 2] {
        assert_eq!(
            db.of_attempt(plain, attempt, "output"),
            format!(
                "JOBCTL_ATTEMPT={attempt}\nJOBCTL_IDEMPOTENCY_KEY=jobctl-run-{plain}\n\
                 JOBCTL_JOB=shell\nJOBCTL_MAX_ATTEMPTS=3\nJOBCTL_RUN_ID={plain}\n"
            )
        );
    }
    assert_eq!(
        output(&db, keyed),
        format!(
            "JOBCTL_ATTEMPT=1\nJOBCTL_IDEMPOTENCY_KEY=weekly: ü\nJOBCTL_JOB=shell\n\
             JOBCTL_MAX_ATTEMPTS=1\nJOBCTL_RUN_ID={keyed}\n\
             JOBCTL_SCHEDULED_FOR=2026-03-08T07:00:00Z\n"
        )
    );
}

#[test]
fn the_environment_is_the_ticks_and_the_payloads() {
    let db = TestDb::new();
    let script = r#"echo "$FROM_TICK,$FROM_BOTH,$FROM_RUN,${JOBCTL_DATABASE_URL-unset}""#;
    let id =
        enqueue(&db, &json!({"command": script, "env": {"FROM_RUN": "a b=c", "FROM_BOTH": "run"}}));
    db.jobctl(["tick"]).env("FROM_TICK", "tick").env("FROM_BOTH", "tick").run().success();
    assert_eq!(output(&db, id), "tick,run,a b=c,unset\n");
}

#[test]
fn the_working_directory_is_the_payloads_or_the_ticks() {
    let db = TestDb::new();
    let (here, there) = (temp_dir(), temp_dir());
    let place = |directory: &tempfile::TempDir| {
        fs::canonicalize(directory.path()).unwrap().display().to_string()
    };
    let by_tick = enqueue(&db, &json!({"command": ["pwd", "-P"]}));
    let by_run = enqueue(&db, &json!({"command": ["pwd", "-P"], "cwd": there.path()}));
    db.jobctl(["tick"]).current_dir(here.path()).run().success();
    assert_eq!(output(&db, by_tick).trim_end(), place(&here));
    assert_eq!(output(&db, by_run).trim_end(), place(&there));
}

#[test]
fn a_command_that_cannot_be_started_fails_with_the_reason() {
    let db = TestDb::new();
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("plain"), "#!/bin/sh\n").unwrap();
    fs::write(path("no_interpreter"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(path("no_interpreter"), fs::Permissions::from_mode(0o755)).unwrap();
    // The payload, and the error of the run.
    let refused = [
        (json!({"command": ["no-such-program"]}), "no such program `no-such-program`"),
        (json!({"command": [path("plain")]}), "program `plain` is not executable"),
        (json!({"command": [path("")]}), "program is not executable"),
        (json!({"command": [path("no_interpreter")]}), "no such program `no_interpreter`"),
        (json!({"command": "true", "cwd": path("gone")}), "no such working directory"),
        (json!({"command": "true", "cwd": path("plain")}), "no such working directory"),
    ];
    let runs = refused.map(|(payload, why)| (enqueue(&db, &payload), why));
    let next = db.enqueue_script("true");
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    for (id, why) in runs {
        // The run is not dead: another host may have the program.
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error"),
            format!("failed|1|spawn|could not start: {why}")
        );
        assert_eq!(db.of_attempt(id, 1, "outcome, exit_code, signal, output"), "failed|||");
    }
    assert_eq!(db.status(next), "succeeded");
}

/// The error of the run has only the last part of the path, because a viewer reads it.
#[test]
fn the_log_and_the_history_say_where_a_missing_program_was_looked_up() {
    let db = TestDb::new();
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("no_interpreter"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(path("no_interpreter"), fs::Permissions::from_mode(0o755)).unwrap();
    let here = directory.path().display();
    // The payload, the error of the run, and what the log and the history add.
    for (payload, why, note) in [
        (
            json!({"command": ["bin/export"]}),
            "no such program `export`",
            format!("its path `bin/export` is relative to the directory `{here}`"),
        ),
        (
            json!({"command": ["/nowhere/bin/a"]}),
            "no such program `a`",
            "its path is `/nowhere/bin/a`".to_owned(),
        ),
        (
            json!({"command": ["./no_interpreter"], "cwd": path("")}),
            "no such program `no_interpreter`",
            "the file `./no_interpreter` exists, but not the interpreter that its first line names"
                .to_owned(),
        ),
        (json!({"command": ["a"]}), "no such program `a`", "PATH is `/nowhere:/a`".to_owned()),
        (
            json!({"command": ["a"], "env": {"PATH": "/own"}}),
            "no such program `a`",
            "PATH is `/own`".to_owned(),
        ),
        (
            json!({"command": "no-such-program"}),
            "exit status 127 (command not found)",
            "PATH is `/nowhere:/a`".to_owned(),
        ),
        (
            json!({"command": "no-such-program", "env": {"PATH": "/own"}}),
            "exit status 127 (command not found)",
            "PATH is `/own`".to_owned(),
        ),
    ] {
        let id = enqueue(&db, &payload);
        let tick = db.jobctl(["tick"]).current_dir(directory.path()).env("PATH", "/nowhere:/a");
        tick.run().success().stderr_has(why).stderr_has(&format!("; {note}, next attempt"));
        assert_eq!(db.of_run(id, "last_error").trim_start_matches("could not start: "), why);
        assert!(db.of_attempt(id, 1, "error").ends_with(&format!("{why}; {note}")));
        // The next tick must not try this run again.
        db.jobctl(["cancel", &id.to_string()]).run().success();
    }
}

#[test]
fn a_script_needs_no_path() {
    let (db, directory) = (TestDb::new(), temp_dir());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let id = db.enqueue_script("true");
    db.jobctl(["tick"]).env("PATH", &path("gone")).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn an_error_shows_only_the_program_name_of_a_command() {
    let db = TestDb::new();
    let viewer = Role::granted(&db, "viewer");
    // The job, its payload, and the error of the run.
    let runs = [
        ("shell", json!({"command": ["mysql -pS3CRET"]}), "could not start: no such program"),
        (
            "shell",
            json!({"command": ["PGPASSWORD=S3CRET", "psql"]}),
            "could not start: no such program",
        ),
        (
            "shell",
            json!({"command": ["/srv/acme/charge"]}),
            "could not start: no such program `charge`",
        ),
        (
            "shell",
            json!({"command": "true", "cwd": "/srv/acme"}),
            "could not start: no such working directory",
        ),
        (
            "shell",
            json!({"command": "true", "env": {"TOKEN=S3CRET": ""}}),
            "the payload is not a shell job: `env` has a name",
        ),
        (
            "http",
            json!({"url": "http://a", "headers": {"Auth: S3CRET": ""}}),
            "the payload is not an http job: `headers` has",
        ),
    ];
    let runs = runs.map(|(job, payload, why)| {
        let insert = format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, max_attempts)
             VALUES ('{job}', '{payload}', 1) RETURNING id"
        );
        (db.query(&insert).parse::<i64>().unwrap(), why)
    });
    db.jobctl(["tick"]).run().success().prints_nowhere("S3CRET");
    let mut seen = String::new();
    for (id, why) in runs {
        let error = db.of_run(id, "status || ' ' || last_error");
        assert!(error.starts_with(&format!("dead {why}")), "{error}");
        // `check` shows only the newest failure.
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET failed_at = now(), finished_at = now() WHERE id = {id}"
        ));
        seen += &viewer.jobctl(["check"]).run().exits(1).stdout;
        for command in ["list", "list-dead", "report"] {
            seen += &db.jobctl([command]).run().success().stdout;
        }
    }
    assert!(seen.contains("no such program `charge`"), "{seen}");
    assert!(!seen.contains("S3CRET") && !seen.contains("/srv/acme"), "{seen}");

    // The history, which only operators read, has the path.
    let [_, (variable, _), (path, _), (folder, _), ..] = runs;
    for (id, error) in [
        (
            variable,
            "no such program; the first word sets the variable PGPASSWORD, as only a shell does; \
             begin with `env PGPASSWORD=...`",
        ),
        (path, "no such program `charge`; its path is `/srv/acme/charge`"),
        (folder, "no such working directory; the directory is `/srv/acme`"),
    ] {
        assert_eq!(db.of_attempt(id, 1, "error"), format!("could not start: {error}"));
    }
}

#[test]
fn a_command_longer_than_64_kib_is_rejected_and_in_the_table_ends_dead() {
    let db = TestDb::new();
    let payload =
        |bytes: usize| json!({"command": format!("echo {}", "x".repeat(bytes - 5))}).to_string();
    let fits = db.enqueue(["shell", &payload(64 * 1024)]);
    db.jobctl(["enqueue", "shell", &payload(64 * 1024 + 1)])
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("`command` is longer than 64 KiB")
        .complains_once();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");

    // Only SQL can store a longer command.
    let forced = db.enqueue_script("true");
    db.execute(&format!(
        "UPDATE jobctl.job_runs
         SET payload = jsonb_build_object('command', repeat('x', 200000))
         WHERE id = {forced}"
    ));
    let next = db.enqueue_script("true");
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    assert_eq!(
        db.of_run(forced, "status, attempts, error_type, last_error"),
        "dead|1|bad_payload|the payload is not a shell job: `command` is longer than 64 KiB"
    );
    assert_eq!(db.status(next), "succeeded");
    // The longest command that fits has run: it printed its argument and a line break.
    assert_eq!(db.of_attempt(fits, 1, "output_bytes"), (64 * 1024 - 5 + 1).to_string());
}

#[test]
fn a_command_with_too_large_an_environment_ends_dead() {
    let db = TestDb::new();
    let value = "x".repeat(60_000);
    let id = enqueue(
        &db,
        &json!({"command": "true", "env": {"A": value, "B": value, "C": value, "D": value}}),
    );
    let next = db.enqueue_script("true");
    // Arguments and environment may take at most a quarter of the stack.
    db.jobctl(["tick", "--concurrency", "1"]).after("ulimit -s 900").run().success();
    assert_eq!(
        db.of_run(id, "status, attempts, error_type, last_error"),
        "dead|1|spawn|could not start: argument list too long"
    );
    assert_eq!(db.status(next), "succeeded");
}

#[test]
fn an_invalid_payload_in_the_table_ends_dead_and_starts_nothing() {
    let db = TestDb::new();
    let directory = temp_dir();
    let touch = format!("touch {}/started", directory.path().display());
    // The payload, and the error. `enqueue` refuses each of them, so SQL inserts them.
    let rows = [
        (json!({}), "missing field `command`"),
        (json!([touch]), "must be an object"),
        (json!(null), "must be an object"),
        (json!({"command": 5}), "`command` must be a string or a list of strings"),
        (json!({"command": []}), "`command` is empty"),
        (json!({"command": ["", touch]}), "`command` is empty"),
        (json!({"command": touch, "shell": "bash"}), "unknown field `shell`"),
        (json!({"command": touch, "env": {"A=B": "c"}}), "`env` has a name"),
        (json!({"command": touch, "env": {"": "c"}}), "`env` has a name"),
        (json!({"command": touch, "env": {"A": 5}}), "expected a string"),
        (json!({"command": touch, "cwd": 5}), "expected a string"),
    ];
    let runs = rows.map(|(payload, why)| {
        db.jobctl(["enqueue", "shell", &payload.to_string()])
            .run()
            .exits(2)
            .stdout("")
            .complains_once();
        let insert = format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) VALUES ('shell', \
                '{payload}') RETURNING id"
        );
        (db.query(&insert).parse().unwrap(), why)
    });
    let next = db.enqueue_script("true");
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    for (id, why) in runs {
        assert_eq!(db.of_run(id, "status, attempts, error_type"), "dead|1|bad_payload", "{why}");
        let error = db.of_run(id, "last_error");
        assert!(
            error.starts_with("the payload is not a shell job: ") && error.contains(why),
            "{error}"
        );
    }
    assert_eq!(db.status(next), "succeeded");
    assert!(!directory.path().join("started").exists());
}

#[test]
fn a_command_gets_three_descriptors_whatever_the_tick_inherited() {
    let db = TestDb::new();
    // The script prints its open descriptors. To list the folder, the shell opens one more. `-L`
    // leaves that one out, because it is closed by then.
    let script = "for fd in /proc/$$/fd/*; do if [ -L $fd ]; then echo ${fd##*/}; fi; done";
    let runs = [1, 2, 3].map(|_| enqueue(&db, &json!({"command": script, "stdin": "piped"})));
    db.jobctl(["tick"]).after("exec 3</etc/passwd 7</etc/passwd 9>/dev/null").run().success();
    for id in runs {
        assert_eq!(output(&db, id), "0\n1\n2\n");
    }
}

#[test]
fn a_command_gets_default_signal_actions_whatever_the_tick_inherited() {
    let db = TestDb::new();
    // The command prints its masks of blocked and of ignored signals.
    let id = db.enqueue(["shell", "--", "grep", "^Sig[BI]", "/proc/self/status"]);
    let ignored = "HUP,INT,QUIT,USR1,USR2,PIPE,ALRM,TERM,CHLD,XCPU";
    db.jobctl(["tick"])
        .after(&format!("exec env --ignore-signal={ignored} \"$0\" \"$@\""))
        .run()
        .success();
    assert_eq!(db.status(id), "succeeded", "{}", db.dump());
    let masks = output(&db, id);
    let mask = |name: &str| {
        let mask = masks.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        // The C library reserves 32 and 33; no program can reset them.
        u64::from_str_radix(mask.trim(), 16).unwrap() & !(0b11 << 31)
    };
    assert_eq!(mask("SigBlk:"), 0, "{masks}");
    assert_eq!(mask("SigIgn:"), 0, "{masks}");
}

#[test]
fn a_command_that_signals_its_own_group_hits_no_other_process() {
    let db = TestDb::new();
    let (term, kill) =
        (db.enqueue_script("kill 0; sleep 60"), db.enqueue_script("kill -KILL 0; sleep 60"));
    let neighbour = db.enqueue_script("sleep 0.3");
    // In its own session: otherwise a bug would kill the test runner.
    db.jobctl(["tick", "--concurrency", "3"]).after("exec setsid \"$0\" \"$@\"").run().success();
    assert_eq!(db.of_run(term, "status, last_error"), "failed|killed by SIGTERM");
    assert_eq!(db.of_run(kill, "status, last_error"), "failed|killed by SIGKILL (out of memory?)");
    assert_eq!(db.status(neighbour), "succeeded");
}

#[test]
fn five_hundred_commands_leave_no_zombie_no_descriptor_and_no_thread() {
    let db = TestDb::new();
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name);
    // Enqueues a run that creates a file, and ends when the test removes the file.
    let enqueue_pause = |name: &str| {
        let name = path(name).display().to_string();
        db.enqueue_script(&format!("touch {name}; while [ -e {name} ]; do sleep 0.01; done"))
    };
    // Without root, the folder of descriptors can't be read, and counts as empty.
    let count = |kind: &str, pid: i32| {
        fs::read_dir(format!("/proc/{pid}/{kind}")).map_or(0, Iterator::count)
    };

    let first = enqueue_pause("first");
    let tick = db.jobctl(["tick", "--quiet", "--linger", "--concurrency", "1"]).spawn();
    let pid = tick.pid().as_raw_nonzero().get();
    // Descriptors, threads and zombies.
    let used = || (count("fd", pid), count("task", pid), process::zombies_of(pid));
    wait_until("the first to run", || path("first").exists());
    // The start of a command uses more descriptors for a moment.
    let mut before = used();
    wait_until("the same count twice", || {
        let now = used();
        std::mem::replace(&mut before, now) == now
    });

    let mut batch =
        "{\"job_type\": \"shell\", \"payload\": {\"command\": [\"true\"]}}\n".repeat(500);
    // A failed start must not leak descriptors either.
    batch += &"{\"job_type\": \"shell\", \"payload\": {\"command\": [\"no-such-program\"]}}\n"
        .repeat(20);
    db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success();
    let last = enqueue_pause("last");
    fs::remove_file(path("first")).unwrap();
    wait_until("the last to run", || path("last").exists());
    // The previous result may still be on its way to the database.
    wait_until(&format!("the tick to use {before:?} again"), || used() == before);
    let (.., zombies) = before;
    assert_eq!(zombies, 0);

    fs::remove_file(path("last")).unwrap();
    db.wait_for_status(last, "succeeded");
    tick.signal(rustix::process::Signal::TERM);
    tick.wait().success().stderr("");
    assert_eq!(db.status(first), "succeeded");
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY status ORDER BY status"),
        "failed|20\nsucceeded|502"
    );
}

#[test]
fn a_payload_is_rejected_without_a_database() {
    jobctl(["enqueue", "shell", r#"{"command": ""}"#])
        .run()
        .exits(2)
        .stderr_has("`command` is empty")
        .complains_once();
}

#[test]
fn a_job_cannot_read_the_database_address_of_its_tick() {
    let db = TestDb::new();
    // The job prints its own environment and tries to print that of the tick, its parent.
    let id = db.enqueue_script("env; cat /proc/$PPID/environ 2>&1 | tr '\\0' '\\n'");
    process::unprivileged(db.jobctl(["tick"])).env("SEEN", "1").run().success();
    let output = output(&db, id);
    // It has the tick's variables, and the error for the file.
    assert!(output.contains("SEEN=1") && output.contains("/environ: "), "{output}");
    assert!(!output.contains("JOBCTL_DATABASE_URL"), "{output}");
}

#[test]
fn a_tick_raises_its_descriptor_limit_for_its_jobs() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..40 {
        gate.enqueue(&db);
    }
    // 40 jobs at a time need more than 64 descriptors. Only the soft limit is that low.
    let tick = db.jobctl(["tick", "--concurrency", "40"]).after("ulimit -Sn 64").spawn();
    gate.wait_for_starts(40);
    gate.open();
    tick.wait().success();
    assert_eq!(
        db.query("SELECT status, attempts, count(*) FROM jobctl.job_runs GROUP BY 1, 2"),
        "succeeded|1|40"
    );
}

/// The kernel gives the orphans of a container to its process 1.
#[test]
fn a_tick_that_is_process_1_reaps_the_orphans_of_jobs() {
    if !cron::can_isolate() {
        return leave_out("a tick as process 1", "a namespace of processes needs root");
    }
    let db = TestDb::new();
    // The script makes ten orphans, prints the name of process 1, and waits for the last zombie.
    let zombies = "$(cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z')";
    let script = format!(
        "for n in 1 2 3 4 5; do sh -c 'sleep 0 & sleep 0 &'; done; cat /proc/1/comm;
         until [ {zombies} = 0 ]; do sleep 0.02; done"
    );
    let id = db.enqueue_script(&script);
    let failed = db.enqueue_script("exit 3");
    db.execute("UPDATE jobctl.job_runs SET timeout = interval '20 seconds'");
    let namespace = "exec unshare --pid --fork --mount-proc \"$0\" \"$@\"";
    db.jobctl(["tick"]).after(namespace).run().success();
    assert_eq!(db.of_run(id, "status, last_error"), "succeeded|");
    assert_eq!(db.of_attempt(id, 1, "output"), "jobctl\n");
    assert_eq!(db.of_run(failed, "status, last_error"), "failed|exit status 3");

    // Process 1 exits with the status of a tick, here without a database.
    let without_database = db.jobctl(["tick", "--database-url", "postgres://127.0.0.1:1/x"]);
    without_database.after(namespace).run().exits(5);
}
