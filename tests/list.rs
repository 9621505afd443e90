//! The runs that `list` shows, their order, and the output formats.

use serde_json::{Value, json};

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::list_dead::{HARMLESS, HOSTILE};
use crate::retry::answer_at_terminal;
use crate::support::{TestDb, temp_dir, wait_until};

/// Returns the ids that `list` shows.
#[track_caller]
fn list_ids<'a>(db: &TestDb, arguments: impl IntoIterator<Item = &'a str>) -> Vec<i64> {
    let finished = db.jobctl(["list"]).args(arguments).run().success().stderr("");
    finished.stdout.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect()
}

/// Sets columns of a run by SQL, and returns the run.
fn set_columns(db: &TestDb, id: i64, columns: &str) -> i64 {
    db.execute(&format!("UPDATE jobctl.job_runs SET {columns} WHERE id = {id}"));
    id
}

#[test]
fn a_list_of_a_job_reads_few_entries_of_indexes() {
    let db = TestDb::new();
    db.make_tables_outgrow_memory();
    // 20,000 old runs of one job, and 40,000 newer ones of another.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, finished_at, created_at)
         SELECT CASE WHEN n <= 20000 THEN 'first' ELSE 'later' END, 'cancelled', at, at
         FROM generate_series(1, 60000) AS n
         CROSS JOIN LATERAL (SELECT now() - interval '1 second' * (60000 - n) AS at) AS ended;
         ANALYZE jobctl.job_runs",
    );
    // Returns how many entries of all indexes (`%`), or of the index of jobs, were read so far.
    let read = |index: &str| db.read_entries(&format!("job_runs_{index}"));
    let [of_all_before, of_job_before] = ["%", "job"].map(read);
    for filter in
        [["first", "--status=cancelled"], ["first", "--since=2d"], ["later", "--since=2d"]]
    {
        let list = db.jobctl(["list", "--limit", "5", "--job"]).args(filter).run().success();
        assert_eq!(list.stdout.lines().count(), 5);
    }
    // The three lists read at least five entries each.
    wait_until("the counts", || read("job") >= of_job_before + 3 * 5);
    let read = read("%") - of_all_before;
    assert!(read < 1000, "{read} entries");
}

/// Searches for a key, for waiting runs and for errors use indexes. So they do not read the 60,000
/// runs that have ended.
#[test]
fn searches_read_few_entries_of_a_long_history() {
    let db = TestDb::new();
    db.make_tables_outgrow_memory();
    // The runs 1 to 60000 have ended, and three of them have each key: 17, 20017 and 40017 have
    // `order:17`. The runs 60001 and 60002 wait.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, idempotency_key, key_scope,
             finished_at, created_at)
         SELECT 'shell', 'succeeded', 1, 'order:' || n % 20000, 'live', at, at
         FROM generate_series(1, 60000) AS n
         CROSS JOIN LATERAL (SELECT now() - interval '1 second' * (60000 - n) AS at) AS ended;
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at,
             outcome, output)
         SELECT id, 1, 'w', created_at, finished_at, 'succeeded', 'no error at all'
         FROM jobctl.job_runs;
         INSERT INTO jobctl.job_runs (job_type, status, idempotency_key, key_scope)
         VALUES ('shell', 'queued', 'order:17', 'live'), ('shell', 'blocked', 'order:18', 'live')",
    );
    db.execute("VACUUM ANALYZE");
    // Returns how many rows of a table were read so far.
    let rows = |table: &str| -> i64 {
        let read =
            "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE relname = ";
        db.query(&format!("{read}'{table}'")).parse().unwrap()
    };
    db.wait_for_statistics();
    let [runs, attempts] = ["job_runs", "job_attempts"].map(rows);
    assert_eq!(list_ids(&db, ["--key", "order:17"]), [60001, 40017, 20017, 17]);
    assert_eq!(list_ids(&db, ["--key", "order:17", "--status", "queued"]), [60001]);
    assert_eq!(list_ids(&db, ["--key", "order:18"]), [60002, 40018, 20018, 18]);
    assert_eq!(list_ids(&db, ["--key", "order:x*"]), [0; 0]);
    assert_eq!(list_ids(&db, ["--status", "queued,blocked"]), [60002, 60001]);
    let all = ["--all-waiting", "--dry-run"];
    db.jobctl(["cancel", "--all", "--dry-run"]).run().success().stdout("cancelled\t2\n");
    db.jobctl(["cancel"]).args(all).run().success().stdout("cancelled\t2\n");
    db.jobctl(["edit", "--priority", "1"]).args(all).run().success().stdout("edited\t2\n");
    wait_until("the counts", || rows("job_runs") > runs);
    let read = rows("job_runs") - runs;
    assert!(read < 1000, "{read} runs");

    // A search for an error reads no output of a run that succeeded.
    assert_eq!(list_ids(&db, ["--error", "no such error"]), [0; 0]);
    wait_until("the counts", || rows("job_runs") > runs + read);
    let read = rows("job_attempts") - attempts;
    assert!(read < 1000, "{read} attempts");
}

