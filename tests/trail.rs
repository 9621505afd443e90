//! The trail: each change that a person asks for has one event, with its user and reason.

use serde_json::Value;

use crate::cancel::enqueue_in_status;
use crate::support::{Invocation, Role, TestDb, jobctl, temp_dir};

/// Runs a command as the user `ana`, on the host of the test.
fn as_ana<'db>(command: Invocation<'db>) -> Invocation<'db> {
    command.env("SUDO_USER", "ana")
}

/// Runs a command as the user `ana` with the reason `drill`.
fn act_as_ana(db: &TestDb, words: &[&str]) {
    as_ana(db.jobctl(words.iter().copied())).args(["--reason", "drill"]).run().success();
}

/// Returns the events since the last call, and deletes them.
fn take_events(db: &TestDb) -> String {
    let events = db.query(
        "SELECT action, run_id, job, split_part(host_user, '@', 1), reason, detail
         FROM jobctl.job_events ORDER BY id",
    );
    db.execute("DELETE FROM jobctl.job_events");
    events
}

fn host() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_owned()
}

#[test]
fn each_action_on_runs_writes_its_event_with_user_and_reason() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let [queued, running, failed, dead] =
        ["queued", "running", "failed", "dead"].map(|status| enqueue_in_status(&db, status));
    // An event is `action|run|job|user|reason|detail`. The events of one command are in the order
    // of the runs' ids.
    act_as_ana(&db, &["retry", &dead.to_string(), &failed.to_string()]);
    assert_eq!(
        take_events(&db),
        format!("retry|{failed}|shell|ana|drill|was failed\nretry|{dead}|shell|ana|drill|was dead")
    );
    act_as_ana(&db, &["cancel", &running.to_string(), &queued.to_string()]);
    assert_eq!(
        take_events(&db),
        format!(
            "cancel|{queued}|shell|ana|drill|was queued\n\
             cancel|{running}|shell|ana|drill|was running"
        )
    );
    act_as_ana(&db, &["prune", &queued.to_string()]);
    assert_eq!(take_events(&db), format!("prune|{queued}|shell|ana|drill|was cancelled"));

    // A prune by age has one event with the numbers, in the order of the statuses' names.
    let succeeded = enqueue_in_status(&db, "succeeded");
    let cancelled = enqueue_in_status(&db, "cancelled");
    assert!(succeeded < cancelled);
    act_as_ana(&db, &["prune", "--older-than", "0s"]);
    assert_eq!(take_events(&db), "prune|||ana|drill|1 cancelled, 1 succeeded");

    // A command that changes nothing writes no event.
    act_as_ana(&db, &["prune", "--older-than", "0s", "--dry-run"]);
    act_as_ana(&db, &["prune", "--older-than", "0s"]);
    db.jobctl(["retry", "999999"]).run().exits(3);
    let done = enqueue_in_status(&db, "succeeded").to_string();
    db.jobctl(["retry", &done]).run().exits(4);
    db.jobctl(["cancel", &done]).run().exits(4);
    assert_eq!(take_events(&db), "");

    // A variable can have the reason. The event also has the role of the session.
    db.jobctl(["prune", &done]).env("JOBCTL_PRUNE_REASON", "by variable").run().success();
    assert_eq!(
        db.query("SELECT reason, recorded_by = session_user FROM jobctl.job_events"),
        "by variable|t"
    );
}

