//! `jobctl enqueue`: one run, or a batch. All checks come before the first row.

mod batch;
pub(super) mod request;

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{ArgAction, Args, ValueHint};
use serde::de::IgnoredAny;

use self::request::{Asked, RunRequest, at_line, called, check_job};
use super::environment::of_variables;
use super::outage::OUTAGE_LIMIT;
use super::{DatabaseFlags, exit_of, tick, wait};
use crate::exit::{Exit, Fault};
use crate::files;
use crate::job::action::{self, JobKind};
use crate::job::definition_keys;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope, traceparent};
use crate::job::payload::{self, PAYLOAD_LIMIT};
use crate::job::status::{HoldScope, Status};
use crate::print::{self, Format, Output, Progress};
use crate::store::{
    Accepted, Dependencies, EncodedRun, NewRun, Predecessor, Queued, Run, RunState, Store,
};
use crate::text::duration::{self, SECOND};
use crate::text::plain::plain;
use crate::text::{plural, timestamp};
use crate::tick::TickEnd;

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
    #[arg(
        value_name = "JOB",
        required_unless_present_any = ["batch", "named"],
        allow_negative_numbers = true
    )]
    job: Option<String>,
    /// JSON; with a command after --, the input of the command
    #[arg(allow_negative_numbers = true, conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Run this command, without a shell in between
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The same as JOB; the first argument is then the payload
    #[arg(id = "named", long = "job", value_name = "JOB")]
    named: Option<String>,
    /// Read the payload from a file, or from stdin
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    payload_file: Option<String>,
    #[command(flatten)]
    request: RunRequest,
    /// Enqueue a run for each line, all or none: a JSON object with job, payload and flags
    #[arg(
        long,
        value_name = "FILE|-",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = [
            "job", "named", "payload", "command", "run_at", "in", "next", "time_zone", "key",
            "key_scope", "on_conflict", "debounce", "debounce_max", "payload_file"
        ]
    )]
    batch: Option<String>,
    /// After the batch, enqueue a run of this job that waits for all runs of the batch;
    /// --after-any-end and --or-cancel then apply to it
    #[arg(long, value_names = ["JOB", "PAYLOAD"], num_args = 1..=2,
        action = ArgAction::Set, requires = "batch",
        conflicts_with_all = ["job", "after"])]
    then: Vec<String>,
    /// Wait until the run has ended, at most this long, and exit as `jobctl wait` does
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        value_parser = duration::parse
    )]
    // `Some(None)`: without a time limit.
    wait: Option<Option<Duration>>,
    /// Make the run's first attempt in this process, then wait as with --wait
    #[arg(long, conflicts_with_all = ["batch", "run_at", "in", "next", "debounce", "after"])]
    pub(super) run: bool,
    /// With --wait or --run, print what the run printed, not its id
    #[arg(long = "output", conflicts_with_all = ["format", "json"])]
    shows_output: bool,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(mut self: Box<Self>, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let waits_for_end = self.run || self.wait.is_some();
        if self.shows_output && !waits_for_end {
            return Err(Fault::usage("--output needs --wait or --run").into());
        }
        // The attempt of --run obeys the variables of `tick`.
        let own_tick = self.run.then(|| of_variables("tick")).transpose()?;
        let batch = self.batch.take();
        let trace = || env::var("TRACEPARENT").ok().and_then(|text| traceparent(&text).ok());
        self.request.traceparent = self.request.traceparent.take().or_else(trace);
        let mut queues = BTreeSet::from_iter(self.request.queue.clone());
        let mut workers = BTreeSet::from_iter(self.request.worker.clone());
        let rule = self.request.rule();
        if !self.then.is_empty() {
            // These flags are for the run of --then, not for the lines.
            (self.request.after_any_end, self.request.or_cancel) = (false, false);
        }
        let mut runs = match &batch {
            Some(file) => batch::read(BufReader::new(open(file)?), |line| {
                queues.extend(line.queue.clone());
                workers.extend(line.worker.clone());
                line.with_defaults(&self.request)
            })?,
            None => vec![self.asked()?],
        };
        let mut dependencies = batch::dependencies(&runs)?;
        if let Some(run) = self.then()? {
            let after = (0..runs.len()).map(Predecessor::InBatch).collect();
            dependencies.push(Dependencies { run: runs.len(), after, rule });
            runs.push(run);
        }
        if self.run {
            // Fail before the run is enqueued if the database rejects every claim.
            database.open()?.claim_nothing()?;
        }
        let answers = enqueue(database, runs, dependencies, [queues, workers], waits_for_end)?;
        let dropped = answers.iter().filter(|answer| answer.id.is_none()).count();
        if dropped > 0 {
            let runs = plural::of(dropped as i64, "run");
            print::complain(&format!("{runs} dropped: the definition is full"));
        }
        complain_of_existing(&answers);
        self.print(&answers, batch.is_some())?;
        let ids: Vec<_> = answers.iter().filter_map(|answer| answer.id).collect();
        if let Some(tick) = own_tick.as_ref().and_then(|cli| cli.command.tick())
            && let [Accepted { id: Some(id), status, .. }] = answers[..]
            && status.is_none_or(Status::is_waiting)
            && let Some(exit) = run_here(tick, id, self.wait.flatten(), database)?
        {
            return Ok(exit);
        }
        if !waits_for_end {
            return Ok(Exit::Done);
        }
        let ended = if ids.is_empty() {
            Exit::Done
        } else {
            // --run without --wait has no time limit.
            let timeout = self.wait.flatten();
            wait::Arguments::of(ids, timeout, self.shows_output).run(database)?
        };
        Ok(if dropped > 0 && ended == Exit::Done { Exit::Full } else { ended })
    }

    /// Prints the answers about the runs, unless the output of the run is printed instead.
    fn print(&self, answers: &[Accepted], is_batch: bool) -> anyhow::Result<()> {
        let printed = match self.output.format() {
            _ if self.shows_output => Ok(()),
            Format::Json if is_batch => print::json(&answers),
            Format::Json | Format::JsonLines => answers.iter().try_for_each(print::json),
            Format::Table | Format::Tsv => print_ids(self.output, answers),
        };
        printed.with_context(|| match answers {
            [Accepted { id: Some(id), .. }] if !is_batch => format!("run {id} is enqueued"),
            _ => format!("{} runs are enqueued", answers.len()),
        })
    }

    /// Returns the run that the flags and arguments describe.
    fn asked(&mut self) -> anyhow::Result<Asked> {
        let job = self.job()?;
        let payload = self.payload(&job)?;
        let request = take(&mut self.request).of_job(job, payload)?;
        if request.after.is_empty() && request.rule() != AfterRule::Success {
            return Err(Fault::usage("--after-any-end and --or-cancel need --after").into());
        }
        request.into_asked(None)
    }

    /// Takes the job, of `--job` or of the first argument. With `--job`, the first argument
    /// becomes the payload.
    fn job(&mut self) -> Result<String, Fault> {
        let first = self.job.take();
        let Some(job) = self.named.take() else { return Ok(first.unwrap_or_default()) };
        let Some(first) = first else { return Ok(job) };
        // A word that is not JSON, but can be a name.
        let is_job =
            payload::check(first.as_bytes()).is_err() && definition_keys::queue(&first).is_ok();
        if is_job || self.payload.is_some() {
            let first = plain(&first);
            return Err(Fault::usage(format!("the job is both `{first}` and --job; omit one")));
        } else if self.payload_file.is_some() {
            return Err(Fault::usage("a payload and --payload-file exclude each other"));
        }
        self.payload = Some(first);
        Ok(job)
    }

    /// Returns the run of `--then`, with the values of the flags, if there is one.
    fn then(&self) -> anyhow::Result<Option<Asked>> {
        let Some(job) = self.then.first() else { return Ok(None) };
        let given = self.then.get(1).map_or("{}", String::as_str).as_bytes();
        let payload = payload::check(given).map_err(|why| unquoted(&why, given))?;
        check_job(job, payload).map_err(Fault::usage)?;
        let request = RunRequest::default().of_job(job.clone(), payload.to_owned())?;
        request.with_defaults(&self.request).into_asked(None).map(Some)
    }

    /// Returns the payload for this job: the given JSON, the command after `--`, or `{}`.
    fn payload(&self, job: &str) -> anyhow::Result<String> {
        let bytes = match (&self.payload_file, &self.payload) {
            (Some(file), _) => Some(read_payload(file)?),
            (None, payload) => payload.as_ref().map(|payload| payload.clone().into_bytes()),
        };
        let check_json = |bytes| {
            payload::check(bytes).map_err(|why| match (&self.payload_file, tip(job, bytes)) {
                (None, "") => unquoted(&why, bytes),
                (_, tip) => Fault::usage(format!("{why}{tip}")),
            })
        };
        let json = bytes.as_deref().map(check_json).transpose()?;
        let payload = match (self.command.is_empty(), json) {
            (false, stdin_json) if JobKind::of(job) == Some(JobKind::Shell) => {
                command_payload(&self.command, stdin_json)?
            }
            (false, _) => {
                let why = format!("job {job} takes no command after --; only the job shell does");
                return Err(Fault::usage(why).into());
            }
            (true, Some(payload)) => payload.to_owned(),
            (true, None) if action::is_built_in(job) => {
                let why = format!("job {job} needs a payload{}", tip(job, b""));
                return Err(Fault::usage(why).into());
            }
            (true, None) => "{}".to_owned(),
        };
        check_job(job, &payload)
            .map_err(|why| Fault::usage(format!("{why}{}", tip(job, payload.as_bytes()))))?;
        Ok(payload)
    }
}

