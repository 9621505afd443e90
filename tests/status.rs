//! The output of `status` in each format.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::support::{Finished, TestDb, leave_out, packages, wait_until, without_seconds};

/// Inserts a run with one attempt, and returns its id. `columns` and `values` begin with a comma.
fn insert_run(db: &TestDb, job: &str, status: &str, columns: &str, values: &str) -> i64 {
    let sql = format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts {columns}) VALUES ('{job}', \
         '{status}', 1 {values})
         RETURNING id"
    );
    db.query(&sql).parse().unwrap()
}

/// Inserts a queued or failed run that is due this many seconds from now.
fn insert_waiting(db: &TestDb, job: &str, status: &str, seconds: i32) -> i64 {
    insert_run(db, job, status, ", run_at", &format!(", now() + interval '{seconds} seconds'"))
}

/// Inserts a run that has been running for this many seconds.
pub(crate) fn insert_running(db: &TestDb, job: &str, seconds: i32) -> i64 {
    db.allow_running_runs_at_end();
    let values =
        format!(", 'web1', now() + interval '1 minute', now() - interval '{seconds} seconds'");
    insert_run(db, job, "running", ", locked_by, locked_until, started_at", &values)
}

/// Inserts a run that ended this many hours ago. If it succeeded, its attempt lasted this many
/// seconds.
pub(crate) fn insert_ended(db: &TestDb, job: &str, status: &str, hours: i32, seconds: i32) -> i64 {
    // The run ends a minute after its attempt, because run times are those of attempts.
    let end = format!("now() - interval '{hours} hours'");
    let start = format!("{end} - interval '{seconds} seconds'");
    let id = insert_run(
        db,
        job,
        status,
        ", started_at, finished_at",
        &format!(", {start} - interval '1 minute', {end}"),
    );
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts
             (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT {id}, 1, 'web1', {start} - interval '1 minute', {end} - interval '1 minute',
             'succeeded'
         WHERE '{status}' = 'succeeded'"
    ));
    id
}

/// Inserts a worker that has ticked for 90 days, the last time this many seconds ago.
fn insert_worker(db: &TestDb, worker: &str, seconds: i32) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         VALUES ('{worker}', '0.1.0', now() - interval '{seconds} seconds', now() - interval '90 \
         days')"
    ));
}

const DEFINITIONS: &str = "
    [jobs.backup]\nshell = 'true'\nschedule = '0 3 * * *'\n
    [jobs.mail]\nshell = 'true'\n
    [jobs.report]\nshell = 'true'\nschedule = '0 4 * * *'\n";

/// Returns a database with jobs, schedules, workers, and runs in most statuses. The runs have the
/// ids 1 to 11 in this order.
fn sample_db() -> TestDb {
    let db = TestDb::new();
    db.apply(DEFINITIONS);
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = '2126-01-05 03:00+00' WHERE name \
        = 'backup'",
    );
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() WHERE name = 'report'");
    insert_waiting(&db, "mail", "queued", 3600);
    insert_waiting(&db, "mail", "queued", -60);
    insert_waiting(&db, "mail", "queued", -90);
    insert_waiting(&db, "mail", "failed", 3600);
    insert_waiting(&db, "mail", "failed", -7500);
    insert_running(&db, "backup", 600);
    insert_ended(&db, "backup", "dead", 48, 5);
    insert_ended(&db, "backup", "succeeded", 1, 1200);
    insert_ended(&db, "mail", "cancelled", 1, 5);
    insert_ended(&db, "left", "succeeded", 25, 5);
    insert_ended(&db, "built-in", "succeeded", 23, 2);
    insert_worker(&db, "web2", 300);
    insert_worker(&db, "web1", 20);
    db
}

/// Returns the columns of the lines that start with this word, without the word.
fn lines<'a>(finished: &'a Finished, word: &str) -> Vec<Vec<&'a str>> {
    let lines = finished.stdout.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    // TSV has no trailing tabs.
    let padded = |mut line: Vec<&'a str>| {
        line.resize(line.len().max(14), "");
        line[1..].to_vec()
    };
    lines.filter(|line| line[0] == word).map(padded).collect()
}

#[track_caller]
fn assert_near(value: &str, expected: f64) {
    let value: f64 = value.parse().unwrap();
    assert!((expected..expected + 60.0).contains(&value), "{value} instead of {expected}");
}

/// Returns the output of this command on a terminal of so many columns.
pub(crate) fn on_terminal(db: &TestDb, columns: u16, command: &str) -> String {
    let folder = crate::support::temp_dir();
    let typescript = folder.path().join("typescript");
    let script = format!(
        "script -qec \"stty cols {columns}; '$jobctl' {command}\" \"$typescript\" \
         </dev/null >/dev/null"
    );
    db.script(&script)
        .env("typescript", typescript.to_str().unwrap())
        .env("TERM", "dumb")
        .run()
        .success();
    let shown = std::fs::read_to_string(typescript).unwrap();
    let lines = shown.lines().filter(|line| !line.starts_with("Script "));
    lines.map(|line| line.trim_end().to_owned() + "\n").collect::<String>().trim_end().to_owned()
        + "\n"
}

