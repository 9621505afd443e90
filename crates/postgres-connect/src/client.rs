//! An open connection whose calls wait for a limited time.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use log::debug;
use tokio::runtime::{Handle, Runtime};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Error, SimpleQueryMessage};

use crate::stream::LimitedStream;

/// How long the end of a session may take.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);
/// How often a wait checks for an interruption.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A limit that no wait reaches. A larger one could exceed the range of an `Instant`.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A function that gets the messages of a server that are not answers.
pub(crate) type OnMessage = Arc<dyn Fn(&AsyncMessage) + Send + Sync>;

/// The properties of a session that `target_session_attrs` refers to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SessionState {
    /// The server replays the changes of another one, so no session can write.
    pub is_standby: bool,
    /// The transactions of this session begin as read-only ones, as on a standby or by
    /// `default_transaction_read_only`.
    pub is_read_only: bool,
}

/// A wait that ends at a time, or soon after an interruption. Several calls can share one: then its
/// limit applies to all of them together.
#[derive(Debug)]
pub struct Wait<'a> {
    limit: Duration,
    until: Instant,
    /// What interrupts the wait, and how long the wait lasts from then on.
    interruption: Option<(&'a AtomicBool, Duration)>,
}

impl Wait<'static> {
    /// Begins a wait of at most `limit`; more than a hundred years count as a hundred years.
    pub fn new(limit: Duration) -> Self {
        let limit = limit.min(FOREVER);
        Self { limit, until: Instant::now() + limit, interruption: None }
    }

    /// Begins a wait without a limit.
    pub fn unlimited() -> Self {
        Self::new(FOREVER)
    }
}

impl Wait<'_> {
    /// From the moment when `interrupted` is set, for example by a signal, waits for at most
    /// `longest`. The flag is checked ten times a second.
    pub fn interruptible(self, interrupted: &AtomicBool, longest: Duration) -> Wait<'_> {
        Wait { limit: self.limit, until: self.until, interruption: Some((interrupted, longest)) }
    }

    /// Returns how long to wait before this is called again; `None`: the wait is over. An
    /// interruption that has come since the last call makes the wait end earlier.
    pub(crate) fn next_slice(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if let Some(longest) = self.interrupted() {
            // `until` only gets earlier, so the first call after the interruption decides.
            self.until = self.until.min(now + longest);
        }
        let time_left = self.until.saturating_duration_since(now);
        if time_left.is_zero() { None } else { Some(time_left.min(CHECK_INTERVAL)) }
    }

    /// Returns how long the wait may last after the interruption, if there was one.
    fn interrupted(&self) -> Option<Duration> {
        let (interrupted, longest) = self.interruption?;
        if interrupted.load(Ordering::Relaxed) { Some(longest) } else { None }
    }

    /// Returns why the wait is over.
    pub(crate) fn error(&self) -> crate::Error {
        match self.interrupted() {
            Some(longest) => crate::Error::of_interruption(longest),
            None => crate::Error::of_silence(self.limit),
        }
    }
}

/// A session. Its task moves the data while the runtime waits for the end of a call.
pub(crate) struct Session {
    client: tokio_postgres::Client,
    /// The task; `None` once its error was returned.
    connection: Option<JoinHandle<Result<(), Error>>>,
}

