//! The key figures.

use std::time::Duration;

use maud::{Markup, html};

use super::axis::Axis;
use crate::store::ReportSummary;
use crate::text::duration;
use crate::text::plural::grouped;
use crate::text::timestamp::relative;

pub(super) fn section(summary: &ReportSummary, axis: &Axis, window: Duration) -> Markup {
    let window = duration::show(window);
    let retried = match summary.retried {
        0 => format!("in the last {window}"),
        retried => format!("in the last {window}, {} retried", grouped(retried)),
    };
    let dead = format!("{} in the last {window}", grouped(summary.dead_lately));
    let longest_wait = summary.due_since.map_or_else(String::new, |at| {
        let wait = (axis.now - at).to_std().unwrap_or_default().max(Duration::from_secs(1));
        format!("waiting for up to {}", duration::show_whole(wait))
    });
    let expired = match summary.lost {
        0 => String::new(),
        lost => format!("{} with an expired lease", grouped(lost)),
    };
    let last_tick = summary.last_tick_at.map_or_else(
        || "no tick yet".to_owned(),
        |at| format!("last tick {}", relative(at, axis.now)),
    );
    // A count of zero has no note.
    let count = |name, number, note, is_bad| {
        (name, grouped(number), if number == 0 { String::new() } else { note }, is_bad)
    };
    let workers = format!("{} of {}", grouped(summary.ticking), grouped(summary.workers));
    let dropped = (summary.dropped > 0)
        .then(|| ("Dropped", grouped(summary.dropped), format!("in the last {window}"), false));
    let figures = [
        count("Succeeded", summary.succeeded, retried, false),
        count("Dead", summary.dead, dead, summary.dead > 0),
        count("To retry", summary.failed, String::new(), false),
        count("Due now", summary.due, longest_wait, false),
        count("Due later", summary.later, String::new(), false),
        count("Running", summary.running, expired, summary.lost > 0),
        ("Workers ticking", workers, last_tick, summary.ticking == 0),
    ];
    html! {
        section aria-label="Key figures" {
            dl.figures {
                @for (name, value, note, is_bad) in figures.into_iter().chain(dropped) {
                    div.bad[is_bad] {
                        dt { (name) }
                        dd { strong { (value) } " " span.quiet { (note) } }
                    }
                }
            }
        }
    }
}
