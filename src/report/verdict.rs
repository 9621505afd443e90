//! Whether all is well, in one sentence. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::count;
use crate::duration::{self, show_whole};
use crate::fires::Failing;
use crate::patience::{LAG, PATIENCE};
use crate::store::Summary;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mood {
    Well,
    Troubled,
    /// There is nothing to judge.
    Unused,
}

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) mood: Mood,
    /// Begins the sentence.
    pub(super) opening: &'static str,
    pub(super) rest: String,
}

/// `window` is the period that the report covers.
pub(super) fn of(summary: &Summary, failing: &Failing<'_>, now: DateTime<Utc>, window: Duration) -> Verdict {
    if !summary.used {
        let rest = "There is no job and no run in this database.".to_owned();
        return Verdict { mood: Mood::Unused, opening: "Nothing here yet.", rest };
    }
    let window = duration::show(window);
    let troubles = troubles(summary, failing, now, &window);
    if troubles.is_empty() {
        let rest = match summary.succeeded {
            0 => format!("Nothing ran in the last {window}; nothing is dead or late."),
            runs => {
                format!("{} succeeded in the last {window}; nothing is dead or late.", count::grouped_of(runs, "run"))
            }
        };
        return Verdict { mood: Mood::Well, opening: "All well.", rest };
    }
    Verdict { mood: Mood::Troubled, opening: "Needs attention:", rest: format!("{}.", troubles.join("; ")) }
}

fn troubles(summary: &Summary, failing: &Failing<'_>, now: DateTime<Utc>, window: &str) -> Vec<String> {
    let age = |at: DateTime<Utc>| (now - at).to_std().unwrap_or_default();
    let late = |at: Option<DateTime<Utc>>, limit| at.map(age).filter(|age| *age >= limit).map(show_whole);
    let mut troubles = Vec::new();
    if summary.dead > 0 {
        let runs = count::grouped_of(summary.dead, "dead run");
        troubles.push(match summary.dead_lately {
            0 => format!("{runs}, none in the last {window}"),
            lately if lately == summary.dead => format!("{runs} in the last {window}"),
            lately => format!("{runs}, {} in the last {window}", count::grouped(lately)),
        });
    }
    match summary.last_tick_at.map(age) {
        None => troubles.push("no worker has ever ticked".to_owned()),
        Some(age) if age >= PATIENCE => troubles.push(format!("no worker has ticked for {}", show_whole(age))),
        Some(_) => {}
    }
    if let Some(age) = late(summary.due_since, LAG) {
        let wait = if summary.due == 1 { "is due and waits" } else { "are due, the oldest" };
        troubles.push(format!("{} {wait} for {age}", count::grouped_of(summary.due, "run")));
    }
    troubles.extend(failing.sentences().map(|(sentence, _)| sentence));
    if let Some(age) = late(summary.late_since, PATIENCE) {
        troubles.push(format!("a schedule is late by {age}"));
    }
    if summary.lost > 0 {
        let is = if summary.lost == 1 { "is" } else { "are" };
        troubles.push(format!("{} {is} running without a lease", count::grouped_of(summary.lost, "run")));
    }
    troubles
}
