//! `apply` stores the definitions of a file, or changes nothing.

use std::path::Path;

use crate::retry::answer_at_terminal;
use crate::support::{Role, TestDb, jobctl, temp_dir, wait_until};

const TWO_JOBS: &str = "\
[jobs.cleanup]
shell = 'true'
schedule = '0 2 * * *'

[jobs.report]
http = { url = 'http://app.example/report' }
";

const CLEANUP_CHANGED: &str = "\
[jobs.cleanup]
shell = 'exit 0'
schedule = '0 2 * * *'
max_attempts = 3
";

/// From the first job of `TWO_JOBS` to `CLEANUP_CHANGED`.
const CHANGES: &str = "change\tcleanup\tshell\t\"true\"\t\"exit 0\"\n\
                       change\tcleanup\tmax_attempts\t10\t3\n";

/// Returns the stored definitions with all columns.
fn definitions(db: &TestDb) -> String {
    db.query("SELECT definition FROM jobctl.job_definitions AS definition ORDER BY name")
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_its_line() {
    let folder = temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), b"[jobs.a]\nshell = 'caf\xe9'\n").unwrap();
    let refused = TestDb::new().jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run();
    refused.exits(2).stderr("jobctl: cannot apply: jobs.toml:2: it is not UTF-8\n");
}

#[test]
fn apply_adds_new_jobs_and_prints_no_unchanged_job() {
    let db = TestDb::new();
    assert_eq!(db.apply(TWO_JOBS), "add\tcleanup\nadd\treport\n");
    let before = definitions(&db);
    assert_eq!(db.apply(TWO_JOBS), "");
    assert_eq!(definitions(&db), before);
}

#[test]
fn apply_prints_changed_keys_and_disables_missing_jobs() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    assert_eq!(db.apply(CLEANUP_CHANGED), format!("{CHANGES}disable\treport\n"));
    assert_eq!(
        db.query(
            "SELECT name, action ->> 'command', max_attempts, enabled FROM \
            jobctl.job_definitions ORDER BY name"
        ),
        "cleanup|exit 0|3|t\nreport||10|f"
    );
    assert_eq!(db.apply(CLEANUP_CHANGED), "", "a job that is already disabled does not change");
    assert_eq!(
        db.apply(TWO_JOBS),
        "change\tcleanup\tshell\t\"exit 0\"\t\"true\"\nchange\tcleanup\tmax_attempts\t3\t10\n\
         change\treport\tenabled\tfalse\ttrue\n"
    );
}

#[test]
fn a_key_removed_from_the_file_returns_to_its_default() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\ntimeout = '5m'\nqueue = 'slow'\npriority = 3\nmax_running \
        = 2\npayload = { a = 1 }\nbackoff = 'fixed:1s'\n",
    );
    assert_eq!(
        db.query(
            "SELECT timeout, queue, priority, max_running, payload, backoff FROM \
            jobctl.job_definitions"
        ),
        "00:05:00|slow|3|2|{\"a\": 1}|fixed:1s"
    );
    assert_eq!(
        db.apply("[jobs.a]\nshell = 'true'\n"),
        "change\ta\tpayload\t{ a = 1 }\nchange\ta\tmax_running\t2\nchange\ta\ttimeout\t\"5m\"\n\
         change\ta\tbackoff\t\"fixed:1s\"\t\"exponential:1m..30m\"\nchange\ta\tpriority\t3\t0\n\
         change\ta\tqueue\t\"slow\"\t\"default\"\n"
    );
    assert_eq!(
        db.query(
            "SELECT timeout, queue, priority, max_running, payload, backoff FROM \
            jobctl.job_definitions"
        ),
        "|default|0||{}|exponential:1m..30m"
    );
}

#[test]
fn a_dry_run_prints_the_same_and_changes_nothing() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let before = definitions(&db);
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, CLEANUP_CHANGED).unwrap();
    let file = file.to_str().unwrap();
    db.jobctl(["apply", file, "--dry-run"])
        .run()
        .success()
        .stdout(&format!("{CHANGES}disable\treport\n"));
    db.jobctl(["apply", file, "--dry-run", "--prune"])
        .run()
        .success()
        .stdout(&format!("{CHANGES}remove\treport\n"));
    assert_eq!(definitions(&db), before);
    // Without --dry-run, apply stores the same changes, here printed as JSON.
    db.jobctl(["apply", file, "--json"]).run().success().stdout(
        "[{\"change\":\"change\",\"job_type\":\"cleanup\",\"definition_key\":\"shell\",\
         \"old\":\"\\\"true\\\"\",\"new\":\"\\\"exit 0\\\"\",\"due_at\":null,\"due_runs\":null,\
         \"waiting_runs\":null},\
         {\"change\":\"change\",\"job_type\":\"cleanup\",\"definition_key\":\"max_attempts\",\
         \"old\":\"10\",\"new\":\"3\",\"due_at\":null,\"due_runs\":null,\"waiting_runs\":null},\
         {\"change\":\"disable\",\"job_type\":\"report\",\"definition_key\":null,\
         \"old\":null,\"new\":null,\"due_at\":null,\"due_runs\":null,\"waiting_runs\":null}]\n",
    );
    db.jobctl(["apply", file, "--json"]).run().success().stdout("[]\n");
}