#[test]
fn a_key_finds_the_runs_of_each_status_and_scope() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        enqueue_in_status(&db, status);
    }
    // Only one unfinished run may have a live key, so those have keys of their own at first.
    db.execute(
        "UPDATE jobctl.job_runs SET idempotency_key = CASE WHEN status IN ('queued', 'failed',
             'running', 'blocked') THEN 'k' || status ELSE 'k' END, key_scope = 'live'",
    );
    // The three runs that have ended.
    let ended = list_ids(&db, ["--key", "k"]);
    assert_eq!(ended.len(), 3);
    // A running run that a newer one has replaced keeps its key for the search.
    let replaced = enqueue_in_status(&db, "running");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET idempotency_key = 'k', key_scope = 'replaced' WHERE id = \
         {replaced}"
    ));
    // Each of the unfinished runs in turn gets the key.
    for status in ["queued", "failed", "running", "blocked"] {
        let key = format!("k{status}");
        let [id] = list_ids(&db, ["--key", &key])[..] else { panic!("{status}") };
        assert_eq!(db.status(id), status);
        db.execute(&format!("UPDATE jobctl.job_runs SET idempotency_key = 'k' WHERE id = {id}"));
        assert!(list_ids(&db, ["--key", "k"]).contains(&id), "{status}");
        assert!(list_ids(&db, ["--key", "k", "--until", "2100-01-01"]).contains(&id), "{status}");
        db.execute(&format!("UPDATE jobctl.job_runs SET idempotency_key = NULL WHERE id = {id}"));
    }
    let found = [vec![replaced], ended].concat();
    assert_eq!(list_ids(&db, ["--key", "k"]), found);
    assert_eq!(list_ids(&db, ["--key", "k*"]), found);
}

