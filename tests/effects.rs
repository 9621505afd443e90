//! Effects that happen once: `once` around a command, `record_effect` inside a transaction.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::cancel::enqueue_in_status;
use crate::support::process::unprivileged;
use crate::support::{Gate, Invocation, Preload, Proxy, Role, TestDb, temp_dir, wait_until};

/// A file to which a command adds a line each time it runs.
struct Counter {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Counter {
    fn new() -> Self {
        let folder = temp_dir();
        let path = folder.path().join("times");
        Self { _folder: folder, path }
    }

    /// Returns a script that counts its start and then runs `script`.
    fn then(&self, script: &str) -> String {
        format!("echo x >>'{}'; {script}", self.path.display())
    }

    fn times(&self) -> usize {
        fs::read_to_string(&self.path).map_or(0, |text| text.lines().count())
    }
}

/// A script that kills the jobctl which runs it, as a power cut would. The effect stays open.
const KILL_JOBCTL: &str = "kill -KILL $PPID";

// SQLSTATEs.
const INVALID_VALUE: &str = "22023";
const DENIED: &str = "42501";
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The exit status of `once` if an effect is open: it is unknown whether it happened.
const EXIT_OPEN: i32 = 8;
/// The exit status of `once` if another attempt, which still runs, has begun the effect.
const EXIT_IN_USE: i32 = 75;

/// Returns all effects: a line `KEY: done`, `KEY: open` or `KEY of run ID attempt N: ...` for each.
fn effects(db: &TestDb) -> String {
    db.query(
        "SELECT key || coalesce(' of run ' || run_id || ' attempt ' || attempt, '')
             || CASE WHEN completed_at IS NULL THEN ': open' ELSE ': done' END
         FROM jobctl.job_effects ORDER BY key",
    )
}

/// Returns a tick whose jobs can reach the database. They do not inherit the tick's own address, so
/// they get this variable.
fn tick_with_address_for_jobs(db: &TestDb) -> Invocation<'_> {
    db.jobctl(["tick"]).env("DATABASE_URL", &db.url())
}

#[test]
fn a_command_that_succeeded_is_not_run_again() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let script = counter.then("cat; echo out; echo err >&2");
    let once =
        || db.jobctl(["once", "invoice:4711", "--", "sh", "-c", &script]).stdin("in\n").run();
    once().success().stdout("in\nout\n").stderr("err\n");
    assert_eq!(effects(&db), "invoice:4711: done");
    once().success().stdout("in\nout\n").stderr("");
    assert_eq!(counter.times(), 1);
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_and_its_effect_is_done() {
    let db = TestDb::new();
    let counter = Counter::new();
    let once = |stdout: Stdio| {
        let script = counter.then("echo 17");
        db.jobctl(["once", "charge", "--", "sh", "-c", &script]).stdout_to(stdout).run()
    };
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = "cannot write the output; effect `charge` is done, and `once` prints a stored \
                 output again: ";
    // The first call runs the command, and the others only print its stored output.
    once(full().into()).exits(1).stderr_has(error);
    once(full().into()).exits(1).stderr_has("cannot write the answer");
    once(Stdio::piped()).success().stdout("17\n");
    assert_eq!(counter.times(), 1);
    // A reader that needs no more is no error.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let once = db.jobctl(["once", "head", "--", "echo", "17"]).stdout_to(writer.into());
    once.run().success().stderr("");
}

#[test]
fn the_output_of_a_done_command_is_printed_again_if_it_is_text_of_at_most_8_kib() {
    let db = TestDb::new();
    let once = |key, script| db.jobctl(["once", key, "--", "sh", "-c", script]).run().success();
    // The second call prints the same, and does not run its own command, which would fail.
    for (key, script) in [("empty", "true"), ("line", "echo 'a b'"), ("no-end", "printf x")] {
        let first = once(key, script).stderr("").stdout;
        once(key, "exit 1").stdout(&first).stderr("");
    }
    let most = once("most", "head -c 8192 /dev/zero | tr '\\0' x").stderr("").stdout;
    assert_eq!(most.len(), 8192);
    assert_eq!(once("most", "exit 1").stdout, most);
    // An output that is too long or no text is not stored, and `once` says so.
    for (key, script) in
        [("long", "head -c 8193 /dev/zero | tr '\\0' x"), ("nul", "head -c 2 /dev/zero")]
    {
        let first = once(key, script).complains_once();
        first.stderr_has(&format!("the output of `{key}` is not stored"));
        once(key, "exit 1").stdout("").stderr("");
    }
    let binary = once("binary", "printf '\\377'");
    binary.stderr_has("the output of `binary` is not stored");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_effects WHERE result IS NULL"), "3");
}

