//! The report: one HTML page that needs no other file. Pure: it turns a snapshot into text.

mod axis;
mod headline;
mod lanes;
mod lists;
mod now;
mod tiles;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use cron_zone::Zone;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::health::{self, Finding, Severity};
use crate::job::thresholds::Thresholds;
use crate::store::{self, Details, Flow, Scope, Snapshot, WorkFacts};
use crate::text::duration;
use crate::text::plain::plain;
use crate::text::plural;
use crate::text::timestamp::{instant, relative};
use axis::Axis;
use headline::Headline;

/// The most lanes: with all marks in all bins, the page has less than 500 KiB.
const JOBS: i64 = 20;
/// The most rows of a list.
const ROWS: usize = 25;
/// The most rows of a list that are not folded.
const SHOWN: usize = 6;
/// After this time, a page that does not reload itself is marked as old.
const FRESH: Duration = Duration::from_secs(3600);

/// Lets the browser load nothing for the page, and run only `RELOAD_SCRIPT`, in case a stored value
/// gets past the escaping.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
    script-src 'sha256-JG1OiHhckyjKHtGKcJY0Pqj3ZWDm6N0jSt6CHFXA3kY='; \
    base-uri 'none'; form-action 'none'";
/// Reloads the page, and gives the style sheet the age of the page: the file may be old even after
/// a reload. It is a script because accessibility checks reject a `meta` element that reloads.
const RELOAD_SCRIPT: &str = include_str!("static/reload.js");

/// What the page shows, and how.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) title: Option<String>,
    /// How far to look back.
    pub(crate) window: Duration,
    pub(crate) clock: Zone,
    pub(crate) details: Details,
    /// How often the browser loads the page again.
    pub(crate) refresh: Option<Duration>,
}

/// The data that the parts of the page share.
struct View<'a> {
    snapshot: &'a Snapshot,
    findings: Vec<Finding>,
    axis: Axis,
}

impl View<'_> {
    /// Returns the findings of this severity.
    fn with_severity(&self, severity: Severity) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.severity == severity).collect()
    }

    /// Returns the findings about a job.
    fn of_job<'v>(&'v self, job: &'v str) -> impl Iterator<Item = &'v Finding> {
        let is_of = move |finding: &&Finding| {
            finding.job_type.as_deref() == Some(job) || finding.jobs.iter().any(|one| one == job)
        };
        self.findings.iter().filter(is_of)
    }

    /// Returns the id of a job's lane, if the page has one.
    fn anchor(&self, job: &str) -> Option<String> {
        let has_lane = self.snapshot.jobs.iter().any(|shown| shown.name == job);
        if has_lane { Some(anchor(job)) } else { None }
    }

    /// A job's name, with a link to its lane.
    fn job(&self, job: &str) -> Markup {
        html! {
            @match self.anchor(job) {
                Some(id) => a href={ "#" (id) } { (name(job)) },
                None => (name(job)),
            }
        }
    }
}

impl Page {
    /// Returns what to read from the database: the window up to `now`, and the jobs with problems,
    /// which come first.
    pub(crate) fn scope(&self, now: DateTime<Utc>, problems: &WorkFacts) -> Scope {
        let axis = self.axis(now);
        let bad =
            findings(problems).into_iter().filter(|finding| finding.severity == Severity::Bad);
        Scope {
            bins: (0..axis.bins).map(|bin| axis.start(bin)).collect(),
            width: axis.width(),
            by_day: axis.by_day(),
            troubled: bad
                .flat_map(|finding| finding.jobs.into_iter().chain(finding.job_type))
                .collect(),
            jobs: JOBS,
            rows: ROWS as i64,
            details: self.details,
        }
    }

    fn axis(&self, now: DateTime<Utc>) -> Axis {
        let window = TimeDelta::from_std(self.window).unwrap_or(TimeDelta::MAX);
        Axis::new(now, window, self.clock.clone())
    }

    /// Returns the page. maud has escaped stored texts. Here, control characters are written out in
    /// the whole page.
    pub(crate) fn render(&self, snapshot: &Snapshot) -> String {
        let html = self.html(snapshot).into_string();
        html.lines().map(|line| plain(line) + "\n").collect()
    }