#[test]
fn a_key_is_compared_character_by_character_up_to_a_star_at_its_end() {
    let db = TestDb::new();
    // LIKE would take these characters for a pattern.
    let [odd, other] =
        [r"50%_\", "500xy"].map(|key| db.enqueue(["shell", "--key", key, "--", "true"]));
    assert_eq!(list_ids(&db, ["--key", r"50%_\"]), [odd]);
    assert_eq!(list_ids(&db, ["--key", r"50%_\*"]), [odd]);
    assert_eq!(list_ids(&db, ["--key", "50*"]), [other, odd]);
    // The same runs after their end.
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(list_ids(&db, ["--key", "50*"]), [other, odd]);
    assert_eq!(list_ids(&db, ["--key", r"50%_\*"]), [odd]);
}

/// The newest come first whether an index or the order of the ids finds them.
#[test]
fn list_limits_and_sorts_waiting_runs_together_with_ended_ones() {
    let db = TestDb::new();
    let [first, dead, blocked, succeeded, last] =
        ["queued", "dead", "blocked", "succeeded", "queued"].map(|it| enqueue_in_status(&db, it));
    let mixed = ["--status", "queued,blocked,dead"];
    assert_eq!(list_ids(&db, mixed), [last, blocked, dead, first]);
    assert_eq!(list_ids(&db, mixed.into_iter().chain(["--limit", "3"])), [last, blocked, dead]);
    assert_eq!(list_ids(&db, ["--status", "queued", "--limit", "1"]), [last]);
    assert_eq!(list_ids(&db, ["--status", "dead,succeeded,blocked"]), [succeeded, blocked, dead]);
}

#[test]
fn an_empty_list_prints_no_line_or_an_empty_json_array() {
    let db = TestDb::new();
    for arguments in [&[][..], &["--job", "shell"], &["--status", "dead", "--since", "1h"]] {
        db.jobctl(["list"]).args(arguments.iter().copied()).run().success().stdout("").stderr("");
        db.jobctl(["list", "--json"])
            .args(arguments.iter().copied())
            .run()
            .success()
            .stdout("[]\n")
            .stderr("");
    }
}

#[test]
fn an_empty_list_prints_a_line_on_a_terminal() {
    let db = TestDb::new();
    // A command that finds nothing in an empty database, and the line that it prints.
    for (command, none) in [
        ("list", "no run matches"),
        ("list-dead", "no dead run matches"),
        ("list-dead --group", "no dead run matches"),
        ("next", "no definition has a schedule"),
        ("prune --yes", "no run is old enough"),
        ("tick --dry-run", "no run is due"),
        ("migrate", "nothing to do: the schema is up to date"),
        ("migrate --dry-run", "nothing to do: the schema is up to date"),
    ] {
        let (shown, finished) = answer_at_terminal(&db, command, "");
        finished.success();
        assert!(shown.contains(&format!("jobctl: {none}")), "{command}: {shown}");
    }
}

#[test]
fn filters_refuse_a_job_that_has_neither_a_definition_nor_runs() {
    let db = TestDb::new();
    db.apply("[jobs.report]\nshell = 'true'\n");
    // The job `removed` has a run and no definition.
    set_columns(&db, enqueue_in_status(&db, "dead"), "job_type = 'removed'");
    for (command, all) in [
        ("list", ""),
        ("list-dead", ""),
        ("retry", "--all-dead --yes"),
        ("settle", "--all-dead --yes"),
        ("cancel", "--all-waiting --yes"),
    ] {
        let run_for = |job: &'static str| {
            db.jobctl([command]).args(all.split_whitespace()).args(["--job", job]).run()
        };
        let refused = run_for("repotr").exits(3).stdout("").complains_once();
        refused.stderr_has("did you mean `report`?");
        run_for("report").success();
    }
    assert_eq!(list_ids(&db, ["--job", "removed"]).len(), 1);
}

#[test]
fn list_shows_the_newest_runs_first() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let created = "created_at = '2026-01-31 07:00:00+00'";
    let queued = set_columns(&db, enqueue_in_status(&db, "queued"), created);
    let dead = set_columns(
        &db,
        enqueue_in_status(&db, "dead"),
        &format!(
            "{created}, finished_at = '2026-01-31 08:00:00+00', last_error = 'exit status 3', \
             attempts = 2"
        ),
    );
    // Its two attempts took 33 and 66 seconds.
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT {dead}, n, 'w', now(), now() + n * interval '33 seconds', 'failed' FROM \
         generate_series(1, 2) AS n"
    ));
    let running = set_columns(
        &db,
        enqueue_in_status(&db, "running"),
        &format!("{created}, started_at = now() - interval '3 hours 5 seconds'"),
    );
    let finished = db.jobctl(["list"]).run().success().stderr("");
    let [created, ended] = ["07:00:00", "08:00:00"].map(|at| format!("2026-01-31T{at}.000000Z"));
    let rows: Vec<_> = finished
        .stdout
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        // The run time of the running run changes, so it is left out.
        .map(|cells| [0, 1, 2, 5, 6, 8, 11, 14].map(|cell| *cells.get(cell).unwrap_or(&"")))
        .collect();
    let [running, dead_id, queued] = [running, dead, queued].map(|id| id.to_string());
    // Id, job, status, attempts, max_attempts, error, creation and end.
    assert_eq!(
        rows,
        [
            [&*running, "shell", "running", "1", "10", "", &created, ""],
            [&*dead_id, "shell", "dead", "2", "10", "exit status 3", &created, &ended],
            [&*queued, "shell", "queued", "0", "10", "", &created, ""],
        ]
    );
    // With a limit of 2, the second line is the last one.
    let second_line = finished.stdout.split_inclusive('\n').nth(1).unwrap();
    let newest = db.jobctl(["list", "--limit", "2"]).run().success().stderr("").stdout;
    assert!(newest.ends_with(second_line) && newest.lines().count() == 2, "{newest}");

    // All fields of the dead run, as JSON.
    let finished = db.jobctl(["list", "--json", "--status", "dead"]).run().success().stderr("");
    let mut shown: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(shown[0]["run_at"].take().is_string());
    assert_eq!(
        shown,
        json!([{
            "last_line": null, "usual_end_at": null, "trace_id": null, "lock": null,
            "only_worker": null, "schedule": null,
            "id": dead, "job_type": "shell", "status": "dead", "queue": "default", "priority": 0,
            "attempts": 2,
            "max_attempts": 10, "error_type": null, "last_error": "exit status \
                3", "idempotency_key": null,
            "run_at": null, "created_at": "2026-01-31T07:00:00.000000Z", "started_at": null,
            "failed_at": null,
            "finished_at": "2026-01-31T08:00:00.000000Z", "run_time_seconds": 66.0,
            "share": null, "worker": "w", "enqueued_by": db.query("SELECT session_user"),
        }])
    );
}