#[test]
fn once_does_not_wait_for_a_process_in_the_background() {
    let db = TestDb::new();
    let gate = Gate::new();
    // The background process keeps the stdout that `once` reads. If it kept stderr, the test itself
    // would wait for it.
    let script = format!("({}) 2>/dev/null </dev/null & echo started", gate.script());
    db.jobctl(["once", "k", "--", "sh", "-c", &script]).run().success().stdout("started\n");
    db.jobctl(["once", "k", "--", "false"]).run().success().stdout("started\n");
}

#[test]
fn a_script_of_once_steps_resumes_with_the_values_of_earlier_steps() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let folder = temp_dir();
    let script = format!(
        "set -e\nid=$($jobctl once charge -- sh -c \"{}\")\n\
         $jobctl once mail -- sh -c \"test -e {}/mail && echo mailed $id\"",
        counter.then("echo charge-17"),
        folder.path().display()
    );
    // The second step fails until the file `mail` exists. The first step runs only once.
    let run = || db.script(&script).run();
    assert!(!run().status.success());
    fs::write(folder.path().join("mail"), "").unwrap();
    run().success().stdout("mailed charge-17\n");
    assert_eq!(counter.times(), 1);
}

#[test]
fn a_result_in_sql_is_kept_with_its_effect() {
    let db = TestDb::new();
    assert_eq!(db.query("SELECT jobctl.record_effect('mail:1', 'message-17')"), "t");
    assert_eq!(db.query("SELECT jobctl.record_effect('mail:1', 'message-18')"), "f");
    assert_eq!(db.query("SELECT jobctl.effect_result('mail:1')"), "message-17");
    assert_eq!(db.query("SELECT jobctl.effect_result('mail:2') IS NULL"), "t");
    db.jobctl(["once", "mail:1", "--", "false"]).run().success().stdout("message-17");
    let long = "SELECT jobctl.record_effect('long', repeat('x', 8193))";
    let refused = db.client().simple_query(long).unwrap_err();
    assert_eq!(refused.code().map(|code| code.code()), Some(INVALID_VALUE));
    // Another role can't read the result. For a key without a record, each role gets NULL.
    let [ours, theirs] = ["effects", "effects"].map(|part| Role::granted(&db, part));
    let result = "SELECT jobctl.effect_result('ours')";
    ours.client().simple_query("SELECT jobctl.record_effect('ours', 'secret')").unwrap();
    ours.client().simple_query(result).unwrap();
    let refused = theirs.client().simple_query(result).unwrap_err();
    assert_eq!(refused.code().map(|code| code.code()), Some(DENIED));
    let absent = theirs.client().query_one("SELECT jobctl.effect_result('absent')", &[]).unwrap();
    assert_eq!(absent.get::<_, Option<String>>(0), None);
}

#[test]
fn once_lists_open_effects() {
    let db = TestDb::new();
    db.jobctl(["once", "done", "--", "true"]).run().success();
    db.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
    let listed = db.jobctl(["once", "--list", "--json"]).run().success().stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["key"], "k");
    db.jobctl(["once", "--list", "k"]).run().exits(2);
}

#[test]
fn a_command_that_failed_passes_its_status_on_and_may_run_again() {
    let (db, counter) = (TestDb::new(), Counter::new());
    for (script, status) in [("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143)] {
        db.jobctl(["once", "k", "--", "sh", "-c", &counter.then(script)]).run().exits(status);
        assert_eq!(effects(&db), "");
    }
    assert_eq!(counter.times(), 3);
    db.jobctl(["once", "k", "--", "true"]).run().success();
    assert_eq!(effects(&db), "k: done");
}

#[test]
fn a_command_that_could_not_be_started_leaves_no_effect() {
    let db = TestDb::new();
    let (run, find) = ("cannot run the command: ", "cannot find the program: ");
    // The command, the exit status, as of a shell, and the two parts of the error.
    for (command, status, start, why) in [
        ("/nowhere/a", 127, run, "no such program `a`; its path is `/nowhere/a`\n"),
        ("no-such-program", 127, run, "no such program `no-such-program`; PATH is `/nowhere`\n"),
        ("mysql -pS3CRET", 127, find, "the command is one word with blanks; "),
        ("A_1=S3CRET", 127, find, "the first word sets the variable A_1, as only a shell does; "),
        ("/dev/null", 126, run, "program `null` is not executable; its path is `/dev/null`\n"),
    ] {
        let once = db.jobctl(["once", "k", "--", command]).env("PATH", "/nowhere");
        let refused = once.run().exits(status).complains_once().prints_nowhere("S3CRET");
        refused.stderr_has(&format!("{start}{why}"));
        assert_eq!(effects(&db), "");
    }
}

#[test]
fn an_effect_left_open_by_a_crash_waits_for_a_person() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let crash = || {
        let killed = db.jobctl(["once", "k", "--", "sh", "-c", &counter.then(KILL_JOBCTL)]).run();
        assert_eq!(killed.status.code(), None, "{killed}");
        assert_eq!(effects(&db), "k: open");
    };
    // Asserts that the command does not run, and that a person must settle the effect.
    let assert_open = || {
        db.jobctl(["once", "k", "--", "sh", "-c", &counter.then("true")])
            .run()
            .exits(EXIT_OPEN)
            .stdout("")
            .complains_once()
            .stderr_has("`jobctl once --settle done 'k'` if it happened, or else `--settle redo`");
    };
    crash();
    assert_open();
    assert_eq!(counter.times(), 1);
    db.jobctl(["once", "--settle", "redo", "k"]).run().success();
    crash();
    assert_eq!(counter.times(), 2, "the command runs again");
    assert_open();
    db.jobctl(["once", "--settle", "done", "k"]).run().success();
    db.jobctl(["once", "k", "--", "sh", "-c", &counter.then("true")]).run().success();
    assert_eq!(counter.times(), 2, "it was said to be done");
    // Only an open effect can be settled: not a recorded one, and not one that never began.
    for settle in ["done", "redo"] {
        for key in ["k", "never-begun"] {
            db.jobctl(["once", "--settle", settle, key])
                .run()
                .exits(4)
                .complains_once()
                .stderr_has("is not open");
        }
    }
    assert_eq!(effects(&db), "k: done");
}

