//! The lists beside or below the drawings: failures, running runs, schedules and workers.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use cron_zone::Schedule;
use maud::{Markup, html};

use super::axis::Axis;
use super::{ROWS, SHOWN, View, id, moment, name, section};
use crate::job::due::{self, Scheduled};
use crate::job::finding_code::Code;
use crate::job::thresholds::TICK_OVERDUE;
use crate::store::{Incident, Worker};
use crate::text::plural::{grouped, grouped_of};

/// Schedules that do not fire within this time are folded.
const SOON: TimeDelta = TimeDelta::hours(3);

/// What went wrong in the window, the worst first: failed attempts, even if the runs recovered.
pub(super) fn incidents(view: &View<'_>) -> Markup {
    let incidents = &view.snapshot.incidents;
    let since = view.axis.show(view.axis.from);
    let list = List {
        heading: "Incidents",
        columns: ["Jobs", "Failed", "Cause", "When", "Its runs"],
        none: html! { "No attempt has failed since " (since) "." },
        all: incidents.first().map_or(0, |incident| incident.total),
        noun: "incident",
        rest: html! { code { "jobctl failures --group" } " lists all of them" },
    };
    let (shown, folded) = split(incidents);
    list.section(shown, folded, |incident| {
        let jobs = html! { (badge(incident)) " " (several(&incident.jobs, |job| view.job(job))) };
        let runs = html! { code { "jobctl list --incident " (incident.incident) } };
        [jobs, html! { (grouped(incident.failures)) }, cause(incident), span(incident, view), runs]
    })
}

/// The state of the worst runs of an incident: dead, to retry, settled or recovered.
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

/// The workers of an incident, its cause and the type of the error.
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

/// The first three names, each written by `show`, and how many more there are.
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

/// From when to when an incident occurred and, if it came again, how often.
fn span(incident: &Incident, view: &View<'_>) -> Markup {
    let [first, last] = [incident.first_finished_at, incident.last_finished_at];
    let has_two_times = view.axis.show(first) != view.axis.show(last);
    html! {
        @if let Some(times) = incident.times {
            (grouped(times)) " times since " (view.axis.show(first)) ", last "
        } @else if has_two_times {
            (view.axis.show(first)) " to "
        }
        (moment(&view.axis, last))
    }
}

