//! A host executes only what its flags allow, whatever the database contains.

use serde_json::json;

use crate::retry::answer_at_terminal;
use crate::support::http_server::HttpServer;
use crate::support::{TestDb, temp_dir};

/// Creates a trigger that executes the statement `change` during the claim of each run of `job`.
fn change_run_during_claim(db: &TestDb, job: &str, change: &str) {
    db.execute(&format!(
        "CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {change}; RETURN \
            NEW; END $$;
         CREATE TRIGGER forge BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.status = 'running' AND NEW.job_type = '{job}') EXECUTE FUNCTION forge()"
    ));
}

#[test]
fn a_claimed_run_that_became_a_command_is_not_executed() {
    let folder = temp_dir();
    let file = folder.path().join("executed");
    let touch = format!("touch {}", file.display());
    let built_in =
        format!("NEW.job_type := 'shell'; NEW.payload := '{}'", json!({"command": touch}));
    // The value of --shell, the change by which a trigger makes the harmless call a command during
    // the claim, and the error.
    let forgeries = [
        ("off", built_in.as_str(), "--shell off: this host runs no commands"),
        ("off", "NEW.job_type := 'defined'", "--shell off: this host runs no commands"),
        ("defined", &built_in, "--shell defined: this host runs only commands of definitions"),
    ];
    for (policy, forged, why) in forgeries {
        let db = TestDb::new();
        db.apply(&format!(
            "[jobs.harmless]\nhttp = {{ url = 'http://127.0.0.1:9/' }}\n[jobs.defined]\nshell = \
                '{touch}'\n"
        ));
        // The owner of the tables can also define a job named `shell`. It must not make a tick
        // execute a run of the built-in job `shell`.
        db.execute(&format!(
            "ALTER TABLE jobctl.job_definitions DROP CONSTRAINT name_is_not_built_in;
             INSERT INTO jobctl.job_definitions (name, kind, action) VALUES ('shell', 'shell', \
             '{}')",
            json!({"command": touch})
        ));
        let id = db.enqueue(["harmless"]);
        change_run_during_claim(&db, "harmless", forged);
        let tick = db.jobctl(["tick", "--shell", policy]).run().success();
        assert!(!file.exists(), "executed with --shell {policy}: {forged}");
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error"),
            format!("dead|1|not_allowed|{why}")
        );
        let job = db.of_run(id, "job_type");
        tick.stderr_has(&format!(" warn  run {id} {job} attempt 1/10: {why}, dead\n"));
    }
}

#[test]
fn a_claimed_run_that_became_a_call_reaches_only_allowed_hosts() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let id = db.enqueue_script("true");
    let payload = json!({"url": server.url("/status/200")});
    change_run_during_claim(
        &db,
        "shell",
        &format!("NEW.job_type := 'http'; NEW.payload := '{payload}'"),
    );
    db.jobctl(["tick", "--http-allow", "example.com"]).run().success().stderr_has("--http-allow");
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "dead|1|not_allowed");
    assert_eq!(server.connections(), 0);
}

#[test]
fn shell_defined_executes_only_commands_of_definitions() {
    let db = TestDb::new();
    db.apply("[jobs.defined]\nshell = 'cat'\n");
    let (defined, built_in) = (db.enqueue(["defined", "[1]"]), db.enqueue_script("true"));
    db.jobctl(["tick", "--shell", "defined"]).run().success();
    assert_eq!(db.of_attempt(defined, 1, "outcome, output"), "succeeded|[1]");
    // Another host may execute it.
    assert_eq!(db.of_run(built_in, "status, attempts"), "queued|0");
}

#[test]
fn overdue_runs_that_no_worker_may_execute_are_reported() {
    let db = TestDb::new();
    db.apply("[jobs.defined]\nshell = 'true'\n[jobs.other]\nshell = 'true'\nqueue = 'other'\n");
    let ids = [db.enqueue(["defined"]), db.enqueue(["other"]), db.enqueue_script("true")];
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    let tick = |worker, policy| {
        db.jobctl(["tick", "--worker", worker, "--queue", "default", "--shell", policy])
            .run()
            .success();
    };
    // What `check` prints about a job. The time is replaced by 0.
    let unserved = |job: &str, id: i64| {
        format!(
            "no worker may run the commands of {job}, which has 1 overdue run, since 0 (such as \
             run {id}); tick with `--shell any` on a host that may run them (`defined` allows the \
             commands of definitions), or cancel the runs\n"
        )
    };
    // Returns what `check` prints. It also reports the queue `other`, which no worker serves.
    let check = || {
        let lines = db.jobctl(["check"]).run().exits(1).stdout;
        let since = |line: &str| {
            let (before, after) = line.split_once(", since ").unwrap();
            format!("{before}, since 0 {}\n", after.split_once(" UTC ").unwrap().1)
        };
        lines.lines().filter(|line| !line.contains("queue other")).map(since).collect::<String>()
    };

    // The first worker executes no commands. At a terminal, its tick says so.
    let terminal = answer_at_terminal(&db, "tick --worker off --queue default --shell off", "").0;
    let left = "0 dead: nothing else is due; 2 due runs are excluded by --shell\r\n";
    assert!(terminal.contains(left), "{terminal}");
    tick("off", "off");
    assert_eq!(ids.map(|id| db.status(id)), ["queued"; 3]);
    assert_eq!(check(), unserved("defined", ids[0]) + &unserved("shell", ids[2]));
    db.jobctl(["show", &ids[0].to_string(), "--format", "table"])
        .run()
        .success()
        .stdout_has("no worker may run the commands of defined");

    // A second worker executes the commands of definitions.
    tick("defined", "defined");
    assert_eq!(ids.map(|id| db.status(id)), ["succeeded", "queued", "queued"]);
    assert_eq!(check(), unserved("shell", ids[2]));
    // Another tick of that worker has the claim right. So this tick claims nothing, and its --shell
    // does not say what the worker executes.
    db.execute(
        "UPDATE jobctl.job_workers SET claiming_tick = 'another',
         claiming_until = now() + interval '5 minutes' WHERE worker = 'defined'",
    );
    tick("defined", "any");
    assert_eq!(check(), unserved("shell", ids[2]));

    // A third worker executes all commands.
    tick("any", "any");
    assert_eq!(db.status(ids[2]), "succeeded");
}

#[test]
fn an_empty_policy_is_wrong_usage() {
    let db = TestDb::new();
    let id = db.enqueue_script("true");
    for variable in ["JOBCTL_TICK_SHELL", "JOBCTL_TICK_HTTP_ALLOW"] {
        for value in ["", ","] {
            db.jobctl(["tick"]).env(variable, value).run().exits(2).stdout("").stderr_has(variable);
        }
    }
    assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
}
