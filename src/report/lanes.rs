//! A lane per job, the troubled ones first: its name, a drawing of its runs over time, and numbers.
//! A lane opens to a table of the drawing, for keyboards, phones and readers who cannot see it.
//!
//! A bin has a bar with a part for each outcome, all at the same scale, so a retry among a thousand
//! runs looks small, and a storm of retries large. Dead runs hang below the base line, at a scale
//! of their own, so that they are found without a colour. A drawing is stretched to the width of
//! its column, so it has no text. Names, numbers and hours are HTML around it.

use maud::{Markup, PreEscaped, html};

use super::axis::{Axis, Label};
use super::{View, anchor, name, when_none_is_due};
use crate::health::{Finding, Severity};
use crate::store::{self, Bin, ReportJob};
use crate::text::duration;
use crate::text::plural::{self, grouped, grouped_of};

/// Height of a drawing's coordinates. On the page, two are about a pixel.
const HEIGHT: i64 = 88;
/// The base line's distance from the top of a drawing.
const BASE: i64 = 56;
/// Height of the bar of the bin with the most runs and failed attempts.
const TALLEST: f64 = 50.0;
/// Height of the tallest bar of dead runs, below the base line.
const DEEPEST: f64 = 20.0;
/// Height of the smallest part, so that one failure among thousands is visible.
const SHORTEST: f64 = 3.0;
/// The distance from the top of the line for runs longer than a bin.
const LONG: i64 = 82;
/// Height of the mark of the running run, above the base line.
const RUNNING_HEIGHT: i64 = 36;
/// The width of a bar in bins, as a path has it.
const BAR_WIDTH: &str = ".8";
/// How many bins a row of a lane's table has.
const ROW: i32 = 4;
/// Labels are left out if they are closer to an end of the axis than this share of its width: they
/// would extend beyond the axis.
const EDGE: f64 = 0.025;
/// A timeout is mentioned if the runs reach it within this many days.
const AHEAD: f64 = 60.0;

/// How a job is doing, from worst to best.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum LaneState {
    Bad,
    Warn,
    Good,
    Waiting,
    Idle,
}

impl LaneState {
    /// Judges a job by its findings and by its runs in the window.
    fn of(job: &ReportJob, view: &View<'_>) -> Self {
        if view.of_job(&job.name).any(|finding| finding.severity == Severity::Bad) {
            Self::Bad
        } else if job.dead + job.to_retry + job.failed > 0 {
            Self::Warn
        } else if job.succeeded + job.cancelled + job.dropped + job.running > 0 {
            Self::Good
        } else if job.queued > 0 {
            Self::Waiting
        } else {
            Self::Idle
        }
    }

    /// Returns the class of its dot in the style sheet, and what the dot means.
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

/// The section with the lanes of all jobs; idle jobs are folded.
pub(super) fn section(view: &View<'_>) -> Markup {
    let (snapshot, axis) = (view.snapshot, &view.axis);
    let mut jobs: Vec<_> =
        snapshot.jobs.iter().map(|job| (LaneState::of(job, view), &job.name, job)).collect();
    jobs.sort_by_key(|(state, name, _)| (*state, *name));
    let (idle, lanes): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|(state, ..)| *state == LaneState::Idle);
    let bin = duration::show(axis.width());
    let rest = html! { "jobs with problems are shown first, then jobs with the most runs" };
    let total = snapshot.jobs.first().map_or(0, |job| job.total);
    let content = html! {
        @if lanes.is_empty() {
            p { "No run has ended since " (axis.show(axis.from)) ", and none is running." }
        } @else {
            p.quiet {
                "Since " (axis.show(axis.from)) ". Each bar covers " (bin) "; the tallest bar of a "
                "lane has its full height. Dead runs are below the line. Open a lane to see the "
                "numbers."
                @if axis.by_day() { " Days are in UTC and count no cancelled runs." }
            }
            (PreEscaped(include_str!("static/legend.html")))
            (hours(axis))
            @for (state, _, job) in lanes { (lane(job, state, view)) }
        }
        @if !idle.is_empty() {
            details.idle {
                summary { (grouped_of(idle.len() as i64, "idle job")) }
                ul { @for (.., job) in &idle { li id=(anchor(&job.name)) { (name(&job.name)) } } }
            }
        }
        (super::more(total, snapshot.jobs.len(), "job", &rest))
    };
    super::section("Timeline", &content)
}

/// The labels of the time axis, above the lanes.
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