impl Session {
    /// Starts the session's task on the current runtime.
    pub(crate) fn new(
        client: tokio_postgres::Client,
        mut connection: tokio_postgres::Connection<LimitedStream, LimitedStream>,
        on_message: Option<OnMessage>,
    ) -> Self {
        let connection = tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match (message?, &on_message) {
                    (message, Some(on_message)) => on_message(&message),
                    (AsyncMessage::Notice(notice), None) => {
                        debug!("database: {}: {}", notice.severity(), notice.message());
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        Self { client, connection: Some(connection) }
    }

    /// Returns the driver's client. The task runs until this client is dropped.
    pub(crate) fn into_client(self) -> tokio_postgres::Client {
        self.client
    }

    /// Waits for the answer to `request`. If the connection is closed without an answer, returns
    /// the error of the connection. With an answer, that one counts: in its last one, a server
    /// often says why it closes the connection.
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
    pub(crate) async fn state(&mut self) -> Result<Option<SessionState>, Error> {
        self.answer(state).await
    }
}

/// Asks the server for the properties of the session; `None` if its answer lacks them.
async fn state(client: &tokio_postgres::Client) -> Result<Option<SessionState>, Error> {
    let query = include_str!("session_state.sql");
    Ok(client.simple_query(query).await?.iter().find_map(|answer| {
        let SimpleQueryMessage::Row(row) = answer else { return None };
        let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
        Some(SessionState { is_standby: is("standby")?, is_read_only: is("read_only")? })
    }))
}

/// An open connection. Its methods block this thread until the server has answered, so call them
/// only outside of asynchronous code: within a runtime of tokio, they panic.
///
/// Dropping it ends the session properly, for which it waits for a second at most. Within a
/// runtime, it only closes the connection.
///
/// The driver's `Transaction` needs the client of [`connect_async`](crate::Target::connect_async).
/// Here, send `BEGIN`, `COMMIT` and `ROLLBACK` as statements.
pub struct Client {
    /// `None` only while it is dropped.
    open: Option<(Runtime, Session)>,
    target: String,
    has_timed_out: bool,
}

impl Client {
    pub(crate) fn new(runtime: Runtime, session: Session, target: String) -> Self {
        Self { open: Some((runtime, session)), target, has_timed_out: false }
    }

    /// Returns the connection's user, hosts and database, without a password.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns whether a wait for an answer has ended without one. Then the connection is closed.
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Sends a request of the driver, and waits for the answer. If `wait` ends before, closes the
    /// connection: neither the driver nor TCP bounds a statement whose server has gone silent.
    ///
    /// The server goes on with the statement until it notices the closed connection, which may be
    /// at the end of the statement. Set `options=-cstatement_timeout=5s` to end it there, too.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use postgres_connect::{Target, Wait};
    ///
    /// let mut client = Target::from_env()?.connect()?;
    /// let mut wait = Wait::new(Duration::from_secs(5));
    /// let row = client.request(&mut wait, async |client| {
    ///     client.query_typed_one("SHOW server_version", &[]).await
    /// })?;
    /// let version: &str = row.get(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of the driver: `as_db_error()` has what the server said, such as the SQLSTATE. If
    /// `wait` has ended or was interrupted, the error is that of a closed connection, and
    /// [`has_timed_out`](Self::has_timed_out) returns `true`. If the server sends more than the
    /// [limits](crate::TargetBuilder::largest_answer) allow, its cause is a
    /// [`Rejection`](crate::Rejection).
    pub fn request<T>(
        &mut self,
        wait: &mut Wait<'_>,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (runtime, session) = self.open.as_mut().expect("it is not dropped");
        let connection = session.connection.as_ref().map(JoinHandle::abort_handle);
        let has_timed_out = &mut self.has_timed_out;
        runtime.block_on(async {
            let mut answer = pin!(session.answer(request));
            while let Some(slice) = wait.next_slice() {
                if let Ok(answer) = timeout(slice, &mut answer).await {
                    return answer;
                }
            }
            *has_timed_out = true;
            // Without its task, the request ends with the error of a closed connection.
            connection.iter().for_each(AbortHandle::abort);
            answer.await
        })
    }

    /// Asks the server for the state of the session, which can change: a standby can be promoted.
    /// Returns `None` if the answer lacks it.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn session_state(&mut self, wait: &mut Wait<'_>) -> Result<Option<SessionState>, Error> {
        self.request(wait, state)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some((runtime, Session { client, connection })) = self.open.take() else { return };
        // End the session properly, so that the server does not log a lost connection.
        drop(client);
        // Do not wait within a runtime, or at the end of a thread that had one: it would panic.
        let may_wait = Handle::try_current().is_err_and(|error| error.is_missing_context());
        if let Some(connection) = connection.filter(|_| may_wait) {
            let _ = runtime.block_on(async { timeout(LONGEST_CLOSE, connection).await });
        }
        // The lookup of a host name may still run. To drop the runtime would wait for it; this does
        // not.
        runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::{ErrorKind, Target};

    #[test]
    fn a_client_that_is_dropped_within_a_runtime_does_not_panic() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept()?;
            let _ = socket.read(&mut [0; 1024])?;
            // The login succeeds, and the server is ready for a statement.
            socket.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
            socket.read_to_end(&mut Vec::new())
        });
        let address = format!("host=127.0.0.1 port={port} user=ana sslmode=disable");
        let target = Target::builder().address(&address, "the URL").variables(&|_| None).resolve();
        let client = target.expect("a target").connect().expect("a connection");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { drop(client) });
        let _ = server.join().expect("the server ends with the connection");
    }

    #[test]
    fn an_interruption_shortens_a_wait() {
        let interrupted = AtomicBool::new(false);
        let limit = Duration::from_secs(60);
        let mut wait = Wait::new(limit).interruptible(&interrupted, Duration::ZERO);
        assert_eq!(wait.next_slice(), Some(CHECK_INTERVAL));
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(wait.next_slice(), None);
        assert_eq!(wait.error().kind(), ErrorKind::Interrupted);
    }

    #[test]
    fn the_longest_limit_does_not_overflow() {
        assert_eq!(Wait::new(Duration::MAX).next_slice(), Some(CHECK_INTERVAL));
        let mut over = Wait::new(Duration::ZERO);
        assert_eq!((over.next_slice(), over.error().kind()), (None, ErrorKind::Timeout));
    }
}
