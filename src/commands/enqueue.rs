//! `jobctl enqueue`: one run, or a batch. All checks come before the first row.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Args, ValueHint};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::arguments::{Read, run_id, run_key, seconds, share, time, within};
use super::{DatabaseFlags, wait};
use crate::exit::{Exit, Fault};
use crate::files;
use crate::job::action::{self, Action, JobKind, MOST_ATTEMPTS};
use crate::job::backoff;
use crate::job::definition;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope, OnConflict};
use crate::job::payload::{self, PAYLOAD_LIMIT};
use crate::job::status::Status;
use crate::print::{self, Format, Output, Progress};
use crate::schedule::Schedule;
use crate::store::{Accepted, Dependencies, EncodedRun, NewRun, Predecessor, Queued, Run, Store};
use crate::text::duration::{self, YEAR};
use crate::text::{plural, timestamp};

/// Bytes of a line of a batch: a payload, and room for the rest.
const LINE_LIMIT: usize = PAYLOAD_LIMIT + 16 * 1024;

/// Enqueue a job and print its run's id
///
/// JOB is the name of a definition. Or it is shell or http; then the payload has
/// the command or the call:
///
///   jobctl enqueue send_weekly_report '{"user_id": 12345}'
///   jobctl enqueue shell -- pg_dump -f /backup/app.sql app
///   jobctl enqueue shell '{"command": "pg_dump -Z6 app >new && mv new app.gz"}'
///   jobctl enqueue http '{"url": "https://app.example/mail", "json": {"user": 5}}'
///
/// A flag has precedence over the definition. Without a flag and a definition, the
/// queue is `default`, the priority 0, the backoff exponential:1m..30m, and a run
/// starts at most 10 times. An http job then has a timeout of 30s, a shell job
/// none.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A definition's name, or shell or http
    #[arg(value_name = "JOB", required_unless_present = "batch")]
    job: Option<String>,
    /// JSON; with a command after --, the input of the command
    #[arg(allow_negative_numbers = true, conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Run this command, without a shell in between
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Read the payload from a file, or from stdin
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    payload_file: Option<String>,
    #[command(flatten)]
    request: Request,
    /// Enqueue a JSON object a line, all or none: job_type, payload, idempotency_key, and flags
    #[arg(
        long,
        value_name = "FILE|-",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = [
            "job", "payload", "command", "run_at", "in", "next", "time_zone", "key", "key_scope",
            "on_conflict", "debounce", "debounce_max", "payload_file"
        ]
    )]
    batch: Option<String>,
    /// After the batch, enqueue a run of this job that waits for all runs of the batch;
    /// --after-any-end and --or-cancel are then its flags
    #[arg(long, value_names = ["JOB", "PAYLOAD"], num_args = 1..=2, requires = "batch",
        conflicts_with = "after")]
    then: Vec<String>,
    /// Wait until the run has ended, or this long, and exit as `jobctl wait`
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        value_parser = duration::parse
    )]
    wait: Option<Option<Duration>>,
    #[command(flatten)]
    output: Output,
}

