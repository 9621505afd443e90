//! The lists below the drawings: failures, schedules, workers and running runs.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::axis::Axis;
use super::{id, moment, more, name, section};
use crate::health::limits::TICK_OVERDUE;
use crate::schedule::Schedule;
use crate::schedule::due::FailingSchedules;
use crate::store::{FailureGroup, NextFire, Snapshot};
use crate::text::plural::grouped;

pub(super) fn failures(snapshot: &Snapshot, axis: &Axis) -> Markup {
    let failures = &snapshot.failures;
    let rest = html! { code { "jobctl list-dead" } " lists every dead run" };
    let content = html! {
        @if failures.is_empty() {
            p { "No run is dead or waiting for a retry." }
        } @else {
            ul.failures { @for failure in failures { li { (failing_job(failure, axis)) } } }
            (more(snapshot.all_failures, failures.len(), "group", &rest))
            p.quiet {
                "After the cause is fixed: " code { "jobctl retry ID" } " or "
                code { "jobctl retry --all-dead" } "."
            }
        }
    };
    section("Failures", &content)
}

fn failing_job(failure: &FailureGroup, axis: &Axis) -> Markup {
    html! {
        h3 {
            @if failure.dead > 0 { span.badge.bad { (grouped(failure.dead)) " dead" } " " }
            @if failure.failed > 0 { span.badge.warn { (grouped(failure.failed)) " to retry" } " " }
            (name(&failure.job))
            @if !failure.error_type.is_empty() { " " span.quiet { (failure.error_type) } }
        }
        p.error { code { (failure.last_error.as_deref().unwrap_or("no error is recorded")) } }
        p.quiet {
            "Newest: " (moment(axis, failure.ended_at)) ", run " (failure.id) ", attempt "
            (failure.attempts) " of " (failure.max_attempts) ". "
            code { "jobctl show " (failure.id) }
        }
    }
}

pub(super) fn schedules(
    snapshot: &Snapshot,
    failing: &FailingSchedules<'_>,
    axis: &Axis,
) -> Markup {
    let none = html! { "No job has a schedule." };
    let rest = (snapshot.all_fires, html! { code { "jobctl next" } " lists all of them" });
    list("Schedules", ["Job", "Next", "Schedule"], &none, &rest, &snapshot.fires, |fire| {
        let is_broken = failing.broken.contains(&fire.job.as_str());
        let schedule = Schedule::parse(&fire.schedule, &fire.time_zone);
        let schedule = html! {
            code { (fire.schedule) }
            @if let Ok(schedule) = schedule { " " span.quiet { (schedule.words()) } }
        };
        [name(&fire.job), next(fire, is_broken, axis), schedule]
    })
}

fn next(fire: &NextFire, is_broken: bool, axis: &Axis) -> Markup {
    html! {
        @match (fire.enabled, fire.paused_at, fire.next_run_at) {
            (false, ..) => span.badge { "disabled" },
            (true, Some(since), _) => { span.badge { "paused" } " since " (moment(axis, since)) },
            (true, None, _) if is_broken => span.badge.bad { "can't fire" },
            (true, None, None) => span.quiet { "known after the next tick" },
            (true, None, Some(at)) => {
                @if is_overdue(at, axis) { span.badge.bad { "late" } " " }
                (moment(axis, at))
            }
        }
    }
}

pub(super) fn workers(snapshot: &Snapshot, axis: &Axis) -> Markup {
    let none = html! {
        "No worker has ever ticked. Add this line to a crontab: " code { "* * * * *  jobctl tick" }
    };
    let rest = (snapshot.summary.workers, html! { "their last ticks are older" });
    let columns = ["Worker", "Last tick", "Version"];
    list("Workers", columns, &none, &rest, &snapshot.workers, |worker| {
        let last_tick = html! {
            @if is_overdue(worker.last_tick_at, axis) { span.badge.warn { "silent" } " " }
            (moment(axis, worker.last_tick_at))
        };
        [name(&worker.worker), last_tick, html! { (worker.version) }]
    })
}

pub(super) fn running(snapshot: &Snapshot, axis: &Axis) -> Markup {
    let none = html! { "No run is running." };
    let rest = (snapshot.summary.running, html! { "they started later" });
    let columns = ["Run", "Since", "Worker", "Attempt"];
    list("Running now", columns, &none, &rest, &snapshot.running, |run| {
        let since = html! {
            @if run.is_lost { span.badge.bad { "lease expired" } " " }
            @if run.cancel_requested { span.badge.warn { "cancel requested" } " " }
            @match run.started_at {
                Some(at) => (moment(axis, at)),
                None => span.quiet { "unknown" },
            }
        };
        let run_name = html! { (name(&run.job)) " " span.quiet { (run.id) } };
        let attempt = html! { (run.attempts) " of " (run.max_attempts) };
        [run_name, since, name(&run.worker), attempt]
    })
}

fn is_overdue(at: DateTime<Utc>, axis: &Axis) -> bool {
    (axis.now - at).to_std().is_ok_and(|age| age >= TICK_OVERDUE)
}

/// A section with a table, or with `none` if there are no items. `cells` makes a row of an item.
/// `rest` is the number of all items, and where to find those that are not shown.
fn list<T, const N: usize>(
    heading: &str,
    columns: [&str; N],
    none: &Markup,
    (all, rest): &(i64, Markup),
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
            (more(*all, items.len(), &columns[0].to_lowercase(), rest))
        }
    };
    section(heading, &content)
}
