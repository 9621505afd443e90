//! `--on-conflict` and `--debounce`: what an enqueue does when its key has a run.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Gate, Running, TestDb, wait_until};

/// A live key: only one waiting or running run can have it.
const KEY: [&str; 4] = ["--key", "k", "--key-scope", "live"];
/// The same, as the fields of a batch's line.
const LIVE_KEY: &str = r#""idempotency_key": "k", "key_scope": "live""#;
const REPLACE: [&str; 2] = ["--on-conflict", "replace"];

/// Returns a database with the jobs `a` and `b`, which print their payloads.
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

fn enqueued(id: i64) -> String {
    format!("{{\"id\":{id},\"result\":\"enqueued\"}}")
}

fn replaced(id: i64) -> String {
    format!("{{\"id\":{id},\"result\":\"replaced\"}}")
}

/// An enqueue with the live key found this run, and changed nothing.
fn existing(id: i64) -> String {
    format!("{{\"id\":{id},\"result\":\"existing\",\"status\":\"queued\"}}")
}

/// Returns the run's id in the answer to an enqueue.
fn id_of(answer: &str) -> i64 {
    serde_json::from_str::<serde_json::Value>(answer).unwrap()["id"].as_i64().unwrap()
}

/// Enqueues a run of job `a` with the live key and the payload `[1]`, and returns its id.
#[track_caller]
fn enqueue_first(db: &TestDb) -> i64 {
    id_of(&answer_to_enqueue(db, &["a", "[1]"]))
}

/// Makes all runs running on another worker, with a lease of an hour.
fn make_runs_running(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour', started_at = now()",
    );
}