#[test]
fn settle_can_give_the_output_of_the_command() {
    let db = TestDb::new();
    let settle = |arguments: &[&'static str]| {
        db.jobctl(["once", "--settle"]).args(arguments.iter().copied()).run()
    };
    let output = || db.jobctl(["once", "k", "--", "echo", "again"]).run().success();
    db.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
    settle(&["redo", "k", "--result", "payment-17"]).exits(2).complains_once();
    settle(&["done", "k"]).success();
    output().stdout("");
    settle(&["done", "k", "--result", "payment-17"]).success();
    output().stdout("payment-17\n");
    // A stored result can't be replaced.
    settle(&["done", "k", "--result", "payment-18"]).exits(4).stderr_has("is not open");
    output().stdout("payment-17\n");
    db.execute("DELETE FROM jobctl.job_effects");
    db.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
    // With the newline that `once` adds, this text has 8 KiB.
    let long = "x".repeat(8 * 1024 - 1);
    let done =
        |text: &str| db.jobctl(["once", "--settle", "done", "k", "--result"]).args([text]).run();
    done(&(long.clone() + "x")).exits(2).stderr_has("must have text, at most 8 KiB");
    done(&long).success();
    output().stdout(&(long + "\n"));
}

#[test]
fn a_job_whose_effect_is_open_ends_dead_at_once() {
    let db = TestDb::new();
    db.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
    let once = format!("'{}' once k -- echo done", env!("CARGO_BIN_EXE_jobctl"));
    let id = db.enqueue_script(&once);
    let tick = || tick_with_address_for_jobs(&db).run().success();
    tick();
    assert_eq!(db.of_run(id, "status, attempts, last_error"), "dead|1|exit status 8");
    db.jobctl(["check"]).run().exits(1).stdout_has("1 dead run of shell");
    db.jobctl(["once", "--settle", "redo", "k"]).run().success();
    db.jobctl(["retry", &id.to_string()]).run().success();
    tick();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
}

#[test]
fn of_two_runs_with_one_key_the_second_waits_for_the_first() {
    let (db, gate) = (TestDb::new(), Gate::new());
    let jobctl = env!("CARGO_BIN_EXE_jobctl");
    let once = format!("'{jobctl}' once k -- sh -c '{}; echo charged'", gate.script());
    let tick = || tick_with_address_for_jobs(&db);
    let first = db.enqueue_script(&once);
    let ticking = tick().spawn();
    gate.wait_for_starts(1);
    let second = db.enqueue_script(&format!("{once} 2>&1"));
    // The `once` of the second run exits with 75, which snoozes the run.
    tick().run().success().stderr_has("exit status 75");
    assert_eq!(db.of_run(second, "status, attempts, uncounted_attempts"), "queued|1|1");
    assert_eq!(db.of_attempt(second, 1, "outcome"), "snoozed");
    let used = format!("run {first}, which is running, has begun it; try again after its end\n");
    let output = db.of_attempt(second, 1, "output");
    assert!(output.ends_with(&used), "{output}");
    db.jobctl(["check"]).run().success();
    gate.open();
    ticking.wait().success();
    db.make_waiting_runs_due();
    tick().run().success();
    assert_eq!(db.of_run(second, "status, attempts"), "succeeded|2");
    assert_eq!(db.of_attempt(second, 2, "output"), "charged\n");
    assert_eq!(gate.count("start"), 1);
}