#[test]
fn list_shows_fifty_runs_by_default() {
    let db = TestDb::new();
    db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'a' FROM generate_series(1, 60)");
    // The runs have the ids 1 to 60.
    assert_eq!(list_ids(&db, []), (11..=60).rev().collect::<Vec<_>>());
    assert_eq!(list_ids(&db, ["--limit", "60"]).len(), 60);
}

#[test]
fn list_filters_by_one_or_several_statuses() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids = STATUSES.map(|status| enqueue_in_status(&db, status));
    for (status, id) in STATUSES.iter().zip(ids) {
        assert_eq!(list_ids(&db, ["--status", status]), [id], "{status}");
    }
    let [queued, running, succeeded, ..] = ids;
    assert_eq!(list_ids(&db, ["--status", "running,queued"]), [running, queued]);
    assert_eq!(list_ids(&db, ["--status", "succeeded", "--status", "queued"]), [succeeded, queued]);
    // An unknown status or error type: the error lists all of them.
    db.jobctl(["list", "--status", "done"]).run().exits(2).stdout("").stderr_has(
        "invalid value 'done' for '--status <STATUS>'\n  \
         [possible values: blocked, queued, running, succeeded, failed, dead, cancelled]",
    );
    db.jobctl(["list", "--error-type", "oops"]).run().exits(2).stdout("").stderr_has(
        "[possible values: exit_code, signal, timeout, spawn, http_status, transport, tls, \
         bad_payload, bad_result, not_allowed, lease_expired, claim_rejected, interrupted, \
         cancelled, dropped, expired, predecessor]",
    );
}

