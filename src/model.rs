//! The vocabulary that every layer shares: what an attempt is told about itself and what it came
//! to. Pure: nothing here does I/O, reads a clock or knows the database.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::duration;

/// The longest time that a server can postpone an attempt.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// The prefix of the idempotency key of a run without its own key; the run's id follows.
pub(crate) const RUN_KEY_PREFIX: &str = "jobctl-run-";

/// What a job may know about the attempt it is; handed to it in its environment or its headers.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) run_id: i64,
    /// The definition's name, or the built-in `shell` / `http`.
    pub(crate) job: String,
    /// Ordinal of this execution, from 1.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    /// The same on every attempt of a run, so that whoever is called can drop repetitions.
    pub(crate) idempotency_key: String,
    /// The nominal time of the schedule that fired the run, RFC 3339.
    pub(crate) scheduled_for: Option<String>,
}

/// Where a run stands; the words of the `status` column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    /// Waits for its first attempt, or for one that an interruption or an operator granted.
    Queued,
    /// Held by a tick until its lease ends.
    Running,
    Succeeded,
    /// Waits for its next attempt after a failure.
    Failed,
    /// Failed for good.
    Dead,
    Cancelled,
}

impl Status {
    pub(crate) const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Dead, Self::Cancelled];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn words(statuses: &[Self]) -> Vec<&'static str> {
        statuses.iter().map(|status| status.as_str()).collect()
    }

    /// `None` for a word that is no status.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// What groups failures: the words of the `error_type` column.
pub(crate) const ERROR_TYPES: [&str; 12] = [
    "exit_code",
    "signal",
    "timeout",
    "spawn",
    "http_status",
    "transport",
    "tls",
    "bad_payload",
    "not_allowed",
    "lease_expired",
    "interrupted",
    "cancelled",
];

/// What an attempt came to, and what is known about it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) http_status: Option<u16>,
    pub(crate) output: Output,
    /// More detail for the history and the log; viewers see only the failure.
    pub(crate) note: Option<String>,
}

impl Ended {
    /// An attempt that failed before there was anything to observe.
    pub(crate) fn unstarted(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            exit_code: None,
            signal: None,
            http_status: None,
            output: Output::default(),
            note: None,
        }
    }
}

/// What a job printed or answered: bounded, valid UTF-8, no NUL, so that PostgreSQL can store it.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) text: String,
    /// How much there was in all, kept or not.
    pub(crate) bytes: u64,
    pub(crate) truncated: bool,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed(Failure),
    /// It was ended from outside, through its `Stop`.
    Stopped(Why),
}

/// Why an attempt was ended from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// An operator cancelled the run.
    Cancelled,
    /// The tick is shutting down.
    Interrupted,
    /// The lease ran out, or is held by somebody else now.
    LeaseLost,
}

/// The server's request to be called again later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RetryAfter {
    In(Duration),
    /// A date, if the server sent no `Date` of its own.
    At(DateTime<Utc>),
}

impl RetryAfter {
    /// Returns the wait from `now`, at most a day.
    pub(crate) fn wait(self, now: DateTime<Utc>) -> Duration {
        let wait = match self {
            Self::In(wait) => wait,
            Self::At(date) => (date - now).to_std().unwrap_or_default(),
        };
        wait.min(RETRY_AFTER_LIMIT)
    }
}

/// Why an attempt failed. `Display` is the sentence that is stored and shown, also to viewers. It
/// is short and contains no part of the payload, the headers or the output. It names no directory,
/// server or variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    ExitCode(i32),
    Signal(i32),
    Timeout(Duration),
    /// It could not be started; holds why.
    Spawn(String),
    /// Nothing was started, for want of processes, descriptors or memory on this host just now; holds the system's
    /// word for it.
    Exhausted(String),
    HttpStatus {
        status: u16,
        /// Only from status 429 and 503.
        retry_after: Option<RetryAfter>,
    },
    /// No complete answer; holds why.
    Transport(String),
    Tls(String),
    /// What the run holds can't be executed, now or later; holds why.
    BadPayload(String),
    /// It can't be started on any host like this one, however often it is tried; holds why.
    Unstartable(String),
    /// A flag of this host forbids the action. Holds the message, which names the flag.
    NotAllowed(String),
}

impl Failure {
    /// The word that groups failures of a kind, as stored in `error_type`.
    pub(crate) fn error_type(&self) -> &'static str {
        match self {
            Self::ExitCode(_) => "exit_code",
            Self::Signal(_) => "signal",
            Self::Timeout(_) => "timeout",
            Self::Spawn(_) | Self::Exhausted(_) | Self::Unstartable(_) => "spawn",
            Self::HttpStatus { .. } => "http_status",
            Self::Transport(_) => "transport",
            Self::Tls(_) => "tls",
            Self::BadPayload(_) => "bad_payload",
            Self::NotAllowed(_) => "not_allowed",
        }
    }

    /// Whether another attempt is pointless. Exit statuses are those of `sysexits.h` (usage, data,
    /// permission, configuration); HTTP statuses those that RFC 9110 and RFC 6585 don't call
    /// temporary.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::ExitCode(code) => matches!(code, 64 | 65 | 77 | 78),
            Self::HttpStatus { status, .. } => !matches!(status, 408 | 425 | 429 | 500..=599),
            Self::BadPayload(_) | Self::Unstartable(_) | Self::NotAllowed(_) => true,
            Self::Signal(_)
            | Self::Timeout(_)
            | Self::Spawn(_)
            | Self::Exhausted(_)
            | Self::Transport(_)
            | Self::Tls(_) => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExitCode(126) => formatter.write_str("exit status 126 (found but not executable)"),
            Self::ExitCode(127) => formatter.write_str("exit status 127 (command not found)"),
            Self::ExitCode(code) => write!(formatter, "exit status {code}"),
            Self::Signal(signal) => write!(formatter, "killed by signal {signal}"),
            Self::Timeout(limit) => write!(formatter, "timed out after {}", duration::show(*limit)),
            Self::HttpStatus { status: status @ 300..=399, .. } => {
                write!(formatter, "HTTP status {status}, redirect not followed")
            }
            Self::HttpStatus { status, .. } => write!(formatter, "HTTP status {status}"),
            Self::Spawn(why) | Self::Exhausted(why) | Self::Unstartable(why) => {
                write!(formatter, "could not start: {why}")
            }
            Self::Transport(why) | Self::Tls(why) | Self::BadPayload(why) | Self::NotAllowed(why) => {
                formatter.write_str(why)
            }
        }
    }
}
