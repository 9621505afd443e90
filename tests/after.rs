//! Runs that wait for other runs: `--after`, its rules, and what releases them.

use std::fmt::Write as _;

use postgres::Client;
use postgres::error::SqlState;
use rustix::process::Signal;

use crate::support::http_server::HttpServer;
use crate::support::{Gate, Role, TestDb, wait_until};
use crate::wait::has_ended_a_transaction;

const JOBS: &str = "[jobs.export]\nshell = 'true'\n[jobs.mail]\nshell = 'true'\n\
    [jobs.bad]\nshell = 'exit 1'\nmax_attempts = 1\n";

/// Returns a database with three jobs: `export` and `mail` succeed, and `bad` is dead after its
/// only attempt.
fn db_with_export_mail_and_bad() -> TestDb {
    let db = TestDb::new();
    db.apply(JOBS);
    db
}

/// Corrects the job `bad`, so that a retry of its run succeeds.
fn correct_bad(db: &TestDb) {
    db.apply(&JOBS.replace("exit 1", "true"));
}

/// Enqueues a run of `mail` that waits for these runs.
fn enqueue_mail_after(db: &TestDb, after: &[i64], flags: &[&str]) -> i64 {
    let after: Vec<_> = after.iter().map(ToString::to_string).collect();
    let after = after.join(",");
    db.enqueue(["mail", "--after", &after].into_iter().chain(flags.iter().copied()))
}

fn tick(db: &TestDb) {
    db.jobctl(["tick"]).run().success();
}

/// Returns a database with a dead run of `bad`, and the id of this run.
fn db_with_dead_run() -> (TestDb, i64) {
    let db = db_with_export_mail_and_bad();
    let dead = db.enqueue(["bad"]);
    tick(&db);
    assert_eq!(db.status(dead), "dead");
    (db, dead)
}

/// Returns what `enqueue` and `wait` print about a run that can't start.
fn cannot_start(id: &str) -> String {
    format!(
        "jobctl: run {id} can't start: a run that must succeed first is dead, cancelled or \
         deleted; `jobctl show {id}` says which\n"
    )
}

/// Returns the states of the runs that this run waits for, in the order of the ids. `open`: it has
/// not ended. `due`: a tick must decide. `met`: it has ended as the rule asks. `stuck`: it has
/// ended otherwise.
fn states_of_predecessors(db: &TestDb, run: i64) -> String {
    db.query(&format!(
        "SELECT string_agg(state, ' ' ORDER BY after_id)
         FROM jobctl.job_dependencies WHERE run_id = {run}"
    ))
}

#[test]
fn a_run_starts_when_all_runs_that_it_waits_for_have_succeeded() {
    let db = db_with_export_mail_and_bad();
    let (first, second) = (db.enqueue(["export"]), db.enqueue(["export", "--in", "1h"]));
    let mail = enqueue_mail_after(&db, &[first, second], &[]);
    assert_eq!(db.status(mail), "blocked");
    tick(&db);
    assert_eq!(db.statuses(), "succeeded queued blocked");
    let shown = db.jobctl(["show", &mail.to_string(), "--format", "table"]).run().success();
    let steps = format!("\n`jobctl list --before {mail}` shows the runs that it waits for\n");
    let why = format!("waits for 1 of 2 runs (1 queued); the first is run {second}");
    shown.stdout_has(&why).stdout_has(&steps);
    db.make_waiting_runs_due();
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded succeeded");
    let starts_after_both = format!(
        "SELECT bool_and(before.finished_at <= mail.started_at)
         FROM jobctl.job_runs AS mail, jobctl.job_runs AS before
         WHERE mail.id = {mail} AND before.id <> {mail}"
    );
    assert_eq!(db.query(&starts_after_both), "t");
    // Claims take the earliest runs first. A released run is due since its release, not its
    // enqueue.
    assert_eq!(db.of_run(mail, "run_at > created_at"), "t");
    // A run that waits for a run that has succeeded is due at once.
    let late = db.enqueue(["mail", "--after", &first.to_string()]);
    assert_eq!(db.status(late), "queued");
}

/// The graph of these runs is root - second - first, middle and third - last.
#[test]
fn list_follows_a_chain_to_its_end_and_show_names_its_root() {
    let db = db_with_export_mail_and_bad();
    let root = db.enqueue(["export"]);
    let second = enqueue_mail_after(&db, &[root], &[]);
    let [first, middle, third] = [(); 3].map(|()| enqueue_mail_after(&db, &[second], &[]));
    let last = enqueue_mail_after(&db, &[first, middle, third], &[]);
    let list = |run: i64, flags: &[&str]| {
        let run = run.to_string();
        let list = db.jobctl(["list", "--columns", "id"]).args(flags.iter().copied());
        let mut ids: Vec<i64> = list
            .args([run.as_str()])
            .run()
            .success()
            .stdout
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(list(root, &["--after"]), [second, first, middle, third, last]);
    assert_eq!(list(root, &["--direct", "--after"]), [second]);
    assert_eq!(list(last, &["--before"]), [root, second, first, middle, third]);
    assert_eq!(list(last, &["--direct", "--before"]), [first, middle, third]);
    assert_eq!(list(last, &["--after"]), Vec::<i64>::new());
    db.jobctl(["list", "--direct"]).run().exits(2).stdout("");
    // `show` names the root only of a run that does not wait for it directly.
    let roots = |run: i64| {
        let shown = db.jobctl(["show", "--json", &run.to_string()]).run().success().stdout;
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["roots"].clone()
    };
    assert_eq!(
        [root, second, first, last].map(roots).map(|it| it.to_string()),
        ["[]".to_owned(), "[]".to_owned(), format!("[{root}]"), format!("[{root}]")]
    );
    let show = db.jobctl(["show", "--format", "table", &last.to_string()]).run().success();
    show.stdout_has(&format!("chain root:  {root}\n"));
}

#[test]
fn a_program_enqueues_a_run_that_waits() {
    let db = db_with_export_mail_and_bad();
    let ids = db.query(
        "WITH a AS (SELECT jobctl.enqueue('export') AS id)
         SELECT a.id, jobctl.enqueue('mail', after => ARRAY[a.id], after_rule => 'any_end') FROM a",
    );
    // The first two runs of this database.
    assert_eq!(ids, "1|2");
    assert_eq!(db.statuses(), "queued blocked");
    // Wrong arguments and their SQLSTATEs. JC010: there is no such run.
    for (call, code) in [
        ("after => ARRAY[99]", "JC010"),
        ("after => ARRAY[1], after_rule => 'some'", "22023"),
        ("after => ARRAY[1], key => 'a', key_scope => 'live', on_conflict => 'replace'", "22023"),
    ] {
        let refused = db.try_query(&format!("SELECT jobctl.enqueue('mail', {call})")).unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code, "{call}");
    }
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded");
}

