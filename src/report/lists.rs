//! The lists beside or below the drawings: failures, running runs, schedules and workers.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::axis::Axis;
use super::{ROWS, View, id, moment, more, name, section};
use crate::job::failure::{ErrorType, Failure};
use crate::job::finding_code::Code;
use crate::job::thresholds::TICK_OVERDUE;
use crate::schedule::Schedule;
use crate::schedule::due::{self, Scheduled};
use crate::store::FailureGroup;
use crate::text::duration;
use crate::text::plural::grouped;

/// What went wrong in the window, the worst first: failed attempts, even if the runs recovered.
pub(super) fn failures(view: &View<'_>) -> Markup {
    let none = html! { "No attempt failed in the last " (duration::show(view.window)) "." };
    let rest = html! { code { "jobctl failures --group" } " lists all of them" };
    let columns = ["Job", "Failed", "Error", "When"];
    let failures = &view.snapshot.failures;
    let all = (view.snapshot.all_failures, "group", rest);
    list("What went wrong", columns, &none, &all, failures, |failure| {
        let job = html! { (badge(failure)) " " (view.job(&failure.job)) };
        [job, html! { (grouped(failure.failures)) }, error(failure), when(failure, view)]
    })
}

fn badge(failure: &FailureGroup) -> Markup {
    html! {
        @match (failure.dead, failure.waiting) {
            (0, 0) if failure.settled > 0 => span.badge { (grouped(failure.settled)) " settled" },
            (0, 0) => span.badge { "recovered" },
            (0, waiting) => span.badge.warn { (grouped(waiting)) " to retry" },
            (dead, _) => span.badge.bad { (grouped(dead)) " dead" },
        }
    }
}

fn error(failure: &FailureGroup) -> Markup {
    let error_type = failure.error_type.as_deref();
    let counted = error_type
        .zip(failure.number)
        .and_then(|(of, number)| Failure::numbered(ErrorType::of(of)?, number));
    let error = counted.map(|error| error.to_string()).or_else(|| failure.last_error.clone());
    html! {
        @if let Some(worker) = &failure.worker { "on " (name(worker)) ": " }
        @if let Some(error) = &error { code { (error) } }
        @else if error_type.is_none() { "no error is recorded" }
        @if let Some(error_type) = error_type { " " span.quiet { (error_type) } }
        @if let Some(line) = &failure.last_line { " " span.last-line { code { (line) } } }
    }
}

fn when(failure: &FailureGroup, view: &View<'_>) -> Markup {
    let [first, last] = [failure.first_at, failure.last_at].map(|at| view.axis.show(at));
    html! {
        @if first != last { (first) " to " }
        (moment(&view.axis, failure.last_at))
        " " span.remedy { code { "jobctl show " (failure.id) } }
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