#[test]
fn each_change_of_a_definition_writes_its_event() {
    let db = TestDb::new();
    let folder = temp_dir();
    let apply = |text: &str, flags: &[&str]| {
        std::fs::write(folder.path().join("jobs.toml"), text).unwrap();
        let apply = as_ana(db.jobctl(["apply", "jobs.toml"])).current_dir(folder.path());
        apply.args(flags.iter().copied()).args(["--yes", "--reason", "drill"]).run().success();
    };
    let both = "[jobs.a]\nshell = 'true'\n[jobs.b]\nhttp = { url = 'http://a.example' }\n";
    apply(both, &["--dry-run"]);
    assert_eq!(take_events(&db), "");
    apply(both, &[]);
    assert_eq!(take_events(&db), "add||a|ana|drill|\nadd||b|ana|drill|");
    apply(both, &[]);
    assert_eq!(take_events(&db), "", "nothing has changed");

    // The event of a command or an address only names the key, because the value may be a secret.
    apply(
        "[jobs.a]\nshell = 'false'\ncwd = '/'\ntimeout = '5s'\nschedule = '@yearly'\n
         [jobs.b]\nhttp = { url = 'http://b.example' }\nenabled = false\n",
        &[],
    );
    assert_eq!(
        take_events(&db),
        "change||a|ana|drill|shell, cwd, \
             schedule none -> \"@yearly\", timeout none -> \"5s\"\n\
         disable||b|ana|drill|http.url, \
             enabled true -> false"
    );

    act_as_ana(&db, &["pause", "a"]);
    act_as_ana(&db, &["resume", "a"]);
    assert_eq!(take_events(&db), "pause||a|ana|drill|\nresume||a|ana|drill|");
    db.jobctl(["pause", "absent"]).run().exits(3);

    // Jobs that are missing from the file are disabled, or removed with `--prune`.
    apply("[jobs.b]\nhttp = { url = 'http://b.example' }\n", &[]);
    assert_eq!(
        take_events(&db),
        "enable||b|ana|drill|enabled false -> true\ndisable||a|ana|drill|missing from the file"
    );
    apply("[jobs.c]\nshell = 'true'\n", &["--prune"]);
    assert_eq!(
        take_events(&db),
        "add||c|ana|drill|\nremove||a|ana|drill|missing from the file\n\
         remove||b|ana|drill|missing from the file"
    );
}

#[test]
fn show_prints_the_trail_of_a_run_also_after_its_deletion() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "dead").to_string();
    act_as_ana(&db, &["retry", &id]);
    let by = format!("ana@{}", host());
    let shown = db.jobctl(["show", &id, "--format", "table"]).run().success();
    let (_, trail) = shown.stdout.split_once("\n\nTrail\n\n").unwrap();
    // The first line has the names of the columns.
    let words: Vec<_> = trail.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words, ["now", "retry", &by, "was", "dead", "drill"], "{trail}");
    let json: Value =
        serde_json::from_str(&db.jobctl(["show", &id, "--json"]).run().success().stdout).unwrap();
    assert_eq!(json["events"][0]["host_user"], by.as_str());

    // Another run does not show these events.
    let other = enqueue_in_status(&db, "dead").to_string();
    db.jobctl(["show", &other, "--format", "table"]).run().success().prints_nowhere("Trail");

    // After a deletion, the error names the user that deleted the run.
    act_as_ana(&db, &["cancel", &id]);
    act_as_ana(&db, &["prune", &id]);
    for form in [&[][..], &["--output"]] {
        db.jobctl(["show", &id])
            .args(form.iter().copied())
            .run()
            .exits(3)
            .stderr_has(&format!("jobctl: cannot show run {id}: no such run; {by} pruned it at 2"));
    }
}

#[test]
fn prune_keeps_events_as_long_as_dead_runs_and_at_least_90_days() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    let id = enqueue_in_status(&db, "dead").to_string();
    let set_age_of_events = |days| {
        db.execute(&format!(
            "UPDATE jobctl.job_events SET recorded_at = now() - interval '{days} days'"
        ));
    };
    let events = || db.query("SELECT action FROM jobctl.job_events");
    act_as_ana(&db, &["retry", &id]);
    set_age_of_events(89);
    db.jobctl(["prune", "--dead-older-than", "0s"]).run().success();
    assert_eq!(events(), "retry", "younger than 90 days");
    set_age_of_events(91);
    db.jobctl(["prune", "--dead-older-than", "92d"]).run().success();
    assert_eq!(events(), "retry", "dead runs of this age are kept, too");
    db.jobctl(["prune"]).run().success();
    assert_eq!(events(), "");

    // A tick with `--prune` deletes old events, too. Its own event names its worker.
    db.execute(&format!("GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {}", worker.name()));
    db.jobctl(["cancel", &id]).run().success();
    set_age_of_events(91);
    worker.jobctl(["tick", "--prune", "--older-than", "0s", "--worker", "w"]).run().success();
    assert_eq!(
        db.query("SELECT action, host_user, recorded_by, detail FROM jobctl.job_events"),
        format!("prune|w|{}|1 cancelled", worker.name())
    );
}