#[test]
fn sql_tells_an_effect_in_use_from_an_open_one() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let id = enqueue_in_status(&db, "running");
    // These effects have begun: in the attempt 1, which is running; in an earlier attempt; and in a
    // command outside of a run.
    db.execute(&format!(
        "INSERT INTO jobctl.job_effects (key, run_id, attempt) VALUES
            ('used', {id}, 1), ('left', {id}, 0), ('outside', NULL, NULL)"
    ));
    let of_run = |key, attempt| format!("'{key}', run_id => {id}, attempt => {attempt}");
    // The arguments, the SQLSTATE and the error. 55P03 means in use, and 55000 means open.
    for (arguments, code, message) in [
        ("'used'".to_owned(), "55P03", format!("effect `used` is in use by run {id}, which is ")),
        (of_run("used", 2), "55P03", "; try again after its end".to_owned()),
        // The attempt itself asks, so its earlier `once` was killed.
        (of_run("used", 1), "55000", "effect `used` was begun".to_owned()),
        ("'left'".to_owned(), "55000", "effect `left` was begun, and it is unknown ".to_owned()),
        ("'outside'".to_owned(), "55000", "settle it with `jobctl once --settle`".to_owned()),
    ] {
        let record = format!("SELECT jobctl.record_effect({arguments})");
        let error = db.client().batch_execute(&record).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), code, "{arguments}");
        assert!(error.message().contains(&message), "{arguments}: {error}");
    }
    db.jobctl(["once", "--settle", "done", "left"]).run().success();
    assert_eq!(db.query("SELECT jobctl.record_effect('left')"), "f");
}

#[test]
fn if_open_decides_instead_of_a_person() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let crash = |key| {
        db.jobctl(["once", key, "--", "sh", "-c", KILL_JOBCTL]).run();
    };
    let once = |if_open, key| {
        let script = counter.then("echo out");
        db.jobctl(["once", "--if-open", if_open, key, "--", "sh", "-c", &script]).run()
    };
    for key in ["redone", "skipped", "stopped"] {
        crash(key);
    }
    // The default stops, `redo` runs the command again, and `skip` takes it as done.
    once("stop", "stopped").exits(EXIT_OPEN).stdout("").complains_once();
    once("redo", "redone").success().stdout("out\n").stderr_has("; its command runs again\n");
    once("redo", "redone").success().stdout("out\n").stderr("");
    assert_eq!(counter.times(), 1);
    once("skip", "skipped").success().stdout("").stderr_has("; it is taken as done\n");
    once("redo", "skipped").success().stdout("").stderr("");
    assert_eq!(counter.times(), 1);
    // For a new key, --if-open has no effect.
    once("skip", "new").success().stdout("out\n").stderr("");
    assert_eq!(effects(&db), "new: done\nredone: done\nskipped: done\nstopped: open");
    once("maybe", "new").exits(2).stderr_has("possible values: stop, redo, skip");
    let both = ["once", "--settle", "redo", "stopped", "--if-open", "redo"];
    db.jobctl(both).run().exits(2).stderr_has("cannot be used with");
}

#[test]
fn if_open_leaves_alone_what_another_running_attempt_began() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let script = counter.then("true");
    let once = |if_open, run: &str, attempt: &str| {
        db.jobctl(["once", "--if-open", if_open, "k", "--", "sh", "-c", &script])
            .env("JOBCTL_RUN_ID", run)
            .env("JOBCTL_ATTEMPT", attempt)
            .run()
    };
    db.allow_running_runs_at_end();
    let id = enqueue_in_status(&db, "running");
    let begun = format!(
        "INSERT INTO jobctl.job_effects (key, run_id, attempt)
             SELECT 'k', id, attempts FROM jobctl.job_runs WHERE id = {id}"
    );
    db.execute(&begun);
    // Another run, and another attempt of this run, must wait.
    for if_open in ["redo", "skip"] {
        let used = once(if_open, "999999", "1").exits(EXIT_IN_USE).complains_once();
        used.stderr_has(&format!(
            "cannot begin effect `k`: run {id}, which is running, has begun it; try again"
        ));
        once(if_open, &id.to_string(), "2").exits(EXIT_IN_USE);
    }
    assert_eq!(counter.times(), 0);
    assert_eq!(effects(&db), format!("k of run {id} attempt 1: open"));
    // The attempt that began the effect may repeat it: its `once` was killed.
    once("redo", &id.to_string(), "1").success();
    assert_eq!(counter.times(), 1);
    db.execute(&format!("DELETE FROM jobctl.job_effects; {begun}"));
    // The next attempt finds that the attempt which began it is over.
    db.jobctl(["retry", "--force", &id.to_string()]).run().success();
    once("skip", &id.to_string(), "2").success();
    assert_eq!(counter.times(), 1);
    assert_eq!(effects(&db), format!("k of run {id} attempt 1: done"));
}

#[test]
fn a_command_that_fails_after_its_key_was_skipped_says_so() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // The command runs until the file `end` exists, which is its `$0`.
    let script = counter.then("until test -e \"$0\"; do sleep 0.02; done; exit 3");
    let end = counter.path.with_extension("end").display().to_string();
    let first = db.jobctl(["once", "k", "--", "sh", "-c", &script, &end]).spawn();
    wait_until("the command to run", || counter.times() == 1);
    // Outside of a run, `once` can't know that the first command still runs.
    db.jobctl(["once", "--if-open", "skip", "k", "--", "true"]).run().success();
    fs::write(&end, "").unwrap();
    first.wait().exits(3).stderr_has("the command failed, but `k` was settled while it ran");
    assert_eq!(effects(&db), "k: done");
}