#[test]
fn a_run_must_match_all_filters() {
    let db = TestDb::new();
    let plain = enqueue_in_status(&db, "dead");
    let job = set_columns(&db, enqueue_in_status(&db, "dead"), "job_type = 'report'");
    let queue = set_columns(&db, enqueue_in_status(&db, "dead"), "queue = 'mail'");
    let key = set_columns(&db, enqueue_in_status(&db, "dead"), "idempotency_key = 'k'");
    let error = set_columns(&db, enqueue_in_status(&db, "dead"), "error_type = 'timeout'");
    // Each filter finds one of the five dead runs.
    for (filter, id) in [
        (["--job", "report"], job),
        (["--queue", "mail"], queue),
        (["--key", "k"], key),
        (["--error-type", "timeout"], error),
    ] {
        assert_eq!(list_ids(&db, filter), [id], "{filter:?}");
        // All commands share these filters.
        let dead = db.jobctl(["list-dead"]).args(filter).run().success();
        assert!(
            dead.stdout.starts_with(&format!("{id}\t")) && dead.stdout.lines().count() == 1,
            "{dead}"
        );
        let grouped = db.jobctl(["list-dead", "--group", "--json"]).args(filter).run().success();
        let groups: Value = serde_json::from_str(&grouped.stdout).unwrap();
        assert_eq!(groups.as_array().unwrap().len(), 1, "{filter:?}");
        assert_eq!(groups[0]["newest_id"], id, "{filter:?}");
    }
    // Two filters find only the run that matches both.
    let both =
        set_columns(&db, enqueue_in_status(&db, "queued"), "job_type = 'report', queue = 'mail'");
    assert_eq!(list_ids(&db, ["--job", "report", "--queue", "mail"]), [both]);
    assert_eq!(
        list_ids(&db, ["--job", "report", "--queue", "mail", "--status", "dead"]),
        [] as [i64; 0]
    );
    assert_eq!(list_ids(&db, []), [both, error, key, queue, job, plain]);
}

#[test]
fn since_and_until_use_the_end_of_a_run_or_else_its_creation() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let hours_ago = |hours: u32| format!("now() - interval '{hours} hours'");
    let (mut all_early, mut all_late) = (Vec::new(), Vec::new());
    for status in STATUSES {
        // Three runs of each status: their end, or else their creation, was 10, 2 and 50 hours ago.
        // The first two were created 40 hours ago if they have ended.
        let ends = !matches!(status, "queued" | "failed" | "running" | "blocked");
        let aged = |created: u32, ended: u32| {
            let ended =
                if ends { format!(", finished_at = {}", hours_ago(ended)) } else { String::new() };
            set_columns(
                &db,
                enqueue_in_status(&db, status),
                &format!("created_at = {}{ended}", hours_ago(created)),
            )
        };
        let [early, late, old] = [
            aged(if ends { 40 } else { 10 }, 10),
            aged(if ends { 40 } else { 2 }, 2),
            aged(50, 50),
        ];
        let of_status =
            |window: &[&str]| list_ids(&db, window.iter().copied().chain(["--status", status]));
        assert_eq!(of_status(&["--since", "12h"]), [late, early], "{status}");
        assert_eq!(of_status(&["--since", "5h"]), [late], "{status}");
        // The latest end comes first.
        assert_eq!(of_status(&["--until", "5h"]), [early, old], "{status}");
        assert_eq!(of_status(&["--since", "12h", "--until", "5h"]), [early], "{status}");
        all_early.push(early);
        all_late.push(late);
    }
    // Over all statuses, the late runs come first. The order within the early and within the late
    // runs is left open.
    let window = ["--since", "12h", "--until", "1h", "--limit", "14"];
    let mut ids = list_ids(&db, window);
    ids.chunks_mut(STATUSES.len()).for_each(<[_]>::sort_unstable);
    assert_eq!(ids, [all_late, all_early].concat());
    // A window that ends before it begins is refused.
    let swapped = db.jobctl(["list", "--since", "1h", "--until", "5h"]).run().exits(2).stdout("");
    swapped.complains_once().stderr_has(" is after --until ");
}

