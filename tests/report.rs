//! The page that `report` writes: its text, its well-formed HTML without references to other files,
//! and that no stored text can become HTML.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::process::Command;

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::on_call::after_a_bad_week;
use crate::support::{Role, TestDb, leave_out, packages, temp_dir, wait_until};

/// A database without problems: a worker has just ticked, and the schedule is not due. There is one
/// warning: `nightly` has a schedule and no timeout.
fn healthy_db() -> TestDb {
    let db = TestDb::new();
    db.apply(
        "[jobs.nightly]\nshell = 'true'\nschedule = '30 2 * * *'\n[jobs.hook]\nshell = 'true'\n",
    );
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ('w', '1', now())",
    );
    db
}

/// Inserts this many runs of a job that ended this long ago. Each was running for three seconds.
fn insert_ended(db: &TestDb, job: &str, status: &str, ago: &str, runs: u32) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at,
             error_type, last_error)
         SELECT '{job}', '{status}', 1, now() - interval '{ago}' - interval '3 seconds',
             now() - interval '{ago}',
            CASE WHEN '{status}' = 'dead' THEN 'exit_code' END,
                CASE WHEN '{status}' = 'dead' THEN 'exit status 3' END
         FROM generate_series(1, {runs})"
    ));
}

/// Returns the page that `report` prints with these arguments, and checks what holds of each page.
fn page(db: &TestDb, arguments: &[&str]) -> String {
    let page =
        db.jobctl(["report"]).args(arguments.iter().copied()).run().success().stderr("").stdout;
    assert_page_rules(&page);
    page
}

/// Returns a page without its style sheet.
fn without_style(page: &str) -> String {
    let (head, rest) = page.split_once("<style>").expect("a style");
    let (_, body) = rest.split_once("</style>").expect("the style's end");
    format!("{head}{body}")
}

/// Returns the visible text of a page, with one space for each white space.
pub(crate) fn text(page: &str) -> String {
    let mut text = String::new();
    for piece in without_style(page).split('<').skip(1) {
        let (tag, words) = piece.split_once('>').unwrap_or((piece, ""));
        let name = tag.trim_start_matches('/').split(' ').next().unwrap_or_default();
        if !["wbr", "span", "strong", "code", "time", "a"].contains(&name) {
            text.push(' ');
        }
        text.push_str(words);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that the text of a page has these words.
#[track_caller]
fn assert_says(page: &str, expected: &str) {
    let text = text(page);
    assert!(text.contains(expected), "no `{expected}` in\n{text}");
}

/// Asserts that the text of a page does not have these words.
#[track_caller]
fn assert_lacks(page: &str, unexpected: &str) {
    let text = text(page);
    assert!(!text.contains(unexpected), "`{unexpected}` in\n{text}");
}

/// Returns the tags of a page with their attributes. Checks that tags are closed in order and that
/// attributes are quoted.
fn tags(page: &str) -> Vec<(String, Vec<(String, String)>)> {
    const VOID: [&str; 5] = ["br", "link", "meta", "wbr", "!DOCTYPE"];
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    for piece in without_style(page).split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("no end of <{piece}"));
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "</{name}> closes another");
            continue;
        }
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while name != "!DOCTYPE" && !rest.is_empty() {
            let (key, value) =
                rest.split_once("=\"").unwrap_or_else(|| panic!("no value in <{tag}>"));
            let (value, after) =
                value.split_once('"').unwrap_or_else(|| panic!("no end of a value in <{tag}>"));
            attributes.push((key.trim().to_owned(), value.to_owned()));
            rest = after.trim_start().trim_end_matches('/');
        }
        let closes_itself = tag.ends_with('/');
        if !VOID.contains(&name) && !closes_itself {
            open.push(name.to_owned());
        }
        tags.push((name.to_owned(), attributes));
    }
    assert!(open.is_empty(), "left open: {open:?}");
    tags
}

/// Asserts what holds of every page: its size, its tags, and that it loads nothing.
#[track_caller]
fn assert_page_rules(page: &str) {
    assert!(
        page.starts_with("<!DOCTYPE html><html lang=\"en\">") && page.ends_with("</html>\n"),
        "{page}"
    );
    assert!(page.len() < 500 * 1024, "{} bytes", page.len());
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "a control character in\n{page}");
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    for outside in ["url(", "@import", "@font-face", "transition", "infinite", "<"] {
        assert!(!style.contains(outside), "the style has {outside}");
    }
    // A page that is old turns grey at once; nothing moves.
    assert_eq!(style.matches("animation:").count(), style.matches(" 1ms calc(").count());
    assert_eq!(page.contains("<script"), page.contains(" data-refresh=\""), "a script");
    let tags = tags(page);
    const KNOWN: &str = "!DOCTYPE html head meta title link style body header main footer \
                         section h1 h2 p a span strong code pre wbr time table thead tbody tr th \
                         td dl dt dd div ul ol li details summary svg rect path circle script";
    let mut ids = HashSet::new();
    for (name, attributes) in &tags {
        assert!(KNOWN.split_whitespace().any(|known| known == name), "<{name}>");
        for (key, value) in attributes {
            assert!(
                !key.starts_with("on") && !value.contains("://") && !value.contains("javascript:"),
                "{key}={value}"
            );
            assert!(
                !matches!(key.as_str(), "src" | "srcset" | "action" | "xlink:href"),
                "{key}={value}"
            );
            let is_local = value.starts_with('#') || value.starts_with("data:image/svg+xml,");
            assert!(key != "href" || is_local, "{key}={value}");
            assert!(key != "id" || ids.insert(value.clone()), "two ids `{value}`");
        }
        let has = |key: &str| attributes.iter().any(|(other, _)| other == key);
        assert!(name != "th" || has("scope"), "a header of no scope");
        assert!(
            name != "svg" || has("aria-hidden") || has("role") && has("aria-label"),
            "a drawing without a name"
        );
    }
    for (key, value) in tags.iter().flat_map(|(_, attributes)| attributes) {
        let id = match key.as_str() {
            "aria-labelledby" => Some(value.as_str()),
            "href" => value.strip_prefix('#'),
            _ => None,
        };
        assert!(id.is_none_or(|id| ids.contains(id)), "nothing is called {value}");
    }
}

