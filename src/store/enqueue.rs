//! Enqueueing: one statement for any number of runs, and the look for a key's winner.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;

use super::{Error, Limits, Parameter, Result, Store, error, query};
use crate::action;
use crate::connect::Client;
use crate::exit::Exit;

/// A run to be enqueued; `None` is the table's default.
#[derive(Debug, Default)]
pub(crate) struct NewRun {
    pub(crate) job_type: String,
    /// JSON text.
    pub(crate) payload: String,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) run_at: Option<DateTime<Utc>>,
    /// Seconds from the database's now; excludes `run_at`.
    pub(crate) after: Option<f64>,
    pub(crate) max_attempts: Option<i32>,
    /// Seconds.
    pub(crate) timeout: Option<f64>,
    pub(crate) backoff: Option<String>,
    pub(crate) key: Option<String>,
    /// `retained` or `live`.
    pub(crate) key_scope: Option<String>,
}

impl NewRun {
    pub(crate) fn scope(&self) -> &str {
        self.key_scope.as_deref().unwrap_or("retained")
    }
}

/// What became of one run that was to be enqueued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Queued {
    New(i64),
    /// The same was enqueued before, with the same key.
    Existing(i64),
    /// The key belongs to a run with another job or payload.
    Taken,
    /// No definition has the job's name.
    Undefined,
    /// `jobctl.enqueue` rejects the run for this reason.
    Refused(Exit, String),
}

/// Runs per statement: large enough that a round trip weighs nothing, small enough for one message.
const CHUNK: usize = 2000;
/// What each further chunk may add to the time of the whole.
const CHUNK_TIME: Duration = Duration::from_secs(1);
/// How often a key is tried whose run vanishes just when it is looked for.
const TRIES: usize = 100;

impl Store {
    /// Enqueues all of them, or none when one can't be or anything fails. Returns an answer per run,
    /// at least up to the first that can't be. `progress` is told how many are done.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn enqueue(&self, runs: Vec<NewRun>, progress: impl Fn(usize) + Send + 'static) -> Result<Vec<Queued>> {
        let chunks = u32::try_from(runs.len() / CHUNK).unwrap_or(u32::MAX);
        let limits = Limits { statement: self.limits.statement + CHUNK_TIME.saturating_mul(chunks), ..self.limits };
        let answers = self.session.transact("enqueue", limits, move |client| {
            let mut answers = Vec::with_capacity(runs.len());
            for chunk in runs.chunks(CHUNK) {
                answers.extend(enqueue(client, chunk)?);
                if !answers.iter().all(|answer| matches!(answer, Some(Queued::New(_) | Queued::Existing(_)))) {
                    // What this transaction has inserted must not stay.
                    client.batch_execute("ROLLBACK AND CHAIN")?;
                    break;
                }
                progress(answers.len());
            }
            Ok(answers)
        })?;
        answers.into_iter().collect::<Option<_>>().ok_or_else(|| Error::broken("enqueue"))
    }
}

/// Enqueues a chunk. An answer that the database does not give is `None`.
fn enqueue(client: &mut Client, runs: &[NewRun]) -> std::result::Result<Vec<Option<Queued>>, postgres::Error> {
    let mut answers = vec![None; runs.len()];
    // A built-in job's run is inserted; a definition's goes through the database's function.
    let (mut open, defined): (Vec<_>, Vec<_>) =
        (0..runs.len()).partition(|index| action::is_built_in(&runs[*index].job_type));
    for (index, answer) in call(client, runs, &defined)? {
        answers[index] = Some(answer);
    }
    // A key whose run vanished between the two statements is free again: hence the loop.
    for _ in 0..TRIES {
        if open.is_empty() {
            break;
        }
        for (index, id) in insert(client, runs, &open)? {
            answers[index] = Some(Queued::New(id));
        }
        open.retain(|index| answers[*index].is_none());
        if !open.is_empty() {
            for (index, answer) in find(client, runs, &open)? {
                answers[index] = Some(answer);
            }
            open.retain(|index| answers[*index].is_none());
        }
    }
    Ok(answers)
}

