//! `--on-conflict` and `--debounce`: what an enqueue does when its key has a run.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Gate, TestDb, wait_until};

const KEY: [&str; 4] = ["--key", "k", "--key-scope", "live"];
const LIVE_KEY: &str = r#""idempotency_key": "k", "key_scope": "live""#;
const REPLACE: [&str; 2] = ["--on-conflict", "replace"];

fn db_with_definitions() -> TestDb {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n[jobs.b]\nshell = 'cat'\n");
    db
}

/// Enqueues with the live key, and returns the JSON of the answer.
#[track_caller]
fn answer_to_enqueue<'a>(db: &'a TestDb, arguments: &[&'a str]) -> String {
    let enqueue = db.jobctl(["enqueue", "--json"]).args(KEY).args(arguments.iter().copied());
    enqueue.run().success().stderr("").stdout.trim_end().to_owned()
}

#[test]
fn a_waiting_run_gets_the_new_payload_and_time() {
    let db = db_with_definitions();
    let shell = |word| format!(r#"{{"command": ["echo", "{word}"]}}"#);
    let [old, new] = [shell("old"), shell("new")];
    // A defined job and a built-in one, with an old and a new payload. Each enqueue has the same
    // live key.
    for (job, old, new) in [("a", "\"old\"", "\"new\""), ("shell", &*old, &*new)] {
        let replaced = |expression: &str| {
            let run = "FROM jobctl.job_runs WHERE status = 'queued'";
            db.query(&format!("SELECT {expression} {run}"))
        };
        answer_to_enqueue(&db, &[job, old, "--in", "1h", "--priority", "7"]);
        let id = replaced("id");
        for arguments in
            [&[job, new, "--on-conflict", "replace"][..], &[job, new, "--debounce", "0s"]]
        {
            assert_eq!(
                answer_to_enqueue(&db, arguments),
                format!("{{\"id\":{id},\"result\":\"replaced\"}}")
            );
            assert_eq!(replaced("payload::text LIKE '%new%', run_at <= now(), priority"), "t|t|7");
            // Put the old payload and time back.
            answer_to_enqueue(&db, &[job, old, "--on-conflict", "replace", "--in", "1h"]);
            assert_eq!(replaced("payload::text LIKE '%new%', run_at <= now(), priority"), "f|f|7");
        }
        // Two lines of a batch replace the same run.
        let line = format!(r#"{{"job_type": "{job}", "payload": {new}, {LIVE_KEY}, "#);
        let lines = [r#""on_conflict": "replace"}"#, r#""debounce": "1m", "debounce_max": "2m"}"#];
        let lines = lines.map(|rest| format!("{line}{rest}")).join("\n");
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
        batch.stdout(&format!("{id}\n{id}\n"));
        assert_eq!(replaced("payload::text LIKE '%new%', run_at > now()"), "t|t");
        db.jobctl(["cancel", &id]).run().success();
    }
}

/// A new column of runs must be added to one of the lists: a replaced run gets the value of the new
/// enqueue, or keeps its own.
#[test]
fn each_column_of_a_replaced_run_is_replaced_or_kept() {
    let db = db_with_definitions();
    let row = || {
        let row = db.query("SELECT to_jsonb(run) FROM jobctl.job_runs AS run");
        serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&row).unwrap()
    };
    let enqueue = |text: &str, number: i32| {
        db.query(&format!(
            "SELECT jobctl.enqueue(
                'a', to_jsonb('{text}'::text), key => 'k', key_scope => 'live',
                on_conflict => 'replace', run_in => {number} * interval '1 hour',
                priority => {number}, queue => '{text}', max_attempts => {number},
                timeout => {number} * interval '1 minute', backoff => 'fixed:{number}m',
                expires_in => {number} * interval '1 day', share => '{text}', lock => '{text}',
                worker => '{text}', traceparent => format('00-%s-%s-01', repeat('{number}', 32),
                    repeat('{number}', 16)))"
        ))
    };
    assert_eq!(enqueue("old", 2), "1");
    db.execute(
        "UPDATE jobctl.job_runs
         SET enqueued_by = 'other', updated_at = created_at - interval '1 s'",
    );
    let before = row();
    assert_eq!(enqueue("newer", 3), "1");
    let (kept, replaced): (Vec<_>, Vec<_>) =
        row().into_iter().partition(|(name, value)| *value == before[name]);
    let names = |columns: Vec<(String, _)>| {
        columns.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names(replaced),
        "enqueued_by expires_at lock payload payload_bytes run_at share traceparent updated_at \
         worker"
    );
    assert_eq!(
        names(kept),
        "attempts backoff cancel_requested_at created_at definition_id error_type failed_at \
         finished_at granted_attempts id idempotency_key job_type key_scope last_error live_output \
         locked_by locked_until max_attempts priority queue schedule scheduled_for settled_at \
         snoozed_attempts started_at status timeout uncounted_attempts"
    );
}

#[test]
fn lines_of_one_batch_replace_each_other() {
    let db = db_with_definitions();
    for job in ["a", "shell"] {
        let line = |word| {
            format!(r#"{{"job_type": "{job}", "payload": {{"command": ["echo", "{word}"]}}, "#)
                + r#""idempotency_key": "k", "key_scope": "live", "on_conflict": "replace"}"#
        };
        let lines = ["one", "two", "three"].map(line).join("\n");
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
        let ids: Vec<_> = batch.stdout.lines().collect();
        assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let payload = db.of_run(ids[0].parse().unwrap(), "payload -> 'command' ->> 1");
        assert_eq!(payload, "three");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

#[test]
fn a_debounced_run_starts_at_most_debounce_max_after_its_creation() {
    let db = db_with_definitions();
    let debounce = ["a", "--debounce", "10m", "--debounce-max", "1h"];
    answer_to_enqueue(&db, &debounce);
    assert_eq!(db.of_run(1, "run_at - created_at"), "00:10:00");
    // After debounce_max the run is due now.
    for (age, expected) in
        [("30 minutes", "00:40:00"), ("55 minutes", "01:00:00"), ("2 hours", "02:00:00")]
    {
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET created_at = now() - interval '{age}' WHERE id = 1"
        ));
        assert_eq!(answer_to_enqueue(&db, &debounce), "{\"id\":1,\"result\":\"replaced\"}");
        // The enqueue came a moment after the row was aged.
        let wait = "date_trunc('minute', run_at - created_at + interval '1 second')";
        assert_eq!(db.of_run(1, wait), expected, "{age}");
    }
    // Then it keeps its place among the runs that are due.
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '30 minutes' WHERE id = 1");
    let sql = "SELECT jobctl.enqueue('a', '[2]', key => 'k', key_scope => 'live', \
               debounce => '10 minutes', debounce_max => '1 hour')";
    assert_eq!(db.query(sql), "1");
    let place = "payload, date_trunc('minute', now() - run_at)";
    assert_eq!(db.of_run(1, place), "[2]|00:30:00");
}

#[test]
fn a_replaced_run_that_failed_keeps_its_backoff_and_attempts() {
    let db = db_with_definitions();
    db.apply("[jobs.a]\nshell = 'false'\nbackoff = 'fixed:1h'\n");
    answer_to_enqueue(&db, &["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        answer_to_enqueue(&db, &["a", "[2]", "--debounce", "1s"]),
        "{\"id\":1,\"result\":\"replaced\"}"
    );
    let columns = "status, attempts, payload, run_at > now() + interval '30 minutes'";
    assert_eq!(db.of_run(1, columns), "failed|1|[2]|t");
}

#[test]
fn a_running_run_is_left_alone_and_a_new_one_waits() {
    assert_new_run_waits_within("");
}

#[test]
fn the_new_run_takes_no_slot_of_max_running_while_it_waits() {
    assert_new_run_waits_within("max_running = 2");
}

/// Replaces the key of a running run of a job with this limit, and asserts that the new run waits
/// for its end without taking a slot of the limit.
#[track_caller]
fn assert_new_run_waits_within(limit: &str) {
    let db = TestDb::new();
    let gate = Gate::new();
    let job = crate::support::json_string(&format!("{}\nexit 1", gate.script()));
    db.apply(&format!("[jobs.a]\nshell = {job}\n{limit}\n"));
    answer_to_enqueue(&db, &["a", "[1]"]);
    let tick = db.jobctl(["tick", "--limit", "1"]).spawn();
    gate.wait_for_starts(1);
    let second = "{\"id\":2,\"result\":\"enqueued\"}";
    assert_eq!(answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace"]), second);
    // Run 2 waits until run 1 has ended. Run 3, without the key, starts at once.
    db.enqueue(["a", "[0]"]);
    let other = db.jobctl(["tick", "--limit", "1", "--worker", "other"]).spawn();
    gate.wait_for_starts(2);
    assert_eq!([2, 3].map(|id| db.status(id)), ["queued", "running"]);
    db.jobctl(["tick", "--dry-run"]).run().success().stdout("");
    let shown = db.jobctl(["show", "2"]).run().success().stdout;
    assert!(shown.contains("run 1 has the same key, and is still running"), "{shown}");
    assert_eq!(
        answer_to_enqueue(&db, &["a", "[3]", "--on-conflict", "replace"]),
        second.replace("enqueued", "replaced")
    );
    // An enqueue without a replacement finds the new run, which waits.
    assert_eq!(
        answer_to_enqueue(&db, &["a", "[3]"]),
        second.replace("enqueued\"", "existing\",\"status\":\"queued\"")
    );
    db.jobctl(["enqueue", "a", "[4]"]).args(KEY).run().exits(4);
    assert_eq!(db.of_run(1, "status, payload, key_scope"), "running|[1]|replaced");
    gate.open();
    tick.wait().success();
    other.wait().success();
    // The replaced run is not tried again, because the new run has the newer payload.
    assert_eq!(db.of_run(1, "status, error_type, attempts"), "cancelled|exit_code|1");
    assert_eq!(db.of_run(2, "status, payload"), "queued|[3]");
}

#[test]
fn a_lost_run_whose_key_was_taken_is_not_tried_again() {
    let db = db_with_definitions();
    db.allow_running_runs_at_end();
    answer_to_enqueue(&db, &["a", "[1]"]);
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour', started_at = now()",
    );
    answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace"]);
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(1, "status, error_type"), "cancelled|lease_expired");
    assert_eq!(db.of_run(2, "status"), "succeeded");
}

#[test]
fn a_replaced_run_is_not_retried_beside_the_newer_one() {
    let db = db_with_definitions();
    db.allow_running_runs_at_end();
    answer_to_enqueue(&db, &["a", "[1]"]);
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour', started_at = now()",
    );
    // Run 1 is running, so a new run, 2, takes its key.
    answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace", "--in", "1h"]);
    let retry =
        |arguments: &[&'static str]| db.jobctl(["retry"]).args(arguments.iter().copied()).run();
    let why = "jobctl: cannot retry run 1: run 2 replaced it; cancel that run first\n";
    retry(&["1", "--force"]).exits(4).stdout("").stderr(why);
    // Its worker is lost. It ends as cancelled, and is not tried again.
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    db.jobctl(["show", "1"]).run().success().stdout_has("run 2 replaced it, so it is not tried");
    retry(&["1"]).exits(4).stdout("").stderr(why);
    retry(&["--all-cancelled", "--yes"]).success().stdout("");

    // Run 2 has ended, so run 1 could be retried.
    db.jobctl(["cancel", "2"]).run().success();
    db.jobctl(["show", "1"]).run().success().stdout_has("a newer run replaced it");
    retry(&["--all-cancelled", "--dry-run"]).success().stdout("queued\t1\n");
    // Of two runs that had the key, only the newest gets it back.
    retry(&["1", "2"]).exits(4).stdout("2\tqueued\n").stderr(why);
    db.jobctl(["cancel", "2"]).run().success();
    retry(&["1"]).success();
    assert_eq!(db.of_run(1, "status, key_scope"), "queued|live");
    assert_eq!(
        answer_to_enqueue(&db, &["a", "[1]"]),
        "{\"id\":1,\"result\":\"existing\",\"status\":\"queued\"}"
    );
}

#[test]
fn a_replacement_waits_for_a_claim_of_its_run() {
    for job in [&["a", "[1]"][..], &["shell", "{\"command\": \"true\"}"]] {
        let db = db_with_definitions();
        answer_to_enqueue(&db, job);
        let blocked = db.block_claims();
        let tick = db.jobctl(["tick", "--limit", "1"]).spawn();
        let waiting = |number: &str| {
            let locks = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                         AND wait_event_type = 'Lock'";
            wait_until("sessions to wait", || db.query(locks) == number);
        };
        waiting("1");
        let enqueue = db.jobctl(["enqueue", "--json"]).args(KEY).args(job.iter().copied());
        let enqueue = enqueue.args(REPLACE).args(["--in", "1h"]).spawn();
        waiting("2");
        drop(blocked);
        // The claim was first: its run keeps its payload, and a new one waits.
        let answer = enqueue.wait().success().stdout;
        tick.wait().success();
        assert_eq!(answer, "{\"id\":2,\"result\":\"enqueued\"}\n", "{job:?}");
        assert_eq!([1, 2].map(|id| db.status(id)), ["succeeded", "queued"], "{job:?}");
    }
}

#[test]
fn a_claim_skips_a_run_that_is_being_replaced() {
    let db = db_with_definitions();
    answer_to_enqueue(&db, &["a", "[1]"]);
    let mut application = db.client();
    let replace = "BEGIN; SELECT jobctl.enqueue('a', '[2]', key => 'k', key_scope => 'live', \
                   on_conflict => 'replace')";
    application.batch_execute(replace).unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(1, "status, payload"), "queued|[1]");
    application.batch_execute("COMMIT").unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(1, 1, "output"), "[2]");
}

