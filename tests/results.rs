//! `jobctl.result`, `jobctl.results` and `--output`: what a run printed, for its enqueuer.

use serde_json::json;

use crate::support::{Role, TestDb, wait_until};

const JOBS: &str = r#"
[jobs.total]
shell = "echo '{\"total\": 17}'; echo done >&2"
result = "json"
max_attempts = 1

[jobs.broken]
shell = "echo total 17; echo why >&2"
result = "json"
max_attempts = 1

[jobs.words]
shell = "cat"
"#;

#[test]
fn an_application_reads_the_results_of_its_own_runs() {
    let db = TestDb::new();
    db.apply(JOBS);
    let application = Role::granted(&db, "enqueuer");
    let others = db.enqueue(["total"]);
    let mut client = application.client();
    let mut one = |query: &str| client.query_one(query, &[]).unwrap();
    let run: i64 = one("SELECT jobctl.enqueue('total')").get(0);
    let result = |column: &str| format!("SELECT {column} FROM jobctl.result({run})");
    let before = one(&result("status, finished_at IS NULL AND output IS NULL AND result IS NULL"));
    assert_eq!(before.get::<_, &str>(0), "queued");
    assert!(before.get::<_, bool>(1));
    db.jobctl(["tick"]).run().success();
    let after = one(&result("status, output, finished_at IS NOT NULL AND NOT output_truncated"));
    assert_eq!(after.get::<_, &str>(0), "succeeded");
    assert_eq!(after.get::<_, &str>(1), "{\"total\": 17}\n--- stderr ---\ndone\n");
    assert!(after.get::<_, bool>(2));
    assert_eq!(one(&result("(result ->> 'total')::integer")).get::<_, i32>(0), 17);
    let of_all = format!("SELECT array_agg(id) FROM jobctl.results('{{{run}, {others}, 99}}')");
    assert_eq!(one(&of_all).get::<_, Vec<i64>>(0), [run]);
    // A role that reads outputs, and one that reads only states and has no runs of its own.
    let operator = Role::granted(&db, "operator");
    let all = operator.client().query_one(&of_all.replace("array_agg", "count"), &[]).unwrap();
    assert_eq!(all.get::<_, i64>(0), 2);
    Role::granted(&db, "viewer").client().query_one(&of_all, &[]).unwrap_err();
}

#[test]
fn an_output_that_is_not_json_fails_the_attempt() {
    let db = TestDb::new();
    db.apply(JOBS);
    let id = db.enqueue(["broken"]);
    db.jobctl(["tick"]).run().stderr_has("output is not valid JSON: ");
    assert_eq!(db.of_run(id, "status, error_type"), "dead|bad_result");
    db.jobctl(["wait", &id.to_string()])
        .run()
        .exits(1)
        .stderr_has("is dead after 1 attempt: error type bad_result");
    for output in [
        // jsonb would drop one of the keys, and rejects the zero byte and the number.
        r#"{"a": 1, "a": 2}"#,
        r#""\u0000""#,
        "1e999",
        // No value, and two of them.
        "",
        "{} {}",
    ] {
        db.apply(&format!(
            "[jobs.odd]\nshell = {}\nresult = 'json'\nmax_attempts = 1\n",
            json!(["printf", "%s", output])
        ));
        let id = db.enqueue(["odd"]);
        db.jobctl(["tick"]).run();
        assert_eq!(db.of_run(id, "status, error_type"), "dead|bad_result", "{output}");
    }
    db.apply("[jobs.odd]\nshell = 'seq 20000'\nresult = 'json'\nmax_attempts = 1\n");
    db.enqueue(["odd"]);
    db.jobctl(["tick"]).run().stderr_has("it was too long to be stored whole");
    // A run that succeeded before the definition had `result = 'json'` has no result.
    db.apply("[jobs.odd]\nshell = 'echo no'\n");
    let id = db.enqueue(["odd"]);
    db.jobctl(["tick"]).run().success();
    db.apply("[jobs.odd]\nshell = 'echo no'\nresult = 'json'\n");
    let read = format!("SELECT status, result IS NULL FROM jobctl.result({id})");
    assert_eq!(db.query(&read), "succeeded|t");
}

