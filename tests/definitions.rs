//! Runs of definitions: enqueued by name, executed as the definition says when they are claimed.

use rustix::process::Signal;

use crate::support::http_server::HttpServer;
use crate::support::{Gate, Proxy, Running, TestDb, json_string, temp_dir, wait_until};

#[test]
fn a_defined_command_gets_the_payload_on_its_stdin() {
    let db = TestDb::new();
    db.apply(
        "[jobs.echo]\nshell = 'cat; echo; echo $JOBCTL_JOB $JOBCTL_RUN_ID $JOBCTL_ATTEMPT \
         $JOBCTL_IDEMPOTENCY_KEY'\n",
    );
    let payload = r#"{"user": "; touch pwned; $(id) `id`", "list": [-1, null]}"#;
    let given = db.enqueue(["echo", payload, "--key", "k:1"]);
    let none = db.enqueue(["echo"]);
    db.jobctl(["tick"]).run().success();
    let output: String = db.of_attempt(given, 1, "output");
    let (json, rest) = output.split_once('\n').unwrap();
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(json), value(payload));
    assert_eq!(rest.trim(), format!("echo {given} 1 k:1"));
    assert_eq!(db.of_attempt(none, 1, "output").lines().next(), Some("{}"));
}

#[test]
fn a_defined_call_sends_the_payload_as_its_json_body() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let (report, page) = (server.url("/status/200"), server.url("/status/200?x-page=1"));
    db.apply(&format!(
        "[jobs.report]\nhttp = \
         {{ url = '{report}', headers = {{ authorization = 'Bearer ${{TOKEN}}' }} }}\n
         [jobs.page]\nhttp = {{ url = '{page}', method = 'GET' }}\n"
    ));
    let id = db.enqueue(["report", r#"{"user_id": 12345}"#, "--key", "weekly:12345"]);
    let page = db.enqueue(["page", r#"{"unused": true}"#]);
    db.jobctl(["tick"]).env("TOKEN", "s3cret").run().success().prints_nowhere("s3cret");
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(db.status(page), "succeeded");
    let requests = server.requests();
    let request = |path: &str| requests.iter().find(|request| request.path == path).unwrap();
    // POST is the default. The header of the definition has the variable's value.
    let posted = request("/status/200");
    assert_eq!(posted.method, "POST");
    assert_eq!(posted.body, br#"{"user_id": 12345}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("authorization", "Bearer s3cret"),
        ("idempotency-key", "weekly:12345"),
        ("x-jobctl-run-id", &id.to_string()),
        ("x-jobctl-attempt", "1"),
    ] {
        assert_eq!(posted.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    // GET has no body, so the payload is not sent.
    let got = request("/status/200?x-page=1");
    assert_eq!(got.method, "GET");
    assert_eq!(got.body, b"");
}

#[test]
fn an_unknown_name_is_refused_with_a_suggestion() {
    let db = TestDb::new();
    db.apply("[jobs.send_weekly_report]\nshell = 'true'\n");
    for (name, said) in [
        ("send_weekly_raport", "; did you mean `send_weekly_report`?"),
        ("shel", "; did you mean `shell`?"),
        ("something_else", "; built-in jobs are shell and http"),
    ] {
        db.jobctl(["enqueue", name, "{}"])
            .run()
            .exits(3)
            .stdout("")
            .stderr(&format!("jobctl: no definition `{name}`{said}\n"));
    }
    // The same in a batch, whose other line is not enqueued either.
    let batch = "{\"job_type\": \"send_weekly_report\"}\n{\"job_type\": \"send_weekly_raport\"}\n";
    db.jobctl(["enqueue", "--batch", "-"])
        .stdin(batch)
        .run()
        .exits(3)
        .stdout("")
        .complains_once()
        .stderr(
            "jobctl: cannot enqueue: batch line 2: no definition `send_weekly_raport`; \
         did you mean `send_weekly_report`?\n",
        );
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_batch_mixes_definitions_and_built_in_jobs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\nqueue = 'own'\n");
    let batch = concat!(
        "{\"job_type\": \"a\", \"payload\": [1], \"idempotency_key\": \"k\"}\n",
        "{\"job_type\": \"shell\", \"payload\": {\"command\": \"true\"}}\n",
        "{\"job_type\": \"a\", \"payload\": [1], \"idempotency_key\": \"k\"}\n",
        "{\"job_type\": \"a\", \"payload\": [2], \"queue\": \"given\"}\n",
    );
    let ids = db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success().stdout;
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 4);
    // The first and the third line have one key, and so one run.
    assert_eq!(ids[0], ids[2]);
    assert_eq!(
        db.query("SELECT job_type, payload, queue FROM jobctl.job_runs ORDER BY payload::text"),
        "a|[1]|own\na|[2]|given\nshell|{\"command\": \"true\"}|default"
    );
    // With this key and another payload, the whole batch is refused.
    let taken = "{\"job_type\": \"a\", \"payload\": [3]}\n\
        {\"job_type\": \"a\", \"payload\": [4], \"idempotency_key\": \"k\"}\n";
    db.jobctl(["enqueue", "--batch", "-"])
        .stdin(taken)
        .run()
        .exits(4)
        .stdout("")
        .stderr_has("batch line 2: key `k`");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "3");
}

#[test]
fn the_limits_of_a_definition_apply_where_none_are_given() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nqueue = 'slow'\npriority = 7\nmax_attempts = 3\nbackoff = \
        'fixed:5m'\ntimeout = '9m'\n",
    );
    // Without a flag, the run has no timeout of its own: it is read at the claim.
    let own = db.enqueue(["a"]);
    let given = db.enqueue([
        "a",
        "--queue",
        "q",
        "--priority",
        "-1",
        "--max-attempts",
        "2",
        "--backoff",
        "list:1m",
        "--timeout",
        "3s",
        "--in",
        "1h",
    ]);
    let columns =
        "queue, priority, max_attempts, backoff, timeout, run_at > now() + interval '59 minutes'";
    assert_eq!(db.of_run(own, columns), "slow|7|3|fixed:5m||f");
    assert_eq!(db.of_run(given, columns), "q|-1|2|list:1m|00:00:03|t");
}

#[test]
fn an_edited_definition_applies_to_waiting_and_retried_runs() {
    let db = TestDb::new();
    let server = HttpServer::start();
    db.apply("[jobs.a]\nshell = 'echo old; exit 1'\n");
    let retried = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(retried), "failed");
    let waiting = db.enqueue(["a"]);
    db.apply("[jobs.a]\nshell = 'echo new'\n");
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(retried, 2, "outcome, output"), "succeeded|new\n");
    assert_eq!(db.of_attempt(waiting, 1, "outcome, output"), "succeeded|new\n");
    // Even another kind of job.
    let called = db.enqueue(["a"]);
    db.apply(&format!("[jobs.a]\nhttp = {{ url = '{}' }}\n", server.url("/status/204")));
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(called, 1, "outcome, http_status"), "succeeded|204");
}