#[test]
fn an_empty_database_has_an_empty_status() {
    let db = TestDb::new();
    // TSV.
    let finished = db.jobctl(["status"]).run().success().stderr("");
    assert_eq!(finished.stdout.lines().count(), 1, "{finished}");
    assert_eq!(lines(&finished, "finding")[0][2], "no worker has ever ticked");

    // Metrics of Prometheus.
    let samples = parse(&db.jobctl(["status", "--prometheus"]).run().success().stdout);
    let names: HashSet<_> = samples.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, HashSet::from(["jobctl_findings", "jobctl_facts", "jobctl_holds"]));
    assert_eq!(value(&samples, "jobctl_findings", &[("code", "worker_missing")]), Some(1.0));
    assert_eq!(value(&samples, "jobctl_findings", &[("code", "runs_dead")]), Some(0.0));

    // JSON.
    let mut json: Value =
        serde_json::from_str(&db.jobctl(["status", "--json"]).run().success().stdout).unwrap();
    assert!(json["now"].take().is_string());
    assert_eq!(json["findings"].take()[0]["found"], "no worker has ever ticked");
    assert_eq!(
        json,
        json!({
            "now": null, "findings": null, "jobs": [], "flow": [], "workers": [],
            "longest_running": [], "figures": []
        })
    );

    // Tables.
    let shown = on_terminal(&db, 80, "status");
    assert!(shown.starts_with("Needs attention\n\n SEVERITY  FOUND "), "{shown}");
    let empty = "\n\nNo definitions and no runs yet; see `jobctl apply` and `jobctl enqueue`.\n";
    assert!(shown.ends_with(empty), "{shown}");
}

#[test]
fn status_counts_runs_by_job_and_status() {
    let finished = sample_db().jobctl(["status"]).run().success().stderr("");
    let jobs = lines(&finished, "job");
    // Columns 0 to 6: name, and runs that are not due, due, running, failed, dead and succeeded.
    let counts: Vec<_> = jobs.iter().map(|job| job[..7].join(" ")).collect();
    assert_eq!(
        counts,
        ["backup 0 0 1 0 1 1", "built-in 0 0 0 0 0 1", "mail 2 3 0 2 0 0", "report 0 0 0 0 0 0"]
    );
    // Column 7: the age of the oldest due run, in seconds. Only `mail` has due runs.
    assert_eq!([jobs[0][7], jobs[1][7], jobs[3][7]], ["", "", ""]);
    assert_near(jobs[2][7], 7500.0);
}

#[test]
fn a_future_run_is_waiting_but_not_due() {
    let db = TestDb::new();
    insert_waiting(&db, "mail", "queued", 600);
    let finished = db.jobctl(["status"]).run().success();
    assert_eq!(lines(&finished, "job")[0][..7], ["mail", "1", "0", "0", "0", "0", "0"]);
}

#[test]
fn run_times_cover_runs_that_succeeded_in_the_last_day() {
    let db = TestDb::new();
    for seconds in 1..=20 {
        insert_ended(&db, "mail", "succeeded", 23, seconds);
    }
    // These runs do not count: they ended too long ago, or did not succeed.
    insert_ended(&db, "mail", "succeeded", 25, 500);
    insert_ended(&db, "mail", "dead", 1, 600);
    insert_ended(&db, "mail", "cancelled", 1, 700);
    let finished = db.jobctl(["status"]).run().success();
    // Columns 6 to 10: successes, age of the oldest due run, and the median, the 95th percentile
    // and the longest of the run times.
    assert_eq!(lines(&finished, "job")[0][6..11], ["20", "", "10.0", "19.0", "20.0"]);
}

#[test]
fn status_shows_the_next_fire_or_why_a_schedule_does_not_fire() {
    let db = sample_db();
    // Name, next fire and state of each job.
    let next = || {
        let finished = db.jobctl(["status"]).run().success();
        lines(&finished, "job")
            .iter()
            .map(|job| [job[0], job[11], job[12]].join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        next(),
        ["backup 2126-01-05T03:00:00.000000Z fires", "built-in  ", "mail  ", "report  paused"]
    );
    // A definition that is missing in the file is disabled.
    db.apply("[jobs.mail]\nshell = 'true'\n");
    assert_eq!(next(), ["backup  disabled", "built-in  ", "mail  ", "report  disabled"]);
}

#[test]
fn status_shows_the_worker_with_the_latest_tick_first() {
    let db = sample_db();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = '2026-01-31 08:00:02+00' WHERE worker = \
         'web1'",
    );
    let finished = db.jobctl(["status"]).run().success();
    let workers = lines(&finished, "worker");
    assert_eq!(workers.iter().map(|worker| worker[0]).collect::<Vec<_>>(), ["web2", "web1"]);
    assert_eq!(workers[1][1..3], ["2026-01-31T08:00:02.000000Z", "0.1.0"]);
}