#[test]
fn apply_reports_every_job_with_a_mistake_by_line() {
    let db = TestDb::new();
    let folder = temp_dir();
    std::fs::write(
        folder.path().join("jobs.toml"),
        "[jobs.z]\nshell = 5\n[jobs.good]\nshell = 'true'\n[jobs.a]\nshell = 'true'\nqueue = 'a \
         b'\n[job.c]\nshell = 'true'\n",
    )
    .unwrap();
    let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(2);
    // The first 52 bytes of each line name the place; the rest explains.
    let starts: Vec<_> = refused.stderr.lines().map(|line| &line[..line.len().min(52)]).collect();
    assert_eq!(
        starts,
        [
            "jobctl: cannot apply: jobs.toml:2: job `z`: `shell` ",
            "jobctl: cannot apply: jobs.toml:7: job `a`: `queue`:",
            "jobctl: cannot apply: jobs.toml:8: unknown key `job`",
        ],
        "{refused}"
    );
    assert_eq!(definitions(&db), "");
}

#[test]
fn apply_hides_secrets_in_the_changes_that_it_prints() {
    let db = TestDb::new();
    let job = |secret: &str| {
        format!(
            "[jobs.a]\nshell = 'true'\nenv = {{ A = '{secret}' }}\n\
             [jobs.b]\nhttp = {{ url = 'http://a.example/?{secret}' }}\n"
        )
    };
    db.apply(&job("s3cret"));
    let hidden = "{ A = \"[redacted]\" }";
    let url = "\"http://a.example/?[redacted]\"";
    assert_eq!(
        db.apply(&job("s3cret2")),
        format!("change\ta\tenv\t{hidden}\t{hidden}\nchange\tb\thttp.url\t{url}\t{url}\n")
    );
}

#[test]
fn a_waiting_run_of_a_removed_job_dies_with_a_reason() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let (orphan, other) = (db.enqueue(["report"]), db.enqueue(["cleanup"]));
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, CLEANUP_CHANGED).unwrap();
    // The last column of the removed job is the number of its waiting runs.
    db.jobctl(["apply", file.to_str().unwrap(), "--prune", "--yes"])
        .run()
        .success()
        .stdout(&format!("{CHANGES}remove\treport\t\t\t\t\t\t1\n"));
    assert_eq!(db.query("SELECT name FROM jobctl.job_definitions"), "cleanup");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(other), "succeeded");
    assert_eq!(
        db.of_run(orphan, "status, error_type, last_error"),
        "dead|bad_payload|no definition `report`; it was never applied, or was removed"
    );
    // The run can be retried as soon as the definition exists again.
    db.apply("[jobs.report]\nshell = 'true'\n");
    db.jobctl(["retry", &orphan.to_string()]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(orphan), "succeeded");
}

#[test]
fn apply_waits_a_limited_time_for_a_locked_definition() {
    let db = TestDb::new();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() - interval '1 day'");
    // Another session locks the definition.
    let mut other = db.client();
    other.batch_execute("BEGIN; SELECT FROM jobctl.job_definitions FOR UPDATE").unwrap();
    let folder = temp_dir();
    std::fs::write(
        folder.path().join("jobs.toml"),
        "[jobs.nightly]\nshell = 'false'\nschedule = '@daily'\n",
    )
    .unwrap();
    let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run();
    refused.exits(5).complains_once().stderr_has("another session holds a lock");
    other.batch_execute("COMMIT").unwrap();
    db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().success();
}

#[test]
fn a_key_of_another_tool_gets_the_key_that_was_meant() {
    let db = TestDb::new();
    let folder = temp_dir();
    let counts_first = ", which counts the first attempt, too";
    // The key of the other tool, the key of jobctl, and what the tip adds.
    for (foreign_key, own_key, rest) in [
        ("command", "shell", ""),
        ("cmd", "shell", ""),
        ("run", "shell", ""),
        ("script", "shell", ""),
        ("cron", "schedule", ""),
        ("depends_on", "after", ""),
        ("retries", "max_attempts", counts_first),
        ("max-retries", "max_attempts", counts_first),
        ("tz", "time_zone", ""),
        ("timezone", "time_zone", ""),
        ("workdir", "cwd", ""),
        ("working_directory", "cwd", ""),
        ("environment", "env", ""),
        ("timeout_seconds", "timeout", ""),
        ("concurrency", "max_running", ""),
        ("retry_delay", "backoff", ""),
        ("ttl", "expires", ""),
        ("args", "payload", ""),
        ("on_failure", "on_dead", ""),
        ("url", "http", ""),
        ("jitter", "spread", ""),
    ] {
        let text = format!("[jobs.a]\nshell = 'true'\n{foreign_key} = '1'\n");
        std::fs::write(folder.path().join("jobs.toml"), text).unwrap();
        let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(2);
        refused.stderr(&format!(
            "jobctl: cannot apply: jobs.toml:3: job `a`: `{foreign_key}`: unknown key; did you \
             mean `{own_key}`{rest}?\n"
        ));
    }
    // The same for tables, and for the keys of a call.
    for (text, why) in [
        ("[task.a]\nshell = 'true'\n", "did you mean `jobs`?"),
        ("[jobs.a]\nhttp = { uri = 'http://a' }\n", "`uri`: unknown key; did you mean `url`?"),
        ("[jobs.a]\nhttp = { url = 'http://a', x = '1' }\n", "unknown key; known are url, "),
    ] {
        std::fs::write(folder.path().join("jobs.toml"), text).unwrap();
        let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(2);
        refused.stderr_has(why);
    }
}