/// A lane: the dot, the name, the drawing and the numbers of a job, and the table below it.
fn lane(job: &ReportJob, state: LaneState, view: &View<'_>) -> Markup {
    let axis = &view.axis;
    let (class, meaning) = state.dot();
    let bins: Vec<_> =
        job.bins.0.iter().filter(|bin| (0..axis.bins).contains(&bin.index)).collect();
    let grid: String =
        axis.labels().iter().map(|label| format!("M{} 0V{HEIGHT}", label.place)).collect();
    // Leave out warnings, which do not stop the work: the section "Now" lists them.
    let findings = view.of_job(&job.name).filter(|finding| finding.severity != Severity::Warn);
    let why: Vec<_> = findings.map(Finding::with_example).collect();
    html! {
        details.lane id=(anchor(&job.name)) {
            summary.columns {
                span.job {
                    span.dot.(class) {}
                    span { (name(&job.name)) span.unseen { " (" (meaning) ")" } }
                }
                svg role="img" aria-label=(words(job))
                    viewBox={ "0 0 " (axis.bins) " " (HEIGHT) } preserveAspectRatio="none" {
                    path.grid d=(grid) {}
                    (marks(job, &bins, axis))
                    path.base d={ "M0 " (BASE) "H" (axis.bins) } {}
                }
                span.numbers { (numbers(job)) (outlook(job, view)) }
                @if !why.is_empty() { " " span.why { (why.join("; ")) } }
            }
            (table(&bins, axis))
            @if job.dead + job.failed > 0 {
                p.quiet { "Why: " code { "jobctl failures --group --job " (job.name) } }
            }
        }
    }
}

