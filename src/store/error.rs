//! What PostgreSQL's errors mean to jobctl: whether trying again can help, which exit status they
//! are, and what to tell a person. The only place that reads a SQLSTATE.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use postgres::error::SqlState;
use postgres::types::{WasNull, WrongType};

use crate::connect::Refused;
use crate::exit::Exit;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The connection is gone, silent, or leads to a server that takes no writes: connect anew.
    Lost,
    /// A lock or a resource is not to be had now, or it took too long; nothing was written.
    Busy,
    /// A value can't be stored, now or later.
    Data,
    /// A matter for a person.
    Fatal,
}

/// An error of the store, worded for a person.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) exit: Exit,
    cause: String,
    /// The remedy for a person.
    remedy: &'static str,
}

/// The codes of `jobctl.enqueue` that jobctl handles separately.
pub(super) const NO_DEFINITION: &str = "JC003";
pub(super) const KEY_TAKEN: &str = "JC004";

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, exit: Exit, message: impl Into<String>) -> Self {
        Self { kind, exit, cause: message.into(), remedy: "" }
    }

    /// Returns the error for a tick's log, without the advice to try again: the tick tries again
    /// itself.
    pub(crate) fn for_log(&self) -> String {
        match self.kind {
            Kind::Lost | Kind::Busy => self.cause.clone(),
            Kind::Data | Kind::Fatal => self.to_string(),
        }
    }

    /// Returns whether a row may have caused the error. Then other rows may succeed.
    pub(crate) fn may_be_about_rows(&self) -> bool {
        self.kind == Kind::Data || self.kind == Kind::Fatal && self.exit == Exit::CouldNot
    }

    /// The server said nothing for longer than any statement may take.
    pub(super) fn silent(doing: &str) -> Self {
        let cause = format!("cannot {doing}: {SILENT}");
        Self { kind: Kind::Lost, exit: Exit::Unavailable, cause, remedy: "try again later" }
    }

    /// The server did not answer the COMMIT in time.
    pub(super) fn silent_at_commit(doing: &str) -> Self {
        Self::uncertain(doing, SILENT)
    }

    /// A setting makes the session read-only.
    pub(super) fn read_only(doing: &str) -> Self {
        let cause = format!("cannot {doing}: default_transaction_read_only is on for this role or database");
        let remedy = "turn it off with ALTER ROLE or ALTER DATABASE";
        Self { kind: Kind::Lost, exit: Exit::Configuration, cause, remedy }
    }

    /// The answer lacks something that every PostgreSQL sends.
    pub(super) fn broken(doing: &str) -> Self {
        Self { kind: Kind::Lost, exit: Exit::Unavailable, cause: format!("cannot {doing}: {BROKEN}"), remedy: LOOK }
    }

    pub(super) fn of(doing: &str, error: &postgres::Error) -> Self {
        let constraint = error.as_db_error().and_then(|db| db.constraint());
        if let Some(key @ ("job_runs_pkey" | "job_definitions_pkey")) = constraint {
            let table = key.trim_end_matches("_pkey");
            let remedy = "`jobctl doctor` prints the statement that corrects it";
            let line = format!("cannot {doing}: the sequence of jobctl.{table} is behind its table; {remedy}");
            return Self::new(Kind::Data, Exit::Configuration, line);
        }
        let (kind, exit, remedy) = match error.code() {
            Some(code) => meaning(code),
            None if is_about_value(error) => (Kind::Fatal, Exit::CouldNot, ""),
            None if is_broken(error) => (Kind::Lost, Exit::Unavailable, LOOK),
            None => (Kind::Lost, Exit::Unavailable, "try again"),
        };
        let detail = match error.as_db_error().and_then(|db| db.detail()) {
            Some(detail) if kind != Kind::Data => format!(": {detail}"),
            _ => String::new(),
        };
        let cause = format!("cannot {doing}: {}{detail}", cause(error)).replace(['\n', '\r'], " ");
        Self { kind, exit, cause, remedy }
    }

    /// An error of COMMIT: where the connection was lost, what was asked for may have been done.
    pub(super) fn of_commit(doing: &str, error: &postgres::Error) -> Self {
        let known = Self::of(doing, error);
        if known.kind == Kind::Lost { Self::uncertain(doing, &cause(error)) } else { known }
    }

    fn uncertain(doing: &str, cause: &str) -> Self {
        let cause = format!("cannot {doing}: {cause} after COMMIT was sent, so it may have succeeded")
            .replace(['\n', '\r'], " ");
        Self { kind: Kind::Lost, exit: Exit::Unavailable, cause, remedy: "check before you try again" }
    }
}

