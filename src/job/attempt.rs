//! One execution of a run: the input of the job, and its result. Pure.

use crate::job::failure::Failure;
use crate::job::payload;
use crate::text::words::words;

/// The prefix of the idempotency key of a run without its own key; the run's id follows.
pub(crate) const RUN_KEY_PREFIX: &str = "jobctl-run-";
/// The prefix of the keys of hooks, see enqueue_hooks.sql.
pub(crate) const HOOK_KEY_PREFIX: &str = "jobctl-hook-";

/// The facts about an attempt that its job gets, in its environment or its headers.
#[derive(Clone, Debug)]
pub(crate) struct AttemptIdentity {
    pub(crate) run_id: i64,
    /// The definition's name, or the built-in `shell` / `http`.
    pub(crate) job: String,
    /// From 1.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    /// The same on every attempt of a run, so that a receiver can drop repetitions.
    pub(crate) idempotency_key: String,
    /// The nominal time of the schedule that fired the run, RFC 3339.
    pub(crate) scheduled_for: Option<String>,
    /// The ids of the runs that this run waited for, with commas.
    pub(crate) after: Option<String>,
    /// The W3C trace context that the run continues.
    pub(crate) traceparent: Option<String>,
}

/// How an attempt ended: its outcome, with what the process or the server returned.
#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub(crate) outcome: Outcome,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) http_status: Option<u16>,
    pub(crate) output: JobOutput,
    /// More detail for the history and the log; viewers see only the failure.
    pub(crate) note: Option<String>,
}

/// The line between stdout and stderr in a job's output.
pub(crate) const STDERR_LINE: &str = "--- stderr ---\n";

impl AttemptResult {
    /// The result of an attempt that failed before a process or a call existed.
    pub(crate) fn unstarted(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            exit_code: None,
            signal: None,
            http_status: None,
            output: JobOutput::default(),
            note: None,
        }
    }

    /// Turns a success into a failure if its output is not JSON.
    pub(crate) fn with_json(self) -> Self {
        match (&self.outcome, payload::check_json("output", self.output.stdout())) {
            (Outcome::Succeeded, Err(why)) => {
                // A line about left out bytes stands for the middle of a long output.
                let is_cut = self.output.stdout().contains(" bytes left out]\n");
                let cause = if is_cut { "; it was too long to be stored whole" } else { "" };
                Self { outcome: Outcome::Failed(Failure::BadResult(why + cause)), ..self }
            }
            _ => self,
        }
    }
}

/// The part of a job's output or of a response that is stored. It is valid UTF-8 without NUL, so
/// that PostgreSQL can store it.
#[derive(Debug, Default)]
pub(crate) struct JobOutput {
    pub(crate) text: String,
    /// The length of the whole output.
    pub(crate) bytes: u64,
    pub(crate) truncated: bool,
}

impl JobOutput {
    /// Returns the output without stderr, which follows after `STDERR_LINE`. A result in JSON can't
    /// contain this line.
    fn stdout(&self) -> &str {
        self.text.split(STDERR_LINE).next().unwrap_or_default()
    }

    /// Returns the last line that is not blank, at most its last 1000 characters, as
    /// `jobctl.last_line` does.
    pub(crate) fn last_line(&self) -> Option<&str> {
        let start = self.text.char_indices().rev().nth(999).map_or(0, |(at, _)| at);
        let tail = self.text[start..].trim_end();
        tail.rsplit(['\n', '\r']).next().filter(|line| !line.is_empty())
    }
}

/// The log's words for a failed run that is cancelled before its next attempt.
pub(crate) const EXPIRES_FIRST: &str = "expires before its next attempt";

/// Whether an attempt succeeded; otherwise why not.
#[derive(Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed(Failure),
    /// The tick ended the attempt through its `Stop`.
    Stopped(StopReason),
}

words! {
    /// The words of the `outcome` column of the history.
    pub(crate) enum HistoryOutcome {
        Succeeded = "succeeded",
        Failed = "failed",
        Interrupted = "interrupted",
        /// The attempt asked to be made later.
        Snoozed = "snoozed",
        Cancelled = "cancelled",
        LeaseExpired = "lease_expired",
    }
}

/// Why a tick ends an attempt early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StopReason {
    /// An operator cancelled the run.
    Cancelled,
    /// The tick is shutting down.
    Interrupted,
    /// The lease expired or was taken by another tick.
    LeaseLost,
}

/// Returns the subject of a log line: `run 42 shell attempt 1/10`.
pub(crate) fn describe(id: i64, job_type: &str, attempt: i32, max_attempts: i32) -> String {
    // Escape line breaks and control characters: any program may have written the job's name.
    format!("run {id} {} attempt {attempt}/{max_attempts}", job_type.escape_debug())
}