/// A run as the flags or a line of a batch describe it. The flags are also the defaults of the
/// lines.
#[derive(Args, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[arg(skip)]
    job_type: String,
    #[arg(skip)]
    payload: Option<Box<RawValue>>,
    /// The queue; a tick can serve only some queues
    #[arg(long, value_name = "QUEUE", value_parser = definition::queue)]
    #[serde(default, deserialize_with = "read::queue")]
    queue: Option<String>,
    /// Runs with a smaller number start first
    #[arg(long, value_name = "N", value_parser = within(i32::MIN, i32::MAX))]
    priority: Option<i32>,
    /// Wait after a failure: fixed:1m, exponential:1m..30m, polynomial:10s, list:1m,5m,30m
    #[arg(long, value_name = "SPEC", value_parser = backoff::check)]
    #[serde(default, deserialize_with = "read::backoff")]
    backoff: Option<String>,
    /// Number of attempts, crashes included, after which the run is dead
    #[arg(long, value_name = "N", value_parser = within(1, MOST_ATTEMPTS))]
    max_attempts: Option<i32>,
    /// Time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = timeout())]
    #[serde(default, deserialize_with = "read::timeout")]
    timeout: Option<f64>,
    /// Do not start before this time: RFC 3339, with its offset
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "in")]
    #[serde(default, deserialize_with = "read::time")]
    run_at: Option<DateTime<Utc>>,
    /// Do not start before this much time has passed
    #[arg(long, value_name = "DURATION", value_parser = wait())]
    #[serde(default, deserialize_with = "read::wait")]
    r#in: Option<f64>,
    /// Do not start before the next time of this schedule, as in a definition: '0 9 * * mon'
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["run_at", "in"])]
    next: Option<String>,
    /// Time zone of --next: an area and city as in America/New_York [default: UTC]
    #[arg(long, value_name = "TZ", requires = "next")]
    time_zone: Option<String>,
    /// Cancel the run if it has not started this long after its time
    #[arg(long, value_name = "DURATION", value_parser = expires_in())]
    #[serde(default, deserialize_with = "read::expires_in")]
    expires_in: Option<f64>,
    /// The tenant or customer it runs for: runs of a limited job start in turns between shares
    #[arg(long, value_name = "NAME", value_parser = share)]
    #[serde(default, deserialize_with = "read::share")]
    share: Option<String>,
    /// Enqueue once: the same key and payload return the same run
    #[arg(long, value_name = "KEY", value_parser = run_key)]
    #[serde(default, deserialize_with = "read::key", rename = "idempotency_key")]
    key: Option<String>,
    /// How long the key is taken: retained (until pruned) or live (until finished)
    #[arg(long, value_name = "SCOPE", requires = "key")]
    #[serde(default, deserialize_with = "read::key_scope")]
    key_scope: Option<KeyScope>,
    /// If the key has a run: same returns it if the payload is equal, replace changes the waiting
    /// run (needs --key-scope live), error fails [default: same]
    #[arg(long, value_name = "WHAT", requires = "key", hide_possible_values = true)]
    #[serde(default, deserialize_with = "read::on_conflict")]
    on_conflict: Option<OnConflict>,
    /// Start when this much time has passed without another enqueue of this key; replaces the
    /// waiting run, and needs --key-scope live
    #[arg(
        long,
        value_name = "DURATION",
        requires = "key",
        value_parser = wait(),
        conflicts_with_all = ["run_at", "in", "next"]
    )]
    #[serde(default, deserialize_with = "read::wait")]
    debounce: Option<f64>,
    /// Start at the latest this much time after the first enqueue
    #[arg(long, value_name = "DURATION", requires = "debounce", value_parser = wait())]
    #[serde(default, deserialize_with = "read::wait")]
    debounce_max: Option<f64>,
    /// Start only when these runs have succeeded: ids with commas, as 17,18
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = after)]
    #[serde(default)]
    after: Vec<After>,
    /// Start when the runs of --after have ended, with or without success
    #[arg(long)]
    #[serde(default)]
    after_any_end: bool,
    /// Cancel the run if one of the runs of --after dies or is cancelled
    #[arg(long, conflicts_with = "after_any_end")]
    #[serde(default)]
    or_cancel: bool,
    /// The name of a line of a batch, for `after` in later lines.
    #[arg(skip)]
    r#as: Option<String>,
}

/// A run that another waits for.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "it has ids of runs and names of earlier lines")]
enum After {
    Id(i64),
    Name(String),
}

fn after(text: &str) -> Result<After, String> {
    run_id(text).map(After::Id)
}

/// Readers of the fields of a line, by the rules of the flags.
mod read {
    use serde::{Deserializer, de};

    use super::*;

    macro_rules! readers {
        ($($name:ident: $kind:ty = $reader:expr;)+) => {$(
            pub(super) fn $name<'de, D>(deserializer: D) -> Result<Option<$kind>, D::Error>
            where
                D: Deserializer<'de>,
            {
                let text = Option::<String>::deserialize(deserializer)?;
                text.map(|text| $reader(&text)).transpose().map_err(de::Error::custom)
            }
        )+};
    }

    readers! {
        queue: String = definition::queue;
        backoff: String = backoff::check;
        timeout: f64 = super::timeout();
        time: DateTime<Utc> = super::time;
        wait: f64 = super::wait();
        expires_in: f64 = super::expires_in();
        share: String = super::share;
        key: String = run_key;
        key_scope: KeyScope = str::parse;
        on_conflict: OnConflict = str::parse;
    }
}