const BROKEN: &str = "the database sent an invalid answer";
const LOOK: &str = "check that the address is right";
const SILENT: &str = "the database does not answer";

/// Returns the cause from the server or the driver, without the failed action.
pub(super) fn cause(error: &postgres::Error) -> String {
    if let Some(refused) = refused(error) {
        return refused.to_string();
    }
    match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None if is_broken(error) => format!("{BROKEN}: {}", chain(error)),
        None => chain(error),
    }
}

/// `Display` of the driver's error names only its class; the causes are in its chain.
fn chain(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

/// Returns the limit that the connection enforced.
fn refused(error: &postgres::Error) -> Option<&Refused> {
    error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Returns whether no PostgreSQL would give this answer: a row, a column or a message is missing or
/// has the wrong kind, or there are too many rows.
fn is_broken(error: &postgres::Error) -> bool {
    let is_known = |cause: &(dyn StdError + 'static)| !cause.is::<WasNull>() && !cause.is::<WrongType>();
    error.code().is_none() && !error.is_closed() && (refused(error).is_some() || !error.source().is_some_and(is_known))
}

/// Whether the driver could not turn a value into the other side's: what it says without a code is else about the
/// connection, which has an error of the system as its cause, or none.
fn is_about_value(error: &postgres::Error) -> bool {
    !is_broken(error) && error.source().is_some_and(|cause| !cause.is::<io::Error>())
}

/// Returns whether the session is read-only.
pub(super) fn is_read_only(error: &postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether the statement was refused only because it met another one, and may be sent again at once.
pub(super) fn is_collision(error: &postgres::Error) -> bool {
    // A key that was taken while the statement ran is one that only the next statement sees. And an id that somebody
    // has chosen is one that the sequence passes.
    let constraint = error.as_db_error().and_then(|db| db.constraint());
    matches!(constraint, Some("job_runs_key" | "job_runs_pkey"))
        || matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Returns whether a function, table, schema or column does not exist.
pub(super) fn is_undefined(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| UNDEFINED.contains(&code.code()))
}

const UNDEFINED: [&str; 4] = ["42P01", "3F000", "42703", "42883"];

/// The exit status for an error code of `jobctl.enqueue`.
pub(super) fn refusal(code: &str) -> Exit {
    match code {
        "22023" => Exit::Usage,
        "55000" => Exit::Conflict,
        "42501" | "JC007" => Exit::Configuration,
        _ => Exit::CouldNot,
    }
}

fn meaning(code: &SqlState) -> (Kind, Exit, &'static str) {
    match code.code() {
        "55P03" | "40001" | "40P01" => (Kind::Busy, Exit::Unavailable, "another session holds a lock; try again"),
        "57014" => (Kind::Busy, Exit::Unavailable, "try again, or narrow it down"),
        // The server ended the session because a transaction was idle for too long.
        "25P03" => (Kind::Lost, Exit::Unavailable, "try again"),
        "25P04" => {
            (Kind::Lost, Exit::Unavailable, "try again, or set transaction_timeout higher for this role, or to 0")
        }
        "25006" => (Kind::Lost, Exit::Unavailable, "the server takes no writes now; connect to the primary"),
        "42501" => {
            let remedy = "`jobctl grants` prints what roles need, and the schema's owner may do everything";
            (Kind::Fatal, Exit::Configuration, remedy)
        }
        code if UNDEFINED.contains(&code) => (Kind::Fatal, Exit::Schema, "run `jobctl migrate`"),
        // Poolers use this code for all their errors, also for statement mode.
        "08P01" => (Kind::Lost, Exit::Unavailable, "try again; a pooler needs pool_mode = transaction"),
        "26000" | "42P05" => {
            (Kind::Fatal, Exit::Configuration, "a pooler mixes up prepared statements; use its transaction mode")
        }
        code => match code.get(..2).unwrap_or_default() {
            "08" | "57" => (Kind::Lost, Exit::Unavailable, "try again"),
            "53" => (Kind::Busy, Exit::Unavailable, "the server is short of a resource; try again"),
            // P0: a trigger that somebody has added.
            "22" | "23" | "54" | "P0" => (Kind::Data, Exit::CouldNot, ""),
            _ => (Kind::Fatal, Exit::CouldNot, ""),
        },
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, remedy, .. } = self;
        let separator = if remedy.is_empty() { "" } else { "; " };
        write!(formatter, "{cause}{separator}{remedy}")
    }
}

impl StdError for Error {}