/// The attempt of a run that this process makes.
struct OwnAttempt<'a> {
    tick: &'a tick::Arguments,
    /// The run's id.
    id: i64,
    database: &'a DatabaseFlags,
    /// How long the database may be away.
    outage_limit: Duration,
    interrupted: Arc<AtomicBool>,
    /// How many runs the tick has started, 0 or 1; `None`: no tick has ended without an error.
    runs_started: Option<usize>,
    /// The tick failed after it had started the job. If the database was away, the tick has waited
    /// for it, and could not record the result.
    failed_after_start: bool,
}

impl OwnAttempt<'_> {
    /// Makes the attempt with a tick, unless the tick of an earlier call ended without an error.
    /// Then reads the state of the run. `None`: the run was deleted.
    fn make(&mut self) -> anyhow::Result<Option<RunState>> {
        if self.runs_started.is_none() {
            let TickEnd { runs_started, result, .. } =
                self.tick.run_one(self.id, self.database, self.outage_limit)?;
            self.failed_after_start = runs_started > 0 && result.is_err();
            result?;
            self.runs_started = Some(runs_started);
        }
        let states = self.database.open_until(&self.interrupted)?.run_states(vec![self.id])?;
        Ok(states.into_iter().next())
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Prints why the run has not ended, if it has not. Returns an exit status if the command must
    /// not wait for the run, because a signal came.
    fn complain(&self, state: &RunState) -> Option<Exit> {
        let (id, status) = (self.id, state.status);
        if self.is_interrupted() && !status.is_final() {
            print::complain(&format!("run {id} is {status}; `jobctl wait {id}`"));
            return Some(tick::INTERRUPTED);
        }
        let has_started = self.runs_started > Some(0);
        if status == Status::Failed && has_started {
            wait::failure(state).into_iter().for_each(|why| print::complain(&why));
        } else if status.is_waiting() && !has_started {
            tick::complain_of_waiting(id);
        }
        None
    }
}