#[test]
fn the_page_of_an_empty_database_shows_the_first_steps() {
    let db = TestDb::new();
    let page = page(&db, &[]);
    assert_says(&page, &format!("Nothing here yet · Jobs in {}", db.name()));
    assert_says(&page, "jobctl apply jobs.toml");
    assert_says(
        &page,
        "DATABASE_URL=postgresql://USER@HOST/DATABASE * * * * * jobctl tick --quiet",
    );
    assert_lacks(&page, "Timeline");
}

#[test]
fn the_headline_says_whether_anything_needs_attention() {
    let db = healthy_db();
    assert_says(
        &page(&db, &[]),
        "All well. Nothing is dead or late. No run succeeded or failed since ",
    );
    insert_ended(&db, "hook", "succeeded", "1 hour", 1234);
    let well = page(&db, &["--title", "Our jobs"]);
    assert_says(&well, "All well · Our jobs");
    assert_says(&well, "All well. Nothing is dead or late. Since ");
    assert_says(&well, ": 1,234 runs succeeded. Dead 0 Jobs failing 0 Due now 0 ");

    // Three dead runs are one problem. Two of them died in the last day, which the page covers.
    // Their ids follow those of the 1234 runs before.
    insert_ended(&db, "hook", "dead", "2 hours", 2);
    insert_ended(&db, "hook", "dead", "3 days", 1);
    let shown = page(&db, &[]);
    assert_says(&shown, "Needs attention: 1 problem. Since ");
    assert_says(&shown, ": 1,234 runs succeeded, 2 died. Dead 3 2 in the last 24h ");
    assert_says(
        &shown,
        "Now 3 dead runs of hook, for 3d (the newest is run 1236: exit status 3) \
         jobctl list-dead --job hook; then retry or settle them",
    );
}

/// A worker that does not tick makes schedules and runs late, so the page shows only the worker. A
/// run that has lost its lease is a problem of its own.
#[test]
fn a_worker_that_does_not_tick_and_a_run_that_it_lost_need_attention() {
    let db = healthy_db();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '2 hours',
             ticking_since = now() - interval '9 days';
         UPDATE jobctl.job_definitions SET next_run_at = now() - interval '3 hours'
             WHERE name = 'nightly';
         INSERT INTO jobctl.job_runs (job_type, run_at)
         VALUES ('hook', now() - interval '4 hours'), ('hook', now());
         INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         VALUES ('hook', 'running', 1, 'w', now() - interval '1 hour', now() - interval '2 hours')",
    );
    db.allow_running_runs_at_end();
    let shown = page(&db, &[]);
    assert_says(&shown, "Now no worker ticks, for 2h (the last was");
    assert_says(
        &shown,
        "no tick has recovered 1 run of worker w with an expired lease, for 1h (such as run",
    );

    // Another worker ticks, so only one worker is missing.
    db.jobctl(["tick", "--worker", "other", "--queue", "other"]).run().success();
    let shown = page(&db, &[]);
    assert_says(&shown, "worker w does not tick, for 2h see cron on w");
    assert!(shown.contains("<a href=\"#workers\">worker w does not tick</a>"), "{shown}");
}

#[test]
fn findings_and_names_link_to_the_lanes_of_their_jobs() {
    let db = healthy_db();
    insert_ended(&db, "hook", "dead", "2 hours", 2);
    // A finding names this job, of which nothing has run. No definition may have its name, so the
    // link replaces the space.
    db.execute("INSERT INTO jobctl.job_runs (job_type) VALUES ('removed one')");
    db.apply(
        "[jobs.hook]\nshell = 'true'\n[jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n\
         [jobs.enqueued]\nshell = 'true'\n[jobs.unused]\nshell = 'true'\n",
    );
    // A lane can have only waiting runs.
    db.enqueue(["enqueued", "--in", "1h"]);
    db.enqueue(["enqueued"]);
    let shown = page(&db, &[]);
    for link in [
        "<a href=\"#job-hook\">2 dead runs of hook</a>, for 2h",
        "<a href=\"#job-removed-one\">removed one has no definition; 1 waiting run will end dead",
        "</span> <a href=\"#job-hook\">hook<wbr></a>",
        "<details class=\"lane\" id=\"job-hook\">",
        "<li id=\"job-nightly\">",
        "<li id=\"job-unused\">",
        "<details class=\"lane\" id=\"job-enqueued\">",
        "aria-label=\"0 runs succeeded, 2 queued\"",
    ] {
        assert!(shown.contains(link), "no {link} in\n{shown}");
    }
}

#[test]
fn lists_show_the_findings_of_the_most_runs_and_the_number_of_the_others() {
    let db = healthy_db();
    // Fourteen jobs with dead runs: five of long ago, with two runs each, and nine of now.
    for number in 1..=5 {
        insert_ended(&db, &format!("old{number}"), "dead", &format!("{} days", 10 + number), 2);
    }
    for number in 1..=9 {
        insert_ended(&db, &format!("new{number}"), "dead", &format!("{number} hours"), 1);
    }
    // Runs of `old5` have died both long ago and now, so this job has the most dead runs.
    insert_ended(&db, "old5", "dead", "30 minutes", 1);
    // Nine queues that no worker serves.
    for number in 1..=9 {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, queue, run_at)
             VALUES ('hook', 'q{number}', now() - interval '{number} days')"
        ));
    }
    db.execute("UPDATE jobctl.job_workers SET queues = '{default}'");
    let status = db.jobctl(["status", "--format", "table"]).run().success().stdout;
    let page = page(&db, &[]);
    // Of 23 findings, the page shows three of each kind and folds 17. A table shows four of each
    // kind, and names the command that lists the other 15.
    let lists = [
        (text(&page).split_once(" Now ").unwrap().1.to_owned(), " 17 more ", 3),
        (status.split_once("FOUND\n").unwrap().1.to_owned(), " and 15 more: ", 4),
    ];
    for (list, more, of_each) in lists {
        let (list, after) = list.split_once(more).unwrap_or_else(|| panic!("{list}"));
        match of_each {
            3 => assert!(after.contains("dead run of new9, for 9h"), "{after}"),
            _ => assert!(after.trim_start_matches('`').starts_with("jobctl check"), "{after}"),
        }
        // Findings of the most runs come first, and among those of as many runs the oldest.
        let [dead, unserved] = [["old5", "old1", "old2", "old3"], ["q1", "q2", "q3", "q4"]];
        let places: Vec<_> = dead[..of_each]
            .iter()
            .chain(&unserved[..of_each])
            .map(|name| list.find(name).unwrap_or_else(|| panic!("{name}: {list}")))
            .collect();
        assert!(places.is_sorted(), "{places:?}");
    }
    assert_eq!(db.jobctl(["check"]).run().exits(1).stdout.lines().count(), 23);
}

