//! A run to enqueue, as the flags or a line of a batch describe it.

use std::mem::take;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use cron_zone::Schedule;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::arguments::{
    ReadFlag, checked, lock, run_id, run_key, seconds, share, time, within, worker,
};
use crate::exit::Fault;
use crate::job::action::{self, Action, MOST_ATTEMPTS};
use crate::job::backoff;
use crate::job::definition_keys;
use crate::job::enqueue::{self, AfterRule, KeyScope, OnConflict};
use crate::job::payload;
use crate::store::{EncodedRun, NewRun};
use crate::text::duration::YEAR;
use crate::text::timestamp;

/// A run as the flags or a line of a batch describe it. The flags are also the defaults of the
/// lines. The fields of a line have the names of the flags, or those of the columns in the
/// database.
#[derive(Args, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunRequest {
    #[arg(skip)]
    #[serde(alias = "job_type")]
    job: String,
    #[arg(skip)]
    #[serde(default, deserialize_with = "read::payload")]
    payload: Option<Box<RawValue>>,
    /// The queue; a tick can serve only some queues
    #[arg(long, value_name = "QUEUE", value_parser = definition_keys::queue)]
    #[serde(default, deserialize_with = "read::queue")]
    pub(super) queue: Option<String>,
    /// Runs with a smaller number start first
    #[arg(long, value_name = "N", value_parser = within(i32::MIN, i32::MAX))]
    priority: Option<i32>,
    /// The time until the next attempt: fixed:1m, exponential:1m..30m, polynomial:10s (times the
    /// square of the attempt) or list:1m,5m,30m
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
    /// Cancel the run if it has not started this long after --run-at, --in or now
    #[arg(long, value_name = "DURATION", value_parser = expires_in())]
    #[serde(default, deserialize_with = "read::expires_in")]
    expires_in: Option<f64>,
    /// The customer of the run: if its job has a limit, the customers take turns
    #[arg(long, value_name = "NAME", value_parser = share)]
    #[serde(default, deserialize_with = "read::share")]
    share: Option<String>,
    /// One run with this lock runs at a time, over all jobs; an error if the definition has a lock
    #[arg(long, value_name = "NAME", value_parser = lock)]
    #[serde(default, deserialize_with = "read::lock")]
    lock: Option<String>,
    /// Only this worker starts it: a host's name, or the --worker of its ticks
    #[arg(long, value_name = "NAME", value_parser = worker)]
    #[serde(default, deserialize_with = "read::worker")]
    pub(super) worker: Option<String>,
    /// The trace that the run continues, in the form of W3C Trace Context [default: that of the
    /// variable TRACEPARENT]
    #[arg(long, value_name = "TRACEPARENT", value_parser = enqueue::traceparent)]
    #[serde(default, deserialize_with = "read::traceparent")]
    pub(super) traceparent: Option<String>,
    /// Enqueue once: the same key and payload return the same run
    #[arg(long, value_name = "KEY", value_parser = run_key)]
    #[serde(default, deserialize_with = "read::key", alias = "idempotency_key")]
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
    /// Start when this much time has passed without another enqueue of this key. Each enqueue
    /// replaces the run that waits; needs --key-scope live
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
    #[serde(default, deserialize_with = "read::or_default")]
    pub(super) after: Vec<After>,
    /// Start when the runs of --after have ended, with or without success
    #[arg(long)]
    #[serde(default, deserialize_with = "read::or_default")]
    pub(super) after_any_end: bool,
    /// Cancel the run if one of the runs of --after dies or is cancelled
    #[arg(long, conflicts_with = "after_any_end")]
    #[serde(default, deserialize_with = "read::or_default")]
    pub(super) or_cancel: bool,
    /// The name of a line of a batch, for `after` in later lines.
    #[arg(skip)]
    #[serde(default, deserialize_with = "read::line_name")]
    r#as: Option<String>,
}

/// A run that another waits for.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected the id of a run or the name of an earlier line")]
pub(super) enum After {
    Id(i64),
    Name(String),
}

fn line_name(text: &str) -> Result<String, String> {
    checked(text, !text.trim().is_empty(), "the name of a line must not be blank")
}

fn after(text: &str) -> Result<After, String> {
    run_id(text).map(After::Id)
}

/// Readers of the values in a line of a batch, by the rules of the flags.
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

    /// Reads a payload. `null` is a payload, not a missing one.
    pub(super) fn payload<'de, D>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
    where
        D: Deserializer<'de>,
    {
        Box::deserialize(deserializer).map(Some)
    }

    /// Reads a field without a parser of its own. `null` stands for a missing field, as in all
    /// fields except the payload.
    pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: Default + Deserialize<'de>,
    {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }

    readers! {
        queue: String = definition_keys::queue;
        backoff: String = backoff::check;
        timeout: f64 = super::timeout();
        time: DateTime<Utc> = super::time;
        wait: f64 = super::wait();
        expires_in: f64 = super::expires_in();
        share: String = super::share;
        lock: String = super::lock;
        worker: String = super::worker;
        traceparent: String = enqueue::traceparent;
        key: String = run_key;
        key_scope: KeyScope = str::parse;
        on_conflict: OnConflict = str::parse;
        line_name: String = super::line_name;
    }
}

