//! The first sentence of the page: whether anything needs attention. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::health::limits::{RUN_OVERDUE, TICK_OVERDUE};
use crate::schedule::due::FailingSchedules;
use crate::store::Summary;
use crate::text::duration::{show, show_whole};
use crate::text::plural;

pub(super) struct Headline {
    /// The class of its box in the style sheet.
    pub(super) class: &'static str,
    /// SVG.
    pub(super) icon: &'static str,
    pub(super) opening: &'static str,
    pub(super) rest: String,
}

/// `window` is the period that the report covers.
pub(super) fn headline(
    summary: &Summary,
    failing: &FailingSchedules<'_>,
    now: DateTime<Utc>,
    window: Duration,
) -> Headline {
    let window = show(window);
    let problems = problems(summary, failing, now, &window);
    let (class, icon, opening, rest) = if !summary.used {
        let rest = "This database has no job and no run.".to_owned();
        ("unused", include_str!("static/unused.svg"), "Nothing here yet.", rest)
    } else if problems.is_empty() {
        let ran = match summary.succeeded {
            0 => "Nothing ran".to_owned(),
            runs => plural::grouped_of(runs, "run") + " succeeded",
        };
        let rest = format!("{ran} in the last {window}; nothing is dead or late.");
        ("well", include_str!("static/well.svg"), "All well.", rest)
    } else {
        let rest = problems.join("; ") + ".";
        ("troubled", include_str!("static/troubled.svg"), "Needs attention:", rest)
    };
    Headline { class, icon, opening, rest }
}

fn problems(
    summary: &Summary,
    failing: &FailingSchedules<'_>,
    now: DateTime<Utc>,
    window: &str,
) -> Vec<String> {
    let overdue = |since: Option<DateTime<Utc>>, threshold| {
        let age = (now - since?).to_std().unwrap_or_default();
        (age >= threshold).then(|| show_whole(age))
    };
    let mut problems = Vec::new();
    if summary.dead > 0 {
        let dead = plural::grouped_of(summary.dead, "dead run");
        problems.push(match summary.dead_lately {
            0 => format!("{dead}, none in the last {window}"),
            lately if lately == summary.dead => format!("{dead} in the last {window}"),
            lately => format!("{dead}, {} in the last {window}", plural::grouped(lately)),
        });
    }
    if summary.last_tick_at.is_none() {
        problems.push("no worker has ever ticked".to_owned());
    } else if let Some(age) = overdue(summary.last_tick_at, TICK_OVERDUE) {
        problems.push(format!("no worker has ticked for {age}"));
    }
    if let Some(age) = overdue(summary.due_since, RUN_OVERDUE) {
        let due = plural::grouped_of(summary.due, "due run");
        problems.push(format!("{due}, waiting for up to {age}"));
    }
    problems.extend(failing.sentences().map(|(sentence, _)| sentence));
    if let Some(age) = overdue(summary.late_since, TICK_OVERDUE) {
        problems.push(format!("a schedule is {age} late"));
    }
    if summary.lost > 0 {
        problems.push(plural::grouped_of(summary.lost, "expired lease"));
    }
    problems
}