#[test]
fn an_error_names_its_line_and_applies_nothing() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let before = definitions(&db);
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    // A good job in the lines 1 to 3, and after it a wrong one: the line with the mistake, and the
    // error.
    let good = "[jobs.first]\nshell = 'true'\n\n";
    for (wrong, line, what) in [
        (
            "[jobs.second]\nshell = 'true'\nshedule = '@daily'\n",
            6,
            "job `second`: `shedule`: unknown key; did you mean `schedule`?",
        ),
        (
            "[jobs.second]\nshell = 'true'\ntimeout = '5'\n",
            6,
            "job `second`: `timeout`: `5` is not a duration",
        ),
        ("[jobs.second]\nshell = 'true'\nbackoff = 'fixd:1m'\n", 6, "job `second`: `backoff`: "),
        (
            "[jobs.second]\nhttp = { url = 'http://a', methd = 'PUT' }\n",
            5,
            "job `second`: `http`: `methd`: unknown key; did you mean `method`?",
        ),
        (
            "[jobs.second]\nhttp = { url = 'http://a/${TOKEN}/x' }\n",
            5,
            "job `second`: `http`: `url` has a `${`, but only headers get variables; send the \
             secret in a header, such as authorization",
        ),
        (
            "[jobs.second]\nhttp = { url = 'http://${HOST}/x' }\n",
            5,
            "job `second`: `http`: `url` has a `${`, but only headers get variables",
        ),
        (
            "[jobs.second]\nshell = 'true'\nschedule = '@daily'\ntime_zone = 'GMT+5'\n",
            7,
            "job `second`: `time_zone`: there is no time zone `GMT+5`; write a name such as \
             Europe/Berlin, which follows daylight saving time, or Etc/GMT-5, which is 5 h ahead \
             of UTC: its sign is reversed",
        ),
        (
            "[jobs.second]\nhttp = { url = 'ftp://a' }\n",
            5,
            "job `second`: `http`: `url` must start with http",
        ),
        (
            "[jobs.second]\nqueue = 'q'\nshell = ['mysql -p']\n",
            6,
            "job `second`: `shell`: cannot find the program: the command is one word with blanks; \
             pass its words",
        ),
        (
            "[jobs.second]\nenv = { A = '1' }\nshell = ['TZ=UTC', 'date']\n",
            6,
            "job `second`: `shell`: cannot find the program: the first word sets the variable TZ, \
             as only a shell does; begin with `env TZ=...`",
        ),
        ("[jobs.second]\nqueue = 'q'\n", 4, "job `second`: it has neither `shell` nor `http`"),
        (
            "[jobs.second]\nshell = 'true'\nschedule = '@daily'\ncatch_up = 'all:+5'\n",
            7,
            "job `second`: `catch_up`: must be",
        ),
        (
            "[jobs.second]\nshell = 'true'\nbackoff = \"fixed:1m\\t\"\n",
            6,
            "job `second`: `backoff`: ",
        ),
        ("[jobs.first]\nshell = 'false'\n", 4, "duplicate key `first`"),
        ("[jobs.second\n", 4, ""),
        (
            "[job.second]\nshell = 'true'\n",
            4,
            "unknown key `job`; a file holds [jobs.NAME] tables, [defaults] and [file]; did you \
             mean `jobs`?",
        ),
    ] {
        std::fs::write(&file, format!("{good}{wrong}")).unwrap();
        for prune in [&[][..], &["--prune"][..]] {
            let refused = db.jobctl(["apply", "jobs.toml"]).args(prune.iter().copied());
            refused
                .current_dir(folder.path())
                .run()
                .exits(2)
                .stdout("")
                .complains_once()
                .stderr_has(&format!("jobctl: cannot apply: jobs.toml:{line}: {what}"));
        }
        assert_eq!(definitions(&db), before, "{wrong}");
    }
    db.jobctl(["apply", "absent.toml"]).current_dir(folder.path()).run().exits(1).complains_once();
}

