//! How long the runs of each job took, over time.

use maud::{Markup, html};

use super::axis::{Axis, Tick};
use super::name;
use super::timeline::{HEIGHT, grid, hours};
use crate::duration;
use crate::store::{self, Bin, Job, Snapshot};

pub(super) fn section(seen: &Snapshot, axis: &Axis) -> Markup {
    let ticks = axis.ticks();
    let jobs = super::by_name(seen).into_iter();
    let jobs: Vec<_> = jobs.filter_map(|job| Some((job, Length(job.median?), Length(job.longest?)))).collect();
    html! {
        section aria-labelledby="durations" {
            h2 #durations { "How long it took" }
            @if jobs.is_empty() {
                p { "Nothing has succeeded since " (axis.show(axis.from)) "." }
            } @else {
                p.quiet {
                    "Of runs that succeeded: a bar reaches to the longest, the line in it is the median. Each strip has a scale of \
                     its own, written beside it."
                }
                table.lanes {
                    caption.unseen { "Durations per job" }
                    thead {
                        tr {
                            th scope="col" { span.unseen { "Job" } }
                            th.axis scope="col" { span.unseen { "Over time" } (hours(&ticks, axis)) }
                            th scope="col" { span.unseen { "Longest and median" } }
                        }
                    }
                    tbody {
                        @for (number, (job, median, longest)) in jobs.into_iter().enumerate() {
                            tr {
                                th scope="row" { (name(&job.name)) }
                                td.strip { (strip(number, job, &median, &longest, axis, &ticks)) }
                                td.numbers { "0 to " (longest.show()) br; span.quiet { "median " (median.show()) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A number of seconds.
struct Length(f64);

impl Length {
    fn show(&self) -> String {
        duration::show(store::seconds(self.0))
    }
}

fn strip(number: usize, job: &Job, median: &Length, longest: &Length, axis: &Axis, ticks: &[Tick]) -> Markup {
    let bins = job.bins.iter().filter(|bin| axis.has(bin.index));
    let y = |seconds: f64| HEIGHT - 1.0 - (HEIGHT - 2.0) * (seconds.max(0.0) / longest.0.max(0.001)).min(1.0);
    let measured: Vec<(&Bin, f64, f64)> = bins.filter_map(|bin| Some((bin, y(bin.median?), y(bin.longest?)))).collect();
    let bars: String =
        measured.iter().map(|(bin, _, top)| format!("M{}.1 {HEIGHT}V{top:.1}h.8V{HEIGHT}z", bin.index)).collect();
    let line: String = measured.iter().map(|(bin, middle, _)| format!("M{} {middle:.1}h1", bin.index)).collect();
    html! {
        svg role="img" aria-labelledby={ "u" (number) " e" (number) } viewBox={ "0 0 " (axis.bins) " " (HEIGHT) }
            preserveAspectRatio="none" {
            title id={ "u" (number) } { (job.name) }
            desc id={ "e" (number) } { "median " (median.show()) ", longest " (longest.show()) }
            (grid(ticks))
            path.most d=(bars) {}
            path.median d=(line) {}
            path.base d={ "M0 " (HEIGHT) "H" (axis.bins) } {}
        }
    }
}
