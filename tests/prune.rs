//! The runs that `prune` deletes and keeps; it never blocks other sessions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::docs::root;
use crate::retry::answer_at_terminal;
use crate::support::{Invocation, Role, TestDb, jobctl, temp_dir, wait_until};

/// Inserts a run of this age in days with one attempt in its history.
fn insert_aged(db: &TestDb, status: &str, days: u32) -> i64 {
    let id = enqueue_in_status(db, status);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET created_at = now() - interval '{days} days',
             finished_at = finished_at - interval '{days} days' WHERE id = {id};
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         VALUES ({id}, 1, 'w', now(), now(), 'failed')"
    ));
    id
}

/// Inserts this many runs that succeeded 31 days ago. In a new database, their ids begin with 1.
fn insert_succeeded(db: &TestDb, runs: u32) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, finished_at)
         SELECT 'shell', 'succeeded', 1, at, at
         FROM (
             SELECT now() - interval '31 days' - n * interval '1 second' AS at
             FROM generate_series(1, {runs}) AS n
         ) AS ended"
    ));
}

fn ids_of_all_runs(db: &TestDb) -> Vec<i64> {
    db.query("SELECT id FROM jobctl.job_runs ORDER BY id")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect()
}

#[test]
fn prune_deletes_only_old_finished_runs() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // Finished runs are kept for 30 days, and dead ones for 90. Of each status there is one run a
    // day younger than that, and one a day older.
    let mut kept = Vec::new();
    for status in STATUSES {
        let (younger, older) = if status == "dead" { (89, 91) } else { (29, 31) };
        kept.push(insert_aged(&db, status, younger));
        let old = insert_aged(&db, status, older);
        if matches!(status, "queued" | "running" | "failed" | "blocked") {
            kept.push(old);
        }
    }
    db.jobctl(["prune", "--dry-run"])
        .run()
        .success()
        .stdout("succeeded\t1\ncancelled\t1\ndead\t1\n")
        .stderr("");
    assert_eq!(ids_of_all_runs(&db).len(), 2 * STATUSES.len());
    db.jobctl(["prune"]).run().success().stdout("succeeded\t1\ncancelled\t1\ndead\t1\n").stderr("");
    assert_eq!(ids_of_all_runs(&db), kept);
    let history = db.query("SELECT run_id FROM jobctl.job_attempts ORDER BY run_id");
    assert_eq!(history, kept.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    db.jobctl(["prune"]).run().success().stdout("").stderr("");
    db.jobctl(["prune", "--json"]).run().success().stdout("[]\n");
    // Shorter ages delete the younger runs, too, and no unfinished one.
    let json = r#"[{"status":"succeeded","runs":1},{"status":"cancelled","runs":1}]"#;
    db.jobctl(["prune", "--older-than", "28d", "--json"])
        .run()
        .success()
        .stdout(&format!("{json}\n"));
    db.jobctl(["prune", "--dead-older-than", "88d"]).run().success().stdout("dead\t1\n");
    assert_eq!(
        db.query("SELECT DISTINCT status FROM jobctl.job_runs ORDER BY 1"),
        "blocked\nfailed\nqueued\nrunning"
    );
}

