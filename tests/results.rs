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
    // A run that the application has not enqueued.
    let foreign = db.enqueue(["total"]);
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

    // Of its own run, another one and an unknown id, the application reads only its own run.
    let of_all = format!("SELECT array_agg(id) FROM jobctl.results('{{{run}, {foreign}, 99}}')");
    assert_eq!(one(&of_all).get::<_, Vec<i64>>(0), [run]);
    // An operator reads the results of all runs. A viewer may not call the function.
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
}

#[test]
fn an_output_that_jsonb_would_change_or_reject_fails_the_attempt() {
    let db = TestDb::new();
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
}

#[test]
fn an_output_that_is_too_long_to_be_stored_fails_with_that_reason() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'seq 20000'\nresult = 'json'\nmax_attempts = 1\n");
    db.enqueue(["long"]);
    db.jobctl(["tick"]).run().stderr_has("it was too long to be stored whole");
}

#[test]
fn a_run_that_succeeded_before_its_definition_asked_for_json_has_no_result() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'echo no'\n");
    let id = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    db.apply("[jobs.a]\nshell = 'echo no'\nresult = 'json'\n");
    let read = format!("SELECT status, result IS NULL FROM jobctl.result({id})");
    assert_eq!(db.query(&read), "succeeded|t");
}

#[test]
fn enqueue_prints_what_its_run_printed() {
    let db = TestDb::new();
    db.apply(JOBS);
    // `--run` executes the run in the command itself.
    db.jobctl(["enqueue", "words", "[1]", "--run", "--output"]).run().success().stdout("[1]");
    db.jobctl(["enqueue", "broken", "--run", "--output"])
        .run()
        .exits(1)
        .stdout("total 17\n--- stderr ---\nwhy\n");
    db.jobctl(["enqueue", "words", "--output"])
        .run()
        .exits(2)
        .stderr_has("--output needs --wait or --run");

    // `--wait` waits for a tick to execute the run.
    let wait_for_enqueued = |runs: &str| {
        let queued = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
        wait_until("the runs to be enqueued", || db.query(queued) == runs);
    };
    let application = Role::granted(&db, "enqueuer");
    let waiting = application.jobctl(["enqueue", "words", "[2]", "--wait", "--output"]).spawn();
    wait_for_enqueued("1");
    db.jobctl(["tick"]).run().success();
    waiting.wait().success().stdout("[2]");

    // The outputs of a batch are printed one after the other.
    let batch =
        "{\"job_type\": \"words\", \"payload\": 3}\n{\"job_type\": \"words\", \"payload\": 4}\n";
    let waiting = db.jobctl(["enqueue", "--batch", "-", "--wait", "--output"]).stdin(batch).spawn();
    wait_for_enqueued("2");
    db.jobctl(["tick"]).run().success();
    waiting.wait().success().stdout("34");
}

/// A role with the rights of a viewer and an enqueuer sees the states of all runs, but reads the
/// outputs only of its own.
#[test]
fn pass_result_shows_no_output_that_the_role_may_not_read() {
    let db = TestDb::new();
    db.apply(&format!("{JOBS}\n[jobs.reader]\nshell = 'cat'\npass_result = true\n"));
    let foreign = db.enqueue(["total"]);
    let role = Role::granted(&db, "enqueuer");
    db.execute(&format!("GRANT SELECT (status) ON jobctl.job_runs TO {}", role.name()));
    let mut client = role.client();
    let mut enqueue_after_foreign = |job: &str| {
        let enqueue = format!("SELECT jobctl.enqueue('{job}', after => '{{{foreign}}}')");
        client.query_one(&enqueue, &[]).map(|_| ())
    };
    // A run may wait for any run whose state its role sees.
    enqueue_after_foreign("words").unwrap();
    // But `reader` would get the output of that run.
    let error = enqueue_after_foreign("reader").unwrap_err();
    assert_eq!(error.as_db_error().unwrap().message(), format!("no run {foreign}"));
}

#[test]
fn an_enqueuer_may_not_read_the_state_of_a_hook_or_of_a_run_that_another_login_replaced() {
    let db = TestDb::new();
    db.apply(
        "[jobs.full]\nshell = 'true'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n\
         on_end = 'alert'\n[jobs.alert]\nshell = 'cat'\n[jobs.live]\nshell = 'cat'\n",
    );
    let [first, second] = [(); 2].map(|()| Role::granted(&db, "enqueuer"));
    let mut client = first.client();
    // The second of these enqueues drops the run of the first one, whose end enqueues a hook.
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

    // The second enqueuer replaces a run of the first one, and so owns the run.
    let replace = "SELECT jobctl.enqueue('live', '[1]', key => 'k', key_scope => 'live',
        run_in => '1 hour', on_conflict => 'replace')";
    let run: i64 = client.query_one(replace, &[]).unwrap().get(0);
    assert!(reads(&first, run));
    second.client().batch_execute(replace).unwrap();
    assert!(!reads(&first, run));
    assert!(reads(&second, run));
}
