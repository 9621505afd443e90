//! How long the successful runs of each job took, over time.

use maud::{Markup, html};

use super::axis::Axis;
use super::lanes::{self, Drawing, HEIGHT};
use crate::store::{self, Job, Snapshot};
use crate::text::duration;

pub(super) fn section(snapshot: &Snapshot, axis: &Axis) -> Markup {
    let jobs = super::by_name(snapshot).into_iter();
    let lanes: Vec<_> =
        jobs.filter_map(|job| Some(lane(job, job.median?, job.longest?, axis))).collect();
    let content = html! {
        @if lanes.is_empty() {
            p { "No run has succeeded since " (axis.show(axis.from)) "." }
        } @else {
            p.quiet {
                "Successful runs only. A bar shows the longest run of its period, the line in it \
                 the median. The scale of each job ends at its longest run."
            }
            (lanes::table("length", "Durations per job", "Longest and median", HEIGHT, axis, lanes))
        }
    };
    super::section("Durations", &content)
}

/// `median` and `longest` are in seconds.
fn lane<'a>(job: &'a Job, median: f64, longest: f64, axis: &Axis) -> Drawing<'a> {
    let y = |seconds: f64| {
        HEIGHT - 1.0 - (HEIGHT - 2.0) * (seconds.max(0.0) / longest.max(0.001)).min(1.0)
    };
    let (mut bars, mut medians) = (String::new(), String::new());
    for bin in job.bins.iter().filter(|bin| axis.has(bin.index)) {
        if let (Some(median), Some(longest)) = (bin.median, bin.longest) {
            bars += &format!("M{}.1 {HEIGHT}V{:.1}h.8V{HEIGHT}z", bin.index, y(longest));
            medians += &format!("M{} {:.1}h1", bin.index, y(median));
        }
    }
    let show = |seconds| duration::show(store::seconds(seconds));
    let (median, longest) = (show(median), show(longest));
    Drawing {
        job: &job.name,
        words: format!("median {median}, longest {longest}"),
        marks: html! { path.most d=(bars) {} path.median d=(medians) {} },
        numbers: html! { "longest " (longest) br; span.quiet { "median " (median) } },
    }
}