#[test]
fn the_icon_in_the_tab_has_the_colour_of_the_state() {
    let colour = |page: &str| {
        let (_, after) = page.split_once("viewBox='0 0 24 24' fill='%23").expect("an icon");
        after[..6].to_owned()
    };
    let unused = TestDb::new();
    assert_eq!(colour(&page(&unused, &[])), "6a727d");
    let db = healthy_db();
    assert_eq!(colour(&page(&db, &[])), "1a7f4b");
    insert_ended(&db, "hook", "dead", "2 hours", 1);
    assert_eq!(colour(&page(&db, &[])), "c21f2c");
}

#[test]
fn warnings_are_folded_and_do_not_need_attention() {
    let db = healthy_db();
    let page = page(&db, &[]);
    assert_says(&page, "All well. Nothing is dead or late. ");
    // The section, the summary of the folded list, and the only warning in it.
    assert_says(&page, " Now 1 warning nightly has no timeout: ");
    assert!(page.contains("<details><summary>1 warning</summary>"), "{page}");
}

#[test]
fn a_long_window_shows_the_figures_of_days() {
    let db = healthy_db();
    // These runs have been deleted since.
    db.execute(
        "INSERT INTO jobctl.job_figures (job_type, day, succeeded, dead, failed_attempts,
             retried_attempts)
         SELECT 'hook', (now() AT TIME ZONE 'UTC')::date - day, 100, 2, 9, 7
         FROM unnest(ARRAY[0, 6, 7, 30, 31]) AS day",
    );
    // These have no figures.
    insert_ended(&db, "hook", "succeeded", "1 hour", 1);
    // The page of a week counts runs, except in the tile.
    let week = page(&db, &["--since", "8d"]);
    assert_says(&week, ": 1 run succeeded. ");
    assert_says(&week, "Succeeded in 7d 98 % of 204 runs, 98 % in the 7d before ");

    // The page of a month counts the figures of four of the days.
    let month = page(&db, &["--since", "30d", "--time-zone", "Asia/Kathmandu"]);
    assert_says(&month, ": 400 runs succeeded, 8 died, 28 attempts failed before a retry. ");
    assert_says(&month, "Each bar covers 1d; ");
    assert_says(&month, "Days are in UTC and count no cancelled runs.");
    assert_eq!(heights(&month, "s").len(), 4);
    assert_eq!(heights(&month, "d"), [20, 20, 20, 20]);

    // The page of half a year counts all five days.
    let half_a_year = page(&db, &["--since", "180d"]);
    assert_says(&half_a_year, ": 500 runs succeeded, 10 died, 35 attempts failed before a retry. ");
    assert_says(&half_a_year, "Each bar covers 2d; ");
}

#[test]
fn tiles_count_due_held_and_running_runs() {
    let db = healthy_db();
    db.allow_running_runs_at_end();
    db.apply(
        "[jobs.hook]\nshell = 'true'\nrate = '60/1m'\nmax_lag = '3h'\n\
         [jobs.other]\nshell = 'true'\n",
    );
    // Of `hook`, 120 runs are due for two hours, and one is due later. Of `other`, two are running,
    // for one hour and for two.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, run_at, created_at)
             SELECT 'hook', now() - interval '2 hours', now() - interval '1 day'
             FROM generate_series(1, 120);
         INSERT INTO jobctl.job_runs (job_type, run_at) VALUES ('hook', now() + interval '1 hour');
         INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         SELECT 'other', 'running', 1, 'w', now() + interval '1 hour',
             now() - hours * interval '1 hour'
         FROM generate_series(1, 2) AS hours",
    );
    // 60 runs began in the last ten minutes, so 120 need twenty. By the rate, they need two.
    insert_ended(&db, "hook", "succeeded", "5 minutes", 60);
    // The runs that have started became due before these ten minutes.
    db.execute(
        "UPDATE jobctl.job_runs SET run_at = created_at - interval '1 day' WHERE attempts > 0",
    );
    db.jobctl(["hold", "--job", "other", "--reason", "disk"]).run().success();
    db.execute("UPDATE jobctl.job_holds SET recorded_by = 'ada', host_user = NULL");
    let shown = page(&db, &[]);
    assert_says(&shown, "Due now 120 for up to 2h, none due in about 20m, 1 later ");
    assert_says(&shown, "Held or paused 1 by ada Running 2 the longest for 2h, other ");
    assert_says(&shown, "Stopped on purpose: nothing is dead or late. Since ");
    assert_says(&shown, "Now job other is held by ada: disk, ");
    assert_says(&shown, "60 ok, 121 queued none due in about 20m, 2m at best");
    assert_says(&shown, "other (well) 2 running job other is held by ada: disk");

    // In ten minutes, 61 runs become due and 60 start, so the number of due runs grows.
    db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'hook' FROM generate_series(1, 61)");
    assert_says(&page(&db, &[]), "Due now 181 for up to 2h, grows, 1 later ");
}

