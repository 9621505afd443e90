//! Commands that do not end, and the processes that commands start.

use std::fs;

use crate::support::{TestDb, json_string, leave_out, process, temp_dir, wait_until};

/// Enqueues a script with a timeout, and returns the run's id.
fn enqueue(db: &TestDb, script: &str, timeout: &str) -> i64 {
    db.enqueue([
        "shell",
        &format!("{{\"command\": {}}}", json_string(script)),
        "--timeout",
        timeout,
    ])
}

fn output(db: &TestDb, id: i64) -> String {
    db.of_attempt(id, 1, "output")
}

/// Returns the pid that the script printed in its first line.
fn pid(db: &TestDb, id: i64) -> i32 {
    output(db, id).lines().next().unwrap().parse().unwrap()
}

const LEFT_BEHIND: &str = "the command left processes behind, which were ended";

#[test]
fn background_processes_of_a_command_are_ended_and_delay_no_run() {
    let db = TestDb::new();
    let left = db.enqueue_script("echo $$; sleep 600 & echo hi");
    let ignoring = db.enqueue_script("echo $$; trap '' TERM; sleep 600 & echo hi");
    // The kernel sends SIGHUP to stopped processes of a group without a leader, so ignore it.
    let stopped = db.enqueue_script("echo $$; trap '' HUP; sleep 600 & kill -STOP $!; echo hi");
    let failed = db.enqueue_script("echo $$; sleep 600 & exit 3");
    let alone = db.enqueue_script("echo $$; sleep 0.1 & wait; echo hi");
    db.jobctl(["tick", "--concurrency", "5"]).run().success();
    for id in [left, ignoring, stopped] {
        assert_eq!(db.of_run(id, "status, attempts, error_type, last_error"), "succeeded|1||");
        assert_eq!(
            db.of_attempt(id, 1, "outcome, exit_code, error"),
            format!("succeeded|0|{LEFT_BEHIND}")
        );
    }
    assert_eq!(db.of_run(failed, "status, last_error"), "failed|exit status 3");
    assert_eq!(
        db.of_attempt(failed, 1, "exit_code, error"),
        format!("3|exit status 3; {LEFT_BEHIND}")
    );
    assert_eq!(db.of_attempt(alone, 1, "exit_code, error"), "0|");
    // No process is left, and the output is complete.
    for id in [left, ignoring, stopped, failed, alone] {
        assert_eq!(process::living_in_group(pid(&db, id)), 0);
    }
    assert!(output(&db, left).ends_with("\nhi\n"));
}

#[test]
fn the_history_notes_a_process_that_jobctl_may_not_signal() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("processes that may not be signalled", "a change of user needs root");
    }
    let db = TestDb::new();
    // A process of another user. The script prints its pid once it belongs to that user.
    let other = "setpriv --reuid 65534 --clear-groups sleep 600";
    let started = format!(
        "{other} & until [ \"$(stat -c %u /proc/$!)\" = 65534 ]; do sleep 0.01; done; echo $!"
    );
    // A command that ends and leaves such a process, one that times out while it waits for the
    // process, and one that becomes the process.
    let left = db.enqueue_script(&started);
    let timed_out = enqueue(&db, &format!("{started}; wait"), "1s");
    let itself = db.enqueue([
        "shell",
        &format!("{{\"command\": \"echo $$; exec {other}\"}}"),
        "--timeout",
        "1s",
    ]);
    // Without this right of root, the tick may not signal processes of other users.
    let without_kill = "exec setpriv --bounding-set -kill --inh-caps -kill \"$0\" \"$@\"";
    db.jobctl(["tick"]).after(without_kill).run().success();
    let may_run = "processes of the command could not be ended and may still run";
    for (id, error) in [
        (left, may_run.to_owned()),
        (timed_out, format!("timed out after 1s; {may_run}")),
        (
            itself,
            "timed out after 1s; the command could not be killed and may still run".to_owned(),
        ),
    ] {
        let pid = pid(&db, id);
        assert!(process::is_alive(pid));
        process::kill(pid);
        assert_eq!(db.of_attempt(id, 1, "error"), error);
    }
    assert_eq!(db.of_run(left, "status, last_error"), "succeeded|");
}

#[test]
fn a_detached_process_delays_no_run_even_if_it_keeps_the_pipe() {
    let db = TestDb::new();
    let directory = temp_dir();
    let file = directory.path().join("pid").display().to_string();
    let id = db.enqueue_script(&format!(
        "setsid sh -c 'echo $$ > {file}.new; mv {file}.new {file}; exec sleep 600' &
         while [ ! -e {file} ]; do sleep 0.01; done; echo hi"
    ));
    db.jobctl(["tick"]).run().success();
    let detached = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    process::kill(detached);
    // jobctl can't find a detached process, so the history does not note it.
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    assert_eq!(db.of_attempt(id, 1, "output, error"), "hi\n|");
    wait_until("the detached process to end", || !process::is_alive(detached));
}

