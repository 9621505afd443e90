//! `jobctl enqueue`: one run, or a batch of them. Whatever is wrong with one is found before a row
//! exists.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Datelike, Utc};
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Database;
use crate::action::{self, Action, MOST_ATTEMPTS};
use crate::backoff::Backoff;
use crate::exit::{Exit, Fault};
use crate::model::RUN_KEY_PREFIX;
use crate::payload::PAYLOAD_LIMIT;
use crate::print::{self, Form};
use crate::store::{NewRun, Queued, Store};
use crate::{definition, duration, payload};

/// How far ahead `--in` reaches; later is what `--run-at` is for.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 86400);
/// Bytes of a line of a batch: a payload, and room for the rest.
const LINE_LIMIT: usize = PAYLOAD_LIMIT + 16 * 1024;

/// Enqueue a job and print its run's id
///
/// JOB is the name of a definition, which says what to run, or shell or http,
/// whose payload does:
///
///   jobctl enqueue send_weekly_report '{"user_id": 12345}'
///   jobctl enqueue shell -- pg_dump -f /backup/app.sql app
///   jobctl enqueue shell '{"command": "pg_dump -Z6 app >new && mv new app.gz"}'
///   jobctl enqueue http '{"url": "https://app.example/mail", "json": {"user": 5}}'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A definition's name, or shell or http
    #[arg(value_name = "JOB", required_unless_present = "batch")]
    job: Option<String>,
    /// JSON; with a command after --, what the command gets on stdin
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// Run this command, without a shell in between
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Do not start before this time: RFC 3339, with its offset
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "in")]
    run_at: Option<DateTime<Utc>>,
    /// Do not start before this much time has passed
    #[arg(long, value_name = "DURATION", value_parser = wait)]
    r#in: Option<Duration>,
    /// Enqueue once: the same key and payload again is the same run
    #[arg(long, value_name = "KEY", value_parser = run_key)]
    key: Option<String>,
    /// How long a key is taken: as long as its run is kept, or until it is finished
    #[arg(long, value_name = "SCOPE", requires = "key", value_parser = ["retained", "live"])]
    key_scope: Option<String>,
    /// Smaller runs first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(i32::MIN, i32::MAX))]
    priority: Option<i32>,
    /// The queue, for ticks that serve only some [default: default]
    #[arg(long, value_name = "Q", value_parser = definition::queue)]
    queue: Option<String>,
    /// How many times it may be started, crashes included [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(1, MOST_ATTEMPTS))]
    max_attempts: Option<i32>,
    /// Time limit of one attempt [default: none for shell, 30s for http]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Wait after a failure: fixed:1m, exponential:1m..30m, polynomial:10s, list:1m,5m,30m [default: exponential:1m..30m]
    #[arg(long, value_name = "SPEC", value_parser = backoff)]
    backoff: Option<String>,
    /// Read the payload from a file, or from stdin
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath, conflicts_with = "payload")]
    payload_file: Option<String>,
    /// Enqueue a file of JSON Lines, all or nothing; keys are job, payload and the flags' names, as in max_attempts
    #[arg(
        long,
        value_name = "FILE|-",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["job", "payload", "command", "run_at", "in", "key", "key_scope", "payload_file"]
    )]
    batch: Option<String>,
    /// Print {"id": ..., "existing": ...}
    #[arg(long)]
    json: bool,
}

/// A line of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    job: String,
    payload: Option<Box<RawValue>>,
    run_at: Option<String>,
    r#in: Option<String>,
    key: Option<String>,
    key_scope: Option<String>,
    priority: Option<i32>,
    queue: Option<String>,
    max_attempts: Option<i32>,
    timeout: Option<String>,
    backoff: Option<String>,
}

/// What `--json` prints of a run.
#[derive(Serialize)]
struct Answer {
    id: i64,
    existing: bool,
}

impl Arguments {
    pub(crate) fn run(mut self: Box<Self>, database: &Database) -> anyhow::Result<Exit> {
        match self.batch.take() {
            Some(file) => self.all(database, &file),
            None => self.one(database),
        }
    }

