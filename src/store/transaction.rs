//! Transactions over one connection. Each call is one transaction and leaves no state in the
//! session, so it works behind a pooler that gives each transaction another server process.

use std::cell::RefMut;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future::join;
use postgres::Row;

use super::error::{self, Error, Result};
use super::row::{self, FromRow, PgResult, column};
use super::statement::{Statement, text};
use super::{Store, migrations};
use crate::connect::{Client, INTERRUPTED_LIMIT, Wait};
use crate::text::listing::Listing;

/// How a transaction runs: the timeouts of its statements, and what they may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// The longest time that each statement may run on the server.
    pub(crate) statement: Duration,
    /// The longest time that each statement may wait for a lock.
    pub(crate) lock: Duration,
    /// How much longer than `statement` the client waits for an answer, because of the network.
    pub(crate) silence: Duration,
    /// The longest wait for an answer after an interruption.
    pub(crate) interrupted: Duration,
    /// Whether sequential scans are allowed. Ticks forbid them: for a batch of some hundred ids, or
    /// for the first runs of a lane, the planner would rather read ten thousand rows than use the
    /// index.
    pub(crate) allows_seqscan: bool,
    /// Whether all statements see one snapshot and write nothing.
    pub(crate) reads_one_snapshot: bool,
}

impl Timeouts {
    /// The timeouts of a command that sets no others.
    pub(crate) const USUAL: Self = Self {
        statement: Duration::from_secs(10),
        lock: Duration::from_secs(2),
        silence: Duration::from_secs(5),
        interrupted: INTERRUPTED_LIMIT,
        allows_seqscan: true,
        reads_one_snapshot: false,
    };

    /// The timeouts of a statement that must not delay others for long.
    pub(crate) fn short(self) -> Self {
        Self { statement: self.statement / 4, lock: self.lock / 4, ..self }
    }
}

/// Reads the schema's version. `migrations::created_at` parses the times, so they have a fixed
/// form.
const CHECK: &str = concat!("SET LOCAL datestyle = ISO; ", text!("schema/schema_version"));
/// How often at most a transaction that conflicted with another one is sent again.
const RETRIES: usize = 5;

impl Store {
    /// Runs `work` in a transaction, and returns its result.
    ///
    /// - `doing` completes "cannot ..." in errors.
    /// - `work` runs again if the transaction conflicts with another one. So it must not keep
    ///   anything from an earlier try.
    pub(super) fn transact<'a, T>(
        &'a self,
        doing: &str,
        work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
    ) -> Result<T> {
        self.transact_within(self.timeouts, doing, work)
    }

    /// Runs `work` as `transact` does, in a transaction that only reads, and shows one moment.
    pub(super) fn read_snapshot<'a, T>(
        &'a self,
        doing: &str,
        work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
    ) -> Result<T> {
        let timeouts = Timeouts { reads_one_snapshot: true, ..self.timeouts };
        self.transact_within(timeouts, doing, work)
    }

    /// Runs `work` as `transact` does, with these timeouts. If `checks_version` is set, the
    /// transaction first checks the schema's version.
    pub(super) fn transact_within<'a, T>(
        &'a self,
        timeouts: Timeouts,
        doing: &str,
        work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
    ) -> Result<T> {
        self.transactions.set(self.transactions.get() + 1);
        let checks_version = self.checks_version.take();
        let limit = timeouts.statement + timeouts.silence;
        let mut transaction = Transaction {
            client: self.client.borrow_mut(),
            wait: Wait::new(limit).interruptible(&self.interrupted, timeouts.interrupted),
            begin: None,
            created_at: None,
        };
        let began = Instant::now();
        let result = run_until_committed(&mut transaction, doing, timeouts, checks_version, work);
        let longest = self.longest_transaction.get().max(began.elapsed());
        self.longest_transaction.set(longest);
        result.map_err(|error| error.in_database(transaction.client.target()))
    }

    /// Executes one statement in a transaction. `read` is the method of `Transaction` that returns
    /// its result, such as `Transaction::list`. `doing` completes "cannot ...".
    pub(super) fn query<'a, T>(
        &'a self,
        doing: &str,
        read: fn(&mut Transaction<'a>, Statement<'_>) -> PgResult<T>,
        statement: Statement<'_>,
    ) -> Result<T> {
        self.transact(doing, |transaction| read(transaction, statement))
    }
}