#[test]
fn a_waiting_run_gets_the_new_payload_and_time() {
    let db = db_with_definitions();
    let shell = |word| format!(r#"{{"command": ["echo", "{word}"]}}"#);
    let [old, new] = [shell("old"), shell("new")];
    // A defined job and a built-in one, with an old and a new payload. Each enqueue has the same
    // live key.
    for (job, old, new) in [("a", "\"old\"", "\"new\""), ("shell", &*old, &*new)] {
        let of_waiting_run = |expression: &str| {
            db.query(&format!("SELECT {expression} FROM jobctl.job_runs WHERE status = 'queued'"))
        };
        let is_new_and_due = "payload::text LIKE '%new%', run_at <= now(), priority";
        answer_to_enqueue(&db, &[job, old, "--in", "1h", "--priority", "7"]);
        let id = of_waiting_run("id");
        for arguments in
            [&[job, new, "--on-conflict", "replace"][..], &[job, new, "--debounce", "0s"]]
        {
            assert_eq!(answer_to_enqueue(&db, arguments), replaced(id.parse().unwrap()));
            assert_eq!(of_waiting_run(is_new_and_due), "t|t|7");
            // Put the old payload and time back.
            answer_to_enqueue(&db, &[job, old, "--on-conflict", "replace", "--in", "1h"]);
            assert_eq!(of_waiting_run(is_new_and_due), "f|f|7");
        }
        // Two lines of a batch replace the same run. The debounce of the second delays the run.
        let line = format!(r#"{{"job_type": "{job}", "payload": {new}, {LIVE_KEY}, "#);
        let lines = [r#""on_conflict": "replace"}"#, r#""debounce": "1m", "debounce_max": "2m"}"#];
        let lines = lines.map(|rest| format!("{line}{rest}")).join("\n");
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
        batch.stdout(&format!("{id}\n{id}\n"));
        assert_eq!(of_waiting_run("payload::text LIKE '%new%', run_at > now()"), "t|t");
        // The next job uses the same key.
        db.jobctl(["cancel", &id]).run().success();
    }
}

/// A new column of runs must be added to one of the lists: a replaced run gets the value of the new
/// enqueue, or keeps its own.
#[test]
fn each_column_of_a_replaced_run_is_replaced_or_kept() {
    let db = db_with_definitions();
    let read_run = || {
        let row = db.query("SELECT to_jsonb(run) FROM jobctl.job_runs AS run");
        serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&row).unwrap()
    };
    // Each argument depends on the text or the number, so two enqueues differ in all of them.
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
    let id = enqueue("old", 2);
    // An enqueue writes these columns without an argument. Other values here show that it did.
    db.execute(
        "UPDATE jobctl.job_runs
         SET enqueued_by = 'other', updated_at = created_at - interval '1 s'",
    );
    let before = read_run();
    assert_eq!(enqueue("newer", 3), id);
    // A column with another value was replaced.
    let (kept, replaced): (Vec<_>, Vec<_>) =
        read_run().into_iter().partition(|(name, value)| *value == before[name]);
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
        // The last line wins.
        let payload = db.of_run(ids[0].parse().unwrap(), "payload -> 'command' ->> 1");
        assert_eq!(payload, "three");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

#[test]
fn a_debounced_run_starts_at_most_debounce_max_after_its_creation() {
    let db = db_with_definitions();
    let debounce = ["a", "--debounce", "10m", "--debounce-max", "1h"];
    let id = id_of(&answer_to_enqueue(&db, &debounce));
    assert_eq!(db.of_run(id, "run_at - created_at"), "00:10:00");
    // The run's age at the next enqueue, and its start after its creation: ten minutes after the
    // enqueue, but at most after an hour. An older run is due now.
    for (age, start) in
        [("30 minutes", "00:40:00"), ("55 minutes", "01:00:00"), ("2 hours", "02:00:00")]
    {
        db.execute(&format!("UPDATE jobctl.job_runs SET created_at = now() - interval '{age}'"));
        assert_eq!(answer_to_enqueue(&db, &debounce), replaced(id));
        // The enqueue came a moment after `created_at` was changed.
        let rounded = "date_trunc('minute', run_at - created_at + interval '1 second')";
        assert_eq!(db.of_run(id, rounded), start, "{age}");
    }
    // A run that is already due keeps its time, and so its place among the due runs.
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '30 minutes'");
    let sql = "SELECT jobctl.enqueue('a', '[2]', key => 'k', key_scope => 'live', \
               debounce => '10 minutes', debounce_max => '1 hour')";
    assert_eq!(db.query(sql), id.to_string());
    let payload_and_lag = "payload, date_trunc('minute', now() - run_at)";
    assert_eq!(db.of_run(id, payload_and_lag), "[2]|00:30:00");
}

#[test]
fn a_replaced_run_that_failed_keeps_its_backoff_and_attempts() {
    let db = db_with_definitions();
    db.apply("[jobs.a]\nshell = 'false'\nbackoff = 'fixed:1h'\n");
    let id = id_of(&answer_to_enqueue(&db, &["a"]));
    db.jobctl(["tick"]).run().success();
    assert_eq!(answer_to_enqueue(&db, &["a", "[2]", "--debounce", "1s"]), replaced(id));
    let columns = "status, attempts, payload, run_at > now() + interval '30 minutes'";
    assert_eq!(db.of_run(id, columns), "failed|1|[2]|t");
}

/// A job whose first run is running, and whose second run has taken over the key of the first.
struct ReplacedWhileRunning<'db> {
    db: &'db TestDb,
    gate: Gate,
    first: i64,
    second: i64,
    tick: Running<'db>,
}

impl<'db> ReplacedWhileRunning<'db> {
    /// Starts a run with payload `[1]`, and replaces it by `[2]`. `limit` is a line of the job's
    /// definition. Each run waits at the gate and then fails.
    #[track_caller]
    fn start(db: &'db TestDb, limit: &str) -> Self {
        let gate = Gate::new();
        let script = crate::support::json_string(&format!("{}\nexit 1", gate.script()));
        db.apply(&format!("[jobs.a]\nshell = {script}\n{limit}\n"));
        let first = enqueue_first(db);
        let tick = db.jobctl(["tick", "--limit", "1"]).spawn();
        gate.wait_for_starts(1);
        let answer = answer_to_enqueue(db, &["a", "[2]", "--on-conflict", "replace"]);
        let second = id_of(&answer);
        assert_eq!(answer, enqueued(second));
        assert_ne!(second, first);
        Self { db, gate, first, second, tick }
    }

    /// Asserts that the second run waits for the end of the first, although a third run starts.
    #[track_caller]
    fn assert_second_waits_and_a_run_without_key_starts(&self) {
        let third = self.db.enqueue(["a", "[0]"]);
        let other = self.db.jobctl(["tick", "--limit", "1", "--worker", "other"]).spawn();
        self.gate.wait_for_starts(2);
        let statuses = [self.first, self.second, third].map(|id| self.db.status(id));
        assert_eq!(statuses, ["running", "queued", "running"]);
        // A tick would start no run now.
        self.db.jobctl(["tick", "--dry-run"]).run().success().stdout("");
        self.gate.open();
        other.wait().success();
    }
}

#[test]
fn a_running_run_is_left_alone_and_a_new_one_waits() {
    let db = TestDb::new();
    let runs = ReplacedWhileRunning::start(&db, "");
    let (first, second) = (runs.first, runs.second);
    assert_eq!(db.of_run(first, "status, payload, key_scope"), "running|[1]|replaced");
    assert_eq!(db.of_run(second, "status, payload"), "queued|[2]");
    let shown = db.jobctl(["show", &second.to_string()]).run().success().stdout;
    let reason = format!("run {first} has the same key, and is still running");
    assert!(shown.contains(&reason), "{shown}");
    runs.assert_second_waits_and_a_run_without_key_starts();
    // The replaced run failed. It is not tried again, because the new run has the newer payload.
    runs.tick.wait().success();
    assert_eq!(db.of_run(first, "status, error_type, attempts"), "cancelled|exit_code|1");
    assert_eq!(db.status(second), "queued");
}

#[test]
fn later_enqueues_with_the_key_of_a_replaced_run_find_the_new_run() {
    let db = TestDb::new();
    let runs = ReplacedWhileRunning::start(&db, "");
    let second = runs.second;
    let answer = answer_to_enqueue(&db, &["a", "[3]", "--on-conflict", "replace"]);
    assert_eq!(answer, replaced(second));
    assert_eq!(db.of_run(second, "status, payload"), "queued|[3]");
    // Without `--on-conflict`, the same payload finds the run, and another one is a conflict.
    assert_eq!(answer_to_enqueue(&db, &["a", "[3]"]), existing(second));
    db.jobctl(["enqueue", "a", "[4]"]).args(KEY).run().exits(4);
    assert_eq!(db.of_run(runs.first, "status, payload"), "running|[1]");
    runs.gate.open();
    runs.tick.wait().success();
}

#[test]
fn the_new_run_takes_no_slot_of_max_running_while_it_waits() {
    let db = TestDb::new();
    // Only two runs may run: the first run and the run without the key.
    let runs = ReplacedWhileRunning::start(&db, "max_running = 2");
    runs.assert_second_waits_and_a_run_without_key_starts();
    runs.tick.wait().success();
    assert_eq!(db.status(runs.second), "queued");
}

#[test]
fn a_lost_run_whose_key_was_taken_is_not_tried_again() {
    let db = db_with_definitions();
    let lost = enqueue_first(&db);
    make_runs_running(&db);
    let newer = id_of(&answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace"]));
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(lost, "status, error_type"), "cancelled|lease_expired");
    assert_eq!(db.status(newer), "succeeded");
}

#[test]
fn a_replaced_run_is_not_retried_beside_the_newer_one() {
    let db = db_with_definitions();
    let old = enqueue_first(&db);
    make_runs_running(&db);
    // The old run is running, so a new run takes its key.
    let answer = answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace", "--in", "1h"]);
    let new = id_of(&answer);
    let (old_id, new_id) = (old.to_string(), new.to_string());
    let retry = |arguments: &[&str]| db.jobctl(["retry"]).args(arguments.iter().copied()).run();
    let show_old = || db.jobctl(["show", &old_id]).run().success();
    let why =
        format!("jobctl: cannot retry run {old}: run {new} replaced it; cancel that run first\n");
    retry(&[&old_id, "--force"]).exits(4).stdout("").stderr(&why);

    // The worker of the old run is lost. The run ends as cancelled, and is not tried again.
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    show_old().stdout_has(&format!("run {new} replaced it, so it is not tried"));
    retry(&[&old_id]).exits(4).stdout("").stderr(&why);
    retry(&["--all-cancelled", "--yes"]).success().stdout("");

    // Once the new run has ended, the old one could be retried.
    db.jobctl(["cancel", &new_id]).run().success();
    show_old().stdout_has("a newer run replaced it");
    retry(&["--all-cancelled", "--dry-run"]).success().stdout("queued\t1\n");

    // Of two runs that had the key, only the newest gets it back.
    retry(&[&old_id, &new_id]).exits(4).stdout(&format!("{new}\tqueued\n")).stderr(&why);
    db.jobctl(["cancel", &new_id]).run().success();

    // Alone, the old run gets the key back.
    retry(&[&old_id]).success();
    assert_eq!(db.of_run(old, "status, key_scope"), "queued|live");
    assert_eq!(answer_to_enqueue(&db, &["a", "[1]"]), existing(old));
}

#[test]
fn a_replacement_waits_for_a_claim_of_its_run() {
    // A defined job and a built-in one.
    for job in [&["a", "[1]"][..], &["shell", "{\"command\": \"true\"}"]] {
        let db = db_with_definitions();
        let first = id_of(&answer_to_enqueue(&db, job));
        let wait_for_blocked_sessions = |number: usize| {
            wait_until("sessions to wait", || db.sessions_waiting_for_locks() == number);
        };
        let blocked = db.block_claims();
        let tick = db.jobctl(["tick", "--limit", "1"]).spawn();
        wait_for_blocked_sessions(1);
        // The replacement waits for the claim.
        let enqueue = db.jobctl(["enqueue", "--json"]).args(KEY).args(job.iter().copied());
        let enqueue = enqueue.args(REPLACE).args(["--in", "1h"]).spawn();
        wait_for_blocked_sessions(2);
        drop(blocked);
        // The claim was first: its run keeps its payload, and a new run waits.
        let answer = enqueue.wait().success().stdout;
        tick.wait().success();
        let second = id_of(&answer);
        assert_eq!(answer.trim_end(), enqueued(second), "{job:?}");
        assert_ne!(second, first, "{job:?}");
        assert_eq!([first, second].map(|id| db.status(id)), ["succeeded", "queued"], "{job:?}");
    }
}

#[test]
fn a_claim_skips_a_run_that_is_being_replaced() {
    let db = db_with_definitions();
    let id = enqueue_first(&db);
    // An application has replaced the run, and has not committed yet.
    let mut application = db.client();
    let replace = "BEGIN; SELECT jobctl.enqueue('a', '[2]', key => 'k', key_scope => 'live', \
                   on_conflict => 'replace')";
    application.batch_execute(replace).unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, payload"), "queued|[1]");
    application.batch_execute("COMMIT").unwrap();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(id, 1, "output"), "[2]");
}

#[test]
fn the_latest_payload_runs_among_concurrent_claims_and_replacements() {
    let db = db_with_definitions();
    let rounds = 12;
    for round in 1..=rounds {
        // Two enqueues replace the waiting run while the tick may claim it.
        let tick = db.jobctl(["tick"]).spawn();
        let payload = round.to_string();
        db.enqueue(["a", "0"].into_iter().chain(KEY).chain(REPLACE));
        db.enqueue(["a", &payload].into_iter().chain(KEY).chain(REPLACE));
        tick.wait().success();
    }
    db.jobctl(["tick"]).run().success();
    // The job prints the payload with which its run started. Each run still has that payload, so
    // none was replaced after its claim.
    let all = "SELECT count(*) = count(*) FILTER (WHERE run.status = 'succeeded' AND \
               attempt.output = run.payload::text) FROM jobctl.job_runs AS run JOIN \
               jobctl.job_attempts AS attempt ON attempt.run_id = run.id";
    assert_eq!(db.query(all), "t");
    // The run that started last has the payload of the last round.
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
        // The same as a line of a batch.
        let line = json!({
            "job_type": job[0], "payload": {"command": "true"}, "idempotency_key": job[0],
            "on_conflict": "error",
        });
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.to_string()).run();
        let why = format!("key `{}` belongs to run {id}, and `on_conflict` is error\n", job[0]);
        refused.exits(4).stderr_has(&why);
    }
    // The same in SQL: the key `a` belongs to the first of these runs.
    let sql = "SELECT jobctl.enqueue('b', key => 'a', on_conflict => 'error')";
    let refused = db.client().simple_query(sql).unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "JC009");
    assert_eq!(refused.detail(), Some("a"));
}