#[test]
fn a_reason_is_not_empty_and_not_longer_than_a_thousand_characters() {
    for reason in ["", &"é".repeat(1001)] {
        jobctl(["retry", "1", "--reason", reason]).run().exits(2).stderr_has("'--reason <TEXT>'");
    }
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "dead").to_string();
    db.jobctl(["retry", &id, "--reason", &"é".repeat(1000)]).run().success();
}

#[test]
fn prune_keeps_the_event_of_a_pause_that_lasts() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n");
    act_as_ana(&db, &["pause", "a"]);
    act_as_ana(&db, &["resume", "a"]);
    db.jobctl(["pause", "a", "--reason", "disk is full"]).run().success();
    // After 90 days, events are pruned.
    db.execute(
        "UPDATE jobctl.job_events
         SET recorded_at = recorded_at - interval '91 days';
         UPDATE jobctl.job_definitions SET paused_at = paused_at - interval '91 days'",
    );
    db.jobctl(["prune"]).run().success();
    assert_eq!(db.query("SELECT action, reason FROM jobctl.job_events"), "pause|disk is full");
    db.jobctl(["jobs", "a"]).run().success().stdout_has("disk is full");
}

#[test]
fn trail_lists_the_changes_of_all_runs_definitions_queues_and_workers() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let job = |timeout: &str| {
        let secret = "http = { url = 'http://a.example/?token=s3cret' }";
        format!("[jobs.a]\n{secret}\ntimeout = '{timeout}'\n")
    };
    let apply = |text: &str| {
        as_ana(db.jobctl(["apply", "-", "--yes"])).stdin(text).run().success();
    };
    // The events, from the oldest to the newest.
    apply(&job("5s"));
    apply(&job("10s"));
    // One run is of the job `a`, and the other in the queue `slow`.
    let [a, b] = ["dead", "dead"].map(|status| enqueue_in_status(&db, status));
    db.execute(&format!("UPDATE jobctl.job_runs SET job_type = 'a' WHERE id = {a}"));
    db.execute(&format!("UPDATE jobctl.job_runs SET queue = 'slow' WHERE id = {b}"));
    act_as_ana(&db, &["retry", &a.to_string(), &b.to_string()]);
    act_as_ana(&db, &["hold", "--queue", "slow"]);
    act_as_ana(&db, &["hold", "--worker", "web1"]);
    db.jobctl(["release", "--queue", "slow"]).env("SUDO_USER", "bob").run().success();
    act_as_ana(&db, &["pause", "a"]);
    db.execute(
        "UPDATE jobctl.job_events SET recorded_at = now() - interval '2 days' WHERE action = 'add'",
    );

    // Returns the events that match a filter, the newest first, as `ACTION:DETAIL`.
    let trail = |filter: &[&str]| {
        let listed = db.jobctl(["trail", "--json"]).args(filter.iter().copied()).run().success();
        let rows: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
        let shown = |row: &Value| {
            let detail = row["detail"].as_str().unwrap_or_default().replace(' ', "-");
            format!("{}:{detail}", row["action"].as_str().unwrap())
        };
        rows.iter().map(shown).collect::<Vec<_>>().join(" ")
    };
    let [pause, release] = ["pause:", "release:queue-slow"];
    let [hold_worker, hold_queue] = ["hold:worker-web1", "hold:queue-slow"];
    let [retry, change, add] = ["retry:was-dead", "change:timeout-\"5s\"-->-\"10s\"", "add:"];
    let all = trail(&[]);
    let expected = [pause, release, hold_worker, hold_queue, retry, retry, change, add];
    assert_eq!(all.split(' ').collect::<Vec<_>>(), expected, "{all}");
    assert!(!all.contains("s3cret"));
    // A filter, and the events that match it.
    for (filter, wanted) in [
        (&["--limit", "1"][..], pause.to_owned()),
        (&["--by", "BOB"], release.to_owned()),
        (&["--by", "carl"], String::new()),
        (&["--action", "hold"], format!("{hold_worker} {hold_queue}")),
        (&["--job", "a"], format!("{pause} {retry} {change} {add}")),
        (&["--queue", "slow"], format!("{release} {hold_queue} {retry}")),
        (&["--worker", "web1"], hold_worker.to_owned()),
        (&["--until", "1d"], add.to_owned()),
        (&["--since", "1d", "--action", "add"], String::new()),
        (&["--since", "3d", "--action", "add"], add.to_owned()),
    ] {
        assert_eq!(trail(filter), wanted, "{filter:?}");
    }

    // The table shows the events of one command as one row.
    let shown = db.jobctl(["trail", "--format", "table", "--action", "retry"]).run().success();
    shown.stdout_has(" 2 runs ").stdout_has("was dead").stdout_has("drill");
    Role::granted(&db, "viewer").jobctl(["trail", "--by", "bob"]).run().success();
}