#[test]
fn since_takes_a_time_of_day_in_the_time_zone_that_is_given() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // Two runs died a minute before and after the start of yesterday in Kathmandu. In no other zone
    // does a day start within 14 minutes of that.
    let start = "date_trunc('day', now() AT TIME ZONE 'Asia/Kathmandu') - interval '1 day'";
    let at = |offset: &str| {
        let ended = format!("({start}) AT TIME ZONE 'Asia/Kathmandu' {offset} interval '1 minute'");
        set_columns(&db, enqueue_in_status(&db, "dead"), &format!("finished_at = {ended}"))
    };
    let [before, after] = [at("-"), at("+")];
    let zone = ["--time-zone", "Asia/Kathmandu"];
    let with = |arguments: &[&'static str]| {
        list_ids(&db, zone.into_iter().chain(arguments.iter().copied()))
    };
    assert_eq!(with(&["--since", "yesterday"]), [after]);
    assert_eq!(with(&["--until", "yesterday"]), [before]);
    let date = db.query(&format!("SELECT to_char({start}, 'YYYY-MM-DD')"));
    let retry = ["retry", "--all-dead", "--yes", "--verbose", "--since", &date];
    let retried = db.jobctl(retry).args(zone).run().success();
    assert!(retried.stdout.starts_with(&format!("{after}\t")), "{retried}");
    assert_eq!(db.status(before), "dead");

    // A zone in the environment does not turn a retry by id into one by filter.
    db.jobctl(["retry", &before.to_string()])
        .env("JOBCTL_RETRY_TIME_ZONE", "Europe/Berlin")
        .run()
        .success();

    // Days and ages in the wrong order are refused. A time of day and a date are not.
    let swapped = db.jobctl(["list", "--since", "today", "--until", "yesterday"]).run();
    swapped.exits(2).stdout("").complains_once().stderr_has("swap them");
    let ages = db.jobctl(["failures", "--since", "1h", "--until", "2h"]).run();
    ages.exits(2).stdout("").complains_once().stderr_has("swap them");
    let times = db.jobctl(["list", "--since", "00:01", "--until", "2020-01-01"]).run();
    times.success().stderr("");
}

#[test]
fn since_and_until_take_rfc_3339_times_and_until_is_exclusive() {
    let db = TestDb::new();
    let at = |second: u32| {
        set_columns(
            &db,
            enqueue_in_status(&db, "dead"),
            &format!("finished_at = '2026-01-31 08:00:{second:02}+00'"),
        )
    };
    // Three runs that ended a second after each other. --since includes its second, and --until
    // does not.
    let [first, second, third] = [at(1), at(2), at(3)];
    assert_eq!(list_ids(&db, ["--since", "2026-01-31T09:00:02+01:00"]), [third, second]);
    assert_eq!(list_ids(&db, ["--until", "2026-01-31T08:00:02Z"]), [first]);
    let dead = db
        .jobctl(["list-dead", "--since", "2026-01-31T08:00:02Z", "--until", "2026-01-31T08:00:03Z"])
        .run();
    assert!(
        dead.stdout.starts_with(&format!("{second}\t")) && dead.stdout.lines().count() == 1,
        "{dead}"
    );
    // Texts that are no time, and an age that is too long.
    for wrong in ["tomorrow", "5", "-1h", "1M", "2026-01", "2026-01-31T8"] {
        let refused = db.jobctl(["list", &format!("--since={wrong}")]).run().exits(2).stdout("");
        refused.stderr_has("or RFC 3339 (2026-01-31T08:00:00+01:00)");
    }
    let old = db.jobctl(["list", "--since", "36501d"]).run().exits(2);
    old.stderr_has("`36501d` is out of range; allowed are 0ms to 36500d");
}