#[test]
fn a_batch_names_its_lines_and_ends_with_a_run_that_waits_for_all() {
    let db = db_with_export_mail_and_bad();
    let batch = r#"{"job_type": "export", "as": "a"}
        {"job_type": "export", "as": "b", "after": ["a"]}
        {"job_type": "export", "as": "c", "after": ["a"]}
        {"job_type": "export", "after": ["b", "c"]}"#;
    let enqueued = db
        .jobctl(["enqueue", "--batch", "-", "--then", "mail", r#"{"to": "ana"}"#])
        .stdin(batch)
        .run()
        .success();
    // The runs of the four lines, and the run of --then.
    enqueued.stdout("1\n2\n3\n4\n5\n");
    assert_eq!(db.statuses(), "queued blocked blocked blocked blocked");
    assert_eq!(db.of_run(5, "payload ->> 'to'"), "ana");
    let shown = db.jobctl(["show", "5", "--json"]).run().success();
    shown.stdout_has("\"after\":[1,2,3,4],\"after_rule\":\"success\",\"followers\":[]");
    tick(&db);
    assert_eq!(
        db.query("SELECT string_agg(id::text, ' ' ORDER BY started_at, id) FROM jobctl.job_runs"),
        "1 2 3 4 5"
    );
    // The runs of `b` and `c` started together.
    assert_eq!(db.query("SELECT count(DISTINCT started_at) FROM jobctl.job_runs"), "4");
    // The runs after line `c`, which is run 3, and those before it.
    let list = |flag: &str| {
        let listed = db.jobctl(["list", flag, "3", "--columns", "id"]).run().success().stdout;
        listed.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list("--after"), "5 4");
    assert_eq!(list("--before"), "1");
}

#[test]
fn a_wrong_name_or_id_in_after_enqueues_nothing() {
    let db = db_with_export_mail_and_bad();
    // The batch, and the line and the reason that the error names.
    for (lines, line, why) in [
        (r#"{"job_type": "mail", "after": ["a"]}"#, 1, "`after`: no line is named `a`\n"),
        (r#"{"job_type": "mail", "after": ["77"]}"#, 1, "write the id of a run without quotes"),
        (r#"{"job_type": "mail", "as": "a", "after": ["a"]}"#, 1, "can't wait for itself"),
        (r#"{"job_type": "mail", "as": ""}"#, 1, "the name of a line must not be blank"),
        (r#"{"job_type": "mail", "as": " "}"#, 1, "the name of a line must not be blank"),
        (r#"{"job_type": "mail", "after": [null]}"#, 1, "expected the id of a run or the name"),
        (
            "{\"job_type\": \"mail\", \"as\": \"orders\"}\n\
             {\"job_type\": \"mail\", \"after\": [\"oders\"]}",
            2,
            "no line is named `oders`; did you mean `orders`?",
        ),
        (
            "{\"job_type\": \"mail\", \"after\": [\"b\"]}\n\n\
             {\"job_type\": \"mail\", \"as\": \"b\"}",
            1,
            "`after`: line 3, named `b`, must come first",
        ),
        (
            "{\"job_type\": \"mail\", \"as\": \"a\"}\n{\"job_type\": \"mail\", \"as\": \"a\"}",
            2,
            "`as`: line 1 is named `a`, too",
        ),
        ("{\"job_type\": \"mail\"}\n{\"job_type\": \"mail\", \"after\": [77]}", 2, "no run 77"),
        // Line 3 undoes the run of line 1, and so line 2 fails, too. The error names the cause.
        (
            "{\"job_type\": \"export\", \"as\": \"a\"}\n\
             {\"job_type\": \"mail\", \"after\": [\"a\"]}\n{\"job_type\": \"nosuch\"}",
            3,
            "no definition `nosuch`",
        ),
    ] {
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().stdout("");
        assert!(!refused.status.success());
        refused.complains_once().stderr_has(&format!("batch line {line}: ")).stderr_has(why);
    }
    assert_eq!(db.statuses(), "");
}

#[test]
fn wrong_flags_for_runs_that_wait_enqueue_nothing() {
    let db = db_with_export_mail_and_bad();
    db.jobctl(["enqueue", "mail", "--after", "77"]).run().exits(3).stderr_has("no run 77");
    db.jobctl(["enqueue", "mail", "--then", "mail"])
        .run()
        .exits(2)
        .stderr_has("cannot be used with");
    let twice = ["enqueue", "--batch", "-", "--then", "mail", "--then", "mail"];
    db.jobctl(twice).stdin("").run().exits(2).stderr_has("cannot be used multiple times");
    db.jobctl(["enqueue", "mail", "--or-cancel"]).run().exits(2).stderr_has("need --after");
    let live = ["enqueue", "mail", "--key", "a", "--key-scope", "live", "--after", "77"];
    let replaces = db.jobctl(live.into_iter().chain(["--on-conflict", "replace"]));
    replaces.run().exits(2).stderr_has("--after excludes --on-conflict replace\n");
    assert_eq!(db.statuses(), "");
}

#[test]
fn a_run_waits_for_a_retry_of_a_dead_one_and_a_finding_names_both() {
    let db = db_with_export_mail_and_bad();
    let bad = db.enqueue(["bad"]);
    let mail = enqueue_mail_after(&db, &[bad], &[]);
    tick(&db);
    assert_eq!(db.statuses(), "dead blocked");
    assert_eq!(states_of_predecessors(&db, mail), "stuck");
    db.jobctl(["check"])
        .run()
        .exits(1)
        .stdout_has("1 run of mail waits for runs that did not succeed")
        .stdout_has(&format!("`jobctl list --before {mail}` shows the known ones"));
    let why = format!("waits for run {bad}, which is dead");
    db.jobctl(["show", &mail.to_string()]).run().success().stdout_has(&why);
    // `prune` keeps a run that another run waits for, however old it is.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET finished_at = now() - interval '1 year' WHERE id = {bad}"
    ));
    db.jobctl(["prune", "--older-than", "1d", "--dead-older-than", "1d", "--yes"]).run().success();
    assert_eq!(db.statuses(), "dead blocked");
    correct_bad(&db);
    db.jobctl(["retry", &bad.to_string()]).run().success();
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded");
}

/// A follower reads the results of its predecessors at its start, and again at each retry.
#[test]
fn prune_keeps_the_results_that_an_unfinished_run_may_read() {
    let db = TestDb::new();
    db.apply(
        "[jobs.part]\nshell = 'echo done'\nkeep = '0s'\n\
         [jobs.sum]\nshell = 'cat'\npass_result = true\n",
    );
    let (first, late) = (db.enqueue(["part"]), db.enqueue(["part", "--in", "1h"]));
    let sum = db.enqueue(["sum", "--after", &format!("{first},{late}")]);
    let unread = db.enqueue(["part"]);
    tick(&db);
    // Makes all finished runs old enough for `prune`, and asserts which of them it deletes.
    let assert_prunes = |counts: &str| {
        db.execute(
            "UPDATE jobctl.job_runs SET created_at = now() - interval '1 year',
                 finished_at = now() - interval '1 year' WHERE finished_at IS NOT NULL",
        );
        db.jobctl(["prune", "--dry-run"]).run().success().stdout(counts);
        db.jobctl(["prune"]).run().success().stdout(counts);
    };
    assert_eq!(db.statuses(), "succeeded queued blocked succeeded");
    // Only the run that no follower reads is deleted.
    assert_prunes("succeeded\t1\n");
    assert_eq!(db.query(&format!("SELECT count(*) FROM jobctl.job_runs WHERE id = {unread}")), "0");
    // The second predecessor has ended, too, and the follower has not started: it still reads both.
    db.execute(&format!("UPDATE jobctl.job_runs SET run_at = now() WHERE id = {late}"));
    db.jobctl(["tick", "--limit", "1"]).run().success();
    assert_eq!(db.statuses(), "succeeded succeeded queued");
    assert_prunes("");
    tick(&db);
    let output = db.query(&format!("SELECT output FROM jobctl.job_attempts WHERE run_id = {sum}"));
    assert_eq!(output.matches(r#""output": "done\n""#).count(), 2, "{output}");
    // The follower has ended, so nothing keeps the results.
    assert_prunes("succeeded\t3\n");
}

#[test]
fn show_and_wait_name_what_keeps_a_run_at_the_end_of_a_chain_from_starting() {
    let db = db_with_export_mail_and_bad();
    let bad = db.enqueue(["bad"]);
    let middle = enqueue_mail_after(&db, &[bad], &[]);
    let last = enqueue_mail_after(&db, &[middle], &["--after-any-end"]).to_string();
    let wait = db.jobctl(["wait", &last]).env("PGAPPNAME", "waits").spawn();
    wait_until("the command to wait", || has_ended_a_transaction(&db, "waits"));
    tick(&db);
    let why = format!("waits for run {middle}, which is blocked; run {bad} is dead");
    db.jobctl(["show", &last, "--format", "table"])
        .run()
        .success()
        .stdout_has(&why)
        .stdout_has("after rule:  any_end");
    // Each `wait` prints this line once. A `wait` that begins now prints it at once.
    let says = cannot_start(&last);
    let goes_on = format!("jobctl: run {last} goes on; `jobctl wait {last}`\n");
    db.jobctl(["wait", &last, "--timeout", "1s"])
        .run()
        .exits(124)
        .stderr(&(says.clone() + &goes_on));
    correct_bad(&db);
    db.jobctl(["retry", &bad.to_string()]).run().success();
    (0..3).for_each(|_| tick(&db));
    wait.wait().success().stderr(&says);
    // `retry` lets the middle run start without its predecessor. So the last run is not stuck
    // behind the dead one either.
    db.apply(JOBS);
    let dead = db.enqueue(["bad"]);
    let middle = enqueue_mail_after(&db, &[dead], &[]);
    let last = enqueue_mail_after(&db, &[middle], &[]).to_string();
    tick(&db);
    db.jobctl(["retry", &middle.to_string()]).run().success();
    let goes_on = format!("jobctl: run {last} goes on; `jobctl wait {last}`\n");
    db.jobctl(["wait", &last, "--timeout", "1s"]).run().exits(124).stderr(&goes_on);
    // A deleted run has no status, and all runs after it are stuck, too.
    let gone = db.enqueue(["export", "--in", "1h"]);
    let last = [enqueue_mail_after(&db, &[gone], &[]), enqueue_mail_after(&db, &[gone], &[])];
    let last = enqueue_mail_after(&db, &last, &[]);
    tick(&db);
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {gone}"));
    tick(&db);
    let why = format!("waits for 2 of 2 runs (2 blocked); run {gone} is deleted");
    db.jobctl(["show", &last.to_string()]).run().success().stdout_has(&why);
}

/// `enqueue` prints the same line as `wait`, before any tick has looked at the new run.
#[test]
fn an_enqueue_says_that_a_run_waits_for_one_that_did_not_succeed() {
    let (db, dead) = db_with_dead_run();
    let cancelled = db.enqueue(["export", "--in", "1h"]);
    db.jobctl(["cancel", &cancelled.to_string()]).run().success();
    let deleted = db.enqueue(["export", "--in", "1h"]);
    let after_deleted = enqueue_mail_after(&db, &[deleted], &[]);
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {deleted}"));
    let enqueue_stuck = |after: i64| {
        let after = after.to_string();
        let words = ["enqueue", "mail", "--after", &after, "--key", &after];
        let enqueued = db.jobctl(words).run().success();
        let id = enqueued.stdout.trim().to_owned();
        enqueued.stderr(&cannot_start(&id));
        // The same key returns the same run, and `enqueue` says nothing about it.
        db.jobctl(words).run().success().stderr("");
        id.parse::<i64>().unwrap()
    };
    enqueue_stuck(dead);
    enqueue_stuck(cancelled);
    // These two runs are further back in the chain behind the deleted run.
    let middle = enqueue_stuck(after_deleted);
    let last = enqueue_stuck(middle);
    let shown = db.jobctl(["show", &last.to_string()]).run().success();
    shown.stdout_has(&format!("which is blocked; run {deleted} is deleted"));
}

#[test]
fn an_enqueue_says_nothing_about_a_run_that_can_start_later() {
    let (db, dead) = db_with_dead_run();
    let open = db.enqueue(["export", "--in", "1h"]);
    let after_any_end = ["enqueue", "mail", "--after", &dead.to_string(), "--after-any-end"];
    db.jobctl(after_any_end).run().success().stderr("");
    let after_open = ["enqueue", "mail", "--after", &open.to_string()];
    db.jobctl(after_open).run().success().stderr("");
}

#[test]
fn enqueue_with_wait_says_only_once_that_its_run_cannot_start() {
    let (db, dead) = db_with_dead_run();
    let words = ["enqueue", "mail", "--after", &dead.to_string(), "--wait=1s"];
    let waited = db.jobctl(words).run().exits(124);
    assert_eq!(waited.stderr.matches("can't start").count(), 1, "{waited}");
}

#[test]
fn one_line_counts_all_runs_of_a_batch_that_cannot_start() {
    let (db, dead) = db_with_dead_run();
    // The first line waits for the dead run, the second for no run, and the third for the first.
    let line = |more: &str| format!("{{\"job_type\": \"mail\"{more}}}\n");
    let first = line(&format!(", \"after\": [{dead}], \"as\": \"m\""));
    let lines = first + &line("") + &line(", \"after\": [\"m\"]");
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    batch.complains_once().stderr_has("2 runs, such as run ");
}

#[test]
fn an_enqueuer_learns_that_its_run_waits_for_one_that_did_not_succeed() {
    let (db, dead) = db_with_dead_run();
    // Make the runs its own, because an enqueuer can only wait for those.
    let enqueuer = Role::granted(&db, "enqueuer");
    db.execute(&format!("UPDATE jobctl.job_runs SET enqueued_by = '{}'", enqueuer.name()));
    let words = ["enqueue", "mail", "--after", &dead.to_string()];
    let stuck = "can't start: a run that must succeed first";
    enqueuer.jobctl(words).run().success().stderr_has(stuck);
}

#[test]
fn a_run_starts_waits_or_is_cancelled_after_a_dead_or_cancelled_run_by_its_rule() {
    let db = db_with_export_mail_and_bad();
    db.apply(&format!("{JOBS}[jobs.copy]\nshell = 'true'\non_end = 'export'\n"));
    let (bad, put_off) = (db.enqueue(["bad"]), db.enqueue(["export", "--in", "1h"]));
    let any_end = enqueue_mail_after(&db, &[bad, put_off], &["--after-any-end"]);
    let copied = db.enqueue(["copy", "--after", &bad.to_string(), "--or-cancel"]);
    let next = enqueue_mail_after(&db, &[copied], &["--or-cancel"]);
    let last = enqueue_mail_after(&db, &[next], &["--after-any-end"]);
    tick(&db);
    let error = |run| db.of_run(run, "error_type || ': ' || last_error");
    assert_eq!(error(copied), format!("predecessor: run {bad} did not succeed: it is dead"));
    assert_eq!(error(next), format!("predecessor: run {copied} did not succeed: it is cancelled"));
    assert_eq!(
        [copied, next, last].map(|run| db.status(run)),
        ["cancelled", "cancelled", "succeeded"]
    );
    // The cancelled run of `copy` has enqueued its hook, the only later run.
    let hook = format!("SELECT payload ->> 'run' FROM jobctl.job_runs WHERE id > {last}");
    assert_eq!(db.query(&hook), copied.to_string());
    assert_eq!(db.status(any_end), "blocked");
    db.jobctl(["cancel", &put_off.to_string()]).run().success();
    assert_eq!(db.status(any_end), "queued");
    let refused = db.jobctl(["enqueue", "mail", "--after", &bad.to_string(), "--or-cancel"]).run();
    refused.exits(2).stderr_has(&format!("run {bad} is dead, which would cancel the new run"));
    // A person can let a blocked run start, or end it.
    let other = enqueue_mail_after(&db, &[bad], &[]);
    db.jobctl(["retry", &other.to_string()]).run().success();
    assert_eq!(db.status(other), "queued");
    let blocked = enqueue_mail_after(&db, &[bad], &[]);
    db.jobctl(["cancel", &blocked.to_string()]).run().success();
    assert_eq!(db.status(blocked), "cancelled");
}

#[test]
fn the_deletion_of_a_run_releases_or_cancels_its_followers_by_their_rules() {
    let db = db_with_export_mail_and_bad();
    let put_off = db.enqueue(["export", "--in", "1h"]);
    let rules: [&[&str]; 3] = [&[], &["--after-any-end"], &["--or-cancel"]];
    let runs = rules.map(|rule| enqueue_mail_after(&db, &[put_off], rule));
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {put_off}"));
    tick(&db);
    assert_eq!(runs.map(|run| db.status(run)), ["blocked", "succeeded", "cancelled"]);
    let shown = db.jobctl(["show", &runs[0].to_string()]).run().success();
    shown.stdout_has(&format!("waits for run {put_off}, which is deleted"));
    db.jobctl(["check"]).run().exits(1).stdout_has("1 run of mail waits for");
    // The row that says for which run a run waits is deleted with the run that waits.
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {}", runs[1]));
    assert_eq!(
        db.query("SELECT string_agg(run_id::text, ' ') FROM jobctl.job_dependencies"),
        format!("{} {}", runs[0], runs[2])
    );
}

#[test]
fn a_release_moves_the_expiry_and_a_key_keeps_what_its_run_waits_for() {
    let db = db_with_export_mail_and_bad();
    let put_off = db.enqueue(["export", "--in", "1h"]);
    let first = enqueue_mail_after(&db, &[put_off], &["--expires-in", "1h", "--key", "k"]);
    // While the run waits for its predecessor, its due time and its expiry pass.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '3 hours',
             expires_at = now() - interval '2 hours' WHERE id = {first}"
    ));
    // With a known key, `enqueue` returns its run and ignores `--after`, here of a missing run.
    let again = db.jobctl(["enqueue", "mail", "--after", "99", "--key", "k"]).run().success();
    again.stdout(&format!("{first}\n")).stderr("");
    db.make_waiting_runs_due();
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded");
    // The run expires an hour after its release again. The start came some seconds after that.
    let left = "date_trunc('minute', expires_at - started_at + interval '10 seconds')";
    assert_eq!(db.of_run(first, left), "01:00:00");
}

/// Ends a run as a tick that records a success does, in a transaction that stays open.
fn end_run_in_open_transaction(client: &mut Client, run: i64) {
    client
        .batch_execute(&format!(
            "BEGIN;
             UPDATE jobctl.job_runs SET status = 'succeeded', finished_at = now() WHERE id = {run};
             SELECT jobctl.mark_followers(ARRAY[{run}])"
        ))
        .unwrap();
}

#[test]
fn the_last_two_runs_may_end_in_transactions_that_do_not_see_each_other() {
    for first_commits_first in [true, false] {
        let db = db_with_export_mail_and_bad();
        let (first, second) =
            (db.enqueue(["export", "--in", "1h"]), db.enqueue(["export", "--in", "1h"]));
        let mail = enqueue_mail_after(&db, &[first, second], &[]);
        let (mut one, mut other) = (db.client(), db.client());
        end_run_in_open_transaction(&mut one, first);
        end_run_in_open_transaction(&mut other, second);
        let mut order = [one, other];
        if !first_commits_first {
            order.reverse();
        }
        order.iter_mut().for_each(|client| client.batch_execute("COMMIT").unwrap());
        assert_eq!(db.status(mail), "blocked");
        // Neither transaction saw that the other predecessor had ended, so a tick must decide.
        assert_eq!(states_of_predecessors(&db, mail), "due due");
        tick(&db);
        assert_eq!(db.status(mail), "succeeded");
        assert_eq!(states_of_predecessors(&db, mail), "met met");
    }
}

#[test]
fn a_locked_or_rejected_run_does_not_delay_the_result_that_releases_it() {
    // A trigger of another program rejects the release of one run with an error, or skips it. The
    // second text is the logged reason.
    for (trigger, why) in [
        ("RAISE EXCEPTION ''not this one''", "not this one"),
        ("RETURN NULL", "a trigger of jobctl.job_runs skips the row"),
    ] {
        let db = db_with_export_mail_and_bad();
        let export = db.enqueue(["export"]);
        let [locked, rejected, free] = [(); 3].map(|()| enqueue_mail_after(&db, &[export], &[]));
        let mut other = db.client();
        other
            .batch_execute(&format!(
                "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN {trigger}; END';
                 CREATE TRIGGER reject BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
                     WHEN (NEW.id = {rejected} AND NEW.status = 'queued') EXECUTE FUNCTION reject()"
            ))
            .unwrap();
        let lock = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {locked} FOR UPDATE");
        other.batch_execute(&lock).unwrap();
        let logged = db.jobctl(["tick"]).run().success();
        logged.stderr_has(&format!(
            "run {rejected} stays blocked: cannot release blocked runs: {why}"
        ));
        let statuses_of_all = || [export, locked, rejected, free].map(|run| db.status(run));
        assert_eq!(statuses_of_all(), ["succeeded", "blocked", "blocked", "succeeded"]);
        // The next tick releases the run that is no longer locked.
        other.batch_execute("ROLLBACK").unwrap();
        tick(&db);
        assert_eq!(statuses_of_all(), ["succeeded", "succeeded", "blocked", "succeeded"]);
        // A run that stays blocked for over 10 minutes after the end of its predecessor is a
        // problem.
        db.jobctl(["check"]).run().success();
        db.execute(
            "UPDATE jobctl.job_runs SET finished_at = now() - interval '11 minutes'
             WHERE status = 'succeeded'",
        );
        db.jobctl(["check"]).run().exits(1).stdout_has("no tick has released or cancelled");
        // Without the trigger, the next tick releases it.
        other.batch_execute("DROP TRIGGER reject ON jobctl.job_runs").unwrap();
        tick(&db);
        assert_eq!(db.status(rejected), "succeeded");
        db.jobctl(["check"]).run().success();
    }
}

#[test]
fn an_open_deletion_of_a_run_does_not_delay_the_result_of_another() {
    let db = db_with_export_mail_and_bad();
    let export = db.enqueue(["export"]);
    let mail = enqueue_mail_after(&db, &[export], &[]);
    let mut other = db.client();
    other.batch_execute(&format!("BEGIN; DELETE FROM jobctl.job_runs WHERE id = {mail}")).unwrap();
    tick(&db);
    assert_eq!(db.status(export), "succeeded");
    other.batch_execute("ROLLBACK").unwrap();
    tick(&db);
    assert_eq!(db.status(mail), "succeeded");
    // The row of a deleted run that waits goes with the run that it waits for.
    let bad = db.enqueue(["bad"]);
    let second = enqueue_mail_after(&db, &[bad], &[]);
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {second}"));
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id IN ({mail}, {bad})"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_dependencies"), "0");
}

/// The end of a run does not see a dependency that is not yet committed, and does not wait for it.
#[test]
fn a_run_that_ends_while_another_is_enqueued_after_it_releases_it() {
    let db = db_with_export_mail_and_bad();
    let gate = Gate::new();
    let gated = gate.enqueue(&db);
    let running = db.jobctl(["tick"]).spawn();
    gate.wait_for_starts(1);
    let mut application = db.client();
    application.batch_execute("BEGIN").unwrap();
    let after = format!("SELECT jobctl.enqueue('mail', after => ARRAY[{gated}::bigint])");
    let mail: i64 = application.query_one(&after, &[]).unwrap().get(0);
    gate.open();
    running.wait().success();
    assert_eq!(db.status(gated), "succeeded");
    application.batch_execute("COMMIT").unwrap();
    assert_eq!(db.status(mail), "blocked");
    assert_eq!(states_of_predecessors(&db, mail), "due");
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded");
}

/// An enqueue into a full definition drops its oldest run, which ends it. If its transaction has an
/// old snapshot, it does not see the runs that wait for the dropped run. Nevertheless their row
/// becomes due, so the next tick decides about them, or the transaction fails.
#[test]
fn a_transaction_with_an_old_snapshot_loses_no_run_that_waits() {
    let db = db_with_export_mail_and_bad();
    db.apply(&format!(
        "{JOBS}[jobs.full]\nshell = 'true'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n"
    ));
    let drop_oldest = "SELECT jobctl.enqueue('full', run_in => '1 hour')";
    for is_seen_by_a_tick in [false, true] {
        let oldest = db.enqueue(["full", "--in", "1h"]);
        let mut old = db.client();
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM jobctl.job_runs")
            .unwrap();
        let mail = enqueue_mail_after(&db, &[oldest], &["--after-any-end"]);
        if is_seen_by_a_tick {
            // The tick has decided that the run waits, and has given the oldest run a new row
            // version. So the old snapshot can't change that run: a serialization failure, 40001.
            tick(&db);
            assert_eq!(states_of_predecessors(&db, mail), "open");
            let refused = old.batch_execute(drop_oldest).unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "40001");
            db.jobctl(["cancel", &oldest.to_string()]).run().success();
        } else {
            // The row is new, so it is still due.
            old.batch_execute(&format!("{drop_oldest}; COMMIT")).unwrap();
            assert_eq!(db.status(oldest), "cancelled");
            assert_eq!(states_of_predecessors(&db, mail), "due");
        }
        tick(&db);
        assert_eq!(db.status(mail), "succeeded");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

/// A chain of cancelled runs may be longer than a statement can follow in its time. Then the next
/// tick goes on.
#[test]
fn two_ticks_cancel_a_chain_of_300_runs_after_a_dead_one() {
    let db = db_with_export_mail_and_bad();
    let mut batch = "{\"job_type\": \"bad\", \"as\": \"0\"}\n".to_owned();
    for link in 1..=300 {
        let before = link - 1;
        writeln!(
            batch,
            "{{\"job_type\": \"mail\", \"as\": \"{link}\", \"after\": [\"{before}\"], \
             \"or_cancel\": true}}"
        )
        .unwrap();
    }
    db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success();
    tick(&db);
    let cancelled = || {
        let count = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'cancelled'";
        db.query(count).parse::<i32>().unwrap()
    };
    assert!((10..=300).contains(&cancelled()), "{}", cancelled());
    tick(&db);
    assert_eq!(cancelled(), 300);
}

#[test]
fn an_enqueuer_waits_only_for_runs_whose_status_it_may_see() {
    let db = db_with_export_mail_and_bad();
    let other = db.enqueue(["export", "--in", "1h"]);
    let enqueuer = Role::granted(&db, "enqueuer");
    let own: i64 =
        enqueuer.jobctl(["enqueue", "export"]).run().success().stdout.trim().parse().unwrap();
    let enqueue = |after: i64| {
        enqueuer.jobctl(["enqueue", "mail", "--after", &after.to_string()]).run().stdout("")
    };
    // The error about a run of another role is the same as about a missing run.
    assert_eq!(enqueue(other).exits(3).stderr, format!("jobctl: no run {other}\n"));
    assert_eq!(enqueue(77).exits(3).stderr, "jobctl: no run 77\n");
    let after = own.to_string();
    enqueuer.jobctl(["enqueue", "mail", "--after", &after]).run().success();
    assert_eq!(db.statuses(), "queued queued blocked");
    tick(&db);
    assert_eq!(db.statuses(), "queued succeeded succeeded");
}

/// The SQL function `wait_for` makes runs wait for others. An enqueuer may call it, but only for
/// runs that the same transaction has enqueued.
#[test]
fn an_enqueuer_cannot_block_runs_of_others_or_its_own_earlier_runs() {
    let db = db_with_export_mail_and_bad();
    let of_other = db.enqueue(["export", "--in", "1h"]);
    // A person has retried this blocked run, so it starts without its predecessor.
    let retried_of_other = enqueue_mail_after(&db, &[of_other], &[]);
    db.jobctl(["retry", &retried_of_other.to_string()]).run().success();
    let enqueuer = Role::granted(&db, "enqueuer");
    let enqueue_own = || {
        let id = enqueuer.jobctl(["enqueue", "export"]).run().success().stdout;
        id.trim().parse::<i64>().unwrap()
    };
    let [earlier, predecessor] = [enqueue_own(), enqueue_own()];
    for run in [of_other, retried_of_other, earlier] {
        let call =
            format!("SELECT jobctl.wait_for(ARRAY[{run}], ARRAY[{predecessor}], ARRAY['success'])");
        enqueuer.client().batch_execute(&call).unwrap();
        assert_eq!(db.status(run), "queued");
    }
    let stored =
        format!("SELECT count(*) FROM jobctl.job_dependencies WHERE after_id = {predecessor}");
    assert_eq!(db.query(&stored), "0");
}

#[test]
fn an_enqueuer_may_not_call_the_function_that_decides_about_blocked_runs() {
    let db = db_with_export_mail_and_bad();
    let run = db.enqueue(["export", "--in", "1h"]);
    let enqueuer = Role::granted(&db, "enqueuer");
    // Ticks call it for the runs that wait for ended runs.
    let decide = format!("SELECT jobctl.decide_followers(ARRAY[{run}])");
    let refused = enqueuer.client().batch_execute(&decide).unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
}

#[test]
fn a_run_waits_for_ten_thousand_runs_at_most_and_at_most_as_many_wait_for_it() {
    let db = db_with_export_mail_and_bad();
    // One run that would wait for 10,001 runs.
    let mut batch = String::new();
    for _ in 0..10_001 {
        batch += "{\"job_type\": \"export\"}\n";
    }
    let refused = db.jobctl(["enqueue", "--batch", "-", "--then", "mail"]).stdin(batch).run();
    refused.exits(2).stdout("").stderr_has("a run can wait for at most 10000 runs");
    // 10,001 runs that would wait for one run.
    let first = db.enqueue(["export", "--in", "1h"]);
    let mut batch = String::new();
    for _ in 0..10_001 {
        writeln!(batch, "{{\"job_type\": \"mail\", \"after\": [{first}]}}").unwrap();
    }
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().exits(2).stdout("");
    refused.stderr_has(&format!("at most 10000 runs can wait for run {first}"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

/// One batch: 100 parts, of which each fifth fails once, and a chain of 1000 links. `--then` adds
/// a run of `whole`, which waits for all of them.
#[test]
fn graphs_run_in_order_on_three_hosts_although_one_is_killed() {
    let db = TestDb::new();
    // The payload of a part is the number of its attempts that fail.
    db.apply(
        "[jobs.part]\nshell = 'read fails; test $JOBCTL_ATTEMPT -gt $fails'\n\
         backoff = 'fixed:0s'\n[jobs.whole]\nshell = 'true'\n[jobs.link]\nshell = 'true'\n",
    );
    let mut batch = String::new();
    for part in 0..100 {
        let fails = i32::from(part % 5 == 0);
        writeln!(batch, "{{\"job_type\": \"part\", \"payload\": {fails}}}").unwrap();
    }
    for link in 0..1000 {
        let after =
            if link > 0 { format!("\"after\": [\"{}\"], ", link - 1) } else { String::new() };
        writeln!(batch, "{{\"job_type\": \"link\", {after}\"as\": \"{link}\"}}").unwrap();
    }
    db.jobctl(["enqueue", "--batch", "-", "--then", "whole"]).stdin(batch).run().success();
    // Kill one host while it works, and let two others take over its runs.
    let host = |worker| db.jobctl(["tick", "--worker", worker, "--lease", "1m"]);
    let killed = host("w1").spawn();
    wait_until("some runs to succeed", || {
        let succeeded = "SELECT count(*) >= 20 FROM jobctl.job_runs WHERE status = 'succeeded'";
        db.query(succeeded) == "t"
    });
    killed.signal(Signal::KILL);
    let others = ["w2", "w3"].map(|worker| host(worker).spawn());
    drop(killed.wait());
    db.expire_leases();
    others.into_iter().for_each(|tick| drop(tick.wait().success()));
    // These ticks may end while failed parts wait for their retry.
    let is_done =
        || db.query("SELECT count(*) FROM jobctl.job_runs WHERE status <> 'succeeded'") == "0";
    while !is_done() {
        db.expire_leases();
        db.make_waiting_runs_due();
        host("w3").run().success();
    }
    let out_of_order = "SELECT count(*) FROM jobctl.job_dependencies AS waits
        JOIN jobctl.job_runs AS run ON run.id = waits.run_id
        JOIN jobctl.job_runs AS before ON before.id = waits.after_id
        WHERE run.started_at < before.finished_at OR waits.state <> 'met'";
    assert_eq!(
        db.query(out_of_order),
        "0",
        "runs that started before a predecessor ended, or that count as waiting although it ended"
    );
    let attempts = "SELECT max(attempts) FROM jobctl.job_runs WHERE job_type = 'whole'";
    assert_eq!(db.query(attempts), "1");
}

#[test]
fn a_run_gets_the_ids_and_the_outputs_of_the_runs_that_it_waited_for() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // `part` prints its payload, and succeeds at its second attempt. `plain` prints the ids and its
    // payload. `whole` and `call` get the outputs, too, one as its stdin and one as its body.
    db.apply(&format!(
        "[jobs.part]\nshell = 'cat; echo; test $JOBCTL_ATTEMPT = 2'\nbackoff = 'fixed:0s'\n\
         [jobs.plain]\nshell = 'echo after $JOBCTL_AFTER; cat'\n\
         [jobs.whole]\nshell = 'cat'\npass_result = true\n\
         [jobs.call]\nhttp = {{ url = '{}' }}\npass_result = true\n",
        server.url("/")
    ));
    let (a, b) = (db.enqueue(["part", "1"]), db.enqueue(["part", "2"]));
    let after = format!("{a},{b}");
    let [plain, whole, _] = ["plain", "whole", "call"]
        .map(|job| db.enqueue([job, r#"{"to": "ana"}"#, "--after", &after]));
    let alone = db.enqueue(["whole", "7"]);
    tick(&db);
    let output = |run| db.of_attempt(run, 1, "output");
    assert_eq!(output(plain), format!("after {a},{b}\n{{\"to\": \"ana\"}}"));
    let expected = serde_json::json!({
        "payload": {"to": "ana"},
        "after": [
            {"run": a, "job": "part", "status": "succeeded", "output": "1\n"},
            {"run": b, "job": "part", "status": "succeeded", "output": "2\n"},
        ],
    });
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&output(whole)), expected);
    assert_eq!(read(std::str::from_utf8(&server.requests()[0].body).unwrap()), expected);
    // A run that waited for no run gets its payload alone, also with `pass_result`.
    assert_eq!(output(alone), "7");
}

/// A restore of some tables alone leaves runs in this state.
#[test]
fn a_blocked_run_without_known_predecessors_waits_for_a_person() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--", "true"]).to_string();
    let run = db.enqueue(["shell", "--after", &first, "--", "true"]);
    db.execute("DELETE FROM jobctl.job_dependencies");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(run), "blocked");
    let id = run.to_string();
    let why = "it is unknown which runs it waits for";
    db.jobctl(["show", &id]).run().success().stdout_has(why);
    let found = "1 run of shell waits for runs that did not succeed or are unknown";
    db.jobctl(["check"]).run().exits(1).stdout_has(found);
    db.jobctl(["wait", &id, "--timeout", "1ms"]).run().exits(124).stderr_has("can't start");
    db.jobctl(["retry", &id]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(run), "succeeded");
    db.jobctl(["check"]).run().success();
}

/// Asserts that no run started before the runs that it waits for had ended.
#[track_caller]
fn assert_order(db: &TestDb) {
    let early = "SELECT waits.run_id FROM jobctl.job_dependencies AS waits
        JOIN jobctl.job_runs AS run ON run.id = waits.run_id
        JOIN jobctl.job_runs AS before ON before.id = waits.after_id
        WHERE run.started_at < before.finished_at OR run.started_at IS NULL";
    assert_eq!(db.query(early), "", "{}", db.dump());
}

#[test]
fn a_retry_of_a_cancelled_graph_restores_its_order() {
    let db = db_with_export_mail_and_bad();
    let first = db.enqueue(["export", "--in", "1h"]);
    let middle = enqueue_mail_after(&db, &[first], &[]);
    let last = enqueue_mail_after(&db, &[middle], &[]);
    db.jobctl(["cancel", "--all-waiting", "--yes"]).run().success();
    assert_eq!(db.statuses(), "cancelled cancelled cancelled");
    let retry = ["retry", "--all-cancelled", "--yes", "--verbose"];
    // The answer names the status that a run has now.
    db.jobctl(retry)
        .run()
        .success()
        .stdout(&format!("{first}\tqueued\n{middle}\tblocked\n{last}\tblocked\n"));
    assert_eq!(db.statuses(), "queued blocked blocked");
    tick(&db);
    assert_eq!(db.statuses(), "queued blocked blocked");
    db.make_waiting_runs_due();
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded succeeded");
    assert_order(&db);
}

/// After a success, all rules let the second run start. Only a failure tells the rules apart.
#[test]
fn a_retry_of_a_cancelled_graph_restores_each_rule() {
    // The rule, and the statuses of both runs after a failure of the first.
    for (rule, after_a_failure) in [
        (&[][..], "dead blocked"),
        (&["--after-any-end"], "dead succeeded"),
        (&["--or-cancel"], "dead cancelled"),
    ] {
        for (job, expected) in [("export", "succeeded succeeded"), ("bad", after_a_failure)] {
            let db = db_with_export_mail_and_bad();
            let first = db.enqueue([job, "--in", "1h"]);
            enqueue_mail_after(&db, &[first], rule);
            db.jobctl(["cancel", "--all-waiting", "--yes"]).run().success();
            db.jobctl(["retry", "--all-cancelled", "--yes"]).run().success();
            tick(&db);
            assert_eq!(db.statuses(), "queued blocked", "{rule:?} {job}");
            db.make_waiting_runs_due();
            tick(&db);
            assert_eq!(db.statuses(), expected, "{rule:?} {job}");
            if expected.ends_with("succeeded") {
                assert_order(&db);
            }
        }
    }
}

/// `retry --now` makes the run due now, so it waits for nothing.
#[test]
fn a_retry_of_a_cancelled_run_waits_for_its_predecessors_again_and_with_now_it_does_not() {
    let db = db_with_export_mail_and_bad();
    let first = db.enqueue(["export", "--in", "1h"]);
    let [middle, other] = [(); 2].map(|()| enqueue_mail_after(&db, &[first], &[]));
    let last = enqueue_mail_after(&db, &[middle], &["--after-any-end"]);
    for run in [middle, other] {
        db.jobctl(["cancel", &run.to_string()]).run().success();
    }
    // The last run waits for any end of the middle one, and a cancel is an end.
    assert_eq!(
        [middle, other, last].map(|run| db.status(run)),
        ["cancelled", "cancelled", "queued"]
    );
    let id = middle.to_string();
    db.jobctl(["retry", &id]).run().success().stdout(&format!("{id}\tblocked\n"));
    db.jobctl(["show", &id]).run().success().stdout_has(&format!("waits for run {first}"));
    let id = other.to_string();
    db.jobctl(["retry", "--now", &id]).run().success().stdout(&format!("{id}\tqueued\n"));
    tick(&db);
    let runs = [first, middle, other];
    assert_eq!(runs.map(|run| db.status(run)), ["queued", "blocked", "succeeded"]);
    db.make_waiting_runs_due();
    tick(&db);
    assert_eq!(runs.map(|run| db.status(run)), ["succeeded"; 3]);
}

#[test]
fn a_retry_of_a_cancelled_run_whose_predecessors_have_succeeded_waits_only_for_its_time() {
    let db = db_with_export_mail_and_bad();
    let first = db.enqueue(["export"]);
    tick(&db);
    let mail = enqueue_mail_after(&db, &[first], &["--in", "1h"]);
    db.jobctl(["cancel", &mail.to_string()]).run().success();
    db.jobctl(["retry", &mail.to_string()]).run().success();
    assert_eq!(db.of_run(mail, "status, run_at > now()"), "queued|t");
}

#[test]
fn a_retry_of_a_cancelled_run_does_not_wait_while_a_run_that_succeeded_is_repeated() {
    for rule in [&[][..], &["--or-cancel"], &["--after-any-end"]] {
        let db = db_with_export_mail_and_bad();
        let first = db.enqueue(["export"]);
        let id = enqueue_mail_after(&db, &[first], &[&["--in", "1h"], rule].concat()).to_string();
        tick(&db);
        if rule != ["--after-any-end"] {
            // Only a success meets these rules, so no history has to prove it.
            db.execute("DELETE FROM jobctl.job_attempts");
        }
        db.jobctl(["cancel", &id]).run().success();
        db.jobctl(["retry", "--again", &first.to_string()]).run().success();
        db.jobctl(["retry", &id]).run().success().stdout(&format!("{id}\tqueued\n"));
    }
}

#[test]
fn a_run_that_succeeded_once_counts_as_succeeded_while_it_is_repeated() {
    let db = TestDb::new();
    db.apply("[jobs.part]\nshell = 'date +%s%N'\n[jobs.sum]\nshell = 'cat'\npass_result = true\n");
    let part = db.enqueue(["part"]);
    let rules = [&[][..], &["--or-cancel"], &["--after-any-end"]];
    let sum = |rule: &&[&str]| {
        db.enqueue(["sum", "--after", &part.to_string()].into_iter().chain(rule.iter().copied()))
    };
    tick(&db);
    let first = db.of_attempt(part, 1, "output");
    db.jobctl(["retry", "--again", &part.to_string()]).run().success();
    let mut sums = rules.iter().map(sum).collect::<Vec<_>>();
    // The run also counts as succeeded after its repetition was cancelled.
    db.jobctl(["cancel", &part.to_string()]).run().success();
    sums.extend(rules.iter().map(sum));
    for id in &sums {
        assert_eq!(db.status(*id), "queued");
        assert_eq!(states_of_predecessors(&db, *id), "met");
    }
    // All of them read the output of the attempt that succeeded.
    tick(&db);
    for id in sums {
        assert_eq!(db.status(id), "succeeded");
        let read = db.of_attempt(id, 1, "output");
        let read: serde_json::Value = serde_json::from_str(&read).unwrap();
        assert_eq!(read["after"][0]["output"], first.as_str());
    }
    // A dependency may still be undecided, `due`, when its run is repeated. A tick then decides
    // about it by the same rule.
    db.jobctl(["retry", &part.to_string()]).run().success();
    let late = db.enqueue(["sum", "--in", "1h"]);
    db.execute(&format!(
        "INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
         VALUES ({late}, {part}, 'due');
         UPDATE jobctl.job_runs SET status = 'blocked' WHERE id = {late};
         UPDATE jobctl.job_runs SET run_at = now() + interval '1 h' WHERE id = {part}"
    ));
    tick(&db);
    assert_eq!(db.status(late), "queued");
    assert_eq!(states_of_predecessors(&db, late), "met");
}

#[test]
fn a_run_can_not_wait_for_its_own_id() {
    let db = db_with_export_mail_and_bad();
    let last = db.enqueue(["export"]);
    let own = last + 1;
    let refused = db.try_query(&format!("SELECT jobctl.enqueue('mail', after => '{{{own}}}')"));
    let refused = refused.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    let message = format!("no run {own}");
    assert_eq!(refused.code().code(), "JC010");
    assert_eq!(refused.message(), message.as_str());
    // The refused enqueue used up an id.
    let own = last + 2;
    let refused = db.jobctl(["enqueue", "mail", "--after", &own.to_string()]).run().exits(3);
    assert_eq!(refused.stderr, format!("jobctl: no run {own}\n"));
    // The id of a later line of the same batch is missing, too. Otherwise two lines could wait for
    // each other.
    let (own, next) = (last + 3, last + 4);
    let lines = format!(
        "{{\"job_type\": \"mail\", \"after\": [{next}]}}\n\
         {{\"job_type\": \"mail\", \"after\": [{own}]}}\n"
    );
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.as_str()).run().exits(3);
    refused.stderr_has(&format!("no run {next}"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

/// A retried run waits for a dead predecessor, as it did before its cancel: a retry of the
/// predecessor releases it.
#[test]
fn a_retry_of_a_cancelled_run_waits_for_a_dead_one() {
    let db = db_with_export_mail_and_bad();
    let bad = db.enqueue(["bad"]);
    let mail = enqueue_mail_after(&db, &[bad], &[]);
    tick(&db);
    db.jobctl(["cancel", &mail.to_string()]).run().success();
    db.jobctl(["retry", &mail.to_string()]).run().success();
    assert_eq!(db.statuses(), "dead blocked");
    db.jobctl(["check"]).run().exits(1).stdout_has("1 run of mail waits for runs that did not");
    correct_bad(&db);
    db.jobctl(["retry", &bad.to_string()]).run().success();
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded");
    assert_order(&db);
}

#[test]
fn a_retried_follower_reads_the_results_of_runs_that_ended() {
    let db = TestDb::new();
    db.apply("[jobs.part]\nshell = 'echo done'\n[jobs.sum]\nshell = 'cat'\npass_result = true\n");
    let part = db.enqueue(["part", "--in", "1h"]);
    let sum = db.enqueue(["sum", "--after", &part.to_string()]);
    db.jobctl(["cancel", &sum.to_string()]).run().success();
    db.jobctl(["retry", &sum.to_string()]).run().success();
    tick(&db);
    db.make_waiting_runs_due();
    tick(&db);
    let read: serde_json::Value = serde_json::from_str(&db.of_attempt(sum, 1, "output")).unwrap();
    let part = serde_json::json!(
        [{"run": part, "job": "part", "status": "succeeded", "output": "done\n"}]
    );
    assert_eq!(read["after"], part);
}

/// The death of the first run cancelled the runs after it. After a retry of all, each waits for the
/// run before it.
#[test]
fn a_retry_of_a_chain_that_a_dead_run_cancelled_restores_its_order() {
    let db = db_with_export_mail_and_bad();
    let bad = db.enqueue(["bad"]);
    let first = enqueue_mail_after(&db, &[bad], &["--or-cancel"]);
    let last = enqueue_mail_after(&db, &[first], &["--or-cancel"]);
    tick(&db);
    assert_eq!(db.statuses(), "dead cancelled cancelled");
    correct_bad(&db);
    let ids = [bad, first, last].map(|run| run.to_string());
    db.jobctl(["retry"]).args(ids.iter().map(String::as_str)).run().success();
    assert_eq!(db.statuses(), "queued blocked blocked");
    assert_eq!(db.of_run(last, "error_type IS NULL, finished_at IS NULL"), "t|t");
    tick(&db);
    assert_eq!(db.statuses(), "succeeded succeeded succeeded");
    assert_order(&db);
}

#[test]
fn a_retried_follower_is_cancelled_again_if_its_predecessor_does_not_succeed() {
    let db = db_with_export_mail_and_bad();
    // Exit status 64 is permanent: the run is dead after its first attempt.
    let bad = db.enqueue_script("test $JOBCTL_ATTEMPT = 2 || exit 64");
    let follower = enqueue_mail_after(&db, &[bad], &["--or-cancel"]);
    tick(&db);
    db.jobctl(["retry", &bad.to_string()]).run().success();
    // A filter finds the runs that were cancelled because of a predecessor.
    db.jobctl(["retry", "--all-cancelled", "--error-type", "predecessor", "--yes"]).run().success();
    assert_eq!([bad, follower].map(|run| db.status(run)), ["queued", "blocked"]);
    db.jobctl(["cancel", &bad.to_string()]).run().success();
    tick(&db);
    assert_eq!([bad, follower].map(|run| db.status(run)), ["cancelled", "cancelled"]);
}

/// Any login can take any advisory lock, so no decision about blocked runs may depend on one.
#[test]
fn a_login_without_rights_keeps_no_run_blocked() {
    let db = db_with_export_mail_and_bad();
    let outsider = Role::new(&db);
    let mut locks = outsider.client();
    locks.batch_execute("SELECT pg_advisory_lock(x'6a6f6263746e'::bigint)").unwrap();
    // One statement of a tick decides about 1000 rows. Here are 1200, so it takes several.
    let batch = "{\"job_type\": \"export\"}\n".repeat(1200);
    let then = ["enqueue", "--batch", "-", "--then", "mail", "{}"];
    db.jobctl(then).stdin(batch).run().success();
    let mail: i64 = db.query("SELECT max(id) FROM jobctl.job_runs").parse().unwrap();
    // All of them have succeeded, and nothing has been decided yet.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'succeeded', finished_at = now() WHERE id <> {mail};
         UPDATE jobctl.job_dependencies SET state = 'due'"
    ));
    (0..3).for_each(|_| tick(&db));
    assert_eq!(db.status(mail), "succeeded");
    drop(locks);
}

/// The end of a run reads the rows of its 2000 followers once. If it read them once for each
/// follower, these would be four million entries.
#[test]
fn the_end_of_a_run_reads_each_follower_once() {
    let db = db_with_export_mail_and_bad();
    for rule in ["or_cancel", "success"] {
        let bad = db.enqueue(["bad"]);
        let line = format!(
            "{{\"job_type\": \"mail\", \"after\": [{bad}], \"or_cancel\": {}}}\n",
            rule == "or_cancel"
        );
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.repeat(2000));
        batch.run().success();
        // A tick before the end decides that these runs wait: `open`.
        db.execute(
            "UPDATE jobctl.job_dependencies SET state = 'open' WHERE state = 'due';
             ANALYZE jobctl.job_dependencies, jobctl.job_runs",
        );
        let read = || {
            let read = "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
                     WHERE relname = 'job_dependencies')
                 + (SELECT seq_tup_read FROM pg_stat_user_tables
                     WHERE relname = 'job_dependencies')";
            db.query(read).parse::<i64>().unwrap()
        };
        db.wait_for_statistics();
        let before = read();
        tick(&db);
        assert_eq!(db.status(bad), "dead", "{rule}");
        wait_until("the counts", || read() > before);
        assert!(read() - before < 100_000, "{rule}: {} entries", read() - before);
        tick(&db);
        let status = if rule == "or_cancel" { "cancelled" } else { "blocked" };
        let counted = format!(
            "SELECT run.status, count(*) FROM jobctl.job_runs AS run
             JOIN jobctl.job_dependencies AS waits ON waits.run_id = run.id
             WHERE waits.after_id = {bad} GROUP BY 1"
        );
        assert_eq!(db.query(&counted), format!("{status}|2000"));
    }
}

/// A run gets the outputs of all its predecessors in its claim. Here these are 2,500 outputs of 1
/// MiB, and the claim must still leave time for other runs.
#[test]
fn long_results_keep_no_other_run_from_starting() {
    let db = TestDb::new();
    db.apply(
        "[jobs.part]\nshell = 'true'\n[jobs.sum]\nshell = 'cat | wc -c'\npass_result = true\n\
         [jobs.other]\nshell = 'true'\n",
    );
    let first = db.enqueue(["part", "--in", "1h"]);
    let sum = db.enqueue(["sum", "--after", &first.to_string()]);
    // PostgreSQL compresses the text in this table. Its 2,500 copies below stay compressed, which
    // makes this test fast.
    db.execute(
        "CREATE TABLE public.one_mib AS SELECT repeat('long line ' || chr(10), 95325) AS output",
    );
    db.execute(&format!(
        "-- The predecessors, which have succeeded.
         INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at)
         SELECT 'part', 'succeeded', 1, now() FROM generate_series(1, 2500);
         -- Their attempts, each with an output of 1 MiB.
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
             output)
         SELECT id, 1, 'w', now(), now(), 'succeeded', one_mib.output
         FROM jobctl.job_runs, public.one_mib WHERE status = 'succeeded';
         -- The run that waits for all of them is released.
         INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
         SELECT {sum}, id, 'met' FROM jobctl.job_runs WHERE status = 'succeeded';
         UPDATE jobctl.job_dependencies SET state = 'met';
         UPDATE jobctl.job_runs SET status = 'queued', run_at = now() WHERE id = {sum}"
    ));
    let other = db.enqueue(["other"]);
    // A statement of this tick may take 1.6 s.
    let log = db.jobctl(["tick", "--lease", "10s"]).run().success().stderr;
    assert_eq!(db.status(other), "succeeded", "{log}");
    assert!(!log.contains("cannot claim runs"), "{log}");
    // Either the run gets shortened outputs, or it does not start and the log names it.
    if db.status(sum) == "succeeded" {
        let bytes: u32 = db.of_attempt(sum, 1, "output").trim().parse().unwrap();
        assert!((100_000..2_000_000).contains(&bytes), "{bytes}");
    } else {
        assert!(log.contains(&format!("run {sum} ")), "{log}");
    }
}

/// An enqueuer has 20 cancelled runs, and 10,000 of its runs wait for each of them. To decide about
/// these 200,000 rows takes more than one tick. Another run that waits for one run comes first.
#[test]
fn thousands_of_runs_that_wait_for_many_runs_delay_no_follower_of_another_run() {
    let db = db_with_export_mail_and_bad();
    let enqueuer = Role::granted(&db, "enqueuer");
    let name = enqueuer.name();
    db.execute(&format!(
        "-- 20 cancelled runs.
         INSERT INTO jobctl.job_runs (job_type, status, enqueued_by, finished_at)
         SELECT 'mail', 'cancelled', '{name}', now() FROM generate_series(1, 20);
         -- 10,000 runs that wait for each of them. No tick has decided about that yet.
         INSERT INTO jobctl.job_runs (job_type, status, enqueued_by)
         SELECT 'mail', 'blocked', '{name}' FROM generate_series(1, 10000);
         INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
         SELECT run.id, before.id, 'due' FROM jobctl.job_runs AS run, jobctl.job_runs AS before
         WHERE run.status = 'blocked' AND before.status = 'cancelled'"
    ));
    let first = db.enqueue(["export", "--in", "1h"]);
    let other = enqueue_mail_after(&db, &[first], &[]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'succeeded', finished_at = now() WHERE id = {first}"
    ));
    let due = "SELECT count(*) FROM jobctl.job_dependencies WHERE state = 'due'";
    let rolled_back = "SELECT xact_rollback FROM pg_stat_database
        WHERE datname = current_database()";
    let count = |sql: &str| db.query(sql).parse::<u32>().unwrap();
    // A statement of this tick may take 5 s, and its turn less.
    let tick = || db.jobctl(["tick", "--lease", "30s"]).run().success();
    let [mut before, at_first] = [due, rolled_back].map(count);
    for number in 1..=3 {
        tick();
        let left = count(due);
        assert!(left < before || left == 0, "tick {number} decided about nothing");
        before = left;
    }
    // A statement that takes too long is ended, and that undoes its decisions.
    assert_eq!(count(rolled_back), at_first, "statements took too long");
    assert_eq!(db.status(other), "succeeded");
}
