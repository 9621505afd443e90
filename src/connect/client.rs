//! The operations on an open connection, and the thread that owns it. No operation leaves a
//! prepared statement on the server: behind a pooler, such a statement could answer a call of
//! another process.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;

use log::debug;
use postgres::types::{ToSql, Type};
use postgres::{Error, SimpleQueryMessage};
use tokio::runtime::Runtime;
use tokio_postgres::AsyncMessage;

use super::stream::LimitedStream;

/// A parameter and the type that the statement casts it to.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The properties of a session that `target_session_attrs` refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionState {
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
}

/// The driver's client and its connection. Each call drives the connection until it is answered.
pub(super) struct AsyncClient {
    pub(super) client: tokio_postgres::Client,
    pub(super) connection: tokio_postgres::Connection<LimitedStream, LimitedStream>,
}

impl AsyncClient {
    /// Sends and receives until `request` is answered. A server that closes the connection often
    /// gives the reason in its last answer, so the connection's own error counts only without an
    /// answer.
    async fn answer<T>(
        &mut self,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { client, connection } = self;
        let mut request = pin!(request(client));
        poll_fn(|context| {
            let lost = loop {
                match connection.poll_message(context) {
                    Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                        debug!("database: {}: {}", notice.severity(), notice.message());
                    }
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(error))) => break Some(error),
                    Poll::Ready(None) | Poll::Pending => break None,
                }
            };
            match (request.as_mut().poll(context), lost) {
                (Poll::Ready(Err(error)), Some(lost)) if error.is_closed() => {
                    Poll::Ready(Err(lost))
                }
                (Poll::Pending, Some(lost)) => Poll::Ready(Err(lost)),
                (answer, _) => answer,
            }
        })
        .await
    }

    /// Returns the state of the session; `None` if the server's answer lacks it.
    pub(super) async fn session_state(&mut self) -> Result<Option<SessionState>, Error> {
        let query = include_str!("../../sql/queries/schema/session_state.sql");
        let answers = self.answer(async |client| client.simple_query(query).await).await?;
        Ok(answers.iter().find_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
            Some(SessionState { standby: is("standby")?, read_only: is("read_only")? })
        }))
    }

    /// Ends the session properly, so that the server does not log a lost connection.
    pub(super) async fn close(self) {
        drop(self.client);
        let _ = self.connection.await;
    }
}

/// The blocking form of an `AsyncClient`, for the thread that owns it.
pub(crate) struct Client {
    pub(super) runtime: Runtime,
    pub(super) client: AsyncClient,
}

impl Client {
    /// Waits until `request` is answered. The lint forbids the calls that prepare a statement.
    pub(crate) fn request<T>(
        &mut self,
        request: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.runtime.block_on(self.client.answer(request))
    }

    pub(crate) fn batch_execute(&mut self, query: &str) -> Result<(), Error> {
        self.request(async |client| client.batch_execute(query).await)
    }

    pub(crate) fn session_state(&mut self) -> Result<Option<SessionState>, Error> {
        self.runtime.block_on(self.client.session_state())
    }
}

type Call = Box<dyn FnOnce(&mut Client) + Send>;

/// The thread that owns an open connection. Callers send it work and bound their own wait for the
/// answer: neither the driver nor TCP bounds a statement whose server has gone silent. When this
/// value is dropped, the thread finishes its current call and closes the connection.
pub(crate) struct ConnectionThread(mpsc::Sender<Call>);

impl ConnectionThread {
    /// Passes a handle for `client` to `publish`, then executes calls on the current thread until
    /// the handle is dropped.
    pub(super) fn serve(mut client: Client, publish: impl FnOnce(Self)) {
        let (calls, queue) = mpsc::channel::<Call>();
        publish(Self(calls));
        while let Ok(call) = queue.recv() {
            call(&mut client);
        }
        client.runtime.block_on(client.client.close());
        // A lookup of a host name may still run; dropping the runtime would wait for it.
        client.runtime.shutdown_background();
    }

    /// Appends `call` to the thread's queue; does not wait for it.
    pub(crate) fn send(&self, call: impl FnOnce(&mut Client) + Send + 'static) {
        // Sending fails if an earlier call panicked. Then this caller gets no answer, too.
        let _ = self.0.send(Box::new(call));
    }
}