    fn one(self, database: &Database) -> anyhow::Result<Exit> {
        let form = Form::new(self.json);
        let run = self.new_run()?;
        let key = run.key.clone();
        let job = run.job_type.clone();
        let store = database.open()?;
        let answers = store.enqueue(vec![run], |_| ())?;
        let queued = answers.first().context("the database did not say what became of the run")?;
        let answer = accepted(&store, queued, &job, key.as_deref())?;
        let printed = print::either(form, &answer, &format!("{}\n", answer.id));
        printed.with_context(|| format!("run {} is enqueued", answer.id))?;
        Ok(Exit::Done)
    }

    fn all(self, database: &Database, file: &str) -> anyhow::Result<Exit> {
        let mut runs = read_batch(BufReader::new(open(file)?))?;
        for (_, run) in &mut runs {
            run.queue = run.queue.take().or_else(|| self.queue.clone());
            run.backoff = run.backoff.take().or_else(|| self.backoff.clone());
            run.priority = run.priority.or(self.priority);
            run.max_attempts = run.max_attempts.or(self.max_attempts);
            run.timeout = run.timeout.or(self.timeout.map(|limit| limit.as_secs_f64()));
        }
        batch(database, runs, Form::new(self.json))
    }

    fn new_run(self) -> anyhow::Result<NewRun> {
        let job = self.job.unwrap_or_default();
        let given = match (&self.payload_file, self.payload) {
            (Some(file), _) => Some(read_payload(file)?),
            (None, payload) => payload.map(String::into_bytes),
        };
        let refuse = |why: &dyn Display, payload: &[u8]| Fault::usage(format!("{why}{}", tip(&job, payload)));
        let check = |bytes| payload::check(bytes).map_err(|why| refuse(&why, bytes));
        let payload = given.as_deref().map(check).transpose()?;
        let payload = match (self.command.is_empty(), payload) {
            (false, stdin) if job == "shell" => command_payload(&self.command, stdin)?,
            (false, _) => {
                return Err(Fault::usage(format!("a command after -- goes with the job shell, not with {job}")).into());
            }
            (true, Some(payload)) => payload.to_owned(),
            (true, None) if action::is_built_in(&job) => {
                return Err(Fault::usage(format!("job {job} needs a payload; see `jobctl help enqueue`")).into());
            }
            (true, None) => "{}".to_owned(),
        };
        check_job(&job, &payload).map_err(|why| refuse(&why, payload.as_bytes()))?;
        Ok(NewRun {
            job_type: job,
            payload,
            queue: self.queue,
            priority: self.priority,
            run_at: self.run_at,
            after: self.r#in.map(|wait| wait.as_secs_f64()),
            max_attempts: self.max_attempts,
            timeout: self.timeout.map(|limit| limit.as_secs_f64()),
            backoff: self.backoff,
            key: self.key,
            key_scope: self.key_scope,
        })
    }
}

