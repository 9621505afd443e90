//! The operations on a connection. None of them leaves a prepared statement on the server: behind a
//! pooler, such a statement could answer a call of another process.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use log::debug;
use postgres::types::{ToSql, Type};
use postgres::{Error, Row, SimpleQueryMessage};
use tokio::runtime::Runtime;
use tokio_postgres::AsyncMessage;

use super::stream::Guarded;

pub(super) type Connection = tokio_postgres::Connection<Guarded, Guarded>;

/// A parameter and the type that the statement casts it to.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The properties of a session that `target_session_attrs` refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionState {
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
}

/// The driver's client and its connection. Each call drives the connection until it is answered.
pub(crate) struct Client {
    pub(super) runtime: Runtime,
    pub(super) client: tokio_postgres::Client,
    pub(super) connection: Connection,
}

impl Client {
    pub(crate) fn query_typed(&mut self, query: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.query_typed(query, parameters))
    }

    /// Returns exactly one row; any other number of rows is an error.
    pub(crate) fn query_typed_one(&mut self, query: &str, parameters: &[Parameter<'_>]) -> Result<Row, Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.query_typed_one(query, parameters))
    }

    /// Returns the number of rows that were written.
    pub(crate) fn execute_typed(&mut self, query: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.execute_typed(query, parameters))
    }

    pub(crate) fn simple_query(&mut self, query: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.simple_query(query))
    }

    pub(crate) fn batch_execute(&mut self, query: &str) -> Result<(), Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.batch_execute(query))
    }

    /// Returns the state of the session; `None` if the server's answer lacks it.
    pub(crate) fn session_state(&mut self) -> Result<Option<SessionState>, Error> {
        let answers = self.simple_query(include_str!("../../sql/queries/session_state.sql"))?;
        Ok(answers.iter().find_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
            Some(SessionState { standby: is("standby")?, read_only: is("read_only")? })
        }))
    }

    /// Ends the session properly, so that the server does not log a lost connection.
    pub(super) fn close(self) {
        let Self { runtime, client, connection } = self;
        drop(client);
        let _ = runtime.block_on(connection);
    }
}

/// Sends and receives until `question` is answered. A server that closes the connection often gives
/// the reason in its last answer, so the connection's own error counts only without an answer.
fn drive<T>(
    runtime: &Runtime,
    connection: &mut Connection,
    question: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut question = pin!(question);
    runtime.block_on(poll_fn(|context| {
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
        match (question.as_mut().poll(context), lost) {
            (Poll::Ready(Err(error)), Some(lost)) if error.is_closed() => Poll::Ready(Err(lost)),
            (Poll::Pending, Some(lost)) => Poll::Ready(Err(lost)),
            (answer, _) => answer,
        }
    }))
}