#[test]
fn a_run_has_the_timeout_that_its_definition_had_at_the_claim() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'exec sleep 60'\n");
    let id = db.enqueue(["a", "--max-attempts", "1"]);
    db.apply("[jobs.a]\nshell = 'exec sleep 60'\ntimeout = '1s'\n");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, error_type, last_error"), "dead|timeout|timed out after 1s");
}

#[test]
fn an_invalid_definition_kills_only_its_own_runs() {
    let db = TestDb::new();
    db.apply("[jobs.spoilt]\nshell = 'true'\n[jobs.whole]\nshell = 'true'\n");
    db.execute(
        "UPDATE jobctl.job_definitions SET action = '{\"command\": 5}' WHERE name = 'spoilt'",
    );
    let (spoilt, whole) = (db.enqueue(["spoilt"]), db.enqueue(["whole"]));
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(whole), "succeeded");
    assert_eq!(
        db.of_run(spoilt, "status, error_type, last_error"),
        "dead|bad_payload|definition `spoilt` can't be executed: `command` must be a string or a \
         list of strings, at line 1 column 14"
    );
}

#[test]
fn the_exit_codes_of_a_definition_decide_instead_of_the_usual_ones() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'exit $(cat)'\npermanent_exit_codes = [3, 64]\n\
         [jobs.usual]\nshell = 'exit $(cat)'\n",
    );
    // The job, its payload, which is its exit code, and the status after one attempt. A permanent
    // code ends the run as dead.
    for (job, code, status) in [
        ("a", "3", "dead"),
        ("a", "64", "dead"),
        ("a", "65", "failed"),
        ("a", "1", "failed"),
        ("a", "0", "succeeded"),
        ("usual", "3", "failed"),
        ("usual", "65", "dead"),
    ] {
        let id = db.enqueue([job, code]);
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.status(id), status, "{job} {code}");
    }
}