/// The payload of a shell job that runs these words, with `stdin` as its input.
fn command_payload(words: &[String], stdin: Option<&str>) -> anyhow::Result<String> {
    let command = serde_json::to_string(words).context("cannot write JSON")?;
    let payload = match stdin {
        Some(stdin) => format!(r#"{{"command": {command}, "stdin": {stdin}}}"#),
        None => format!(r#"{{"command": {command}}}"#),
    };
    payload::check(payload.as_bytes()).map_err(Fault::usage)?;
    Ok(payload)
}

/// What to write instead of a payload that was not meant as the object that a built-in job takes.
fn tip(job: &str, payload: &[u8]) -> &'static str {
    match job {
        _ if payload.trim_ascii_start().starts_with(b"{") => "",
        "shell" => "; to run a command: jobctl enqueue shell -- COMMAND",
        "http" => r#"; for a call write: jobctl enqueue http '{"url": "URL"}'"#,
        _ => "",
    }
}

/// Refuses what can be refused without the database.
fn check_job(job: &str, payload: &str) -> Result<(), Fault> {
    let action = Action::parse(job, payload).transpose();
    action.and_then(|action| action.map_or(Ok(()), |action| action.check_program())).map_err(Fault::usage)
}

fn accepted(store: &Store, queued: &Queued, job: &str, key: Option<&str>) -> Result<Answer, Fault> {
    match queued {
        Queued::New(id) => Ok(Answer { id: *id, existing: false }),
        Queued::Existing(id) => Ok(Answer { id: *id, existing: true }),
        Queued::Taken => {
            let key = key.unwrap_or_default();
            let why = format!("key `{key}` belongs to a run with another job or payload; use another key");
            Err(Fault::new(Exit::Conflict, why))
        }
        Queued::Undefined => Err(super::no_definition(store, job)),
        Queued::Refused(exit, why) => Err(Fault::new(*exit, why)),
    }
}

fn read_payload(file: &str) -> anyhow::Result<Vec<u8>> {
    // One byte more than is allowed tells that there is more, however much it is.
    let limit = PAYLOAD_LIMIT as u64 + 1;
    let mut bytes = Vec::new();
    open(file)?.take(limit).read_to_end(&mut bytes).with_context(|| format!("cannot read `{file}`"))?;
    Ok(bytes)
}

fn open(file: &str) -> anyhow::Result<Box<dyn Read>> {
    if file == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(file).with_context(|| format!("cannot open `{file}`"))?))
}

fn batch(database: &Database, runs: Vec<(usize, NewRun)>, form: Form) -> anyhow::Result<Exit> {
    if runs.is_empty() {
        if form == Form::Json {
            print::json::<[Answer; 0]>(&[])?;
        }
        return Ok(Exit::Done);
    }
    let total = runs.len();
    let progress = move |done| print::progress(&format!("{done} of {total} enqueued"));
    let key = |run: &NewRun| run.key.clone().zip(Some(run.scope().to_owned()));
    let lines: Vec<_> = runs.iter().map(|(line, run)| (*line, run.job_type.clone(), key(run))).collect();
    let store = database.open()?;
    let queued = store.enqueue(runs.into_iter().map(|(_, run)| run).collect(), progress);
    print::progress("");
    let queued = queued?;
    let answers: Vec<_> = queued
        .iter()
        .zip(&lines)
        .map(|(one, (line, job, key))| {
            let mut others = queued.iter().zip(&lines).filter(|_| *one == Queued::Taken);
            let other = others.find(|(other, (_, _, its))| matches!(other, Queued::New(_)) && its == key);
            let key = key.as_ref().map(|(key, _)| key.as_str());
            let accepted = match other {
                // That run is not to stay, so its line is named.
                Some((_, (line, ..))) => Err(Fault::new(
                    Exit::Conflict,
                    format!("key `{}` is also in line {line}, with another job or payload", key.unwrap_or_default()),
                )),
                None => accepted(&store, one, job, key),
            };
            accepted.map_err(|fault| at_line(*line, &fault))
        })
        .collect::<Result<_, _>>()?;
    let lines: String = answers.iter().map(|answer| format!("{}\n", answer.id)).collect();
    print::either(form, &answers, &lines).with_context(|| format!("{total} runs are enqueued"))?;
    Ok(Exit::Done)
}

/// All runs of a batch, with their lines' numbers. Kept in memory, so that a slow writer at the
/// other end of a pipe holds no transaction open.
fn read_batch(mut input: impl BufRead) -> anyhow::Result<Vec<(usize, NewRun)>> {
    let mut runs = Vec::new();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let limit = LINE_LIMIT as u64 + 1;
        if input.by_ref().take(limit).read_until(b'\n', &mut text).context("cannot read the batch")? == 0 {
            break;
        }
        if text.len() > LINE_LIMIT {
            let fault = Fault::usage(format!("longer than {} KiB", LINE_LIMIT / 1024));
            return Err(at_line(number, &fault).into());
        }
        let line = text.trim_ascii();
        if !line.is_empty() {
            runs.push((number, read_line(line).map_err(|fault| at_line(number, &fault))?));
        }
    }
    Ok(runs)
}

