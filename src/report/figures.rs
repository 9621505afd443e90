//! The key figures.

use std::time::Duration;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::axis::Axis;
use crate::store::Summary;
use crate::{count, duration, print};

const SECOND: Duration = Duration::from_secs(1);

struct Figure {
    name: String,
    value: String,
    note: String,
    is_bad: bool,
}

pub(super) fn section(summary: &Summary, axis: &Axis, window: Duration) -> Markup {
    let window = duration::show(window);
    let wait = |at: DateTime<Utc>| duration::show_whole((axis.now - at).to_std().unwrap_or_default().max(SECOND));
    let due = summary.due_since.map(|at| format!("the oldest for {}", wait(at))).unwrap_or_default();
    let last_tick = |at| format!("last tick {}", print::relative(at, axis.now));
    let last_tick = summary.last_tick_at.map_or_else(|| "none so far".to_owned(), last_tick);
    let figure = |name: &str, number: i64, note: String, is_bad: bool| {
        let value = count::grouped(number);
        Figure { name: name.to_owned(), value, note: if number == 0 { String::new() } else { note }, is_bad }
    };
    let retried = match summary.retried {
        0 => format!("in the last {window}"),
        retried => format!("in the last {window}, {} retried", count::grouped(retried)),
    };
    let lost = if summary.lost == 0 { String::new() } else { format!("{} without a lease", summary.lost) };
    let figures = [
        figure("Succeeded", summary.succeeded, retried, false),
        figure("Dead", summary.dead, format!("{} in the last {window}", summary.dead_lately), summary.dead > 0),
        figure("To be retried", summary.failed, String::new(), false),
        figure("Due now", summary.due, due, false),
        figure("Due later", summary.later, String::new(), false),
        figure("Running", summary.running, lost, summary.lost > 0),
        Figure {
            name: "Workers ticking".to_owned(),
            value: format!("{} of {}", summary.ticking, summary.workers),
            note: last_tick,
            is_bad: summary.ticking == 0,
        },
    ];
    html! {
        section aria-label="Key figures" {
            dl.figures {
                @for figure in figures {
                    div.bad[figure.is_bad] {
                        dt { (figure.name) }
                        dd { strong { (figure.value) } " " span.quiet { (figure.note) } }
                    }
                }
            }
        }
    }
}
