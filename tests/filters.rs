//! The filters of commands that select runs.

use crate::support::{Role, TestDb};

/// Five dead runs that differ in what filters compare: payload, key, share, job, worker, error and
/// enqueuer. The runs 0, 2 and 4 died on web1, the others on web2.
fn five_dead(db: &TestDb) -> [i64; 5] {
    db.apply("[jobs.mail]\nshell = 'false'\nmax_attempts = 1\n");
    let enqueue = |arguments: &[&str]| db.enqueue(arguments.iter().copied());
    let ids = [
        enqueue(&["mail", r#"{"order": {"id": 17, "paid": true}}"#, "--key", "order:17"]),
        enqueue(&["mail", r#"{"order": {"id": "17", "paid": false}}"#, "--key", "order:18"]),
        enqueue(&["mail", r#"{"order": null}"#, "--share", "ana", "--key", "invoice:1"]),
        enqueue(&[
            "shell",
            "--share",
            "bob",
            "--max-attempts",
            "1",
            "--",
            "sh",
            "-c",
            "echo first; echo 'No space LEFT on device'; echo; exit 3",
        ]),
        enqueue(&["mail"]),
    ];
    // A queue for each worker, so that the right one executes the run.
    for (worker, id) in ["web1", "web2", "web1", "web2", "web1"].into_iter().zip(ids) {
        db.execute(&format!("UPDATE jobctl.job_runs SET queue = '{worker}' WHERE id = {id}"));
    }
    for worker in ["web1", "web2"] {
        db.jobctl(["tick", "--quiet", "--worker", worker, "--queue", worker]).run().success();
    }
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET last_error = 'HTTP status 503 of 100% pages', \
         enqueued_by = 'shop' WHERE id = {}",
        ids[4]
    ));
    ids
}

#[test]
fn filters_select_the_same_runs_in_all_commands() {
    let db = TestDb::new();
    let ids = five_dead(&db);
    // A filter, and the indexes of the runs in `ids` that match it.
    for (filter, wanted) in [
        (&["--share", "ana"][..], &[2][..]),
        (&["--worker", "web2"], &[1, 3]),
        (&["--worker", "web9"], &[]),
        (&["--key", "order:17"], &[0]),
        (&["--key", "order:*"], &[0, 1]),
        (&["--key", "o*"], &[0, 1]),
        (&["--key", "order:1"], &[]),
        (&["--error", "503 OF 100%"], &[4]),
        (&["--error", "no space left"], &[3]),
        (&["--error", "first"], &[]),
        (&["--error", "EXIT STATUS"], &[0, 1, 2, 3]),
        (&["--payload", "order.id=17"], &[0, 1]),
        (&["--payload", "order.id=17", "--payload", "order.paid=true"], &[0]),
        (&["--payload", "order=null"], &[2]),
        (&["--payload", "none=null"], &[]),
        (&["--payload", "order.id="], &[]),
        (&["--enqueued-by", "shop"], &[4]),
        (&["--error", "exit status", "--worker", "web1", "--job", "mail"], &[0, 2]),
    ] {
        let mut wanted: Vec<_> =
            wanted.iter().map(|index: &usize| ids[*index].to_string()).collect();
        let filter = || filter.iter().copied();
        for command in [
            &["list"][..],
            &["list-dead"],
            &["retry", "--all-dead", "--verbose", "--dry-run"],
            &["settle", "--all-dead", "--verbose", "--dry-run"],
        ] {
            let listed = db.jobctl(command.iter().copied()).args(filter()).run().success().stdout;
            let mut found: Vec<_> =
                listed.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{command:?} {:?}", filter().collect::<Vec<_>>());
        }
        // The groups count the same runs.
        let grouped = db.jobctl(["list-dead", "--group", "--json"]).args(filter()).run().success();
        let groups: serde_json::Value = serde_json::from_str(&grouped.stdout).unwrap();
        let sum: i64 =
            groups.as_array().unwrap().iter().map(|it| it["runs"].as_i64().unwrap()).sum();
        assert_eq!(sum, wanted.len() as i64);
        // A filter alone selects no runs to retry.
        let refused = db.jobctl(["retry"]).args(filter()).run().exits(2);
        refused.stderr_has("filters need --all-dead, --all-cancelled or --again");
    }
    // `edit` and `cancel` have filters, too. No run is waiting, so they find none. The --queue of
    // `edit` changes runs, so --from-queue is its filter.
    let edit = ["edit", "--all-waiting", "--payload", "order.id=17", "--from-queue", "web1"];
    db.jobctl(edit).args(["--queue", "slow", "--dry-run"]).run().success().stdout("");
    let cancel = ["cancel", "--all", "--share", "ana", "--dry-run"];
    db.jobctl(cancel).run().success().stdout("");
}

#[test]
fn the_error_filter_finds_only_the_output_of_failed_attempts() {
    let db = TestDb::new();
    let success = db.enqueue_script("echo no error today");
    let failure = db.enqueue_script("echo an error today; exit 1");
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!([success, failure].map(|id| db.status(id)), ["succeeded", "failed"]);
    let list = |text: &str| db.jobctl(["list", "--error", text, "--columns", "id"]).run().success();
    list("ERROR TODAY").stdout(&format!("{failure}\n"));
    list("no error").stdout("");
}

#[test]
fn lists_show_the_share_the_worker_and_the_enqueuer_of_each_run() {
    let db = TestDb::new();
    let ids = five_dead(&db);
    let login = db.query("SELECT session_user");
    for command in ["list", "list-dead"] {
        let listed = db.jobctl([command, "--share", "bob", "--json"]).run().success().stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let run = &listed[0];
        // The run of bob.
        assert_eq!(run["id"], ids[3]);
        assert_eq!([&run["share"], &run["worker"]], ["bob", "web2"]);
        assert_eq!(run["enqueued_by"], login.as_str());
    }
}

#[test]
fn list_warns_at_a_terminal_of_a_filter_that_may_read_all_of_many_runs() {
    let db = TestDb::new();
    // Sets the number of runs that PostgreSQL estimates; -1 means that it has never counted them.
    let set_estimate = |runs: i64| {
        db.execute(&format!(
            "UPDATE pg_class SET reltuples = {runs} WHERE oid = 'jobctl.job_runs'::regclass"
        ));
    };
    let warns = |arguments: &str| {
        let (shown, done) = crate::retry::answer_at_terminal(&db, arguments, "n");
        drop(done.success());
        shown.contains("this may read all 1,234,567 runs; add --since to read fewer")
    };
    set_estimate(1_234_567);
    for filter in ["--share a", "--key 'a*'", "--error a", "--payload a=1", "--enqueued-by a"] {
        assert!(warns(&format!("list {filter}")), "{filter}");
        assert!(!warns(&format!("list {filter} --since 1h")), "{filter}");
        // An index contains only the dead runs, so `list-dead` reads few.
        assert!(!warns(&format!("list-dead {filter}")), "{filter}");
    }
    assert!(warns("list --worker web1"));
    for filter in ["", "--job shell", "--key a", "--queue a"] {
        assert!(!warns(&format!("list {filter}")), "{filter}");
    }
    // The table is not that large, or its size is unknown.
    set_estimate(200_000);
    assert!(!warns("list --share a"));
    set_estimate(-1);
    assert!(!warns("list --share a"));
}

#[test]
fn a_wrong_filter_is_refused() {
    let db = TestDb::new();
    for filter in [
        ["--payload", "order"],
        ["--payload", "=1"],
        ["--share", ""],
        ["--worker", ""],
        // A script with an empty prefix must not select all keys.
        ["--key", "*"],
        ["--key", " *"],
    ] {
        db.jobctl(["list"]).args(filter).run().exits(2).stdout("");
    }
    db.jobctl(["list", "--share", "\t"]).run().exits(2).stderr_has("a share must have");
}

#[test]
fn a_viewer_may_group_failures_by_each_filter_but_a_text() {
    let db = TestDb::new();
    five_dead(&db);
    let viewer = Role::granted(&db, "viewer");
    let grouped = |filter: [&str; 2]| viewer.jobctl(["failures", "--group"]).args(filter).run();
    for (flag, value) in [
        ("--job", "shell"),
        ("--share", "bob"),
        ("--queue", "web2"),
        ("--worker", "web1"),
        ("--error-type", "exit_code"),
        ("--since", "1d"),
    ] {
        let listed = grouped([flag, value]).success().stdout;
        let all = db.jobctl(["failures", "--group", flag, value]).run().success().stdout;
        // The last field has the newest attempt's own text, which a viewer does not see. So each
        // line of a viewer is the beginning of the owner's line.
        assert_eq!(listed.lines().count(), all.lines().count(), "{flag}");
        for (of_viewer, of_owner) in listed.lines().zip(all.lines()) {
            assert!(of_owner.starts_with(of_viewer), "{flag}: {listed}{all}");
        }
        assert!(!listed.is_empty(), "{flag}");
    }
    grouped(["--error", "space"]).exits(7).stdout("");
}

/// A worker's login sees all columns; a viewer's sees no payload, and `list` needs it.
#[test]
fn a_worker_may_use_filters() {
    let db = TestDb::new();
    let id = five_dead(&db)[0];
    let listed =
        Role::granted(&db, "worker").jobctl(["list", "--payload", "order.paid=true"]).run();
    assert!(listed.success().stdout.starts_with(&format!("{id}\t")));
}

#[test]
fn failures_have_the_filters_of_attempts() {
    let db = TestDb::new();
    let ids = five_dead(&db);
    // A filter, and the indexes of the runs in `ids` whose attempts match it.
    for (filter, wanted) in [
        (["--share", "bob"], &[3][..]),
        (["--queue", "web2"], &[1, 3]),
        (["--worker", "web1"], &[0, 2, 4]),
        (["--error", "NO SPACE"], &[3]),
        (["--error", "Exit status 3"], &[3]),
        (["--error-type", "exit_code"], &[0, 1, 2, 3, 4]),
        (["--error-type", "timeout"], &[]),
    ] {
        let listed = db.jobctl(["failures", "--json"]).args(filter).run().success().stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let runs = listed.as_array().unwrap().iter().map(|it| it["run_id"].as_i64().unwrap());
        let mut runs: Vec<_> = runs.collect();
        runs.sort_unstable();
        let wanted: Vec<_> = wanted.iter().map(|index: &usize| ids[*index]).collect();
        assert_eq!(runs, wanted, "{filter:?}");
        // The groups count the same attempts.
        let grouped = db.jobctl(["failures", "--group", "--json"]).args(filter).run().success();
        let groups: serde_json::Value = serde_json::from_str(&grouped.stdout).unwrap();
        let groups = groups.as_array().unwrap();
        let sum: i64 = groups.iter().map(|it| it["failures"].as_i64().unwrap()).sum();
        assert_eq!(sum, wanted.len() as i64, "{filter:?}");
    }
}
