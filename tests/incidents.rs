//! Incidents: failed attempts with one cause, over jobs, shares and workers.

use serde_json::{Value, json};

use crate::status::on_terminal;
use crate::support::{TestDb, wait_until};

/// Inserts a run in this status, and a failed attempt of it that ended this many minutes after
/// 08:00. The attempt has an exit status as its error, and this output.
fn insert_run_with_failure(
    db: &TestDb,
    job: &str,
    status: &str,
    worker: &str,
    minute: u32,
    output: &str,
) -> i64 {
    let id = db.query(&format!(
        "INSERT INTO jobctl.job_runs (job_type, share, status, attempts, finished_at, error_type,
             last_error)
         SELECT '{job}', 'share of {job}', '{status}', 1 + ('{status}' = 'succeeded')::integer,
             CASE WHEN '{status}' IN ('succeeded', 'dead') THEN timestamptz '2026-01-31 12:00Z' END,
             'exit_code', 'exit status 1'
         RETURNING id"
    ));
    insert_failed_attempt(db, id.parse().unwrap(), 1, worker, minute, output);
    id.parse().unwrap()
}

/// Inserts a failed attempt of a run, which ended this many minutes after 08:00 on 31 January 2026
/// with this output.
fn insert_failed_attempt(
    db: &TestDb,
    run: i64,
    attempt: i32,
    worker: &str,
    minute: u32,
    output: &str,
) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
             error_type, error, exit_code, output)
         SELECT {run}, {attempt}, '{worker}', at, at, 'failed', 'exit_code', 'exit status 1', 1,
             E'{output}'
         FROM (VALUES (timestamptz '2026-01-31 08:00Z' + {minute} * interval '1m')) AS ended (at)"
    ));
}

/// Returns the incidents that `failures --group` lists with these flags. Without `--since`, the
/// window begins before all attempts of these tests.
#[track_caller]
fn incidents(db: &TestDb, arguments: &[&str]) -> Vec<Value> {
    let since = ["--since", "2026-01-01"].iter().filter(|_| !arguments.contains(&"--since"));
    let command = db.jobctl(["failures", "--group", "--json"]).args(since.copied());
    let found = command.args(arguments.iter().copied()).run().success().stderr("").stdout;
    serde_json::from_str(&found).unwrap()
}

#[track_caller]
fn fields(incident: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| incident[name].clone()).collect()
}

#[test]
fn an_incident_is_one_row_over_jobs_shares_and_workers() {
    let db = TestDb::new();
    let full = |device: &str| format!("tar: {device}: Cannot write: No space left on device");
    let first = insert_run_with_failure(&db, "backup", "dead", "web1", 0, &full("/srv/a"));
    let copied = "cp: error writing \\'/b\\': No space left on device\\n";
    let second = insert_run_with_failure(&db, "mail", "succeeded", "web2", 30, copied);
    let third = insert_run_with_failure(&db, "mail", "failed", "web2", 60, copied);
    insert_failed_attempt(&db, third, 2, "web2", 61, copied);
    // Attempts belong to one incident if they have the same cause and are at most 30 minutes apart.
    // This attempt comes 31 minutes after the last one, and the next one has another cause.
    let later = insert_run_with_failure(&db, "backup", "dead", "web1", 92, &full("/srv/a"));
    let other =
        insert_run_with_failure(&db, "mail", "dead", "web1", 30, "the provider does not answer");
    let all = incidents(&db, &[]);
    let ids: Vec<_> = all.iter().map(|it| it["incident"].as_str().unwrap()).collect();
    assert_eq!(ids, [first, later, other].map(|id| format!("{id}.1")));
    // The fields of an incident, and then their values in the first one.
    let names = [
        "cause",
        "error_type",
        "failures",
        "runs",
        "jobs",
        "workers",
        "shares",
        "dead",
        "waiting",
        "recovered",
        "settled",
        "newest_id",
        "first_finished_at",
        "last_finished_at",
    ];
    let disk = json!([
        "no space left on device",
        "exit_code",
        4,
        3,
        ["backup", "mail"],
        ["web1", "web2"],
        2,
        1,
        1,
        1,
        0,
        third,
        "2026-01-31T08:00:00.000000Z",
        "2026-01-31T09:01:00.000000Z"
    ]);
    assert_eq!(fields(&all[0], &names), disk);
    assert_eq!(
        fields(&all[2], &names[..3]),
        json!(["the provider does not answer", "exit_code", 1])
    );

    // A filter or a window counts less, but the incident is the same.
    for (filter, failures) in [
        (&["--job", "mail", "--error", "no space"][..], 3),
        (&["--worker", "web1", "--until", "2026-01-31 09:00"], 1),
        (&["--since", "2026-01-31 08:59"], 2),
        (&["--share", "share of mail", "--error", "NO SPACE"], 3),
    ] {
        let found = incidents(&db, filter);
        let same: Vec<_> = found.iter().filter(|it| it["incident"] == ids[0]).collect();
        assert_eq!(same.len(), 1, "{filter:?} {found:?}");
        assert_eq!(same[0]["failures"], failures, "{filter:?}");
    }

    // Each attempt of an incident can name it: all commands find the same runs.
    for member in [format!("{first}.1"), format!("{third}.2"), format!("{second}.1")] {
        let listed = db.jobctl(["list", "--incident", &member]).run().success().stdout;
        let runs: Vec<_> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(runs, [third, second, first].map(|id| id.to_string()), "{member}");
        let failures = |flags: &[&str]| {
            let failures =
                db.jobctl(["failures", "--incident", &member]).args(flags.iter().copied());
            failures.run().success().stdout.lines().count().to_string()
        };
        let attempts = all[0]["failures"].to_string();
        assert_eq!(failures(&[]), attempts);
        assert_eq!(failures(&["--group"]), "1");
        assert_eq!(failures(&["--until", "2026-01-31 09:00", "--worker", "web1"]), "1");
    }

    // No attempt, no incident.
    db.jobctl(["failures", "--incident", &format!("{first}.9")])
        .run()
        .exits(3)
        .stderr_has("has no failed attempt 9, and so no incident; `jobctl failures --group`");
    // A settled run no longer counts as dead.
    db.jobctl(["settle", &first.to_string()]).run().success();
    let settled = incidents(&db, &["--job", "backup", "--until", "2026-01-31 09:00"]);
    assert_eq!(fields(&settled[0], &["dead", "settled"]), json!([0, 1]));
}

