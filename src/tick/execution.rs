//! One attempt: executes a claimed run, judges the result, and words the log line about it.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use log::Level;

use crate::execute::{Executor, Stop};
use crate::job::action::{self, Action};
use crate::job::attempt::{
    self, AttemptIdentity, AttemptResult, EXPIRES_FIRST, HistoryOutcome, Outcome, RUN_KEY_PREFIX,
    StopReason,
};
use crate::job::failure::{ErrorType, Failure};
use crate::job::next_status::{NextStatus, Prospect, RetryFacts};
use crate::job::status::Status;
use crate::store::{Claimed, Finish};
use crate::text::duration;

/// A claimed run on its way to a thread.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) run: Claimed,
    /// When its job must stop, unless the lease is renewed before.
    pub(crate) until: Instant,
    /// The run expires at this time, so it must not start later; `None`: it does not expire.
    pub(crate) start_by: Option<Instant>,
    /// Why the run must not start; `None`: it may.
    pub(crate) stopped: Option<StopReason>,
}

/// What became of a claimed run.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The attempt has a result.
    Judged(Box<JudgedAttempt>),
    /// The attempt was stopped or withdrawn before it could start.
    Unstarted(Claimed),
    /// This host lacks memory, processes or descriptors to start the attempt now.
    Exhausted(Claimed, Failure),
}

impl Ended {
    /// Returns the claimed run.
    pub(crate) fn run(&self) -> &Claimed {
        match self {
            Self::Judged(judged) => &judged.run,
            Self::Unstarted(run) | Self::Exhausted(run, _) => run,
        }
    }

    /// Returns the number of bytes of output; 0 without an attempt.
    pub(crate) fn bytes(&self) -> usize {
        if let Self::Judged(judged) = self { judged.bytes() } else { 0 }
    }
}

/// Executes a run on the calling thread, and judges the result. Does not start a run that was asked
/// to stop, whose time to start is over, or whose predecessors' results were not read in time.
pub(crate) fn execute(run: Claimed, executor: &Executor, stop: &Stop) -> Ended {
    // The run is claimed again later, and that tries again to read the results.
    let is_unread = run.passes_results && run.results.is_none();
    if is_unread || stop.asked().is_some() || stop.is_too_late() {
        return Ended::Unstarted(run);
    }
    let started = Instant::now();
    // A panic is a bug, but it must not stop the other runs.
    let executed = catch_unwind(AssertUnwindSafe(|| {
        let action = action(&run);
        let result = match &action {
            Err(failure) => AttemptResult::unstarted(failure.clone()),
            Ok(action) => {
                let result = executor.execute(action, &identity(&run), run.timeout, stop);
                if run.prints_json { result.with_json() } else { result }
            }
        };
        let prospect = Prospect::of(&result.outcome, action.as_ref().ok());
        (result, prospect)
    }));
    let (result, prospect) = executed.unwrap_or_else(|_| {
        let failure = Failure::Spawn("jobctl panicked; please report it".to_owned());
        (AttemptResult::unstarted(failure), Prospect::Transient)
    });
    if let Outcome::Failed(why @ Failure::Exhausted(_)) = result.outcome {
        return Ended::Exhausted(run, why);
    }
    let times = (started, Instant::now());
    let judged = JudgedAttempt::new(run, result, prospect, times, rand::random());
    Ended::Judged(Box::new(judged))
}

/// Returns the data about the attempt that its job gets.
fn identity(run: &Claimed) -> AttemptIdentity {
    AttemptIdentity {
        run_id: run.id,
        job: run.job_type.clone(),
        attempt: run.attempt,
        max_attempts: run.max_attempts,
        idempotency_key: run.key.clone().unwrap_or_else(|| format!("{RUN_KEY_PREFIX}{}", run.id)),
        scheduled_for: run.scheduled_for.clone(),
        after: run.after.clone(),
        traceparent: run.traceparent.clone(),
    }
}