#[test]
fn the_latest_payload_runs_among_concurrent_claims_and_replacements() {
    let db = db_with_definitions();
    let rounds = 12;
    for round in 1..=rounds {
        let tick = db.jobctl(["tick"]).spawn();
        let payload = round.to_string();
        let more = db.jobctl(["enqueue", "a", "0"]).args(KEY).args(REPLACE).spawn();
        more.wait().success();
        db.enqueue(["a", &payload].into_iter().chain(KEY).chain(REPLACE));
        tick.wait().success();
    }
    db.jobctl(["tick"]).run().success();
    // Each run started with the payload that it has, so none was replaced after its claim.
    let all = "SELECT count(*) = count(*) FILTER (WHERE run.status = 'succeeded' AND \
               attempt.output = run.payload::text) FROM jobctl.job_runs AS run JOIN \
               jobctl.job_attempts AS attempt ON attempt.run_id = run.id";
    assert_eq!(db.query(all), "t");
    let last = "SELECT payload FROM jobctl.job_runs ORDER BY started_at DESC, id DESC LIMIT 1";
    assert_eq!(db.query(last), rounds.to_string());
}

#[test]
fn an_enqueue_can_refuse_a_key_that_has_a_run() {
    let db = db_with_definitions();
    for job in [&["a"][..], &["shell", "{\"command\": \"true\"}"]] {
        let key = ["--key", job[0], "--on-conflict", "error"];
        let id = db.enqueue(job.iter().copied().chain(key));
        let refused = db.jobctl(["enqueue"]).args(job.iter().copied()).args(key).run().exits(4);
        let why = format!("key `{}` belongs to run {id}, and --on-conflict is error", job[0]);
        refused.stdout("").stderr(&format!("jobctl: {why}\n"));
        let line = json!({
            "job_type": job[0], "payload": {"command": "true"}, "idempotency_key": job[0],
            "on_conflict": "error",
        });
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.to_string()).run();
        let why = format!("key `{}` belongs to run {id}, and `on_conflict` is error\n", job[0]);
        refused.exits(4).stderr_has(&why);
    }
    let sql = "SELECT jobctl.enqueue('b', key => 'a', on_conflict => 'error')";
    let refused = db.client().simple_query(sql).unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "JC009");
    assert_eq!(refused.detail(), Some("a"));
}

