//! The shapes of the page: each outcome has its own, so that colour is never the only sign.

use maud::{Markup, PreEscaped, html};

type Mark = PreEscaped<&'static str>;

pub(super) const WELL: Mark = PreEscaped(concat!(
    r#"<svg class="sign" viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="11"/>"#,
    r#"<path d="m6.5 12.5 4 4 7.5-8.5"/></svg>"#
));
pub(super) const TROUBLED: Mark = PreEscaped(concat!(
    r#"<svg class="sign" viewBox="0 0 24 24" aria-hidden="true"><path class="body" d="M12 1.5 23.2 21.5H.8z"/>"#,
    r#"<path d="M12 8.5v6M12 17.4v1.2"/></svg>"#
));
pub(super) const UNUSED: Mark = PreEscaped(concat!(
    r#"<svg class="sign" viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="11"/>"#,
    r#"<path d="M7 12h10"/></svg>"#
));

/// What a mark of the timeline means; drawn as in a lane, in a box of 12 by 24.
#[derive(Clone, Copy)]
pub(super) enum Sample {
    Succeeded,
    Failed,
    Dead,
    Cancelled,
    Running,
}

impl Sample {
    pub(super) fn svg(self) -> Markup {
        // What hangs from the line is moved up, to stand beside its word.
        let (class, path, top) = match self {
            Self::Succeeded => ("s", "M2 16V5h8v11z", 0),
            Self::Failed => ("f", "M2 16h8v4h-8z", 6),
            Self::Dead => ("d", "M0 16h12v8h-12z", 8),
            Self::Cancelled => ("c", "M2 16V5h8v11z", 0),
            Self::Running => ("r", "M1 16V7h10v9z", 0),
        };
        html! {
            svg.sample viewBox={ "0 " (top) " 12 24" } aria-hidden="true" {
                path.(class) d=(path) {}
                path.base d="M0 16H12" {}
            }
        }
    }
}