#[test]
fn a_retry_of_an_incident_leaves_other_dead_runs_alone() {
    let db = TestDb::new();
    let [full, other] = ["no space left on device", "no such customer"];
    let victim = insert_run_with_failure(&db, "backup", "dead", "web1", 0, full);
    insert_run_with_failure(&db, "backup", "dead", "web1", 1, other);
    // This run failed by the same cause, but it died by another one.
    let twice = insert_run_with_failure(&db, "mail", "dead", "web1", 2, full);
    insert_failed_attempt(&db, twice, 2, "web1", 3, other);
    let incident = format!("{victim}.1");
    let listed = db.jobctl(["list", "--incident", &incident]).run().success().stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.starts_with(&format!("{victim}\t")), "{listed}");
    let retry = ["retry", "--all-dead", "--yes", "--verbose", "--incident", &incident];
    db.jobctl(retry).run().success().stdout(&format!("{victim}\tqueued\n"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'dead'"), "2");
    // The same incident, named by another of its attempts. No dead run is left in it, because the
    // run of this attempt died by the other cause.
    db.jobctl(["settle", "--all-dead", "--incident", &format!("{twice}.1"), "--yes"])
        .run()
        .success()
        .stdout("");
}

#[test]
fn an_incident_is_named_by_a_run_and_a_failed_attempt() {
    let db = TestDb::new();
    let victim = insert_run_with_failure(&db, "backup", "dead", "web1", 0, "no space left");
    // The run has only one attempt.
    db.jobctl(["list", "--incident", &format!("{victim}.2")])
        .run()
        .exits(3)
        .stdout("")
        .stderr_has(&format!("run {victim} has no failed attempt 2, and so no incident"));
    for malformed in ["17", "17.-1", "0.1", "a.b", "17.2.3", "-1.1"] {
        db.jobctl(["list", &format!("--incident={malformed}")])
            .run()
            .exits(2)
            .stderr_has("must be a run and an attempt, as in 17.2");
    }
}

#[test]
fn an_incident_keeps_its_name_when_its_first_run_is_deleted() {
    let db = TestDb::new();
    let full = "no space left on device";
    let [first, second] =
        [0, 1].map(|minute| insert_run_with_failure(&db, "backup", "dead", "web1", minute, full));
    db.jobctl(["prune", &first.to_string()]).run().success();
    let incident = format!("{first}.1");
    let found = incidents(&db, &["--until", "2026-02-01"]);
    assert_eq!(found[0]["incident"], incident.as_str());
    // The deleted run and the other one both name the incident. All commands find the other run.
    for member in [incident, format!("{second}.1")] {
        let failures = db.jobctl(["failures", "--incident", &member]).run().success().stdout;
        assert!(failures.starts_with(&format!("{second}\t")), "{failures}");
        let listed = db.jobctl(["list", "--incident", &member]).run().success();
        listed.stdout_has(&format!("{second}\tbackup\tdead\t"));
        let retry = ["retry", "--all-dead", "--yes", "--verbose", "--incident", &member];
        db.jobctl(retry).run().success().stdout(&format!("{second}\tqueued\n"));
        db.execute("UPDATE jobctl.job_runs SET status = 'dead', finished_at = now()");
    }
}

#[test]
fn failures_of_one_cause_with_pauses_below_8_hours_are_one_line() {
    let db = TestDb::new();
    let full = "no space left on device";
    // Six deaths in nine hours, at these minutes. A pause of more than 30 minutes ends an incident,
    // so they are four incidents. The run of the last one succeeded later.
    let deaths = [0, 20, 130, 300, 320, 540];
    let ids =
        deaths.map(|minute| insert_run_with_failure(&db, "backup", "dead", "web1", minute, full));
    db.execute(&format!("UPDATE jobctl.job_runs SET status = 'succeeded' WHERE id = {}", ids[5]));
    // Another cause, and another job, are other lines, and so is a pause of 8 hours.
    insert_run_with_failure(&db, "backup", "dead", "web1", 60, "no such customer");
    insert_run_with_failure(&db, "mail", "dead", "web1", 540 + 4 * 60, full);
    let later = insert_run_with_failure(&db, "backup", "dead", "web2", 540 + 8 * 60, full);
    let all = incidents(&db, &["--job", "backup", "--error", full]);
    let names = ["incident", "incidents", "times", "failures", "dead", "recovered", "workers"];
    // The first deaths of the four incidents name them.
    let id = |index: usize| format!("{}.1", ids[index]);
    let mut four_incidents = [0, 2, 3, 5].map(id);
    four_incidents.sort();
    assert_eq!(
        all.iter().map(|it| fields(it, &names)).collect::<Vec<_>>(),
        [
            // The line has the id of the newest incident with dead runs.
            json!([id(3), four_incidents, 4, 6, 5, 1, ["web1"]]),
            json!([format!("{later}.1"), [format!("{later}.1")], null, 1, 1, 0, ["web2"]]),
        ]
    );
    assert_eq!(all[0]["first_finished_at"], "2026-01-31T08:00:00.000000Z");
    assert_eq!(all[0]["last_finished_at"], "2026-01-31T17:00:00.000000Z");
    // Without the filter: the same two lines, the other cause and the other job.
    assert_eq!(incidents(&db, &[]).len(), 4);

    // An id selects only its own incident, of two runs, and not the whole line.
    let listed = db.jobctl(["list", "--incident", &id(3)]).run().success().stdout;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let alone = incidents(&db, &["--incident", &id(3)]);
    assert_eq!(fields(&alone[0], &["incident", "times", "failures"]), json!([id(3), null, 2]));

    // Without dead runs, the line names the newest incident with waiting runs, or else the newest
    // one. At first no run waits.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET settled_at = now() WHERE status = 'dead' AND id <= {}",
        ids[5]
    ));
    let fields_of_first_line = |names| {
        fields(
            &incidents(&db, &["--job", "backup", "--error", full, "--until", "2026-02-01"])[0],
            names,
        )
    };
    assert_eq!(fields_of_first_line(&["incident"]), json!([id(5)]));
    // Now the run of the second incident waits.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'queued', settled_at = NULL, finished_at = NULL
         WHERE id = {}",
        ids[2]
    ));
    assert_eq!(fields_of_first_line(&["incident", "dead", "waiting"]), json!([id(2), 0, 1]));
}

