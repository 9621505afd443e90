//! Classifies PostgreSQL's errors: whether a retry can help, the exit status, and the remedy. The
//! only place that reads a SQLSTATE.

use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::io;

use anyhow::Chain;
use postgres::error::{Severity, SqlState};
use postgres::types::{WasNull, WrongType};

use crate::connect::{Rejection, is_behind_pooler};
use crate::exit::Exit;
use crate::text::shell;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The connection is lost, or its server is silent or read-only: connect again.
    Lost,
    /// A lock or a resource is not available now, or a time limit ended the statement. Nothing was
    /// written.
    Busy,
    /// A value can't be stored, now or later.
    Data,
    /// A person must act.
    Fatal,
}

/// An error of the store, worded for a person.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) exit: Exit,
    /// What failed, and why.
    cause: String,
    /// What to do; empty if there is no advice.
    remedy: &'static str,
    /// A time limit ended the statement. It may succeed with fewer rows.
    pub(crate) is_too_slow: bool,
    /// Another session held a lock for too long.
    is_locked: bool,
    /// The answer to COMMIT is missing, so the transaction may have succeeded.
    pub(crate) may_be_committed: bool,
}

/// The code of `jobctl.enqueue` if no definition has the job's name.
pub(super) const NO_DEFINITION: &str = "JC003";
/// The code of `jobctl.enqueue` if the key belongs to a run with another job or payload.
pub(super) const KEY_TAKEN: &str = "JC004";
/// The code of `jobctl.enqueue` if the key has a run, and the new run shall have none.
pub(super) const KEY_HAS_RUN: &str = "JC009";

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error without a remedy.
    pub(crate) fn new(kind: Kind, exit: Exit, message: impl Into<String>) -> Self {
        Self {
            kind,
            exit,
            cause: message.into(),
            remedy: "",
            is_too_slow: false,
            is_locked: false,
            may_be_committed: false,
        }
    }

    /// Adds the name of the database if its schema is the problem, because the address often leads
    /// to another database than the one with the schema.
    pub(super) fn in_database(mut self, target: &str) -> Self {
        if self.exit == Exit::Schema {
            let _ = write!(self.cause, " (database {target})");
        }
        self
    }

    /// Returns the error for a tick's log, without the advice to try again: the tick tries again
    /// itself.
    pub(crate) fn for_log(&self) -> String {
        match self.kind {
            Kind::Lost | Kind::Busy => self.cause.clone(),
            Kind::Data | Kind::Fatal => self.to_string(),
        }
    }

    /// Returns the error as `Ok` if the only row of a statement may have caused it, and otherwise
    /// as `Err`.
    pub(super) fn if_about_one_row(self) -> Result<Self> {
        if self.may_be_about_one_row() { Ok(self) } else { Err(self) }
    }

    /// Returns whether a row may have caused the error. Then other rows may succeed.
    pub(crate) fn may_be_about_rows(&self) -> bool {
        self.kind == Kind::Data || self.kind == Kind::Fatal && self.exit == Exit::CouldNot
    }

    /// Returns whether the error may be gone without a certain row. Then statements for other rows
    /// may succeed. Unlike `may_be_about_rows`, this includes time limits: a trigger may take long,
    /// or wait for a lock, because of one row. For many rows, this error may only say that they are
    /// too many.
    pub(crate) fn may_be_about_one_row(&self) -> bool {
        self.is_too_slow || self.is_locked || self.may_be_about_rows()
    }

    /// Makes this the error of a statement that waited for the locks of its rows. It no longer
    /// counts as an error about one row, because smaller parts would wait, too.
    pub(crate) fn of_locked_rows(self) -> Self {
        Self { is_locked: false, ..self }
    }

    /// Returns whether another session held a lock for too long.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Returns the cause without the action that failed.
    pub(crate) fn cause(&self) -> &str {
        match self.cause.split_once(": ") {
            Some((_, cause)) => cause,
            None => &self.cause,
        }
    }

    /// Returns the error for a server that did not answer within the limits of a statement.
    pub(super) fn silent(doing: &str) -> Self {
        Self::lost(
            format!("cannot {doing}: {SILENT}"),
            "try again later: a pooler's pool may be exhausted or paused",
        )
    }

    /// Returns the error for a claim whose UPDATE a trigger made skip a run. The search for that
    /// run finds a better text.
    pub(crate) fn skips_runs() -> Self {
        Self::new(Kind::Data, Exit::CouldNot, "cannot claim runs: a trigger skips a run")
    }

    /// Returns the error for a session that a setting makes read-only.
    pub(super) fn read_only(doing: &str) -> Self {
        let cause = format!(
            "cannot {doing}: default_transaction_read_only is on for this role or database"
        );
        Self { exit: Exit::Configuration, ..Self::lost(cause, WRITABLE) }
    }

    /// Returns the error for a schema that is missing, older, newer or changed.
    pub(super) fn of_schema(cause: String, remedy: &'static str) -> Self {
        Self { remedy, ..Self::new(Kind::Fatal, Exit::Schema, cause) }
    }

    /// Returns the error for a database that has lost a tick, as after a restore.
    pub(super) fn restored() -> Self {
        let message = "cannot start runs: the database is older than a tick has seen it, as after \
            a restore; cancel the runs whose work is done, then accept the rest: as an operator, \
            `jobctl accept-restore`";
        Self::new(Kind::Fatal, Exit::Restored, message)
    }

    /// Returns the error for an answer without a part that every PostgreSQL sends.
    pub(super) fn broken(doing: &str) -> Self {
        Self::lost(format!("cannot {doing}: {BROKEN}"), CHECK_ADDRESS)
    }

    /// Returns the error for a lost connection.
    fn lost(cause: String, remedy: &'static str) -> Self {
        Self { remedy, ..Self::new(Kind::Lost, Exit::Unavailable, cause) }
    }

    /// Returns the store's error for an error of a statement or of the connection.
    pub(super) fn of(doing: &str, error: &postgres::Error) -> Self {
        let constraint = error.as_db_error().and_then(|db| db.constraint());
        // A new row got an id that exists.
        if let Some(key @ ("job_runs_pkey" | "job_definitions_pkey" | "job_events_pkey")) =
            constraint
        {
            let table = key.trim_end_matches("_pkey");
            let remedy = "`jobctl doctor` prints the statement that corrects it";
            let line = format!(
                "cannot {doing}: the sequence of jobctl.{table} is behind its table; {remedy}"
            );
            return Self::new(Kind::Data, Exit::Configuration, line);
        }
        if let Some(table) = hidden_table(error) {
            let line = format!(
                "cannot {doing}: row level security hides rows of jobctl.{table} from this role; \
                 as the schema's owner, run ALTER TABLE jobctl.{table} DISABLE ROW LEVEL SECURITY"
            );
            return Self::new(Kind::Fatal, Exit::Configuration, line);
        }
        let (kind, exit, remedy) = match error.code() {
            // The code says that a session is lost, but a trigger raised it, perhaps about a
            // connection of its own. This session goes on.
            Some(code) if is_of_trigger(error, code) => (Kind::Fatal, Exit::CouldNot, ""),
            Some(code) => meaning(doing, code, error.as_db_error().map_or("", |db| db.message())),
            None if is_about_value(error) => (Kind::Fatal, Exit::CouldNot, ""),
            None if is_broken(error) => (Kind::Lost, Exit::Unavailable, CHECK_ADDRESS),
            None => (Kind::Lost, Exit::Unavailable, "try again"),
        };
        let detail = match error.as_db_error().and_then(|db| db.detail()) {
            // For a wrong value, the detail may contain the row, with its secrets.
            Some(detail) if kind != Kind::Data => format!(": {detail}"),
            _ => String::new(),
        };
        let cause = format!("cannot {doing}: {}{detail}", cause(error)).replace(['\n', '\r'], " ");
        let is_too_slow = error.code().is_some_and(is_time_limit);
        let is_locked = error.code().is_some_and(is_lock_timeout);
        Self { kind, exit, cause, remedy, is_too_slow, is_locked, may_be_committed: false }
    }

    /// Returns the store's error for an error that a function of the schema caught.
    pub(super) fn of_code(doing: &str, code: &str, message: &str) -> Self {
        let state = SqlState::from_code(code);
        let (kind, exit, remedy) = if is_of_session(&state) {
            // The function went on, so this session is not lost.
            (Kind::Fatal, Exit::CouldNot, "")
        } else {
            meaning(doing, &state, "")
        };
        let cause = format!("cannot {doing}: {message}").replace(['\n', '\r'], " ");
        let (is_too_slow, is_locked) = (is_time_limit(&state), is_lock_timeout(&state));
        Self { remedy, is_too_slow, is_locked, ..Self::new(kind, exit, cause) }
    }

    /// Returns the store's error for an error of COMMIT. If the connection was lost, the
    /// transaction may have succeeded.
    pub(super) fn of_commit(doing: &str, error: &postgres::Error) -> Self {
        let certain = Self::of(doing, error);
        if certain.kind == Kind::Lost { Self::uncertain(doing, &cause(error)) } else { certain }
    }

    /// Returns the error for a COMMIT whose answer is missing for this cause.
    pub(super) fn uncertain(doing: &str, cause: &str) -> Self {
        let cause =
            format!("cannot {doing}: {cause} after COMMIT was sent, so it may have succeeded")
                .replace(['\n', '\r'], " ");
        Self { may_be_committed: true, ..Self::lost(cause, "check before you try again") }
    }
}

