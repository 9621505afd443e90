//! `jobctl status`: an overview of jobs, workers and running runs.

mod prometheus;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::JobArgument;
use super::outage::LastingSession;
use crate::exit::Fault;
use crate::health::{self, Finding, Severity};
use crate::job::thresholds::Thresholds;
use crate::print::{self, Cell, Format, Output, Table, TimeForm};
use crate::store::{JobStatus, Overview, Store};
use crate::text::timestamp::instant;

/// The time between two redraws by --watch.
const REDRAWN_AFTER: Duration = Duration::from_secs(2);

/// Show problems, jobs, workers and long runs
///
/// `Safe to stop now` says what a deploy would interrupt, by the usual run time of
/// each job, which `next --help` explains. DEAD are runs that failed and get no
/// further attempt. Flow counts enqueues, successes and failures; its TREND is
/// `grows` if more runs became due in ten minutes than began. QUEUES are the names
/// by which a worker chooses runs.
///
/// In TSV, each line begins with its kind: job, flow, worker, running, figures
/// or finding; --header names the fields of each kind. For the textfile
/// collector of node_exporter, which must not read half a file:
///
///   jobctl status --format tsv --header
///   jobctl status --prometheus >jobctl.tmp && mv jobctl.tmp jobctl.prom
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    name: JobArgument,
    /// Only this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "format", "header"])]
    prometheus: bool,
    /// Redraw the tables every 2 seconds, as much as fits, until Ctrl-C
    #[arg(long, conflicts_with_all = ["prometheus", "json", "format", "header"])]
    watch: bool,
    #[command(flatten)]
    output: Output,
}

/// The status as JSON.
#[derive(Serialize)]
struct StatusAnswer<'a> {
    #[serde(flatten)]
    overview: &'a Overview,
    findings: &'a [Finding],
}

const JOBS: Table<'_> = Table::new(
    "job_type as job, blocked_runs as blocked, not_due_runs as not due, due_runs as due, \
     oldest_due_age_seconds as oldest due, running_runs as running, failed_runs as failed, \
     dead_runs as dead, next_run_at|state as next fire",
    "",
);

const FLOW: Table<'_> = Table::new(
    "job_type as job, enqueued_10m/enqueued_1h as enqueued, \
     succeeded_10m/succeeded_1h as succeeded, failed_10m/failed_1h as failures, trend, \
     empty_in_seconds as empty in, at_best_seconds as at best, \
     longest_running_seconds as running for",
    "",
);

const RESULTS: Table<'_> = Table::new(
    "job_type as job, last_status as last, last_succeeded_at as last success, \
     succeeded_runs_last_24h as succeeded, run_time_median_seconds as median, \
     run_time_p95_seconds as 95 %, run_time_max_seconds as longest",
    "",
);

const DROPPED: Table<'_> = Table::new(
    "job_type as job, dropped_today as today, dropped_last_7_days as last 7 days, \
     dropped as in all",
    "",
);

const WORKERS: Table<'_> =
    Table::new("worker, last_tick_at as last tick, queues, login, version", "");

const RUNNING: Table<'_> = Table::new(
    "id as run, job_type as job, locked_by as worker, run_time_seconds as running for, \
     locked_until as lease ends",
    "",
);

const RESULTS_HEADING: &str =
    "Results (SUCCEEDED: last 24 hours; MEDIAN to LONGEST: the newest 200 successes)";
const DROPPED_HEADING: &str = "Dropped runs (the definition was full; days in UTC)";

/// The most findings that a section lists.
const LISTED: usize = 8;

const FINDINGS: Table<'_> = Table::new("severity, found, remedy", "");

/// The most findings with which `status` also prints remedies. With more, it names the command that
/// prints them.
const WITH_REMEDIES: usize = 5;

