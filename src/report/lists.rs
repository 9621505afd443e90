//! The lists below the drawings: what fails, what fires next, who works, what runs.

use maud::{Markup, html};

use super::axis::Axis;
use super::{moment, more, name};
use crate::count;
use crate::fires::Failing;
use crate::patience::PATIENCE;
use crate::schedule::Schedule;
use crate::store::{Failure, NextFire, Snapshot};

pub(super) fn failures(seen: &Snapshot, axis: &Axis) -> Markup {
    html! {
        section aria-labelledby="failures" {
            h2 #failures { "What fails" }
            @if seen.failures.is_empty() {
                p { "No run is dead, and none waits for a retry." }
            } @else {
                ul.failures {
                    @for failure in &seen.failures { li { (failing(failure, axis)) } }
                }
                (more(seen.all_failures, seen.failures.len(), "group", &html! { code { "jobctl list-dead" } " lists every dead run" }))
                p.quiet {
                    "When the cause is gone: " code { "jobctl retry ID" } ", or " code { "jobctl retry --all-dead" } "."
                }
            }
        }
    }
}

fn failing(failure: &Failure, axis: &Axis) -> Markup {
    html! {
        h3 {
            @if failure.dead > 0 { span.badge.bad { (count::grouped(failure.dead)) " dead" } " " }
            @if failure.failed > 0 { span.badge.warn { (count::grouped(failure.failed)) " to retry" } " " }
            (name(&failure.job))
            @if !failure.error_type.is_empty() { " " span.quiet { (failure.error_type) } }
        }
        p.error { code { (failure.last_error.as_deref().unwrap_or("no error is recorded")) } }
        p.quiet {
            "Newest: " (moment(axis, failure.ended_at)) ", run " (failure.id) ", attempt " (failure.attempts) " of "
            (failure.max_attempts) ". " code { "jobctl show " (failure.id) }
        }
    }
}

pub(super) fn fires(seen: &Snapshot, failing: &Failing<'_>, axis: &Axis) -> Markup {
    html! {
        section aria-labelledby="fires" {
            h2 #fires { "What fires next" }
            @if seen.fires.is_empty() {
                p { "No job has a schedule." }
            } @else {
                table.list {
                    caption.unseen { "Schedules and their next times" }
                    thead { tr { th scope="col" { "Job" } th scope="col" { "Next" } th scope="col" { "Schedule" } } }
                    tbody {
                        @for fire in &seen.fires {
                            tr {
                                th scope="row" { (name(&fire.job)) }
                                td data-label="Next" { (next(fire, failing.broken.contains(&fire.job.as_str()), axis)) }
                                td data-label="Schedule" { (schedule(fire)) }
                            }
                        }
                    }
                }
                (more(seen.all_fires, seen.fires.len(), "schedule", &html! { code { "jobctl next" } " lists them all" }))
            }
        }
    }
}

fn next(fire: &NextFire, is_broken: bool, axis: &Axis) -> Markup {
    html! {
        @match (fire.enabled, fire.paused_at, fire.next_run_at) {
            (false, ..) => span.badge { "disabled" },
            (true, Some(since), _) => { span.badge { "paused" } " since " (moment(axis, since)) },
            (true, None, _) if is_broken => span.badge.bad { "can't fire" },
            (true, None, None) => span.quiet { "from the next tick" },
            (true, None, Some(at)) => {
                @if (axis.now - at).to_std().is_ok_and(|late| late >= PATIENCE) { span.badge.bad { "late" } " " }
                (moment(axis, at))
            }
        }
    }
}

/// In words where it can be read.
fn schedule(fire: &NextFire) -> Markup {
    let words = Schedule::parse(&fire.schedule, &fire.time_zone).map(|schedule| schedule.words());
    html! { code { (fire.schedule) } @if let Ok(words) = words { " " span.quiet { (words) } } }
}

pub(super) fn workers(seen: &Snapshot, axis: &Axis) -> Markup {
    html! {
        section aria-labelledby="workers" {
            h2 #workers { "Who works" }
            @if seen.workers.is_empty() {
                p { "No worker has ever ticked. This line in a crontab makes one: " code { "* * * * *  jobctl tick" } }
            } @else {
                table.list {
                    caption.unseen { "Workers and when they last ticked" }
                    thead { tr { th scope="col" { "Worker" } th scope="col" { "Last tick" } th scope="col" { "Version" } } }
                    tbody {
                        @for worker in &seen.workers {
                            @let is_silent = (axis.now - worker.last_tick_at).to_std().is_ok_and(|age| age >= PATIENCE);
                            tr {
                                th scope="row" { (name(&worker.worker)) }
                                td data-label="Last tick" {
                                    @if is_silent { span.badge.warn { "silent" } " " }
                                    (moment(axis, worker.last_tick_at))
                                }
                                td data-label="Version" { (worker.version) }
                            }
                        }
                    }
                }
                (more(seen.summary.workers, seen.workers.len(), "worker", &html! { "they ticked before these" }))
            }
        }
    }
}

pub(super) fn running(seen: &Snapshot, axis: &Axis) -> Markup {
    html! {
        section aria-labelledby="running" {
            h2 #running { "What runs now" }
            @if seen.running.is_empty() {
                p { "Nothing." }
            } @else {
                table.list {
                    caption.unseen { "Running runs, the longest first" }
                    thead {
                        tr {
                            th scope="col" { "Run" } th scope="col" { "Since" } th scope="col" { "Worker" } th scope="col" { "Attempt" }
                        }
                    }
                    tbody {
                        @for run in &seen.running {
                            tr {
                                th scope="row" { (name(&run.job)) " " span.quiet { (run.id) } }
                                td data-label="Since" {
                                    @if run.is_lost { span.badge.bad { "lease lost" } " " }
                                    @if run.is_asked_to_end { span.badge.warn { "cancel requested" } " " }
                                    @if let Some(at) = run.started_at { (moment(axis, at)) } @else { span.quiet { "unknown" } }
                                }
                                td data-label="Worker" { (name(&run.worker)) }
                                td data-label="Attempt" { (run.attempts) " of " (run.max_attempts) }
                            }
                        }
                    }
                }
                (more(seen.summary.running, seen.running.len(), "run", &html! { "they started after these" }))
            }
        }
    }
}