/// Inserts runs of built-in jobs; answers for those whose key was free.
fn insert(
    client: &mut Client,
    runs: &[NewRun],
    open: &[usize],
) -> std::result::Result<Vec<(usize, i64)>, postgres::Error> {
    let mut statement = query!("enqueue").to_owned();
    if open.iter().all(|index| runs[*index].key.is_none())
        && let Some(conflict) = statement.find("ON CONFLICT").zip(statement.find("RETURNING"))
    {
        // Only a key can be taken. Without one the database need not insert on trial, and ask before.
        statement.replace_range(conflict.0..conflict.1, "");
    }
    let rows = send(client, &statement, runs, open)?;
    let mut new = Vec::with_capacity(rows.len());
    let mut asked = open.iter().copied();
    for row in &rows {
        let key: (Option<&str>, &str) = (row.try_get("idempotency_key")?, row.try_get("key_scope")?);
        // They come in order, so what is passed over here is missing.
        let is_it = |index: &usize| key == (runs[*index].key.as_deref(), runs[*index].scope());
        if let Some(index) = asked.find(is_it) {
            new.push((index, row.try_get("id")?));
        }
    }
    Ok(new)
}

/// Enqueues runs of definitions.
fn call(
    client: &mut Client,
    runs: &[NewRun],
    defined: &[usize],
) -> std::result::Result<Vec<(usize, Queued)>, postgres::Error> {
    if defined.is_empty() {
        return Ok(Vec::new());
    }
    let rows = send(client, query!("enqueue_defined"), runs, defined)?;
    let read = |(row, index): (&Row, &usize)| {
        let answer = match row.try_get("code")? {
            None if row.try_get("existing")? => Queued::Existing(row.try_get("id")?),
            None => Queued::New(row.try_get("id")?),
            Some(error::KEY_TAKEN) => Queued::Taken,
            Some(error::NO_DEFINITION) => Queued::Undefined,
            Some(code) => Queued::Refused(error::refusal(code), row.try_get("reason")?),
        };
        Ok((*index, answer))
    };
    rows.iter().zip(defined).map(read).collect()
}

fn send(
    client: &mut Client,
    statement: &str,
    runs: &[NewRun],
    which: &[usize],
) -> std::result::Result<Vec<Row>, postgres::Error> {
    /// A column of the batch, in the order of its rows.
    macro_rules! column {
        ($of:expr) => {
            which.iter().map(|index| &runs[*index]).map($of).collect::<Vec<_>>()
        };
    }
    let parameters: &[Parameter<'_>] = &[
        (&column!(|run| run.job_type.as_str()), Type::TEXT_ARRAY),
        (&column!(|run| run.payload.as_str()), Type::TEXT_ARRAY),
        (&column!(|run| run.queue.as_deref()), Type::TEXT_ARRAY),
        (&column!(|run| run.priority), Type::INT4_ARRAY),
        (&column!(|run| run.run_at), Type::TIMESTAMPTZ_ARRAY),
        (&column!(|run| run.after), Type::FLOAT8_ARRAY),
        (&column!(|run| run.max_attempts), Type::INT4_ARRAY),
        (&column!(|run| run.timeout), Type::FLOAT8_ARRAY),
        (&column!(|run| run.backoff.as_deref()), Type::TEXT_ARRAY),
        (&column!(|run| run.key.as_deref()), Type::TEXT_ARRAY),
        (&column!(|run| run.key_scope.as_deref()), Type::TEXT_ARRAY),
    ];
    client.query_typed(statement, parameters)
}

fn find(
    client: &mut Client,
    runs: &[NewRun],
    taken: &[usize],
) -> std::result::Result<Vec<(usize, Queued)>, postgres::Error> {
    let keys: Vec<_> = taken.iter().map(|index| runs[*index].key.as_deref()).collect();
    let job_types: Vec<_> = taken.iter().map(|index| runs[*index].job_type.as_str()).collect();
    let payloads: Vec<_> = taken.iter().map(|index| runs[*index].payload.as_str()).collect();
    let scopes: Vec<_> = taken.iter().map(|index| runs[*index].key_scope.as_deref()).collect();
    let parameters: &[Parameter<'_>] = &[
        (&keys, Type::TEXT_ARRAY),
        (&job_types, Type::TEXT_ARRAY),
        (&payloads, Type::TEXT_ARRAY),
        (&scopes, Type::TEXT_ARRAY),
    ];
    let rows = client.query_typed(query!("find_key"), parameters)?;
    rows.iter()
        .filter_map(|row| {
            let read = || {
                let (id, same) = (row.try_get("id")?, row.try_get("same")?);
                let ordinal: i64 = row.try_get("ordinal")?;
                let index = (1..).zip(taken).find(|(at, _)| *at == ordinal).map(|(_, index)| *index);
                Ok(index.map(|index| (index, if same { Queued::Existing(id) } else { Queued::Taken })))
            };
            read().transpose()
        })
        .collect()
}