/// Findings without remedies.
const FOUND: Table<'_> = Table::new("severity, found", "");

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        if self.watch && !io::stdout().is_terminal() {
            return Err(Fault::usage("--watch needs a terminal; omit it in scripts").into());
        }
        let store = database.open()?;
        if self.watch {
            // An operator also wants to watch the end of an outage, so --watch outlasts any outage.
            let mut session = LastingSession::new(database, Duration::MAX, store);
            loop {
                let (overview, findings) =
                    session.insist(REDRAWN_AFTER, |store| self.read(store))?;
                let clock = instant(overview.now);
                print::redraw(&clock, &sections(overview, findings, Purpose::Watch)?)?;
                thread::sleep(REDRAWN_AFTER);
            }
        }
        let (overview, findings) = self.read(&store)?;
        match self.output.format() {
            _ if self.prometheus => print::answer(&prometheus::exposition(&overview, &findings)),
            Format::Json | Format::JsonLines => {
                print::json(&StatusAnswer { findings: &findings, overview: &overview })
            }
            Format::Tsv => {
                let output = self.output;
                print::tsv(output, "job", &overview.jobs)?;
                print::tsv(output, "flow", &overview.flow)?;
                print::tsv(output, "worker", &overview.workers)?;
                print::tsv_list(output, "running", &overview.longest_running)?;
                print::tsv(output, "figures", &overview.figures)?;
                print::tsv(output, "finding", &findings)
            }
            Format::Table => {
                let sections = sections(overview, findings, Purpose::Print)?;
                print::answer(sections.concat().trim_start_matches('\n'))
            }
        }
    }

    /// Reads the status and derives the findings. Fails if --job names no job.
    fn read(&self, store: &Store) -> anyhow::Result<(Overview, Vec<Finding>)> {
        let job = self.job.as_ref().or(self.name.name.as_ref());
        let overview = store.status(job.cloned())?;
        let findings = health::work(&overview.work, &Thresholds::default());
        if let Some(job) = job
            && overview.jobs.is_empty()
        {
            super::check_job_exists(store, job)?;
        }
        Ok((overview, findings))
    }
}

/// What the sections of the status are for.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Purpose {
    /// They are printed once, with remedies.
    Print,
    /// They are redrawn, as far as they fit, so the most important sections come first.
    Watch,
}

