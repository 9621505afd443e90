//! The report: what is known of the jobs, as one HTML page that needs nothing else. Pure: a snapshot
//! in, text out.

mod axis;
mod durations;
mod figures;
mod lists;
mod marks;
mod timeline;
mod verdict;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::fires::Failing;
use crate::patience::PATIENCE;
use crate::schedule::Clock;
use crate::store::{Job, Scope, Snapshot};
use crate::{count, print};
use axis::Axis;
use verdict::{Mood, Verdict};

/// Most lanes, so that the page stays below 500 KiB even when every bin of every lane has every mark.
const JOBS: i64 = 24;
/// Most rows of a list.
const ROWS: i64 = 25;

/// What whoever asks for a report wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) title: Option<String>,
    /// How far to look back.
    pub(crate) since: Duration,
    pub(crate) clock: Clock,
}

impl Wish {
    /// What to read for it.
    pub(crate) fn scope(&self, now: DateTime<Utc>) -> Scope {
        let axis = self.axis(now);
        let bin = Duration::from_secs(axis.bin.unsigned_abs());
        Scope { since: now - self.since, from: axis.from, bin, patience: PATIENCE, jobs: JOBS, rows: ROWS }
    }

    fn axis(&self, now: DateTime<Utc>) -> Axis {
        Axis::of(now, TimeDelta::from_std(self.since).unwrap_or(TimeDelta::MAX), self.clock.clone())
    }

    /// The page. What others stored is escaped where it is inserted; whatever character of it a browser
    /// or a terminal would obey is written out at the end, for all of the page at once. `broken` are the schedules that
    /// can't be read.
    pub(crate) fn page(&self, seen: &Snapshot, failing: &Failing<'_>) -> String {
        let axis = self.axis(seen.now);
        let verdict = verdict::of(&seen.summary, failing, seen.now, self.since);
        let html = self.html(seen, failing, &axis, &verdict).into_string();
        html.lines().map(|line| print::plain(line) + "\n").collect()
    }

    fn html(&self, seen: &Snapshot, failing: &Failing<'_>, axis: &Axis, verdict: &Verdict) -> Markup {
        let default = format!("Jobs in {}", seen.summary.database);
        let title = self.title.as_deref().unwrap_or(&default);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    // Should a value ever escape its escaping, it still can load and run nothing.
                    meta http-equiv="Content-Security-Policy"
                        content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="robots" content="noindex";
                    title { (verdict.opening.trim_end_matches(['.', ':'])) " · " (title) }
                    // A browser would ask for /favicon.ico otherwise.
                    link rel="icon" href="data:,";
                    style { (PreEscaped(include_str!("style.css"))) }
                }
                body {
                    header {
                        h1 { (title) }
                        (headline(verdict))
                        p.quiet {
                            "As of " (exactly(axis, seen.now)) ", by the database's clock. This page does not renew itself."
                        }
                    }
                    main {
                        @if verdict.mood == Mood::Unused {
                            (first_steps())
                        } @else {
                            (figures::section(&seen.summary, axis, self.since))
                            (timeline::section(seen, axis))
                            (lists::failures(seen, axis))
                            (durations::section(seen, axis))
                            (lists::fires(seen, failing, axis))
                            (lists::workers(seen, axis))
                            (lists::running(seen, axis))
                        }
                    }
                    footer {
                        p.quiet { "jobctl " (env!("CARGO_PKG_VERSION")) ". Times are in " (axis.zone()) "." }
                    }
                }
            }
        }
    }
}

fn headline(verdict: &Verdict) -> Markup {
    let (class, mark) = match verdict.mood {
        Mood::Well => ("well", marks::WELL),
        Mood::Troubled => ("troubled", marks::TROUBLED),
        Mood::Unused => ("unused", marks::UNUSED),
    };
    html! {
        p.verdict.(class) { (mark) span { strong { (verdict.opening) } " " (verdict.rest) } }
    }
}

fn first_steps() -> Markup {
    html! {
        section aria-labelledby="begin" {
            h2 #begin { "How to begin" }
            ol.steps {
                li {
                    p { "Write down what is to be done, in a file:" }
                    pre tabindex="0" { code { "# jobs.toml\n[jobs.backup_nightly]\nshell = \"bin/backup\"\nschedule = \"30 2 * * *\"" } }
                }
                li { p { "Tell the database:" } pre tabindex="0" { code { "jobctl apply jobs.toml" } } }
                li { p { "Let cron wake a worker every minute:" } pre tabindex="0" { code { "* * * * *  jobctl tick" } } }
                li { p { "Try it at once:" } pre tabindex="0" { code { "jobctl enqueue backup_nightly\njobctl tick" } } }
            }
            p { "Write this page again and it shows what ran." }
        }
    }
}

/// Jobs in an order that stays the same from page to page.
fn by_name(seen: &Snapshot) -> Vec<&Job> {
    let mut jobs: Vec<_> = seen.jobs.iter().collect();
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs
}

/// A name that may be broken between its words when the line is short.
fn name(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['_', '-', '.', ':']) { (part) wbr; } }
}

/// An instant as short as it is clear, and how long ago it is.
fn moment(axis: &Axis, at: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(print::instant(at)) title=(axis.show_exactly(at)) { (axis.show(at)) }
        span.quiet { ", " (print::relative(at, axis.now)) }
    }
}

fn exactly(axis: &Axis, at: DateTime<Utc>) -> Markup {
    html! { time datetime=(print::instant(at)) { (axis.show_exactly(at)) } }
}

/// Says that a list was cut off, and where the rest is.
fn more(all: i64, shown: usize, noun: &str, where_else: &Markup) -> Markup {
    let rest = all - i64::try_from(shown).unwrap_or(i64::MAX);
    html! {
        @if rest > 0 { p.quiet { "And " (count::grouped_of(rest, &format!("more {noun}"))) "; " (where_else) "." } }
    }
}