/// The remedy for `default_transaction_read_only`.
pub(crate) const WRITABLE: &str = "turn it off with ALTER ROLE, ALTER DATABASE or ALTER SYSTEM";
/// The remedy for a missing or old schema.
pub(crate) const MIGRATE: &str = "run `jobctl migrate`";

/// Returns the remedy for a database with another encoding than UTF-8: to create another one for
/// this role.
pub(crate) fn utf8_database(role: &str) -> String {
    // A superuser must do it, because the role often may not create databases. Every cluster has
    // the locale C, which fits each encoding.
    format!(
        "create another database, as a superuser such as postgres: `createdb --owner {} \
         --encoding UTF8 --locale C --template template0 NAME`",
        shell::word(role)
    )
}

/// The remedy if a pooler gets no connection to the server.
const BEHIND_POOLER: &str =
    "try again: the server behind the pooler may be down, or the pool exhausted or paused";
/// The cause if an answer is not one of PostgreSQL, and its remedy.
const BROKEN: &str = "the database sent an invalid answer";
const CHECK_ADDRESS: &str = "check that the address is right";
/// The cause if an answer does not come in time.
pub(super) const SILENT: &str = "the database does not answer";

/// Returns the cause from the server or the driver, without the failed action.
pub(super) fn cause(error: &postgres::Error) -> String {
    if let Some(rejection) = rejection(error) {
        return rejection.to_string();
    }
    match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None if is_broken(error) => format!("{BROKEN}: {}", chain(error)),
        None => chain(error),
    }
}

