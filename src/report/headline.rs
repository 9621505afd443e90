//! The first sentence of the page: whether anything needs attention. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::health::{Finding, Severity};
use crate::store::Summary;
use crate::text::duration::show;
use crate::text::plural;

/// The most problems that the headline names.
const LISTED: usize = 8;

pub(super) struct Headline {
    /// The class of its box in the style sheet.
    pub(super) class: &'static str,
    /// SVG.
    pub(super) icon: &'static str,
    pub(super) opening: &'static str,
    pub(super) rest: String,
}

/// `window` is the period that the report covers.
pub(super) fn headline(
    summary: &Summary,
    findings: &[Finding],
    now: DateTime<Utc>,
    window: Duration,
) -> Headline {
    let window = show(window);
    let bad = findings.iter().filter(|finding| finding.severity == Severity::Bad);
    let problems: Vec<_> = bad.map(|finding| finding.aged(now)).collect();
    let (class, icon, opening, rest) = if !summary.used {
        let rest = "This database has no job and no run.".to_owned();
        ("unused", include_str!("static/unused.svg"), "Nothing here yet.", rest)
    } else if problems.is_empty() {
        let ran = match summary.succeeded {
            0 => "Nothing ran".to_owned(),
            runs => plural::grouped_of(runs, "run") + " succeeded",
        };
        let rest = format!("{ran} in the last {window}; nothing is dead or late.");
        ("well", include_str!("static/well.svg"), "All well.", rest)
    } else {
        let rest = plural::joined(&problems, LISTED, "; ") + ".";
        ("troubled", include_str!("static/troubled.svg"), "Needs attention:", rest)
    };
    Headline { class, icon, opening, rest }
}
