//! A lane per job, the troubled ones first: its name, a drawing of its runs over time, and numbers.
//! A lane opens to a table of the drawing, for keyboards, phones and readers who cannot see it.
//!
//! A bin has a bar with a part for each outcome, all at the same scale, so a retry among a thousand
//! runs looks small, and a storm of retries large. A drawing is stretched to the width of its
//! column, so it holds no text. Names, numbers and hours are HTML around it.

use std::time::Duration;

use maud::{Markup, PreEscaped, html};

use super::axis::{Axis, Label};
use super::{View, anchor, name};
use crate::health::Severity;
use crate::store::{self, Bin, ReportJob};
use crate::text::duration;
use crate::text::plural::{grouped, grouped_of};

/// Height of a drawing's coordinates. On the page, two are about a pixel.
const HEIGHT: i64 = 72;
/// The base line's distance from the top of a drawing; runs longer than a bin are drawn below it.
const BASE: i64 = 64;
/// Height of the bar of the bin with the most runs and failed attempts.
const TALLEST: f64 = 54.0;
/// Height of the smallest part, so that one failure among thousands is visible.
const SHORTEST: f64 = 3.0;
/// Bins per row of a lane's table.
const ROW: i32 = 4;
/// Labels closer to an end of the axis than this share of the axis's width are left out, because
/// they would extend beyond it.
const EDGE: f64 = 0.025;
/// A change of run time is shown only if it exceeds this share and this many seconds.
const TREND: (f64, f64) = (0.2, 1.0);

/// From worst to best.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum LaneState {
    Bad,
    Warn,
    Good,
    Waiting,
    Idle,
}

impl LaneState {
    fn of(job: &ReportJob, view: &View<'_>) -> Self {
        let mut bad = view.with_severity(Severity::Bad).into_iter();
        if bad.any(|finding| finding.job_type.as_ref() == Some(&job.name)) {
            Self::Bad
        } else if job.dead + job.failed + failures(job) > 0 {
            Self::Warn
        } else if job.succeeded + job.cancelled + job.dropped + job.running > 0 {
            Self::Good
        } else if job.queued > 0 {
            Self::Waiting
        } else {
            Self::Idle
        }
    }

    /// The class of its dot in the style sheet, and what the dot means.
    fn dot(self) -> (&'static str, &'static str) {
        match self {
            Self::Bad => ("bad", "needs attention"),
            Self::Warn => ("warn", "had failures"),
            Self::Good => ("good", "well"),
            Self::Waiting => ("idle", "waiting"),
            Self::Idle => ("idle", "idle"),
        }
    }
}

pub(super) fn section(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let mut jobs: Vec<_> =
        snapshot.jobs.iter().map(|job| (LaneState::of(job, view), &job.name, job)).collect();
    jobs.sort_by_key(|(state, name, _)| (*state, *name));
    let (idle, lanes): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|(state, ..)| *state == LaneState::Idle);
    let bin = duration::show(Duration::from_secs(axis.bin.unsigned_abs()));
    let rest = html! { "jobs with problems are shown first, then jobs with the most runs" };
    let content = html! {
        @if lanes.is_empty() {
            p { "No run has ended since " (axis.show(axis.from)) ", and none is running." }
        } @else {
            p.quiet {
                "Since " (axis.show(axis.from)) ". Each bar covers " (bin) "; the tallest bar of a "
                "lane has its full height. Open a lane to see the numbers."
            }
            (PreEscaped(include_str!("static/legend.html")))
            (hours(axis))
            @for (state, _, job) in lanes { (lane(job, state, axis)) }
        }
        @if !idle.is_empty() {
            details.idle {
                summary { (grouped_of(idle.len() as i64, "idle job")) }
                ul { @for (.., job) in &idle { li id=(anchor(&job.name)) { (name(&job.name)) } } }
            }
        }
        (super::more(snapshot.all_jobs, snapshot.jobs.len(), "job", &rest))
    };
    super::section("Timeline", &content)
}

