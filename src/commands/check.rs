//! `jobctl check`: prints nothing while all is well, else a line for each problem.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::DatabaseFlags;
use super::arguments::{JobArgument, host_user, length, up_to, within};
use crate::execute::{Executor, HostPolicy, ShellPolicy, Stop};
use crate::exit::{Exit, Fault};
use crate::files::Note;
use crate::health::{self, Finding, Severity};
use crate::job::action::{Action, JobKind};
use crate::job::attempt::{AttemptIdentity, Outcome};
use crate::job::failure::Failure;
use crate::job::finding_code::Code;
use crate::job::thresholds::{RUN_OVERDUE, TICK_OVERDUE, Thresholds};
use crate::print::{self, Output, Table};
use crate::store::Store;
use crate::text::duration::{self, DAY, MINUTE, SECOND, YEAR};
use crate::text::plain::plain;

/// The time limit of --exec and --webhook.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The kind of a definition, and its action as JSON.
type Receiver = (JobKind, String);

/// Report problems with exit status 1, or print nothing
///
/// For cron, which mails the lines, and for any monitor that reads the exit status:
///
///   */5 * * * * jobctl check --max-lag 30m --repeat 1h
///   */5 * * * * jobctl check --exec 'mail -s jobctl ops@example.com'
///
/// A dead run is a problem at once, and a job after three failed attempts in a row,
/// or as many as its `alert_after` says.
///
/// --repeat, --exec and --webhook remember the problems in ~/.local/state/jobctl.
/// If the command of --exec or the call fails, they do not, so the next check
/// reports the problems again. If the database can't be reached, the exit status
/// is 5 and stderr has the error; --exec and --webhook report it, too. Holds and
/// paused schedules without an end are problems after a day, and holds also if
/// they keep a scheduled job late. Until then, --json and a terminal show them as
/// facts.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(group = ArgGroup::new("Memory").args(["repeat", "exec", "webhook"]).multiple(true))]
pub(crate) struct Arguments {
    #[command(flatten)]
    name: JobArgument,
    /// Number of dead runs to tolerate, of all jobs together
    #[arg(long, value_name = "N", default_value = "0", value_parser = within(0, i64::MAX))]
    max_dead: i64,
    /// Count only runs that died within this time [default: any]
    #[arg(long, value_name = "DURATION", value_parser = length(SECOND, YEAR))]
    max_dead_within: Option<Duration>,
    /// Report what has waited longer than this: due runs, late schedules, and lost leases that no
    /// tick has recovered
    #[arg(
        long,
        value_name = "DURATION",
        default_value = duration::show(RUN_OVERDUE),
        value_parser = up_to(YEAR)
    )]
    max_lag: Duration,
    /// Report workers that have not ticked for this long; `jobctl forget` removes one that is gone
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
    /// With --max-failures, count the attempts that failed within this time
    // A week at most, because the query reads all failures of this time.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        requires = "max_failures",
        value_parser = length(SECOND, 7 * DAY)
    )]
    within: Duration,
    /// Print the problems only if one is new, or if they were last printed this long ago
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with_all = ["json", "format"],
        value_parser = up_to(YEAR)
    )]
    repeat: Option<Duration>,
    /// When a problem is new, pass all to this command, on stdin: lines, or JSON with --json
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["webhook", "format"])]
    exec: Option<String>,
    /// When a problem is new, post all problems to this URL as JSON: `text` has the printed lines,
    /// as Slack reads them
    #[arg(long, value_name = "URL", conflicts_with_all = ["json", "format"])]
    webhook: Option<String>,
    /// Also report when a problem is over
    #[arg(long, requires = "Memory")]
    resolved: bool,
    /// Check only these jobs, and all workers
    #[arg(long, value_name = "JOB", num_args = 1.., value_delimiter = ',')]
    job: Vec<String>,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(mut self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let receiver = self.receiver()?;
        let note = self.note(database)?;
        self.job.extend(self.name.name.take());
        let jobs = Some(std::mem::take(&mut self.job)).filter(|jobs| !jobs.is_empty());
        let store = database.open();
        let read = store.and_then(|store| Ok((self.read_findings(&store, jobs)?, store)));
        let ((findings, facts, now), store) = match read {
            Ok(read) => read,
            Err(error) => return self.report_outage(note.as_ref(), receiver.as_ref(), error),
        };
        if let Some(note) = &note {
            self.report_new(note, receiver.as_ref(), &findings, (&store, now))?;
        } else if self.output.asks_for_tsv() {
            print::rows(self.output, &findings, &Table::new("", ""))?;
        } else if self.output.is_json() {
            let fine = findings.is_empty();
            print::json(&json!({"fine": fine, "findings": findings, "facts": facts}))?;
        } else {
            print::answer(&findings.iter().map(line).collect::<String>())?;
        }
        // Print facts only on a terminal: cron mails all output, and a fact needs no mail.
        if self.output.is_for_people() {
            let facts = facts.iter().map(|fact| format!("info: {}", line(fact)));
            print::answer(&facts.collect::<String>())?;
        }
        Ok(if findings.is_empty() { Exit::Done } else { Exit::CouldNot })
    }

    /// Returns the problems, the facts, and the database's time.
    fn read_findings(
        &self,
        store: &Store,
        jobs: Option<Vec<String>>,
    ) -> anyhow::Result<(Vec<Finding>, Vec<Finding>, DateTime<Utc>)> {
        for job in jobs.iter().flatten() {
            // A misspelt job would never have a problem.
            super::check_job_exists(store, job)?;
        }
        let thresholds = Thresholds {
            dead: self.max_dead,
            dead_within: self.max_dead_within,
            lag: self.max_lag,
            tick_age: self.max_tick_age,
            running: self.max_running,
            failures: self.max_failures.map(|most| (most, self.within)),
        };
        let work = store.inspect_work(jobs, thresholds)?;
        let mut findings = health::work(&work, &thresholds);
        findings.retain(|finding| matches!(finding.severity, Severity::Bad | Severity::Info));
        let (findings, facts) =
            findings.into_iter().partition(|finding| finding.severity == Severity::Bad);
        Ok((findings, facts, work.now))
    }

    /// Returns the file that remembers the problems; `None` for a check that only prints. Each
    /// database and each combination of flags has its own file.
    fn note(&self, database: &DatabaseFlags) -> anyhow::Result<Option<Note>> {
        let flag = match (&self.exec, &self.webhook, self.repeat) {
            (Some(_), ..) => "--exec",
            (_, Some(_), _) => "--webhook",
            (.., Some(_)) => "--repeat",
            _ => return Ok(None),
        };
        let note = Note::of("check", &database.target()?.to_string(), format!("{self:?}"));
        note.map(Some).with_context(|| format!("{flag} needs HOME or XDG_STATE_HOME"))
    }

    /// Returns the command or the call that gets the problems, without its input; `None`: they are
    /// printed.
    fn receiver(&self) -> anyhow::Result<Option<Receiver>> {
        let (kind, action) = match (&self.exec, &self.webhook) {
            (Some(command), _) => (JobKind::Shell, json!({"command": command})),
            (None, Some(url)) => (JobKind::Http, json!({"url": url})),
            (None, None) => return Ok(None),
        };
        let action = action.to_string();
        // Fail now if the command or the URL is wrong, not at the first problem.
        Action::of_definition(kind, &action, "{}").map_err(Fault::usage)?;
        Ok(Some((kind, action)))
    }

    /// Reports the findings, the new ones first, records the report in the trail, and remembers the
    /// findings in the file. Reports nothing if no finding is new or over, and the last report is
    /// more recent than `--repeat`. If the trail or the file can't be written, the findings are
    /// reported anyway.
    fn report_new(
        &self,
        note: &Note,
        receiver: Option<&Receiver>,
        findings: &[Finding],
        (store, now): (&Store, DateTime<Utc>),
    ) -> anyhow::Result<()> {
        let mut previous: Remembered = note.read().unwrap_or_default();
        let (known, new): (Vec<_>, Vec<_>) =
            findings.iter().partition(|finding| previous.subjects.contains(&finding.subject()));
        for finding in findings {
            previous.lines.remove(&finding.scope());
        }
        let hidden = take_hidden(&mut previous, findings);
        // The lines that are left are of problems that are over.
        let resolved: Vec<_> =
            if self.resolved { previous.lines.into_values().collect() } else { Vec::new() };
        let repeats_known = !known.is_empty() && self.is_repeat_due(previous.reported_at, now);
        let reports = repeats_known || !new.is_empty() || !resolved.is_empty();
        if reports {
            let fine = findings.is_empty();
            let news = News { fine, new, known, resolved };
            let reported = self.report(receiver, &news);
            self.record(store, &news, reported.as_ref().err());
            reported?;
        }
        let reported_at = if reports { now } else { previous.reported_at };
        let mut remembered = Remembered { reported_at, ..Remembered::default() };
        findings.iter().for_each(|finding| remembered.add(finding));
        remembered.subjects.extend(hidden.subjects);
        remembered.lines.extend(hidden.lines);
        remembered.write(note);
        Ok(())
    }

    /// Records in the trail the reported problems, and whether the receiver got them.
    fn record(&self, store: &Store, news: &News<'_>, failed: Option<&anyhow::Error>) {
        let outcome = match failed {
            None => format!("delivered to {}", self.receiver_name()),
            Some(why) => format!("not delivered: {why:#}"),
        };
        let lines = news.lines().into_iter();
        let (jobs, lines): (Vec<_>, Vec<_>) =
            lines.map(|(job, line)| (job, line.trim_end().to_owned())).unzip();
        if let Err(error) = store.record_alerts(&host_user(), &outcome, jobs, lines) {
            print::complain(&error.to_string());
        }
    }

    /// Returns the receiver's name, without secrets: of a command line only the program, of a URL
    /// only the host.
    fn receiver_name(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        match (&self.exec, &self.webhook) {
            (Some(command), _) => {
                let program = command.split_whitespace().next().unwrap_or_default();
                let program = if program.chars().all(is_plain) { program } else { "--exec" };
                format!("the command {program}")
            }
            (None, Some(url)) => {
                let host = Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
                format!("the webhook of {}", host.unwrap_or_default())
            }
            (None, None) => "stdout".to_owned(),
        }
    }

    /// Handles an error that kept `check` from reading the findings. Without a file, or if the
    /// database can be reached, returns the error. Otherwise, the outage is a problem like others:
    /// it is reported once, and again after `--repeat`. The file keeps the other problems.
    fn report_outage(
        &self,
        note: Option<&Note>,
        receiver: Option<&Receiver>,
        error: anyhow::Error,
    ) -> anyhow::Result<Exit> {
        let is_outage = super::exit_of(&error) == Exit::Unavailable;
        let Some(note) = note.filter(|_| is_outage) else { return Err(error) };
        let mut remembered: Remembered = note.read().unwrap_or_default();
        let found = format!("{error:#}");
        let outage = Finding { severity: Severity::Bad, found, ..Finding::default() };
        // The database can't be reached, so only this host's clock is left.
        let now = DateTime::<Utc>::from(SystemTime::now());
        let is_known = remembered.subjects.contains(&outage.subject());
        if is_known && !self.is_repeat_due(remembered.outage_at, now) {
            return Ok(Exit::Unavailable);
        }
        if receiver.is_some() {
            let (known, new) =
                if is_known { (vec![&outage], vec![]) } else { (vec![], vec![&outage]) };
            if let Err(failed) = self.report(receiver, &News { new, known, ..News::default() }) {
                print::complain(&format!("{failed:#}"));
                return Err(error);
            }
        }
        remembered.outage_at = now;
        if !is_known {
            remembered.add(&outage);
        }
        remembered.write(note);
        if receiver.is_some() { Ok(Exit::Unavailable) } else { Err(error) }
    }

    /// Returns whether known problems must be reported again, because `--repeat` has passed since
    /// their last report.
    fn is_repeat_due(&self, reported_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
        let since = (now - reported_at).to_std();
        // A time in the future was remembered while the clock was ahead: report again.
        self.repeat.is_some_and(|repeat| since.map_or(true, |since| since >= repeat))
    }

    /// Prints the news, or passes them on.
    fn report(&self, receiver: Option<&Receiver>, news: &News<'_>) -> anyhow::Result<()> {
        let Some(receiver) = receiver else { return print::answer(&news.text()) };
        let sent = self.send(receiver, news);
        sent.with_context(|| format!("cannot report the problems to {}", self.receiver_name()))
    }

    /// Sends the news to the receiver in the way in which the job of a run gets its payload.
    fn send(&self, (kind, action): &Receiver, news: &News<'_>) -> anyhow::Result<()> {
        let text = news.text();
        let input = match kind {
            JobKind::Shell if !self.output.is_json() => text,
            _ => {
                let mut body = serde_json::to_value(news).context("cannot write JSON")?;
                body["text"] = text.trim_end().into();
                format!("{body}\n")
            }
        };
        let action = Action::of_definition(*kind, action, &input).map_err(Fault::usage)?;
        let identity = AttemptIdentity {
            run_id: 0,
            job: "check".to_owned(),
            attempt: 1,
            max_attempts: 1,
            idempotency_key: format!("check-{:016x}", rand::random::<u64>()),
            scheduled_for: None,
            after: None,
            traceparent: None,
        };
        // No lease ends here: this limit only has to be later than the timeout.
        let stop = Stop::new(Instant::now() + 2 * REPORT_TIMEOUT, SECOND);
        let hosts = HostPolicy::new(&[]).map_err(Fault::usage)?;
        let executor = Executor::new(ShellPolicy::Any, hosts);
        let result = executor.execute(&action, &identity, Some(REPORT_TIMEOUT), &stop);
        match result.outcome {
            Outcome::Succeeded => Ok(()),
            // The last line of the shell names the program that it did not find.
            Outcome::Failed(failure @ Failure::ExitCode(127)) => {
                let line = result.output.text.lines().last().unwrap_or_default();
                let note = result.note.unwrap_or_default();
                bail!("{failure}: {line}; {note}")
            }
            Outcome::Failed(failure) => bail!("{failure}"),
            Outcome::Stopped(_) => bail!("it took too long"),
        }
    }
}