#[test]
fn a_definition_says_how_long_its_runs_are_kept() {
    let db = TestDb::new();
    let file = "[jobs.short]\nshell = 'true'\nkeep = '2d'\n\
                [jobs.long]\nshell = 'true'\nkeep = '40d'\nkeep_dead = '1d'\n";
    db.apply(file);
    let aged = |job: &str, status, days| {
        let id = insert_aged(&db, status, days);
        db.execute(&format!("UPDATE jobctl.job_runs SET job_type = '{job}' WHERE id = {id}"));
        id
    };
    let kept = [
        aged("short", "succeeded", 1),
        aged("short", "dead", 89),
        aged("long", "cancelled", 39),
        aged("long", "dead", 0),
        aged("shell", "succeeded", 29),
        aged("gone", "cancelled", 29),
    ];
    let old = [
        aged("short", "succeeded", 3),
        aged("short", "cancelled", 29),
        aged("short", "dead", 91),
        aged("long", "cancelled", 41),
        aged("long", "dead", 2),
        aged("shell", "succeeded", 31),
        aged("gone", "dead", 91),
    ];
    let counts = "succeeded\t2\ncancelled\t2\ndead\t3\n";
    db.jobctl(["prune", "--dry-run"]).run().success().stdout(counts).stderr("");
    let listed = db.jobctl(["prune", "--dry-run", "--verbose"]).run().success().stdout;
    let mut listed: Vec<i64> =
        listed.lines().map(|line| line.split_once('\t').unwrap().0.parse().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, old);
    db.jobctl(["prune"]).run().success().stdout(counts).stderr("");
    assert_eq!(ids_of_all_runs(&db), kept);
    // The flags apply only to ages that no definition sets.
    let all = ["prune", "--older-than", "0s", "--dead-older-than", "0s"];
    db.jobctl(all).run().success().stdout("succeeded\t1\ncancelled\t1\ndead\t1\n");
    assert_eq!(ids_of_all_runs(&db), [kept[0], kept[2], kept[3]]);
    // A tick obeys definitions, too, also after they have changed.
    db.apply(&file.replace("2d", "0s").replace("40d", "3d"));
    db.jobctl(["tick", "--prune", "--quiet"]).run().success().stderr("");
    assert_eq!(ids_of_all_runs(&db), [kept[3]]);
    let shown = db.jobctl(["jobs", "long", "--format", "table"]).run().success();
    shown.stdout_has("\nkeep:             \"3d\"\n").stdout_has("\nkeep_dead:        \"1d\"\n");
}

#[test]
fn prune_stops_reading_where_no_later_run_can_be_old() {
    let db = TestDb::new();
    let insert = |runs: u32, created: &str, ended: &str| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, finished_at)
             SELECT 'shell', 'succeeded', 1, {created}, {ended} FROM generate_series(1, {runs})"
        ));
    };
    let old = "now() - interval '31 days'";
    let assert_prune_deletes = |counts: &str| {
        db.jobctl(["prune"]).run().success().stdout(counts);
    };
    // The first run was created before all others, but ended late. Then follow two thousand runs of
    // today. The last run is old only by its end, which is before its creation.
    insert(1, old, "now()");
    insert(2000, "now()", "now()");
    insert(1, "now()", old);
    assert_prune_deletes("");
    // One of the two thousand runs is old.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET created_at = {old}, finished_at = {old} WHERE id = 1000"
    ));
    assert_prune_deletes("succeeded\t1\n");
    // Now all runs were created long ago, but only the last one also ended long ago.
    db.execute(&format!("UPDATE jobctl.job_runs SET created_at = {old}"));
    assert_prune_deletes("succeeded\t1\n");
}

#[test]
fn a_dry_run_counts_the_runs_that_prune_deletes() {
    let db = TestDb::new();
    let [succeeded, dead, cancelled] =
        ["succeeded", "dead", "cancelled"].map(|status| insert_aged(&db, status, 100));
    // A run that was created now is young, although its end is in the past.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET created_at = now() WHERE id IN ({dead}, {cancelled})"
    ));
    let dry_run = db.jobctl(["prune", "--dry-run"]).run().success().stdout;
    assert_eq!(dry_run, "succeeded\t1\n");
    let listed = db.jobctl(["prune", "--dry-run", "--verbose"]).run().success();
    listed.stdout_has(&format!("{succeeded}\tdeleted"));
    db.jobctl(["prune"]).run().success().stdout(&dry_run);
    db.jobctl(["prune", "--dry-run"]).run().success().stdout("");
    assert_eq!(ids_of_all_runs(&db), [dead, cancelled]);
}

