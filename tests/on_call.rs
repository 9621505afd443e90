//! The view of the person on call: after a bad week, every command names the same problems.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::docs;
use crate::report::text;
use crate::support::{TestDb, temp_dir};

/// A week of sixty thousand runs: three storms of failures that recovered, a full disk on web2,
/// which then stopped, a queue without a worker, dead runs, a backup that never succeeded, and a
/// sequence that a restore left behind its table.
pub(crate) fn after_a_bad_week() -> TestDb {
    let db = TestDb::new();
    db.apply(
        "[jobs.mail]\nshell = 'true'\n[jobs.thumbnails]\nshell = 'true'\n\
         [jobs.backup]\nshell = 'true'\nschedule = '0 2 * * *'\nmax_age = '26h'\ntimeout = '1h'\n",
    );
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since, queues)
             VALUES
             ('web1', '0.1.0', now(), now() - interval '7 days', '{default}'),
             ('web2', '0.1.0', now() - interval '3 hours', now() - interval '7 days', '{default}');
         UPDATE jobctl.job_definitions SET created_at = now() - interval '7 days';
         INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at)
             SELECT 'mail', 'succeeded', 2, at - interval '1 s', at
             FROM (
                 SELECT now() - n * interval '10 s' AS at FROM generate_series(1, 60000) AS n
             ) AS ended;
         -- Storms: in these hours, the first attempt of every run fails.
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
                 error_type, error, http_status)
             SELECT run.id, 1, 'web1', finished_at, finished_at, 'failed', 'http_status',
                 'HTTP status 503', 503
             FROM jobctl.job_runs AS run
             WHERE EXISTS (
                 SELECT FROM generate_series(1, 3) AS storm
                 WHERE run.finished_at BETWEEN now() - storm * interval '40 hours'
                     AND now() - storm * interval '40 hours' + interval '1 hour'
             );
         -- The full disk.
         WITH failed AS (
             INSERT INTO jobctl.job_runs (job_type, status, attempts, failed_at, finished_at,
                     error_type, last_error)
                 SELECT 'thumbnails', CASE WHEN n <= 20 THEN 'dead' ELSE 'succeeded' END,
                     CASE WHEN n <= 20 THEN 1 ELSE 2 END,
                     now() - n * interval '30 s' - interval '3 hours', now(), 'exit_code',
                     'exit status 1'
                 FROM generate_series(1, 400) AS n
                 RETURNING id, failed_at
         )
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
                 error_type, error, exit_code, output)
             SELECT id, 1, 'web2', failed_at, failed_at, 'failed', 'exit_code', 'exit status 1', 1,
                 E'convert: write\\nno space left on device\\n'
             FROM failed;
         INSERT INTO jobctl.job_runs (job_type, queue, run_at)
             SELECT 'thumbnails', 'slow', now() - interval '2 hours' FROM generate_series(1, 5);
         SELECT setval('jobctl.job_runs_id_seq', 1, false);
         ANALYZE jobctl.job_runs, jobctl.job_attempts",
    );
    db
}

/// Returns code and subject of each bad finding of the work. Findings without a code are about the
/// server, whose roles other tests change at the same time.
fn subjects(findings: &Value) -> BTreeSet<String> {
    let subject = |finding: &Value| {
        ["code", "job_type", "queue", "worker"].map(|field| finding[field].to_string()).join(" ")
    };
    let findings = findings.as_array().unwrap().iter();
    let bad = findings.filter(|one| one["severity"] == "bad" && one["code"].is_string());
    bad.map(subject).collect()
}

#[test]
fn after_a_bad_week_every_command_names_the_same_problems() {
    let db = after_a_bad_week();
    let json = |line: &[&str]| -> Value {
        serde_json::from_str(&db.jobctl(line.iter().copied()).run().stdout).unwrap()
    };
    let check = json(&["check", "--json"]);
    let named = subjects(&check["findings"]);
    let codes: Vec<_> =
        check["findings"].as_array().unwrap().iter().map(|one| one["code"].as_str()).collect();
    let expected =
        ["worker_silent", "sequence_behind", "runs_dead", "queue_unserved", "job_stale"].map(Some);
    assert_eq!(codes, expected);

    // These commands have the same codes and subjects.
    assert_eq!(subjects(&json(&["doctor", "--json"])), named);
    assert_eq!(subjects(&json(&["status", "--json"])["findings"]), named);
    let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
    let counted = |code: &str| metrics.contains(&format!("jobctl_findings{{code=\"{code}\"}} 1\n"));
    assert!(codes.iter().flatten().all(|code| counted(code)), "{metrics}");

    // These commands print the same sentences.
    let page = db.jobctl(["report"]).run().success().stdout;
    let doctor = db.jobctl(["doctor"]).run().exits(1).stdout;
    let lines = db.jobctl(["check"]).run().exits(1).stdout;
    for finding in check["findings"].as_array().unwrap() {
        let found = finding["found"].as_str().unwrap();
        assert!([&page, &doctor, &lines].iter().all(|text| text.contains(found)), "{found}");
    }
    // A waiting run of the queue names its finding, too.
    let waiting = db.query("SELECT min(id) FROM jobctl.job_runs WHERE queue = 'slow'");
    db.jobctl(["show", &waiting])
        .run()
        .success()
        .stdout_has("no worker serves queue slow, which has 5 overdue runs");
}