/// No claim takes an expired run: the next tick cancels it.
#[test]
fn an_expired_run_is_neither_due_nor_overdue() {
    let db = healthy_db();
    // Of these three runs, all except the first have expired.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, run_at, expires_at)
         SELECT 'hook', now() - interval '2 hours',
             CASE WHEN n > 1 THEN now() - interval '1 hour' END
         FROM generate_series(1, 3) AS n",
    );
    let shown = page(&db, &[]);
    assert_says(&shown, "Due now 1 for up to 2h");
    assert_says(&shown, "1 run of hook is overdue");
}

#[test]
fn delays_of_a_few_minutes_need_no_attention() {
    let db = healthy_db();
    db.execute(
        "UPDATE jobctl.job_workers SET last_tick_at = now() - interval '4 minutes';
         UPDATE jobctl.job_definitions SET next_run_at = now() - interval '4 minutes'
             WHERE name = 'nightly';
         INSERT INTO jobctl.job_runs (job_type, run_at)
         VALUES ('hook', now() - interval '4 minutes')",
    );
    assert_says(&page(&db, &[]), "All well.");

    // Without a worker that ever ticked, nothing starts.
    db.execute("DELETE FROM jobctl.job_workers");
    assert_says(&page(&db, &[]), "Now no worker has ever ticked jobctl init --crontab");
}

#[test]
fn a_lane_counts_the_outcomes_of_each_bin() {
    let db = healthy_db();
    insert_ended(&db, "hook", "succeeded", "2 hours", 4);
    insert_ended(&db, "hook", "cancelled", "5 hours", 1);
    insert_ended(&db, "hook", "dead", "8 hours", 2);
    // The page covers the last 24 hours.
    insert_ended(&db, "hook", "succeeded", "25 hours", 99);
    // One run succeeded at the third attempt, one died at the second: three failed attempts were
    // retried.
    db.execute(
        "WITH tried AS (
             INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at)
             SELECT 'hook', status, attempts, now() - interval '11 hours',
                 now() - interval '11 hours'
             FROM (VALUES ('succeeded', 3), ('dead', 2)) AS run (status, attempts)
             RETURNING id, status, attempts
         )
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT id, attempt, 'w', now() - interval '11 hours', now() - interval '11 hours',
            CASE WHEN attempt = attempts AND status = 'succeeded' THEN 'succeeded' ELSE 'failed' END
         FROM tried, generate_series(1, attempts) AS attempt",
    );
    let page = page(&db, &[]);
    let words = "aria-label=\"5 runs succeeded, 3 failed attempts, 3 dead, 1 cancelled\"";
    assert!(page.contains(words), "{page}");
    assert_says(&page, "hook (needs attention) ");
    // The newest dead run is the last one of 8 hours ago, with the id 4 + 1 + 2.
    assert_says(
        &page,
        ": 4 ok 5 ok, 3 dead, 3 failed, 1 cancelled 3 dead runs of hook (the newest is run 7",
    );
    // Each bar of the drawing has a title. The table has the same numbers.
    for words in [": 4 ok", ": 1 cancelled", ": 2 dead", ": 1 dead, 3 failed, 1 ok"] {
        assert!(page.contains(&format!("{words}</title>")), "no {words} in\n{page}");
    }
    for row in ["<td>1</td><td>3</td><td>1</td><td></td>", "<td></td><td></td><td>4</td><td></td>"]
    {
        assert!(page.contains(row), "no {row} in\n{page}");
    }
    assert_says(&page, "Why: jobctl failures --group --job hook");
}

#[test]
fn lanes_are_ordered_by_their_state_and_idle_jobs_are_folded() {
    let db = healthy_db();
    db.apply(
        "[jobs.a_idle]\nshell = 'true'\nschedule = '@daily'\n
         [jobs.nightly]\nshell = 'true'\nschedule = '@daily'\n",
    );
    insert_ended(&db, "b_well", "succeeded", "2 hours", 4);
    insert_ended(&db, "c_retried", "succeeded", "2 hours", 400);
    // One of these runs has lost its worker once.
    db.execute(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT max(id), 0, 'w', now(), now() - interval '2 hours', 'lease_expired'
         FROM jobctl.job_runs",
    );
    insert_ended(&db, "d_dead", "dead", "2 hours", 1);
    // Jobs with problems come first, and the idle ones last.
    let page = page(&db, &[]);
    let text = text(&page);
    let places: Vec<_> = [
        "d_dead (needs attention)",
        "c_retried (had failures)",
        "b_well (well)",
        "2 idle jobs a_idle nightly",
    ]
    .map(|words| text.find(words).unwrap_or_else(|| panic!("no {words} in {text}")))
    .into();
    assert!(places.is_sorted(), "{places:?}");
}