/// The problems to report.
#[derive(Default, Serialize)]
struct News<'a> {
    fine: bool,
    new: Vec<&'a Finding>,
    known: Vec<&'a Finding>,
    /// The lines of problems that are over.
    resolved: Vec<String>,
}

impl News<'_> {
    /// Returns a job and a line for each problem: new problems, those that are over, and known
    /// ones.
    fn lines(&self) -> Vec<(Option<&str>, String)> {
        let mut lines = Vec::new();
        for finding in &self.new {
            lines.push((finding.job_type.as_deref(), format!("new: {}", line(finding))));
        }
        for line in &self.resolved {
            lines.push((None, format!("resolved: {line}")));
        }
        for finding in &self.known {
            lines.push((finding.job_type.as_deref(), line(finding)));
        }
        lines
    }

    fn text(&self) -> String {
        self.lines().into_iter().map(|(_, line)| line).collect()
    }
}

/// What a file remembers of the last check with the same flags and the same database.
#[derive(Default, Deserialize, Serialize)]
struct Remembered {
    reported_at: DateTime<Utc>,
    /// When an outage was last reported, by this host's clock.
    #[serde(default)]
    outage_at: DateTime<Utc>,
    /// The subjects of that check's findings, reported or not.
    subjects: Vec<String>,
    /// The lines of these findings, by scope.
    lines: BTreeMap<String, String>,
}