#[test]
fn status_shows_the_five_longest_running_runs() {
    let db = TestDb::new();
    // Six runs, of which the last one is not shown.
    let ids = [60, 120, 3600, 7200, 90, 30].map(|seconds| insert_running(&db, "mail", seconds));
    db.execute("UPDATE jobctl.job_runs SET locked_until = '2126-01-31 08:00:02+00'");
    let finished = db.jobctl(["status"]).run().success();
    let running = lines(&finished, "running");
    let longest: Vec<i64> = running.iter().map(|run| run[0].parse().unwrap()).collect();
    assert_eq!(longest, [ids[3], ids[2], ids[1], ids[4], ids[0]]);
    assert_eq!(
        [running[0][1], running[0][2], running[0][5]],
        ["mail", "web1", "2126-01-31T08:00:02.000000Z"]
    );
    assert_near(running[0][4], 7200.0);
}

#[test]
fn status_shows_one_job_and_refuses_unknown_names() {
    let db = sample_db();
    // The workers are those of all jobs.
    let finished = db.jobctl(["status", "--job", "backup"]).run().success();
    assert_eq!(lines(&finished, "job").len(), 1);
    assert_eq!(lines(&finished, "running").len(), 1);
    assert_eq!(lines(&finished, "worker").len(), 2);
    let finished = db.jobctl(["status", "--job", "mail"]).run().success();
    assert_eq!([lines(&finished, "job").len(), lines(&finished, "running").len()], [1, 0]);
    // A built-in job, although it has no runs.
    db.jobctl(["status", "--job", "shell"]).run().success();
    // A job without a definition is listed while it has runs.
    db.jobctl(["status", "--job", "built-in"]).run().success();
    db.jobctl(["status", "--job", "bakup"])
        .run()
        .exits(3)
        .stdout("")
        .stderr("jobctl: no definition `bakup`; did you mean `backup`?\n");
}

#[test]
fn json_is_one_object_with_the_same_facts() {
    let db = sample_db();
    let finished = db.jobctl(["status", "--json"]).run().success().stderr("");
    let mut json: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(finished.stdout.lines().count(), 1);

    // Take out the values that change with the time, and compare the rest as a whole.
    let mut take = |pointer: &str| json.pointer_mut(pointer).unwrap().take();
    assert_near(&take("/jobs/2/oldest_due_age_seconds").to_string(), 7500.0);
    assert_near(&take("/longest_running/0/run_time_seconds").to_string(), 600.0);
    assert_eq!(take("/flow").as_array().unwrap().len(), 3);
    let instants = [
        "/now",
        "/workers/0/last_tick_at",
        "/workers/1/last_tick_at",
        "/longest_running/0/started_at",
        "/jobs/0/usual_end_at",
    ];
    for instant in instants.into_iter().chain(["/longest_running/0/locked_until"]) {
        assert!(take(instant).as_str().unwrap().ends_with('Z'));
    }
    let id = take("/longest_running/0/id");
    assert_eq!(db.status(id.as_i64().unwrap()), "running");

    // The counts are: not due, due, running, failed, dead and succeeded runs. Each job has one
    // success at most, so the three run times are the same.
    let job = |name: &str, counts: [i64; 6], times: Value, next: Value, state: Value| {
        json!({
            "job_type": name, "not_due_runs": counts[0], "blocked_runs": 0, "due_runs": counts[1],
            "running_runs": counts[2], "failed_runs": counts[3], "dead_runs": counts[4],
            "oldest_due_age_seconds": null, "succeeded_runs_last_24h": counts[5],
            "run_time_median_seconds": times, "run_time_p95_seconds": times,
            "run_time_max_seconds": times,
            "next_run_at": next, "state": state, "last_status": null, "last_succeeded_at": null,
            "blocked_runs": 0, "usual_end_at": null,
        })
    };
    let expected = json!({
        "now": null,
        "flow": null,
        "jobs": [
            job(
                "backup",
                [0, 0, 1, 0, 1, 1],
                json!(1200.0),
                json!("2126-01-05T03:00:00.000000Z"),
                json!("fires")
            ),
            job("built-in", [0, 0, 0, 0, 0, 1], json!(2.0), Value::Null, Value::Null),
            job("mail", [2, 3, 0, 2, 0, 0], Value::Null, Value::Null, Value::Null),
            job("report", [0; 6], Value::Null, Value::Null, json!("paused")),
        ],
        "workers": [
            {"worker": "web1", "last_tick_at": null, "version": "0.1.0",
             "queues": [], "login": "postgres"},
            {"worker": "web2", "last_tick_at": null, "version": "0.1.0",
             "queues": [], "login": "postgres"},
        ],
        "figures": [],
        "longest_running": [{
            "id": null, "job_type": "backup", "locked_by": "web1", "started_at": null,
            "run_time_seconds": null,
            "locked_until": null,
        }],
        "findings": null,
    });
    let findings = json["findings"].take();
    let codes: Vec<_> = findings.as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(
        codes,
        [
            "worker_silent",
            "runs_overdue",
            "runs_dead",
            "schedule_skipping",
            "timeout_missing",
            "schedule_paused"
        ]
    );
    assert_eq!(json, expected);
}

