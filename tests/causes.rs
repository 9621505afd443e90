//! Why a job failed, in everything that tells of it, and from which failure on.

use serde_json::{Value, json};

use crate::support::{Finished, Role, TestDb, temp_dir};

/// The command of the job that fails: its last line with text is the cause.
const FAILING_COMMAND: &str = "printf 'copying\\ndisk 7 of /srv/x is full\\n \\n'; exit 1";
const ERROR_WITH_LAST_LINE: &str = "exit status 1: disk 7 of /srv/x is full";

/// Returns a database with a job that prints why it fails, and its run that died.
fn db_with_dead_run() -> (TestDb, i64) {
    let db = TestDb::new();
    db.apply(&format!(
        "[jobs.backup]\nshell = \"\"\"{FAILING_COMMAND}\"\"\"\nmax_attempts = 1\n\
         on_dead = 'alert'\n\
         [jobs.alert]\nshell = 'cat'\n"
    ));
    let id = db.enqueue(["backup"]);
    let tick = db.jobctl(["tick", "--worker", "web1"]).run().success();
    tick.stderr_has(", dead: disk 7 of /srv/x is full\n");
    (db, id)
}

fn json_of(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn check_lists_and_hooks_show_the_last_line_that_a_dead_run_printed() {
    let (db, id) = db_with_dead_run();
    let shown = db.jobctl(["check"]).run().exits(1);
    shown.stdout_has(&format!("(the newest is run {id}: {ERROR_WITH_LAST_LINE})"));
    let shown = json_of(&db.jobctl(["check", "--json"]).run().exits(1));
    assert!(shown["findings"][0].to_string().contains(ERROR_WITH_LAST_LINE), "{shown}");
    // What `check --exec` sends.
    let dir = temp_dir();
    let file = dir.path().join("sent");
    let to_file = format!("cat >{}", file.display());
    let check = db.jobctl(["check", "--exec", &to_file]);
    check.env("XDG_STATE_HOME", dir.path().to_str().unwrap()).run();
    let sent = std::fs::read_to_string(&file).unwrap();
    assert!(sent.contains(ERROR_WITH_LAST_LINE), "{sent}");
    // The lists.
    db.jobctl(["status"]).run().success().stdout_has("disk 7 of /srv/x is full");
    for list in [&["list-dead"][..], &["list-dead", "--group"], &["list-dead", "--all"]] {
        let json = json_of(&db.jobctl([list, &["--json"]].concat()).run().success());
        assert_eq!(json[0]["last_line"], json!("disk 7 of /srv/x is full"), "{json}");
        let wide = db.jobctl(list.iter().copied()).env("COLUMNS", "200").run().success();
        wide.stdout_has("disk 7 of /srv/x is full");
    }
    let grouped = db.jobctl(["failures", "--group"]).env("COLUMNS", "200").run().success();
    grouped.stdout_has("disk 7 of /srv/x is full");
    // The payload of the hook `on_dead`.
    let hook = "SELECT payload FROM jobctl.job_runs WHERE job_type = 'alert'";
    let hook: Value = serde_json::from_str(&db.query(hook)).unwrap();
    assert_eq!(hook["last_line"], json!("disk 7 of /srv/x is full"), "{hook}");
    assert_eq!(hook["cause"], json!("disk # of # is full"), "{hook}");
    assert!(hook["text"].as_str().unwrap().ends_with(ERROR_WITH_LAST_LINE), "{hook}");
}

#[test]
fn a_viewer_and_a_page_show_the_cause_without_values() {
    let (db, _) = db_with_dead_run();
    let viewer = Role::granted(&db, "viewer");
    let cause = "exit status 1: disk # of # is full";
    viewer.jobctl(["check"]).run().exits(1).stdout_has(cause);
    viewer.jobctl(["status"]).run().success().stdout_has("disk # of # is full");
    let grouped = viewer.jobctl(["failures", "--group"]).env("COLUMNS", "200").run().success();
    grouped.stdout_has("disk # of # is full");
    let page = |flags: &[&str]| db.jobctl([&["report"], flags].concat()).run().success().stdout;
    let (plain, detailed) = (page(&[]), page(&["--with-output"]));
    assert!(plain.contains(cause) && !plain.contains("/srv/x"), "{plain}");
    assert!(detailed.contains(ERROR_WITH_LAST_LINE), "{detailed}");
}

/// Enqueues a run of a job that fails, and makes this many attempts. Returns the run.
fn enqueue_and_fail(db: &TestDb, job: &str, attempts: usize) -> i64 {
    let id = db.enqueue([job]);
    for _ in 0..attempts {
        db.make_waiting_runs_due();
        db.jobctl(["tick", "--worker", "web1"]).run().success();
    }
    id
}

const NO_FINDINGS: [Value; 0] = [];

/// Returns the `job_failing` findings of `check`.
fn findings_of_failing_jobs(db: &TestDb) -> Vec<Value> {
    let findings = json_of(&db.jobctl(["check", "--json"]).run())["findings"].take();
    let findings = findings.as_array().unwrap().iter();
    findings.filter(|it| it["code"] == "job_failing").cloned().collect()
}

#[test]
fn a_job_that_fails_three_times_in_a_row_is_reported_until_it_succeeds() {
    let db = TestDb::new();
    let dir = temp_dir();
    let flag = dir.path().join("works");
    db.apply(&format!(
        "[jobs.sync]\nshell = 'test -e {} || {{ echo no such host; exit 1; }}'\n\
         backoff = 'fixed:5m'\n",
        flag.display()
    ));
    let id = enqueue_and_fail(&db, "sync", 2);
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    let [found] = &findings_of_failing_jobs(&db)[..] else { panic!("one finding") };
    assert_eq!(found["job_type"], "sync");
    assert_eq!(found["found"], "sync fails: 3 failed attempts without a success");
    assert_eq!(
        found["example"],
        json!(format!("the newest is run {id}: exit status 1: no such host"))
    );
    // A time begins with its century.
    assert!(found["remedy"].as_str().unwrap().contains("its next attempt is due at 20"), "{found}");
    assert!(found["since_at"].is_string());
    let status = json_of(&db.jobctl(["status", "--json"]).run().success());
    assert_eq!(status["jobs"][0]["last_status"], "failed");
    // Another run of the job succeeds.
    std::fs::write(&flag, "").unwrap();
    db.enqueue(["sync"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
    // From here, failures count again.
    std::fs::remove_file(&flag).unwrap();
    enqueue_and_fail(&db, "sync", 1);
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
}

#[test]
fn a_success_that_another_worker_counted_ends_the_failures_before_it() {
    let db = TestDb::new();
    db.apply("[jobs.sync]\nshell = 'exit 1'\nbackoff = 'fixed:1h'\n");
    enqueue_and_fail(&db, "sync", 3);
    assert_eq!(findings_of_failing_jobs(&db).len(), 1);
    // The figures of a job may have several rows, because no worker waits for another's lock. This
    // row says that the job has succeeded now.
    db.execute(
        "INSERT INTO jobctl.job_figures (job_type, part, last_succeeded_at)
         VALUES ('sync', 0, now())",
    );
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
    // The next failure is the first one since this success.
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
    assert_eq!(db.query("SELECT max(failures_in_row) FROM jobctl.job_figures"), "1");
}

#[test]
fn a_definition_says_after_how_many_failures_it_is_reported() {
    let db = TestDb::new();
    db.apply(
        "[jobs.never]\nshell = 'exit 1'\nalert_after = 0\n\
         [jobs.first]\nshell = 'exit 1'\nalert_after = 1\n\
         [jobs.usual]\nshell = 'exit 1'\n",
    );
    for job in ["never", "first", "usual"] {
        enqueue_and_fail(&db, job, 1);
    }
    assert_eq!(
        findings_of_failing_jobs(&db).iter().map(|it| &it["job_type"]).collect::<Vec<_>>(),
        ["first"]
    );
}

/// Usually a job is reported after several failures, because the next attempt may succeed. A
/// missing program is still missing then.
#[test]
fn a_program_that_is_missing_is_reported_at_the_first_failure() {
    let db = TestDb::new();
    let dir = temp_dir();
    let [plain, gone] = ["plain", "gone"].map(|name| dir.path().join(name));
    std::fs::write(&plain, "x").unwrap();
    let plain = plain.display();
    db.apply(&format!(
        "[jobs.a_missing]\nshell = 'no_such_program'\n\
         [jobs.b_missing_argument]\nshell = ['/no/such/program']\n\
         [jobs.c_not_executable]\nshell = '{plain}'\n\
         [jobs.d_missing_cwd]\nshell = 'true'\ncwd = '{}'\n\
         [jobs.e_usual]\nshell = 'exit 1'\n\
         [jobs.f_never]\nshell = 'no_such_program'\nalert_after = 0\n",
        gone.display()
    ));
    let jobs = [
        "a_missing",
        "b_missing_argument",
        "c_not_executable",
        "d_missing_cwd",
        "e_usual",
        "f_never",
    ];
    for job in jobs {
        db.enqueue([job]);
    }
    db.jobctl(["tick"]).run().success();
    let mut found: Vec<_> =
        findings_of_failing_jobs(&db).iter().map(|it| it["job_type"].to_string()).collect();
    found.sort();
    // All but the usual failure, and the job whose failures are never reported.
    assert_eq!(found, jobs[..4].iter().map(|job| format!("\"{job}\"")).collect::<Vec<_>>());
}

#[test]
fn a_job_is_not_reported_as_failing_any_more_once_its_run_is_dead_or_cancelled() {
    let db = TestDb::new();
    db.apply("[jobs.sync]\nshell = 'exit 1'\nmax_attempts = 4\nbackoff = 'fixed:1h'\n");
    let first = enqueue_and_fail(&db, "sync", 3);
    assert_eq!(findings_of_failing_jobs(&db).len(), 1);
    db.jobctl(["cancel", &first.to_string()]).run().success();
    assert_eq!(findings_of_failing_jobs(&db), NO_FINDINGS);
    // The fourth attempt is the last one. Now `check` reports only the dead run.
    enqueue_and_fail(&db, "sync", 4);
    let shown = db.jobctl(["check"]).run().exits(1);
    assert_eq!(shown.stdout.lines().count(), 1, "{shown}");
    shown.stdout_has("1 dead run of sync");
}

/// Inserts a run of `long` that succeeded `ago` after as many seconds, and a figure of its day.
fn insert_success(db: &TestDb, ago: &str, seconds: u32) -> i64 {
    let id = db.query(&format!(
        "WITH run AS (
            INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at)
            VALUES ('long', 'succeeded', 1, now() - interval '{ago}', now() - interval '{ago}')
            RETURNING id
        ), attempt AS (
            INSERT INTO jobctl.job_attempts
                (run_id, attempt, worker, started_at, finished_at, outcome)
            SELECT id, 1, 'w', now() - interval '{ago}' - interval '{seconds} s',
                now() - interval '{ago}', 'succeeded'
            FROM run
        ), figure AS (
            INSERT INTO jobctl.job_figures
                (job_type, day, succeeded, run_time_seconds, last_succeeded_at)
            VALUES ('long', (now() - interval '{ago}')::date, 1, {seconds}, now())
        )
        SELECT id FROM run"
    ));
    id.parse().unwrap()
}

/// Returns the `run_unusual` findings of `status`, with their severity.
fn findings_of_unusual_runs(db: &TestDb) -> String {
    let findings = json_of(&db.jobctl(["status", "--json"]).run().success())["findings"].take();
    let findings = findings.as_array().unwrap().iter();
    let unusual = findings.filter(|it| it["code"] == "run_unusual");
    let text = |it: &Value, field: &str| it[field].as_str().unwrap().to_owned();
    let shown = unusual.map(|it| format!("{}: {}", text(it, "severity"), text(it, "found")));
    shown.collect::<Vec<_>>().join("\n")
}

/// Inserts a run of `long` that was started this long ago and still runs.
fn insert_running_since(db: &TestDb, ago: &str) -> i64 {
    db.allow_running_runs_at_end();
    let id = db.query(&format!(
        "INSERT INTO jobctl.job_runs
            (job_type, status, attempts, started_at, locked_by, locked_until)
        VALUES ('long', 'running', 1, now() - interval '{ago}', 'w', now() + interval '1 h')
        RETURNING id"
    ));
    id.parse().unwrap()
}

#[test]
fn a_run_that_takes_three_times_as_long_as_usual_is_a_warning() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'true'\n");
    for _ in 0..4 {
        insert_success(&db, "1 day", 300);
    }
    let run = insert_running_since(&db, "16 minutes");
    assert_eq!(findings_of_unusual_runs(&db), "", "four successes say too little");
    insert_success(&db, "1 hour", 300);
    let found = format!("run {run} of long is running for longer than usual; usually it takes 5m");
    assert_eq!(findings_of_unusual_runs(&db), format!("warn: {found}"));
    let check = db.jobctl(["check"]).run();
    assert!(!check.stdout.contains("usual"), "check reports no warning: {check}");
    // 14 minutes are less than three times the usual 5 minutes.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET started_at = now() - interval '14 m' WHERE id = {run}"
    ));
    assert_eq!(findings_of_unusual_runs(&db), "");
}