/// A run to enqueue.
struct Asked {
    /// The line of a batch.
    line: Option<usize>,
    run: EncodedRun,
    /// The run's time is the next time of this schedule.
    next: Option<Box<Schedule>>,
    waits: Option<Box<Waits>>,
}

/// What a run of a batch is called, and what it waits for.
#[derive(Debug)]
struct Waits {
    name: Option<String>,
    after: Vec<After>,
    rule: AfterRule,
}

impl Arguments {
    pub(crate) fn run(mut self: Box<Self>, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let batch = self.batch.take();
        let mut queues = BTreeSet::from_iter(self.request.queue.clone());
        let rule = self.request.rule();
        if !self.then.is_empty() {
            // Of the run of --then, and not of the lines.
            (self.request.after_any_end, self.request.or_cancel) = (false, false);
        }
        let mut runs = match &batch {
            Some(file) => read_batch(BufReader::new(open(file)?), |line| {
                queues.extend(line.queue.clone());
                line.over(&self.request)
            })?,
            None => vec![self.asked()?],
        };
        let mut dependencies = dependencies(&runs)?;
        if let Some(run) = self.then()? {
            let after = (0..runs.len()).map(Predecessor::InBatch).collect();
            dependencies.push(Dependencies { run: runs.len(), after, rule });
            runs.push(run);
        }
        let answers = enqueue(database, runs, dependencies, &queues)?;
        let dropped = answers.iter().filter(|answer| answer.id.is_none()).count();
        if dropped > 0 {
            let runs = plural::of(dropped as i64, "run");
            print::complain(&format!("{runs} dropped: the definition is full"));
        }
        complain_of_existing(&answers);
        let printed = match self.output.format() {
            Format::Json if batch.is_some() => print::json(&answers),
            Format::Json | Format::JsonLines => answers.iter().try_for_each(print::json),
            Format::Table | Format::Tsv => print_ids(self.output, &answers),
        };
        printed.with_context(|| match (&batch, answers.as_slice()) {
            (None, [Accepted { id: Some(id), .. }]) => format!("run {id} is enqueued"),
            _ => format!("{} runs are enqueued", answers.len()),
        })?;
        let Some(timeout) = self.wait else { return Ok(Exit::Done) };
        let ids: Vec<_> = answers.iter().filter_map(|answer| answer.id).collect();
        let ended = match ids.is_empty() {
            false => wait::Arguments::of(ids, timeout).run(database)?,
            true => Exit::Done,
        };
        Ok(if dropped > 0 && ended == Exit::Done { Exit::Full } else { ended })
    }

    fn asked(&mut self) -> anyhow::Result<Asked> {
        let job = self.job.take().unwrap_or_default();
        let payload = RawValue::from_string(self.payload(&job)?).context("cannot read JSON")?;
        let request = Request { job_type: job, payload: Some(payload), ..take(&mut self.request) };
        if request.after.is_empty() && request.rule() != AfterRule::Success {
            return Err(Fault::usage("--after-any-end and --or-cancel need --after").into());
        }
        request.asked(None)
    }

    /// The run of `--then`, with the values of the flags.
    fn then(&self) -> anyhow::Result<Option<Asked>> {
        let Some(job) = self.then.first() else { return Ok(None) };
        let payload = self.then.get(1).map_or("{}", String::as_str);
        let payload = payload::check(payload.as_bytes()).map_err(Fault::usage)?;
        check_job(job, payload).map_err(Fault::usage)?;
        let payload = RawValue::from_string(payload.to_owned()).context("cannot read JSON")?;
        let request =
            Request { job_type: job.clone(), payload: Some(payload), ..Request::default() };
        request.over(&self.request).asked(None).map(Some)
    }

    /// Returns the payload of a run of this job.
    fn payload(&self, job: &str) -> anyhow::Result<String> {
        let given = match (&self.payload_file, &self.payload) {
            (Some(file), _) => Some(read_payload(file)?),
            (None, payload) => payload.as_ref().map(|payload| payload.clone().into_bytes()),
        };
        let refuse =
            |why: &dyn Display, payload: &[u8]| Fault::usage(format!("{why}{}", tip(job, payload)));
        let check = |bytes| payload::check(bytes).map_err(|why| refuse(&why, bytes));
        let payload = given.as_deref().map(check).transpose()?;
        let payload = match (self.command.is_empty(), payload) {
            (false, stdin) if JobKind::of(job) == Some(JobKind::Shell) => {
                command_payload(&self.command, stdin)?
            }
            (false, _) => {
                let why = format!("a command after -- needs the job shell, not {job}");
                return Err(Fault::usage(why).into());
            }
            (true, Some(payload)) => payload.to_owned(),
            (true, None) if action::is_built_in(job) => {
                let why = format!("job {job} needs a payload{}", tip(job, b""));
                return Err(Fault::usage(why).into());
            }
            (true, None) => "{}".to_owned(),
        };
        check_job(job, &payload).map_err(|why| refuse(&why, payload.as_bytes()))?;
        Ok(payload)
    }
}