/// A person may retry a run after it was found, and before it is deleted.
#[test]
fn prune_keeps_a_run_that_was_retried_since() {
    let db = TestDb::new();
    let id = insert_aged(&db, "dead", 100);
    db.execute(&format!("UPDATE jobctl.job_runs SET created_at = finished_at WHERE id = {id}"));
    db.jobctl(["retry", &id.to_string()]).run().success();
    // `prune` deletes the ids that it found before. Call its statement with the id of this run, and
    // with ages of 0 s.
    let prune = fs::read_to_string(root().join("sql/queries/operate/prune.sql")).unwrap();
    let execute = format!("EXECUTE prune('{{{id}}}', 0, 0, 'ana', NULL, false)");
    db.client().batch_execute(&format!("PREPARE prune AS {prune}; {execute}")).unwrap();
    assert_eq!(db.status(id), "queued");
}

/// By the order of the ids, all runs of other jobs come before the first one of a new job.
#[test]
fn prune_does_not_read_the_runs_of_other_jobs() {
    let db = TestDb::new();
    db.make_tables_outgrow_memory();
    // Of 31,000 old runs, the last 1,000 are of another job. 30,000 runs waited for the run before.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, finished_at, created_at)
         SELECT CASE WHEN n <= 30000 THEN 'first' ELSE 'later' END, 'cancelled', at, at
         FROM generate_series(1, 31000) AS n, (SELECT now() - interval '40 days' AS at) AS long_ago;
         INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
             SELECT n + 1, n, 'met' FROM generate_series(1, 30000) AS n;
         ANALYZE",
    );
    let scans = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'job_runs'";
    let scanned = || -> i64 { db.query(scans).parse().unwrap() };
    let read = |index: &str| db.read_entries(&format!("job_runs_{index}"));
    db.wait_for_statistics();
    let ([by_id_before, by_job_before], scanned_before) = (["pkey", "job"].map(read), scanned());
    let list = ["prune", "--dry-run", "--verbose", "--older-than", "35d"];
    let listed = db.jobctl(list).run().success().stdout;
    assert_eq!(listed.lines().count(), 31_000);
    wait_until("the counts", || read("job") > by_job_before + 30_000);
    // `prune` finds the runs by their job. It looks up by id only the runs that waited for another.
    let looked_up = read("pkey") - by_id_before;
    assert!(looked_up < 65_000, "{looked_up} entries");
    assert_eq!(scanned(), scanned_before);
}

#[test]
fn keep_and_keep_dead_of_a_job_do_not_stop_the_pruning_of_its_other_runs() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nkeep = '365d'\n[jobs.b]\nshell = 'true'\nkeep_dead = '365d'\n",
    );
    let insert = |job: &str, status: &str, runs: u32, days: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, finished_at)
             SELECT '{job}', '{status}', 1, now() - interval '{days} days', \
             now() - interval '{days} days' FROM generate_series(1, {runs})"
        ));
    };
    // The 1,500 runs of each job are kept for a year. `prune` must look behind them: nine runs of
    // other statuses and jobs are old.
    insert("a", "succeeded", 1500, 300);
    insert("a", "dead", 3, 91);
    insert("b", "dead", 1500, 300);
    insert("b", "cancelled", 3, 31);
    insert("shell", "succeeded", 3, 31);
    db.jobctl(["tick", "--prune"]).run().success().stderr_has("9 old runs pruned");
    let left = "SELECT string_agg(DISTINCT job_type || ' ' || status, ',') FROM jobctl.job_runs";
    assert_eq!(db.query(left), "a succeeded,b dead");
    // The same with an archive.
    insert("a", "dead", 3, 91);
    insert("b", "cancelled", 3, 31);
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    prune_into(&db, &file).run().success().stdout("cancelled\t3\ndead\t3\n");
    assert_eq!(archived(&file).len(), 6);
}