fn hours(axis: &Axis) -> Markup {
    let share = |label: &Label| label.place / f64::from(axis.bins);
    let labels = axis.labels();
    let fits = |label: &&Label| (EDGE..1.0 - EDGE).contains(&share(label));
    html! {
        div.columns aria-hidden="true" {
            span.hours {
                @for label in labels.iter().filter(fits) {
                    span style={ "left:" (format!("{:.2}", share(label) * 100.0)) "%" } {
                        (label.text)
                    }
                }
            }
        }
    }
}

fn lane(job: &ReportJob, state: LaneState, axis: &Axis) -> Markup {
    let (class, meaning) = state.dot();
    let retries = failures(job);
    let bins: Vec<_> = job.bins.iter().filter(|bin| (0..axis.bins).contains(&bin.index)).collect();
    let grid: String =
        axis.labels().iter().map(|label| format!("M{} 0V{HEIGHT}", label.place)).collect();
    html! {
        details.lane id=(anchor(&job.name)) {
            summary.columns {
                span.job {
                    span.dot.(class) {}
                    span { (name(&job.name)) span.unseen { " (" (meaning) ")" } }
                }
                svg role="img" aria-label=(words(job, retries))
                    viewBox={ "0 0 " (axis.bins) " " (HEIGHT) } preserveAspectRatio="none" {
                    path.grid d=(grid) {}
                    (marks(job, &bins, axis))
                    path.base d={ "M0 " (BASE) "H" (axis.bins) } {}
                }
                span.numbers {
                    (numbers(job, retries))
                    @if let Some(average) = job.average {
                        " "
                        span.quiet {
                            "takes " (duration::show(store::seconds(average)))
                            (trend(average, job.average_before))
                        }
                    }
                }
            }
            (table(&bins, axis))
            @if job.dead + retries > 0 {
                p.quiet { "Why: " code { "jobctl failures --group --job " (job.name) } }
            }
        }
    }
}

/// Failed attempts in the window that did not end a run.
fn failures(job: &ReportJob) -> i64 {
    job.bins.iter().map(|bin| bin.failed).sum()
}

fn numbers(job: &ReportJob, retries: i64) -> Markup {
    let part = |class, number, word| (class, number, format!("{} {word}", grouped(number)));
    let parts = [
        part("", job.succeeded, "ok"),
        part("bad", job.dead, "dead"),
        part("warn", retries, "failed"),
        part("", job.cancelled, "cancelled"),
        part("warn", job.dropped, "dropped"),
        part("", job.running, "running"),
        part("", job.queued, "queued"),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(_, number, _)| *number > 0).collect();
    html! {
        span {
            @if parts.is_empty() { "none" }
            @for (place, (class, _, text)) in parts.into_iter().enumerate() {
                @if place > 0 { ", " }
                @if class.is_empty() { (text) } @else { strong.(class) { (text) } }
            }
        }
    }
}

/// How much longer or shorter the runs took than a week before.
fn trend(average: f64, average_before: Option<f64>) -> Markup {
    let change = average_before.map(|before| (average - before, average / before - 1.0));
    html! {
        @if let Some((seconds, share)) = change {
            @if seconds.abs() >= TREND.1 && share.abs() >= TREND.0 && share.is_finite() {
                ", " (if share > 0.0 { "+" } else { "-" })
                (grouped((share.abs() * 100.0).round() as i64)) " % in a week"
            }
        }
    }
}

fn words(job: &ReportJob, retries: i64) -> String {
    let counts = [
        (retries, grouped_of(retries, "failed attempt")),
        (job.dead, format!("{} dead", grouped(job.dead))),
        (job.cancelled, format!("{} cancelled", grouped(job.cancelled))),
        (job.dropped, format!("{} dropped", grouped(job.dropped))),
        (job.running, format!("{} running", grouped(job.running))),
        (job.queued, format!("{} queued", grouped(job.queued))),
        (job.failed, format!("{} waiting for a retry", grouped(job.failed))),
    ];
    let others = counts.into_iter().filter(|(number, _)| *number > 0).map(|(_, words)| words);
    let succeeded = grouped_of(job.succeeded, "run") + " succeeded";
    std::iter::once(succeeded).chain(others).collect::<Vec<_>>().join(", ")
}