#[test]
fn an_error_calls_a_flag_by_its_name_and_a_field_by_its_own() {
    let db = TestDb::new();
    // Flags, the same as fields of a batch's line, and the error for each.
    for (flags, fields, why, of_line) in [
        (
            "--key k --on-conflict replace",
            r#""idempotency_key": "k", "on_conflict": "replace""#,
            "--on-conflict replace needs --key and --key-scope live",
            "`on_conflict` replace needs `key` and `key_scope` live",
        ),
        (
            "--key k --debounce 5s",
            r#""idempotency_key": "k", "debounce": "5s""#,
            "--debounce needs --key and --key-scope live",
            "`debounce` needs `key` and `key_scope` live",
        ),
        (
            "--key k --key-scope live --debounce 5s --on-conflict error",
            r#""idempotency_key": "k", "debounce": "5s", "on_conflict": "error""#,
            "--debounce replaces the waiting run, so --on-conflict must be replace",
            "`debounce` replaces the waiting run, so `on_conflict` must be replace",
        ),
        (
            "--key k --key-scope live --debounce 5s --debounce-max 1s",
            &*format!(r#"{LIVE_KEY}, "debounce": "5s", "debounce_max": "1s""#),
            "--debounce-max needs --debounce, and must not be shorter",
            "`debounce_max` needs `debounce`, and must not be shorter",
        ),
    ] {
        let refused = db.jobctl(["enqueue", "a"]).args(flags.split(' ')).run().exits(2);
        refused.stderr(&format!("jobctl: {why}\n"));
        let line = format!(r#"{{"job_type": "a", {fields}}}"#);
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2);
        refused.stderr(&format!("jobctl: cannot enqueue: batch line 1: {of_line}\n"));
    }
}

#[test]
fn a_run_of_another_job_is_not_replaced() {
    let db = db_with_definitions();
    answer_to_enqueue(&db, &["a", "[1]"]);
    for job in [&["b", "[2]"][..], &["shell", "{\"command\": \"true\"}"]] {
        let enqueue = db.jobctl(["enqueue"]).args(job.iter().copied()).args(KEY).args(REPLACE);
        enqueue.run().exits(4).stderr_has("key `k` belongs to run 1 with another job or payload");
    }
    assert_eq!(db.of_run(1, "job_type, payload, key_scope"), "a|[1]|live");
}

#[test]
fn a_full_definition_still_replaces_its_waiting_run() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'cat'\nmax_waiting = 1\n");
    answer_to_enqueue(&db, &["a", "[1]"]);
    let replaced = "{\"id\":1,\"result\":\"replaced\"}";
    assert_eq!(answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace"]), replaced);
    // A new run behind a running one needs room. Without room, the running one keeps its key.
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour'",
    );
    db.enqueue(["a"]);
    db.jobctl(["enqueue", "a", "[3]"]).args(KEY).args(REPLACE).run().exits(9);
    assert_eq!(db.of_run(1, "key_scope"), "live");
}