#[test]
fn a_timeout_ends_a_command_and_its_children_and_frees_the_thread() {
    let db = TestDb::new();
    // The script, and `exit_code|signal` of its shell. Each script prints its pid first.
    let scripts = [
        ("echo $$; sleep 600; true", "|15"),
        ("echo $$; sleep 600 | cat", "|15"),
        ("echo $$; sh -c 'sleep 600 & sleep 600 & wait' & wait", "|15"),
        // Output and exit status after SIGTERM are kept, but do not make the run succeed.
        ("echo $$; trap 'echo bye; exit 0' TERM; sleep 600 & wait", "0|"),
        ("echo $$; trap 'exit 7' TERM; sleep 600 & wait", "7|"),
    ];
    let runs = scripts.map(|(script, end)| (enqueue(&db, script, "1s"), end));
    // All five threads are busy, so this run needs the thread of a command that has timed out.
    let in_time = enqueue(&db, "true", "1h");
    db.jobctl(["tick", "--concurrency", "5"]).run().success();
    for (id, end) in runs {
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error"),
            "failed|1|timeout|timed out after 1s"
        );
        assert_eq!(
            db.of_attempt(id, 1, "outcome, error_type, exit_code, signal"),
            format!("failed|timeout|{end}")
        );
        assert_eq!(process::living_in_group(pid(&db, id)), 0);
    }
    let (prints_bye, _) = runs[3];
    assert!(output(&db, prints_bye).ends_with("\nbye\n"));
    assert_eq!(db.status(in_time), "succeeded");
}

#[test]
fn a_timeout_ends_children_in_groups_of_their_own() {
    let db = TestDb::new();
    // `timeout` leads its own group, so that it can signal its children.
    let scripts = [
        "timeout 600 sh -c 'echo $$; exec sleep 600'; true",
        "timeout 600 sh -c 'echo $$; exec sleep 600' | cat",
        "timeout 600 sh -c 'echo $$; trap \"\" TERM; while :; do sleep 600; done'; true",
    ];
    let runs = scripts.map(|script| enqueue(&db, script, "1s"));
    db.jobctl(["tick"]).run().success();
    for id in runs {
        assert_eq!(db.of_run(id, "status, attempts, error_type"), "failed|1|timeout");
        assert!(!process::is_alive(pid(&db, id)));
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let db = TestDb::new();
    // The script, and the signal that ended its shell.
    let scripts = [
        ("echo $$; trap '' TERM; sleep 600", "9"),
        ("echo $$; trap '' TERM; while :; do sleep 600; done", "9"),
        // At each SIGTERM it starts another process.
        (
            "echo $$; trap 'sleep 600 & (trap \"\" TERM; sleep 600) &' TERM; while :; do sleep \
                600 & wait; done",
            "9",
        ),
        // A stopped process gets SIGTERM only after SIGCONT.
        ("echo $$; kill -STOP $$; sleep 600", "15"),
        ("echo $$; kill -STOP 0; sleep 600", "15"),
    ];
    let runs = scripts.map(|(script, signal)| (enqueue(&db, script, "1s"), signal));
    // In its own session: otherwise a bug would stop the test runner.
    db.jobctl(["tick", "--concurrency", "5"]).after("exec setsid \"$0\" \"$@\"").run().success();
    for (id, signal) in runs {
        assert_eq!(
            db.of_run(id, "status, error_type, last_error"),
            "failed|timeout|timed out after 1s"
        );
        assert_eq!(db.of_attempt(id, 1, "exit_code, signal"), format!("|{signal}"));
        assert_eq!(process::living_in_group(pid(&db, id)), 0);
    }
}

#[test]
fn an_attempt_lasts_as_long_as_its_command_even_without_output() {
    let db = TestDb::new();
    // The command closes its output before it ends.
    let id = db.enqueue_script("echo hi; exec <&- >&- 2>&-; sleep 1; exit 5");
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.of_attempt(id, 1, "exit_code, output, finished_at - started_at >= interval '1 second'"),
        "5|hi\n|t"
    );
}

#[test]
fn background_processes_get_sigterm_before_sigkill() {
    let db = TestDb::new();
    let folder = temp_dir();
    let background =
        "trap 'echo asked >>log; exit' TERM; echo ready >>log; while :; do sleep 0.02; done";
    let wait_for_background = "until [ -e log ]; do sleep 0.02; done";
    let id = db.enqueue_script(&format!("sh -c \"{background}\" & {wait_for_background}"));
    db.jobctl(["tick"]).current_dir(folder.path()).run().success();
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "ready\nasked\n");
}

/// The shell of a script ends at the first SIGTERM, so the history has no exit status. A command
/// that the script has started still gets one SIGTERM and five seconds to end.
#[test]
fn a_command_of_a_script_gets_one_sigterm_and_five_seconds() {
    let db = TestDb::new();
    let folder = temp_dir();
    let slow = "trap 'echo asked >>log; sleep 3; echo cleaned >>log; exit 7' TERM; echo $$; \
                while :; do sleep 0.02; done";
    let script = folder.path().join("slow");
    fs::write(&script, slow).unwrap();
    let wrapped = enqueue(&db, "sh ./slow; true", "1s");
    // This command replaces its shell, so the history has its exit status.
    let direct = enqueue(&db, "exec sh -c \"trap 'exit 7' TERM; sleep 600 & wait\"", "1s");
    db.jobctl(["tick"]).current_dir(folder.path()).run().success();
    assert_eq!(db.of_attempt(wrapped, 1, "error_type, exit_code, signal"), "timeout||15");
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "asked\ncleaned\n");
    assert_eq!(db.of_attempt(direct, 1, "error_type, exit_code, signal"), "timeout|7|");
    assert!(!process::is_alive(pid(&db, wrapped)));
}