type OfBin = fn(&Bin) -> i64;
/// The parts of a bar from its base up: class, name, and the number of a bin.
const PARTS: [(&str, &str, OfBin); 4] = [
    ("d", "dead", |bin| bin.dead),
    ("f", "failed", |bin| bin.failed),
    ("s", "ok", |bin| bin.succeeded),
    ("c", "cancelled", |bin| bin.cancelled),
];

fn marks(job: &ReportJob, bins: &[&Bin], axis: &Axis) -> Markup {
    let sum = |bin: &Bin| PARTS.iter().map(|(.., of)| of(bin)).sum::<i64>();
    let most = bins.iter().map(|bin| sum(bin)).max().unwrap_or(1).max(1);
    // One path for all parts of one outcome.
    let mut paths = PARTS.map(|_| String::new());
    for bin in bins {
        let mut top = BASE;
        for (path, (.., of)) in paths.iter_mut().zip(PARTS) {
            let number = of(bin);
            if number > 0 {
                let height = (TALLEST * number as f64 / most as f64).max(SHORTEST).round() as i64;
                top -= height;
                *path += &format!("M{} {top}v{height}h.8v-{height}z", bin.index);
            }
        }
    }
    let long: String = bins
        .iter()
        .filter_map(|bin| {
            Some(format!("M{:.2} {}H{}", axis.place(bin.began?), BASE + 4, bin.index + 1))
        })
        .collect();
    html! {
        @if let Some(since) = job.running_since {
            @let (start, now) = (axis.place(since), axis.place(axis.now));
            path.r d=(format!("M{start:.2} {BASE}v-36H{now:.2}v36z")) {}
        }
        @if !long.is_empty() { path.long d=(long) {} }
        @for (path, (class, ..)) in paths.iter().zip(PARTS).filter(|(path, _)| !path.is_empty()) {
            path.(class) d=(path) {}
        }
        // The text that a browser shows when the mouse points at a bin.
        @for bin in bins { rect x=(bin.index) { title { (label(bin, axis)) } } }
    }
}

fn label(bin: &Bin, axis: &Axis) -> String {
    let counts = PARTS.iter().filter(|(.., of)| of(bin) > 0);
    let counts: Vec<_> =
        counts.map(|(_, word, of)| format!("{} {word}", grouped(of(bin)))).collect();
    format!("{}: {}", axis.show(axis.start(bin.index)), counts.join(", "))
}

/// The drawing as a table, with fewer rows than bins, and without outcomes that did not occur.
fn table(bins: &[&Bin], axis: &Axis) -> Markup {
    let parts: Vec<_> =
        PARTS.iter().filter(|(.., of)| bins.iter().any(|bin| of(bin) > 0)).collect();
    let row = |bins: &[&Bin]| {
        let longest = bins.iter().filter_map(|bin| bin.longest).reduce(f64::max);
        let start = bins.first().map_or(0, |bin| bin.index - bin.index % ROW);
        let [from, to] = [start, start + ROW].map(|bin| axis.show(axis.start(bin)));
        html! {
            tr {
                th scope="row" { (from) " to " (to) }
                @for (.., of) in &parts {
                    @let number = bins.iter().map(|bin| of(bin)).sum();
                    td { @if number > 0 { (grouped(number)) } }
                }
                td { @if let Some(longest) = longest { (duration::show(store::seconds(longest))) } }
            }
        }
    };
    html! {
        @if bins.is_empty() {
            p.quiet { "No run has ended since " (axis.show(axis.from)) "." }
        } @else {
            table.bins {
                thead {
                    tr {
                        th scope="col" { "when" }
                        @for (_, word, _) in &parts { th scope="col" { (word) } }
                        th scope="col" { "longest run" }
                    }
                }
                tbody {
                    @for bins in bins.chunk_by(|a, b| a.index / ROW == b.index / ROW) {
                        (row(bins))
                    }
                }
            }
        }
    }
}