#[test]
fn tables_fit_a_terminal_of_80_columns_uncut() {
    let db = sample_db();
    // Half a minute past the full minute: a slow test does not change the shown time.
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = now() + interval '3 hours 20 minutes 30 \
         seconds', schedule = '0 0 29 2 *'
         WHERE name = 'backup'",
    );
    let id = db.query("SELECT id FROM jobctl.job_runs WHERE status = 'running'");
    let shown = on_terminal(&db, 80, "status");
    // The words of each line, without the seconds of durations.
    let expected = format!(
        "Needs attention

         SEVERITY FOUND REMEDY
         bad worker web2 does not tick, for 5m see cron on web2, its mail, and
         the log of its ticks; if it is
         gone: `jobctl forget web2`
         bad 1 run of mail is overdue, for 2h `jobctl show 5` says why
         5m (such as run 5)
         bad 1 dead run of backup, for 2d (the `jobctl list-dead --job backup`;
         newest is run 7) then retry or settle them

         Stopped on purpose

         SEVERITY FOUND REMEDY
         info schedule report is paused, for `jobctl resume report`, or set
         `enabled = false` in its file

         Warnings

         SEVERITY FOUND REMEDY
         warn backup has no timeout: if one run add a timeout to the definition
         hangs, its schedule stops

         Safe to stop now: no, 1 run; the longest usually ends in 9m; next fire in 3h

         Jobs

         JOB BLOCKED NOT DUE DUE OLDEST DUE RUNNING FAILED DEAD NEXT FIRE
         mail 0 2 3 2h 5m 0 2 0
         backup 0 0 0 1 0 1 in 3h 20m
         built-in 0 0 0 0 0 0
         report 0 0 0 0 0 0 paused

         Flow (last 10 minutes/last hour)

         JOB ENQUEUED SUCCEEDED FAILURES TREND EMPTY IN AT BEST RUNNING FOR
         all jobs 6/6 0/0 0/0 grows 10m
         backup 1/1 0/0 0/0 10m
         mail 5/5 0/0 0/0 grows

         Results (SUCCEEDED: last 24 hours; MEDIAN to LONGEST: the newest 200 successes)

         JOB LAST LAST SUCCESS SUCCEEDED MEDIAN 95 % LONGEST
         backup 1 20m 20m 20m
         built-in 1 2s 2s 2s

         Workers

         WORKER LAST TICK QUEUES LOGIN VERSION
         web1 ago postgres 0.1.0
         web2 5m ago postgres 0.1.0

         Running longest

         RUN JOB WORKER RUNNING FOR LEASE ENDS
         {id} backup web1 10m in
        "
    );
    let by_line = |text: &str| text.lines().map(without_seconds).collect::<Vec<_>>();
    assert_eq!(by_line(&shown), by_line(expected.trim_end()), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80) && !shown.contains('…'),
        "{shown}"
    );
}

/// A sample: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// Parses version 0.0.4 of the text format of Prometheus, and checks its rules.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    let (mut samples, mut seen, mut family) = (Vec::new(), HashSet::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            let kind = match name {
                "jobctl_wait_seconds" => "histogram",
                _ if name.ends_with("_total") => "counter",
                _ => "gauge",
            };
            assert_eq!(lines.next(), Some(format!("# TYPE {name} {kind}").as_str()));
            assert!(seen.insert(name.to_owned()), "{name} is repeated");
            assert!(
                name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                "{name}"
            );
            family = name.to_owned();
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let suffix = name.strip_prefix(family.as_str());
        let may_have = ["_bucket", "_sum", "_count"];
        assert!(
            suffix == Some("")
                || family == "jobctl_wait_seconds"
                    && suffix.is_some_and(|it| may_have.contains(&it)),
            "{line}"
        );
        let mut rest = rest.chars().peekable();
        let mut labels = Vec::new();
        while rest.peek() != Some(&'}') {
            let label: String = rest.by_ref().take_while(|c| *c != '=').collect();
            assert_eq!(rest.next(), Some('"'), "{line}");
            let mut value = String::new();
            loop {
                match rest.next().unwrap() {
                    '"' => break,
                    '\\' => value.push(match rest.next().unwrap() {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        other => panic!("\\{other} in {line}"),
                    }),
                    c => value.push(c),
                }
            }
            labels.push((label, value));
            assert!(rest.next_if_eq(&',').is_some() || rest.peek() == Some(&'}'), "{line}");
        }
        let value: String = rest.skip(1).collect();
        let value = value.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(seen.insert(format!("{name} {labels:?}")), "{line} is repeated");
        samples.push((name.to_owned(), labels, value));
    }
    samples
}

/// Returns the value of the sample with this name and exactly these labels.
fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    samples.iter().find(|sample| sample.0 == name && sample.1 == labels).map(|sample| sample.2)
}