/// An open transaction. Only code that has it can execute statements.
pub(super) struct Transaction<'a> {
    client: RefMut<'a, Client>,
    wait: Wait<'a>,
    /// The statements that open the transaction. They are sent with the first statement, without a
    /// round trip of their own.
    begin: Option<String>,
    /// When the schema was created; `None`: the transaction did not check the schema.
    pub(super) created_at: Option<DateTime<Utc>>,
}

impl Transaction<'_> {
    /// Waits for the answer to a request. It may consist of several statements, which are sent
    /// together.
    pub(super) fn request<T>(
        &mut self,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> PgResult<T>,
    ) -> PgResult<T> {
        let Some(begin) = self.begin.take() else {
            return self.client.request(&mut self.wait, request);
        };
        // This is the first request: open the transaction in the same round trip.
        self.client.request(&mut self.wait, async |client| {
            let (begun, answer) = join(client.simple_query(&begin), request(client)).await;
            begun.and(answer)
        })
    }

    /// Returns the rows of a statement as the server sends them.
    pub(super) fn rows(&mut self, statement: Statement<'_>) -> PgResult<Vec<Row>> {
        self.request(async |client| send(client, statement).await)
    }

    /// Returns all rows.
    pub(super) fn list<T: FromRow>(&mut self, statement: Statement<'_>) -> PgResult<Vec<T>> {
        self.rows(statement)?.iter().map(T::from_row).collect()
    }

    /// Returns all rows as texts, to print them.
    pub(super) fn listing(&mut self, statement: Statement<'_>) -> PgResult<Listing> {
        let rows = self.rows(statement)?;
        if !rows.is_empty() {
            return row::listing(&rows, None);
        }
        // The listing also needs the names of the columns, which an answer without rows lacks. The
        // same statement inside of columns.sql returns them.
        let text = &text!("look/columns").replace("TABLE jobctl.job_runs", statement.text);
        row::listing(&rows, self.rows(Statement { text, ..statement })?.first())
    }

    /// Returns the first row, if there is one.
    pub(super) fn first<T: FromRow>(&mut self, statement: Statement<'_>) -> PgResult<Option<T>> {
        self.rows(statement)?.first().map(T::from_row).transpose()
    }

    /// Returns the only row; any other number of rows is an error.
    pub(super) fn one<T: FromRow>(&mut self, statement: Statement<'_>) -> PgResult<T> {
        let parameters = column(statement.arguments, |argument| argument.typed());
        let text = statement.text;
        let row = self.request(async |client| client.query_typed_one(text, &parameters).await)?;
        T::from_row(&row)
    }

    /// Returns the number of rows that the statement wrote.
    pub(super) fn execute(&mut self, statement: Statement<'_>) -> PgResult<u64> {
        let parameters = column(statement.arguments, |argument| argument.typed());
        self.request(async |client| client.execute_typed(statement.text, &parameters).await)
    }

    /// Executes statements without parameters.
    pub(super) fn batch_execute(&mut self, statements: &str) -> PgResult<()> {
        self.request(async |client| client.batch_execute(statements).await)
    }

    /// Undoes all statements so far. Then begins a new transaction, because `transact` commits one.
    pub(super) fn undo(&mut self) -> PgResult<()> {
        self.batch_execute("ROLLBACK AND CHAIN")
    }
}

/// Executes a statement, and returns its rows.
pub(super) async fn send(
    client: &tokio_postgres::Client,
    statement: Statement<'_>,
) -> PgResult<Vec<Row>> {
    let parameters = column(statement.arguments, |argument| argument.typed());
    client.query_typed(statement.text, &parameters).await
}