/// Makes an attempt of a waiting run. While the database is away for a short time, tries again.
/// Returns an exit status if a signal or the time of `--wait` ended that. `None`: the command goes
/// on with the wait for the run's end, even if another tick made the attempt.
fn run_here(
    tick: &tick::Arguments,
    id: i64,
    wait: Option<Duration>,
    database: &DatabaseFlags,
) -> anyhow::Result<Option<Exit>> {
    let interrupted = Arc::default();
    super::catch_signals(&interrupted)?;
    let outage_limit = wait.map_or(OUTAGE_LIMIT, |wait| wait.min(OUTAGE_LIMIT));
    let mut attempt = OwnAttempt {
        tick,
        id,
        database,
        outage_limit,
        interrupted,
        runs_started: None,
        failed_after_start: false,
    };
    let mut away_since = None;
    loop {
        let error = match attempt.make() {
            Ok(state) => return Ok(state.and_then(|state| attempt.complain(&state))),
            Err(error) if exit_of(&error) == Exit::Usage => return Err(error),
            Err(error) => error,
        };
        if !attempt.is_interrupted() {
            let is_away = exit_of(&error) == Exit::Unavailable;
            let has_waited = attempt.failed_after_start;
            let since = *away_since.get_or_insert_with(|| {
                let waits_for = if is_away { "the database" } else { "a tick" };
                // If the tick has waited for the database already, this command does not.
                if !(is_away && has_waited) {
                    print::complain(&format!(
                        "run {id} is enqueued; waiting for {waits_for}: {error:#}"
                    ));
                }
                Instant::now()
            });
            if !is_away {
                return Ok(None);
            }
            if has_waited || since.elapsed() > outage_limit {
                return match wait {
                    Some(wait) if wait == outage_limit => Ok(Some(Exit::Passed(wait::TIMED_OUT))),
                    _ => Err(error.context(format!("run {id} is enqueued"))),
                };
            }
            thread::sleep(SECOND.min(outage_limit));
        }
        // End here after a signal: the next tick would not notice one that came before it.
        if attempt.is_interrupted() {
            print::complain(&format!("run {id} is enqueued; `jobctl wait {id}`"));
            return Ok(Some(tick::INTERRUPTED));
        }
    }
}

