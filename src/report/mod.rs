//! The report: one HTML page that needs no other file. Pure: it turns a snapshot into text.

mod axis;
mod durations;
mod figures;
mod headline;
mod lanes;
mod lists;
mod timeline;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::health;
use crate::health::limits::{TICK_OVERDUE, Thresholds};
use crate::print;
use crate::schedule::Zone;
use crate::schedule::due::FailingSchedules;
use crate::store::{Job, Scope, Snapshot};
use crate::text::plain::plain;
use crate::text::plural;
use axis::Axis;

/// Lanes at most. It keeps the page below 500 KiB even if every bin of every lane has every mark.
const JOBS: i64 = 24;
/// Rows of a list at most.
const ROWS: i64 = 25;

/// The page loads and runs nothing, even if a stored value ever gets past the escaping.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
    base-uri 'none'; form-action 'none'";

/// What the page shows, and how.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) title: Option<String>,
    /// How far to look back.
    pub(crate) window: Duration,
    pub(crate) clock: Zone,
}

impl Page {
    /// Returns what to read from the database.
    pub(crate) fn scope(&self, now: DateTime<Utc>) -> Scope {
        let axis = self.axis(now);
        let bin = Duration::from_secs(axis.bin.unsigned_abs());
        Scope {
            since: now - self.window,
            from: axis.from,
            bin,
            silent_after: TICK_OVERDUE,
            jobs: JOBS,
            rows: ROWS,
        }
    }

    fn axis(&self, now: DateTime<Utc>) -> Axis {
        let window = TimeDelta::from_std(self.window).unwrap_or(TimeDelta::MAX);
        Axis::new(now, window, self.clock.clone())
    }

    /// Returns the page. Stored text is escaped where it is inserted. At the end, control
    /// characters are written out in the whole page at once.
    pub(crate) fn render(&self, snapshot: &Snapshot) -> String {
        let html = self.html(snapshot).into_string();
        html.lines().map(|line| plain(line) + "\n").collect()
    }

    fn html(&self, snapshot: &Snapshot) -> Markup {
        let (now, summary, axis) = (snapshot.now, &snapshot.summary, &self.axis(snapshot.now));
        let findings = health::work(&snapshot.work, &Thresholds::default());
        let headline = headline::headline(summary, &findings, now, self.window);
        let failing = &FailingSchedules::of(&snapshot.work.scheduled);
        let default = format!("Jobs in {}", summary.database);
        let title = self.title.as_deref().unwrap_or(&default);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy"
                        content=(CONTENT_POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="robots" content="noindex";
                    title { (headline.opening.trim_end_matches(['.', ':'])) " · " (title) }
                    // Without an icon, a browser asks the server for /favicon.ico.
                    link rel="icon" href="data:,";
                    style { (PreEscaped(include_str!("static/style.css"))) }
                }
                body {
                    header {
                        h1 { (title) }
                        p.headline.(headline.class) {
                            (PreEscaped(headline.icon))
                            span { strong { (headline.opening) } " " (headline.rest) }
                        }
                        p.quiet {
                            "As of "
                            time datetime=(print::instant(now)) { (axis.show_exactly(now)) }
                            ", by the database's clock. This page does not refresh itself."
                        }
                    }
                    main {
                        @if summary.used {
                            (figures::section(summary, axis, self.window))
                            (timeline::section(snapshot, axis))
                            (lists::failures(snapshot, axis))
                            (durations::section(snapshot, axis))
                            (lists::schedules(snapshot, failing, axis))
                            (lists::workers(snapshot, axis))
                            (lists::running(snapshot, axis))
                        } @else {
                            (PreEscaped(include_str!("static/first_steps.html")))
                        }
                    }
                    footer {
                        p.quiet {
                            "jobctl " (env!("CARGO_PKG_VERSION")) "."
                            " Times are in " (axis.zone()) "."
                        }
                    }
                }
            }
        }
    }
}

/// A part of the page with a heading.
fn section(heading: &str, content: &Markup) -> Markup {
    let id = id(heading);
    html! { section aria-labelledby=(id) { h2 id=(id) { (heading) } (content) } }
}

fn id(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// Returns the jobs by name, so that each keeps its place from page to page.
fn by_name(snapshot: &Snapshot) -> Vec<&Job> {
    let mut jobs: Vec<_> = snapshot.jobs.iter().collect();
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs
}

/// A name that a browser may break between its words.
fn name(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['_', '-', '.', ':']) { (part) wbr; } }
}

/// An instant, as short as it is clear, and its distance from now.
fn moment(axis: &Axis, at: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(print::instant(at)) title=(axis.show_exactly(at)) { (axis.show(at)) }
        span.quiet { ", " (print::relative(at, axis.now)) }
    }
}

/// Says how many items of a list are not shown, and where to find them.
fn more(all: i64, shown: usize, noun: &str, rest: &Markup) -> Markup {
    let hidden = all - i64::try_from(shown).unwrap_or(i64::MAX);
    let hidden_items = plural::grouped_of(hidden, &format!("more {noun}"));
    html! { @if hidden > 0 { p.quiet { "And " (hidden_items) "; " (rest) "." } } }
}
