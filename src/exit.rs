//! The exit statuses, and the error that carries one. Everything else that goes wrong is an
//! `anyhow::Error` on its way to a person; `main` alone turns either into a process status.

use std::fmt;

/// How a command ends; the number is the contract with scripts and crontabs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Exit {
    /// The command did its work; also a tick whose jobs failed.
    Done = 0,
    /// It could not.
    CouldNot = 1,
    /// Wrong usage: nothing was tried.
    Usage = 2,
    /// No such run or definition.
    NotFound = 3,
    /// The run's status forbids it, or the key is taken by another payload.
    Conflict = 4,
    /// The database can't be reached, or can't answer now.
    Unavailable = 5,
    /// The schema is older or newer than the program.
    Schema = 6,
    /// Configuration or privileges.
    Configuration = 7,
}

/// A refusal that knows its exit status. The text is for a person: cause first, remedy after a
/// semicolon, no secret.
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
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