/// Such a definition is valid, but it does not do what its author expects: a role can't enqueue it,
/// or its call sends `$TOKEN` itself.
#[test]
fn apply_warns_of_unknown_roles_and_of_variables_that_are_not_replaced() {
    let db = TestDb::new();
    let role = Role::new(&db);
    let name = role.name();
    let (_folder, file) = file_of(&format!(
        "[jobs.a]\nshell = 'cat'\nenqueuers = ['gone', '{name}']\n\
         [jobs.b]\nshell = 'cat'\nenqueuers = ['gone', 'public', 'A b']\n\
         [jobs.c.http]\nurl = 'http://a'\n\
         headers = {{ A = '$TOKEN', B = '${{TOKEN}}', C = 'Bearer $s3cret', D = '5$ $5 $' }}\n"
    ));
    let unknown = |role: &str, whose: &str| {
        format!(
            "jobctl: `enqueuers` of job {whose} name role `{role}`, which does not exist; create \
             it, or correct the name\n"
        )
    };
    let header = |name: &str| {
        format!(
            "jobctl: job `c`: header `{name}` has a `$` before a name, but only `${{NAME}}` is \
             replaced by a variable\n"
        )
    };
    // `B` has braces, so it gets the variable. `D` has no name after its `$`.
    let mut warnings = [
        header("A"),
        header("C"),
        unknown("A b", "`b`"),
        unknown("gone", "`a` and 1 other"),
        unknown("public", "`b`"),
    ];
    warnings.sort();
    for mode in ["--dry-run", "--yes"] {
        let applied = db.jobctl(["apply", &file, mode]).run().success().prints_nowhere("s3cret");
        let mut lines: Vec<_> = applied.stderr.split_inclusive('\n').collect();
        lines.sort_unstable();
        assert_eq!(lines, warnings, "{applied}");
    }
    // Another file does not warn of these roles again.
    let (_folder, file) = file_of("[file]\nname = 'other'\n[jobs.d]\nshell = 'cat'\n");
    db.jobctl(["apply", &file]).run().success().stderr("");
}

#[test]
fn apply_accepts_the_example_that_sets_every_key() {
    let db = TestDb::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/jobs.toml");
    db.jobctl(["apply", example.to_str().unwrap()])
        .run()
        .success()
        .stdout("add\talert\nadd\tcleanup_nightly\nadd\tsend_weekly_report\nadd\twarm_cache\n");
    assert_eq!(
        db.query(
            "SELECT name, schedule, time_zone, spread, max_attempts, max_running, queue, \
             next_run_at IS NOT NULL
             FROM jobctl.job_definitions ORDER BY name"
        ),
        "alert||UTC|00:00:00|10||default|f\n\
         cleanup_nightly|0 2 * * *|Europe/Berlin|00:05:00|3|1|maintenance|t\n\
         send_weekly_report||UTC|00:00:00|10||default|f\n\
         warm_cache||UTC|00:00:00|10||default|f"
    );
}

#[test]
fn a_changed_schedule_keeps_its_pause_and_its_due_fire() {
    let db = TestDb::new();
    let job = |minute: u32| format!("[jobs.a]\nshell = 'true'\nschedule = '{minute} * * * *'\n");
    db.apply(&job(5));
    db.jobctl(["pause", "a"]).run().success();
    db.apply(&job(6));
    assert_eq!(
        db.query("SELECT schedule, paused_at IS NOT NULL FROM jobctl.job_definitions"),
        "6 * * * *|t"
    );
    assert_eq!(
        db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"),
        "t",
        "the new schedule does not fire at once"
    );
    db.jobctl(["resume", "a"]).run().success();
    // The time of the old schedule is due, and no tick has fired it. It fires after the change.
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())");
    db.apply(&job(7));
    db.tick_that_starts_nothing().run().success();
    assert_eq!(
        db.query(
            "SELECT count(*), min(status), bool_and(scheduled_for <= now()) FROM jobctl.job_runs"
        ),
        "1|queued|t"
    );
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"), "t");
}

/// An apply prints what it changes. It reads the stored definitions only after it has the lock, so
/// the applies that wait for the first one find nothing left to change.
#[test]
fn concurrent_applies_of_one_file_add_its_jobs_once() {
    let db = TestDb::new();
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, TWO_JOBS).unwrap();
    let file = file.to_str().unwrap();
    let running: Vec<_> = (0..8).map(|_| db.jobctl(["apply", file]).spawn()).collect();
    let printed: Vec<_> = running
        .into_iter()
        .map(|apply| apply.wait().success().stdout)
        .filter(|changes| !changes.is_empty())
        .collect();
    assert_eq!(printed, ["add\tcleanup\nadd\treport\n"], "one apply adds both jobs");
    assert_eq!(
        db.query("SELECT name FROM jobctl.job_definitions ORDER BY name"),
        "cleanup\nreport"
    );
}