#[test]
fn a_run_of_less_than_a_minute_is_never_unusually_long() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'true'\n");
    for _ in 0..9 {
        insert_success(&db, "1 day", 2);
    }
    // Three times the usual run time would be 6 seconds.
    let run = insert_running_since(&db, "50 seconds");
    assert_eq!(findings_of_unusual_runs(&db), "");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET started_at = now() - interval '61 s' WHERE id = {run}"
    ));
    assert!(
        findings_of_unusual_runs(&db).contains("longer than usual; usually it takes 2s"),
        "{}",
        findings_of_unusual_runs(&db)
    );
}

#[test]
fn a_success_in_a_tenth_of_the_usual_time_is_a_warning_until_the_next_one() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'true'\n");
    for _ in 0..9 {
        insert_success(&db, "1 day", 300);
    }
    assert_eq!(findings_of_unusual_runs(&db), "");
    let short = insert_success(&db, "1 hour", 29);
    let found = format!("run {short} of long succeeded after 29s; usually it takes 5m");
    assert_eq!(findings_of_unusual_runs(&db), format!("warn: {found}"));
    insert_success(&db, "1 minute", 280);
    assert_eq!(findings_of_unusual_runs(&db), "");
}

#[test]
fn a_run_outside_of_the_usual_range_of_its_definition_is_a_problem() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'true'\nusual = '10m..20m'\n");
    let run = insert_running_since(&db, "21 minutes");
    let found = format!(
        "run {run} of long is running for longer than usual; its definition allows at most 20m"
    );
    assert_eq!(findings_of_unusual_runs(&db), format!("bad: {found}"));
    let shown = db.jobctl(["check"]).run().exits(1);
    shown.stdout_has(&format!("{found}, since "));
    // A run that ended before the least run time.
    db.execute("DELETE FROM jobctl.job_runs");
    let short = insert_success(&db, "1 hour", 500);
    assert_eq!(
        findings_of_unusual_runs(&db),
        format!(
            "bad: run {short} of long succeeded after 8m 20s; its definition allows at least 10m"
        )
    );
    // With `off`, no run time is unusual.
    db.apply("[jobs.long]\nshell = 'true'\nusual = 'off'\n");
    insert_running_since(&db, "2 days");
    assert_eq!(findings_of_unusual_runs(&db), "");
}