/// Returns the error and its causes: `Display` of the driver's error names only its class.
fn chain(error: &postgres::Error) -> String {
    Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the limit of the connection that an answer exceeded.
fn rejection(error: &postgres::Error) -> Option<&Rejection> {
    error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Returns whether no PostgreSQL would send this answer: a row, a column or a message is missing or
/// has the wrong kind, or there are too many rows.
fn is_broken(error: &postgres::Error) -> bool {
    if error.code().is_some() || error.is_closed() {
        // The server sent an error, or ended the connection.
        return false;
    }
    let is_about_shape =
        |cause: &(dyn StdError + 'static)| cause.is::<WasNull>() || cause.is::<WrongType>();
    // The driver reports missing parts without a cause.
    rejection(error).is_some() || error.source().is_none_or(is_about_shape)
}

/// Returns whether the driver could not convert a value. The caller has checked that the error has
/// no code.
fn is_about_value(error: &postgres::Error) -> bool {
    // The driver's other errors are about the connection: their cause is an error of the system, or
    // they have none.
    !is_broken(error) && error.source().is_some_and(|cause| !cause.is::<io::Error>())
}

/// Returns whether a statement failed with the code of a lost session, although the session goes
/// on.
fn is_of_trigger(error: &postgres::Error, code: &SqlState) -> bool {
    let severity = error.as_db_error().and_then(|db| db.parsed_severity());
    severity == Some(Severity::Error) && is_of_session(code)
}

/// Returns whether the code is about a session, not about a statement.
fn is_of_session(code: &SqlState) -> bool {
    let is_in_class = |class| code.code().starts_with(class);
    (is_in_class("08") || is_in_class("57"))
        && !is_time_limit(code)
        && *code != SqlState::PROTOCOL_VIOLATION
}

/// Returns whether another session held a lock for too long.
fn is_lock_timeout(code: &SqlState) -> bool {
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
}

/// Returns whether a time limit ended the statement.
fn is_time_limit(code: &SqlState) -> bool {
    *code == SqlState::QUERY_CANCELED
}

/// Returns the table of jobctl whose rows row level security hides from the role, if that is the
/// error.
fn hidden_table(error: &postgres::Error) -> Option<&str> {
    // A missing privilege has the same code, and the message may be in any language. So compare the
    // function of the server that raised the error.
    let db = error.as_db_error().filter(|db| db.routine() == Some("check_enable_rls"))?;
    let mut words = db.message().split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.find(|word| word.starts_with("job_") || *word == "schema_migrations")
}

/// Returns whether a statement failed because its transaction is read-only.
pub(super) fn is_read_only(error: &postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Returns whether the server ended the statement, because of a time limit or a person.
pub(super) fn is_cancel(error: &postgres::Error) -> bool {
    // A trigger may raise an error with the same code, and the message may be in any language. So
    // compare the function of the server that raised the error.
    let routine = error.as_db_error().and_then(|db| db.routine());
    error.code().is_some_and(is_time_limit) && routine == Some("ProcessInterrupts")
}

/// Returns whether the statement conflicted with a concurrent one and may be sent again at once.
pub(super) fn is_collision(error: &postgres::Error) -> bool {
    // Another session inserted the key while this statement ran. The next statement sees the key.
    // Or another program chose an id itself. The next statement gets a later id of the sequence.
    let constraint = error.as_db_error().and_then(|db| db.constraint());
    matches!(constraint, Some("job_runs_key" | "job_runs_pkey" | "job_events_pkey"))
        || matches!(
            error.code(),
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
        )
}

/// Returns whether a function, table, schema or column does not exist.
pub(super) fn is_undefined(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| UNDEFINED.contains(&code.code()))
}

/// The codes for an undefined table, schema, column and function.
const UNDEFINED: [&str; 4] = ["42P01", "3F000", "42703", "42883"];

/// Returns the exit status for an error code of `jobctl.enqueue`.
pub(super) fn exit_of_refusal(code: &str) -> Exit {
    match code {
        // An argument is wrong.
        "22023" => Exit::Usage,
        // The definition is disabled.
        "55000" => Exit::Conflict,
        // The role may not enqueue this run, or a sequence is behind its table.
        "42501" | "JC007" => Exit::Configuration,
        // The definition is full.
        "JC008" => Exit::Full,
        // A run of `after` does not exist.
        "JC010" => Exit::NotFound,
        _ => Exit::CouldNot,
    }
}

/// Returns whether no set of `jobctl grants` has the missing privilege, so that only the schema's
/// owner can do this.
fn is_of_owner(doing: &str, message: &str) -> bool {
    match doing {
        "apply definitions" | "edit payloads" | "start a load test" => true,
        // Enqueuers may call a function for runs of definitions. Runs of built-in jobs are inserted
        // into the table, which they may not.
        "enqueue" => message.contains("job_runs"),
        _ => false,
    }
}

/// Returns the kind, the exit status and the remedy for a SQLSTATE.
fn meaning(doing: &str, code: &SqlState, message: &str) -> (Kind, Exit, &'static str) {
    let lost = |remedy| (Kind::Lost, Exit::Unavailable, remedy);
    let busy = |remedy| (Kind::Busy, Exit::Unavailable, remedy);
    let fatal = |exit, remedy| (Kind::Fatal, exit, remedy);
    match code.code() {
        "55P03" | "40001" | "40P01" => busy("another session holds a lock; try again"),
        "57014" => busy("try again, or narrow it down"),
        // The server ended the session because a transaction was idle for too long.
        "25P03" => lost("try again"),
        "25P04" => lost("try again, or set transaction_timeout higher for this role, or to 0"),
        "25006" => lost("the server takes no writes now; connect to the primary"),
        "42501" if is_of_owner(doing, message) => fatal(
            Exit::Configuration,
            "no set of `jobctl grants` allows it: connect as the schema's owner",
        ),
        "42501" => fatal(
            Exit::Configuration,
            "`jobctl grants --role ROLE --as SET` prints what a role needs, and the schema's owner \
             may do everything",
        ),
        code if UNDEFINED.contains(&code) => fatal(Exit::Schema, MIGRATE),
        // PgBouncer uses this code for all its errors, PostgreSQL for a broken protocol.
        "08P01" if message.contains("statement pooling") => {
            fatal(Exit::Configuration, "set the pooler's pool_mode to transaction or session")
        }
        "08P01" if is_behind_pooler(message) => lost(BEHIND_POOLER),
        "26000" | "42P05" => fatal(
            Exit::Configuration,
            "a pooler mixes up prepared statements; use its transaction mode",
        ),
        code => match code.get(..2).unwrap_or_default() {
            "08" | "57" => lost("try again"),
            "53" => busy("the server is short of a resource; try again"),
            // P0: RAISE in a trigger that an administrator added.
            "22" | "23" | "54" | "P0" => (Kind::Data, Exit::CouldNot, ""),
            _ => fatal(Exit::CouldNot, ""),
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

#[cfg(test)]
impl Error {
    pub(crate) fn example(kind: Kind) -> Self {
        Self::new(kind, Exit::CouldNot, "the statement failed")
    }
}