#[test]
fn an_error_calls_a_flag_by_its_name_and_a_field_by_its_own() {
    let db = TestDb::new();
    // Flags, the same values as fields of a batch's line, and the error about the flags and fields.
    for (flags, fields, error_about_flags, error_about_fields) in [
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
        refused.stderr(&format!("jobctl: {error_about_flags}\n"));
        let line = format!(r#"{{"job_type": "a", {fields}}}"#);
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2);
        refused.stderr(&format!("jobctl: cannot enqueue: batch line 1: {error_about_fields}\n"));
    }
}

#[test]
fn a_run_of_another_job_is_not_replaced() {
    let db = db_with_definitions();
    let id = enqueue_first(&db);
    let why = format!("key `k` belongs to run {id} with another job or payload");
    for job in [&["b", "[2]"][..], &["shell", "{\"command\": \"true\"}"]] {
        let enqueue = db.jobctl(["enqueue"]).args(job.iter().copied()).args(KEY).args(REPLACE);
        enqueue.run().exits(4).stderr_has(&why);
    }
    assert_eq!(db.of_run(id, "job_type, payload, key_scope"), "a|[1]|live");
}

#[test]
fn a_full_definition_still_replaces_its_waiting_run() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'cat'\nmax_waiting = 1\n");
    let id = enqueue_first(&db);
    let answer = answer_to_enqueue(&db, &["a", "[2]", "--on-conflict", "replace"]);
    assert_eq!(answer, replaced(id));

    // A running run is not replaced, so the enqueue needs room for a new run. There is no room,
    // because a run without the key waits. The enqueue fails, and the running run keeps its key.
    make_runs_running(&db);
    db.enqueue(["a"]);
    db.jobctl(["enqueue", "a", "[3]"]).args(KEY).args(REPLACE).run().exits(9);
    assert_eq!(db.of_run(id, "key_scope"), "live");
}