#[test]
fn one_command_finds_the_full_disk_on_one_host() {
    let db = after_a_bad_week();
    let groups = db.jobctl(["failures", "--since", "1d", "--group", "--json"]).run().success();
    let groups: Value = serde_json::from_str(&groups.stdout).unwrap();
    assert_eq!(groups.as_array().unwrap().len(), 1, "{groups}");
    assert_eq!(groups[0]["workers"][0], "web2");
    assert_eq!(groups[0]["failures"], 400);
    assert_eq!(groups[0]["cause"], "no space left on device");
    // Over the whole week, the three storms follow.
    let week = db.jobctl(["failures", "--since", "7d", "--group", "--json"]).run().success();
    let week: Value = serde_json::from_str(&week.stdout).unwrap();
    let jobs: Vec<_> = week.as_array().unwrap().iter().map(|one| &one["jobs"][0]).collect();
    assert_eq!(jobs, ["thumbnails", "mail", "mail", "mail"]);
}

#[test]
fn the_report_and_failures_name_the_same_errors() {
    let db = after_a_bad_week();
    // The bad week has left the sequence behind its table, so an enqueue would fail.
    db.execute("SELECT setval('jobctl.job_runs_id_seq', max(id)) FROM jobctl.job_runs");
    let run = |script: &str, flags: [&str; 2]| {
        db.enqueue(
            ["shell", "--queue", "import"]
                .into_iter()
                .chain(flags)
                .chain(["--", "sh", "-c", script]),
        );
    };
    // A run whose three attempts fail in different ways, and four runs that die.
    let retried = "case $JOBCTL_ATTEMPT in 1) exit 28 ;; 2) kill -9 $$ ;; 3) sleep 60 ;; esac";
    run(retried, ["--timeout", "1s"]);
    for script in ["exit 137", "exit 137", "exit 137", "exit 2"] {
        run(script, ["--max-attempts", "1"]);
    }
    // The first run fails three times, and its fourth attempt succeeds.
    for _ in 1..=4 {
        db.make_waiting_runs_due();
        db.jobctl(["tick", "--worker", "web1", "--queue", "import"]).run().success();
    }
    let week = db.jobctl(["failures", "--since", "7d", "--group", "--json"]).run().success();
    let week: Value = serde_json::from_str(&week.stdout).unwrap();
    let week = week.as_array().unwrap();
    // The disk, three storms, three attempts, and two causes of death.
    assert_eq!(week.len(), 1 + 3 + 3 + 2, "{week:#?}");
    let page = db.jobctl(["report", "--since", "7d"]).run().success().stdout;
    let page = text(&page).replace(',', "");
    let (_, page) = page.split_once("Incidents").unwrap();
    let (page, _) = page.split_once("Timeline").unwrap();
    // Each group of `failures` is a row of the page.
    for group in week {
        let [cause, error_type] = ["cause", "error_type"].map(|it| group[it].as_str().unwrap());
        let [jobs, workers] = ["jobs", "workers"].map(|it| {
            let names = group[it].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
            names.collect::<Vec<_>>().join(", ")
        });
        let row = format!("{jobs} {} on {workers}: {cause} {error_type}", group["failures"]);
        assert!(page.contains(&row), "no `{row}` in\n{page}");
    }
    assert_eq!(page.matches("jobctl list --incident ").count(), week.len(), "{page}");
    for dead in ["3 dead shell 3 on web1: exit status 137", "1 dead shell 1 on web1: exit status 2"]
    {
        assert!(page.contains(dead), "no `{dead}` in\n{page}");
    }
}

