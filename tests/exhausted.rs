//! A host that is short of processes or descriptors: nothing starts, so no attempt counts.

use std::fs;
use std::path::Path;

use postgres::config::Host;

use crate::support::http_server::HttpServer;
use crate::support::{Invocation, Preload, TestDb, temp_dir, wait_until};

/// Preloaded into a process. While the file EXHAUSTED exists, no process can be started, and only
/// the first SOCKETS sockets can be opened.
const EXHAUSTED_HOST: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <spawn.h>
    #include <stdlib.h>
    #include <sys/socket.h>
    #include <unistd.h>

    static int exhausted(void) { return access(getenv("EXHAUSTED"), F_OK) == 0; }

    int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[],
                     char *const environment[]) {
        int (*real)() = dlsym(RTLD_NEXT, "posix_spawnp");
        return exhausted() ? EAGAIN : real(pid, file, actions, attributes, arguments, environment);
    }

    pid_t fork(void) {
        pid_t (*real)() = dlsym(RTLD_NEXT, "fork");
        return exhausted() ? (errno = EAGAIN, -1) : real();
    }

    int socket(int domain, int type, int protocol) {
        static int opened;
        int (*real)() = dlsym(RTLD_NEXT, "socket");
        int refused = domain != AF_UNIX && exhausted() && opened++ >= atoi(getenv("SOCKETS"));
        return refused ? (errno = EMFILE, -1) : real(domain, type, protocol);
    }
"#;

/// Returns a tick on a host that is exhausted while `file` exists. Then the tick can open only this
/// many sockets beside the one to its database.
fn tick_on<'db>(host: &Preload, db: &'db TestDb, file: &Path, sockets: usize) -> Invocation<'db> {
    let server: postgres::Config = db.url().parse().unwrap();
    let sockets = sockets + usize::from(matches!(server.get_hosts()[0], Host::Tcp(_)));
    let tick = host.before(db.jobctl(["tick"]));
    tick.env("EXHAUSTED", file.to_str().unwrap()).env("SOCKETS", &sockets.to_string())
}

#[test]
fn a_run_that_this_host_cannot_start_is_released_until_it_can() {
    let host = Preload::compile(EXHAUSTED_HOST);
    let folder = temp_dir();
    let file = folder.path().join("exhausted");
    let server = HttpServer::start();
    let call = serde_json::json!({ "url": server.url("/echo") }).to_string();
    // While the file exists, the host can start no process and open no connection. A command starts
    // in one of two ways, which depends on its keys.
    for (job, why) in [
        (vec!["shell", "--", "true"], "Resource temporarily unavailable (os error 11)"),
        (
            vec!["shell", r#"{"command": "true", "cwd": "/", "env": {"A": "b"}}"#],
            "Resource temporarily unavailable (os error 11)",
        ),
        (vec!["http", &call], "Too many open files (os error 24)"),
    ] {
        let db = TestDb::new();
        fs::write(&file, "").unwrap();
        let run = db.enqueue(["--max-attempts", "1"].into_iter().chain(job));
        let tick = tick_on(&host, &db, &file, 0).spawn();
        // The tick claims the run and releases it again and again, and counts no attempt.
        let released = || {
            db.of_run(
                run,
                "status = 'queued' AND updated_at > created_at + interval '500 milliseconds'",
            ) == "t"
        };
        wait_until("the claim to be released", released);
        assert_eq!(db.of_run(run, "attempts, last_error IS NULL"), "0|t");
        fs::remove_file(&file).unwrap();
        // The log names the first release only. Then the same attempt starts.
        let line = format!(" attempt 1/1: could not start: {why}; claim released\n");
        let ended = tick.wait().success().stderr_has(&line);
        assert_eq!(ended.stderr.matches("claim released").count(), 1, "{ended}");
        assert_eq!(db.of_run(run, "status, attempts"), "succeeded|1");
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "1");
    }
}

#[test]
fn the_error_names_ulimit_n_if_a_command_has_no_free_file_descriptors() {
    let db = TestDb::new();
    for (limit, command) in [(5, "list"), (6, "tick"), (7, "tick"), (8, "tick")] {
        let refused = db.script(&format!("ulimit -n {limit}; exec \"$jobctl\" {command}")).run();
        refused
            .exits(5)
            .stdout("")
            .complains_once()
            .stderr_has(": out of file descriptors (ulimit -n); try again");
    }
}

#[test]
fn an_http_call_that_has_begun_counts_as_an_attempt() {
    let host = Preload::compile(EXHAUSTED_HOST);
    let folder = temp_dir();
    let (first, second) = (HttpServer::start(), HttpServer::start());
    let db = TestDb::new();
    let call = serde_json::json!({
        "url": first.url(&format!("/redirect?to={}", second.url("/echo"))),
        "redirects": 1,
    });
    let run = db.enqueue(["http", &call.to_string()]);
    // The folder exists, so the host is exhausted from the start. It has one socket for the call,
    // and none for the redirect to the other server.
    tick_on(&host, &db, folder.path(), 1).run().success();
    assert_eq!(first.requests().len(), 1);
    assert_eq!(db.of_run(run, "status, attempts, error_type"), "failed|1|transport");
}