/// Complains of keys whose run will not run, or later than asked.
fn complain_of_existing(answers: &[Accepted]) {
    let complain = |matches: &dyn Fn(&Accepted) -> bool, why: &dyn Fn(&Accepted, i64) -> String| {
        let mut found = answers.iter().filter(|answer| matches(answer));
        let first = found.next().and_then(|first| Some((first, first.id?)));
        if let Some((first, id)) = first {
            let such = match found.count() {
                0 => format!("run {id} has the key and"),
                more => format!("{} runs have the keys, such as run {id}, which", more + 1),
            };
            print::complain(&format!("{such} {}", why(first, id)));
        }
    };
    let has_ended =
        |answer: &Accepted| matches!(answer.status, Some(Status::Cancelled | Status::Dead));
    complain(&has_ended, &|first, id| {
        let status = first.status.map_or("", Status::as_str);
        format!("is {status}, so nothing will run; `jobctl retry {id}`, or use another key")
    });
    complain(&|answer| answer.due_at.is_some(), &|first, id| {
        let due = first.due_at.map(timestamp::instant).unwrap_or_default();
        format!("is due at {due}, later than asked; `jobctl retry {id}` makes it due now")
    });
}

/// The payload of a shell job that runs these words, with `stdin` as its input.
fn command_payload(words: &[String], stdin: Option<&str>) -> anyhow::Result<String> {
    let command = serde_json::to_string(words).context("cannot write JSON")?;
    let stdin = stdin.map(|stdin| format!(r#", "stdin": {stdin}"#)).unwrap_or_default();
    let payload = format!(r#"{{"command": {command}{stdin}}}"#);
    payload::check(payload.as_bytes()).map_err(Fault::usage)?;
    Ok(payload)
}

/// Suggests a command line if the payload of a built-in job is not an object.
fn tip(job: &str, payload: &[u8]) -> &'static str {
    match JobKind::of(job) {
        _ if payload.trim_ascii_start().starts_with(b"{") => "",
        Some(JobKind::Shell) => "; to run a command: jobctl enqueue shell -- COMMAND",
        Some(JobKind::Http) => r#"; for a call write: jobctl enqueue http '{"url": "URL"}'"#,
        None => "",
    }
}

/// Checks a job and its payload without the database.
pub(super) fn check_job(job: &str, payload: &str) -> Result<(), String> {
    Action::parse(job, payload).map_or(Ok(()), |action| action?.check_program())
}

/// Reads a payload from a file, or from stdin if its name is `-`.
pub(super) fn read_payload(file: &str) -> anyhow::Result<Vec<u8>> {
    // Read one byte more than allowed, to see whether the payload is too long.
    let mut reader = open(file)?.take(PAYLOAD_LIMIT as u64 + 1);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).with_context(|| format!("cannot read `{file}`"))?;
    Ok(bytes)
}

fn open(file: &str) -> anyhow::Result<File> {
    files::input(file).with_context(|| format!("cannot open `{file}`"))
}

/// Returns what the runs of a batch wait for.
fn dependencies(runs: &[Asked]) -> anyhow::Result<Vec<Dependencies>> {
    let mut named = HashMap::new();
    let mut dependencies = Vec::new();
    for (run, Asked { line, waits, .. }) in runs.iter().enumerate() {
        let Some(Waits { name, after, rule }) = waits.as_deref() else { continue };
        let refuse = |why: String| at_line(*line, Fault::usage(why));
        let predecessor = |after: &After| match after {
            After::Id(id) => Ok(Predecessor::Id(*id)),
            After::Name(name) => {
                let index = named.get(name).copied().map(Predecessor::InBatch);
                index.ok_or_else(|| refuse(format!("`after`: no earlier line is named `{name}`")))
            }
        };
        let after: Vec<_> = after.iter().map(predecessor).collect::<Result<_, _>>()?;
        if let Some(name) = name
            && named.insert(name.clone(), run).is_some()
        {
            return Err(refuse(format!("`as`: an earlier line is named `{name}`, too")).into());
        }
        if !after.is_empty() {
            dependencies.push(Dependencies { run, after, rule: *rule });
        }
    }
    Ok(dependencies)
}

/// Returns a run to enqueue; fails if it would expire too late.
fn asked(line: Option<usize>, run: NewRun, next: Option<Schedule>) -> anyhow::Result<Asked> {
    let expiry = run.run_at.zip(run.expires_in);
    if expiry.is_some_and(|(run_at, wait)| timestamp::after(run_at, wait).is_none()) {
        let why = "expires_in is out of range; the run would expire after the year 9999";
        return Err(at_line(line, Fault::usage(why)).into());
    }
    Ok(Asked { line, run: run.encode(), next: next.map(Box::new), waits: None })
}

/// Enqueues all runs or none.
fn enqueue(
    database: &DatabaseFlags,
    mut runs: Vec<Asked>,
    dependencies: Vec<Dependencies>,
    queues: &BTreeSet<String>,
) -> anyhow::Result<Vec<Accepted>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let store = database.open()?;
    if runs.iter().any(|asked| asked.next.is_some()) {
        let now = store.now()?;
        for one in &mut runs {
            let Some(schedule) = &one.next else { continue };
            let next = schedule.first(now).map_err(|why| at_line(one.line, Fault::usage(why)))?;
            let mut run = one.run.decode();
            run.run_at = Some(next);
            *one = asked(one.line, run, None)?;
        }
    }
    super::warn_of_queues(&store, queues.iter().map(String::as_str));
    let progress = Progress::of(Some(runs.len()));
    let shown = progress.clone();
    let (lines, runs): (Vec<_>, Vec<_>) = runs.into_iter().map(|one| (one.line, one.run)).unzip();
    let runs = Arc::new(runs);
    let queued = store.enqueue(Arc::clone(&runs), dependencies, move |done| shown.show(done));
    progress.clear();
    let queued = queued?;
    let fault = |index: usize, answer: &Queued| match answer {
        Queued::Accepted(_) | Queued::NotTried => None,
        Queued::Undefined => Some(super::no_definition(&store, &runs[index].decode().job_type)),
        Queued::Refused(exit, why) => Some(Fault::new(*exit, why)),
        Queued::KeyTaken => {
            let key = runs[index].key();
            let taken = key.map_or("", |(key, _)| key);
            // The other run is rolled back too, so the error names its line.
            let mut others = queued.iter().zip(&*runs).zip(&lines);
            let other = others.find(|((it, its), _)| it.is_new() && its.key() == key);
            let (place, remedy) = match other {
                Some((_, Some(line))) => (format!("is also in line {line}, with"), ""),
                _ => ("belongs to a run with".to_owned(), "; use another key"),
            };
            let why = format!("key `{taken}` {place} another job or payload{remedy}");
            Some(Fault::new(Exit::Conflict, why))
        }
    };
    let mut faults = queued.iter().enumerate().zip(&lines);
    let fault = faults.find_map(|((index, answer), line)| Some((*line, fault(index, answer)?)));
    if let Some((line, fault)) = fault {
        return Err(at_line(line, fault).into());
    }
    let answers: Vec<_> = queued.into_iter().filter_map(Queued::accepted_run).collect();
    complain_of_replaced(&store, &answers, &runs);
    Ok(answers)
}