#[test]
fn prune_verbose_lists_the_runs() {
    let db = TestDb::new();
    let newer = insert_aged(&db, "succeeded", 31);
    let oldest = insert_aged(&db, "dead", 91);
    let young = insert_aged(&db, "dead", 89);
    let lines = format!("{newer}\tdeleted\n{oldest}\tdeleted\n");
    db.jobctl(["prune", "--verbose", "--dry-run"]).run().success().stdout(&lines);
    assert_eq!(ids_of_all_runs(&db).len(), 3);
    db.jobctl(["prune", "--verbose"]).run().success().stdout(&lines).stderr("");
    assert_eq!(ids_of_all_runs(&db), [young]);
}

#[test]
fn prune_asks_for_confirmation_at_a_terminal() {
    let db = TestDb::new();
    let old = insert_aged(&db, "succeeded", 31);
    let (shown, finished) = answer_at_terminal(&db, "prune", "n");
    assert!(shown.contains("delete 1 old run? [y/N] "), "{shown}");
    finished.exits(1);
    assert_eq!(ids_of_all_runs(&db), [old]);
    answer_at_terminal(&db, "prune", "y").1.success();
    assert!(ids_of_all_runs(&db).is_empty());
    // Without an old run, `prune` does not ask.
    assert!(!answer_at_terminal(&db, "prune", "n").0.contains("[y/N]"));
}

#[test]
fn history_is_deleted_with_its_runs_by_any_role_and_command() {
    let db = TestDb::new();
    let [kept, deleted, other] = ["succeeded"; 3].map(|status| insert_aged(&db, status, 0));
    // An operator has no privilege to delete history alone.
    let operator = Role::granted(&db, "operator");
    operator
        .client()
        .execute("DELETE FROM jobctl.job_runs WHERE id IN ($1, $2)", &[&deleted, &other])
        .unwrap();
    assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), kept.to_string());
    db.execute("TRUNCATE jobctl.job_runs");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0");
    // Both tables in one statement.
    db.execute("TRUNCATE jobctl.job_attempts, jobctl.job_runs");
}

#[test]
fn an_operator_deletes_finished_runs_by_id() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let operator = Role::granted(&db, "operator");
    let [dead, other, waiting] =
        ["dead", "dead", "queued"].map(|status| insert_aged(&db, status, 0));
    // Of these three ids, only the first one is a finished run.
    let missing = waiting + 1;
    let ids = [dead, waiting, missing].map(|id| id.to_string());
    let pruned = operator.jobctl(["prune"]).args(ids.iter().map(String::as_str)).run();
    pruned.exits(4).stdout(&format!("{dead}\tdeleted\n")).stderr(&format!(
        "jobctl: cannot prune run {waiting}: its status is queued; only succeeded, dead and \
         cancelled runs can be deleted\n\
         jobctl: cannot prune run {missing}: no such run\n"
    ));
    assert_eq!(
        db.query("SELECT id FROM jobctl.job_runs ORDER BY 1"),
        format!("{other}\n{waiting}")
    );
    assert_eq!(
        db.query("SELECT run_id FROM jobctl.job_attempts ORDER BY 1"),
        format!("{other}\n{waiting}")
    );
    jobctl(["prune", "3", "--older-than", "1d"]).run().exits(2).stderr_has("cannot be used with");
}

/// `prune` deletes a worker that holds no run and has been silent for 30 times as long as its ticks
/// lasted, and for a day at least. A worker whose ticks lasted for a day is a host, and stays.
#[test]
fn prune_deletes_workers_that_are_silent_much_longer_than_they_ticked() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // The time since the last tick, and before that the time from the first to the last tick.
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         SELECT name, '', now() - silent_for::interval,
             now() - silent_for::interval - ticked_for::interval
         FROM (VALUES
             ('ticks now', '0', '1 year'),
             ('less than 30 times', '29 hours', '1 hour'),
             ('more than 30 times', '31 hours', '1 hour'),
             ('more than 30 times, holds a run', '31 hours', '1 hour'),
             ('less than a day', '23 hours', '0'),
             ('more than a day', '25 hours', '0'),
             ('a host', '9 years', '1 day')
         ) AS worker (name, silent_for, ticked_for);
         INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         VALUES ('shell', 'running', 1, 'more than 30 times, holds a run', now(), now())",
    );
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["prune", "--dry-run"]).run().success();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_workers"), "7");
    operator.jobctl(["prune"]).run().success().stdout("");
    assert_eq!(
        db.query("SELECT worker FROM jobctl.job_workers ORDER BY worker COLLATE \"C\""),
        "a host\nless than 30 times\nless than a day\nmore than 30 times, holds a run\nticks now"
    );
}