#[test]
fn the_flag_action_of_trail_knows_the_actions_that_the_table_allows() {
    let db = TestDb::new();
    let refused = db.jobctl(["trail", "--action", "retried"]).run().exits(2);
    let of_table = db.query(
        r"SELECT string_agg(word[1], ', ')
          FROM pg_constraint,
              regexp_matches(pg_get_constraintdef(oid), '\m([a-z-]+)''::', 'g') AS word
          WHERE conname = 'action_is_known' AND connamespace = 'jobctl'::regnamespace",
    );
    refused.stderr_has(&format!("[possible values: {of_table}]"));
}

#[test]
fn a_table_shows_a_command_for_many_runs_as_one_line() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\n");
    let cancel = |job: &str, reason: &str| {
        let cancel = ["cancel", "--all-waiting", "--yes", "--job", job, "--reason", reason];
        as_ana(db.jobctl(cancel)).run().success();
    };
    // Inserts waiting runs. Of the runs of `a`, a third has failed and waits for the next attempt.
    let enqueue = |job: &str, runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, status, attempts, run_at)
             SELECT '{job}', CASE WHEN n % 3 = 0 AND '{job}' = 'a' THEN 'failed' ELSE 'queued' END,
                 n % 3, now() + interval '1 hour'
             FROM generate_series(1, {runs}) AS n"
        ));
    };
    act_as_ana(&db, &["hold", "--queue", "early"]);
    enqueue("a", 1200);
    cancel("a", "runaway");
    act_as_ana(&db, &["hold", "--queue", "mail"]);
    enqueue("b", 2);
    cancel("b", "runaway");
    enqueue("b", 1);
    cancel("b", "by mistake");

    let trail = |flags: &[&str]| {
        let trail = db.jobctl(["trail", "--limit", "5"]).args(flags.iter().copied());
        trail.run().success().stdout
    };
    let table = trail(&["--format", "table"]);
    // Returns a line without the time, which comes first.
    let from_action = |line: &str| {
        let action = ["cancel", "hold"].iter().find_map(|action| line.find(action)).unwrap();
        line[action..].split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown: Vec<_> = table.lines().skip(1).map(from_action).collect();
    let ana = format!("ana@{}", host());
    // A line for one run has its id. A line for runs in several statuses names no status.
    assert_eq!(
        shown[..4],
        [
            format!("cancel 1203 b was queued {ana} by mistake"),
            format!("cancel 2 runs b was queued {ana} runaway"),
            format!("hold queue mail {ana} drill"),
            format!("cancel 1,200 runs a {ana} runaway"),
        ],
        "{table}"
    );
    assert!(shown[4].starts_with("hold queue early"), "{table}");

    // A line for runs of several jobs names no job.
    enqueue("a", 1);
    enqueue("b", 1);
    as_ana(db.jobctl(["cancel", "--all-waiting", "--yes"])).run().success();
    assert!(trail(&["--format", "table"]).contains("2 runs"), "{table}");
    assert!(!trail(&["--format", "table"]).lines().nth(1).unwrap().contains(" b "));

    // Programs get a row for each event.
    for format in ["tsv", "json-lines"] {
        assert!(!trail(&["--format", format]).contains(" runs"));
    }
}

#[test]
fn the_detail_of_an_event_is_cut_after_a_thousand_characters() {
    let db = TestDb::new();
    // The second `apply` changes a long list.
    for role in ["pg_monitor", "pg_signal_backend"] {
        let roles = format!("'{role}', ").repeat(50);
        db.apply(&format!("[jobs.a]\nshell = 'true'\nenqueuers = [{roles}]\n"));
    }
    let detail = db.query("SELECT detail FROM jobctl.job_events WHERE action = 'change'");
    assert!(detail.starts_with("enqueuers [\"pg_monitor") && detail.ends_with('…'), "{detail}");
    assert_eq!(detail.chars().count(), 1000);
}