#[test]
fn of_two_that_find_an_open_key_one_runs_the_command() {
    let (db, counter) = (TestDb::new(), Counter::new());
    db.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
    db.allow_running_runs_at_end();
    let id = enqueue_in_status(&db, "running").to_string();
    // An attempt of this run repeats the open effect. Its command runs until the file `end` exists.
    let waits = counter.then("until test -e \"$0\"; do sleep 0.02; done");
    let end = counter.path.with_extension("end").display().to_string();
    let first = db
        .jobctl(["once", "--if-open", "redo", "k", "--", "sh", "-c", &waits, &end])
        .env("JOBCTL_RUN_ID", &id)
        .env("JOBCTL_ATTEMPT", "1")
        .spawn();
    wait_until("the command to run", || counter.times() == 1);
    let second = counter.then("true");
    db.jobctl(["once", "--if-open", "redo", "k", "--", "sh", "-c", &second])
        .run()
        .exits(EXIT_IN_USE);
    fs::write(&end, "").unwrap();
    first.wait().success();
    assert_eq!(counter.times(), 1);
    assert_eq!(effects(&db), format!("k of run {id} attempt 1: done"));
}

#[test]
fn the_exit_status_is_seen_even_if_the_caller_ignores_sigchld() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // A script, the exit status, and the recorded effects. The third command is not run.
    for (script, status, known) in
        [("exit 7", 7, ""), ("true", 0, "k: done"), ("true", 0, "k: done")]
    {
        let script = counter.then(script);
        let ignore = "exec env --ignore-signal=CHLD \"$0\" \"$@\"";
        db.jobctl(["once", "k", "--", "sh", "-c", &script]).after(ignore).run().exits(status);
        assert_eq!(effects(&db), known);
    }
    assert_eq!(counter.times(), 2);
}

#[test]
fn a_command_ignores_the_signals_that_its_caller_ignores() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // `nohup` ignores SIGHUP. A terminal signals the whole group, and jobctl passes on no ignored
    // signal.
    for signal in ["HUP", "INT", "QUIT", "TERM"] {
        let script = counter.then(&format!("kill -{signal} $PPID $$"));
        let ignore = format!("trap '' {signal}");
        db.jobctl(["once", signal, "--", "sh", "-c", &script]).after(&ignore).run().success();
    }
    assert_eq!(effects(&db), "HUP: done\nINT: done\nQUIT: done\nTERM: done");
    assert_eq!(counter.times(), 4);
}

#[test]
fn an_effect_stays_open_if_its_command_cannot_be_awaited() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // On this host, jobctl can't wait for its children.
    let host = Preload::compile(
        "#include <errno.h>
         #include <sys/wait.h>
         pid_t waitpid(pid_t pid, int *status, int options) { errno = ECHILD; return -1; }",
    );
    let script = counter.then("true");
    let once = || db.jobctl(["once", "k", "--", "sh", "-c", &script]);
    host.before(once())
        .run()
        .exits(EXIT_OPEN)
        .complains_once()
        .stderr_has("it is unknown whether it happened: No child processes")
        .stderr_has("`jobctl once --settle done 'k'` if it happened, or else `--settle redo`");
    assert_eq!(effects(&db), "k: open");
    wait_until("the command to run", || counter.times() == 1);
    once().run().exits(EXIT_OPEN);
    assert_eq!(counter.times(), 1);
}

#[test]
fn a_success_is_recorded_after_a_lost_connection() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE 'jobctl%' AND datname = current_database()";
    // A script, and the recorded effects: a failure leaves none.
    for (script, known) in [("true", "k: done"), ("false", "")] {
        let folder = temp_dir();
        let go = folder.path().join("go");
        let waiting = counter
            .then(&format!("while [ ! -e '{}' ]; do sleep 0.02; done; {script}", go.display()));
        let before = counter.times();
        let once = db.jobctl(["once", "k", "--", "sh", "-c", &waiting]).spawn();
        wait_until("the command to run", || counter.times() > before);
        assert_eq!(db.query(cut), "t");
        fs::write(&go, "").unwrap();
        once.wait().exits(i32::from(script == "false"));
        assert_eq!(effects(&db), known);
        db.execute("DELETE FROM jobctl.job_effects");
    }
}