#[test]
fn prometheus_gauges_have_the_same_facts() {
    let db = sample_db();
    let text = db.jobctl(["status", "--prometheus"]).run().success().stderr("").stdout;
    let samples = parse(&text);
    let runs =
        |job, status| value(&samples, "jobctl_runs", &[("job_type", job), ("status", status)]);
    let statuses = ["queued", "failed", "running", "dead"];
    assert_eq!(statuses.map(|status| runs("mail", status)), [3.0, 2.0, 0.0, 0.0].map(Some));
    assert_eq!(statuses.map(|status| runs("backup", status)), [0.0, 0.0, 1.0, 1.0].map(Some));

    let of = |name, job| value(&samples, name, &[("job_type", job)]);
    assert_eq!(of("jobctl_due_runs", "mail"), Some(3.0));
    assert_near(&of("jobctl_oldest_due_age_seconds", "mail").unwrap().to_string(), 7500.0);
    assert_eq!(of("jobctl_oldest_due_age_seconds", "backup"), Some(0.0));
    assert_eq!(of("jobctl_succeeded_last_24h", "built-in"), Some(1.0));
    // `backup` has one success, so its three run times are the same. `mail` has none.
    for name in [
        "jobctl_run_time_median_seconds",
        "jobctl_run_time_p95_seconds",
        "jobctl_run_time_max_seconds",
    ] {
        assert_eq!([of(name, "backup"), of(name, "mail")], [Some(1200.0), None]);
    }
    // 2126-01-05 03:00 in UTC. A paused schedule has no next time.
    assert_eq!(of("jobctl_next_fire_timestamp_seconds", "backup"), Some(4_923_255_600.0));
    assert_eq!(of("jobctl_next_fire_timestamp_seconds", "report"), None);

    let tick = value(&samples, "jobctl_worker_last_tick_timestamp_seconds", &[("worker", "web2")])
        .unwrap();
    let ticked: f64 = db
        .query(
            "SELECT extract(epoch FROM last_tick_at) FROM jobctl.job_workers WHERE worker = 'web2'",
        )
        .parse()
        .unwrap();
    assert!((tick - ticked).abs() < 0.01, "{tick} {ticked}");
}

#[test]
fn watch_redraws_until_ctrl_c() {
    let db = TestDb::new();
    let folder = crate::support::temp_dir();
    let typescript = folder.path().join("typescript");
    // The first screen has no job, so a run is enqueued. When a later screen has a job, Ctrl-C ends
    // the command.
    let script = "saw() { until grep -q \"$1\" \"$typescript\"; do sleep 0.1; done; }
        { saw 'No definitions'; \"$jobctl\" enqueue shell -- true >&2; saw '^Jobs'
        printf '\\003'; } |
        script -qefc \"stty rows 14 cols 80; '$jobctl' status --watch\" \"$typescript\" >/dev/null";
    let watched = db.script(script).env("typescript", typescript.to_str().unwrap());
    watched.env("NO_COLOR", "1").run().exits(130);
    let shown = std::fs::read_to_string(typescript).unwrap();
    // Each screen begins with "cursor to the top left", and ends with "clear below".
    let screens: Vec<_> = shown.split("\u{1b}[H").skip(1).collect();
    assert!(screens.len() >= 2, "{shown:?}");
    let fits = |screen: &&str| {
        screen.split_once("\u{1b}[J").is_some_and(|(screen, _)| screen.lines().count() < 14)
    };
    assert!(screens.iter().all(fits), "{shown:?}");
    // The time, then the sections for which there is room.
    let last = screens.last().unwrap();
    assert!(last.starts_with("20") && last.contains("Z\u{1b}[K"), "{last:?}");
    assert!(last.contains("\nJobs\u{1b}[K") && !last.contains("Results"), "{last:?}");
}

#[test]
fn watch_needs_a_terminal_and_tables() {
    let db = TestDb::new();
    db.jobctl(["status", "--watch"])
        .run()
        .exits(2)
        .stdout("")
        .stderr("jobctl: --watch needs a terminal; omit it in scripts\n");
    for other in ["--json", "--prometheus"] {
        db.jobctl(["status", "--watch", other]).run().exits(2).stdout("");
    }
}

#[test]
fn a_small_terminal_counts_the_findings_that_it_cuts_and_shows_the_workers() {
    let db = TestDb::new();
    for job in 1..=12 {
        insert_run(&db, &format!("job{job}"), "dead", ", finished_at", ", now()");
    }
    insert_worker(&db, "web7", 3);
    // Returns the second screen of `status --watch`, after this word was shown.
    let watched = |wanted: &str| {
        let folder = crate::support::temp_dir();
        let typescript = folder.path().join("typescript");
        let script = format!(
            "{{ until grep -q '{wanted}' \"$typescript\"; do sleep 0.1; done; printf '\\003'; }} |
             script -qefc \"stty rows 24 cols 80; '$jobctl' status --watch\" \"$typescript\" \
             >/dev/null"
        );
        let watched = db.script(&script).env("typescript", typescript.to_str().unwrap());
        watched.env("NO_COLOR", "1").run().exits(130);
        let shown = std::fs::read_to_string(typescript).unwrap();
        let screen = shown.split("\u{1b}[H").nth(1).unwrap();
        // Ctrl-C may come before the end of the screen.
        let screen = screen.replace("\u{1b}[K", "").replace("\u{1b}[J", "^C");
        let screen = screen.split("^C").next().unwrap().to_owned();
        assert!(screen.lines().count() <= 24, "{screen}");
        screen
    };
    // Some of the twelve findings are shown, and the rest is counted.
    let screen = watched("Workers");
    let shown = screen.lines().filter(|line| line.contains("dead run of")).count();
    let more = screen.lines().find_map(|line| line.strip_prefix(" and ")?.split(' ').next());
    assert_eq!(shown + more.unwrap().parse::<usize>().unwrap(), 12, "{screen}");
    assert!(screen.contains("web7") && !screen.contains("Flow"), "{screen}");

    // Without findings, there is room for the flow.
    db.execute("DELETE FROM jobctl.job_runs WHERE status = 'dead'");
    insert_waiting(&db, "mail", "queued", -5);
    let screen = watched("Flow");
    assert!(screen.contains("web7"), "{screen}");
}

