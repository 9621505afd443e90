//! The top of the page: whether anything needs attention, and what ended in the window. Pure.

use maud::{Markup, PreEscaped, html};

use super::View;
use crate::health::Severity;
use crate::store::ReportJob;
use crate::text::plural::{self, grouped, grouped_of};

/// How the jobs are doing, as an icon and a colour.
struct HeadlineState {
    /// The class of its box in the style sheet.
    class: &'static str,
    /// SVG, which the style sheet colours.
    icon: &'static str,
    /// The colour of the icon in the browser's tab, in hexadecimal digits.
    colour: &'static str,
}

const UNUSED: HeadlineState =
    HeadlineState { class: "unused", icon: include_str!("static/unused.svg"), colour: "6a727d" };
const WELL: HeadlineState =
    HeadlineState { class: "well", icon: include_str!("static/well.svg"), colour: "1a7f4b" };
const STOPPED: HeadlineState =
    HeadlineState { class: "stopped", icon: include_str!("static/stopped.svg"), colour: "925d00" };
const TROUBLED: HeadlineState = HeadlineState {
    class: "troubled",
    icon: include_str!("static/troubled.svg"),
    colour: "c21f2c",
};

/// The sentence at the top of the report: whether all is well.
pub(super) struct Headline {
    state: HeadlineState,
    opening: &'static str,
    rest: String,
}

impl Headline {
    pub(super) fn of(view: &View<'_>) -> Self {
        let bad = view.with_severity(Severity::Bad).len() as i64;
        // Count only stops by a person, so not the hold for a run that asked for a later attempt.
        let facts = view.with_severity(Severity::Info);
        let stops = facts.iter().filter(|fact| fact.run_id.is_none()).count() as i64;
        let (state, opening, rest) = if !view.snapshot.summary.used {
            (UNUSED, "Nothing here yet.", "This database has no job and no run.".to_owned())
        } else if bad > 0 {
            let problems = plural::of(bad, "problem");
            let rest = match stops {
                0 => format!("{problems}."),
                _ => format!("{problems}, and {} on purpose.", plural::of(stops, "stop")),
            };
            (TROUBLED, "Needs attention:", rest)
        } else if stops > 0 {
            (STOPPED, "Stopped on purpose:", "nothing is dead or late.".to_owned())
        } else {
            (WELL, "All well.", "Nothing is dead or late.".to_owned())
        };
        Self { state, opening, rest }
    }

    /// Returns the first words, for the page's title.
    pub(super) fn opening(&self) -> &str {
        self.opening.trim_end_matches(['.', ':'])
    }

    /// Returns the address of the icon in the browser's tab: the icon itself, as a data URL.
    pub(super) fn favicon(&self) -> String {
        let HeadlineState { icon, colour, .. } = self.state;
        // Put the icon's shapes into an element with a colour.
        let shapes = icon.split_once('>').map_or("", |(_, shapes)| shapes.trim_end());
        let svg = format!(
            "<svg xmlns='http%3A//www.w3.org/2000/svg' viewBox='0 0 24 24' fill='%23{colour}'>"
        );
        format!("data:image/svg+xml,{svg}{}", shapes.replace('"', "'"))
    }

    pub(super) fn markup(&self, view: &View<'_>) -> Markup {
        html! {
            div.headline.(self.state.class) {
                (PreEscaped(self.state.icon))
                div {
                    p { strong { (self.opening) } " " (self.rest) }
                    @if view.snapshot.summary.used { p.quiet { (ended(view)) } }
                }
            }
        }
    }
}

/// Returns a sentence about the runs and attempts that ended in the window.
fn ended(view: &View<'_>) -> String {
    let since = view.axis.show(view.axis.from);
    // Each row has the same totals of all jobs.
    let first = view.snapshot.jobs.first();
    let total = |count: fn(&ReportJob) -> i64| first.map_or(0, count);
    let [failed, dead, dropped] =
        [total(|job| job.all_failed), total(|job| job.all_dead), total(|job| job.all_dropped)];
    let parts = [
        (dead, format!("{} died", grouped(dead))),
        (failed, grouped_of(failed, "attempt") + " failed before a retry"),
        (dropped, format!("{} dropped", grouped(dropped))),
    ];
    let succeeded = total(|job| job.all_succeeded);
    if succeeded + dead + failed + dropped == 0 {
        return format!("No run succeeded or failed since {since}.");
    }
    let mut words = vec![grouped_of(succeeded, "run") + " succeeded"];
    words.extend(parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, words)| words));
    format!("Since {since}: {}.", words.join(", "))
}