/// Returns the heights of the parts of bars with this class, from left to right.
fn heights(page: &str, class: &str) -> Vec<i64> {
    // The first part with this class is in the legend.
    let path = page.split(&format!("<path class=\"{class}\" d=\"")).nth(2).unwrap_or_default();
    let path = path.split('"').next().unwrap_or_default();
    path.split('v')
        .skip(1)
        .step_by(2)
        .map(|v| v.split('h').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn failures_are_drawn_to_scale() {
    let db = healthy_db();
    insert_ended(&db, "hook", "succeeded", "5 hours", 745);
    insert_ended(&db, "hook", "succeeded", "2 hours", 745);
    // All 745 runs of the earlier hour were retried, and one run of the later hour.
    db.execute(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT id, 0, 'w', finished_at, finished_at, 'failed'
         FROM jobctl.job_runs WHERE id <= 746",
    );
    let page = page(&db, &[]);
    let (good, failed) = (heights(&page, "s"), heights(&page, "f"));
    // As many failed attempts as runs that succeeded.
    assert_eq!([good[0], failed[0]], [25, 25]);
    assert_eq!([good[1], failed[1]], [25, 3], "a single failure stays visible");
}

#[test]
fn durations_are_compared_with_those_of_a_week_before() {
    let db = healthy_db();
    // The job, its run time in minutes so many days ago, and today. A day is compared with a day
    // that was 7 to 13 days before it.
    for (job, before, now, ago) in [
        ("slower", 30, 45, 7),
        ("faster", 40, 20, 13),
        ("same", 30, 32, 7),
        ("new", 30, 60, 6),
        ("rare", 30, 60, 14),
    ] {
        insert_ended(&db, job, "succeeded", "1 hour", 3);
        db.execute(&format!(
            "INSERT INTO jobctl.job_figures (job_type, day, succeeded, run_time_seconds)
             SELECT '{job}', current_date - day, 3, 3 * 60 * minutes
             FROM (VALUES ({ago}, {before}), (0, {now})) AS figure (day, minutes)"
        ));
    }
    db.apply("[jobs.slower]\nshell = 'true'\ntimeout = '1h'\n");
    let page = page(&db, &[]);
    // A change of less than a fifth is not shown.
    for (job, words) in [
        ("slower", "takes 45m, +50 % in 7 days, reaches its timeout in about 7 days when"),
        ("faster", "takes 20m, -50 % in 13 days when"),
        ("same", "takes 32m when"),
        ("new", "takes 1h when"),
        ("rare", "takes 1h when"),
    ] {
        let text = text(&page);
        let (_, lane) = text.split_once(&format!("{job} (well)")).expect("a lane");
        let lane = lane.split_once("3 ok 3 ok").expect("numbers").1;
        assert!(lane.trim_start().starts_with(words), "no {words} in {lane}");
    }
}

#[test]
fn a_run_longer_than_a_bin_is_drawn_with_its_length() {
    let db = healthy_db();
    let lines = |page: &str| {
        let path = page.split_once("<path class=\"long\" d=\"").map(|(_, path)| path);
        path.map(|path| path.split_once('"').unwrap().0.to_owned())
    };
    // Runs of three seconds have no line.
    insert_ended(&db, "hook", "succeeded", "2 hours", 3);
    assert_eq!(lines(&page(&db, &[])), None);

    // Neither has a run that was cancelled while it waited, long after its attempt.
    insert_ended(&db, "hook", "cancelled", "3 hours", 1);
    db.execute(
        "UPDATE jobctl.job_runs SET started_at = finished_at - interval '5 hours'
        WHERE status = 'cancelled'",
    );
    assert_eq!(lines(&page(&db, &[])), None);

    // The x-coordinates of a line count bins of 15 minutes: 97, of which the last one has begun.
    let begin_and_end = |line: &str| -> (f64, i32) {
        let (begin, end) = line.trim_start_matches('M').split_once(" 82H").unwrap();
        (begin.parse().unwrap(), end.parse().unwrap())
    };

    // One run of 40 minutes, which ended 2 hours (8 bins) ago.
    db.execute(
        "UPDATE jobctl.job_runs SET started_at = finished_at - interval '40 minutes'
        WHERE id % 3 = 0 AND status = 'succeeded'",
    );
    let (begin, end) = begin_and_end(&lines(&page(&db, &[])).unwrap());
    let length = f64::from(end) - begin;
    assert!((88..=90).contains(&end) && (40.0 / 15.0..=55.0 / 15.0).contains(&length), "{length}");

    // A failed attempt of an hour (4 bins), which ended 9 hours (36 bins) ago.
    db.execute(
        "UPDATE jobctl.job_runs SET started_at = finished_at;
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT min(id), 0, 'w', now() - interval '10 hours', now() - interval '9 hours', 'failed'
         FROM jobctl.job_runs",
    );
    let (begin, end) = begin_and_end(&lines(&page(&db, &[])).unwrap());
    let length = f64::from(end) - begin;
    assert!((60..=62).contains(&end) && (4.0..=5.0).contains(&length), "{begin} {end}");
}

/// Inserts runs with this status, and a failed first attempt of each on this worker, which ended an
/// hour ago.
fn insert_with_failure(db: &TestDb, job: &str, status: &str, worker: &str, runs: u32) {
    db.execute(&format!(
        "WITH run AS (
             INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at, error_type,
                 last_error)
             SELECT '{job}', '{status}', CASE '{status}' WHEN 'succeeded' THEN 2 ELSE 1 END,
                 CASE WHEN '{status}' <> 'failed' THEN now() - interval '1 hour' END,
                 'exit_code', 'exit status 3'
             FROM generate_series(1, {runs})
             RETURNING id
         )
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
             error_type, error, output)
         SELECT id, 1, '{worker}', now(), now() - interval '1 hour', 'failed', 'exit_code',
             'a private error', E'some\\n{job} lost card 4111\\n\\n'
         FROM run"
    ));
}

#[test]
fn failures_are_grouped_by_severity_even_if_the_runs_recovered() {
    let db = healthy_db();
    let none = page(&db, &[]);
    assert_says(&none, "Incidents No attempt has failed since ");
    insert_with_failure(&db, "recovers", "succeeded", "w1", 1234);
    insert_with_failure(&db, "waits", "failed", "w1", 3);
    insert_with_failure(&db, "dies", "dead", "w2", 2);
    // No worker could claim this run, so it has no attempt.
    insert_ended(&db, "unread", "dead", "2 hours", 1);
    insert_ended(&db, "old", "dead", "3 days", 1);
    let shown = page(&db, &[]);
    assert_says(
        &shown,
        "Incidents Jobs Failed Cause When Its runs 2 dead dies 2 on w2: dies lost card # exit_code",
    );
    assert_says(&shown, "1 dead unread 1 exit status 3 exit_code");
    assert_says(&shown, "3 to retry waits 3 on w1: waits lost card # exit_code");
    assert_says(&shown, "recovered recovers 1,234 on w1: recovers lost card # exit_code");

    // The dead come first, then the runs that wait for a retry, then those that recovered.
    let text = text(&shown);
    let places = ["2 dead dies", "1 dead unread", "3 to retry waits", "recovered recovers"]
        .map(|words| text.find(words));
    assert!(places.is_sorted(), "{places:?}");
    // The run of 3 days ago is not in the 24 hours of the page.
    assert_lacks(&shown, "dead old");

    // Values of outputs and errors are hidden, except with this flag.
    for hidden in ["4111", "a private error"] {
        assert!(!shown.contains(hidden), "{hidden}");
    }
    assert_says(&page(&db, &["--with-output"]), "on w2: dies lost card 4111 exit_code");

    // Settled runs are still shown, but not as dead.
    db.execute(
        "UPDATE jobctl.job_runs SET settled_at = now() WHERE job_type IN ('dies', 'unread')",
    );
    let settled = page(&db, &[]);
    assert_says(&settled, "2 settled dies 2 on w2: dies lost card #");
    assert_says(&settled, "1 settled unread 1 exit status 3");
}

