//! What ran when: a lane per job. Each bin of time has at most one mark of each kind, so that ten runs
//! and ten thousand are drawn alike: upwards what ended well, taller where there was more of it;
//! downwards what did not, always at its full size.
//!
//! A strip is stretched to the width that there is, so it holds no text; names, numbers and hours are
//! HTML around it.

use std::time::Duration;

use maud::{Markup, html};

use super::axis::{Axis, Tick};
use super::marks::Sample;
use super::name;
use crate::store::{Bin, Job, Snapshot};
use crate::{count, duration};

/// Of a strip; in units that are stretched to the height that it is given.
pub(super) const HEIGHT: f64 = 24.0;
/// From a strip's top.
const BASE: f64 = 16.0;
/// A mark for one run where there are many others.
const SHORTEST: f64 = 3.0;
/// Nearer to an end than this part of the width, a label would stick out.
const EDGE: f64 = 0.025;

pub(super) fn section(seen: &Snapshot, axis: &Axis) -> Markup {
    let ticks = axis.ticks();
    html! {
        section aria-labelledby="timeline" {
            h2 #timeline { "What ran" }
            p.quiet {
                "Since " (axis.show(axis.from)) ". One mark stands for "
                (duration::show(Duration::from_secs(axis.bin.unsigned_abs()))) "; point at it to see what ended then."
            }
            ul.legend {
                li { (Sample::Succeeded.svg()) "succeeded" }
                li { (Sample::Failed.svg()) "failed, retried" }
                li { (Sample::Dead.svg()) "dead" }
                li { (Sample::Cancelled.svg()) "cancelled" }
                li { (Sample::Running.svg()) "running" }
            }
            table.lanes {
                caption.unseen { "Runs per job, from " (axis.show_exactly(axis.from)) " to " (axis.show_exactly(axis.now)) }
                thead {
                    tr {
                        th scope="col" { span.unseen { "Job" } }
                        th.axis scope="col" { span.unseen { "When" } (hours(&ticks, axis)) }
                        th scope="col" { span.unseen { "Runs" } }
                    }
                }
                tbody {
                    @for (number, job) in super::by_name(seen).into_iter().enumerate() {
                        (lane(number, job, axis, &ticks))
                    }
                }
            }
            (super::more(seen.all_jobs, seen.jobs.len(), "job", &html! { "shown are those with trouble, then those with the most runs" }))
        }
    }
}

/// The labels of the axis, for the head of a column of strips.
pub(super) fn hours(ticks: &[Tick], axis: &Axis) -> Markup {
    let part = |tick: &Tick| tick.place / f64::from(axis.bins);
    html! {
        span.hours aria-hidden="true" {
            @for tick in ticks.iter().filter(|tick| (EDGE..1.0 - EDGE).contains(&part(tick))) {
                span style={ "left:" (format!("{:.2}", part(tick) * 100.0)) "%" } { (tick.label) }
            }
        }
    }
}

fn lane(number: usize, job: &Job, axis: &Axis, ticks: &[Tick]) -> Markup {
    let retries: i64 = job.bins.iter().map(|bin| bin.failed).sum();
    html! {
        tr {
            th scope="row" { (name(&job.name)) }
            td.strip { (strip(number, job, &said(job, retries), axis, ticks)) }
            td.numbers {
                @match job.succeeded {
                    0 if job.dead == 0 => span.quiet { "none" },
                    runs => span { (count::grouped(runs)) " ok" },
                }
                @if job.dead > 0 || retries > 0 {
                    br;
                    @if job.dead > 0 { strong.bad { (count::grouped(job.dead)) " dead" } }
                    @if job.dead > 0 && retries > 0 { ", " }
                    @if retries > 0 { span.warn { (count::grouped(retries)) " retried" } }
                }
            }
        }
    }
}

/// What a lane shows, for those who can't see it.
fn said(job: &Job, retries: i64) -> String {
    let mut said = vec![format!("{} succeeded", count::grouped_of(job.succeeded, "run"))];
    let others = [
        (retries, count::grouped_of(retries, "failed attempt")),
        (job.dead, format!("{} dead", job.dead)),
        (job.cancelled, format!("{} cancelled", job.cancelled)),
        (job.running, format!("{} running", job.running)),
        (job.failed, format!("{} waiting for a retry", job.failed)),
    ];
    said.extend(others.into_iter().filter(|(number, _)| *number > 0).map(|(_, words)| words));
    said.join(", ")
}

fn strip(number: usize, job: &Job, said: &str, axis: &Axis, ticks: &[Tick]) -> Markup {
    let bins: Vec<_> = job.bins.iter().filter(|bin| axis.has(bin.index)).collect();
    let most = bins.iter().map(|bin| bin.succeeded + bin.cancelled).max().unwrap_or_default().max(1);
    // One line for all that took longer than a bin.
    let long: String = bins
        .iter()
        .filter_map(|bin| Some(format!("M{:.2} {BASE}H{}", axis.place(bin.began?), bin.index + 1)))
        .collect();
    html! {
        svg role="img" aria-labelledby={ "t" (number) " d" (number) } viewBox={ "0 0 " (axis.bins) " " (HEIGHT) }
            preserveAspectRatio="none" {
            title id={ "t" (number) } { (job.name) }
            desc id={ "d" (number) } { (said) }
            (grid(ticks))
            @if let Some(since) = job.running_since {
                path.r d=(format!("M{:.2} {BASE}v-9H{:.2}v9z", axis.place(since), axis.place(axis.now))) {
                    title { (count::grouped_of(job.running, "run")) " running, since " (axis.show(since)) }
                }
            }
            path.base d={ "M0 " (BASE) "H" (axis.bins) } {}
            @if !long.is_empty() { path.long d=(long) {} }
            @for bin in bins { (marks(bin, most, axis)) }
        }
    }
}

/// A line at each label.
pub(super) fn grid(ticks: &[Tick]) -> Markup {
    let lines: String = ticks.iter().map(|tick| format!("M{} 0V{HEIGHT}", tick.place)).collect();
    html! { path.grid d=(lines) {} }
}

/// The marks of a bin, and its words for who points at them.
fn marks(bin: &Bin, most: i64, axis: &Axis) -> Markup {
    let x = bin.index;
    let counts =
        [(bin.succeeded, "succeeded"), (bin.failed, "retried"), (bin.dead, "dead"), (bin.cancelled, "cancelled")];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let counts: Vec<_> = counts.map(|(number, word)| format!("{} {word}", count::grouped(number))).collect();
    let upwards = bin.succeeded + bin.cancelled;
    // By the square root, so that one run among a hundred can still be seen.
    let height = SHORTEST + (BASE - 1.0 - SHORTEST) * (upwards as f64 / most as f64).sqrt();
    html! {
        g {
            title { (axis.show(axis.start(x))) ": " (counts.join(", ")) }
            @if upwards > 0 {
                path.(if bin.succeeded > 0 { "s" } else { "c" }) d=(format!("M{x}.1 {BASE}v-{height:.1}h.8V{BASE}z")) {}
            }
            @if bin.dead > 0 {
                path.d d=(format!("M{x} {BASE}h1v8h-1z")) {}
            } @else if bin.failed > 0 {
                path.f d=(format!("M{x}.1 {BASE}h.8v4h-.8z")) {}
            }
        }
    }
}
