//! What may be asked over a connection: nothing that leaves a prepared statement behind, because behind
//! a pooler that would answer another process's call.

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

/// What kind of session a connection leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionState {
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
}

/// The driver's client and its connection, which each question drives until it is answered.
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

    /// Exactly one row; anything else is an error.
    pub(crate) fn query_typed_one(&mut self, query: &str, parameters: &[Parameter<'_>]) -> Result<Row, Error> {
        let Self { runtime, client, connection } = self;
        drive(runtime, connection, client.query_typed_one(query, parameters))
    }

    /// The number of rows that were written.
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

    /// What kind of session this is; `None`: the answer says nothing of the kind.
    pub(crate) fn session_state(&mut self) -> Result<Option<SessionState>, Error> {
        let answers = self.simple_query(include_str!("../../sql/queries/session_state.sql"))?;
        Ok(answers.iter().find_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            let is = |column: &str| Some(row.try_get(column).ok()?? == "t");
            Some(SessionState { standby: is("standby")?, read_only: is("read_only")? })
        }))
    }

    /// Tells the server that this is the end, which it would otherwise note as a loss.
    pub(super) fn close(self) {
        let Self { runtime, client, connection } = self;
        drop(client);
        let _ = runtime.block_on(connection);
    }
}

/// Sends and receives until `question` is answered. A server that closes the connection often says why before,
/// in its answer; only without one does the connection's own error count.
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