#[test]
fn control_characters_are_escaped() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "dead");
    let update = "UPDATE jobctl.job_runs SET job_type = $1, last_error = $1 WHERE id = $2";
    db.client().execute(update, &[&HOSTILE, &id]).unwrap();
    let finished = db.jobctl(["list"]).run().success();
    let cells: Vec<_> = finished.stdout.trim_end_matches('\n').split('\t').collect();
    assert_eq!((cells.len(), cells[1], cells[8]), (19, HARMLESS, HARMLESS), "{finished}");
    assert_eq!(list_ids(&db, ["--job", HOSTILE]), [id]);
}

#[test]
fn a_narrow_terminal_shows_job_status_and_error() {
    let db = TestDb::new();
    set_columns(
        &db,
        enqueue_in_status(&db, "cancelled"),
        "job_type = 'cleanup_nightly', last_error = 'no space left on device'",
    );
    // On 80 and 60 columns the texts fit. On 40, the middle or the end of two texts is cut.
    let wide = ["cleanup_nightly", "cancelled", "no space left on device"];
    for (width, words) in [(80, wide), (60, wide), (40, ["cleanu…ightly", "cancelled", "no spac…"])]
    {
        let script =
            format!("script -qec \"stty cols {width}; '$jobctl' list\" /dev/null </dev/null");
        let shown = db.script(&script).env("NO_COLOR", "1").run().success().stdout;
        assert!(shown.lines().all(|line| line.trim_end().chars().count() <= width), "{shown}");
        for word in words {
            assert!(shown.contains(word), "{width}: {word} in {shown}");
        }
    }
}

#[test]
fn a_terminal_shows_a_table_that_fits_and_notes_further_runs() {
    let db = TestDb::new();
    for _ in 0..2 {
        let id = enqueue_in_status(&db, "dead");
        set_columns(
            &db,
            id,
            "last_error = repeat('long ', 100), created_at = now() - interval '3 hours 5 seconds'",
        );
    }
    let directory = temp_dir();
    let typescript = directory.path().join("typescript");
    let script = "script -qec \"stty cols 100; '$jobctl' list $limit\" \"$typescript\" </dev/null \
        >/dev/null";
    let shown = |limit: &str| {
        db.script(script)
            .env("typescript", typescript.to_str().unwrap())
            .env("limit", limit)
            .env("NO_COLOR", "1")
            .run()
            .success();
        std::fs::read_to_string(&typescript).unwrap()
    };
    // Of two runs, one is shown. Its long error is cut to the width, except in the lines of
    // `script` itself.
    let one = shown("--limit 1");
    assert!(one.contains("jobctl: these are the newest 1; --limit shows more"), "{one}");
    assert!(one.contains(" now ") && one.contains("ENDED"), "{one}");
    assert!(
        one.lines().all(|line| line.trim_end().chars().count() <= 100 || line.contains("cript ")),
        "{one}"
    );
    assert!(!shown("--limit 2").contains("--limit shows"));
}

#[test]
fn a_table_shows_no_error_of_a_run_that_succeeded_later() {
    let db = TestDb::new();
    db.apply("[jobs.late]\nshell = '[ \"$JOBCTL_ATTEMPT\" = 2 ]'\nbackoff = 'fixed:0s'\n");
    let id = db.enqueue(["late"]);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, last_error"), "succeeded|2|exit status 1");
    let table = |words: &[&str]| {
        let printed = db.jobctl(words.iter().copied()).args(["--format", "table"]).run().success();
        printed.stdout
    };
    assert!(!table(&["list"]).contains("exit status 1"), "{}", table(&["list"]));
    assert!(!table(&["jobs", "late"]).contains("exit status 1"), "{}", table(&["jobs", "late"]));
    assert!(table(&["show", &id.to_string()]).contains("\nlast error:"));
    // A filter for failures, and the output for programs, show the error.
    assert!(table(&["list", "--had-failures"]).contains("exit status 1"));
    db.jobctl(["list"]).run().success().stdout_has("exit status 1");
}