/// Returns the sections of the status for people, in the order for the purpose.
fn sections(
    overview: Overview,
    mut findings: Vec<Finding>,
    purpose: Purpose,
) -> anyhow::Result<Vec<String>> {
    let Overview { now, mut jobs, mut flow, figures, workers, longest_running, .. } = overview;
    findings.iter_mut().for_each(|finding| finding.found = finding.aged(now));
    let with_severity =
        |severity| findings.iter().filter(move |finding| finding.severity == severity);
    let [bad, facts, warnings] = [Severity::Bad, Severity::Info, Severity::Warn]
        .map(|severity| with_severity(severity).collect::<Vec<_>>());
    // Jobs with the worst findings come first, then those with dead and with failed runs.
    jobs.sort_by_cached_key(|job| {
        let name = Some(&job.job_type);
        let finding = bad.iter().position(|finding| finding.job_type.as_ref() == name);
        (finding.unwrap_or(usize::MAX), job.dead_runs == 0, job.failed_runs == 0)
    });
    let safe_to_stop = safe_to_stop(&jobs, now);
    let has_due_runs = jobs.iter().any(|job| job.due_runs > 0);
    let now = Some(now);
    let with_results: Vec<_> = jobs
        .iter()
        .filter(|job| job.last_status.is_some() || job.succeeded_runs_last_24h > 0)
        .collect();
    for sum_of_jobs in flow.iter_mut().filter(|flow| flow.job_type.is_none()) {
        sum_of_jobs.job_type = Some("all jobs".to_owned());
    }
    let with_drops: Vec<_> = figures.iter().filter(|job| job.dropped_last_7_days > 0).collect();
    let has_remedies = bad.len() + facts.len() + warnings.len() <= WITH_REMEDIES;
    // The facts of a job are in several tables, so that none is wider than a terminal.
    let of_jobs = if jobs.is_empty() {
        "\nNo definitions and no runs yet; see `jobctl apply` and `jobctl enqueue`.\n".to_owned()
    } else {
        print::section("Jobs", &jobs, &JOBS.since(now))?
    };
    let of_results = print::section(RESULTS_HEADING, &with_results, &RESULTS.since(now))?;
    let of_drops = print::section(DROPPED_HEADING, &with_drops, &DROPPED)?;
    let of_workers = print::section("Workers", &workers, &WORKERS.since(now))?;
    let of_running = print::section("Running longest", &longest_running.rows, &RUNNING.since(now))?;
    if purpose == Purpose::Watch && !has_due_runs {
        flow.clear();
    }
    let of_flow = print::section("Flow (last 10 minutes/last hour)", &flow, &FLOW)?;
    if purpose == Purpose::Watch {
        // One line for each finding: if the section is cut, the number of left out lines is the
        // number of findings.
        let all: Vec<_> = bad.into_iter().chain(warnings).chain(facts).collect();
        let of_findings = print::section("Findings", &all, &FOUND)?;
        return Ok(vec![
            of_findings,
            safe_to_stop,
            of_jobs,
            of_workers,
            of_flow,
            of_running,
            of_results,
            of_drops,
        ]);
    }
    Ok(vec![
        section("Needs attention", &bad, "check", has_remedies)?,
        section("Stopped on purpose", &facts, "doctor", has_remedies)?,
        section("Warnings", &warnings, "doctor", has_remedies)?,
        safe_to_stop,
        of_jobs,
        of_flow,
        of_results,
        of_drops,
        of_workers,
        of_running,
    ])
}

/// Returns the line that says whether a deploy would interrupt or delay a run; empty without jobs.
fn safe_to_stop(jobs: &[JobStatus], now: DateTime<Utc>) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let running: i64 = jobs.iter().map(|job| job.running_runs).sum();
    let due: i64 = jobs.iter().map(|job| job.due_runs).sum();
    let distance = |at| Cell::Time(at, Some(now)).text(TimeForm::Short);
    let mut facts = Vec::new();
    if running == 0 {
        facts.push("yes, nothing runs".to_owned());
        if due > 0 {
            facts.push(format!("{due} due"));
        }
    } else {
        facts.push(format!("no, {running} run"));
        let lacks_end = |job: &JobStatus| job.running_runs > 0 && job.usual_end_at.is_none();
        let last_end = jobs.iter().filter_map(|job| job.usual_end_at).max();
        facts.extend(match last_end {
            _ if jobs.iter().any(lacks_end) => Some("usual end unknown".to_owned()),
            Some(end) if end < now => Some(format!("the longest usually ended {}", distance(end))),
            Some(end) => Some(format!("the longest usually ends {}", distance(end))),
            None => None,
        });
    }
    let next_fire = jobs.iter().filter_map(|job| job.next_run_at).min();
    facts.extend(next_fire.map(|fire| format!("next fire {}", distance(fire))));
    format!("\nSafe to stop now: {}\n", facts.join("; "))
}

/// Returns the first findings as a table. If findings or remedies are left out, adds a line with
/// the command that prints them.
fn section(
    heading: &str,
    findings: &[&Finding],
    command: &str,
    has_remedies: bool,
) -> anyhow::Result<String> {
    let (shown, more) = health::first(findings, LISTED);
    let table = if has_remedies { FINDINGS } else { FOUND };
    let table = print::section(heading, &shown, &table.wrapped())?;
    Ok(match (more, has_remedies) {
        _ if table.is_empty() => table,
        (0, true) => table,
        (0, false) => format!("{table} remedies: `jobctl {command}`\n"),
        _ => format!("{table} and {more} more: `jobctl {command}`\n"),
    })
}