#[test]
fn once_records_the_result_although_the_database_restarts() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // A script, its exit status, and the recorded effects: a failure leaves none.
    for (script, status, known) in [("true", 0, "k: done"), ("exit 3", 3, "")] {
        let (proxy, folder) = (Proxy::to(&db), temp_dir());
        let go = folder.path().join("go");
        let waiting = counter
            .then(&format!("while [ ! -e '{}' ]; do sleep 0.02; done; {script}", go.display()));
        let before = counter.times();
        let once = db.jobctl(["once", "k", "--", "sh", "-c", &waiting]).through(&proxy).spawn();
        // The effect in the database would not prove that the command runs: the answer may still be
        // on its way.
        wait_until("the command to run", || counter.times() > before);
        proxy.cut();
        let before = proxy.connections();
        fs::write(&go, "").unwrap();
        wait_until("several tries", || proxy.connections() >= before + 4);
        proxy.restore();
        once.wait().exits(status).stderr_has("`once` tries again for a minute");
        assert_eq!(effects(&db), known);
        db.execute("DELETE FROM jobctl.job_effects");
    }
}

#[test]
fn a_signal_after_the_command_ends_the_attempts_to_record_its_result() {
    let db = TestDb::new();
    // A script, and the statement that records its success or deletes its effect after a failure.
    for (script, text) in [("true", "UPDATE jobctl.job_effects"), ("false", "DELETE FROM")] {
        let proxy = Proxy::to(&db);
        proxy.freeze_after(text);
        let once = db.jobctl(["once", "k", "--", "sh", "-c", script]).through(&proxy).spawn();
        wait_until("the result to be sent", || proxy.is_frozen());
        once.signal(Signal::TERM);
        let once = once.wait_within(Duration::from_secs(6)).exits(5);
        once.stderr_has("but `k` is still open; run `jobctl once --settle ");
        db.execute("DELETE FROM jobctl.job_effects");
    }
}

#[test]
fn a_command_does_not_get_the_address_of_the_database() {
    let db = TestDb::new();
    // Neither its own environment has the address, nor can it read that of jobctl.
    let once = db.jobctl(["once", "k", "--", "sh", "-c", "env; cat /proc/$PPID/environ"]);
    unprivileged(once)
        .run()
        .exits(1)
        .prints_nowhere("JOBCTL_DATABASE_URL")
        .stderr_has("/environ: ");
}

#[test]
fn two_concurrent_callers_run_the_command_once() {
    let (db, counter) = (TestDb::new(), Counter::new());
    let (folder, script) = (temp_dir(), "while [ ! -e go ]; do sleep 0.01; done");
    let script = counter.then(script);
    let once =
        || db.jobctl(["once", "k", "--", "sh", "-c", &script]).current_dir(folder.path()).spawn();
    let mut first = once();
    wait_until("the command to run", || counter.times() == 1);
    // Outside of a run, the second caller can't know that the first one still runs.
    once().wait().exits(EXIT_OPEN).complains_once();
    assert!(first.is_running());
    fs::write(folder.path().join("go"), "").unwrap();
    first.wait().success();
    once().wait().success();
    // Of eight callers at once, any one runs the command.
    let script = counter.then("true");
    let many: Vec<_> =
        (0..8).map(|_| db.jobctl(["once", "m", "--", "sh", "-c", &script]).spawn()).collect();
    let statuses: Vec<_> = many.into_iter().map(|one| one.wait().status.code()).collect();
    assert!(statuses.iter().all(|status| matches!(status, Some(0 | EXIT_OPEN))), "{statuses:?}");
    assert!(statuses.contains(&Some(0)));
    assert_eq!(counter.times(), 2);
}

#[test]
fn a_late_once_does_not_settle_a_newer_record() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // How the command of the first `once` ends, and the exit status and the error of this `once`.
    for (end, status, complaint) in
        [("exit 3", 3, ""), ("true", 4, "was settled as redo meanwhile")]
    {
        let folder = temp_dir();
        let until = |go: &str, end: &str| {
            counter.then(&format!(
                "while [ ! -e '{}' ]; do sleep 0.02; done; {end}",
                folder.path().join(go).display()
            ))
        };
        let scripts = [until("first", end), until("second", "true")];
        let before = counter.times();
        let first = db.jobctl(["once", "k", "--", "sh", "-c", &scripts[0]]).spawn();
        wait_until("the first to run", || counter.times() == before + 1);
        // A person settles the effect too early, so another `once` begins it again.
        db.jobctl(["once", "--settle", "redo", "k"]).run().success();
        let second = db.jobctl(["once", "k", "--", "sh", "-c", &scripts[1]]).spawn();
        wait_until("the second to run", || counter.times() == before + 2);
        fs::write(folder.path().join("first"), "").unwrap();
        // The first `once` does not touch the record of the second.
        first.wait().exits(status).stderr_has(complaint);
        assert_eq!(effects(&db), "k: open", "{end}");
        fs::write(folder.path().join("second"), "").unwrap();
        second.wait().success();
        assert_eq!(effects(&db), "k: done");
        db.execute("DELETE FROM jobctl.job_effects");
    }
}