#[test]
fn a_cause_holds_no_values() {
    let db = TestDb::new();
    // The output of the command, and the cause: its last line without values, or a reason that is
    // known from the system.
    let causes = [
        (
            "ValueError: invalid literal for int() with base 10: \\'12 Main St\\'",
            "ValueError: invalid literal for int() with base #: #",
        ),
        (
            "HTTPError: 503 Server Error for url: https://api.example/v1/pay?card=4111",
            "HTTPError: # Server Error for url: #",
        ),
        ("mail to ana@example.com failed (code 550)", "mail to # failed (code #)"),
        ("cannot open /home/ana/x.pdf: Permission denied", "cannot open #: Permission denied"),
        ("can't find customer \"Ana Maria\", order=17", "can't find customer #, #"),
        ("no account `DE89 3704`", "no account #"),
        ("cannot read C:\\\\\\\\Users\\\\\\\\ana", "cannot read C:#"),
        ("request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 was refused", "request # was refused"),
        (
            "curl: (7) Failed to connect to api.example port 443: Connection refused",
            "connection refused",
        ),
        (
            "psql: could not translate host name \"db\" to address: Name or service not known",
            "name or service not known",
        ),
        ("error: \"he said \\\\\"secret word\\\\\" now\"", "error: #"),
        ("KeyError: b\\'Ana Maria\\'", "KeyError: #"),
        ("cannot remove ‘Ana Maria’, “x y” or «z z»: busy", "cannot remove #, # or #: busy"),
        ("{\"level\":\"error\",\"msg\":\"no space left on device\"}", "no space left on device"),
        ("cp: error reading a.bin: Input/output error", "input/output error"),
        ("first line\\nthe last line\\n\\n", "the last line"),
        // These lines say nothing, so the cause is the error of the attempt.
        ("12345", "exit status 1"),
        ("{\"level\":\"error\",\"msg\":\"boom\"}", "exit status 1"),
        ("Error: x\\n\\nNode.js v20.11.1", "exit status 1"),
        ("Caused by: y\\n\\t... 12 more", "exit status 1"),
        (&*("a \"secret ".repeat(200)), "exit status 1"),
        ("}", "exit status 1"),
        ("a reason\\n}", "exit status 1"),
        ("", "exit status 1"),
    ];
    // The texts above are part of an SQL literal with backslashes, so quotes are doubled.
    for (index, (output, _)) in (0..).zip(&causes) {
        insert_run_with_failure(
            &db,
            "a",
            "dead",
            "w",
            index * 60,
            &output.replace('\'', "''").replace("\\''", "''"),
        );
    }
    let found = db.query("SELECT cause FROM jobctl.job_attempts ORDER BY run_id");
    let wanted: Vec<_> = causes.iter().map(|(_, cause)| *cause).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn errors_of_other_types_are_causes_without_values() {
    let db = TestDb::new();
    let run = insert_run_with_failure(&db, "a", "dead", "w", 0, "");
    const CONNECTION_REFUSED: &str = "cannot connect to the server: Connection refused \
        (os error 111); the server is `10.0.0.7:443`";
    // The number of the attempt, its error, and the cause. Of these types, the error and not the
    // output is the cause.
    for (number, error_type, error, cause) in [
        (2, "http_status", "HTTP status 503", "HTTP status 503"),
        (3, "signal", "killed by SIGKILL (out of memory?)", "killed by SIGKILL (out of memory?)"),
        (4, "timeout", "timed out after 1h", "timed out after #"),
        (5, "transport", CONNECTION_REFUSED, "connection refused"),
        (6, "lease_expired", "the lease expired on web1", "the lease expired on #"),
    ] {
        insert_failed_attempt(&db, run, number, "w", 0, "step 1 of 7");
        db.execute(&format!(
            "UPDATE jobctl.job_attempts SET error_type = '{error_type}', error = '{error}'
             WHERE attempt = {number}"
        ));
        let found =
            db.query(&format!("SELECT cause FROM jobctl.job_attempts WHERE attempt = {number}"));
        assert_eq!(found, cause);
    }
    // Only a failed attempt has a cause.
    db.execute("UPDATE jobctl.job_attempts SET outcome = 'succeeded'");
    assert_eq!(db.query("SELECT count(cause) FROM jobctl.job_attempts"), "0");
    // An attempt that another program recorded without an error is an incident, too.
    db.execute(
        "UPDATE jobctl.job_attempts SET outcome = 'failed', error_type = NULL, error = NULL",
    );
    let found = incidents(&db, &[]);
    assert_eq!(fields(&found[0], &["failures", "cause", "error_type"]), json!([6, "", null]));
}

/// Inserts dead runs that failed alike, each this many seconds after the one before, among ten
/// thousand runs that succeeded.
fn insert_dead_runs_that_failed_alike(db: &TestDb, runs: u32, seconds: u32) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at, error_type,
             last_error)
         SELECT 'mail', 'dead', 1, now() - n * interval '{seconds} s', 'exit_code', 'exit status 1'
         FROM generate_series(1, {runs}) AS n;
         INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at)
         SELECT 'mail', 'succeeded', 1, now() - n * interval '1 s'
         FROM generate_series(1, 10000) AS n;
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
             error_type, error, exit_code, output)
         SELECT id, 1, 'w', finished_at, finished_at,
             CASE status WHEN 'dead' THEN 'failed' ELSE status END, error_type, last_error,
             (status = 'dead')::integer, 'no such customer'
         FROM jobctl.job_runs ORDER BY finished_at;
         ANALYZE jobctl.job_runs, jobctl.job_attempts"
    ));
}

