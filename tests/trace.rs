//! The trace that a run continues, in the form of W3C Trace Context.

use serde_json::json;

use crate::support::TestDb;
use crate::support::http_server::HttpServer;

/// A trace, whose second part is its id.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn trace(db: &TestDb, id: i64) -> String {
    db.of_run(id, "coalesce(traceparent, 'none')")
}

#[test]
fn a_command_continues_the_trace_of_its_enqueuer_and_not_that_of_its_tick() {
    let db = TestDb::new();
    let command = ["shell", "--run", "--output", "--", "printenv", "TRACEPARENT"];
    let enqueue = || db.jobctl(["enqueue"]).args(command);
    // `enqueue` takes the trace of its environment, unless a flag gives another one.
    enqueue().env("TRACEPARENT", TRACE).run().success().stdout(&format!("{TRACE}\n"));
    db.jobctl(["enqueue", "--traceparent", OTHER])
        .args(command)
        .env("TRACEPARENT", TRACE)
        .run()
        .success()
        .stdout(&format!("{OTHER}\n"));
    // A run without a trace does not get that of its tick: the command finds no variable and fails.
    db.enqueue(["shell", "--", "printenv", "TRACEPARENT"]);
    db.jobctl(["tick"]).env("TRACEPARENT", TRACE).run().stderr_has("exit status 1");
}

#[test]
fn a_call_sends_its_trace_as_a_header_and_the_log_and_lists_have_its_id() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = json!({"url": server.url("/echo")}).to_string();
    let traced = db.enqueue(["http", &call, "--traceparent", TRACE]).to_string();
    db.enqueue(["http", &call]);
    let tick =
        db.jobctl(["tick", "--log-format", "json"]).env("JOBCTL_LOG", "info").run().success();
    assert!(
        tick.stderr.contains(r#""trace_id":"4bf92f3577b34da6a3ce929d0e0e4736""#),
        "{}",
        tick.stderr
    );
    // Of the two calls, only one has a trace.
    let requests = server.requests();
    let mut sent: Vec<_> =
        requests.iter().map(|request| request.headers.get("traceparent").cloned()).collect();
    sent.sort_unstable();
    assert_eq!(sent, [None, Some(TRACE.to_owned())]);
    db.jobctl(["show", &traced]).run().stdout_has("trace_id\t4bf92f3577b34da6a3ce929d0e0e4736\n");
    db.jobctl(["list", "--json"])
        .run()
        .stdout_has(r#""trace_id":"4bf92f3577b34da6a3ce929d0e0e4736""#);
}

#[test]
fn hooks_and_followers_continue_the_trace_of_a_run_enqueued_in_sql() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\non_success = 'sent'\n\n[jobs.sent]\nshell = 'true'\n");
    let first = db.query(&format!("SELECT jobctl.enqueue('a', traceparent => '{TRACE}')"));
    let follower = db.enqueue(["a", "--after", &first]);
    let with_own_trace = db.enqueue(["a", "--after", &first, "--traceparent", OTHER]);
    db.jobctl(["tick"]).run().success();
    // This run waits for nothing, because the first run has succeeded.
    let late = db.enqueue(["a", "--after", &first]);
    for (id, expected) in [(follower, TRACE), (with_own_trace, OTHER), (late, TRACE)] {
        assert_eq!(trace(&db, id), expected, "{id}");
    }
    // The tick has ended all runs but the late one, and the hook of each run has its trace.
    let hooks = "SELECT ended.id FROM jobctl.job_runs AS hook
        JOIN jobctl.job_runs AS ended ON ended.id = (hook.payload ->> 'run')::bigint
        WHERE hook.job_type = 'sent' AND hook.traceparent = ended.traceparent
        ORDER BY ended.id";
    assert_eq!(db.query(hooks), format!("{first}\n{follower}\n{with_own_trace}"));
}

#[test]
fn a_line_of_a_batch_has_its_own_trace_or_else_that_of_the_flag() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let batch = format!(
        "{{\"job_type\": \"a\", \"traceparent\": \"{OTHER}\"}}\n{{\"job_type\": \"shell\", \
         \"payload\": {{\"command\": \"true\"}}}}\n{{\"job_type\": \"a\"}}\n"
    );
    let batch = db.jobctl(["enqueue", "--batch", "-", "--traceparent", TRACE]).stdin(batch).run();
    let traces: Vec<_> =
        batch.success().stdout.lines().map(|id| trace(&db, id.parse().unwrap())).collect();
    assert_eq!(traces, [OTHER, TRACE, TRACE]);
}

#[test]
fn a_replaced_run_takes_a_trace_that_the_newer_enqueue_has() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let enqueue_or_replace = |more: &[&str]| {
        let replace = ["a", "--key", "k", "--key-scope", "live", "--in", "1h"];
        db.enqueue(replace.iter().chain(&["--on-conflict", "replace"]).chain(more).copied())
    };
    let id = enqueue_or_replace(&["--traceparent", OTHER]);
    // Without a trace in the newer enqueue, the run keeps its own.
    assert_eq!(enqueue_or_replace(&[]), id);
    assert_eq!(trace(&db, id), OTHER);
    assert_eq!(enqueue_or_replace(&["--traceparent", TRACE]), id);
    assert_eq!(trace(&db, id), TRACE);
}

#[test]
fn a_malformed_trace_is_refused_and_that_of_the_environment_ignored() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    for wrong in [
        "",
        "00",
        &TRACE[1..],
        &TRACE.to_uppercase(),
        &TRACE.replace("4bf", "xyz"),
        &TRACE.replacen("00", "ff", 1),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        &format!("{TRACE}-"),
        &format!("{TRACE}\n"),
    ] {
        db.jobctl(["enqueue", "a", "--traceparent", wrong])
            .run()
            .exits(2)
            .stderr_has("not a trace context; write one as in 00-");
        let line = json!({"job_type": "a", "traceparent": wrong}).to_string();
        db.jobctl(["enqueue", "--batch", "-"])
            .stdin(line)
            .run()
            .exits(2)
            .stderr_has("not a trace context");
        let enqueue = format!("SELECT jobctl.enqueue('a', traceparent => E'{wrong}')");
        let error = db.try_query(&enqueue).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.message().starts_with("traceparent must be as in 00-"), "{wrong}: {error}");
        // Another program may have set the variable, so the enqueue goes on without a trace.
        let id = db.jobctl(["enqueue", "a"]).env("TRACEPARENT", wrong).run().success().stdout;
        assert_eq!(trace(&db, id.trim().parse().unwrap()), "none", "{wrong}");
    }
}