/// A run to enqueue.
pub(super) struct Asked {
    /// The number of its line in the batch; `None`: the flags describe the run.
    pub(super) line: Option<usize>,
    pub(super) run: EncodedRun,
    /// The run starts at the next time of this schedule.
    pub(super) next: Option<Box<Schedule>>,
    /// `None`: the run has no name and waits for no run.
    pub(super) links: Option<Box<Links>>,
}

impl Asked {
    /// Encodes the run. Fails if its expiry is a time that can't be stored.
    pub(super) fn new(
        line: Option<usize>,
        run: &NewRun,
        next: Option<Schedule>,
    ) -> anyhow::Result<Self> {
        let expiry = run.run_at.zip(run.expires_in);
        if expiry.is_some_and(|(run_at, wait)| timestamp::after(run_at, wait).is_none()) {
            let why = format!(
                "{} is out of range; the run would expire after the year 9999",
                called(line, "expires_in")
            );
            return Err(at_line(line, Fault::usage(why)).into());
        }
        Ok(Self { line, run: run.encode(), next: next.map(Box::new), links: None })
    }
}

/// The name of a run, by which later lines can wait for it, and the runs that it waits for.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) name: Option<String>,
    pub(super) after: Vec<After>,
    pub(super) rule: AfterRule,
}

impl RunRequest {
    /// Reads a line of a batch.
    pub(super) fn from_line(text: &[u8]) -> Result<Self, String> {
        // The parser's errors end with ` at line 1 column N`. That is not the line of the batch:
        // the parser sees only this line, or only its payload.
        let place = |why: String, column| why.replace(" at line 1 column ", column);
        let line: Self = payload::read(text).map_err(|why| place(why, " at column "))?;
        let payload = line.payload.as_ref().map_or("{}", |payload| payload.get());
        payload::check(payload.as_bytes())
            .and_then(|payload| check_job(&line.job, payload))
            .map_err(|why| place(why, " at its column "))?;
        Ok(line)
    }

    /// Adds the job and its payload, which is JSON.
    pub(super) fn of_job(self, job: String, payload: String) -> anyhow::Result<Self> {
        let payload = RawValue::from_string(payload).context("cannot read JSON")?;
        Ok(Self { job, payload: Some(payload), ..self })
    }

    /// Takes the values that a line of a batch omits from the flags. Names each field, so that the
    /// compiler asks whether a new flag is a default of the lines.
    pub(super) fn with_defaults(self, flags: &Self) -> Self {
        Self {
            queue: self.queue.or_else(|| flags.queue.clone()),
            backoff: self.backoff.or_else(|| flags.backoff.clone()),
            priority: self.priority.or(flags.priority),
            max_attempts: self.max_attempts.or(flags.max_attempts),
            timeout: self.timeout.or(flags.timeout),
            expires_in: self.expires_in.or(flags.expires_in),
            share: self.share.or_else(|| flags.share.clone()),
            lock: self.lock.or_else(|| flags.lock.clone()),
            worker: self.worker.or_else(|| flags.worker.clone()),
            traceparent: self.traceparent.or_else(|| flags.traceparent.clone()),
            after_any_end: self.after_any_end || flags.after_any_end && !self.or_cancel,
            or_cancel: self.or_cancel || flags.or_cancel && !self.after_any_end,
            after: if self.after.is_empty() { flags.after.clone() } else { self.after },
            // These have no default: `--batch` excludes their flags.
            job: self.job,
            payload: self.payload,
            run_at: self.run_at,
            r#in: self.r#in,
            next: self.next,
            time_zone: self.time_zone,
            key: self.key,
            key_scope: self.key_scope,
            on_conflict: self.on_conflict,
            debounce: self.debounce,
            debounce_max: self.debounce_max,
            r#as: self.r#as,
        }
    }

    /// Returns how the runs that come before must end.
    pub(super) fn rule(&self) -> AfterRule {
        match (self.after_any_end, self.or_cancel) {
            (true, _) => AfterRule::AnyEnd,
            (_, true) => AfterRule::OrCancel,
            _ => AfterRule::Success,
        }
    }