#[test]
fn a_list_shows_the_fields_and_the_order_that_it_is_asked_for() {
    let db = TestDb::new();
    let enqueue = |share: &str, priority: &str| {
        let run = ["shell", "--share", share, "--priority", priority, "--in", "1h", "--", "true"];
        db.enqueue(run)
    };
    let [a, b, c] =
        [("x", "2"), ("y", "-10"), ("x", "-9")].map(|(share, priority)| enqueue(share, priority));
    // A run without a share, and with the priority 0.
    let other = db.enqueue(["shell", "--in", "1h", "--", "true"]);
    let list = |flags: &[&str]| db.jobctl(["list"]).args(flags.iter().copied()).run().success();
    // The newest come first, unless another order is given.
    list(&["--columns", "id,share"]).stdout(&format!("{other}\n{c}\tx\n{b}\ty\n{a}\tx\n"));
    list(&["--columns", "priority", "--sort", "priority"]).stdout("-10\n-9\n0\n2\n");
    // A run without a share comes last in both directions.
    list(&["--columns", "id", "--sort", "share,-id"]).stdout(&format!("{c}\n{a}\n{b}\n{other}\n"));
    list(&["--columns", "id", "--sort=-share,run_at"]).stdout(&format!("{b}\n{a}\n{c}\n{other}\n"));
    // The limit counts first: these are the newest two.
    list(&["--columns", "id", "--sort", "id", "--limit", "2"]).stdout(&format!("{c}\n{other}\n"));
    list(&["--columns", "share,id", "--sort", "id", "--limit", "1", "--json"])
        .stdout(&format!("[{{\"share\":null,\"id\":{other}}}]\n"));
    let table = list(&["--columns", "enqueued_by,id", "--format", "table", "--limit", "1"]);
    assert!(table.stdout.starts_with(" ENQUEUED BY  ID\n "), "{table}");
    list(&["--header", "--columns", "id", "--status", "dead"]).stdout("id\n");

    // Fields that are named twice, or unknown.
    let twice = db.jobctl(["list", "--columns", "id,share,id"]).run().exits(2).stdout("");
    twice.stderr_has("--columns: field `id` is named twice");
    for (command, flag) in [
        ("list", "--columns"),
        ("list", "--sort"),
        ("list-dead", "--columns"),
        ("failures", "--sort"),
        ("trail", "--columns"),
    ] {
        db.jobctl([command, flag, "id,nothing"])
            .run()
            .exits(2)
            .stdout("")
            .complains_once()
            .stderr_has(&format!("{flag}: unknown field `"))
            .stderr_has("; allowed are ");
    }
    for (column, meant) in [("KEY", "idempotency_key"), ("error", "last_error"), ("shar", "share")]
    {
        let refused = db.jobctl(["list", "--columns", column]).run().exits(2);
        refused.stderr_has(&format!("; did you mean `{meant}`?"));
    }
}

#[test]
fn waiting_and_running_runs_have_columns_of_their_own() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in ["queued", "running", "failed", "dead"] {
        enqueue_in_status(&db, status);
    }
    let header = |statuses: &str| {
        let list = db.jobctl(["list", "--format", "table", "--status", statuses]).run().success();
        list.stdout.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // A list of mixed statuses has the columns that suit each run.
    let waiting = "ID JOB STATUS ATTEMPTS DUE QUEUE PRIORITY";
    assert!(header("queued").starts_with(waiting));
    assert!(header("failed,queued").starts_with(waiting));
    assert!(header("running").starts_with("ID JOB STATUS WORKER ATTEMPTS SINCE USUAL END QUEUE"));
    assert!(header("running,queued").starts_with("ID JOB STATUS ATTEMPTS CREATED"));
    assert!(header("dead").starts_with("ID JOB STATUS ATTEMPTS CREATED"));
}
