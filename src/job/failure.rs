//! The reasons for which an attempt fails. Pure.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::text::duration;
use crate::text::words::words;

/// The maximum time by which a server can postpone an attempt.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(24 * 3600);

words! {
    /// The words of the `error_type` column, which group failures.
    pub(crate) enum ErrorType {
        ExitCode = "exit_code",
        Signal = "signal",
        Timeout = "timeout",
        Spawn = "spawn",
        HttpStatus = "http_status",
        Transport = "transport",
        Tls = "tls",
        BadPayload = "bad_payload",
        BadResult = "bad_result",
        NotAllowed = "not_allowed",
        LeaseExpired = "lease_expired",
        ClaimRejected = "claim_rejected",
        Interrupted = "interrupted",
        Cancelled = "cancelled",
        Dropped = "dropped",
        Expired = "expired",
        Predecessor = "predecessor",
    }
}

/// The names of Linux's signals without SIG, from 1 on.
#[rustfmt::skip]
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU",
    "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The server's request to be called again later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RetryAfter {
    In(Duration),
    /// A date, if the server sent no `Date` of its own.
    At(DateTime<Utc>),
}

impl RetryAfter {
    /// Reads a number of seconds; `None`: the text is not a number.
    pub(crate) fn seconds(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // A number that is too large means the longest wait.
        Some(Self::In(Duration::from_secs(text.parse().unwrap_or(u64::MAX))))
    }

    /// Returns the wait from `now`, at most a day.
    pub(crate) fn wait(self, now: DateTime<Utc>) -> Duration {
        let wait = match self {
            Self::In(wait) => wait,
            Self::At(date) => (date - now).to_std().unwrap_or_default(),
        };
        wait.min(RETRY_AFTER_LIMIT)
    }
}

/// The reason of a failed attempt. `Display` is the sentence that is stored and shown, also to
/// viewers. It is short and contains no part of the payload, the headers or the output. It names no
/// directory, server or variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    ExitCode(i32),
    Signal(i32),
    Timeout(Duration),
    /// The command could not be started.
    Spawn(String),
    /// This host has no processes, descriptors or memory left now. Holds the system's message.
    Exhausted(String),
    HttpStatus {
        status: u16,
        /// Only from status 429 and 503.
        retry_after: Option<RetryAfter>,
    },
    /// The call got no complete answer.
    Transport(String),
    Tls(String),
    /// The run's payload or definition cannot be executed.
    BadPayload(String),
    /// The job succeeded, but did not print what its definition says.
    BadResult(String),
    /// The command cannot start on any host: its arguments are too long.
    Unstartable(String),
    /// A flag of this host forbids the action. Holds the message, which names the flag.
    NotAllowed(String),
}

impl Failure {
    /// Returns the word by which failures are grouped.
    pub(crate) fn error_type(&self) -> ErrorType {
        match self {
            Self::ExitCode(_) => ErrorType::ExitCode,
            Self::Signal(_) => ErrorType::Signal,
            Self::Timeout(_) => ErrorType::Timeout,
            Self::Spawn(_) | Self::Exhausted(_) | Self::Unstartable(_) => ErrorType::Spawn,
            Self::HttpStatus { .. } => ErrorType::HttpStatus,
            Self::Transport(_) => ErrorType::Transport,
            Self::Tls(_) => ErrorType::Tls,
            Self::BadPayload(_) => ErrorType::BadPayload,
            Self::BadResult(_) => ErrorType::BadResult,
            Self::NotAllowed(_) => ErrorType::NotAllowed,
        }
    }

    /// Returns whether the failure is permanent: another attempt can't succeed.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            // 8: `jobctl once` has found an open effect, whose key a person must settle. In
            // `sysexits.h`, 64 is wrong usage, 65 wrong data, 77 no permission, and 78 a wrong
            // configuration.
            Self::ExitCode(code) => matches!(code, 8 | 64 | 65 | 77 | 78),
            // All statuses except those that RFC 9110 and RFC 6585 call temporary.
            Self::HttpStatus { status, .. } => !matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Unstartable(_) | Self::BadPayload(_) | Self::NotAllowed(_) => true,
            Self::Signal(_)
            | Self::Timeout(_)
            | Self::Spawn(_)
            | Self::Exhausted(_)
            | Self::Transport(_)
            | Self::Tls(_)
            | Self::BadResult(_) => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // If a signal ended a command, its shell returns 128 plus the signal's number.
            Self::ExitCode(code) => match (code, signal_name(code.saturating_sub(128))) {
                (126, _) => formatter.write_str("exit status 126 (found but not executable)"),
                (127, _) => formatter.write_str("exit status 127 (command not found)"),
                (137, _) => formatter.write_str("exit status 137 (SIGKILL: out of memory?)"),
                (_, Some(name)) => write!(formatter, "exit status {code} (SIG{name})"),
                (_, None) => write!(formatter, "exit status {code}"),
            },
            Self::Signal(9) => formatter.write_str("killed by SIGKILL (out of memory?)"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(formatter, "killed by SIG{name}"),
                None => write!(formatter, "killed by signal {signal}"),
            },
            Self::Timeout(limit) => write!(formatter, "timed out after {}", duration::show(*limit)),
            Self::HttpStatus { status, .. } if is_redirect(*status) => {
                write!(formatter, "HTTP status {status}, redirect not followed")
            }
            Self::HttpStatus { status, .. } => write!(formatter, "HTTP status {status}"),
            Self::Spawn(why) | Self::Exhausted(why) | Self::Unstartable(why) => {
                write!(formatter, "could not start: {why}")
            }
            Self::Transport(why)
            | Self::Tls(why)
            | Self::BadPayload(why)
            | Self::BadResult(why)
            | Self::NotAllowed(why) => formatter.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

/// Returns the error and then the last words of the job, unless there are none, or the error
/// contains them.
pub(crate) fn with_words(error: &str, words: Option<&String>) -> String {
    match words {
        Some(words) if !error.contains(words.as_str()) => format!("{error}: {words}"),
        _ => error.to_owned(),
    }
}

/// Returns whether the status asks for a request to another URL. The other statuses from 300 to 399
/// offer a choice, or say that nothing has changed.
pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301..=303 | 307 | 308)
}

/// Returns the name of a signal without SIG; real-time signals have none.
fn signal_name(signal: i32) -> Option<&'static str> {
    let index = usize::try_from(signal).ok()?.checked_sub(1)?;
    SIGNALS.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(failure: &Failure, text: &str) {
        assert_eq!(failure.to_string(), text);
    }

    #[test]
    fn a_signal_has_a_name_and_sigkill_hints_at_memory() {
        says(&Failure::Signal(1), "killed by SIGHUP");
        says(&Failure::Signal(9), "killed by SIGKILL (out of memory?)");
        says(&Failure::Signal(15), "killed by SIGTERM");
        says(&Failure::Signal(31), "killed by SIGSYS");
        says(&Failure::Signal(34), "killed by signal 34");
        says(&Failure::Signal(0), "killed by signal 0");
        says(&Failure::Signal(6), "killed by SIGABRT");
        says(&Failure::Signal(11), "killed by SIGSEGV");
        says(&Failure::Signal(24), "killed by SIGXCPU");
    }

    #[test]
    fn an_exit_status_above_128_names_the_signal() {
        says(&Failure::ExitCode(137), "exit status 137 (SIGKILL: out of memory?)");
        says(&Failure::ExitCode(143), "exit status 143 (SIGTERM)");
        for code in [-1, 0, 1, 125, 128, 160, 255] {
            says(&Failure::ExitCode(code), &format!("exit status {code}"));
        }
    }
}
