//! A table with one lane per job: the name, a drawing over time, and numbers.
//!
//! A drawing is stretched to the width of its column, so it holds no text. Names, numbers and hours
//! are HTML around it.

use maud::{Markup, html};

use super::axis::{Axis, Label};
use super::name;

/// Height of a drawing's coordinates. The browser scales them to the height on the page.
pub(super) const HEIGHT: f64 = 24.0;
/// Labels closer to an end of the axis than this share of the axis's width are left out, because
/// they would extend beyond it.
const EDGE: f64 = 0.025;

/// The lane of one job.
pub(super) struct Drawing<'a> {
    pub(super) job: &'a str,
    /// The drawing in words, for readers who cannot see it.
    pub(super) words: String,
    /// The shapes of the drawing.
    pub(super) marks: Markup,
    pub(super) numbers: Markup,
}

/// `base` is the base line's distance from the top of a drawing. `numbers` is the heading
/// of the numbers, and `id` a prefix of the ids in the table.
pub(super) fn table<'a>(
    id: &str,
    caption: &str,
    numbers: &str,
    base: f64,
    axis: &Axis,
    lanes: impl IntoIterator<Item = Drawing<'a>>,
) -> Markup {
    let labels = axis.labels();
    let grid: String = labels.iter().map(|label| format!("M{} 0V{HEIGHT}", label.place)).collect();
    html! {
        table.lanes {
            caption.unseen { (caption) }
            thead {
                tr {
                    th scope="col" { span.unseen { "Job" } }
                    th.axis scope="col" { span.unseen { "Over time" } (hours(&labels, axis)) }
                    th scope="col" { span.unseen { (numbers) } }
                }
            }
            tbody {
                @for (number, lane) in lanes.into_iter().enumerate() {
                    @let (title, words) = (format!("{id}-t{number}"), format!("{id}-d{number}"));
                    tr {
                        th scope="row" { (name(lane.job)) }
                        td.strip {
                            svg role="img" aria-labelledby={ (title) " " (words) }
                                viewBox={ "0 0 " (axis.bins) " " (HEIGHT) }
                                preserveAspectRatio="none" {
                                title id=(title) { (lane.job) }
                                desc id=(words) { (lane.words) }
                                path.grid d=(grid) {}
                                path.base d={ "M0 " (base) "H" (axis.bins) } {}
                                (lane.marks)
                            }
                        }
                        td.numbers { (lane.numbers) }
                    }
                }
            }
        }
    }
}

fn hours(labels: &[Label], axis: &Axis) -> Markup {
    let share = |label: &Label| label.place / f64::from(axis.bins);
    let fits = |label: &&Label| (EDGE..1.0 - EDGE).contains(&share(label));
    html! {
        span.hours aria-hidden="true" {
            @for label in labels.iter().filter(fits) {
                span style={ "left:" (format!("{:.2}", share(label) * 100.0)) "%" } { (label.text) }
            }
        }
    }
}