#[test]
fn prune_deletes_in_batches_and_skips_locked_runs() {
    let db = TestDb::new();
    insert_succeeded(&db, 2500);
    // Another session has locked one of 2,500 runs; a batch has at most 1,000.
    let mut other = db.client();
    let mut open = other.transaction().unwrap();
    let locked: i64 = open
        .query_one("SELECT id FROM jobctl.job_runs ORDER BY finished_at LIMIT 1 FOR UPDATE", &[])
        .unwrap()
        .get(0);
    db.jobctl(["prune", "--dry-run"]).run().success().stdout("succeeded\t2500\n");
    db.jobctl(["prune"]).run().success().stdout("succeeded\t2499\n").stderr("");
    assert_eq!(ids_of_all_runs(&db), [locked]);
    open.rollback().unwrap();
    drop(other);
    db.jobctl(["prune"]).run().success().stdout("succeeded\t1\n");
}

#[test]
fn prune_ends_after_a_full_last_batch() {
    let db = TestDb::new();
    // A batch has 1,000 runs.
    insert_succeeded(&db, 2000);
    db.jobctl(["prune"]).run().success().stdout("succeeded\t2000\n");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn prune_frees_keys_but_keeps_recorded_effects() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--key", "k", "--", "true"]);
    // An effect with the same key was recorded a year ago.
    db.jobctl(["once", "k", "--", "true"]).run().success();
    db.execute(
        "UPDATE jobctl.job_effects SET recorded_at = now() - interval '1 year', \
        completed_at = recorded_at",
    );
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.enqueue(["shell", "--key", "k", "--", "true"]), first);
    db.jobctl(["prune", "--older-than", "0s"]).run().success().stdout("succeeded\t1\n");
    assert!(db.enqueue(["shell", "--key", "k", "--", "true"]) > first);
    // The effect is still recorded, so `once` does not run this command.
    db.jobctl(["once", "k", "--", "sh", "-c", "exit 3"]).run().success();
}

#[test]
fn a_schedule_never_repeats_the_time_of_a_pruned_run() {
    let db = TestDb::new();
    let jobs = "[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n";
    db.apply(jobs);
    db.execute(
        "UPDATE jobctl.job_definitions
         SET next_run_at = date_trunc('year', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'",
    );
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query("SELECT status FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL"),
        "succeeded"
    );
    db.jobctl(["prune", "--older-than", "0s"]).run().success().stdout("succeeded\t1\n");
    // Neither a tick nor the same file again fires for this year.
    db.jobctl(["tick"]).run().success().stderr("");
    db.apply(jobs);
    db.jobctl(["tick"]).run().success().stderr("");
    assert!(ids_of_all_runs(&db).is_empty());
}

#[test]
fn a_tick_prunes_a_thousand_runs_after_its_work() {
    let db = TestDb::new();
    insert_succeeded(&db, 1500);
    let dead = insert_aged(&db, "dead", 91);
    let id = db.enqueue(["shell", "--", "true"]);
    // Without --prune, a tick deletes nothing: 1,500 old runs, the dead one and the new one stay.
    db.jobctl(["tick"]).run().success();
    assert_eq!(ids_of_all_runs(&db).len(), 1502);
    let tick = db.jobctl(["tick", "--prune"]).run().success();
    let lines: Vec<_> =
        tick.stderr.lines().map(|line| line.split_once("info  ").unwrap().1).collect();
    assert_eq!(lines, ["1000 old runs pruned"]);
    db.jobctl(["tick", "--quiet"]).env("JOBCTL_TICK_PRUNE", "1").run().success().stderr("");
    // The second tick deletes the rest, also the dead run, and no young one.
    assert_eq!(ids_of_all_runs(&db), [id]);
    assert!(dead < id);
    db.jobctl(["tick", "--prune"]).run().success().stderr("");
    db.jobctl(["tick", "--prune", "--older-than", "0s"])
        .run()
        .success()
        .stderr_has("1 old run pruned");
}