/// The numbers of a job's runs, beside its drawing.
fn numbers(job: &ReportJob) -> Markup {
    let part = |class, number, word| (class, number, format!("{} {word}", grouped(number)));
    let parts = [
        part("", job.succeeded, "ok"),
        part("bad", job.dead, "dead"),
        part("warn", job.failed, "failed"),
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

/// Which jobs a job follows, when none of its runs is due any more, how long a run takes, and how
/// that grows.
fn outlook(job: &ReportJob, view: &View<'_>) -> Markup {
    let flow = view.snapshot.flow.iter().find(|flow| flow.job_type.as_ref() == Some(&job.name));
    let average = job.average.map(|average| {
        format!("takes {}{}", duration::show(store::seconds(average)), trend(job, average))
    });
    let after = job.after.as_ref().map(|after| format!("after {after}"));
    html! {
        @for part in [after, flow.and_then(when_none_is_due), average].into_iter().flatten() {
            " " span.quiet { (part) }
        }
    }
}

/// How much longer or shorter the runs became, compared with their average some days before, and
/// when they reach their timeout; empty if that is unknown.
fn trend(job: &ReportJob, average: f64) -> String {
    let Some((before, days)) = job.average_before.zip(job.days) else { return String::new() };
    let growth = average / before - 1.0;
    let sign = if growth > 0.0 { "+" } else { "-" };
    let change = grouped((growth.abs() * 100.0).round() as i64);
    let trend = format!(", {sign}{change} % in {}", plural::of(days.into(), "day"));
    match job.days_to_timeout {
        Some(days) if days <= AHEAD => {
            let days = plural::of(days.ceil() as i64, "day");
            format!("{trend}, reaches its timeout in about {days}")
        }
        _ => trend,
    }
}

/// The numbers of a job's runs as a text, for readers who cannot see the drawing.
fn words(job: &ReportJob) -> String {
    let counts = [
        (job.failed, grouped_of(job.failed, "failed attempt")),
        (job.dead, format!("{} dead", grouped(job.dead))),
        (job.cancelled, format!("{} cancelled", grouped(job.cancelled))),
        (job.dropped, format!("{} dropped", grouped(job.dropped))),
        (job.running, format!("{} running", grouped(job.running))),
        (job.queued, format!("{} queued", grouped(job.queued))),
        (job.to_retry, format!("{} waiting for a retry", grouped(job.to_retry))),
    ];
    let others = counts.into_iter().filter(|(number, _)| *number > 0).map(|(_, words)| words);
    let succeeded = grouped_of(job.succeeded, "run") + " succeeded";
    std::iter::once(succeeded).chain(others).collect::<Vec<_>>().join(", ")
}

/// An outcome: its class in the style sheet, its name, and the function that returns its number in
/// a bin.
type Outcome = (&'static str, &'static str, fn(&Bin) -> i64);
/// The bars of dead runs hang below the base line.
const DEAD: Outcome = ("d", "dead", |bin| bin.dead);
/// The parts of the bars that stand on the base line, from this line up.
const STANDING: [Outcome; 3] = [
    ("f", "failed", |bin| bin.failed),
    ("s", "ok", |bin| bin.succeeded),
    ("c", "cancelled", |bin| bin.cancelled),
];

fn outcomes() -> impl Iterator<Item = &'static Outcome> {
    std::iter::once(&DEAD).chain(&STANDING)
}

/// The shapes of a drawing: the running run, runs longer than a bin, and the bars of the bins. Each
/// outcome has one path for all its bars.
fn marks(job: &ReportJob, bins: &[&Bin], axis: &Axis) -> Markup {
    let long_runs = lines_of_long_runs(bins);
    let paths = [(DEAD.0, dead_bars(bins))].into_iter().chain(standing_bars(bins));
    html! {
        @if let Some(since) = job.running_since {
            @let (start, now) = (axis.position(since), axis.position(axis.now));
            path.r d=(format!("M{start:.2} {BASE}v-{RUNNING_HEIGHT}H{now:.2}v{RUNNING_HEIGHT}z")) {}
        }
        @if !long_runs.is_empty() { path.long d=(long_runs) {} }
        @for (class, path) in paths.filter(|(_, path)| !path.is_empty()) {
            path.(class) d=(path) {}
        }
        // The text that a browser shows when the mouse points at a bin.
        @for bin in bins { rect x=(bin.index) { title { (label(bin, axis)) } } }
    }
}

/// A line for each run that took longer than a bin, from its start to the bin in which it ended.
fn lines_of_long_runs(bins: &[&Bin]) -> String {
    let line = |bin: &&Bin| Some(format!("M{:.2} {LONG}H{}", bin.began?.max(0.0), bin.index + 1));
    bins.iter().filter_map(line).collect()
}

/// The path of all bars of dead runs.
fn dead_bars(bins: &[&Bin]) -> String {
    let scale = DEEPEST / most(bins, &[DEAD]);
    bins.iter().map(|bin| bar(bin, BASE, height(bin.dead, scale))).collect()
}

/// The paths of the parts of all standing bars, each with the class of its outcome.
fn standing_bars(bins: &[&Bin]) -> [(&'static str, String); 3] {
    let scale = TALLEST / most(bins, &STANDING);
    let mut paths = STANDING.map(|(class, ..)| (class, String::new()));
    for bin in bins {
        let mut top = BASE;
        for ((_, path), (.., count)) in paths.iter_mut().zip(STANDING) {
            let height = height(count(bin), scale);
            top -= height;
            *path += &bar(bin, top, height);
        }
    }
    paths
}

/// Returns the sum of these outcomes in the bin that has most of them, at least 1.
fn most(bins: &[&Bin], outcomes: &[Outcome]) -> f64 {
    let sum = |bin: &&Bin| outcomes.iter().map(|(.., count)| count(bin)).sum::<i64>();
    bins.iter().map(sum).max().unwrap_or(1).max(1) as f64
}

/// Returns the height of the bar for this number of runs.
fn height(number: i64, scale: f64) -> i64 {
    match number {
        0 => 0,
        _ => (number as f64 * scale).max(SHORTEST).round() as i64,
    }
}

/// A rectangle in a bin, with this distance from the top of the drawing; nothing without a height.
fn bar(bin: &Bin, top: i64, height: i64) -> String {
    if height == 0 {
        return String::new();
    }
    format!("M{} {top}v{height}h{BAR_WIDTH}v-{height}z", bin.index)
}

/// The text about a bin: its time and its numbers.
fn label(bin: &Bin, axis: &Axis) -> String {
    let occurred = outcomes().filter(|(.., count)| count(bin) > 0);
    let counts: Vec<_> =
        occurred.map(|(_, word, count)| format!("{} {word}", grouped(count(bin)))).collect();
    format!("{}: {}", axis.show(axis.start(bin.index)), counts.join(", "))
}

/// The drawing as a table, with fewer rows than bins, and without outcomes that did not occur.
fn table(bins: &[&Bin], axis: &Axis) -> Markup {
    let occurred: Vec<_> =
        outcomes().filter(|(.., count)| bins.iter().any(|bin| count(bin) > 0)).collect();
    let row = |bins: &[&Bin]| {
        let longest = bins.iter().filter_map(|bin| bin.longest).reduce(f64::max);
        let start = bins.first().map_or(0, |bin| bin.index - bin.index % ROW);
        let [from, to] = [start, start + ROW].map(|bin| axis.show(axis.start(bin)));
        html! {
            tr {
                th scope="row" { (from) " to " (to) }
                @for (.., count) in &occurred {
                    @let number = bins.iter().map(|bin| count(bin)).sum();
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
                        @for (_, word, _) in &occurred { th scope="col" { (word) } }
                        th scope="col" { "longest, with its record" }
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