/// A name that tries to end its label and its line, and to control the terminal.
const HOSTILE: &str = "a\"} 9\n\\x{é\u{1b}[2J";

fn hostile_db() -> TestDb {
    let db = TestDb::new();
    let mut client = db.client();
    client.execute("INSERT INTO jobctl.job_runs (job_type) VALUES ($1)", &[&HOSTILE]).unwrap();
    let insert =
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ($1, $1, now())";
    client.execute(insert, &[&HOSTILE]).unwrap();
    db
}

#[test]
fn a_hostile_name_stays_inside_its_cell_and_label() {
    let db = hostile_db();
    let harmless = r#"a"} 9\n\x{é\u{1b}[2J"#;
    let finished = db.jobctl(["status"]).run().success();
    // A finding, the job, its flow and the worker: no name begins a line of its own.
    assert_eq!(finished.stdout.lines().count(), 4, "{finished}");
    let names = ["job", "flow", "worker"].map(|kind| lines(&finished, kind)[0][0]);
    assert_eq!(names, [harmless; 3]);
    let samples = parse(&db.jobctl(["status", "--prometheus"]).run().success().stdout);
    assert_eq!(value(&samples, "jobctl_due_runs", &[("job_type", harmless)]), Some(1.0));
    assert!(
        value(&samples, "jobctl_worker_last_tick_timestamp_seconds", &[("worker", harmless)])
            .is_some()
    );
    assert!(!on_terminal(&db, 100, "status").contains('\u{1b}'));
}

/// A Python program that prints the samples which the client library of Prometheus reads.
const PARSE_WITH_CLIENT_LIBRARY: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps([[s.name, sorted(s.labels.items()), s.value] for f in families for s in \
f.samples]))
";

#[test]
fn the_parser_of_prometheus_reads_the_same_samples() {
    let folder = match packages::python("prometheus-client") {
        Ok(folder) => folder,
        Err(why) => return leave_out("the parser of Prometheus reads the same", &why),
    };
    for db in [sample_db(), hostile_db()] {
        let text = db.jobctl(["status", "--prometheus"]).run().success().stdout;
        let mut python = Command::new("python3");
        python
            .args(["-c", PARSE_WITH_CLIENT_LIBRARY])
            .env("PYTHONPATH", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let printed = python.wait_with_output().unwrap();
        assert!(printed.status.success(), "{text}");
        let samples: Vec<Sample> = serde_json::from_slice(&printed.stdout).unwrap();
        assert_eq!(samples, parse(&text));
    }
}

/// Returns for each job: the successes, deaths, failed attempts and retried attempts, how many of
/// its runs waited at most 30 s, a minute and any time, and the last status.
fn stored_figures(db: &TestDb) -> String {
    db.query(
        "SELECT string_agg(
             concat_ws(' ', job_type, succeeded, dead, failed_attempts, retried_attempts, waits[3],
                 waits[4], waits[7], last_status),
             '; ' ORDER BY job_type)
         FROM jobctl.daily_figures",
    )
}

#[test]
fn figures_count_every_end_and_pruning_does_not_lower_them() {
    let db = TestDb::new();
    db.apply("[jobs.good]\nshell = 'true'\n[jobs.bad]\nshell = 'exit 1'\nmax_attempts = 2\n");
    for job in ["good", "good", "good", "bad"] {
        db.enqueue([job]);
    }
    // The first two of the good runs have waited for 45 seconds, and the third starts at once.
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '45 seconds' WHERE id <= 2");
    db.jobctl(["tick"]).run().success();
    assert_eq!(stored_figures(&db), "bad 0 0 1 1 0 0 0 failed; good 3 0 0 0 1 3 3 succeeded");

    // The second attempt is lost with its worker.
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 2, started_at = now(),
             locked_by = 'gone', locked_until = now() - interval '1 second'
         WHERE job_type = 'bad'",
    );
    db.jobctl(["tick"]).run().success();
    let all = "bad 0 1 2 1 0 0 0 dead; good 3 0 0 0 1 3 3 succeeded";
    assert_eq!(stored_figures(&db), all);

    // Pruning deletes all runs, and no figure.
    db.jobctl(["prune", "--yes", "--older-than", "0s", "--dead-older-than", "0s"]).run().success();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    assert_eq!(stored_figures(&db), all);

    // The metrics have the same figures.
    let samples = parse(&db.jobctl(["status", "--prometheus"]).run().success().stdout);
    let of = |name, job| value(&samples, name, &[("job_type", job)]);
    assert_eq!(of("jobctl_dead_total", "bad"), Some(1.0));
    assert_eq!(of("jobctl_failed_attempts_total", "bad"), Some(2.0));
    assert_eq!(of("jobctl_retried_attempts_total", "bad"), Some(1.0));
    assert_eq!(of("jobctl_succeeded_total", "good"), Some(3.0));
    assert!(of("jobctl_run_time_seconds_total", "good") > Some(0.0));
    // Of three waits, one was up to 30 s and all were up to 60 s.
    let within = |bound| {
        value(&samples, "jobctl_wait_seconds_bucket", &[("job_type", "good"), ("le", bound)])
    };
    assert_eq!(["30", "60", "+Inf"].map(within), [1.0, 3.0, 3.0].map(Some));
    assert_eq!(of("jobctl_wait_seconds_count", "good"), Some(3.0));
    assert!(of("jobctl_wait_seconds_sum", "good") >= Some(90.0));
    assert!(of("jobctl_last_success_timestamp_seconds", "good").is_some());
    assert_eq!(of("jobctl_last_success_timestamp_seconds", "bad"), None);
}