    /// The whole page, before control characters are written out.
    fn html(&self, snapshot: &Snapshot) -> Markup {
        let (now, summary) = (snapshot.now, &snapshot.summary);
        let view = &View { snapshot, findings: findings(&snapshot.work), axis: self.axis(now) };
        let headline = Headline::of(view);
        let default = format!("Jobs in {}", summary.database);
        let title = self.title.as_deref().unwrap_or(&default);
        let refresh = self.refresh.map(|refresh| refresh.as_secs());
        let fresh = self.refresh.map_or(FRESH, |refresh| refresh * 3).as_secs();
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
                    title { (headline.opening()) " · " (title) }
                    link rel="icon" href=(headline.favicon());
                    style { (PreEscaped(include_str!("static/style.css"))) }
                }
                body style={ "--fresh:" (fresh) "s" } data-refresh=[refresh] {
                    header {
                        div.top {
                            h1 { (title) }
                            p.quiet {
                                "As of "
                                time datetime=(instant(now)) { (view.axis.show_exactly(now)) }
                                ", by the database's clock. "
                                @match self.refresh {
                                    Some(every) => { "Reloads every " (duration::show(every)) "." },
                                    None => "This page does not refresh itself.",
                                }
                                " " strong.old { "This page is old." }
                            }
                        }
                        (headline.markup(view))
                    }
                    main {
                        @if summary.used {
                            div {
                                (tiles::section(view))
                                (now::section(view))
                                (lists::incidents(view))
                                (lanes::section(view))
                            }
                            div {
                                (lists::running(view))
                                (lists::schedules(view))
                                (lists::workers(view))
                            }
                        } @else {
                            (PreEscaped(include_str!("static/first_steps.html")))
                        }
                    }
                    footer {
                        p.quiet {
                            "jobctl " (env!("CARGO_PKG_VERSION")) "."
                            " Times are in " (view.axis.zone()) "."
                        }
                    }
                    @if self.refresh.is_some() { script { (PreEscaped(RELOAD_SCRIPT)) } }
                }
            }
        }
    }
}

fn findings(work: &WorkFacts) -> Vec<Finding> {
    health::work(work, &Thresholds::default())
}

/// A part of the page with a heading.
fn section(heading: &str, content: &Markup) -> Markup {
    let id = id(heading);
    html! { section aria-labelledby=(id) { h2 id=(id) { (heading) } (content) } }
}

fn id(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// Returns words for the time until no run is due any more; `None` if no run is due now, or if the
/// time is unknown.
fn when_none_is_due(flow: &Flow) -> Option<String> {
    let show = |seconds| duration::show_whole(store::seconds(seconds));
    let at_best = flow.at_best_seconds.map(|seconds| format!("{} at best", show(seconds)));
    let at_this_pace = match (flow.empty_in_seconds, flow.trend.as_deref()) {
        (Some(seconds), _) => Some(format!("none due in about {}", show(seconds))),
        (None, Some("grows")) => Some("grows".to_owned()),
        _ => None,
    };
    let parts: Vec<_> = [at_this_pace, at_best].into_iter().flatten().collect();
    if parts.is_empty() { None } else { Some(parts.join(", ")) }
}

/// Returns the id of a job's lane. Replaces characters such as blanks, which ids may not contain.
fn anchor(job: &str) -> String {
    let is_kept = |c: char| c.is_alphanumeric() || "_.".contains(c);
    "job-".to_owned() + &job.replace(|c| !is_kept(c), "-")
}

/// A name that a browser may break between its words.
fn name(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['_', '-', '.', ':']) { (part) wbr; } }
}

/// An instant in its shortest clear form, and the time between it and now.
fn moment(axis: &Axis, at: DateTime<Utc>) -> Markup {
    html! {
        span.moment {
            time datetime=(instant(at)) title=(axis.show_exactly(at)) { (axis.show(at)) }
            span.quiet { ", " (relative(at, axis.now)) }
        }
    }
}

/// A line about the items of a list that are not on the page: how many, and where to find them.
fn more(all: i64, shown: usize, noun: &str, rest: &Markup) -> Markup {
    let hidden = all - i64::try_from(shown).unwrap_or(i64::MAX);
    let hidden_items = plural::grouped_of(hidden, &format!("more {noun}"));
    html! { @if hidden > 0 { p.quiet { "And " (hidden_items) "; " (rest) "." } } }
}