#[test]
fn rules_that_make_no_sense_are_rejected() {
    let db = db_with_definitions();
    let live = [("key", "k"), ("key_scope", "live")];
    // How much of the live key is given, and which rules. Each is tried as flags, fields and
    // arguments.
    for (key, rest) in [
        (&live[..1], &[("on_conflict", "replace")][..]),
        (&live[..1], &[("debounce", "1s")]),
        (&[], &[("debounce", "1s")]),
        (&[], &[("on_conflict", "error")]),
        (&live, &[("on_conflict", "merge")]),
        (&live, &[("debounce", "1s"), ("on_conflict", "same")]),
        (&live, &[("debounce", "1s"), ("on_conflict", "error")]),
        (&live, &[("debounce", "1s"), ("in", "1s")]),
        (&live, &[("debounce", "2s"), ("debounce_max", "1s")]),
        (&live, &[("debounce_max", "1s")]),
    ] {
        let given = || key.iter().chain(rest);
        let flags: Vec<_> =
            given().map(|(name, value)| format!("--{}={value}", name.replace('_', "-"))).collect();
        let flags = flags.iter().map(String::as_str);
        db.jobctl(["enqueue", "a"]).args(flags).run().exits(2).stdout("");
        let keys = given().map(|(name, value)| format!(r#", "{name}": "{value}""#));
        let line = format!(r#"{{"job": "a"{}}}"#, keys.collect::<String>());
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2);
        batch.stdout("").complains_once();
        let arguments = given().map(|(name, value)| format!(r#", "{name}" => '{value}'"#));
        let sql = format!("SELECT jobctl.enqueue('a'{})", arguments.collect::<String>());
        let refused = db.client().simple_query(&sql).unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("22023"), "{sql}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_replacement_without_a_time_is_due_now_and_tells_which_values_the_run_keeps() {
    let db = db_with_definitions();
    for (job, payload) in [("a", "[2]"), ("shell", r#"{"command": "true"}"#)] {
        let enqueue = |arguments: &[&str]| {
            let enqueue = db.jobctl(["enqueue", job, payload, "--key", job, "--key-scope", "live"]);
            enqueue.args(arguments.iter().copied()).run().success()
        };
        let first = enqueue(&["--in", "1h", "--max-attempts", "3", "--priority", "7"]);
        let id: i64 = first.stderr("").stdout.trim().parse().unwrap();
        let keeps = |words: &str| {
            format!(
                "jobctl: run {id} was waiting, and keeps its {words}; `jobctl edit` changes them\n"
            )
        };
        // The flags, and which of their values the run keeps although it has another one.
        for (arguments, words) in [
            (&["--priority", "9"][..], "priority"),
            (&["--priority", "9", "--max-attempts", "2"], "priority and max_attempts"),
            (&["--timeout", "5s", "--backoff", "fixed:1s"], "timeout and backoff"),
            (&["--priority", "7", "--backoff", "exponential:1m..30m"], ""),
            (&[], ""),
        ] {
            db.execute("UPDATE jobctl.job_runs SET run_at = now() + interval '1 hour'");
            let replace = [&["--on-conflict", "replace"][..], arguments].concat();
            let warning = if words.is_empty() { String::new() } else { keeps(words) };
            enqueue(&replace).stdout(&format!("{id}\n")).stderr(&warning);
            assert_eq!(db.of_run(id, "priority, max_attempts, run_at <= now()"), "7|3|t");
        }
    }
    let queue = ["--key", "shell", "--key-scope", "live", "--on-conflict", "replace"];
    let queue = db.jobctl(["enqueue", "--queue", "images"]).args(queue);
    let warned = queue.args(["shell", "--", "true"]).run().success();
    warned.stderr_has("and keeps its queue; `jobctl edit` changes them");
}