/// Complains of replaced runs that keep another queue, priority or number of attempts than asked.
/// An enqueuer may not read runs.
fn complain_of_replaced(store: &Store, answers: &[Accepted], runs: &[EncodedRun]) {
    let replaced = answers.iter().zip(runs).filter(|(it, _)| it.result == EnqueueResult::Replaced);
    let asked: HashMap<_, _> =
        replaced.filter_map(|(answer, run)| Some((answer.id?, run.decode()))).collect();
    if asked.is_empty() {
        return;
    }
    let runs = store.runs(asked.keys().copied().collect()).unwrap_or_default();
    let kept = |run: &Run| {
        let NewRun { queue, priority, max_attempts, .. } = asked.get(&run.id)?;
        let differs = [
            ("queue", queue.as_ref().is_some_and(|queue| *queue != run.queue)),
            ("priority", priority.is_some_and(|priority| priority != run.priority)),
            ("max_attempts", max_attempts.is_some_and(|most| most != run.max_attempts)),
        ];
        let words: Vec<_> = differs.iter().filter(|(_, it)| *it).map(|(word, _)| *word).collect();
        (!words.is_empty()).then(|| (run.id, words.join(" and ")))
    };
    let mut kept = runs.iter().filter_map(kept);
    if let Some((id, words)) = kept.next() {
        let others = match kept.count() {
            0 => String::new(),
            more => format!(", and {} too", plural::of(more as i64, "other run")),
        };
        print::complain(&format!(
            "run {id} was waiting, and keeps its {words}{others}; `jobctl edit` changes them"
        ));
    }
}

