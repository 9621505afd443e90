//! The lists beside or below the drawings: failures, running runs, schedules and workers.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::axis::Axis;
use super::{ROWS, View, id, moment, more, name, section};
use crate::job::finding_code::Code;
use crate::job::thresholds::TICK_OVERDUE;
use crate::schedule::Schedule;
use crate::schedule::due::{self, Scheduled};
use crate::store::Incident;
use crate::text::duration;
use crate::text::plural::grouped;

/// What went wrong in the window, the worst first: failed attempts, even if the runs recovered.
pub(super) fn incidents(view: &View<'_>) -> Markup {
    let none = html! { "No attempt failed in the last " (duration::show(view.window)) "." };
    let rest = html! { code { "jobctl failures --group" } " lists all of them" };
    let columns = ["Jobs", "Failed", "Cause", "When"];
    let all = (view.snapshot.all_incidents, "incident", rest);
    list("What went wrong", columns, &none, &all, &view.snapshot.incidents, |incident| {
        let jobs = html! { (badge(incident)) " " (several(&incident.jobs, |job| view.job(job))) };
        [jobs, html! { (grouped(incident.failures)) }, cause(incident), when(incident, view)]
    })
}

fn badge(incident: &Incident) -> Markup {
    html! {
        @match (incident.dead, incident.waiting) {
            (0, 0) if incident.settled > 0 => {
                span.badge { (grouped(incident.settled)) " settled" }
            }
            (0, 0) => span.badge { "recovered" },
            (0, waiting) => span.badge.warn { (grouped(waiting)) " to retry" },
            (dead, _) => span.badge.bad { (grouped(dead)) " dead" },
        }
    }
}

fn cause(incident: &Incident) -> Markup {
    html! {
        @if !incident.workers.is_empty() { "on " (several(&incident.workers, name)) ": " }
        @match incident.cause.as_deref() {
            Some(cause) if !cause.is_empty() => code { (cause) },
            _ => "no error is recorded",
        }
        @if let Some(error_type) = &incident.error_type { " " span.quiet { (error_type) } }
    }
}

/// The first names, and how many more there are.
fn several(names: &[String], show: impl Fn(&str) -> Markup) -> Markup {
    let (first, rest) = names.split_at(names.len().min(3));
    html! {
        @for (number, name) in first.iter().enumerate() {
            @if number > 0 { ", " }
            (show(name))
        }
        @if !rest.is_empty() { " and " (rest.len()) " more" }
    }
}

fn when(incident: &Incident, view: &View<'_>) -> Markup {
    let [first, last] = [incident.first_finished_at, incident.last_finished_at];
    let is_span = view.axis.show(first) != view.axis.show(last);
    html! {
        @if is_span { (view.axis.show(first)) " to " }
        (moment(&view.axis, last))
        " " span.remedy { code { "jobctl show " (incident.newest_id) } }
    }
}

pub(super) fn schedules(view: &View<'_>) -> Markup {
    let axis = &view.axis;
    let scheduled = view.snapshot.work.scheduled.iter();
    let mut fires: Vec<_> =
        scheduled.filter_map(|one| Some((one, one.schedule.as_deref()?))).collect();
    // The next to fire first; paused and disabled ones come last.
    fires.sort_by_key(|(one, _)| {
        let is_unknown = one.next_run_at.is_none();
        (!one.enabled, one.paused_at.is_some(), is_unknown, one.next_run_at, &one.name)
    });
    let none = html! { "No job has a schedule." };
    let rest = html! { code { "jobctl next" } " lists all of them" };
    let columns = ["Job", "Next", "Last success", "Schedule"];
    let all = (i64::try_from(fires.len()).unwrap_or(i64::MAX), "job", rest);
    fires.truncate(ROWS);
    list("Schedules", columns, &none, &all, &fires, |(fire, expression)| {
        let schedule = html! {
            code { (expression) }
            @if let Ok(schedule) = Schedule::parse(expression, &fire.time_zone) {
                " " span.quiet { (schedule.words()) }
            }
        };
        let success = html! {
            @match fire.last_succeeded_at {
                Some(at) => (moment(axis, at)),
                None => span.quiet { "none" },
            }
        };
        [view.job(&fire.name), next(fire, axis), success, schedule]
    })
}

fn next(fire: &Scheduled, axis: &Axis) -> Markup {
    html! {
        @match (fire.enabled, fire.paused_at, fire.next_run_at) {
            (false, ..) => span.badge { "disabled" },
            (true, Some(since), _) => { span.badge { "paused" } " since " (moment(axis, since)) },
            (true, None, _) if due::is_broken(fire) => span.badge.bad { "can't fire" },
            (true, None, None) => span.quiet { "known after the next tick" },
            (true, None, Some(at)) => {
                @if is_overdue(at, axis) { span.badge.bad { "late" } " " }
                (moment(axis, at))
            }
        }
    }
}

pub(super) fn workers(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let none = html! {
        "No worker has ever ticked. " code { "jobctl init" } " prints the lines for a crontab."
    };
    let all = (snapshot.summary.workers, "worker", html! { "their last ticks are older" });
    let columns = ["Worker", "Last tick", "Version"];
    list("Workers", columns, &none, &all, &snapshot.workers, |worker| {
        let is_silent = view.findings.iter().any(|finding| {
            matches!(finding.code, Some(Code::WorkerSilent | Code::WorkerMissing))
                && finding.worker.as_ref() == Some(&worker.worker)
        });
        let last_tick = html! {
            @if is_silent { span.badge.warn { "silent" } " " }
            (moment(axis, worker.last_tick_at))
        };
        [name(&worker.worker), last_tick, html! { (worker.version) }]
    })
}

pub(super) fn running(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let none = html! { "No run is running." };
    let all = (snapshot.summary.running, "run", html! { "they started later" });
    let columns = ["Run", "Since", "Worker", "Attempt"];
    list("Running now", columns, &none, &all, &snapshot.running, |run| {
        let since = html! {
            @if run.is_lost { span.badge.bad { "lease expired" } " " }
            @if run.cancel_requested { span.badge.warn { "cancel requested" } " " }
            @match run.started_at {
                Some(at) => (moment(axis, at)),
                None => span.quiet { "unknown" },
            }
        };
        let run_name = html! { (view.job(&run.job_type)) " " span.quiet { (run.id) } };
        let attempt = html! { (run.attempts) " of " (run.max_attempts) };
        [run_name, since, name(&run.locked_by), attempt]
    })
}

fn is_overdue(at: DateTime<Utc>, axis: &Axis) -> bool {
    (axis.now - at).to_std().is_ok_and(|age| age >= TICK_OVERDUE)
}

/// A section with a table, or with `none` if there are no items. `cells` makes a row of an item.
/// `all` is the number of all items, their noun, and where to find those that are not shown.
fn list<T, const N: usize>(
    heading: &str,
    columns: [&str; N],
    none: &Markup,
    (all, noun, rest): &(i64, &str, Markup),
    items: &[T],
    cells: impl Fn(&T) -> [Markup; N],
) -> Markup {
    let row = |item| {
        let cells = columns.iter().zip(cells(item)).enumerate();
        html! {
            tr {
                @for (number, (column, cell)) in cells {
                    @if number == 0 { th scope="row" { (cell) } }
                    @else { td data-label=(column) { (cell) } }
                }
            }
        }
    };
    let content = html! {
        @if items.is_empty() {
            p { (none) }
        } @else {
            table.list aria-labelledby=(id(heading)) {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { @for item in items { (row(item)) } }
            }
            (more(*all, items.len(), noun, rest))
        }
    };
    section(heading, &content)
}