#[test]
fn a_stopping_tick_prunes_nothing() {
    let db = TestDb::new();
    insert_succeeded(&db, 1);
    let id = db.enqueue(["shell", "--", "sleep", "60"]);
    let tick = db.jobctl(["tick", "--prune", "--grace", "0s"]).spawn();
    db.wait_for_status(id, "running");
    tick.signal(rustix::process::Signal::TERM);
    tick.wait().success();
    assert_eq!(ids_of_all_runs(&db).len(), 2);
}

#[test]
fn a_tick_without_the_delete_privilege_warns_once_and_executes_its_runs() {
    let db = TestDb::new();
    let worker = Role::granted(&db, "worker");
    insert_succeeded(&db, 1);
    let id = db.enqueue(["shell", "--", "true"]);
    let tick = worker.jobctl(["tick", "--prune", "--quiet"]).run().success();
    assert_eq!(tick.stderr.lines().count(), 1, "{tick}");
    assert!(tick.stderr.contains(
        "warn  old runs are not deleted: cannot prune: permission denied for table job_runs; \
         `jobctl grants --role ROLE --as SET` prints what a role needs"
    ));
    assert_eq!(db.status(id), "succeeded");
    // `prune` itself fails without the privilege.
    worker.jobctl(["prune"]).run().exits(7).complains_once();
    db.execute(&format!("GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {}", worker.name()));
    worker.jobctl(["tick", "--prune", "--quiet"]).run().success().stderr("");
    assert_eq!(ids_of_all_runs(&db), [id]);
    Role::granted(&db, "operator")
        .jobctl(["prune", "--older-than", "0s"])
        .run()
        .success()
        .stdout("succeeded\t1\n");
}

/// Returns the lines of an archive.
fn archived(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns `prune` with this archive.
fn prune_into<'db>(db: &'db TestDb, file: &Path) -> Invocation<'db> {
    db.jobctl(["prune", "--yes"]).args(["--archive", file.to_str().unwrap()])
}

#[test]
fn an_archive_holds_the_deleted_runs_with_their_history() {
    let db = TestDb::new();
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    let [old, dead] = [("succeeded", 31), ("dead", 91)].map(|(status, days)| {
        let id = insert_aged(&db, status, days);
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET payload = '{{\"n\": {id}}}' WHERE id = {id}"
        ));
        id
    });
    insert_aged(&db, "succeeded", 3);
    prune_into(&db, &file).run().success();
    let runs = archived(&file);
    assert_eq!(runs.iter().map(|run| run["id"].as_i64().unwrap()).collect::<Vec<_>>(), [old, dead]);
    assert_eq!(runs[1]["status"], "dead");
    assert_eq!(runs[1]["payload"]["n"], dead);
    let history = runs[1]["history"].as_array().unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0]["outcome"], "failed");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // A crash left a part of a line.
    fs::write(&file, "{\"id\": 7").unwrap();
    let old = insert_aged(&db, "cancelled", 31);
    prune_into(&db, &file).run().success();
    let text = fs::read_to_string(&file).unwrap();
    let (part, rest) = text.split_once('\n').unwrap();
    let run: Value = serde_json::from_str(rest).unwrap();
    assert_eq!(part, "{\"id\": 7");
    assert_eq!(run["id"], old);
}

#[test]
fn prune_refuses_stdout_as_the_archive() {
    jobctl(["prune", "--archive", "-"]).run().exits(2).stderr_has("name a file");
}