/// The rest of the week: customers, a backlog behind a rate, a backup that grew, holds, a corrected
/// definition, a running job that usually is faster, a job that fails, an alert, and a run that was
/// cancelled by mistake.
fn what_else_happened(db: &TestDb) {
    db.apply(
        "[jobs.mail]\nshell = 'true'\n[jobs.thumbnails]\nshell = 'true'\n\
         [jobs.backup]\nshell = 'true'\nschedule = '0 2 * * *'\nmax_age = '26h'\ntimeout = '3h'\n\
         [jobs.newsletter]\nshell = 'true'\nrate = '60/1m'\n[jobs.crm]\nshell = 'true'\n\
         [jobs.sync_crm]\nshell = 'echo no such customer; exit 1'\n",
    );
    db.execute(
        "SELECT setval('jobctl.job_runs_id_seq', max(id)) FROM jobctl.job_runs;
         UPDATE jobctl.job_runs SET share = 'customer-' || id % 7
             WHERE job_type = 'thumbnails' AND status = 'dead';
         INSERT INTO jobctl.job_runs (job_type, created_at, run_at)
             SELECT 'newsletter', now() - interval '5 min', now() - interval '5 min'
             FROM generate_series(1, 2200);
         INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at)
             SELECT 'newsletter', 'succeeded', 1, at, at
             FROM (
                 SELECT now() - n * interval '6 s' AS at FROM generate_series(0, 100) AS n
             ) AS ended;
         INSERT INTO jobctl.job_figures (job_type, day, succeeded, run_time_seconds,
                 last_succeeded_at)
             SELECT 'backup', (at AT TIME ZONE 'UTC')::date, 1, 60 * (165 - 15 * ago), at
             FROM generate_series(1, 9) AS ago
             -- Whatever the time of day, the last one is older than max_age.
             CROSS JOIN LATERAL (SELECT now() - interval '3 hours' - ago * interval '1 day' AS at)
                 AS ended;
         INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
                 started_at, live_output)
             VALUES ('crm', 'running', 1, 'web1', now() + interval '2 min',
                 now() - interval '74 min', 'page 17 of 20');
         WITH usual AS (
             INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at)
                 SELECT 'crm', 'succeeded', 1, now() - interval '2 h', now() - interval '2 h'
                 FROM generate_series(1, 9)
                 RETURNING id
         )
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
             SELECT id, 1, 'web1', now() - interval '129 min', now() - interval '2 h', 'succeeded'
             FROM usual;
         INSERT INTO jobctl.job_runs (job_type, payload, idempotency_key)
             VALUES ('crm', '{\"invoice\": 4711}', 'invoice-4711')",
    );
    // A job that fails again and again, and is not dead yet.
    let failing = db.enqueue(["sync_crm"]).to_string();
    for _ in 0..3 {
        db.execute(&format!("UPDATE jobctl.job_runs SET run_at = now() WHERE id = {failing}"));
        db.jobctl(["tick", "--quiet", "--worker", "web1", "--run", &failing]).run();
    }
    // `check` sends an alert to the command `cat`.
    let state = temp_dir();
    let check = db.jobctl(["check", "--exec", "cat"]);
    check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(1);
    db.jobctl(["hold", "--job", "crm", "--reason", "while we move the server"]).run().success();
    db.jobctl(["cancel", "--all-waiting", "--key", "invoice-4711", "--yes"]).run().success();
    db.execute("UPDATE jobctl.job_holds SET held_at = now() - interval '6 days'");
}

/// Returns whether the page shows such a command: this subcommand with these flags.
fn is_on_the_page(page: &str, words: &[&str]) -> bool {
    let flags = words.iter().filter(|word| word.starts_with("--"));
    let flags: Vec<_> = flags.collect();
    let command = format!("jobctl {}", words[0]);
    page.lines().any(|line| line.contains(&command) && flags.iter().all(|it| line.contains(**it)))
}