#[test]
fn a_job_that_reaches_its_timeout_within_a_week_is_a_warning() {
    let db = TestDb::new();
    db.apply("[jobs.long]\nshell = 'true'\ntimeout = '20m'\n");
    // In a week, the run time has grown by 7 minutes, from 8 to 15: another 5 take 5 days.
    insert_success(&db, "7 days", 480);
    insert_success(&db, "1 second", 900);
    assert_eq!(findings_of_unusual_runs(&db), "warn: long reaches its timeout in about 5 days");
    db.apply("[jobs.long]\nshell = 'true'\ntimeout = '30m'\n");
    assert_eq!(findings_of_unusual_runs(&db), "");
}

#[test]
fn apply_refuses_a_wrong_usual_run_time() {
    let db = TestDb::new();
    for wrong in ["10", "10m", "2h..10m", "0s..10m", "10m..", "1.5h..2h", "OFF", "5m ..6m"] {
        let file = format!("[jobs.a]\nshell = 'true'\nusual = '{wrong}'\n");
        let folder = temp_dir();
        std::fs::write(folder.path().join("jobs.toml"), file).unwrap();
        let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run();
        refused.exits(2).stderr_has("must be off, or the least and the most run time");
    }
}

/// Returns the alerts in the trail: job, detail and reason.
fn recorded_alerts(db: &TestDb) -> Vec<[String; 3]> {
    let shown = json_of(&db.jobctl(["trail", "--action", "alert", "--json"]).run().success());
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or("none").to_owned();
    let rows = shown.as_array().unwrap().iter();
    rows.map(|it| ["job_type", "detail", "reason"].map(|field| text(it, field))).collect()
}

