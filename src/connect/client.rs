//! The operations on an open connection, and the thread that owns it. No operation leaves a
//! prepared statement on the server: behind a pooler, such a statement could answer a call of
//! another process.

use std::future::poll_fn;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use log::{Level, log};
use postgres::types::{ToSql, Type};
use postgres::{Error, SimpleQueryMessage};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use super::stream::LimitedStream;

/// After this time, a warning of the database is logged again.
const WARNED_FOR: Duration = Duration::from_secs(3600);

/// A parameter and the type that the statement casts it to.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The properties of a session that `target_session_attrs` refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionState {
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
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
        let query = include_str!("../../sql/queries/schema/session_state.sql");
        let answers = self.answer(async |client| client.simple_query(query).await).await?;
        Ok(answers.iter().find_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
            Some(SessionState { standby: is("standby")?, read_only: is("read_only")? })
        }))
    }
}

/// The blocking form of a `Session`, for the thread that owns it.
pub(crate) struct Client {
    pub(super) runtime: Runtime,
    pub(super) session: Session,
}

impl Client {
    /// Waits until `request` is answered. The lint forbids the calls that prepare a statement.
    pub(crate) fn request<T>(
        &mut self,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.runtime.block_on(self.session.answer(request))
    }

    pub(crate) fn batch_execute(&mut self, query: &str) -> Result<(), Error> {
        self.request(async |client| client.batch_execute(query).await)
    }

    pub(crate) fn session_state(&mut self) -> Result<Option<SessionState>, Error> {
        self.runtime.block_on(self.session.state())
    }
}

/// Work that takes the client and returns it.
type Call = Box<dyn FnOnce(Client) -> Client + Send>;

/// The thread that owns an open connection. Callers send it work and bound their own wait for the
/// answer: neither the driver nor TCP bounds a statement whose server has gone silent. When this
/// value is dropped, the thread finishes its current call and closes the connection.
pub(crate) struct ConnectionThread {
    calls: mpsc::Sender<Call>,
    /// The connection's user, hosts and database, for errors.
    pub(crate) target: String,
}

impl ConnectionThread {
    /// Passes a handle for `client` to `publish`, then executes calls on the current thread until
    /// the handle is dropped.
    pub(super) fn serve(mut client: Client, target: String, publish: impl FnOnce(Self)) {
        let (calls, queue) = mpsc::channel::<Call>();
        publish(Self { calls, target });
        while let Ok(call) = queue.recv() {
            client = call(client);
        }
        // End the session properly, so that the server does not log a lost connection.
        drop(client.session.client);
        if let Some(connection) = client.session.connection {
            let _ = client.runtime.block_on(connection);
        }
        // A lookup of a host name may still run; dropping the runtime would wait for it.
        client.runtime.shutdown_background();
    }

    /// Appends `call` to the thread's queue; does not wait for it.
    pub(crate) fn send(&self, call: impl FnOnce(Client) -> Client + Send + 'static) {
        // Sending fails if an earlier call panicked. Then this caller gets no answer, too.
        let _ = self.calls.send(Box::new(call));
    }
}