#[test]
fn runs_that_cannot_be_archived_are_not_deleted() {
    let db = TestDb::new();
    insert_succeeded(&db, 3);
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    fs::write(&file, "first\n").unwrap();
    // The file may have at most 512 bytes, which is less than three runs.
    let limited = prune_into(&db, &file).after("trap '' XFSZ; ulimit -f 1");
    limited.run().exits(1).stderr_has("cannot write the archive: File too large");
    assert_eq!(ids_of_all_runs(&db).len(), 3);
    assert_eq!(fs::read_to_string(&file).unwrap(), "first\n");
}

#[test]
fn a_lock_of_another_program_on_the_archive_is_named() {
    let db = TestDb::new();
    insert_succeeded(&db, 1);
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    let reader = fs::File::create(&file).unwrap();
    flock(&reader, FlockOperation::LockShared).unwrap();
    let refused = prune_into(&db, &file).run().exits(1).complains_once();
    refused.stderr_has("cannot write the archive: another program has kept a lock (flock) on the ");
    assert_eq!(ids_of_all_runs(&db).len(), 1);
    flock(&reader, FlockOperation::Unlock).unwrap();
    prune_into(&db, &file).run().success();
    assert_eq!(archived(&file).len(), 1);
}

#[test]
fn a_crash_between_the_archive_and_the_commit_leaves_duplicates() {
    let db = TestDb::new();
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    insert_succeeded(&db, 1);
    // A trigger delays the commit of the deletion until the session `client` ends.
    db.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER wait AFTER DELETE ON jobctl.job_runs
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let mut client = db.client();
    client.execute("SELECT pg_advisory_lock(1)", &[]).unwrap();
    let prune = prune_into(&db, &file).spawn();
    let commits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND query = 'COMMIT' AND wait_event = 'advisory'";
    wait_until("the commit to wait", || db.query(commits) == "1");
    // The run is in the archive. Now the session of `prune` ends before its commit.
    assert_eq!(archived(&file).len(), 1);
    db.query(&commits.replace("count(*)", "pg_terminate_backend(pid)"));
    prune.wait().exits(5);
    assert_eq!(ids_of_all_runs(&db).len(), 1);
    drop(client);
    // The next `prune` deletes the run, and adds it to the archive again.
    prune_into(&db, &file).run().success();
    assert_eq!(ids_of_all_runs(&db).len(), 0);
    let runs = archived(&file);
    assert_eq!(runs.len(), 2);
    assert_eq!(&runs[0], &runs[1]);
}

