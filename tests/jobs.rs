//! `jobs` and `jobs NAME`: the definitions, their state, and the user that changed it.

use serde_json::{Value, json};

use crate::support::{Role, TestDb};

const JOBS: &str = "\
[jobs.backup]
shell = ['pg_dump', 'app']
env = { PGPASSWORD = 's3cret' }
schedule = '30 2 * * *'
time_zone = 'Europe/Berlin'
timeout = '90m'

[jobs.report]
http = { url = 'http://app.example/report?token=s3cret', headers = { authorization = 's3cret' } }
";

/// Returns what a command prints as JSON. Asserts that no secret is printed.
fn json_without_secrets(db: &TestDb, words: &[&str]) -> Value {
    let printed = db.jobctl(words.iter().copied()).args(["--json"]).run().success();
    serde_json::from_str(&printed.prints_nowhere("s3cret").stdout).unwrap()
}

#[test]
fn jobs_lists_what_definitions_run_and_why_they_do_not_fire() {
    let db = TestDb::new();
    db.jobctl(["jobs"]).run().success().stdout("");
    db.apply(JOBS);
    // The job `backup` is the first one, and `report` the second one.
    let jobs = json_without_secrets(&db, &["jobs"]);
    assert_eq!(jobs[0]["executes"], "pg_dump app");
    assert_eq!(jobs[0]["timeout_seconds"], json!(5400.0));
    assert_eq!(jobs[0]["state"], "fires");
    assert_eq!(jobs[0]["changed_by"], Value::Null);
    assert!(jobs[0]["next_run_at"].is_string());
    assert_eq!(jobs[1]["executes"], "http://app.example/report?[redacted]");
    assert_eq!(jobs[1]["state"], Value::Null);
    assert_eq!(jobs[1]["timeout_seconds"], json!(30.0));
    // A schedule that can't be read never fires. Three commands say so.
    db.execute("UPDATE jobctl.job_definitions SET schedule = '61 * * * *' WHERE name = 'backup'");
    let shown = [
        json_without_secrets(&db, &["jobs"])[0].take(),
        json_without_secrets(&db, &["jobs", "backup"]),
        json_without_secrets(&db, &["status"])["jobs"][0].take(),
    ];
    for job in shown {
        assert_eq!(job["state"], "broken");
        assert_eq!(job["next_run_at"], Value::Null);
    }
    // A paused schedule names the person and the reason.
    db.apply(JOBS);
    let pause = db.jobctl(["pause", "backup", "--reason", "disk"]).env("SUDO_USER", "ana");
    pause.run().success();
    let jobs = json_without_secrets(&db, &["jobs"]);
    assert_eq!(jobs[0]["state"], "paused");
    assert_eq!(jobs[0]["reason"], "disk");
    assert!(jobs[0]["changed_by"].as_str().unwrap().starts_with("ana@"), "{jobs}");
    assert!(jobs[0]["since_at"].is_string() && jobs[0]["next_run_at"].is_null(), "{jobs}");
    // A disabled definition names the user of `apply`.
    db.apply(&JOBS.replace("timeout = '90m'", "enabled = false"));
    let jobs = json_without_secrets(&db, &["jobs"]);
    assert_eq!(jobs[0]["state"], "disabled");
    assert_eq!(jobs[0]["reason"], Value::Null);
    assert!(jobs[0]["changed_by"].is_string() && jobs[0]["since_at"].is_string(), "{jobs}");
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["jobs", "--format", "table"]).run().success().stdout_has("disabled");
}

#[test]
fn job_shows_a_definition_in_the_words_of_the_file() {
    let db = TestDb::new();
    db.apply(JOBS);
    db.jobctl(["jobs", "bakcup"]).run().exits(3).stdout("").stderr_has("did you mean `backup`?");
    let run = db.enqueue(["report", "--in", "1h"]);
    let job = json_without_secrets(&db, &["jobs", "backup"]);
    assert_eq!(
        job["keys"],
        json!({
            "shell": ["pg_dump", "app"], "env": {"PGPASSWORD": "[redacted]"},
            "schedule": "30 2 * * *", "time_zone": "Europe/Berlin", "catch_up": "one",
            "overlap": "skip", "max_attempts": 10, "timeout": "1h 30m",
            "backoff": "exponential:1m..30m", "priority": 0, "queue": "default",
            "enqueue_may_set": [], "enabled": true,
        })
    );
    // Each night at 2:30 in Berlin, in summer and in winter.
    let times = job["next_times"].as_array().unwrap();
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| time.as_str().unwrap().contains("T02:30:00+0")), "{times:?}");
    assert_eq!(job["last_runs"], json!([]));
    assert_eq!(job["events"][0]["action"], "add");
    let job = json_without_secrets(&db, &["jobs", "report"]);
    assert_eq!(job["last_runs"][0]["id"], run);
    assert_eq!(job["next_times"], json!([]));
}

#[test]
fn job_shows_an_operator_no_secret() {
    let db = TestDb::new();
    db.apply(JOBS);
    db.enqueue(["report", "--in", "1h"]);
    let operator = Role::granted(&db, "operator");
    let shown = operator.jobctl(["jobs", "report", "--format", "table"]).run().success();
    let shown =
        shown.prints_nowhere("s3cret").stdout_has("\nLast runs\n\n").stdout_has("\nTrail\n\n");
    shown.stdout_has(
        "{ headers = { authorization = \"[redacted]\" }, \
         url = \"http://app.example/report?[redacted]\" }",
    );
}

#[test]
fn what_job_prints_can_be_applied() {
    let db = TestDb::new();
    db.apply(JOBS);
    let shown = db.jobctl(["jobs", "backup", "--format", "table"]).run().success().stdout;
    // The lines from the key `shell` to the next blank line are the keys of the definition.
    let keys = shown.lines().skip_while(|line| !line.starts_with("shell:"));
    let keys = keys.take_while(|line| !line.is_empty()).map(|line| {
        let (key, value) = line.split_once(':').unwrap();
        format!("{key} = {}\n", value.trim())
    });
    let file = format!("[jobs.backup]\n{}", keys.collect::<String>());
    // Only the redacted variable differs.
    let changes = db.apply(&file);
    assert!(changes.starts_with("change\tbackup\tenv\t"), "{changes}");
    assert_eq!(changes.lines().count(), 2, "the other definition is disabled: {changes}");
}

#[test]
fn jobs_lists_other_definitions_although_one_is_unreadable() {
    // JSON that the program can't read as a payload, and a number instead of a command.
    for change in ["payload = '[1e999]'", "action = '7'"] {
        let db = TestDb::new();
        db.apply(JOBS);
        db.execute(&format!("UPDATE jobctl.job_definitions SET {change} WHERE name = 'backup'"));
        db.jobctl(["jobs"]).run().success().stdout_has("report\thttp://app.example/report?");
        db.jobctl(["jobs", "backup"]).run().success();
        // `apply` repairs the definition.
        db.apply(JOBS);
    }
}