#[test]
fn the_statuses_of_a_definition_decide_instead_of_the_usual_ones() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // The definition's list, the status of the answer, and the status of the run after one attempt.
    // Other statuses from 400 on end the run as dead.
    for (transient, answer, status) in [
        ("[404, '5xx']", 404, "failed"),
        ("[404, '5xx']", 503, "failed"),
        ("[404, '5xx']", 429, "dead"),
        ("[]", 500, "dead"),
        ("[404]", 200, "succeeded"),
    ] {
        let url = server.url(&format!("/status/{answer}"));
        db.apply(&format!(
            "[jobs.a]\nhttp = {{ url = '{url}', transient_statuses = {transient} }}\n"
        ));
        let id = db.enqueue(["a"]);
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.status(id), status, "{transient} {answer}");
    }
}

#[test]
fn a_host_may_run_defined_commands_only_or_none() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let (built_in, defined) = (db.enqueue(["shell", "--", "true"]), db.enqueue(["a"]));
    db.jobctl(["tick", "--shell", "off"]).run().success().stderr("");
    assert_eq!([built_in, defined].map(|id| db.status(id)), ["queued", "queued"]);
    db.jobctl(["tick", "--shell", "defined"]).run().success();
    assert_eq!([built_in, defined].map(|id| db.status(id)), ["queued", "succeeded"]);
}

/// Returns how many jobs ran at the same time at most, from their lines `start` and `end`.
fn most_at_once(log: &str) -> i32 {
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        running += if line == "start" { 1 } else { -1 };
        most = most.max(running);
    }
    most
}

#[test]
fn the_limit_of_a_definition_holds_over_workers_that_claim_at_the_same_time() {
    // Keys of the definition, and how many of its runs may run at the same time.
    for (policy, most) in [
        ("max_running = 2", 2),
        ("schedule = '0 2 * * *'\noverlap = 'queue'", 1),
        ("schedule = '0 2 * * *'\noverlap = 'queue'\nmax_running = 2", 1),
    ] {
        let db = TestDb::new();
        let folder = temp_dir();
        let log = folder.path().join("log");
        db.apply(&format!(
            "[jobs.a]\nshell = 'echo start >>\"{0}\"; sleep 0.05; echo end >>\"{0}\"'\n{policy}\n",
            log.display()
        ));
        let batch = "{\"job_type\": \"a\"}\n".repeat(8);
        db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success();
        for round in 0.. {
            assert!(round < 20, "it takes too many rounds");
            let ticks = ["one", "two", "three"]
                .map(|worker| db.jobctl(["tick", "--worker", worker]).spawn());
            ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
            if db.query("SELECT count(*) FROM jobctl.job_runs WHERE status <> 'succeeded'") == "0" {
                break;
            }
        }
        let log = std::fs::read_to_string(&log).unwrap();
        assert_eq!(log.lines().filter(|line| *line == "start").count(), 8);
        assert_eq!(most_at_once(&log), most, "{policy}\n{log}");
    }
}

#[test]
fn the_limit_of_a_definition_holds_for_runs_that_any_program_inserted() {
    let db = TestDb::new();
    let gate = Gate::new();
    let definition =
        format!("[jobs.a]\nshell = {}\nmax_running = 1\n", json_string(&gate.script()));
    db.apply(&definition);
    db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'a' FROM generate_series(1, 2)");
    // The definition is removed and added again: earlier runs belong to the new one.
    db.enqueue(["a"]);
    db.execute("DELETE FROM jobctl.job_definitions");
    db.apply(&definition);
    db.enqueue(["a"]);
    let ticks = ["one", "two"].map(|worker| db.jobctl(["tick", "--worker", worker]).spawn());
    gate.wait_for_starts(1);
    let [one, two] = ticks;
    // One tick claims the only run that the limit allows; the other tick exits.
    let mut running = vec![one, two];
    wait_until("one tick to end", || {
        running.retain_mut(Running::is_running);
        running.len() == 1
    });
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1"),
        "queued|3\nrunning|1"
    );
    gate.open();
    running.remove(0).wait().success();
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "succeeded|4");
}

