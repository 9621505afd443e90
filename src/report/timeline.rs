//! The runs of each job over time. A bin has at most one mark of each kind, so ten runs and ten
//! thousand are drawn alike. Marks above the line are good outcomes, and taller where there are
//! more of them. Marks below the line are failures and always have their full size.

use std::time::Duration;

use maud::{Markup, PreEscaped, html};

use super::axis::Axis;
use super::lanes::{self, Drawing};
use crate::store::{Bin, Job, Snapshot};
use crate::text::duration;
use crate::text::plural::{grouped, grouped_of};

/// The base line's distance from the top of a drawing.
const BASE: f64 = 16.0;
/// Height of the mark of one run among many.
const SHORTEST: f64 = 3.0;

pub(super) fn section(snapshot: &Snapshot, axis: &Axis) -> Markup {
    let bin = duration::show(Duration::from_secs(axis.bin.unsigned_abs()));
    let (from, now) = (axis.show_exactly(axis.from), axis.show_exactly(axis.now));
    let caption = format!("Runs per job, from {from} to {now}");
    let lanes = super::by_name(snapshot).into_iter().map(|job| lane(job, axis));
    let rest = html! { "jobs with failures are shown first, then jobs with the most runs" };
    let content = html! {
        p.quiet {
            "Since " (axis.show(axis.from)) ". Each mark covers " (bin)
            "; point at it to see the numbers."
        }
        (PreEscaped(include_str!("static/legend.html")))
        (lanes::table("run", &caption, "Runs", BASE, axis, lanes))
        (super::more(snapshot.all_jobs, snapshot.jobs.len(), "job", &rest))
    };
    super::section("Timeline", &content)
}

fn lane<'a>(job: &'a Job, axis: &Axis) -> Drawing<'a> {
    let retries = job.bins.iter().map(|bin| bin.failed).sum();
    Drawing {
        job: &job.name,
        words: words(job, retries),
        marks: marks(job, axis),
        numbers: html! {
            @match job.succeeded {
                0 if job.dead == 0 => span.quiet { "none" },
                runs => span { (grouped(runs)) " ok" },
            }
            @if job.dead > 0 || retries > 0 {
                br;
                @if job.dead > 0 { strong.bad { (grouped(job.dead)) " dead" } }
                @if job.dead > 0 && retries > 0 { ", " }
                @if retries > 0 { span.warn { (grouped(retries)) " retried" } }
            }
        },
    }
}

fn words(job: &Job, retries: i64) -> String {
    let counts = [
        (retries, grouped_of(retries, "failed attempt")),
        (job.dead, format!("{} dead", job.dead)),
        (job.cancelled, format!("{} cancelled", job.cancelled)),
        (job.running, format!("{} running", job.running)),
        (job.failed, format!("{} waiting for a retry", job.failed)),
    ];
    let others = counts.into_iter().filter(|(number, _)| *number > 0).map(|(_, words)| words);
    let succeeded = grouped_of(job.succeeded, "run") + " succeeded";
    std::iter::once(succeeded).chain(others).collect::<Vec<_>>().join(", ")
}

fn marks(job: &Job, axis: &Axis) -> Markup {
    let bins: Vec<_> = job.bins.iter().filter(|bin| axis.has(bin.index)).collect();
    let most = bins.iter().map(|bin| bin.succeeded + bin.cancelled).max().unwrap_or(1).max(1);
    // One path for all runs that took longer than a bin.
    let long: String = bins
        .iter()
        .filter_map(|bin| Some(format!("M{:.2} {BASE}H{}", axis.place(bin.began?), bin.index + 1)))
        .collect();
    html! {
        @if let Some(since) = job.running_since {
            @let (start, now) = (axis.place(since), axis.place(axis.now));
            path.r d=(format!("M{start:.2} {BASE}v-9H{now:.2}v9z")) {
                title { (grouped_of(job.running, "run")) " running, since " (axis.show(since)) }
            }
        }
        @if !long.is_empty() { path.long d=(long) {} }
        @for bin in bins { (bin_marks(bin, most, axis)) }
    }
}

/// The marks of a bin, and the text that a browser shows when the mouse points at them.
fn bin_marks(bin: &Bin, most: i64, axis: &Axis) -> Markup {
    let x = bin.index;
    let counts = [
        (bin.succeeded, "succeeded"),
        (bin.failed, "retried"),
        (bin.dead, "dead"),
        (bin.cancelled, "cancelled"),
    ];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let counts: Vec<_> =
        counts.map(|(number, outcome)| format!("{} {outcome}", grouped(number))).collect();
    let good = bin.succeeded + bin.cancelled;
    // The height grows with the square root, so that one run stays visible next to a hundred.
    let height = SHORTEST + (BASE - 1.0 - SHORTEST) * (good as f64 / most as f64).sqrt();
    html! {
        g {
            title { (axis.show(axis.start(x))) ": " (counts.join(", ")) }
            @if good > 0 {
                path.(if bin.succeeded > 0 { "s" } else { "c" })
                    d=(format!("M{x}.1 {BASE}v-{height:.1}h.8V{BASE}z")) {}
            }
            @if bin.dead > 0 {
                path.d d=(format!("M{x} {BASE}h1v8h-1z")) {}
            } @else if bin.failed > 0 {
                path.f d=(format!("M{x}.1 {BASE}h.8v4h-.8z")) {}
            }
        }
    }
}