#[test]
fn a_stopped_command_leaves_no_effect() {
    let (db, counter) = (TestDb::new(), Counter::new());
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let before = counter.times();
        let script = counter.then("exec sleep 60");
        // The test run itself may have inherited an ignored signal.
        let once = r#"exec env --default-signal=HUP,TERM "$jobctl" once k -- sh -c "$script""#;
        let once = db.script(once).env("script", &script).spawn();
        wait_until("the command to run", || counter.times() > before);
        once.signal(signal);
        once.wait().exits(status);
        assert_eq!(effects(&db), "");
    }
}

#[test]
fn a_job_leaves_its_run_and_attempt_with_the_effect() {
    let (db, counter) = (TestDb::new(), Counter::new());
    // The job fails after its effect. Its second attempt finds the effect done, and fails, too.
    let jobctl = env!("CARGO_BIN_EXE_jobctl");
    let id = db.enqueue_script(&format!(
        "'{jobctl}' once \"charge:$JOBCTL_IDEMPOTENCY_KEY\" -- sh -c \"{}\"; exit 1",
        counter.then("true")
    ));
    for _ in 0..2 {
        tick_with_address_for_jobs(&db).run().success();
        db.make_waiting_runs_due();
    }
    assert_eq!(db.of_run(id, "attempts"), "2");
    assert_eq!(counter.times(), 1);
    assert_eq!(effects(&db), format!("charge:jobctl-run-{id} of run {id} attempt 1: done"));
}

#[test]
fn a_bad_key_or_a_missing_command_is_rejected() {
    let db = TestDb::new();
    let long = "k".repeat(256);
    for arguments in [
        &["once", "", "--", "true"][..],
        &["once", "a\nb", "--", "true"],
        &["once", &long, "--", "true"],
        &["once", "--settle=done", "--", "-k"],
        &["once", "k"],
        &["once", "k", "true"],
        &["once", "k", "--settle", "done", "--", "true"],
        &["once", "k", "--settle", "maybe"],
    ] {
        db.jobctl(arguments.iter().copied()).run().exits(2).stdout("");
    }
    // The same keys in SQL.
    for key in ["''", "' '", "'   '", "E'a\\nb'", "repeat('k', 256)", "NULL", "'-k'"] {
        let refused = db.client().simple_query(&format!("SELECT jobctl.record_effect({key})"));
        let refused = refused.expect_err(key);
        assert!(
            refused.code().is_some_and(|code| code.code() == INVALID_VALUE),
            "{key}: {refused:?}"
        );
    }
    assert_eq!(effects(&db), "");
}

#[test]
fn an_effect_in_sql_is_new_once_and_belongs_to_its_transaction() {
    let db = TestDb::new();
    // The caller names the run, which need not exist.
    let record = "SELECT jobctl.record_effect('mail:1', run_id => 5, attempt => 2)";
    db.execute(&format!("BEGIN; {record}; ROLLBACK"));
    assert_eq!(effects(&db), "");
    assert_eq!(db.query(record), "t");
    assert_eq!(db.query(record), "f");
    assert_eq!(db.query("SELECT jobctl.record_effect('mail:2')"), "t");
    assert_eq!(effects(&db), "mail:1 of run 5 attempt 2: done\nmail:2: done");
    db.jobctl(["once", "mail:2", "--", "false"]).run().success();
}