#[test]
fn concurrent_applies_run_one_at_a_time_and_the_last_wins() {
    let db = TestDb::new();
    let folder = temp_dir();
    for (file, job) in
        [("a.toml", "[jobs.a]\nshell = 'true'\n"), ("b.toml", "[jobs.b]\nshell = 'true'\n")]
    {
        std::fs::write(folder.path().join(file), job).unwrap();
    }
    let apply = |file| db.jobctl(["apply", "--yes", file]).current_dir(folder.path()).spawn();
    // The first apply waits in a trigger just before its commit.
    db.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM \
         pg_advisory_xact_lock(1); RETURN NEW; END';
         CREATE TRIGGER slow AFTER INSERT ON jobctl.job_definitions FOR EACH ROW WHEN (NEW.name = \
         'a') EXECUTE FUNCTION slow()",
    );
    let mut gate = db.client();
    gate.batch_execute("SELECT pg_advisory_lock(1)").unwrap();
    let sessions = |which: &str| {
        db.query(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {which}"
        ))
    };
    let first = apply("a.toml");
    wait_until("the first apply to insert", || sessions("wait_event = 'advisory'") == "1");
    let second = apply("b.toml");
    wait_until("the second apply to ask for the lock", || {
        sessions("query LIKE '-- Tries to get the lock of `apply`%'") == "1"
    });
    drop(gate);
    first.wait().success().stdout("add\ta\n");
    // The second apply sees the job of the first one, which its own file lacks.
    second.wait().success().stdout("add\tb\ndisable\ta\n");
}

#[test]
fn apply_waits_a_limited_time_for_another_apply() {
    let db = TestDb::new();
    // Each apply takes this lock.
    let mut other = db.client();
    other.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(x'6a6f6263746d'::bigint)").unwrap();
    let folder = temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), TWO_JOBS).unwrap();
    let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run();
    refused
        .exits(5)
        .stderr("jobctl: cannot apply definitions: another apply is running; try again\n");
}

#[test]
fn an_unreadable_file_fails_without_a_database() {
    jobctl(["apply", "/nowhere/jobs.toml"])
        .run()
        .exits(1)
        .stderr_has("cannot read `/nowhere/jobs.toml`");
}

#[test]
fn a_single_changed_key_is_printed_and_stored() {
    let db = TestDb::new();
    let job = "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n";
    // A key, its value in the file, and its value in the table.
    for (key, value, stored) in [
        ("payload", "{ a = 1 }", "{\"a\": 1}"),
        ("time_zone", "'Asia/Tokyo'", "Asia/Tokyo"),
        ("catch_up", "'skip'", "skip"),
        ("overlap", "'allow'", "allow"),
        ("max_running", "2", "2"),
        ("max_waiting", "2", "2"),
        ("max_attempts", "3", "3"),
        ("timeout", "'5m'", "00:05:00"),
        ("backoff", "'fixed:1s'", "fixed:1s"),
        ("priority", "3", "3"),
        ("queue", "'slow'", "slow"),
        ("spread", "'5m'", "00:05:00"),
        ("enabled", "false", "f"),
    ] {
        db.apply(job);
        let change = db.apply(&format!("{job}{key} = {value}\n"));
        assert!(change.starts_with(&format!("change\ta\t{key}\t")), "{change}");
        assert!(change.ends_with(&format!("\t{}\n", value.replace('\'', "\""))), "{change}");
        assert_eq!(db.query(&format!("SELECT {key} FROM jobctl.job_definitions")), stored, "{key}");
    }
}

#[test]
fn apply_of_a_new_time_zone_computes_the_next_time_again() {
    let db = TestDb::new();
    let job = "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n";
    db.apply(job);
    db.apply(&format!("{job}time_zone = 'Asia/Tokyo'\n"));
    // The next time is a midnight in Tokyo.
    let next = "SELECT next_run_at > now(), (next_run_at AT TIME ZONE 'Asia/Tokyo')::time FROM \
        jobctl.job_definitions";
    assert_eq!(db.query(next), "t|00:00:00");
}