#[test]
fn workers_that_claim_in_the_same_instant_do_not_exceed_the_limit() {
    let db = TestDb::new();
    let folder = temp_dir();
    db.apply("[jobs.a]\nshell = 'while [ ! -e go ]; do sleep 0.02; done'\nmax_running = 2\n");
    // Each worker claims from its own queue, so locks on runs do not separate them. Only the count
    // of running runs keeps them within the limit.
    let queues = ["one", "two", "three"];
    let batch: String = queues
        .iter()
        .map(|queue| format!("{{\"job_type\": \"a\", \"queue\": \"{queue}\"}}\n").repeat(2))
        .collect();
    db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success();
    // This lock stops all ticks at their claim, so that they continue at the same instant.
    let mut gate = db.client();
    gate.batch_execute("BEGIN; LOCK TABLE jobctl.job_runs IN SHARE MODE").unwrap();
    let mut ticks = queues.map(|name| {
        db.jobctl(["tick", "--worker", name, "--queue", name]).current_dir(folder.path()).spawn()
    });
    wait_until("all to claim", || db.sessions_waiting_for_locks() == 3);
    gate.batch_execute("COMMIT").unwrap();
    wait_until("each to have claimed or ended", || {
        let ended: usize = ticks.iter_mut().map(|tick| usize::from(!tick.is_running())).sum();
        let claimed = db.query(
            "SELECT count(DISTINCT locked_by) FROM jobctl.job_runs WHERE status = 'running'",
        );
        ended + claimed.parse::<usize>().unwrap() == 3
    });
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'"), "2");
    std::fs::write(folder.path().join("go"), "").unwrap();
    ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
}

#[test]
fn a_tick_skips_a_definition_whose_running_runs_another_tick_is_counting() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 1\n[jobs.free]\nshell = 'true'\n");
    let (limited, free) = (db.enqueue(["limited"]), db.enqueue(["free"]));
    let mut other = db.client();
    let mut counting = other.transaction().unwrap();
    counting
        .execute("SELECT FROM jobctl.job_definitions WHERE name = 'limited' FOR NO KEY UPDATE", &[])
        .unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(limited), "queued");
    assert_eq!(db.status(free), "succeeded");
    // A tick waits for a lock that another claim holds only for a moment.
    let free = db.enqueue(["free"]);
    let tick = db.jobctl(["tick"]).spawn();
    db.wait_for_status(free, "succeeded");
    counting.rollback().unwrap();
    tick.wait().success();
    assert_eq!(db.status(limited), "succeeded");
}

#[test]
fn a_locked_run_of_a_limited_definition_delays_no_other() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    let (first, second) = (db.enqueue(["a"]), db.enqueue(["a"]));
    let mut application = db.client();
    let mut open = application.transaction().unwrap();
    open.execute("SELECT FROM jobctl.job_runs WHERE id = $1 FOR UPDATE", &[&first]).unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(first), "queued");
    assert_eq!(db.status(second), "succeeded");
}

#[test]
fn a_run_elsewhere_counts_against_the_limit_and_other_queues_do_not_block_it() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 2\n");
    let elsewhere = db.enqueue(["a"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'elsewhere',
         locked_until = now() + interval '1 hour' WHERE id = {elsewhere}"
    ));
    // First in line, in a queue that no worker serves now.
    let unserved = db.enqueue(["a", "--queue", "unserved", "--priority", "-1"]);
    let served = db.enqueue(["a"]);
    db.jobctl(["tick", "--queue", "default"]).run().success();
    assert_eq!(db.status(unserved), "queued");
    assert_eq!(db.status(served), "succeeded");
    // The run elsewhere uses up a limit of 1.
    db.execute("UPDATE jobctl.job_definitions SET max_running = 1");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.status(unserved), "queued");
}