#[test]
fn rules_that_make_no_sense_are_rejected() {
    let db = db_with_definitions();
    let live = [("key", "k"), ("key_scope", "live")];
    let only_key = &live[..1];
    let no_key = &live[..0];
    // The key, and the rules for it. Each is tried as flags, as fields and as arguments.
    for (key, rest) in [
        (only_key, &[("on_conflict", "replace")][..]),
        (only_key, &[("debounce", "1s")]),
        (no_key, &[("debounce", "1s")]),
        (no_key, &[("on_conflict", "error")]),
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
        let warning_about = |values: &str| {
            format!(
                "jobctl: run {id} was waiting, and keeps its {values}; `jobctl edit` changes them\n"
            )
        };
        // The flags, and those of their values that the run does not take.
        for (arguments, kept) in [
            (&["--priority", "9"][..], "priority"),
            (&["--priority", "9", "--max-attempts", "2"], "priority and max_attempts"),
            (&["--timeout", "5s", "--backoff", "fixed:1s"], "timeout and backoff"),
            (&["--priority", "7", "--backoff", "exponential:1m..30m"], ""),
            (&[], ""),
        ] {
            db.execute("UPDATE jobctl.job_runs SET run_at = now() + interval '1 hour'");
            let replace = [&["--on-conflict", "replace"][..], arguments].concat();
            let warning = if kept.is_empty() { String::new() } else { warning_about(kept) };
            enqueue(&replace).stdout(&format!("{id}\n")).stderr(&warning);
            assert_eq!(db.of_run(id, "priority, max_attempts, run_at <= now()"), "7|3|t");
        }
    }
    // The run keeps its queue, too.
    let replace = ["--key", "shell", "--key-scope", "live", "--on-conflict", "replace"];
    let enqueue = db.jobctl(["enqueue", "--queue", "images"]).args(replace);
    let warned = enqueue.args(["shell", "--", "true"]).run().success();
    warned.stderr_has("and keeps its queue; `jobctl edit` changes them");
}
