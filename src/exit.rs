//! The exit statuses, and the error that carries one. All other errors are `anyhow::Error`s, which
//! exit with 1.

use std::fmt;

/// How a command ends, from good to worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Exit {
    /// The command did its work; also a tick whose jobs failed.
    Done,
    /// The command could not do its work; also a check that found a problem.
    CouldNot,
    /// Wrong usage: nothing was tried.
    Usage,
    /// No such run or definition.
    NotFound,
    /// The state of a run, schedule or effect forbids it, or the key belongs to another run.
    Conflict,
    /// The database can't be reached, or can't answer now.
    Unavailable,
    /// The schema is older or newer than the program.
    Schema,
    /// A setting is wrong, or a privilege is missing.
    Configuration,
    /// The database is older than a tick has seen it: a person must look at its runs first.
    Restored,
    /// A running attempt uses the effect: try again later.
    InUse,
    /// An effect was begun, and it is unknown whether it happened.
    Open,
    /// The definition has as many waiting runs as it allows.
    Full,
    /// A run that was waited for was cancelled.
    Cancelled,
    /// The status of a command that was run in the foreground, or of a job.
    Passed(u8),
}

/// A command that returns no status did its work.
impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl Exit {
    /// Returns the exit status of the process. Scripts and crontabs rely on these numbers.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CouldNot => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Unavailable => 5,
            Self::Schema => 6,
            Self::Configuration | Self::Restored => 7,
            Self::Open => 8,
            Self::Full => 9,
            Self::Cancelled => 10,
            // EX_TEMPFAIL of sysexits.h, with which a job asks for a later attempt: a job that
            // calls `once` gets one.
            Self::InUse => 75,
            Self::Passed(status) => status,
        }
    }
}

/// An error with its exit status. The message is one line without secrets: the cause, then a
/// semicolon and the remedy.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) exit: Exit,
    message: String,
}

impl Fault {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { exit, message }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The error for a flag or a variable whose value is empty.
    pub(crate) fn empty(name: &str) -> Self {
        Self::usage(format!(
            "cannot use {name}: its value is empty; give a value, or remove {name}"
        ))
    }

    /// The error for a flag or a variable with several values, of which one is empty.
    pub(crate) fn empty_element(name: &str) -> Self {
        Self::usage(format!("cannot use {name}: one of its values is empty; remove that one"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