#[test]
fn a_limited_definition_starts_its_next_run_as_soon_as_one_ends() {
    for flags in [&["--linger"][..], &[]] {
        let db = TestDb::new();
        db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
        db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'a' FROM generate_series(1, 20)");
        let tick = db.jobctl(["tick"]).args(flags.iter().copied()).spawn();
        wait_until("the last to end", || {
            db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'") == "20"
        });
        tick.signal(Signal::TERM);
        tick.wait().success();
        // All times that a transaction writes are equal. So each later run started in the
        // transaction that ended the run before it.
        let at_once = "SELECT count(*) FROM jobctl.job_runs AS run
            JOIN jobctl.job_runs AS before ON before.finished_at = run.started_at";
        assert_eq!(db.query(at_once), "19", "{flags:?}");
    }
}

#[test]
fn limited_definitions_keep_their_order_among_other_runs() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running = 1\n[jobs.free]\nshell = 'true'\n");
    // The ids of these runs are their places in the list, 1 to 8.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, queue, priority, run_at)
         SELECT job, queue, priority, now() - interval '1 hour' + interval '1 minute' * minute
         FROM (VALUES
             ('free', 'a', 0, 1),
             ('limited', 'a', 0, 2),
             ('free', 'a', 0, 3),
             ('limited', 'a', 0, 4),
             ('free', 'b', 0, 2),
             ('limited', 'b', -1, 9),
             ('free', 'a', -2, 9),
             ('limited', 'b', -1, 8)
         ) AS run (job, queue, priority, minute)",
    );
    // By priority, the smallest first, then by time, whatever the queue.
    (0..8).for_each(|_| drop(db.jobctl(["tick", "--limit", "1"]).run().success()));
    let order = "SELECT string_agg(run_id::text, ' ' ORDER BY started_at) FROM jobctl.job_attempts";
    assert_eq!(db.query(order), "7 8 6 1 2 5 3 4");
}

#[test]
fn a_tick_that_lost_the_claim_right_claims_no_run_of_a_limited_definition() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    let id = db.enqueue(["a"]);
    // The tick is stopped after it took the claim right, and before it claims.
    proxy.freeze_after("COMMIT\0");
    let tick = db.jobctl(["tick"]).through(&proxy).spawn();
    wait_until("the tick to get the right", || proxy.is_frozen());
    // Meanwhile a tick on another host takes the claim right over.
    let elsewhere = "claiming_tick = 'elsewhere.1.0', claiming_until = now() + interval '1 hour'";
    db.execute(&format!("UPDATE jobctl.job_workers SET {elsewhere}"));
    proxy.restore();
    tick.wait().success().stderr("");
    assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
}

#[test]
fn shell_off_does_not_claim_limited_commands() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    let id = db.enqueue(["a"]);
    db.jobctl(["tick", "--shell", "off"]).run().success().stderr("");
    assert_eq!(db.of_run(id, "status, attempts"), "queued|0");
}

#[test]
fn claims_do_not_read_runs_that_wait_for_a_limit() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'a' FROM generate_series(1, 5000)");
    db.jobctl(["tick", "--limit", "100"]).run().success();
    let read = || -> i64 {
        let read =
            "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'job_runs_waiting'";
        db.query(read).parse().unwrap()
    };
    wait_until("the statistics of the ended session", || read() > 0);
    // If each of the hundred claims read the waiting runs, these would be 500,000 entries.
    assert!(read() < 40 * 5000, "{}", read());
}

#[test]
fn a_failed_run_of_a_definition_with_max_running_is_tried_again() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'test $JOBCTL_ATTEMPT -eq 2'\nmax_running = 1\n");
    let id = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "failed");
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
}

#[test]
fn a_definition_with_max_running_starts_due_runs_and_skips_later_ones_of_smaller_priority() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_running = 1\n");
    // A run with a smaller priority starts first. `later` is not due.
    let first = db.enqueue(["a", "--priority", "-2"]);
    let later = db.enqueue(["a", "--priority", "-1", "--in", "1h"]);
    let last = db.enqueue(["a"]);
    db.jobctl(["tick", "--limit", "1"]).run().success();
    assert_eq!([first, later, last].map(|id| db.status(id)), ["succeeded", "queued", "queued"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!([later, last].map(|id| db.status(id)), ["queued", "succeeded"]);
}

#[test]
fn the_timeout_of_a_run_comes_before_that_of_its_definition() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'exec sleep 60'\ntimeout = '10m'\n");
    let id = db.enqueue(["a", "--max-attempts", "1", "--timeout", "1s"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, last_error"), "dead|timed out after 1s");
}
