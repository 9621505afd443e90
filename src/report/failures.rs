//! What went wrong in the window, the worst first: failed attempts, even if the runs recovered.

use maud::{Markup, html};

use super::lists::list;
use super::{View, moment, name};
use crate::store::FailureGroup;
use crate::text::duration;
use crate::text::plural::grouped;

pub(super) fn section(view: &View<'_>) -> Markup {
    let none = html! { "No attempt failed in the last " (duration::show(view.window)) "." };
    let rest = html! { code { "jobctl failures --group" } " lists all of them" };
    let columns = ["Job", "Failed", "Error", "When"];
    let failures = &view.snapshot.failures;
    let all = (view.snapshot.all_failures, "group", rest);
    list("What went wrong", columns, &none, &all, failures, |failure| {
        let job = html! { (badge(failure)) " " (view.job(&failure.job)) };
        [job, html! { (grouped(failure.failures)) }, error(failure), when(failure, view)]
    })
}

fn badge(failure: &FailureGroup) -> Markup {
    html! {
        @match (failure.dead, failure.waiting) {
            (0, 0) if failure.settled > 0 => span.badge { (grouped(failure.settled)) " settled" },
            (0, 0) => span.badge { "recovered" },
            (0, waiting) => span.badge.warn { (grouped(waiting)) " to retry" },
            (dead, _) => span.badge.bad { (grouped(dead)) " dead" },
        }
    }
}

fn error(failure: &FailureGroup) -> Markup {
    html! {
        @if let Some(worker) = &failure.worker { "on " (name(worker)) ": " }
        code { (failure.last_error.as_deref().unwrap_or("no error is recorded")) }
        @if let Some(error_type) = &failure.error_type { " " span.quiet { (error_type) } }
        @if let Some(line) = &failure.last_line { " " span.last-line { code { (line) } } }
    }
}

fn when(failure: &FailureGroup, view: &View<'_>) -> Markup {
    let [first, last] = [failure.first_at, failure.last_at].map(|at| view.axis.show(at));
    html! {
        @if first != last { (first) " to " }
        (moment(&view.axis, failure.last_at))
        " " span.remedy { code { "jobctl show " (failure.id) } }
    }
}
