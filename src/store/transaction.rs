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

/// The timeouts of the statements of a transaction.
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
    /// Whether sequential scans are allowed. For a batch of some hundred ids, or for the first runs
    /// of a lane, the planner would rather read ten thousand rows than use the index.
    pub(crate) whole_tables: bool,
    /// Whether all statements see one snapshot and write nothing.
    pub(crate) one_moment: bool,
}

impl Timeouts {
    /// The timeouts of a command that sets no others.
    pub(crate) const USUAL: Self = Self {
        statement: Duration::from_secs(10),
        lock: Duration::from_secs(2),
        silence: Duration::from_secs(5),
        interrupted: INTERRUPTED_LIMIT,
        whole_tables: true,
        one_moment: false,
    };

    /// The timeouts of a statement that must not delay others for long.
    pub(crate) fn short(self) -> Self {
        Self { statement: self.statement / 4, lock: self.lock / 4, ..self }
    }
}

/// Checks the schema. It reads times as texts.
const CHECK: &str = concat!("SET LOCAL datestyle = ISO; ", text!("schema/schema_version"));
/// How often a transaction that conflicted with another is sent again.
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

    /// Runs `work` as `transact` does, with these timeouts. If `checks_version` is set, the
    /// transaction first checks the schema's version.
    pub(super) fn transact_within<'a, T>(
        &'a self,
        timeouts: Timeouts,
        doing: &str,
        work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
    ) -> Result<T> {
        self.transactions.set(self.transactions.get() + 1);
        let checks = self.checks_version.take();
        let limit = timeouts.statement + timeouts.silence;
        let mut transaction = Transaction {
            client: self.client.borrow_mut(),
            wait: Wait::new(limit).interruptible(&self.interrupted, timeouts.interrupted),
            begin: None,
            created_at: None,
        };
        let began = Instant::now();
        let result = run_until_committed(&mut transaction, doing, timeouts, checks, work);
        self.longest.set(self.longest.get().max(began.elapsed()));
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

/// An open transaction: only work in one can execute statements.
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
        self.client.request(&mut self.wait, async |client| {
            let (begun, answer) = join(client.simple_query(&begin), request(client)).await;
            begun.and(answer)
        })
    }

    pub(super) fn rows(&mut self, statement: Statement<'_>) -> PgResult<Vec<Row>> {
        self.request(async |client| send(client, statement).await)
    }

    pub(super) fn list<T: FromRow>(&mut self, statement: Statement<'_>) -> PgResult<Vec<T>> {
        self.rows(statement)?.iter().map(T::from_row).collect()
    }

    /// Returns rows that are only printed.
    pub(super) fn listing(&mut self, statement: Statement<'_>) -> PgResult<Listing> {
        let rows = self.rows(statement)?;
        if !rows.is_empty() {
            return row::listing(&rows, None);
        }
        // An answer without rows does not name its columns.
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
/// transaction, a few times. If `checks` is set, first checks the schema's version.
fn run_until_committed<'a, T>(
    transaction: &mut Transaction<'a>,
    doing: &str,
    timeouts: Timeouts,
    checks: bool,
    mut work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
) -> Result<T> {
    let begin = begin(timeouts);
    let (mut retries, first_began) = (0, Instant::now());
    loop {
        let began = Instant::now();
        transaction.begin = None;
        if checks {
            begin_and_check(transaction, doing, &begin)?;
        } else {
            transaction.begin = Some(begin.clone());
        }
        let result = work(transaction);
        let at_commit = result.is_ok();
        let error =
            match result.and_then(|result| transaction.batch_execute("COMMIT").map(|()| result)) {
                Ok(result) => return Ok(result),
                Err(_) if transaction.client.has_timed_out() && at_commit => {
                    return Err(Error::uncertain(doing, error::SILENT));
                }
                Err(_) if transaction.client.has_timed_out() => return Err(Error::silent(doing)),
                Err(error) => error,
            };
        // Fails if the connection is lost; then the transaction has ended too.
        let _ = transaction.batch_execute("ROLLBACK");
        // If no setting makes the session read-only, the server is a standby.
        if error::is_read_only(&error)
            && let Ok(Some(session)) = transaction.client.session_state(&mut transaction.wait)
            && session.is_read_only
            && !session.is_standby
        {
            return Err(Error::read_only(doing));
        }
        // A person cancelled the statement before its time limit. No row is the cause.
        let is_cancelled = error::is_cancel(&error) && began.elapsed() < timeouts.statement;
        let may_retry = error::is_collision(&error) || is_cancelled && retries == 0;
        // PostgreSQL may notice a conflict only after a second, and the caller waits a limited
        // time. So there must be time for a try as long as this one.
        let has_time = first_began.elapsed() + began.elapsed() < timeouts.statement;
        if !may_retry || retries == RETRIES || !has_time {
            let error_of = if at_commit { Error::of_commit } else { Error::of };
            let mut known = error_of(doing, &error);
            known.is_too_slow &= !is_cancelled;
            return Err(known);
        }
        retries += 1;
        thread::sleep(Duration::from_millis(rand::random_range(1..20)));
    }
}

/// Returns the statements that open a transaction. Settings of the database or the role must not
/// change what a statement means; those that only change how definitions and archives look are left
/// to plain_texts.sql.
fn begin(timeouts: Timeouts) -> String {
    let Timeouts { statement, lock, whole_tables, one_moment, .. } = timeouts;
    let isolation = if one_moment { "REPEATABLE READ, READ ONLY" } else { "READ COMMITTED" };
    let settings = [
        // Not `public`: a function there must not replace one of PostgreSQL's own.
        "search_path = pg_catalog, pg_temp",
        // If row level security hid a definition, its runs would end dead. Off makes that an error.
        "row_security = off",
        // Backslashes in texts are literal.
        "standard_conforming_strings = on",
        // A day has 24 hours.
        "timezone = UTC",
        // Floats have all their digits, also in JSON.
        "extra_float_digits = 1",
        // The warnings of functions arrive.
        "client_min_messages = notice",
        // The tables are mostly in memory. With the page cost of a disk that seeks, the planner
        // would read all runs to find a few.
        "random_page_cost = 1.1",
        // Compiling a plan takes longer than running it.
        "jit = off",
        &format!("enable_seqscan = {whole_tables}"),
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
        let _ = transaction.batch_execute("ROLLBACK");
    }
    transaction.created_at = Some(created_at?);
    Ok(())
}