impl Remembered {
    fn add(&mut self, finding: &Finding) {
        self.subjects.push(finding.subject());
        self.lines.insert(finding.scope(), line(finding));
    }

    fn write(&self, note: &Note) {
        if let Err(error) = note.write(self, |_| false) {
            print::complain(&format!("cannot write {}: {error}", note.path().display()));
        }
    }
}

/// Moves problems from `previous` to the returned memory: while ticks do no work, some checks are
/// skipped, and their earlier problems count as neither over nor new. Otherwise moves nothing.
fn take_hidden(previous: &mut Remembered, findings: &[Finding]) -> Remembered {
    let skips_checks = health::idle(findings).is_some();
    let is_hidden = |scope: &str| {
        // A scope and a subject begin with the code.
        let code = scope.split(' ').next().and_then(Code::of);
        skips_checks
            && code.is_some_and(|code| health::SKIPPED_WITHOUT_TICKS.contains(&code.check()))
    };
    let subjects = previous.subjects.iter().filter(|subject| is_hidden(subject)).cloned();
    let subjects = subjects.collect();
    let lines = std::mem::take(&mut previous.lines);
    let (lines, rest) = lines.into_iter().partition(|(scope, _)| is_hidden(scope));
    previous.lines = rest;
    Remembered { subjects, lines, ..Remembered::default() }
}

/// Returns the line about a finding. The line names a time instead of an age, so that all mails
/// about one problem have the same line.
fn line(finding: &Finding) -> String {
    let sentence = finding.sentence(|at| format!("since {}", health::minute(at)));
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    plain(&(sentence + &remedy)) + "\n"
}