#[test]
fn concurrent_prunes_share_an_archive() {
    let db = TestDb::new();
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    insert_succeeded(&db, 1000);
    let prunes = [(); 3].map(|()| prune_into(&db, &file).spawn());
    prunes.into_iter().for_each(|prune| drop(prune.wait().success()));
    let mut ids: Vec<_> = archived(&file).iter().map(|run| run["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=1000).collect::<Vec<_>>());
}

/// Creates a table of another program that refers to these runs, so that PostgreSQL keeps them from
/// being deleted. `runs` is SQL: VALUES or a SELECT.
fn keep_from_deletion(db: &TestDb, runs: &str) {
    db.execute(&format!(
        "CREATE TABLE invoices (run bigint CONSTRAINT invoiced REFERENCES jobctl.job_runs);
         INSERT INTO invoices {runs}"
    ));
}

/// PostgreSQL's reason to keep these runs.
const WHY: &str = concat!(
    "update or delete on table \"job_runs\" violates foreign key constraint \"invoiced\" on ",
    "table \"invoices\"",
);

#[test]
fn runs_that_the_database_keeps_do_not_stop_pruning() {
    let db = TestDb::new();
    insert_succeeded(&db, 1200);
    let dead = insert_aged(&db, "dead", 91);
    // PostgreSQL keeps the dead run, and two of the runs 1 to 1200.
    keep_from_deletion(&db, &format!("VALUES (7), (1100), ({dead})"));
    let prune = db.jobctl(["prune"]).run().exits(1).stdout("succeeded\t1198\n");
    prune.stderr(&format!("jobctl: cannot prune 3 runs, such as run 7: {WHY}\n"));
    assert_eq!(ids_of_all_runs(&db), [7, 1100, dead]);
    db.jobctl(["prune", "--verbose"]).run().exits(1).stdout("");
    db.execute("DROP TABLE invoices");
    db.jobctl(["prune"]).run().success().stdout("succeeded\t2\ndead\t1\n").stderr("");
}

#[test]
fn runs_that_the_database_keeps_do_not_stop_the_archive() {
    let db = TestDb::new();
    let folder = temp_dir();
    let file = folder.path().join("runs.jsonl");
    // PostgreSQL keeps one of the runs 1 to 200.
    insert_succeeded(&db, 200);
    keep_from_deletion(&db, "VALUES (150)");
    prune_into(&db, &file).run().exits(1).stderr_has("cannot prune run 150: ");
    assert_eq!(ids_of_all_runs(&db), [150]);
    let archived = archived(&file);
    assert!(archived.len() == 199 && archived.iter().all(|run| run["id"] != 150));
}

#[test]
fn runs_that_the_database_keeps_do_not_stop_the_pruning_of_ticks() {
    let db = TestDb::new();
    insert_succeeded(&db, 3);
    let dead = insert_aged(&db, "dead", 91);
    // PostgreSQL keeps one of the runs 1 to 3.
    keep_from_deletion(&db, "VALUES (2)");
    let tick = db.jobctl(["tick", "--prune"]).run().success();
    tick.stderr_has(&format!("info  cannot prune run 2: {WHY}")).stderr_has("3 old runs pruned");
    assert!(dead > 2);
    assert_eq!(ids_of_all_runs(&db), [2]);
}

#[test]
fn ticks_prune_behind_thousands_of_runs_that_the_database_keeps() {
    let db = TestDb::new();
    insert_succeeded(&db, 3000);
    // PostgreSQL keeps 1,500 runs. A tick does not look at so many runs together.
    keep_from_deletion(&db, "SELECT id FROM jobctl.job_runs WHERE id <= 1500");
    wait_until("a tick to try others than the oldest", || {
        db.jobctl(["tick", "--prune", "--quiet"]).run().success();
        ids_of_all_runs(&db).len() < 3000
    });
    assert_eq!(ids_of_all_runs(&db)[..1500], (1..=1500).collect::<Vec<_>>());
}

#[test]
fn events_and_workers_that_the_database_keeps_do_not_stop_pruning() {
    let db = TestDb::new();
    insert_succeeded(&db, 1);
    // Three old events and three old workers. A trigger keeps one of each.
    db.execute(
        "INSERT INTO jobctl.job_events (action, recorded_at)
         SELECT 'prune', now() - interval '1 year' FROM generate_series(1, 3);
         INSERT INTO jobctl.job_workers (worker, version, last_tick_at)
         SELECT name, '', now() - interval '1 year' FROM unnest('{a,b,c}'::text[]) AS name;
         CREATE FUNCTION keep_from_deletion() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE ''it is kept''; END';
         CREATE TRIGGER keep BEFORE DELETE ON jobctl.job_events FOR EACH ROW
             WHEN (OLD.id = 2) EXECUTE FUNCTION keep_from_deletion();
         CREATE TRIGGER keep BEFORE DELETE ON jobctl.job_workers FOR EACH ROW
             WHEN (OLD.worker = 'b') EXECUTE FUNCTION keep_from_deletion()",
    );
    db.jobctl(["prune"]).run().exits(1).stdout("succeeded\t1\n").stderr(
        "jobctl: cannot prune event 2: it is kept\njobctl: cannot prune worker b: it is kept\n",
    );
    let left = "SELECT string_agg(id::text, ' ') FROM jobctl.job_events WHERE recorded_at < now()";
    assert_eq!(db.query(&format!("{left} - interval '1 day'")), "2");
    assert_eq!(db.query("SELECT worker FROM jobctl.job_workers"), "b");
}