/// Complains of keys that belong to a run which has ended without success, or is due later than
/// asked.
fn complain_of_existing(answers: &[Accepted]) {
    let has_ended =
        |answer: &&Accepted| matches!(answer.status, Some(Status::Cancelled | Status::Dead));
    let ended: Vec<_> = answers.iter().filter(has_ended).collect();
    if let Some((first, id, subject)) = holders(&ended) {
        let status = first.status.map_or("", Status::as_str);
        print::complain(&format!(
            "{subject} is {status}, so nothing will run; `jobctl retry {id}`, or use another key"
        ));
    }
    // An answer has `due_at` only if the run is due later than asked.
    let later: Vec<_> = answers.iter().filter(|answer| answer.due_at.is_some()).collect();
    if let Some((first, id, subject)) = holders(&later) {
        let due = first.due_at.map(timestamp::instant).unwrap_or_default();
        print::complain(&format!(
            "{subject} is due at {due}, later than asked; `jobctl retry {id}` makes it due now"
        ));
    }
}

/// Returns the first of these existing runs, its id, and the subject of a sentence about them all,
/// which names them as the holders of keys; `None` if there is no run.
fn holders<'a>(existing: &[&'a Accepted]) -> Option<(&'a Accepted, i64, String)> {
    let first = existing.first()?;
    let id = first.id?;
    let subject = match existing.len() {
        1 => format!("run {id} has the key and"),
        several => format!("{several} runs have the keys, such as run {id}, which"),
    };
    Some((first, id, subject))
}