#[test]
fn a_row_of_figures_that_was_written_1000_times_is_continued_in_a_new_row() {
    let db = TestDb::new();
    for _ in 0..2 {
        db.enqueue(["shell", "--", "true"]);
        db.jobctl(["tick"]).run().success();
        db.execute("UPDATE jobctl.job_figures SET writes = 1000");
    }
    assert_eq!(
        db.query("SELECT count(*), sum(succeeded), max(part) FROM jobctl.job_figures"),
        "2|2|2"
    );
}

#[test]
fn a_result_is_recorded_although_its_figures_fail() {
    let db = TestDb::new();
    // The figures of a success violate this constraint.
    db.execute("ALTER TABLE jobctl.job_figures ADD CONSTRAINT none CHECK (succeeded = 0)");
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn the_figures_do_not_overflow() {
    let db = TestDb::new();
    // A run time counts as 0 to 1e9 seconds: the first two as 1e9, the last one as 0.
    for number in ["1.7e308", "NaN", "-1"] {
        let call = format!(
            "SELECT jobctl.count_attempts('{{1}}', '{{a}}', '{{succeeded}}', '{{succeeded}}',
                 '{{{number}}}', '{{{number}}}')"
        );
        db.query(&call);
    }
    db.jobctl(["status", "--json"]).run().success().stdout_has("\"run_time_seconds\":2000000000.0");
}

#[test]
fn a_locked_row_of_figures_delays_no_result() {
    let db = TestDb::new();
    let mut client = db.client();
    // Another session locks the row of the first tick, so the second tick inserts another row.
    for _ in 0..2 {
        db.enqueue(["shell", "--", "true"]);
        db.jobctl(["tick"]).run().success();
        client.batch_execute("BEGIN; SELECT FROM jobctl.job_figures FOR UPDATE").unwrap();
    }
    client.batch_execute("ROLLBACK").unwrap();
    assert_eq!(db.query("SELECT count(*), sum(succeeded) FROM jobctl.job_figures"), "2|2");
}

#[test]
fn status_reads_one_snapshot() {
    let db = TestDb::new();
    let mut other = db.client();
    // `status` reads this table after it has begun its snapshot.
    other.batch_execute("BEGIN; LOCK jobctl.job_workers").unwrap();
    let status = db.jobctl(["status"]).spawn();
    wait_until("status to wait for the lock", || {
        db.query(
            "SELECT count(*) FROM pg_locks WHERE relation = 'jobctl.job_workers'::regclass \
            AND NOT granted",
        ) == "1"
    });
    // This run is inserted while `status` waits, so no part of the output shows it.
    insert_running(&db, "mail", 60);
    other.batch_execute("COMMIT").unwrap();
    drop(other);
    let finished = status.wait().success();
    assert_eq!(lines(&finished, "running").len(), 0, "{finished}");
}

#[test]
fn views_list_the_dead_runs_and_the_runs_of_over_ten_minutes() {
    let db = TestDb::new();
    // Neither view lists these runs.
    insert_waiting(&db, "mail", "failed", -7500);
    insert_running(&db, "mail", 590);
    insert_ended(&db, "mail", "succeeded", 2, 3600);
    let long = insert_running(&db, "backup", 3600);
    let dead = insert_ended(&db, "mail", "dead", 2, 3600);
    assert_eq!(db.query("SELECT id FROM jobctl.dead_runs"), dead.to_string());
    let running = "SELECT id, locked_by, run_time_seconds >= 3600, locked_until > now() FROM \
        jobctl.long_running_runs";
    assert_eq!(db.query(running), format!("{long}|web1|t|t"));
}

#[test]
fn of_the_workers_that_ticked_only_once_status_shows_the_newest_five() {
    let db = TestDb::new();
    insert_worker(&db, "web1", 3600);
    // 500 workers that ticked once, as pods of Kubernetes do.
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         SELECT 'pod-' || n, '', now() - n * interval '1 minute', now() - n * interval '1 minute'
         FROM generate_series(1, 500) AS n",
    );
    let shown: Value =
        serde_json::from_str(&db.jobctl(["status", "--json"]).run().success().stdout).unwrap();
    let names: Vec<_> =
        shown["workers"].as_array().unwrap().iter().map(|worker| &worker["worker"]).collect();
    assert_eq!(names, ["pod-1", "pod-2", "pod-3", "pod-4", "pod-5", "web1"]);
}