/// The schedules that fire soon or have no next time. The others are folded.
pub(super) fn schedules(view: &View<'_>) -> Markup {
    let axis = &view.axis;
    let scheduled = view.snapshot.work.scheduled.iter();
    let mut schedules: Vec<_> =
        scheduled.filter_map(|one| Some((one, one.schedule.as_deref()?))).collect();
    // The schedule that fires next comes first. Paused and disabled ones come last.
    schedules.sort_by_key(|(one, _)| {
        let is_unknown = one.next_run_at.is_none();
        (!one.enabled, one.paused_at.is_some(), is_unknown, one.next_run_at, &one.name)
    });
    // Only some schedules of applications were read, so do not count these rows: each has the
    // number of all schedules of applications for its job. The row of a definition has 0.
    let numbers: BTreeSet<_> =
        schedules.iter().map(|(one, _)| (&one.name, one.schedules)).collect();
    let of_applications: i64 = numbers.iter().map(|(_, number)| number).sum();
    let is_of_definition = |(one, _): &&(&Scheduled, _)| one.application_schedule.is_none();
    let of_definitions = schedules.iter().filter(is_of_definition).count() as i64;
    let list = List {
        heading: "Schedules",
        columns: ["Job", "Next", "Last success", "Schedule"],
        none: html! { "No job has a schedule." },
        all: of_definitions + of_applications,
        noun: "schedule",
        rest: html! { code { "jobctl next" } " lists all of them" },
    };
    schedules.truncate(ROWS);
    let is_soon = |(one, _): &(&Scheduled, _)| {
        let fires = one.enabled && one.paused_at.is_none();
        fires && one.next_run_at.is_none_or(|at| at - axis.now <= SOON)
    };
    let (soon, later): (Vec<_>, Vec<_>) = schedules.into_iter().partition(is_soon);
    list.section(&soon, &later, |(fire, expression)| {
        let schedule = html! {
            code { (expression) }
            @if let Ok(schedule) = Schedule::parse(expression, &fire.time_zone) {
                " " span.quiet { (schedule.words()) }
            }
            @if let (Some(name), Some(owner)) = (&fire.application_schedule, &fire.owner) {
                " " span.quiet { (name) " of login " (owner) }
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

/// When a schedule fires next, or why it does not.
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

/// Workers and their last ticks; those that do not tick come first.
pub(super) fn workers(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let is_silent = |worker: &&Worker| {
        view.findings.iter().any(|finding| {
            matches!(finding.code, Some(Code::WorkerSilent | Code::WorkerMissing))
                && finding.worker.as_ref() == Some(&worker.worker)
        })
    };
    // The tile "Workers ticking" counts the same workers.
    let has_known = snapshot.summary.workers > 0;
    let workers = snapshot.workers.iter().filter(|worker| worker.is_known || !has_known);
    let (silent, others): (Vec<_>, Vec<_>) = workers.partition(is_silent);
    let list = List {
        heading: "Workers",
        columns: ["Worker", "Last tick", "Version"],
        none: html! {
            "No worker has ever ticked. " code { "jobctl init" } " prints the lines for a crontab."
        },
        all: snapshot.summary.workers,
        noun: "worker",
        rest: html! { "their last ticks are older" },
    };
    list.section(&silent, &others, |worker| {
        let last_tick = html! {
            @if is_silent(worker) { span.badge.warn { "silent" } " " }
            (moment(axis, worker.last_tick_at))
        };
        [name(&worker.worker), last_tick, html! { (worker.version) }]
    })
}

/// The running runs, the longest first.
pub(super) fn running(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let list = List {
        heading: "Running now",
        columns: ["Run", "Since", "Worker", "Attempt"],
        none: html! { "No run is running." },
        all: snapshot.summary.running,
        noun: "run",
        rest: html! { "they started later" },
    };
    let (shown, folded) = split(&snapshot.running);
    list.section(shown, folded, |run| {
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

/// The rows of a long list that are shown, and those that are folded.
fn split<T>(rows: &[T]) -> (&[T], &[T]) {
    rows.split_at(rows.len().min(SHOWN))
}

/// A section with a table of rows. Some rows may be folded.
struct List<const N: usize> {
    heading: &'static str,
    columns: [&'static str; N],
    /// The text if there are no rows.
    none: Markup,
    /// The number of all rows, also of those that are not on the page.
    all: i64,
    /// The word for a row.
    noun: &'static str,
    /// Where to find the rows that are not on the page.
    rest: Markup,
}

impl<const N: usize> List<N> {
    /// The section with the table. `cells` returns the cells of a row.
    fn section<T>(&self, shown: &[T], folded: &[T], cells: impl Fn(&T) -> [Markup; N]) -> Markup {
        let Self { heading, none, all, noun, rest, .. } = self;
        let more = if shown.is_empty() { noun } else { &*format!("more {noun}") };
        let content = html! {
            @if shown.is_empty() && folded.is_empty() { p { (none) } }
            @if !shown.is_empty() { (self.table(shown, &cells)) }
            @if !folded.is_empty() {
                details {
                    summary { (grouped_of(folded.len() as i64, more)) }
                    (self.table(folded, &cells))
                }
            }
            (super::more(*all, shown.len() + folded.len(), noun, rest))
        };
        section(heading, &content)
    }

    /// A table of rows. `cells` returns the cells of a row.
    fn table<T>(&self, rows: &[T], cells: impl Fn(&T) -> [Markup; N]) -> Markup {
        let row = |item| {
            let cells = self.columns.iter().zip(cells(item)).enumerate();
            html! {
                tr {
                    @for (number, (column, cell)) in cells {
                        @if number == 0 { th scope="row" { (cell) } }
                        @else { td data-label=(column) { (cell) } }
                    }
                }
            }
        };
        html! {
            table.list aria-labelledby=(id(self.heading)) {
                thead { tr { @for column in self.columns { th scope="col" { (column) } } } }
                tbody { @for item in rows { (row(item)) } }
            }
        }
    }
}