/// Returns the payload of a shell job that runs these words. The command gets the JSON text
/// `stdin_json` as its input.
fn command_payload(words: &[String], stdin_json: Option<&str>) -> anyhow::Result<String> {
    let command = serde_json::to_string(words).context("cannot write JSON")?;
    let stdin = stdin_json.map(|json| format!(r#", "stdin": {json}"#)).unwrap_or_default();
    let payload = format!(r#"{{"command": {command}{stdin}}}"#);
    payload::check(payload.as_bytes()).map_err(Fault::usage)?;
    Ok(payload)
}

/// The remedy for a payload that the shell has changed.
pub(super) const QUOTES: &str =
    "put a payload into single quotes, as in '{\"user\": 1}', or use --payload-file";

/// The error about a payload of the command line. If it is not JSON at all, the shell has probably
/// removed its quotes.
fn unquoted(why: &str, payload: &[u8]) -> Fault {
    let is_json = serde_json::from_slice::<IgnoredAny>(payload).is_ok();
    Fault::usage(if is_json { why.to_owned() } else { format!("{why}; {QUOTES}") })
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

/// Enqueues all runs or none.
///
/// - `dependencies`: what some of the runs wait for.
/// - `queues` and `workers`: names in the runs, which may be misspelt.
/// - `waits_for_end`: whether the command waits for the runs, and so complains of those that can't
///   start. Otherwise this function does.
fn enqueue(
    database: &DatabaseFlags,
    mut runs: Vec<Asked>,
    dependencies: Vec<Dependencies>,
    [queues, workers]: [BTreeSet<String>; 2],
    waits_for_end: bool,
) -> anyhow::Result<Vec<Accepted>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let store = database.open()?;
    resolve_next(&store, &mut runs)?;
    super::warn_of_names(&store, HoldScope::Queue, queues.iter().map(String::as_str));
    super::warn_of_names(&store, HoldScope::Worker, workers.iter().map(String::as_str));
    let progress = Progress::of(Some(runs.len()));
    let (lines, runs): (Vec<_>, Vec<_>) =
        runs.into_iter().map(|asked| (asked.line, asked.run)).unzip();
    let result = store.enqueue(&runs, &dependencies, |done| progress.show(done));
    progress.clear();
    let queued = result?;
    for ((answer, run), line) in queued.iter().zip(&runs).zip(&lines) {
        let fault = match answer {
            Queued::Accepted(_) | Queued::NotTried => continue,
            Queued::Undefined => super::no_definition(&store, &run.decode().job_type),
            Queued::Refused(exit, why) => Fault::new(*exit, why),
            Queued::KeyTaken | Queued::KeyHasRun => {
                // The other run is rolled back too, so the error names its line.
                let mut others = queued.iter().zip(&runs).zip(&lines);
                let first =
                    others.find(|((answer, other), _)| answer.is_new() && other.key() == run.key());
                let other_line = first.and_then(|(_, line)| *line);
                let is_taken = matches!(answer, Queued::KeyTaken);
                key_conflict(&store, run.key(), *line, other_line, is_taken)
            }
        };
        return Err(at_line(*line, fault).into());
    }
    let answers: Vec<_> = queued.into_iter().filter_map(Queued::accepted_run).collect();
    complain_of_replaced(&store, &answers, &runs);
    if !waits_for_end {
        let new_followers: Vec<_> = dependencies
            .iter()
            .map(|follower| &answers[follower.run])
            .filter(|answer| answer.result == EnqueueResult::Enqueued)
            .filter_map(|answer| answer.id)
            .collect();
        if !new_followers.is_empty() {
            // The runs are enqueued, so an error of this search is not one of the command.
            let states = store.run_states(new_followers).unwrap_or_default();
            wait::stuck(&states).iter().for_each(|line| print::complain(line));
        }
    }
    Ok(answers)
}

/// Sets the time of each run with `--next` to the next time of its schedule.
fn resolve_next(store: &Store, runs: &mut [Asked]) -> anyhow::Result<()> {
    if runs.iter().all(|asked| asked.next.is_none()) {
        return Ok(());
    }
    let now = store.now()?;
    for asked in runs {
        let Some(schedule) = &asked.next else { continue };
        let next = schedule.first(now).map_err(|why| at_line(asked.line, Fault::usage(why)))?;
        let mut run = asked.run.decode();
        run.run_at = Some(next);
        *asked = Asked::new(asked.line, &run, None)?;
    }
    Ok(())
}

/// The error about a key that already belongs to another run.
///
/// - `other_line`: the line of the batch with this other run, if it is in the batch.
/// - `is_taken`: whether the other run has another job or payload.
fn key_conflict(
    store: &Store,
    key: Option<&(Box<str>, KeyScope)>,
    line: Option<usize>,
    other_line: Option<usize>,
    is_taken: bool,
) -> Fault {
    let (place, separator, remedy) = match other_line {
        Some(other) => (format!("is also in line {other}"), ",", ""),
        None => (format!("belongs to {}", holder(store, key)), "", "; use another key"),
    };
    let why = if is_taken {
        format!("{separator} with another job or payload{remedy}")
    } else {
        format!(", and {} is error", called(line, "on_conflict"))
    };
    let key = key.map_or("", |(key, _)| key);
    Fault::new(Exit::Conflict, format!("key `{key}` {place}{why}"))
}

/// Names the run that has a key, without its id if this role may not read runs.
fn holder(store: &Store, key: Option<&(Box<str>, KeyScope)>) -> String {
    let id = key.and_then(|(key, scope)| store.key_holder(key, *scope).ok().flatten());
    id.map_or_else(|| "a run".to_owned(), |id| format!("run {id}"))
}

/// Complains of replaced runs that keep other values than asked. Prints nothing if this role may
/// not read runs.
fn complain_of_replaced(store: &Store, answers: &[Accepted], runs: &[EncodedRun]) {
    let replaced =
        answers.iter().zip(runs).filter(|(answer, _)| answer.result == EnqueueResult::Replaced);
    let asked: HashMap<_, _> =
        replaced.filter_map(|(answer, run)| Some((answer.id?, run.decode()))).collect();
    if asked.is_empty() {
        return;
    }
    let runs = store.runs(asked.keys().copied().collect()).unwrap_or_default();
    // Returns the run's id, and the names of the values that it keeps.
    let differing = |run: &Run| {
        let NewRun { queue, priority, max_attempts, timeout, backoff, .. } = asked.get(&run.id)?;
        let differs = [
            ("queue", queue.as_ref().is_some_and(|queue| *queue != run.queue)),
            ("priority", priority.is_some_and(|priority| priority != run.priority)),
            ("max_attempts", max_attempts.is_some_and(|most| most != run.max_attempts)),
            ("timeout", timeout.is_some() && *timeout != run.timeout),
            ("backoff", backoff.as_ref().is_some_and(|backoff| *backoff != run.backoff)),
        ];
        let words: Vec<_> =
            differs.iter().filter(|(_, differs)| *differs).map(|(word, _)| *word).collect();
        if words.is_empty() { None } else { Some((run.id, words.join(" and "))) }
    };
    let mut differing = runs.iter().filter_map(differing);
    if let Some((id, words)) = differing.next() {
        let others = match differing.count() {
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
