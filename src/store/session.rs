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
    /// Runs `work` in a transaction. If the transaction conflicts with another, runs `work` again,
    /// so `work` must not keep anything from a try. `doing` completes "cannot ...".
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

    /// Executes one statement in a transaction. `read` is the method of `Transaction` for its
    /// result.
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

/// Opens a transaction, runs `work` and commits, again after a conflict. `checks` says whether to
/// check the schema's version first.
fn run_until_committed<'a, T>(
    transaction: &mut Transaction<'a>,
    doing: &str,
    timeouts: Timeouts,
    checks: bool,
    mut work: impl FnMut(&mut Transaction<'a>) -> PgResult<T>,
) -> Result<T> {
    // Settings of the database or the role must not change what a statement means. If row level
    // security hid a definition, its runs would end dead; off makes that an error. Backslashes in
    // texts are literal, a day has 24 hours, floats have all their digits, also in JSON, and the
    // warnings of functions arrive. Other settings change only how definitions and archives look,
    // see plain_texts.sql.
    // The search path excludes `public`: a function there must not replace one of PostgreSQL's own.
    // The tables are mostly in memory: with the page cost of a disk that seeks, the planner would
    // read all runs to find a few. Compiling a plan (jit) takes longer than running it.
    let Timeouts { statement, lock, whole_tables, one_moment, .. } = timeouts;
    let isolation = if one_moment { "REPEATABLE READ, READ ONLY" } else { "READ COMMITTED" };
    // If a host freezes or loses its network during a transaction, its locks would last until TCP
    // gives up, after hours. The idle limit ends them.
    let begin = format!(
        "BEGIN ISOLATION LEVEL {isolation}; SET LOCAL search_path = pg_catalog, pg_temp; \
         SET LOCAL row_security = off; SET LOCAL standard_conforming_strings = on; \
         SET LOCAL timezone = UTC; SET LOCAL extra_float_digits = 1; \
         SET LOCAL client_min_messages = notice; \
         SET LOCAL random_page_cost = 1.1; SET LOCAL jit = off; \
         SET LOCAL enable_seqscan = {whole_tables}; \
         SET LOCAL statement_timeout = {0}; SET LOCAL idle_in_transaction_session_timeout = {0}; \
         SET LOCAL lock_timeout = {1}",
        statement.as_millis(),
        lock.as_millis(),
    );
    let (mut retries, first_began) = (0, Instant::now());
    loop {
        let began = Instant::now();
        transaction.begin = (!checks).then(|| begin.clone());
        if checks {
            let check = format!("{begin}; {CHECK}");
            let checked = transaction.request(async |client| client.simple_query(&check).await);
            let checked = checked.map_err(|error| match transaction.client.has_timed_out() {
                true => Error::silent(doing),
                false => Error::of(doing, &error),
            });
            match checked.and_then(|answers| migrations::created_at(&answers)) {
                Ok(created_at) => transaction.created_at = Some(created_at),
                Err(error) => {
                    let _ = transaction.batch_execute("ROLLBACK");
                    return Err(error);
                }
            }
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
            let mut error = error_of(doing, &error);
            error.is_too_slow &= !is_cancelled;
            return Err(error);
        }
        retries += 1;
        thread::sleep(Duration::from_millis(rand::random_range(1..20)));
    }
}