#[test]
fn two_commands_at_most_answer_each_question_of_a_bad_week() {
    let db = after_a_bad_week();
    db.allow_running_runs_at_end();
    what_else_happened(&db);
    // Runs that the questions are about, and the incident of the full disk.
    let last = |condition: &str| {
        db.query(&format!("SELECT max(id) FROM jobctl.job_runs WHERE {condition}"))
    };
    let [unserved, failed, running, newsletter, invoice] = [
        "queue = 'slow'",
        "job_type = 'thumbnails' AND status = 'dead'",
        "status = 'running'",
        "job_type = 'newsletter' AND status = 'queued'",
        "idempotency_key = 'invoice-4711'",
    ]
    .map(last);
    let groups = db.jobctl(["failures", "--since", "1d", "--group", "--json"]).run().success();
    let groups: Value = serde_json::from_str(&groups.stdout).unwrap();
    let disk = groups[0]["incident"].as_str().unwrap().to_owned();
    let page = fs::read_to_string(docs::root().join("docs/operations.md")).unwrap();
    // A question, the command that answers it, and words of the answer. Words in capitals stand for
    // the values in `names`.
    let questions: [(&str, &str, &[&str]); 36] = [
        ("Is anything wrong?", "check", &["worker web2 does not tick", "20 dead runs"]),
        ("What needs me first?", "status", &["Needs attention", "worker web2 does not tick"]),
        (
            "What failed last night, where and why?",
            "failures --since 1d --group",
            &["400", "thumbnails", "web2", "no space left on device"],
        ),
        ("What failed this week?", "failures --since 7d --group", &["HTTP status 503"]),
        ("Which runs are dead?", "list-dead", &["thumbnails", "exit status 1"]),
        ("Why did the dead runs die?", "list-dead --group", &["no space left on device"]),
        ("What did a failed run print?", "show FAILED --output", &["convert: write"]),
        ("What does a running job print?", "show RUNNING --output", &["page 17 of 20"]),
        ("What runs now, and since when?", "list --status running", &["crm", "1h 14m"]),
        ("Why does it not start?", "show UNSERVED", &["no worker serves queue slow"]),
        ("When will that one start?", "show NEWSLETTER", &["due runs are ahead"]),
        ("Which runs wait for a host?", "list --queue slow --status queued", &["thumbnails"]),
        (
            "Which customers were hit?",
            "list --incident DISK --limit 1000 --columns share",
            &["customer-3"],
        ),
        ("How long will the backlog take?", "status", &["AT BEST", "36m"]),
        ("Does it grow?", "status", &["TREND", "grows"]),
        (
            "What is stopped on purpose, and by a hold of which person?",
            "hold --list",
            &["crm", "6d", "@"],
        ),
        ("Why?", "status", &["while we move the server"]),
        ("What did my colleague do?", "trail --by ADA --since 7d", &["hold", "cancel"]),
        ("What changed in a job?", "trail --job backup", &["timeout", "1h", "3h"]),
        ("When did the backup last succeed?", "next", &["LAST SUCCESS", "ago"]),
        ("Does it take longer than last week?", "report", &["reaches its timeout in about"]),
        ("Which hosts work, with which login?", "status", &["web2", "LOGIN", "postgres"]),
        ("What did a host run?", "list --worker web2", &["thumbnails"]),
        ("Where is invoice 4711?", "list --payload invoice=4711", &["crm", "cancelled"]),
        ("Undo that", "retry INVOICE", &["queued"]),
        (
            "Run the victims of the disk again, and only those",
            "retry --all-dead --incident DISK --yes",
            &["queued", "20"],
        ),
        ("What would start now?", "tick --dry-run", &["newsletter"]),
        (
            "Which job keeps failing, although nothing of it is dead, and why?",
            "check",
            &["sync_crm fails: 3 failed attempts", "exit status 1: no such customer"],
        ),
        ("When is its next attempt?", "check", &["its next attempt is due at 20"]),
        ("Does a run take unusually long?", "status", &["longer than usual", "9m"]),
        ("When does what runs usually end?", "list --status running", &["USUAL END"]),
        ("Is it safe to deploy now?", "status", &["Safe to stop now: no, 1 run"]),
        ("What runs until tomorrow?", "next --within 1d", &["backup", "1 fire"]),
        (
            "Which alert was sent, and by which program?",
            "trail --action alert",
            &["new: 20 dead runs of thumbnails", "delivered to the command cat"],
        ),
        ("How did the last attempt end?", "status", &["LAST", "failed"]),
        ("Which jobs have failed in all?", "failures --since 7d", &["sync_crm"]),
    ];
    // Ada is the user that runs this test.
    let ada = db.query("SELECT host_user FROM jobctl.job_events ORDER BY id DESC LIMIT 1");
    let names = [
        ("ADA", &ada),
        ("FAILED", &failed),
        ("RUNNING", &running),
        ("UNSERVED", &unserved),
        ("NEWSLETTER", &newsletter),
        ("INVOICE", &invoice),
        ("DISK", &disk),
    ];
    for (question, command, expected) in questions {
        let words = command.split(' ').map(|word| {
            names.iter().find(|(name, _)| *name == word).map_or(word, |(_, id)| id.as_str())
        });
        let words: Vec<_> = words.collect();
        let tables = ["failures", "hold", "list", "list-dead", "next", "retry", "status", "trail"];
        let asked = db.jobctl(words.iter().copied());
        let is_table = tables.contains(&words[0]);
        let asked = if is_table { asked.args(["--format", "table"]) } else { asked };
        let answer = asked.run().stdout;
        let answer = if command == "report" { text(&answer) } else { answer };
        for expected in expected {
            assert!(answer.contains(expected), "{question} {command}: {expected}\n{answer}");
        }
        assert!(is_on_the_page(&page, &words), "`{command}` is not in docs/operations.md");
    }
}