/// Returns the attempts that this command reads, and the functions of the schema that it calls.
fn attempts_read_and_functions_called(db: &TestDb, command: &[&str], stdout: &str) -> [i64; 2] {
    let counters = [
        "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'job_attempts')
             + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'job_attempts')",
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE schemaname = 'jobctl'",
    ];
    let count = || counters.map(|sql| db.query(sql).parse::<i64>().unwrap());
    db.wait_for_statistics();
    let before = count();
    db.jobctl(command.iter().copied()).run().success().stdout_has(stdout);
    // The server counts what a session read after the session has ended.
    wait_until("the counts", || count()[0] > before[0]);
    let after = count();
    [after[0] - before[0], after[1] - before[1]]
}

/// Each attempt is read a few times, and no function is called for each attempt.
#[test]
fn commands_for_a_long_incident_read_each_attempt_a_limited_number_of_times() {
    // 500 failures in a row, and 300 failures that come back each 20 minutes for four days.
    for (runs, seconds) in [(500, 1), (300, 1200)] {
        let db = TestDb::new();
        db.execute(&format!("ALTER DATABASE {} SET track_functions = 'all'", db.name()));
        insert_dead_runs_that_failed_alike(&db, runs, seconds);
        // An attempt in the middle of the incident names it.
        let member =
            "SELECT id || '.1' FROM jobctl.job_runs WHERE status = 'dead' LIMIT 1 OFFSET 100";
        let member = db.query(member);
        let list = ["list", "--incident", &member, "--limit", "2000", "--columns", "id,status"];
        let retry = ["retry", "--all-dead", "--incident", &member, "--yes"];
        for (command, stdout) in [
            (&list[..], "\tdead\n"),
            (&["failures", "--incident", &member], "no such customer"),
            (&["failures", "--group", "--since", "2026-01-01"], "no such customer"),
            (&retry, &format!("queued\t{runs}\n")),
        ] {
            let [read, called] = attempts_read_and_functions_called(&db, command, stdout);
            let most = i64::from(runs) * 20 + 1000;
            assert!(read < most && called < 100, "{command:?}: {read} attempts, {called} calls");
        }
    }
}