#[test]
fn a_page_with_many_incidents_and_jobs_says_how_many_it_leaves_out() {
    let db = healthy_db();
    insert_with_failure(&db, "recovers", "succeeded", "w1", 1234);
    insert_with_failure(&db, "waits", "failed", "w1", 3);
    insert_with_failure(&db, "dies", "dead", "w2", 2);
    insert_ended(&db, "unread", "dead", "2 hours", 1);
    insert_ended(&db, "old", "dead", "3 days", 1);
    for job in 0..28 {
        insert_ended(&db, &format!("job{job}"), "dead", "4 hours", 1);
    }
    let many = page(&db, &[]);
    assert_says(&many, "And 7 more incidents; jobctl failures --group lists all of them.");
    assert_says(
        &many,
        "more jobs; jobs with problems are shown first, then jobs with the most runs.",
    );
}

#[test]
fn failures_of_one_cause_over_hours_are_one_line_of_the_report() {
    let db = healthy_db();
    // A run has died this many hours ago.
    for hours in [1, 3, 6, 9] {
        insert_with_failure(&db, "trickles", "dead", "w1", 1);
        db.execute(&format!(
            "UPDATE jobctl.job_attempts SET finished_at = now() - interval '{hours} hours',
                 started_at = now() - interval '{hours} hours', output = output
             WHERE run_id = (SELECT max(id) FROM jobctl.job_runs)"
        ));
    }
    let shown = page(&db, &[]);
    assert_says(&shown, "4 dead trickles 4 on w1: trickles lost card # exit_code 4 times since ");
    assert_eq!(shown.matches("jobctl list --incident ").count(), 1);
}

#[test]
fn lists_show_schedules_workers_and_running_runs_with_their_problems() {
    let db = healthy_db();
    db.apply(
        "[jobs.fires]\nshell = 'true'\nschedule = '*/15 * * * *'\ntime_zone = 'Europe/Berlin'\n
         [jobs.late]\nshell = 'true'\nschedule = '0 0 * * *'\n
         [jobs.held]\nshell = 'true'\nschedule = '0 0 * * *'\n",
    );
    db.jobctl(["pause", "held"]).run().success();
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = now() - interval '6 minutes'
             WHERE name = 'late';
         UPDATE jobctl.job_definitions
             SET next_run_at = now() + interval '5 minutes 1 second' WHERE name = 'fires'",
    );
    // A worker that ticked only once, and two that ticked for days, of which one is held.
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at)
         VALUES ('old', '0.9', now() - interval '3 days');
         INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since)
         SELECT name, '0.9', now() - interval '2 hours', now() - interval '9 days'
         FROM unnest(ARRAY['held', repeat('x', 255)]) AS name;
         INSERT INTO jobctl.job_holds (scope, name) VALUES ('worker', 'held')",
    );
    // A run that goes well, one that has lost its lease, and one without a start time.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at, cancel_requested_at)
         VALUES ('fires', 'running', 2, 'w', now() + interval '1 minute',
             now() - interval '2 hours', NULL),
            ('late', 'running', 1, 'old', now() - interval '1 minute',
                now() - interval '6 hours', now()),
            ('late', 'running', 1, 'old', now() + interval '1 minute', NULL, NULL)",
    );
    db.allow_running_runs_at_end();
    let page = page(&db, &[]);
    let text = text(&page);
    let text_between = |from: &str, to: &str| {
        let (_, after) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in {text}"));
        after.split_once(to).map_or(after, |(before, _)| before).to_owned()
    };

    // Late schedules come first, and disabled ones last.
    let schedules = text_between("Job Next Last success Schedule", "Worker Last tick");
    assert!(schedules.contains("fires") && schedules.contains(", in 5m"), "{schedules}");
    assert!(
        schedules.contains("none */15 * * * * Every 15 minutes every day (Europe/Berlin time)."),
        "{schedules}"
    );
    assert!(schedules.find("late late") < schedules.find("held paused since"), "{schedules}");
    assert!(
        schedules.find("held paused since") < schedules.find("nightly disabled"),
        "{schedules}"
    );

    // A worker that ticked once, three days ago, is not missed, as in the tile.
    let workers = text_between("Worker Last tick", "jobctl 0");
    assert!(workers.contains("w ") && !workers.contains("old "), "{workers}");
    // As in `check`, a held worker is not silent, and neither is the one that ticked once.
    assert_eq!(workers.matches("silent").count(), 1, "{workers}");
    assert!(workers.contains(&format!(" {} silent", "x".repeat(255))), "{workers}");

    // Runs with problems come first, and those without a start time last.
    let running = text_between("Running now", "Schedules");
    assert!(
        running.find("lease expired cancel requested") < running.find("2h ago w 2 of 10"),
        "{running}"
    );
    assert!(running.find("2h ago w 2 of 10") < running.find("unknown old 1 of 10"), "{running}");
}

#[test]
fn a_schedule_that_cannot_be_read_needs_attention() {
    let db = healthy_db();
    // The next tick computes the next time of both schedules.
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n
         [jobs.b]\nshell = 'true'\nschedule = '@daily'\n",
    );
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = NULL WHERE name IN ('a', 'b')");
    assert_says(&page(&db, &[]), "a known after the next tick none @daily");

    db.execute("UPDATE jobctl.job_definitions SET schedule = 'sometimes' WHERE name = 'a'");
    let page = page(&db, &[]);
    assert_says(&page, "Now schedule a can't fire");
    assert_says(&page, "a can't fire none sometimes");
}

/// An attack on HTML and on terminals, in one text.
const HOSTILE: &str = "</title></style><script>x</script>\"'><img src=http://e onerror=x>&lt;\
    \u{1b}[2J\u{1}\u{202e}\r\n\u{85}";