#[test]
fn each_alert_of_a_check_is_recorded_with_its_receiver() {
    let (db, id) = db_with_dead_run();
    let home = temp_dir();
    let check = |db: &TestDb, command: &str| {
        let check = db.jobctl(["check", "--repeat", "1h", "--resolved", "--exec", command]);
        check.env("XDG_STATE_HOME", home.path().to_str().unwrap()).run();
    };
    // A command line may hold a secret, so only its first word is recorded.
    check(&db, "exit 9 # s3cret");
    let line = "new: 1 dead run of backup, since ";
    let [failed] = &recorded_alerts(&db)[..] else { panic!("{:?}", recorded_alerts(&db)) };
    assert!(failed[0] == "backup" && failed[1].starts_with(line), "{failed:?}");
    assert_eq!(
        failed[2],
        "not delivered: cannot report the problems to the command exit: exit status 9"
    );
    // It was not delivered, so it is reported again. The newest alert comes first.
    check(&db, "cat");
    let [delivered, _] = &recorded_alerts(&db)[..] else { panic!("{:?}", recorded_alerts(&db)) };
    assert!(delivered[1].starts_with(line), "{delivered:?}");
    assert_eq!(delivered[2], "delivered to the command cat");
    // A known problem is reported once.
    check(&db, "cat");
    assert_eq!(recorded_alerts(&db).len(), 2);
    db.jobctl(["settle", &id.to_string()]).run().success();
    check(&db, "cat");
    let [over, ..] = &recorded_alerts(&db)[..] else { panic!("{:?}", recorded_alerts(&db)) };
    assert!(over[1].starts_with("resolved: 1 dead run of backup"), "{over:?}");
    // The trail has what people changed, so without --action it has no alerts.
    let trail = json_of(&db.jobctl(["trail", "--json"]).run().success());
    assert_eq!(trail[0]["action"], "settle", "{trail}");
}

#[test]
fn a_viewers_alert_is_recorded_and_it_can_write_no_other_event() {
    let (db, _) = db_with_dead_run();
    let viewer = Role::granted(&db, "viewer");
    let home = temp_dir();
    let check = viewer.jobctl(["check", "--webhook", "http://127.0.0.1:9/hook?token=s3cret"]);
    check.env("XDG_STATE_HOME", home.path().to_str().unwrap()).run().exits(1);
    let [alert] = &recorded_alerts(&db)[..] else { panic!("{:?}", recorded_alerts(&db)) };
    let undelivered = "not delivered: cannot report the problems to the webhook of 127.0.0.1: ";
    assert!(alert[2].starts_with(undelivered), "{alert:?}");
    assert!(!alert[2].contains("s3cret"), "{alert:?}");
    let by = db.query("SELECT recorded_by FROM jobctl.job_events WHERE action = 'alert'");
    assert_eq!(by, viewer.name());
}