/// Prints bare ids, for scripts; the line of a dropped run is empty.
fn print_ids(output: Output, answers: &[Accepted]) -> anyhow::Result<()> {
    let header = if output.header && output.format() == Format::Tsv { "id\n" } else { "" };
    let id = |answer: &Accepted| answer.id.map(|id| id.to_string()).unwrap_or_default();
    let lines = answers.iter().map(|answer| id(answer) + "\n").collect::<String>();
    print::answer(&format!("{header}{lines}"))
}

/// Reads all runs of a batch before the transaction begins: a slow writer must not keep it open.
fn read_batch(
    mut input: impl BufRead,
    mut complete: impl FnMut(Request) -> Request,
) -> anyhow::Result<Vec<Asked>> {
    let mut runs = Vec::new();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let limit = LINE_LIMIT as u64 + 1;
        let mut rest = input.by_ref().take(limit);
        if rest.read_until(b'\n', &mut text).context("cannot read the batch")? == 0 {
            break;
        }
        let line = text.trim_ascii();
        let read = if text.len() > LINE_LIMIT {
            Err(format!("longer than {} KiB", LINE_LIMIT / 1024))
        } else if line.is_empty() {
            continue;
        } else {
            read_line(line)
        };
        let line = Some(number);
        let request = read.map_err(|why| at_line(line, Fault::usage(why)))?;
        runs.push(complete(request).asked(line)?);
    }
    Ok(runs)
}

/// Adds the line of a batch to an error.
fn at_line(line: Option<usize>, fault: Fault) -> Fault {
    let Some(line) = line else { return fault };
    Fault::new(fault.exit, format!("cannot enqueue: batch line {line}: {fault}"))
}

fn read_line(text: &[u8]) -> Result<Request, String> {
    // The parser counts lines from 1 in each part.
    let place = |why: String, column| why.replace(" at line 1 column ", column);
    let line: Request = payload::read(text).map_err(|why| place(why, " at column "))?;
    let payload = line.payload.as_ref().map_or("{}", |payload| payload.get());
    payload::check(payload.as_bytes())
        .and_then(|payload| check_job(&line.job_type, payload))
        .map_err(|why| place(why, " at its column "))?;
    Ok(line)
}

impl Request {
    /// Fills in what a line of a batch omits.
    fn over(self, flags: &Self) -> Self {
        Self {
            queue: self.queue.or_else(|| flags.queue.clone()),
            backoff: self.backoff.or_else(|| flags.backoff.clone()),
            priority: self.priority.or(flags.priority),
            max_attempts: self.max_attempts.or(flags.max_attempts),
            timeout: self.timeout.or(flags.timeout),
            expires_in: self.expires_in.or(flags.expires_in),
            share: self.share.or_else(|| flags.share.clone()),
            after_any_end: self.after_any_end || flags.after_any_end && !self.or_cancel,
            or_cancel: self.or_cancel || flags.or_cancel && !self.after_any_end,
            after: if self.after.is_empty() { flags.after.clone() } else { self.after },
            ..self
        }
    }

    fn rule(&self) -> AfterRule {
        match (self.after_any_end, self.or_cancel) {
            (true, _) => AfterRule::AnyEnd,
            (_, true) => AfterRule::OrCancel,
            _ => AfterRule::Success,
        }
    }

