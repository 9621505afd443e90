//! `jobctl check`: prints nothing while all is well, else a line for each problem.

use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::DatabaseFlags;
use super::arguments::{length, up_to, within};
use crate::exit::Exit;
use crate::files::Note;
use crate::health::{self, Finding, Severity};
use crate::job::thresholds::{RUN_OVERDUE, TICK_OVERDUE, Thresholds};
use crate::print::{self, Output, Table};
use crate::text::duration::{self, DAY, MINUTE, SECOND, YEAR};
use crate::text::plain::plain;

/// Report problems with exit status 1, or print nothing
///
/// For cron, which mails the lines, and for any monitor that reads the exit status:
///
///   */5 * * * * jobctl check --max-lag 30m --repeat 1h
///
/// --repeat remembers the printed problems in ~/.local/state/jobctl. A database
/// that can't be reached is exit 5, with its line on stderr. Holds and paused
/// schedules are problems if they do not end and are older than a day, and holds
/// also if they keep a scheduled job late. Until then, --json and a terminal show
/// them as facts.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Number of dead runs to tolerate, of all jobs together
    #[arg(long, value_name = "N", default_value = "0", value_parser = within(0, i64::MAX))]
    max_dead: i64,
    /// Count only runs that died within this time [default: any]
    #[arg(long, value_name = "DURATION", value_parser = length(SECOND, YEAR))]
    max_dead_within: Option<Duration>,
    /// Longest time that a run may be due, a schedule late, or a lost lease not recovered
    #[arg(
        long,
        value_name = "DURATION",
        default_value = duration::show(RUN_OVERDUE),
        value_parser = up_to(YEAR)
    )]
    max_lag: Duration,
    /// Longest time without a tick of a worker; see `jobctl forget`
    #[arg(
        long,
        value_name = "DURATION",
        default_value = duration::show(TICK_OVERDUE),
        value_parser = length(MINUTE, YEAR)
    )]
    max_tick_age: Duration,
    /// Longest time that a run may be running [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = up_to(YEAR))]
    max_running: Option<Duration>,
    /// Number of recent failed attempts to tolerate [default: no limit]
    #[arg(long, value_name = "N", value_parser = within(0, i64::MAX))]
    max_failures: Option<i64>,
    /// Count failed attempts of this last time; needs --max-failures
    // A week at most, because the query reads all failures of this time.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        requires = "max_failures",
        value_parser = length(SECOND, 7 * DAY)
    )]
    within: Duration,
    /// Print nothing until a problem is new, or this long after the last output
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with_all = ["json", "format"],
        value_parser = up_to(YEAR)
    )]
    repeat: Option<Duration>,
    /// Check only these jobs, and all workers
    #[arg(long, value_name = "JOB", num_args = 1.., value_delimiter = ',')]
    job: Vec<String>,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let arguments = format!("{self:?}");
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
        let work = store.inspect_work(jobs, limits)?;
        let mut findings = health::work(&work, &limits);
        findings.retain(|finding| matches!(finding.severity, Severity::Bad | Severity::Info));
        let (findings, facts): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.severity == Severity::Bad);
        if self.output.asks_for_tsv() {
            print::rows(self.output, &findings, &Table::new("", ""))?;
        } else if self.output.is_json() {
            let fine = findings.is_empty();
            print::json(&json!({"fine": fine, "findings": findings, "facts": facts}))?;
        } else if let Some(repeat) = self.repeat {
            let subject = format!("{arguments} {}", database.target()?);
            let note =
                Note::of("check", subject).context("--repeat needs HOME or XDG_STATE_HOME")?;
            print_new(&note, &findings, work.now, repeat)?;
        } else {
            print::answer(&findings.iter().map(line).collect::<String>())?;
        }
        // Cron mails all output, and a fact needs no mail.
        if self.output.is_for_people() {
            let facts = facts.iter().map(|fact| format!("info: {}", line(fact)));
            print::answer(&facts.collect::<String>())?;
        }
        Ok(if findings.is_empty() { Exit::Done } else { Exit::CouldNot })
    }
}

/// The note of what `check` printed for the same flags and the same database.
#[derive(Default, Deserialize, Serialize)]
struct Remembered {
    printed_at: DateTime<Utc>,
    /// The subjects of the last check, printed or not.
    subjects: Vec<String>,
}

/// Prints the findings, the new ones first. Prints none if no finding is new and the last were
/// printed less than `repeat` before `now`. A note that can't be written hides no finding.
fn print_new(
    note: &Note,
    findings: &[Finding],
    now: DateTime<Utc>,
    repeat: Duration,
) -> anyhow::Result<()> {
    let previous: Remembered = note.read().unwrap_or_default();
    let subjects: Vec<_> = findings.iter().map(Finding::subject).collect();
    let (known, new): (Vec<_>, Vec<_>) =
        findings.iter().partition(|finding| previous.subjects.contains(&finding.subject()));
    let is_due = (now - previous.printed_at).to_std().unwrap_or_default() >= repeat;
    let mut lines = String::new();
    if is_due || !new.is_empty() {
        lines.extend(new.into_iter().map(|finding| format!("new: {}", line(finding))));
        lines.extend(known.into_iter().map(line));
    }
    print::answer(&lines)?;
    let printed_at = if lines.is_empty() { previous.printed_at } else { now };
    if let Err(error) = note.write(&Remembered { printed_at, subjects }, |_| false) {
        print::complain(&format!("cannot write {}: {error}", note.path().display()));
    }
    Ok(())
}

/// One finding. The line has no age, so that mails about the same problem are the same.
fn line(finding: &Finding) -> String {
    let sentence = finding.sentence(|at| format!("since {}", at.format("%Y-%m-%d %H:%M UTC")));
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    plain(&(sentence + &remedy)) + "\n"
}