#[test]
fn stored_text_never_becomes_html() {
    let db = healthy_db();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        enqueue_in_status(&db, status);
    }
    // The text is in each column that a page may show.
    let mut client = db.client();
    for update in [
        "UPDATE jobctl.job_runs SET job_type = left($1, 63), last_error = $1, error_type = $1,
             started_at = now() - interval '1 hour'",
        "UPDATE jobctl.job_runs SET locked_by = $1 WHERE status = 'running'",
        "UPDATE jobctl.job_definitions SET schedule = $1, time_zone = $1",
        "UPDATE jobctl.job_workers SET worker = $1, version = $1",
    ] {
        client.execute(update, &[&HOSTILE]).unwrap();
    }
    let page = page(&db, &["--title", HOSTILE]);
    // The text is shown, and `page` has found only tags that jobctl writes.
    assert!(
        page.contains(
            "&lt;script&gt;x&lt;/script&gt;&quot;'&gt;&lt;img src=http://e onerror=x&gt;&amp;lt;"
        ),
        "{page}"
    );
    assert!(page.contains(r"\u{1b}[2J\u{1}\u{202e}"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<img"));
}

#[test]
fn ten_thousand_runs_fit_into_a_page_even_if_every_job_fails_all_the_time() {
    let db = healthy_db();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, started_at, finished_at,
             error_type, last_error)
         SELECT 'a_job_with_a_name_of_quite_some_length_' || job, status, 2, at,
             at + interval '1 minute', 'exit_code', 'exit status 3'
         FROM generate_series(1, 26) AS job,
            generate_series(now() - interval '24 hours', now(), interval '15 minutes') AS at,
            (VALUES ('succeeded'), ('dead'), ('cancelled'), ('succeeded')) AS outcome (status);
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT id, 1, 'w', started_at, finished_at, 'failed' FROM jobctl.job_runs",
    );
    assert_eq!(db.query("SELECT count(*) > 10000 FROM jobctl.job_runs"), "t");
    // `page` checks the size.
    let page = page(&db, &[]);
    assert_says(
        &page,
        "And 8 more jobs; jobs with problems are shown first, then jobs with the most runs.",
    );
}

#[test]
fn a_row_of_a_lane_says_which_time_it_covers() {
    let db = healthy_db();
    insert_ended(&db, "hook", "succeeded", "3 hours", 1);
    let ended = db.query("SELECT to_char(finished_at, 'HH24:MI') FROM jobctl.job_runs");
    let page = page(&db, &[]);
    let (_, row) = page.split_once("</thead><tbody><tr><th scope=\"row\">").unwrap();
    let (from, to) = row.split_once('<').unwrap().0.split_once(" to ").unwrap();
    let minute = |time: &str| {
        let (hour, minute) = time[time.len() - 5..].split_once(':').unwrap();
        hour.parse::<i32>().unwrap() * 60 + minute.parse::<i32>().unwrap()
    };
    let since = |time| (minute(time) - minute(from)).rem_euclid(24 * 60);
    // Four bars of 15 minutes.
    assert_eq!(since(to), 60, "{from} to {to}");
    assert!(since(&ended) < 60, "{ended} is not in {from} to {to}");
}

#[test]
fn times_are_shown_in_the_requested_time_zone() {
    let db = healthy_db();
    db.execute(
        "INSERT INTO jobctl.job_figures (job_type, last_succeeded_at)
         VALUES ('nightly', '2020-01-06 12:00:00+00')",
    );
    let utc = page(&db, &[]);
    assert_says(&utc, "2020-01-06 12:00, ");
    assert_says(&utc, "Times are in UTC.");
    let local = page(&db, &["--time-zone", "Asia/Kathmandu"]);
    assert_says(&local, "2020-01-06 17:45, ");
    assert_says(&local, "Times are in Asia/Kathmandu.");
    let since_yesterday = page(&db, &["--since", "yesterday", "--time-zone", "Asia/Kathmandu"]);
    assert_says(&since_yesterday, " 00:00. Dead 0 ");
    assert!(local.contains(
        "<time datetime=\"2020-01-06T12:00:00Z\" title=\"Mon 2020-01-06 17:45:00 Asia/Kathmandu\">"
    ));
}

#[test]
fn unknown_time_zones_and_unusable_times_are_rejected() {
    let db = TestDb::new();
    let refused = db.jobctl(["report", "--time-zone", "Europe/Berln"]).run().exits(2).stdout("");
    refused.stderr_has("did you mean `Europe/Berlin`?");
    for since in ["59s", "367d", "-1h", "1", "1M", "2020-01-06 12:00", "9999-01-01"] {
        db.jobctl(["report", &format!("--since={since}")]).run().exits(2).stdout("");
    }
}

#[test]
fn a_file_is_replaced_at_once_and_keeps_its_permissions() {
    let db = healthy_db();
    let folder = temp_dir();
    let write = |file: &str| db.jobctl(["report", "-o", file]).current_dir(folder.path()).run();
    let file = folder.path().join("jobs.html");
    write("jobs.html").success().stdout("").stderr("");
    let first = fs::read_to_string(&file).unwrap();
    assert_page_rules(&first);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("jobs.html", folder.path().join("link")).unwrap();
    let mut old = fs::File::open(&file).unwrap();
    insert_ended(&db, "hook", "succeeded", "1 hour", 3);
    write("link").success();
    // A reader that has opened the old page reads it to its end.
    assert_eq!(std::io::read_to_string(&mut old).unwrap(), first);
    // The file has the new page and its old permissions, and the link is still a link.
    assert_says(&fs::read_to_string(&file).unwrap(), "3 runs succeeded");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(folder.path().join("link").is_symlink());
    // No temporary file is left.
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["jobs.html", "link"]);
}