/// Writes a file with jobs; returns the folder, which must live as long.
fn file_of(text: &str) -> (tempfile::TempDir, String) {
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

#[test]
fn a_file_without_jobs_is_refused() {
    let db = TestDb::new();
    db.apply(TWO_JOBS);
    let before = definitions(&db);
    for text in ["", "\n", "# [jobs.cleanup]\n", "[jobs]\n"] {
        let (_folder, file) = file_of(text);
        for flags in [&["--yes"][..], &["--dry-run"], &["--prune", "--yes"]] {
            let refused = db.jobctl(["apply", &file]).args(flags.iter().copied()).run().exits(2);
            refused.stdout("").complains_once().stderr_has("cannot apply: ");
        }
        db.jobctl(["apply", "-"]).stdin(text).run().exits(2).stderr_has("-: the file has no jobs");
    }
    assert_eq!(definitions(&db), before);
}

#[test]
fn an_apply_that_ends_more_than_it_keeps_or_a_schedule_needs_a_yes() {
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\n");
    let scheduled = job("s") + "schedule = '@yearly'\n";
    let stopped = scheduled.clone() + "enabled = false\n";
    let (a, b, c) = (job("a"), job("b"), job("c"));
    // The stored file, the new file, flags, and the question; `None`: apply does not ask.
    for (before, after, flags, question) in [
        (format!("{a}{b}{c}"), a.clone(), "", Some("disable 2 definitions")),
        (format!("{a}{b}{c}"), a.clone(), "--prune", Some("remove 2 definitions")),
        // New definitions do not count as kept.
        (a.clone(), format!("{b}{c}"), "", Some("disable 1 definition")),
        (
            format!("{a}{b}{scheduled}"),
            format!("{a}{b}"),
            "",
            Some("disable 1 definition, 1 with a schedule"),
        ),
        (
            format!("{scheduled}{a}{b}"),
            a.clone(),
            "--prune",
            Some("remove 2 definitions, 1 with a schedule"),
        ),
        // As many end as are kept.
        (format!("{a}{b}"), a.clone(), "", None),
        // The schedule that ends is disabled already.
        (format!("{a}{b}{c}{stopped}"), format!("{a}{b}"), "--prune", None),
        // The file itself disables the schedule.
        (format!("{a}{scheduled}"), format!("{a}{stopped}"), "", None),
    ] {
        let db = TestDb::new();
        db.apply(&before);
        let stored = definitions(&db);
        let (_folder, file) = file_of(&after);
        let words = ["apply", &file].into_iter().chain(flags.split_whitespace());
        let words: Vec<_> = words.collect();
        db.jobctl(words.iter().copied()).args(["--dry-run"]).run().success().stderr("");
        let Some(question) = question else {
            db.jobctl(words.iter().copied()).run().success().stderr("");
            assert_ne!(definitions(&db), stored, "{after}");
            continue;
        };
        let refused = db.jobctl(words.iter().copied()).run().exits(2).stdout("");
        let why = format!(
            "jobctl: cannot apply: it would {question}, and stdin is not a terminal to ask; add \
             --yes\n"
        );
        refused.stderr(&why);
        assert_eq!(definitions(&db), stored, "{after}");
        let command = words.join(" ");
        let (shown, declined) = answer_at_terminal(&db, &command, "n");
        declined.exits(1);
        assert!(shown.contains(&format!("{question}? [y/N] ")), "{shown}");
        assert_eq!(definitions(&db), stored, "{after}");
        let (shown, agreed) = answer_at_terminal(&db, &command, "y");
        agreed.success();
        assert!(!shown.contains("not confirmed"), "{shown}");
        assert_ne!(definitions(&db), stored, "{after}");
    }
}

#[test]
fn apply_disables_only_missing_jobs_of_its_own_file() {
    let db = TestDb::new();
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\n");
    let states = || db.query("SELECT file, name, enabled FROM jobctl.job_definitions ORDER BY id");
    let apply = |text: &str, flags: &[&str]| {
        db.jobctl(["apply", "-", "--yes"]).args(flags.iter().copied()).stdin(text).run()
    };
    let billing = |jobs: &str| format!("[file]\nname = 'billing'\n{jobs}");
    apply(&job("a"), &[]).success();
    apply(&billing(&(job("b") + &job("c"))), &[]).success();
    apply(&job("d"), &["--as", "mail"]).success();
    // The flag overrides the file.
    apply(&billing(&job("e")), &["--as", "mail", "--prune"])
        .success()
        .stdout("add\te\nremove\td\n");
    apply(&billing(&job("b")), &[]).success().stdout("disable\tc\n");
    assert_eq!(states(), "|a|t\nbilling|b|t\nbilling|c|f\nmail|e|t");
    let shown = db.jobctl(["jobs", "b", "--format", "table"]).run().success();
    shown.stdout_has("\nfile:             \"billing\"\n");
}

#[test]
fn apply_refuses_a_job_that_another_file_defines() {
    let db = TestDb::new();
    let job = |name: &str, command: &str| format!("[jobs.{name}]\nshell = '{command}'\n");
    let apply = |text: &str, flags: &[&str]| {
        db.jobctl(["apply", "-", "--yes"]).args(flags.iter().copied()).stdin(text).run()
    };
    apply(&job("a", "true"), &[]).success();
    apply(&(job("b", "true") + &job("c", "true")), &["--as", "billing"]).success();
    let before = definitions(&db);
    // The jobs and flags of an apply, and the file that one of the jobs belongs to.
    for (jobs, flags, whose) in [
        (job("a", "true"), &["--as", "mail"][..], "`a` belongs to a file without a name"),
        (job("b", "true"), &[], "`b` belongs to the file `billing`"),
        (job("b", "exit 0"), &["--as", "mail", "--dry-run"], "`b` belongs to the file `billing`"),
    ] {
        let refused = apply(&(job("z", "true") + &jobs), flags).exits(2).stdout("");
        refused.complains_once().stderr_has(&format!(
            "cannot apply: -: job {whose}; rename the job, or add --take-over\n"
        ));
        assert_eq!(definitions(&db), before);
    }
    let both = job("a", "true") + &job("b", "true");
    let taken = apply(&both, &["--as", "mail", "--take-over", "--reason", "one team now"]);
    taken.success().stdout("change\ta\tfile\t\t\"mail\"\nchange\tb\tfile\t\"billing\"\t\"mail\"\n");
    let trail = "SELECT job, action, detail, reason FROM jobctl.job_events WHERE action <> 'add'";
    assert_eq!(
        db.query(trail),
        "a|change|file none -> \"mail\"|one team now\n\
         b|change|file \"billing\" -> \"mail\"|one team now"
    );
    // Job `b` belongs to `mail` now: the file `billing` does not end it, and may not have it.
    apply(&job("c", "true"), &["--as", "billing"]).success().stdout("");
    apply(&job("b", "true"), &["--as", "billing"]).exits(2).stderr_has("`mail`");
}

#[test]
fn a_removal_says_how_many_waiting_runs_will_die() {
    let db = TestDb::new();
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\n");
    // The new file lacks `b`, which has two waiting runs, and `d`, which has none.
    let (all, less) = (job("a") + &job("b") + &job("c") + &job("d"), job("a") + &job("c"));
    db.apply(&all);
    for _ in 0..2 {
        db.enqueue(["b"]);
        db.enqueue(["c"]);
    }
    let (_folder, file) = file_of(&less);
    let removed = "remove\tb\t\t\t\t\t\t2\nremove\td\n";
    db.jobctl(["apply", &file, "--prune", "--dry-run"]).run().success().stdout(removed).stderr("");
    // Without --prune, `b` is only disabled, and its waiting runs still run.
    db.jobctl(["apply", &file, "--dry-run"]).run().success().stdout("disable\tb\ndisable\td\n");
    let refused = db.jobctl(["apply", &file, "--prune"]).run().exits(2).stdout("");
    refused.stderr_has("it would remove 2 definitions, and lose 2 waiting runs, and stdin is not");
    db.jobctl(["apply", &file, "--prune", "--yes"]).run().success().stdout(removed);
    // The table also shows the due times and the waiting runs of a removed schedule.
    let scheduled = format!("{all}[jobs.e]\nshell = 'true'\nschedule = '@hourly'\n");
    db.apply(&scheduled);
    db.enqueue(["b"]);
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() WHERE name = 'e'");
    let shown = db.jobctl(["apply", &file, "--prune", "--dry-run", "--format", "table"]).run();
    shown.success().stdout_has("DUE SINCE").stdout_has("WAITING RUNS");
}

/// A value of each key that `[defaults]` can have, except hooks.
const OF_ALL_JOBS: &str = "\
    cwd = '/tmp'\nenv = { A = 'a' }\npermanent_exit_codes = [9]\nsnooze_exit_codes = [8]\n\
    payload = { a = 1 }\ntime_zone = 'Europe/Berlin'\ncatch_up = 'skip'\neach_worker = true\n\
    workers = ['web*']\noverlap = 'allow'\nmax_running = 2\nrate = '60/1m'\nburst = 3\n\
    max_running_per_share = 1\nrate_per_share = '5/1m'\nlock = 'l'\nmax_waiting = 9\n\
    when_full = 'drop_new'\nsnooze = 'job'\npass_result = true\nresult = 'json'\n\
    max_attempts = 2\ntimeout = '5m'\nmax_age = '2d'\nmax_lag = '20m'\nalert_after = 1\n\
    usual = '1m..2m'\nexpires = '1h'\nkeep = '1d'\nkeep_dead = '2d'\nbackoff = 'fixed:1m'\n\
    priority = 7\nqueue = 'mail'\nspread = '1m'\nenqueuers = ['postgres']\n\
    enqueue_may_set = ['queue']\nenabled = false\n";

#[test]
fn defaults_give_a_job_each_key_that_it_does_not_set() {
    let db = TestDb::new();
    let job = "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n";
    db.apply(&format!("{job}{OF_ALL_JOBS}"));
    // The same definition, so nothing changes.
    assert_eq!(db.apply(&format!("[defaults]\n{OF_ALL_JOBS}{job}")), "");
    assert_eq!(
        db.apply(&format!("[defaults]\n{OF_ALL_JOBS}{job}queue = 'own'\n")),
        "change\ta\tqueue\t\"mail\"\t\"own\"\n"
    );
    // A key without its default has the value that it has without the table.
    let fewer = OF_ALL_JOBS.replace("queue = 'mail'\n", "").replace("burst = 3\n", "");
    assert_eq!(
        db.apply(&format!("[defaults]\n{fewer}{job}")),
        "change\ta\tburst\t3\nchange\ta\tqueue\t\"own\"\t\"default\"\n"
    );
    // OF_ALL_JOBS has each key of the reference that `[defaults]` can have.
    let reference = std::fs::read_to_string("docs/reference.md").unwrap();
    let table = reference.split("| key | meaning | default |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    let keys = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let others = ["shell", "http", "schedule", "after", "when", "on_dead", "on_success", "on_end"];
    for key in keys.filter(|key| !others.contains(key)) {
        assert!(OF_ALL_JOBS.contains(&format!("{key} = ")), "{key}");
    }
}

#[test]
fn a_default_has_no_effect_on_jobs_that_can_t_have_it() {
    let db = TestDb::new();
    db.apply(&format!(
        "[defaults]\n{OF_ALL_JOBS}when = 'any_end'\n\
         [jobs.call]\nhttp = {{ url = 'http://a' }}\nenabled = true\n\
         [jobs.first]\nshell = 'true'\nschedule = '@daily'\nspread = '0s'\n\
         [jobs.next]\nshell = 'true'\nafter = ['first']\n"
    ));
    // Returns a function that returns the value of a key of this job; empty: the job has no value.
    let keys_of = |job: &str| {
        let shown = db.jobctl(["jobs", job, "--json"]).run().success().stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        move |key: &str| shown["keys"].get(key).map(ToString::to_string).unwrap_or_default()
    };
    let (call, first, next) = (keys_of("call"), keys_of("first"), keys_of("next"));
    assert_eq!([call("cwd"), call("time_zone"), call("timeout")], ["", "", "\"5m\""]);
    assert_eq!([first("when"), first("each_worker")], ["", "true"]);
    assert_eq!([next("when"), next("each_worker"), next("workers")], ["\"any_end\"", "", ""]);
}

#[test]
fn a_mistake_in_the_defaults_is_reported_once() {
    let db = TestDb::new();
    let refused = |defaults: &str, why: &str| {
        let file =
            format!("[defaults]\n{defaults}\n[jobs.a]\nshell = 'x'\n[jobs.b]\nshell = 'x'\n");
        let apply = db.jobctl(["apply", "-"]).stdin(file).run().exits(2).stdout("");
        apply.stderr(&format!("jobctl: cannot apply: -:2: {why}\n"));
    };
    // Keys that no default can have.
    for (key, value) in [
        ("shell", "'x'"),
        ("http", "{ url = 'http://a' }"),
        ("schedule", "'@daily'"),
        ("after", "['c']"),
    ] {
        let why = "says what one job runs, or when; write it in its [jobs.NAME] table";
        refused(&format!("{key} = {value}"), &format!("`defaults`: `{key}` {why}"));
    }
    refused("queu = 'x'", "`defaults`: `queu`: unknown key; did you mean `queue`?");
    refused(
        "max_attempts = 0",
        "`defaults`: `max_attempts`: must be a whole number from 1 to 1000",
    );
    let why = "there is no time zone `Mars`; write a name such as Europe/Berlin, or UTC";
    refused("time_zone = 'Mars'", &format!("`defaults`: `time_zone`: {why}"));
}

/// Cron's times are local, so these would fire an hour or two late.
#[test]
fn apply_says_once_that_times_are_in_utc_if_the_host_has_another_zone() {
    let says = "jobctl: schedules without `time_zone` fire in UTC, but this host's zone is";
    let apply = |db: &TestDb, file: &str, zone: &str| {
        db.jobctl(["apply", "-"]).stdin(file).env("TZ", zone).run().success().stderr
    };
    let job = |name: &str, schedule: &str| {
        format!("[jobs.{name}]\nshell = 'true'\nschedule = '{schedule}'\n")
    };
    let daily = job("a", "0 2 * * *") + &job("b", "0 3 1 * *");
    for (zone, is_said) in [
        ("Europe/Berlin", true),
        ("Europe/London", true),
        ("Asia/Kolkata", true),
        ("UTC", false),
        ("Etc/UTC", false),
        ("Africa/Abidjan", false),
    ] {
        let said = apply(&TestDb::new(), &daily, zone);
        let line = if is_said { format!("{says} {zone}; ") } else { String::new() };
        assert!(said.starts_with(&line) && said.lines().count() == usize::from(is_said), "{said}");
    }
    // Files whose times do not depend on a zone that the file leaves out.
    let berlin = |file: &str| apply(&TestDb::new(), file, "Europe/Berlin");
    for file in [
        format!("[defaults]\ntime_zone = 'UTC'\n{daily}"),
        job("a", "0 2 * * *") + "time_zone = 'UTC'\n",
        // These schedules fire at the same instants in all zones.
        job("a", "*/5 * * * *") + &job("b", "@every 90m") + &job("c", "@hourly"),
        "[jobs.a]\nshell = 'true'\n".to_owned(),
    ] {
        assert_eq!(berlin(&file), "", "{file}");
    }
    // `apply` says it only of jobs that are new or changed.
    let db = TestDb::new();
    assert!(apply(&db, &daily, "Europe/Berlin").starts_with(says));
    assert_eq!(apply(&db, &daily, "Europe/Berlin"), "");
    assert_eq!(apply(&db, &format!("{daily}priority = 1\n"), "Europe/Berlin").lines().count(), 1);
}