#[test]
fn enqueue_prints_what_its_run_printed() {
    let db = TestDb::new();
    db.apply(JOBS);
    db.jobctl(["enqueue", "words", "[1]", "--run", "--output"]).run().success().stdout("[1]");
    db.jobctl(["enqueue", "broken", "--run", "--output"])
        .run()
        .exits(1)
        .stdout("total 17\n--- stderr ---\nwhy\n");
    db.jobctl(["enqueue", "words", "--output"])
        .run()
        .exits(2)
        .stderr_has("--output needs --wait or --run");
    let application = Role::granted(&db, "enqueuer");
    let waiting = application.jobctl(["enqueue", "words", "[2]", "--wait", "--output"]).spawn();
    wait_until("the run is enqueued", || {
        db.query("SELECT count(*) = 3 FROM jobctl.job_runs") == "t"
    });
    db.jobctl(["tick"]).run().success();
    waiting.wait().success().stdout("[2]");
    let batch =
        "{\"job_type\": \"words\", \"payload\": 3}\n{\"job_type\": \"words\", \"payload\": 4}\n";
    let waiting = db.jobctl(["enqueue", "--batch", "-", "--wait", "--output"]).stdin(batch).spawn();
    wait_until("the run is enqueued", || {
        db.query("SELECT count(*) = 5 FROM jobctl.job_runs") == "t"
    });
    db.jobctl(["tick"]).run().success();
    waiting.wait().success().stdout("34");
}

/// A role with the rights of a viewer and an enqueuer sees the states of all runs, but reads the
/// outputs only of its own.
#[test]
fn pass_result_shows_no_output_that_the_role_may_not_read() {
    let db = TestDb::new();
    db.apply(&format!("{JOBS}\n[jobs.reader]\nshell = 'cat'\npass_result = true\n"));
    let others = db.enqueue(["total"]);
    let role = Role::granted(&db, "enqueuer");
    db.execute(&format!("GRANT SELECT (status) ON jobctl.job_runs TO {}", role.name()));
    let mut client = role.client();
    let mut after = |job: &str| {
        let enqueue = format!("SELECT jobctl.enqueue('{job}', after => '{{{others}}}')");
        client.query_one(&enqueue, &[]).map(|_| ())
    };
    after("words").unwrap();
    let error = after("reader").unwrap_err();
    assert_eq!(error.as_db_error().unwrap().message(), format!("no run {others}"));
}

/// An enqueue can end a run, to make room for its own, and so enqueue a hook.
#[test]
fn an_enqueuer_may_not_read_the_state_of_a_hook_or_of_a_run_that_another_login_replaced() {
    let db = TestDb::new();
    db.apply(
        "[jobs.full]\nshell = 'true'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n\
         on_end = 'alert'\n[jobs.alert]\nshell = 'cat'\n[jobs.live]\nshell = 'cat'\n",
    );
    let [first, second] = [(); 2].map(|()| Role::granted(&db, "enqueuer"));
    let mut client = first.client();
    client.batch_execute("SELECT jobctl.enqueue('full'), jobctl.enqueue('full')").unwrap();
    let hook: i64 = db
        .query("SELECT id FROM jobctl.job_runs WHERE job_type = 'alert'")
        .parse()
        .expect("one hook");
    let reads = |role: &Role, run: i64| {
        let states = format!("SELECT count(*) FROM jobctl.run_states('{{{run}}}')");
        role.client().query_one(&states, &[]).unwrap().get::<_, i64>(0) == 1
    };
    assert!(!reads(&first, hook));
    // The second enqueuer replaces the run of the first one.
    let replace = "SELECT jobctl.enqueue('live', '[1]', key => 'k', key_scope => 'live',
        run_in => '1 hour', on_conflict => 'replace')";
    let run: i64 = client.query_one(replace, &[]).unwrap().get(0);
    assert!(reads(&first, run));
    second.client().batch_execute(replace).unwrap();
    assert!(!reads(&first, run));
    assert!(reads(&second, run));
}
