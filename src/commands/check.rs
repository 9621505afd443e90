//! `jobctl check`: prints nothing while all is well, else a line for each problem.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Database;
use super::arguments::{Output, length, within};
use crate::exit::Exit;
use crate::health::limits::{RUN_OVERDUE, TICK_OVERDUE, Thresholds};
use crate::health::{self, Finding, Severity};
use crate::print;
use crate::text::duration;
use crate::text::plain::plain;

/// The longest `--within`: the query reads all failures of this time.
const WEEK: Duration = Duration::from_secs(7 * 86400);
const YEAR: Duration = Duration::from_secs(365 * 86400);

/// Report problems, a line each, with exit status 1; or print nothing
///
/// For cron, which mails the lines, and for any monitor that reads the exit status:
///
///   */5 * * * * jobctl check --max-lag 30m
///
/// A database that can't be reached is exit 5, with its line on stderr.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Number of dead runs to tolerate; retry or prune the others
    #[arg(long, value_name = "N", default_value = "0", value_parser = within(0, i64::MAX))]
    max_dead: i64,
    /// Age up to which a dead run counts [default: any]
    #[arg(long, value_name = "DURATION", value_parser = length(Duration::from_secs(1), YEAR))]
    max_dead_within: Option<Duration>,
    /// Longest time that a run may be due, a schedule late, or a lost lease not recovered
    #[arg(
        long,
        value_name = "DURATION",
        default_value = duration::show(RUN_OVERDUE),
        value_parser = length(Duration::ZERO, YEAR)
    )]
    max_lag: Duration,
    /// Longest time without a tick of a worker; reports a stopped worker for up to a day
    #[arg(
        long,
        value_name = "DURATION",
        default_value = duration::show(TICK_OVERDUE),
        value_parser = length(Duration::ZERO, YEAR)
    )]
    max_tick_age: Duration,
    /// Longest time that a run may be running [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = length(Duration::ZERO, YEAR))]
    max_running: Option<Duration>,
    /// Number of recent failed attempts to tolerate [default: no limit]
    #[arg(long, value_name = "N", value_parser = within(0, i64::MAX))]
    max_failures: Option<i64>,
    /// Age up to which a failure is recent
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        requires = "max_failures",
        value_parser = length(Duration::from_secs(1), WEEK)
    )]
    within: Duration,
    /// Check only these jobs, and all workers
    #[arg(long, value_name = "J", num_args = 1.., value_delimiter = ',')]
    job: Vec<String>,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        for job in &self.job {
            // A misspelt job would never have a problem.
            super::known_job(&store, job)?;
        }
        let jobs = if self.job.is_empty() { None } else { Some(self.job) };
        let limits = Thresholds {
            dead: self.max_dead,
            dead_within: self.max_dead_within,
            lag: self.max_lag,
            tick_age: self.max_tick_age,
            running: self.max_running,
            failures: self.max_failures.map(|most| (most, self.within)),
        };
        let mut findings = health::work(&store.inspect_work(jobs, limits)?, &limits);
        findings.retain(|finding| finding.severity == Severity::Bad);
        if self.output.form().is_json() {
            print::json(&json!({"fine": findings.is_empty(), "findings": findings}))?;
        } else {
            print::answer(&findings.iter().map(line).collect::<String>())?;
        }
        Ok(if findings.is_empty() { Exit::Done } else { Exit::CouldNot })
    }
}

/// One finding. The line stays the same as long as the problem does, so that mails can be compared.
fn line(finding: &Finding) -> String {
    let sentence = finding.sentence(|at| format!("since {}", at.format("%Y-%m-%d %H:%M UTC")));
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    plain(&(sentence + &remedy)) + "\n"
}