    /// Converts a checked request into the run that the database enqueues. `line` is the number of
    /// its line in the batch; `None`: the flags describe the run.
    pub(super) fn into_asked(mut self, line: Option<usize>) -> anyhow::Result<Asked> {
        let (name, after, rule) = (self.r#as.take(), take(&mut self.after), self.rule());
        let replaces = self.debounce.is_some() || self.on_conflict == Some(OnConflict::Replace);
        if !after.is_empty() && replaces {
            let replaces = replacing(line, self.debounce);
            let why = format!("{} excludes {replaces}", called(line, "after"));
            return Err(at_line(line, Fault::usage(why)).into());
        } else if self.after_any_end && self.or_cancel {
            let why = "`after_any_end` and `or_cancel` exclude each other";
            return Err(at_line(line, Fault::usage(why)).into());
        }
        let has_links = name.is_some() || !after.is_empty();
        let links = has_links.then(|| Box::new(Links { name, after, rule }));
        let (run, next) = self.new_run(line).map_err(|why| at_line(line, Fault::usage(why)))?;
        Ok(Asked { links, ..Asked::new(line, &run, next)? })
    }

    /// Checks the values together, which the parser of one value can't do. Returns the run and,
    /// with `--next`, the schedule at whose next time it starts.
    fn new_run(self, line: Option<usize>) -> Result<(NewRun, Option<Schedule>), String> {
        let has_time = [self.run_at.is_some(), self.r#in.is_some(), self.next.is_some()];
        let times = has_time.into_iter().chain([self.debounce.is_some()]);
        if self.job.contains('\0') {
            return Err("`job`: NUL not allowed".to_owned());
        } else if times.filter(|is_given| *is_given).count() > 1 {
            return Err("`run_at`, `in`, `next` and `debounce` exclude each other".to_owned());
        } else if self.time_zone.is_some() && self.next.is_none() {
            return Err("`time_zone` needs `next`".to_owned());
        } else if self.key_scope.is_some() && self.key.is_none() {
            return Err("`key_scope` needs a `key`".to_owned());
        } else if let Some(n) = self.max_attempts.filter(|n| !(1..=MOST_ATTEMPTS).contains(n)) {
            let allowed = format!("allowed are 1 to {MOST_ATTEMPTS}");
            return Err(format!("`max_attempts`: {n} is out of range; {allowed}"));
        }
        let time_zone = self.time_zone.as_deref().unwrap_or("UTC");
        let next = self.next.map(|next| Schedule::parse(&next, time_zone)).transpose();
        let next = next.map_err(|why| format!("{}: {why}", called(line, "next")))?;
        let mut run = NewRun {
            job_type: self.job,
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
            lock: self.lock,
            worker: self.worker,
            traceparent: self.traceparent,
            key: self.key,
            key_scope: self.key_scope,
            on_conflict: self.on_conflict,
            debounce: self.debounce,
            debounce_max: self.debounce_max,
        };
        check_conflict(line, &mut run)?;
        Ok((run, next))
    }
}

/// Reads the time limit of an attempt.
pub(in crate::commands) fn timeout() -> impl ReadFlag<f64> {
    let (least, most) = action::TIMEOUT_RANGE;
    seconds(least, most)
}

/// Reads a wait of at most ten years; `--run-at` has no such limit.
pub(in crate::commands) fn wait() -> impl ReadFlag<f64> {
    seconds(Duration::ZERO, 10 * YEAR)
}

fn expires_in() -> impl ReadFlag<f64> {
    let (least, most) = definition_keys::EXPIRES_RANGE;
    seconds(least, most)
}

/// Checks the values that say what happens if the key has a run already. A debounced run replaces
/// the waiting one.
fn check_conflict(line: Option<usize>, run: &mut NewRun) -> Result<(), String> {
    let replaces = run.replaces() || run.debounce.is_some();
    let [key, scope] = ["key", "key_scope"].map(|field| called(line, field));
    let on_conflict = called(line, "on_conflict");
    let [debounce, most] = ["debounce", "debounce_max"].map(|field| called(line, field));
    if run.key.is_none() && run.on_conflict.is_some_and(|what| what != OnConflict::Same) {
        return Err(format!("{on_conflict} needs {key}"));
    } else if run.debounce.is_some()
        && run.on_conflict.is_some_and(|what| what != OnConflict::Replace)
    {
        return Err(format!(
            "{debounce} replaces the waiting run, so {on_conflict} must be replace"
        ));
    } else if replaces && (run.key.is_none() || run.scope() != KeyScope::Live) {
        let replaces = replacing(line, run.debounce);
        return Err(format!("{replaces} needs {key} and {scope} live"));
    } else if run.debounce_max.is_some_and(|most| run.debounce.is_none_or(|wait| most < wait)) {
        return Err(format!("{most} needs {debounce}, and must not be shorter"));
    }
    if replaces {
        run.on_conflict = Some(OnConflict::Replace);
    }
    Ok(())
}

/// Returns the name of a value in an error: that of a key of the JSON object in this line of a
/// batch, or without a line, that of a flag of the command line.
pub(super) fn called(line: Option<usize>, field: &str) -> String {
    match line {
        Some(_) => format!("`{field}`"),
        None => format!("--{}", field.replace('_', "-")),
    }
}

/// Returns the name, in an error, of the value that makes a run replace the waiting one.
fn replacing(line: Option<usize>, debounce: Option<f64>) -> String {
    match debounce {
        Some(_) => called(line, "debounce"),
        None => format!("{} replace", called(line, "on_conflict")),
    }
}

/// Adds the number of a batch's line to an error, if the error is about a line.
pub(super) fn at_line(line: Option<usize>, fault: Fault) -> Fault {
    let Some(line) = line else { return fault };
    Fault::new(fault.exit, format!("cannot enqueue: batch line {line}: {fault}"))
}

/// Checks a job and its payload without the database.
pub(in crate::commands) fn check_job(job: &str, payload: &str) -> Result<(), String> {
    Action::parse(job, payload).map_or(Ok(()), |action| action?.check_program())
}