#[test]
fn a_link_of_another_user_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("links of another user", "a change of owner needs root");
    }
    let db = healthy_db();
    let (shared, own) = (temp_dir(), temp_dir());
    let path = |name: &str| shared.path().join(name);
    let target = own.path().join("target");
    let write = |name: &str| db.jobctl(["report", "-o", name]).current_dir(shared.path()).run();
    symlink(&target, path("file")).unwrap();
    symlink(own.path(), path("folder")).unwrap();
    symlink("file", path("mine")).unwrap();
    // The mode of the folder, which only root or all users may write to, the owner of the links,
    // and whether the page is written through them.
    for (mode, owner, follows) in
        [(0o755, 0, true), (0o755, 65534, false), (0o1777, 0, true), (0o1777, 65534, false)]
    {
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(mode)).unwrap();
        // The path of the page, and the link in it that the other user owns.
        for (name, link) in [("file", "file"), ("mine", "file"), ("folder/target", "folder")] {
            lchown(path(link), Some(owner), None).unwrap();
            fs::write(&target, "old").unwrap();
            let written = write(name);
            if follows {
                written.success();
            } else {
                written
                    .exits(1)
                    .complains_once()
                    .stderr_has(&format!("/{link} is a link of another user; "));
            }
            assert_eq!(
                fs::read_to_string(&target).unwrap() != "old",
                follows,
                "{mode:o} {owner} {name}"
            );
        }
    }
    assert!(["file", "folder", "mine"].iter().all(|name| path(name).is_symlink()));
}

#[test]
fn a_failed_write_is_an_error_and_keeps_the_old_file() {
    let db = healthy_db();
    let folder = temp_dir();
    let write = |file: &str| db.jobctl(["report", "-o", file]).current_dir(folder.path()).run();
    write("absent/jobs.html")
        .exits(1)
        .complains_once()
        .stderr_has("cannot write absent/jobs.html: No such file");
    write(".")
        .exits(1)
        .complains_once()
        .stderr_has("cannot write .: it is not a plain file; move it, or name another one");
    // A socket stands for any device, because a failing test must not replace /dev/null.
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    write("socket").exits(1).complains_once().stderr_has("it is not a plain file");
    assert!(write("-").success().stdout.starts_with("<!DOCTYPE html>"));

    // Without a database, the old page stays.
    fs::write(folder.path().join("jobs.html"), "old").unwrap();
    let without_database = db.jobctl(["report", "-o", "jobs.html"]).current_dir(folder.path());
    without_database
        .env("JOBCTL_DATABASE_URL", "postgres://127.0.0.1:1/none")
        .run()
        .exits(5)
        .complains_once();
    assert_eq!(fs::read_to_string(folder.path().join("jobs.html")).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn all_parts_of_a_page_show_one_moment() {
    let db = healthy_db();
    let mut other = db.client();
    // The report reads this table after its first query and before the figures.
    other.batch_execute("BEGIN; LOCK jobctl.job_workers").unwrap();
    let report = db.jobctl(["report"]).spawn();
    wait_until("the report to wait for the lock", || {
        db.query(
            "SELECT count(*) FROM pg_locks
            WHERE relation = 'jobctl.job_workers'::regclass AND NOT granted",
        ) == "1"
    });
    // This run is inserted while the report waits, so no part of the page shows it.
    insert_ended(&db, "hook", "dead", "1 hour", 1);
    other.batch_execute("COMMIT").unwrap();
    drop(other);
    let page = report.wait().success().stdout;
    assert_says(&page, "All well. Nothing is dead or late. No run succeeded or failed since ");
    assert_says(&page, "No attempt has failed since ");
}

#[test]
fn a_page_that_reloads_itself_knows_its_age() {
    let db = healthy_db();
    let still = page(&db, &[]);
    assert_says(&still, "This page does not refresh itself.");
    assert!(still.contains("<body style=\"--fresh:3600s\">"), "{still}");
    let wall = page(&db, &["--refresh", "10m"]);
    assert_says(&wall, "Reloads every 10m.");
    assert!(wall.contains("<body style=\"--fresh:1800s\" data-refresh=\"600\">"), "{wall}");

    // The content security policy allows only the script that reloads the page.
    let script = wall.split_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
    assert!(script.contains("location.reload()"), "{script}");
    let digest = db.query(&format!(
        "SELECT encode(sha256(convert_to('{}', 'UTF8')), 'base64')",
        script.replace('\'', "''")
    ));
    for page in [still, wall] {
        assert!(page.contains(&format!("script-src 'sha256-{digest}'; base-uri")), "{page}");
    }
}

#[test]
fn a_viewer_may_report_without_output() {
    let db = healthy_db();
    insert_with_failure(&db, "hook", "succeeded", "w", 1);
    let viewer = Role::granted(&db, "viewer");
    // In place of the number, a viewer sees `#`.
    viewer.jobctl(["report"]).run().success().stdout_has("hook lost card #");
    let refused = viewer.jobctl(["report", "--with-output"]).run().exits(7).stdout("");
    refused.complains_once();
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["report", "--with-output"]).run().success().stdout_has("hook lost card 4111");
}

#[test]
fn axe_finds_nothing_in_the_page_of_a_bad_week() {
    const WHAT: &str = "the report in a browser";
    // The first package is a browser; of Debian's packages it needs libnss3.
    let packages = "@sparticuz/chromium@147.0.0 puppeteer-core@24.43.1 axe-core@4.14.1";
    let packages = match packages::node(packages) {
        Ok(folder) => folder,
        Err(why) => return leave_out(WHAT, &why),
    };
    // axe finds what keeps people with disabilities from reading a page.
    let (db, folder) = (after_a_bad_week(), temp_dir());
    let file = folder.path().join("jobs.html");
    let page = page(&db, &["--since", "7d", "--with-output"]);
    fs::write(&file, page).unwrap();
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", include_str!("axe.mjs")]).arg(&file);
    // Imports are relative to the working folder. The browser is unpacked into TMPDIR.
    node.current_dir(packages.parent().unwrap());
    let checked = node.env("TMPDIR", folder.path()).env("HOME", folder.path()).output().unwrap();
    let [found, errors] = [checked.stdout, checked.stderr].map(|o| String::from_utf8(o).unwrap());
    if checked.status.code() == Some(3) {
        return leave_out(WHAT, &errors);
    }
    assert_eq!(found, "checks: 21\n");
    assert_eq!(errors, "");
}