/// Returns what to execute: by the run's definition, or by the payload of a built-in job. Fails if
/// the job has neither, if it can't be read, or if the input can't be read.
fn action(run: &Claimed) -> Result<Action, Failure> {
    let job_type = run.job_type.escape_debug();
    let input = input_of(run)?;
    // A built-in job needs no definition, even if the database has one by its name.
    let definition = run.definition.as_ref().filter(|_| !action::is_built_in(&run.job_type));
    let action = match definition {
        Some(definition) => Action::of_definition(definition.kind, &definition.action, &input)
            .map_err(|why| format!("definition `{job_type}` can't be executed: {why}")),
        None => Action::parse(&run.job_type, &run.payload).unwrap_or_else(|| {
            Err(format!("no definition `{job_type}`; it was never applied, or was removed"))
        }),
    };
    action.map_err(Failure::BadPayload)
}

/// Returns the input of a defined job: the run's payload. If the definition has `pass_result`, the
/// input is an object with the payload and the results of the runs that this run waited for. Fails
/// if these results can't be read.
fn input_of(run: &Claimed) -> Result<Cow<'_, str>, Failure> {
    let payload = &run.payload;
    match &run.results {
        None => Ok(payload.into()),
        Some(Ok(results)) => Ok(format!(r#"{{"payload": {payload}, "after": {results}}}"#).into()),
        Some(Err(failure)) => Err(failure.clone()),
    }
}

/// An attempt that ended, and the run's next status. The attempt is judged once, even if it takes
/// several tries to record its result.
#[derive(Debug)]
pub(crate) struct JudgedAttempt {
    pub(crate) run: Claimed,
    pub(crate) started: Instant,
    pub(crate) finished: Instant,
    pub(crate) next_status: NextStatus,
    result: AttemptResult,
    /// The database rejected the texts of the result, so they were replaced.
    is_stripped: bool,
}

impl JudgedAttempt {
    /// Judges an attempt that has just ended. `random` in 0..1 is the jitter.
    pub(crate) fn new(
        run: Claimed,
        result: AttemptResult,
        prospect: Prospect,
        (started, finished): (Instant, Instant),
        random: f64,
    ) -> Self {
        let facts = RetryFacts {
            prospect,
            attempt: run.counted_attempt(),
            max_attempts: run.max_attempts - run.uncounted_attempts,
            backoff: &run.backoff,
            random,
            // The database's time, approximately: without the time that the run waited for a
            // thread.
            now: run.claimed_at + (finished - started),
        };
        let next_status = NextStatus::of(&result, &facts);
        Self { run, started, finished, next_status, result, is_stripped: false }
    }

    /// Returns the number of bytes of output.
    pub(crate) fn bytes(&self) -> usize {
        self.result.output.text.len()
    }

    /// Replaces the texts, which the database rejected. Returns `false` if that was done before:
    /// then the texts are not the cause.
    pub(crate) fn strip(&mut self) -> bool {
        self.result.output.text = "[output could not be stored]".to_owned();
        self.result.note = None;
        let error = &mut self.next_status.error;
        *error = error.take().map(|_| "error could not be stored".to_owned());
        !std::mem::replace(&mut self.is_stripped, true)
    }

    /// Returns the result as arguments of a statement that is sent now.
    pub(crate) fn finish(&self, now: Instant) -> Finish {
        let Self { run, started, finished, next_status, result, .. } = self;
        let output = &result.output;
        let has_output = output.bytes > 0 || self.is_stripped;
        Finish {
            token: run.token(),
            next_status: next_status.clone(),
            detail: result.note.as_ref().map(|note| match &next_status.error {
                Some(error) => format!("{error}; {note}"),
                None => note.clone(),
            }),
            exit_code: result.exit_code,
            signal: result.signal,
            http_status: result.http_status.map(i32::from),
            output: if has_output { Some(output.text.clone()) } else { None },
            output_bytes: i64::try_from(output.bytes).unwrap_or(i64::MAX),
            output_truncated: output.truncated,
            started_ago: now - *started,
            ended_ago: now - *finished,
        }
    }

    /// Logs a result that was recorded with this status of the run; `None`: the lease was lost.
    pub(crate) fn log(&self, status: Option<Status>, worker: &str) {
        let (level, line) = self.log_line(status);
        let Claimed { id, job_type, attempt, .. } = &self.run;
        let next = self.next_wait(status).map(|wait| wait.as_secs_f64());
        log::log!(
            level,
            run = id,
            job = job_type,
            attempt = attempt,
            worker = worker,
            status = status.map_or("lost", Status::as_str),
            run_time_seconds = (self.finished - self.started).as_secs_f64(),
            error_type = self.next_status.error_type.map(ErrorType::as_str),
            error = self.next_status.error.as_deref(),
            last_line = self.last_line(),
            next_attempt_seconds = next,
            trace_id = self.run.trace_id();
            "{line}"
        );
    }

    /// Returns the time until the next attempt of a run that has this status now, if it has one.
    fn next_wait(&self, status: Option<Status>) -> Option<Duration> {
        let Self { run, started, finished, next_status, .. } = self;
        let is_snoozed =
            status == Some(Status::Queued) && next_status.outcome == HistoryOutcome::Snoozed;
        let waits = status == Some(Status::Failed) || is_snoozed;
        // The run may expire before its next attempt.
        let starts_after = *finished - *started + next_status.wait;
        let is_in_time = run.expires_in.is_none_or(|left| starts_after < left);
        if waits && is_in_time { Some(next_status.wait) } else { None }
    }

    /// Returns how the attempt ended.
    fn ending(&self) -> &str {
        match &self.result.outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Stopped(StopReason::Interrupted) => "interrupted",
            Outcome::Stopped(StopReason::Cancelled) => "cancelled",
            Outcome::Failed(_) | Outcome::Stopped(StopReason::LeaseLost) => {
                self.next_status.error.as_deref().unwrap_or("failed")
            }
        }
    }

    /// Returns the last line of the output, if the attempt failed.
    fn last_line(&self) -> Option<&str> {
        match self.next_status.outcome {
            HistoryOutcome::Failed => self.result.output.last_line(),
            _ => None,
        }
    }

    /// Returns how the attempt ended, after which time, and what else is known.
    pub(super) fn what_happened(&self) -> String {
        let Self { started, finished, result, .. } = self;
        let ended = match &result.outcome {
            // Leave out the time: a timeout names its duration, and the other failures started
            // nothing.
            Outcome::Failed(
                Failure::Timeout(_)
                | Failure::Spawn(_)
                | Failure::Exhausted(_)
                | Failure::BadPayload(_)
                | Failure::Unstartable(_)
                | Failure::NotAllowed(_),
            ) => self.ending().to_owned(),
            _ => format!("{} after {}", self.ending(), duration::show(*finished - *started)),
        };
        match &result.note {
            Some(note) => format!("{ended}; {note}"),
            None => ended,
        }
    }

    /// Returns the log line about a result that was recorded with this status of the run; `None`:
    /// the lease was lost.
    pub(crate) fn log_line(&self, status: Option<Status>) -> (Level, String) {
        let Self { run, next_status, .. } = self;
        let subject = subject(run);
        let Some(status) = status else {
            return (Level::Warn, format!("{subject}: lease lost, result not recorded"));
        };
        let next = match status {
            Status::Failed => match self.next_wait(Some(status)) {
                Some(wait) => format!(", next attempt in {}", duration::show(wait)),
                None => format!(", {EXPIRES_FIRST}"),
            },
            Status::Queued if next_status.outcome == HistoryOutcome::Snoozed => {
                match self.next_wait(Some(status)) {
                    Some(wait) => format!(", snoozed for {}", duration::show(wait)),
                    None => format!(", {EXPIRES_FIRST}"),
                }
            }
            Status::Queued => ", queued again".to_owned(),
            Status::Dead => ", dead".to_owned(),
            Status::Cancelled if self.ending() != "cancelled" => ", cancelled".to_owned(),
            Status::Blocked | Status::Running | Status::Succeeded | Status::Cancelled => {
                String::new()
            }
        };
        let is_lost = matches!(self.result.outcome, Outcome::Stopped(StopReason::LeaseLost));
        let level = if is_lost || status == Status::Dead { Level::Warn } else { Level::Info };
        let last_line = self.last_line().map(|line| format!(": {line}")).unwrap_or_default();
        (level, format!("{subject}: {}{next}{last_line}", self.what_happened()))
    }
}

/// Returns the subject of a log line: `run 42 shell attempt 1/10`.
pub(crate) fn subject(run: &Claimed) -> String {
    attempt::describe(run.id, &run.job_type, run.attempt, run.max_attempts)
}