/// A blocked run waits for other runs, and not for its time or a worker.
#[test]
fn blocked_runs_have_a_column_and_a_status_of_their_own() {
    let db = TestDb::new();
    db.apply("[jobs.first]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n");
    let first = db.enqueue(["first", "--in", "1h"]).to_string();
    db.enqueue(["mail", "--in", "1h"]);
    for _ in 0..2 {
        db.enqueue(["mail", "--after", &first]);
    }
    let metrics = db.jobctl(["status", "--prometheus"]).run().success();
    metrics
        .stdout_has("jobctl_runs{job_type=\"mail\",status=\"queued\"} 1\n")
        .stdout_has("jobctl_runs{job_type=\"mail\",status=\"blocked\"} 2\n")
        .stdout_has("jobctl_runs{job_type=\"first\",status=\"blocked\"} 0\n");
    let status = db.jobctl(["status", "--json"]).run().success().stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    let jobs = status["jobs"].as_array().unwrap();
    let mail = jobs.iter().find(|job| job["job_type"] == "mail").unwrap();
    // The JSON names the count of blocked runs like those of the other statuses.
    let counts = ["not_due_runs", "blocked_runs", "due_runs"].map(|name| mail[name].clone());
    assert_eq!(counts, [json!(1), json!(2), json!(0)]);

    let table = db.jobctl(["status", "--format", "table"]).run().success().stdout;
    assert!(table.to_lowercase().contains("blocked"), "{table}");
}

#[test]
fn status_says_whether_a_deploy_would_interrupt_a_run() {
    let db = TestDb::new();
    db.apply("[jobs.backup]\nshell = 'true'\nschedule = '@daily'\n");
    db.execute(
        "UPDATE jobctl.job_definitions
         SET next_run_at = now() + interval '3 minutes 30 seconds'",
    );
    let line = || {
        let shown = on_terminal(&db, 80, "status");
        let line = shown.lines().find(|line| line.starts_with("Safe to stop now")).unwrap();
        without_seconds(line)
    };
    assert_eq!(line(), "Safe to stop now: yes, nothing runs; next fire in 3m");

    // A backup usually takes 10 minutes, and has been running for 90 s. A mail takes one minute,
    // and has been running for an hour.
    let running = insert_running(&db, "backup", 90);
    insert_running(&db, "mail", 3600);
    insert_waiting(&db, "mail", "queued", -5);
    insert_ended(&db, "backup", "succeeded", 30, 600);
    insert_ended(&db, "mail", "succeeded", 30, 60);
    assert_eq!(
        line(),
        "Safe to stop now: no, 2 run; the longest usually ends in 8m; next fire in 3m"
    );

    // `show` and `list` have the usual end of each run. This is its time after the start, in
    // seconds.
    let usual_time = |row: &Value, start: &str| {
        let at = |name: &str| row[name].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
        (at("usual_end_at") - at(start)).num_seconds()
    };
    let shown = db.jobctl(["show", "--json", &running.to_string()]).run().success();
    assert_eq!(usual_time(&serde_json::from_str(&shown.stdout).unwrap(), "started_at"), 600);
    let listed = db.jobctl(["list", "--json", "--job", "mail"]).run().success();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    // The run that has ended and the one that waits have no usual end.
    assert_eq!(listed[0]["usual_end_at"], Value::Null, "{listed}");
    assert_eq!(listed[1]["usual_end_at"], Value::Null, "{listed}");
    assert_eq!(usual_time(&listed[2], "started_at"), 60, "{listed}");
    for columns in [80, 120] {
        let shown = on_terminal(&db, columns, "list --status running");
        assert!(shown.contains("USUAL END") && shown.contains("in 8m"), "{shown}");
    }

    // Only the mail is left, which should have ended an hour ago.
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {running}"));
    let late = line();
    assert!(late.contains(": no, 1 run; the longest usually ended 59m ago; next fire"), "{late}");

    // A job without a success has no usual run time.
    insert_running(&db, "new", 1);
    assert_eq!(line(), "Safe to stop now: no, 2 run; usual end unknown; next fire in 3m");
    db.execute("DELETE FROM jobctl.job_runs WHERE status = 'running'");
    assert_eq!(line(), "Safe to stop now: yes, nothing runs; 1 due; next fire in 3m");
}

#[test]
fn status_with_more_than_five_findings_refers_to_check_for_the_remedies() {
    let db = TestDb::new();
    // Each job with a dead run is a finding.
    let insert_dead = |job: u32| {
        insert_run(&db, &format!("job{job}"), "dead", ", finished_at", ", now()");
    };
    insert_worker(&db, "web1", 3);
    (1..=5).for_each(insert_dead);
    assert!(on_terminal(&db, 120, "status").contains("REMEDY"));
    insert_dead(6);
    let shown = on_terminal(&db, 80, "status");
    assert!(shown.contains(" remedies: `jobctl check`\n"), "{shown}");
    assert!(!shown.contains("list-dead") && !shown.contains("REMEDY"), "{shown}");
}