#[test]
fn a_narrow_terminal_shows_when_an_incident_was_and_how_many_runs_are_dead() {
    let db = TestDb::new();
    for (job, worker) in [("import_articles_nightly", "a.example"), ("sync_crm", "b.example")] {
        insert_run_with_failure(
            &db,
            job,
            "dead",
            worker,
            1,
            "sh: 3: cannot create /data/x.tmp: No space left",
        );
        insert_run_with_failure(
            &db,
            job,
            "succeeded",
            worker,
            2,
            "sh: 3: cannot create /data/x.tmp: No space left",
        );
    }
    db.execute("UPDATE jobctl.job_attempts SET finished_at = now(), started_at = now()");
    let all = ["FIRST", "LAST", "DEAD", "FAILURES", "JOBS", "CAUSE", "cannot create"];
    for columns in [80, 120] {
        let shown = on_terminal(&db, columns, "failures --group");
        assert!(all.iter().all(|word| shown.contains(word)), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= columns.into()), "{shown}");
    }
    // The width of the terminal, the command, and the headings that fit and that are left out.
    for (columns, command, kept, left_out) in [
        (80, "failures", &["ENDED", "JOB", "ERROR", "LAST LINE"][..], "WORKER"),
        (120, "failures", &["ENDED", "JOB", "ERROR", "LAST LINE"], "ATTEMPTS"),
        (80, "list", &["ENDED", "JOB", "STATUS", "ERROR"], "QUEUE"),
    ] {
        let shown = on_terminal(&db, columns, command);
        assert!(kept.iter().all(|word| shown.contains(word)), "{shown}");
        assert!(!shown.contains(left_out), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= columns.into()), "{shown}");
    }
    // Of a failed run, which waits, the table shows the time at which it is due. The long name of
    // its queue is left out.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, queue, share, last_error, run_at)
         VALUES ('import_articles_nightly', 'failed', 1, 'a_queue_with_a_name',
             'a_share_with_a_name', 'cannot reach the server', now() + interval '1 hour')",
    );
    let shown = on_terminal(&db, 80, "list --status failed");
    assert!(shown.contains("DUE") && !shown.contains("QUEUE"), "{shown}");
}