fn at_line(number: usize, fault: &Fault) -> Fault {
    // A line is a document of its own to the parser, and so is the payload in it; the batch's line
    // is what helps.
    let what = fault.to_string();
    let column = if what.starts_with("payload ") { " at its column " } else { " at column " };
    let what = what.replace(" at line 1 column ", column);
    Fault::new(fault.exit, format!("nothing is enqueued: batch line {number}: {what}"))
}

fn read_line(text: &[u8]) -> Result<NewRun, Fault> {
    fn field<T>(
        name: &str,
        text: Option<String>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        text.map(|text| read(&text)).transpose().map_err(|why| Fault::usage(format!("`{name}`: {why}")))
    }
    payload::check_object(text).map_err(Fault::usage)?;
    let line: Line = serde_json::from_slice(text).map_err(|error| Fault::usage(error.to_string()))?;
    let payload = line.payload.as_ref().map_or("{}", |payload| payload.get());
    payload::check(payload.as_bytes()).map_err(Fault::usage)?;
    check_job(&line.job, payload)?;
    if line.job.contains('\0') {
        return Err(Fault::usage("`job`: NUL not allowed"));
    }
    if line.run_at.is_some() && line.r#in.is_some() {
        return Err(Fault::usage("`run_at` and `in` exclude each other"));
    }
    if line.key_scope.is_some() && line.key.is_none() {
        return Err(Fault::usage("`key_scope` needs a `key`"));
    }
    let max_attempts = match line.max_attempts {
        Some(n) if !(1..=MOST_ATTEMPTS).contains(&n) => {
            return Err(Fault::usage(format!("`max_attempts`: {n} is out of range; allowed are 1 to {MOST_ATTEMPTS}")));
        }
        n => n,
    };
    Ok(NewRun {
        payload: payload.to_owned(),
        job_type: line.job,
        queue: field("queue", line.queue, definition::queue)?,
        priority: line.priority,
        run_at: field("run_at", line.run_at, time)?,
        after: field("in", line.r#in, wait)?.map(|wait| wait.as_secs_f64()),
        max_attempts,
        timeout: field("timeout", line.timeout, timeout)?.map(|limit| limit.as_secs_f64()),
        backoff: field("backoff", line.backoff, backoff)?,
        key: field("key", line.key, run_key)?,
        key_scope: field("key_scope", line.key_scope, key_scope)?,
    })
}

pub(super) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|_| format!("`{text}` is not a time; write RFC 3339 with the offset, 2026-01-31T08:00:00+01:00"))?
        .to_utc();
    // The tables hold no other, and an offset reaches beyond them.
    match (1..=9999).contains(&time.year()) {
        true => Ok(time),
        false => Err(format!("`{text}` is out of range; allowed are the years 1 to 9999 in UTC")),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::ZERO, LONGEST_WAIT)
}

fn timeout(text: &str) -> Result<Duration, String> {
    let (least, most) = action::TIMEOUT_RANGE;
    duration::parse_within(text, least, most)
}

fn backoff(text: &str) -> Result<String, String> {
    Backoff::parse(text).map(|_| text.to_owned())
}

/// Checks the key of an effect. Scripts would pass a key that begins with - as an option.
pub(super) fn key(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) || text.starts_with('-') {
        return Err("a key must have 1 to 255 bytes without control characters, and must not begin with -".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks the key of a run.
fn run_key(text: &str) -> Result<String, String> {
    if text.starts_with(RUN_KEY_PREFIX) {
        return Err(format!("the key prefix {RUN_KEY_PREFIX} is reserved for runs without a key; use another key"));
    }
    key(text)
}

fn key_scope(text: &str) -> Result<String, String> {
    if matches!(text, "retained" | "live") { Ok(text.to_owned()) } else { Err("must be retained or live".to_owned()) }
}
