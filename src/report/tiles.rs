//! The key figures of this moment. Pure.

use maud::{Markup, html};

use super::{View, when_none_is_due};
use crate::job::finding_code::Code;
use crate::store::{ReportSummary, StoppedFacts};
use crate::text::plural::{grouped, listed};
use crate::text::timestamp::{age, relative};

/// A figure, and notes that explain it.
struct Tile {
    name: &'static str,
    value: String,
    notes: Vec<String>,
    /// Whether the figure needs attention.
    is_bad: bool,
}

/// The key figures: how many runs are dead, due or running, and how many workers tick.
pub(super) fn section(view: &View<'_>) -> Markup {
    let summary = &view.snapshot.summary;
    let dead = Tile {
        name: "Dead",
        value: grouped(summary.dead),
        notes: counted(summary.dead_lately, "in the last 24h").into_iter().collect(),
        is_bad: summary.dead > 0,
    };
    let tiles = [
        dead,
        failing(view),
        due(view),
        stopped(view),
        running(view),
        workers(view),
        success(summary),
    ];
    html! {
        section aria-label="Key figures" {
            dl.figures {
                @for Tile { name, value, notes, is_bad } in tiles {
                    div.bad[is_bad] {
                        dt { (name) }
                        dd { strong { (value) } " " span.quiet { (notes.join(", ")) } }
                    }
                }
            }
        }
    }
}

/// The scheduled jobs whose runs fail.
fn failing(view: &View<'_>) -> Tile {
    let failing = view.findings.iter().filter(|finding| finding.code == Some(Code::JobFailing));
    let jobs: Vec<_> = failing.filter_map(|finding| finding.job_type.as_deref()).collect();
    Tile {
        name: "Jobs failing",
        value: grouped(jobs.len() as i64),
        notes: if jobs.is_empty() { Vec::new() } else { vec![listed(&jobs, 2)] },
        is_bad: !jobs.is_empty(),
    }
}

/// Returns a number and words for it, as a part of a note; `None` for zero.
fn counted(number: i64, words: &str) -> Option<String> {
    if number > 0 { Some(format!("{} {words}", grouped(number))) } else { None }
}

/// The due runs: how long they have waited, and when none of them is due any more.
fn due(view: &View<'_>) -> Tile {
    let summary = &view.snapshot.summary;
    let oldest = summary.due_since.map(|at| format!("for up to {}", age(at, view.axis.now)));
    // The first row is about all jobs together.
    let flow = view.snapshot.flow.first().filter(|_| summary.due > 0);
    let none_due = flow.and_then(when_none_is_due);
    let rest = [counted(summary.later, "later"), counted(summary.failed, "to retry")];
    Tile {
        name: "Due now",
        value: grouped(summary.due),
        notes: [oldest, none_due].into_iter().chain(rest).flatten().collect(),
        is_bad: false,
    }
}

/// How many holds and pauses people have made.
fn stopped(view: &View<'_>) -> Tile {
    // Do not count disabled jobs, which are stopped for good, and holds for a run that asked for a
    // later attempt, which no person made.
    let is_counted = |fact: &&StoppedFacts| fact.code != Code::JobDisabled && fact.run_id.is_none();
    let stopped: Vec<_> = view.snapshot.work.stopped.iter().filter(is_counted).collect();
    let mut people: Vec<_> = stopped.iter().filter_map(|fact| fact.stopped_by.as_deref()).collect();
    people.sort_unstable();
    people.dedup();
    let notes =
        if people.is_empty() { Vec::new() } else { vec![format!("by {}", listed(&people, 2))] };
    Tile { name: "Held or paused", value: grouped(stopped.len() as i64), notes, is_bad: false }
}

/// The running runs, and how many have lost their worker.
fn running(view: &View<'_>) -> Tile {
    let summary = &view.snapshot.summary;
    // The longest run comes first.
    let longest = view.snapshot.running.first().and_then(|run| {
        Some(format!("the longest for {}, {}", age(run.started_at?, view.axis.now), run.job_type))
    });
    let lost = counted(summary.lost, "with an expired lease");
    Tile {
        name: "Running",
        value: grouped(summary.running),
        notes: [longest, lost].into_iter().flatten().collect(),
        is_bad: summary.lost > 0,
    }
}

/// How many workers tick.
fn workers(view: &View<'_>) -> Tile {
    let ReportSummary { ticking, workers, last_tick_at, .. } = &view.snapshot.summary;
    let last = last_tick_at.map(|at| format!("last tick {}", relative(at, view.axis.now)));
    Tile {
        name: "Workers ticking",
        value: format!("{} of {}", grouped(*ticking), grouped(*workers)),
        notes: vec![last.unwrap_or_else(|| "no tick yet".to_owned())],
        is_bad: *ticking == 0,
    }
}

/// Which share of the runs succeeded in the last seven days, and in the seven days before.
fn success(summary: &ReportSummary) -> Tile {
    let of_week = share(summary.succeeded_7d, summary.dead_7d);
    let of_week_before = share(summary.succeeded_before, summary.dead_before);
    let ended = counted(summary.succeeded_7d + summary.dead_7d, "runs");
    let notes = [
        ended.map(|runs| format!("of {runs}")),
        of_week_before.map(|share| format!("{share} in the 7d before")),
    ];
    Tile {
        name: "Succeeded in 7d",
        value: of_week.unwrap_or_else(|| "none".to_owned()),
        notes: notes.into_iter().flatten().collect(),
        is_bad: false,
    }
}

/// Returns the share of runs that succeeded, or `None` without runs. It is rounded down, so that it
/// is below 100 % if any run died.
fn share(succeeded: i64, dead: i64) -> Option<String> {
    let ended = succeeded + dead;
    let thousandths = (i128::from(succeeded) * 1000).checked_div(i128::from(ended))?;
    let share = match thousandths % 10 {
        0 => format!("{} %", thousandths / 10),
        tenth => format!("{}.{tenth} %", thousandths / 10),
    };
    Some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(share(0, 0), None);
        for (succeeded, dead, shown) in [
            (7, 0, "100 %"),
            (99_999, 1, "99.9 %"),
            (9, 1, "90 %"),
            (0, 3, "0 %"),
            (1, 2, "33.3 %"),
        ] {
            assert_eq!(share(succeeded, dead).as_deref(), Some(shown));
        }
    }
}
