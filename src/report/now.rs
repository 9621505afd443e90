//! What needs a person now: a line for each finding, with its remedy.

use maud::{Markup, html};

use super::{SHOWN, View, section as titled};
use crate::health::{self, Finding, Severity};
use crate::text::plural;

/// The most folded findings.
const FOLDED: usize = 100;

/// The section with the findings; nothing if there are none.
pub(super) fn section(view: &View<'_>) -> Markup {
    let [bad, facts, warnings] = [Severity::Bad, Severity::Info, Severity::Warn]
        .map(|severity| view.with_severity(severity));
    let number = i64::try_from(warnings.len()).unwrap_or(i64::MAX);
    let content = html! {
        (list(&bad, "check", view))
        @if !facts.is_empty() {
            @if !bad.is_empty() { p { strong { "Stopped on purpose:" } } }
            (list(&facts, "doctor", view))
        }
        @if !warnings.is_empty() {
            details {
                summary { (plural::of(number, "warning")) }
                (list(&warnings, "doctor", view))
            }
        }
    };
    html! {
        @if !(bad.is_empty() && facts.is_empty() && warnings.is_empty()) {
            (titled("Now", &content))
        }
    }
}

/// Lists the first findings, folds up to `FOLDED` others, and names the command that lists the
/// rest.
fn list(findings: &[&Finding], command: &str, view: &View<'_>) -> Markup {
    let (shown, more) = health::first(findings, SHOWN);
    let is_shown = |finding: &&&Finding| shown.iter().any(|one| std::ptr::eq(*one, **finding));
    let folded: Vec<_> =
        findings.iter().filter(|finding| !is_shown(finding)).take(FOLDED).collect();
    let left_out = more - folded.len();
    html! {
        @if !findings.is_empty() {
            ul.findings { @for finding in &shown { li { (item(finding, view)) } } }
        }
        @if !folded.is_empty() {
            details {
                summary { (more) " more" }
                ul.findings {
                    @for finding in folded { li { (item(finding, view)) } }
                    @if left_out > 0 {
                        li { "and " (left_out) " more: " code { "jobctl " (command) } }
                    }
                }
            }
        }
    }
}

/// A finding, with a link to its job or worker, and its remedy.
fn item(finding: &Finding, view: &View<'_>) -> Markup {
    let sentence = finding.aged(view.axis.now);
    // The link is only around the fact, not around its age.
    let age = sentence.strip_prefix(&finding.found).unwrap_or_default();
    let lane = finding.job_type.as_ref().and_then(|job| view.anchor(job));
    let target = lane.or_else(|| finding.worker.as_ref().map(|_| "workers".to_owned()));
    // A remedy has its commands in backquotes, so each second part is a command.
    let remedy_parts = finding.remedy.iter().flat_map(|remedy| remedy.split('`').enumerate());
    html! {
        span {
            @match target {
                Some(id) => a href={ "#" (id) } { (finding.found) },
                None => (finding.found),
            }
            (age)
        }
        " "
        span.remedy {
            @for (place, text) in remedy_parts {
                @if place % 2 == 1 { code { (text) } } @else { (text) }
            }
        }
    }
}