/// Opens a transaction, runs `work` and commits. Does so again after a conflict with another
/// transaction, a few times. If `checks_version` is set, first checks the schema's version.
fn run_until_committed<'a, T>(
    transaction: &mut Transaction<'a>,
    doing: &str,
    timeouts: Timeouts,
    checks_version: bool,
    mut work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
) -> Result<T> {
    let begin = begin(timeouts);
    let (mut retries, first_began) = (0, Instant::now());
    loop {
        let began = Instant::now();
        transaction.begin = None;
        if checks_version {
            begin_and_check(transaction, doing, &begin)?;
        } else {
            // The first statement of `work` sends it.
            transaction.begin = Some(begin.clone());
        }
        let worked = work(transaction);
        // If the work succeeded, an error is one of the COMMIT.
        let at_commit = worked.is_ok();
        let done = worked.and_then(|result| transaction.batch_execute("COMMIT").map(|()| result));
        let error = match done {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        if transaction.client.has_timed_out() {
            // A COMMIT without an answer may have succeeded.
            if at_commit {
                return Err(Error::uncertain(doing, error::SILENT));
            }
            return Err(Error::silent(doing));
        }
        // If this fails, the connection is lost, and the transaction has ended, too.
        let _ = transaction.batch_execute("ROLLBACK");
        // On a standby, every session is read-only. Elsewhere, a setting has made this one so.
        if error::is_read_only(&error)
            && let Ok(Some(session)) = transaction.client.session_state(&mut transaction.wait)
            && session.is_read_only
            && !session.is_standby
        {
            return Err(Error::read_only(doing));
        }
        // A person cancelled the statement: it ended before its time limit. No row is the cause.
        let was_cancelled = error::is_cancel(&error) && began.elapsed() < timeouts.statement;
        let may_retry = error::is_collision(&error) || was_cancelled && retries == 0;
        // PostgreSQL may notice a conflict only after a second, and the caller waits a limited
        // time. So there must be time for a try as long as this one.
        let has_time = first_began.elapsed() + began.elapsed() < timeouts.statement;
        if !may_retry || retries == RETRIES || !has_time {
            let error_of = if at_commit { Error::of_commit } else { Error::of };
            let mut reported = error_of(doing, &error);
            if was_cancelled {
                reported.is_too_slow = false;
            }
            return Err(reported);
        }
        retries += 1;
        // Both transactions may be sent again: not at the same time.
        thread::sleep(Duration::from_millis(rand::random_range(1..20)));
    }
}

/// Returns the statements that open a transaction. Their settings replace those of the database and
/// the role, which could change what a statement means. Settings that only change how definitions
/// and archives look are in plain_texts.sql.
fn begin(timeouts: Timeouts) -> String {
    let Timeouts { statement, lock, allows_seqscan, reads_one_snapshot, .. } = timeouts;
    let isolation =
        if reads_one_snapshot { "REPEATABLE READ, READ ONLY" } else { "READ COMMITTED" };
    let settings = [
        // Without `public`: a function there must not replace one of PostgreSQL's own.
        "search_path = pg_catalog, pg_temp",
        // If row level security hid a definition, its runs would end dead. `off` makes that an
        // error.
        "row_security = off",
        // Backslashes in texts must be literal.
        "standard_conforming_strings = on",
        // A day must have 24 hours, without clock changes.
        "timezone = UTC",
        // Floats must have all their digits, also in JSON.
        "extra_float_digits = 1",
        // The warnings of functions must arrive.
        "client_min_messages = notice",
        // The tables are mostly in memory. With the page cost of a disk that seeks, the planner
        // would read all runs to find a few.
        "random_page_cost = 1.1",
        // Compiling a plan takes longer than running it.
        "jit = off",
        &format!("enable_seqscan = {allows_seqscan}"),
        &format!("statement_timeout = {}", statement.as_millis()),
        // If a host freezes or loses its network during a transaction, its locks would last until
        // TCP gives up, after hours. This limit ends them.
        &format!("idle_in_transaction_session_timeout = {}", statement.as_millis()),
        &format!("lock_timeout = {}", lock.as_millis()),
    ];
    format!("BEGIN ISOLATION LEVEL {isolation}; SET LOCAL {}", settings.join("; SET LOCAL "))
}

/// Opens a transaction and checks the schema's version, in one round trip.
fn begin_and_check(transaction: &mut Transaction<'_>, doing: &str, begin: &str) -> Result<()> {
    let check = format!("{begin}; {CHECK}");
    let answers = transaction.request(async |client| client.simple_query(&check).await);
    let created_at = match answers {
        Ok(answers) => migrations::created_at(&answers),
        Err(_) if transaction.client.has_timed_out() => Err(Error::silent(doing)),
        Err(error) => Err(Error::of(doing, &error)),
    };
    if created_at.is_err() {
        // If this fails, the connection is lost, and the transaction has ended, too.
        let _ = transaction.batch_execute("ROLLBACK");
    }
    transaction.created_at = Some(created_at?);
    Ok(())
}
