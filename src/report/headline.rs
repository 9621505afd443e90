//! The top of the page: whether anything needs attention, and what. Pure.

use maud::{Markup, PreEscaped, html};

use super::View;
use crate::health::{self, Finding, Severity};
use crate::text::duration::show;
use crate::text::plural;

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

pub(super) struct Headline {
    state: HeadlineState,
    opening: &'static str,
    rest: String,
}

impl Headline {
    pub(super) fn of(view: &View<'_>) -> Self {
        let summary = &view.snapshot.summary;
        let (state, opening, rest) = if !summary.used {
            let rest = "This database has no job and no run.".to_owned();
            (UNUSED, "Nothing here yet.", rest)
        } else if !view.with_severity(Severity::Bad).is_empty() {
            (TROUBLED, "Needs attention:", String::new())
        } else if !view.with_severity(Severity::Info).is_empty() {
            (STOPPED, "Stopped on purpose:", String::new())
        } else {
            let ran = match summary.succeeded {
                0 => "Nothing ran".to_owned(),
                runs => plural::grouped_of(runs, "run") + " succeeded",
            };
            let window = show(view.window);
            (WELL, "All well.", format!("{ran} in the last {window}; nothing is dead or late."))
        };
        Self { state, opening, rest }
    }

    /// The first words, for the page's title.
    pub(super) fn opening(&self) -> &str {
        self.opening.trim_end_matches(['.', ':'])
    }

    /// The address of the icon in the browser's tab.
    pub(super) fn favicon(&self) -> String {
        let HeadlineState { icon, colour, .. } = self.state;
        let shapes = icon.split_once('>').map_or("", |(_, shapes)| shapes.trim_end());
        let svg = format!(
            "<svg xmlns='http%3A//www.w3.org/2000/svg' viewBox='0 0 24 24' fill='%23{colour}'>"
        );
        format!("data:image/svg+xml,{svg}{}", shapes.replace('"', "'"))
    }

    pub(super) fn markup(&self, view: &View<'_>) -> Markup {
        let [bad, facts, warnings] = [Severity::Bad, Severity::Info, Severity::Warn]
            .map(|severity| view.with_severity(severity));
        let number = i64::try_from(warnings.len()).unwrap_or(i64::MAX);
        html! {
            div.headline.(self.state.class) {
                (PreEscaped(self.state.icon))
                div {
                    p { strong { (self.opening) } " " (self.rest) }
                    @if !bad.is_empty() {
                        (list(&bad, "check", view))
                        @if !facts.is_empty() { p { strong { "Stopped on purpose:" } } }
                    }
                    @if !facts.is_empty() { (list(&facts, "doctor", view)) }
                    @if !warnings.is_empty() {
                        details {
                            summary { (plural::of(number, "warning")) }
                            (list(&warnings, "doctor", view))
                        }
                    }
                }
            }
        }
    }
}

/// Lists the first findings, and the number of the others with the command that lists them.
fn list(findings: &[&Finding], command: &str, view: &View<'_>) -> Markup {
    let (shown, more) = health::first(findings);
    html! {
        ul {
            @for finding in shown { li { (item(finding, view)) } }
            @if more > 0 { li { "and " (more) " more: " code { "jobctl " (command) } } }
        }
    }
}

fn item(finding: &Finding, view: &View<'_>) -> Markup {
    let sentence = finding.aged(view.axis.now);
    let rest = sentence.strip_prefix(&finding.found).unwrap_or_default();
    let lane = finding.job_type.as_ref().and_then(|job| view.anchor(job));
    let target = lane.or_else(|| finding.worker.as_ref().map(|_| "workers".to_owned()));
    // Remedies quote commands as `jobctl show 1`.
    let remedy = finding.remedy.iter().flat_map(|remedy| remedy.split('`').enumerate());
    html! {
        @match target {
            Some(id) => a href={ "#" (id) } { (finding.found) },
            None => (finding.found),
        }
        (rest)
        " "
        span.remedy {
            @for (part, text) in remedy {
                @if part % 2 == 1 { code { (text) } } @else { (text) }
            }
        }
    }
}