    fn asked(mut self, line: Option<usize>) -> anyhow::Result<Asked> {
        let (name, after, rule) = (self.r#as.take(), take(&mut self.after), self.rule());
        if !after.is_empty()
            && (self.debounce.is_some() || self.on_conflict == Some(OnConflict::Replace))
        {
            let why = "`after` excludes replace and debounce";
            return Err(at_line(line, Fault::usage(why)).into());
        } else if self.after_any_end && self.or_cancel {
            let why = "`after_any_end` and `or_cancel` exclude each other";
            return Err(at_line(line, Fault::usage(why)).into());
        }
        let is_used = name.is_some() || !after.is_empty();
        let waits = is_used.then(|| Box::new(Waits { name, after, rule }));
        let (run, next) = self.new_run().map_err(|why| at_line(line, Fault::usage(why)))?;
        Ok(Asked { waits, ..asked(line, run, next)? })
    }

    /// Checks what a parser of one value can't see. The run starts at the next time of the
    /// schedule, if there is one.
    fn new_run(self) -> Result<(NewRun, Option<Schedule>), String> {
        let has_time = [self.run_at.is_some(), self.r#in.is_some(), self.next.is_some()];
        let times = has_time.into_iter().chain([self.debounce.is_some()]);
        if self.job_type.contains('\0') {
            return Err("`job_type`: NUL not allowed".to_owned());
        } else if times.filter(|is_given| *is_given).count() > 1 {
            return Err("`run_at`, `in`, `next` and `debounce` exclude each other".to_owned());
        } else if self.time_zone.is_some() && self.next.is_none() {
            return Err("`time_zone` needs `next`".to_owned());
        } else if self.key_scope.is_some() && self.key.is_none() {
            return Err("`key_scope` needs an `idempotency_key`".to_owned());
        } else if let Some(n) = self.max_attempts.filter(|n| !(1..=MOST_ATTEMPTS).contains(n)) {
            let allowed = format!("allowed are 1 to {MOST_ATTEMPTS}");
            return Err(format!("`max_attempts`: {n} is out of range; {allowed}"));
        }
        let time_zone = self.time_zone.as_deref().unwrap_or("UTC");
        let next = self.next.map(|next| Schedule::parse(&next, time_zone)).transpose();
        let next = next.map_err(|why| format!("`next`: {why}"))?;
        let mut run = NewRun {
            job_type: self.job_type,
            payload: self.payload.map_or("{}".to_owned(), |payload| payload.get().to_owned()),
            queue: self.queue,
            priority: self.priority,
            run_at: self.run_at,
            after: self.r#in,
            max_attempts: self.max_attempts,
            timeout: self.timeout,
            backoff: self.backoff,
            expires_in: self.expires_in,
            share: self.share,
            key: self.key,
            key_scope: self.key_scope,
            on_conflict: self.on_conflict,
            debounce: self.debounce,
            debounce_max: self.debounce_max,
        };
        check_conflict(&mut run)?;
        Ok((run, next))
    }
}

/// Reads the time limit of an attempt.
pub(super) fn timeout() -> impl Read<f64> {
    let (least, most) = action::TIMEOUT_RANGE;
    seconds(least, most)
}

/// Reads a wait; `--run-at` can reach farther.
pub(super) fn wait() -> impl Read<f64> {
    seconds(Duration::ZERO, 10 * YEAR)
}

fn expires_in() -> impl Read<f64> {
    let (least, most) = definition::EXPIRES_RANGE;
    seconds(least, most)
}

/// Checks what a run does if its key has a run. A debounced run replaces it.
fn check_conflict(run: &mut NewRun) -> Result<(), &'static str> {
    let replaces = run.replaces() || run.debounce.is_some();
    if run.key.is_none() && run.on_conflict.is_some_and(|what| what != OnConflict::Same) {
        return Err("on_conflict needs a key");
    } else if run.debounce.is_some()
        && run.on_conflict.is_some_and(|what| what != OnConflict::Replace)
    {
        return Err("debounce replaces the waiting run, so on_conflict must be replace");
    } else if replaces && (run.key.is_none() || run.scope() != KeyScope::Live) {
        return Err("replace and debounce need a key with the key_scope live");
    } else if run.debounce_max.is_some_and(|most| run.debounce.is_none_or(|wait| most < wait)) {
        return Err("debounce_max needs a debounce, and must not be shorter");
    }
    if replaces {
        run.on_conflict = Some(OnConflict::Replace);
    }
    Ok(())
}