#[test]
fn a_second_transaction_with_one_effect_waits_for_the_first() {
    let db = TestDb::new();
    // How the first transaction ends, and whether the second records the effect.
    for (end, second) in [("ROLLBACK", true), ("COMMIT", false)] {
        let (mut first, mut other) = (db.client(), db.client());
        first.batch_execute("BEGIN; SELECT jobctl.record_effect('k')").unwrap();
        let waiting = std::thread::spawn(move || -> bool {
            let got = other.query_one("SELECT jobctl.record_effect('k')", &[]).unwrap().get(0);
            other.execute("DELETE FROM jobctl.job_effects", &[]).unwrap();
            got
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        wait_until("the second to wait", || db.query(waits) == "1");
        first.batch_execute(end).unwrap();
        assert_eq!(waiting.join().unwrap(), second, "{end}");
    }
}

#[test]
fn an_effect_is_settled_by_its_recorder_its_members_an_operator_or_the_owner() {
    let db = TestDb::new();
    let [recorder, other, member, operator] =
        ["worker", "worker", "worker", "operator"].map(|part| Role::granted(&db, part));
    db.execute(&format!("GRANT {} TO {}", recorder.name(), member.name()));
    // The role `recorder` begins an effect and leaves it open.
    let crash = || {
        recorder.jobctl(["once", "k", "--", "sh", "-c", KILL_JOBCTL]).run();
        assert_eq!(
            db.query("SELECT recorded_by, completed_at FROM jobctl.job_effects"),
            recorder.name().to_owned() + "|"
        );
    };
    for settle in ["done", "redo"] {
        crash();
        let refused = other
            .jobctl(["once", "--settle", settle, "k"])
            .run()
            .exits(7)
            .stdout("")
            .complains_once();
        refused.stderr_has("effect `k` was recorded by another role; an operator can settle it");
        let refused =
            other.jobctl(["once", "k", "--", "true"]).run().exits(7).stdout("").complains_once();
        refused.stderr_has(
            "cannot begin effect `k`: another role recorded it; an operator can settle it",
        );
        member.jobctl(["once", "k", "--", "true"]).run().exits(EXIT_OPEN);
        assert_eq!(effects(&db), "k: open");
        // The recorder, its member, an operator, and last the owner may settle it.
        for settler in [&recorder, &member, &operator] {
            settler.jobctl(["once", "--settle", settle, "k"]).run().success();
            db.execute("DELETE FROM jobctl.job_effects");
            crash();
        }
        db.jobctl(["once", "--settle", settle, "k"]).run().success();
        db.execute("DELETE FROM jobctl.job_effects");
    }
    // A completed effect is an error for other roles too.
    recorder.jobctl(["once", "k", "--", "true"]).run().success();
    other.jobctl(["once", "k", "--", "true"]).run().exits(7);
    for done in [&recorder, &member] {
        done.jobctl(["once", "k", "--", "false"]).run().success();
    }
    // No role can make an operator or the owner skip a command as done.
    operator.jobctl(["once", "k", "--", "true"]).run().exits(7);
    db.jobctl(["once", "k", "--", "true"]).run().exits(7).stdout("");
    // The role that recorded the effect may have been dropped.
    db.execute("UPDATE jobctl.job_effects SET recorded_by = 'was dropped'");
    recorder.jobctl(["once", "k", "--", "true"]).run().exits(7);
    db.jobctl(["once", "k", "--", "true"]).run().exits(7);
}

#[test]
fn an_error_of_record_effect_shows_no_result() {
    let db = TestDb::new();
    for given in ["'k' || chr(7)", "repeat('k', 256)", "'-k'", "NULL"] {
        let statement = format!("SELECT jobctl.record_effect({given}, 'SECRET')");
        let error = db.client().batch_execute(&statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), INVALID_VALUE, "{given}");
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
    }
}

#[test]
fn no_role_makes_another_one_skip_an_effect_in_sql() {
    let db = TestDb::new();
    let [first, other, member] =
        ["effects", "effects", "effects"].map(|part| Role::granted(&db, part));
    db.execute(&format!("GRANT {} TO {}", first.name(), member.name()));
    let record = "SELECT jobctl.record_effect('mail:1')";
    let recorded = |role: &Role<'_>| {
        let row = role.client().query_one(record, &[]);
        row.map(|row| row.get::<_, bool>(0))
            .map_err(|error| error.code().unwrap().code().to_owned())
    };
    assert_eq!(recorded(&first), Ok(true));
    assert_eq!(recorded(&first), Ok(false));
    assert_eq!(recorded(&member), Ok(false));
    assert_eq!(recorded(&other), Err(DENIED.to_owned()));
    assert_eq!(db.query("SELECT recorded_by FROM jobctl.job_effects"), first.name());
    // The run is what the recorder says, also if it is a run of another role.
    let run = db.enqueue(["shell", "--", "true"]);
    let of_run = format!("SELECT jobctl.record_effect('mail:17', run_id => {run}, attempt => 1)");
    assert!(other.client().query_one(&of_run, &[]).unwrap().get::<_, bool>(0));
    assert_eq!(
        db.query("SELECT run_id FROM jobctl.job_effects WHERE key = 'mail:17'"),
        run.to_string()
    );
    // A superuser is a member of every role.
    let owner = db.client().query_one(record, &[]).unwrap_err();
    assert_eq!(owner.code().map(|code| code.code()), Some(DENIED));
    // No role can make another one wait for a key longer than the lock timeout of the function.
    let mut open = first.client();
    open.batch_execute("BEGIN; SELECT jobctl.record_effect('mail:2')").unwrap();
    let waited = other
        .client()
        .simple_query("SET lock_timeout = 0; SELECT jobctl.record_effect('mail:2')")
        .unwrap_err();
    assert_eq!(waited.code().map(|code| code.code()), Some(LOCK_NOT_AVAILABLE));
}

#[test]
fn an_effect_that_a_trigger_skips_is_an_error() {
    let db = TestDb::new();
    db.execute(
        "CREATE FUNCTION public.skip() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RETURN NULL; END';
         CREATE TRIGGER skip BEFORE INSERT ON jobctl.job_effects FOR EACH ROW
             EXECUTE FUNCTION public.skip()",
    );
    let why = "a trigger of jobctl.job_effects skips the row";
    let refused = db.try_query("SELECT jobctl.record_effect('e')").unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().message(), why);
    let once = db.jobctl(["once", "e", "--", "echo", "done"]).run().exits(1).stdout("");
    once.stderr_has(&format!("cannot record the effect: {why}"));
}
