//! The operations on an open connection. No operation leaves a prepared statement on the server:
//! behind a pooler, such a statement could answer a call of another process.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use log::{Level, log};
use postgres::types::{ToSql, Type};
use postgres::{Error, SimpleQueryMessage};
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;

use super::stream::LimitedStream;

/// After this time, a warning of the database is logged again.
const WARNED_FOR: Duration = Duration::from_secs(3600);
/// How long the goodbye to the server may take.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// How often a wait checks for an interruption.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A parameter and the type that the statement casts it to.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The properties of a session that `target_session_attrs` refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionState {
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
}

/// A wait that ends at a time, or soon after an interruption.
pub(crate) struct Wait<'a> {
    until: Instant,
    interrupted: &'a AtomicBool,
    after_interruption: Duration,
}

impl<'a> Wait<'a> {
    /// Begins a wait of `limit`; while `interrupted` is set, of `after_interruption` at most.
    pub(crate) fn new(
        limit: Duration,
        interrupted: &'a AtomicBool,
        after_interruption: Duration,
    ) -> Self {
        Self { until: Instant::now() + limit, interrupted, after_interruption }
    }

    /// Returns how long to wait before the next call; `None`: the wait is over.
    pub(super) fn part(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.interrupted.load(Ordering::Relaxed) {
            // `until` only gets earlier, so the first call after the interruption decides.
            self.until = self.until.min(now + self.after_interruption);
        }
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| left.min(CHECK_INTERVAL))
    }
}

/// A session. A task of the runtime moves its data while a call is waited for.
pub(super) struct Session {
    client: tokio_postgres::Client,
    /// `None` once its error was returned.
    connection: Option<JoinHandle<Result<(), Error>>>,
}

impl Session {
    pub(super) fn new(
        client: tokio_postgres::Client,
        mut connection: tokio_postgres::Connection<LimitedStream, LimitedStream>,
    ) -> Self {
        let connection = tokio::spawn(async move {
            let mut warned = None::<(String, Instant)>;
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notice(notice) = message? {
                    // Functions warn of what they could not do beside their work.
                    let is_own = notice.message().starts_with("jobctl: ");
                    // On a full disk, each try brings the same one.
                    let is_same = warned.as_ref().is_some_and(|(text, at)| {
                        text == notice.message() && at.elapsed() < WARNED_FOR
                    });
                    let level = if is_own && !is_same { Level::Warn } else { Level::Debug };
                    if level == Level::Warn {
                        warned = Some((notice.message().to_owned(), Instant::now()));
                    }
                    log!(level, "database: {}: {}", notice.severity(), notice.message());
                }
            }
            Ok(())
        });
        Self { client, connection: Some(connection) }
    }

    /// Waits for the answer to `request`. A server that closes the connection often gives the
    /// reason in its last answer, so the connection's own error counts only without an answer.
    async fn answer<T>(
        &mut self,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let answer = request(&self.client).await;
        if answer.as_ref().is_err_and(Error::is_closed)
            && let Some(ended) = self.connection.take_if(|connection| connection.is_finished())
            && let Ok(Err(lost)) = ended.await
        {
            return Err(lost);
        }
        answer
    }

    /// Returns the state of the session; `None` if the server's answer lacks it.
    pub(super) async fn state(&mut self) -> Result<Option<SessionState>, Error> {
        self.answer(state).await
    }
}

async fn state(client: &tokio_postgres::Client) -> Result<Option<SessionState>, Error> {
    let query = include_str!("../../sql/queries/schema/session_state.sql");
    Ok(client.simple_query(query).await?.iter().find_map(|answer| {
        let SimpleQueryMessage::Row(row) = answer else { return None };
        let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
        Some(SessionState { standby: is("standby")?, read_only: is("read_only")? })
    }))
}

/// An open connection. Its methods wait until the server has answered.
pub(crate) struct Client {
    /// `None` only while it is dropped.
    open: Option<(Runtime, Session)>,
    /// The connection's user, hosts and database, for errors.
    pub(crate) target: String,
    is_silent: bool,
}

impl Client {
    pub(super) fn new(runtime: Runtime, session: Session, target: String) -> Self {
        Self { open: Some((runtime, session)), target, is_silent: false }
    }

    /// Whether a wait for an answer has ended without one. Then the connection is closed.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Waits until `request` is answered; if `wait` ends before, closes the connection: neither the
    /// driver nor TCP bounds a statement whose server has gone silent. The lint forbids the calls
    /// that prepare a statement.
    pub(crate) fn request<T>(
        &mut self,
        wait: &mut Wait<'_>,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (runtime, session) = self.open.as_mut().expect("it is not dropped");
        let connection = session.connection.as_ref().map(JoinHandle::abort_handle);
        let is_silent = &mut self.is_silent;
        runtime.block_on(async {
            let mut answer = pin!(session.answer(request));
            while let Some(part) = wait.part() {
                if let Ok(answer) = timeout(part, &mut answer).await {
                    return answer;
                }
            }
            *is_silent = true;
            // Now the request ends with the error of a closed connection.
            connection.iter().for_each(AbortHandle::abort);
            answer.await
        })
    }

    pub(crate) fn session_state(
        &mut self,
        wait: &mut Wait<'_>,
    ) -> Result<Option<SessionState>, Error> {
        self.request(wait, state)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some((runtime, Session { client, connection })) = self.open.take() else { return };
        // End the session properly, so that the server does not log a lost connection.
        drop(client);
        if let Some(connection) = connection {
            let _ = runtime.block_on(async { timeout(LONGEST_CLOSE, connection).await });
        }
        // A lookup of a host name may still run; dropping the runtime would wait for it.
        runtime.shutdown_background();
    }
}
