//! Enqueue: inserts any number of runs with one statement, and finds the runs that hold their keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::{FromRow, PgResult, column, columns, rows, timestamp};
use super::session::Transaction as Client;
use super::{Error, Kind, Limits, Result, Store, error, query};
use crate::exit::Exit;
use crate::job::action;
use crate::job::enqueue::{EnqueueResult, KeyScope, OnConflict};
use crate::job::status::Status;

/// A run to enqueue; `None` stands for the default.
#[derive(Debug, Default)]
pub(crate) struct NewRun {
    pub(crate) job_type: String,
    /// JSON text.
    pub(crate) payload: String,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) run_at: Option<DateTime<Utc>>,
    /// Seconds after the database's current time; excludes `run_at`.
    pub(crate) after: Option<f64>,
    pub(crate) max_attempts: Option<i32>,
    /// Seconds.
    pub(crate) timeout: Option<f64>,
    pub(crate) backoff: Option<String>,
    /// The run expires this many seconds after its time.
    pub(crate) expires_in: Option<f64>,
    pub(crate) share: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) key_scope: Option<KeyScope>,
    pub(crate) on_conflict: Option<OnConflict>,
    /// Seconds after the database's current time; excludes `run_at` and `after`.
    pub(crate) debounce: Option<f64>,
    /// Seconds after the creation of the waiting run.
    pub(crate) debounce_max: Option<f64>,
}

impl NewRun {
    pub(crate) fn scope(&self) -> KeyScope {
        self.key_scope.unwrap_or_default()
    }

    /// Returns whether it replaces a waiting run that has its key.
    pub(crate) fn replaces(&self) -> bool {
        self.on_conflict == Some(OnConflict::Replace)
    }

    /// The place of its key in the order of locks. A chunk has a statement for each of the kinds.
    fn place(&self) -> impl Ord {
        (action::is_built_in(&self.job_type), !self.replaces(), self.key.as_deref(), self.scope())
    }
}

/// An accepted run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Accepted {
    /// `None` if the run was dropped.
    pub(crate) id: Option<i64>,
    pub(crate) result: EnqueueResult,
    /// The status of an existing run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
    /// The time of an existing run that is queued for a later time than asked.
    #[serde(skip_serializing_if = "Option::is_none", with = "timestamp")]
    pub(crate) due_at: Option<DateTime<Utc>>,
}

/// The answer for one run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Queued {
    Accepted(Accepted),
    /// The key belongs to a run with another job or payload.
    KeyTaken,
    /// No definition has the job's name.
    Undefined,
    /// `jobctl.enqueue` rejects the run for this reason.
    Refused(Exit, String),
    /// Another run of the batch was rejected first.
    NotTried,
}

impl Queued {
    pub(crate) fn accepted(id: i64, result: EnqueueResult) -> Self {
        Self::Accepted(Accepted { id: Some(id), result, status: None, due_at: None })
    }

    pub(crate) fn existing(id: i64, status: Status, due_at: Option<DateTime<Utc>>) -> Self {
        let (id, result, status) = (Some(id), EnqueueResult::Existing, Some(status));
        Self::Accepted(Accepted { id, result, status, due_at })
    }

    pub(crate) fn is_new(&self) -> bool {
        matches!(self, Self::Accepted(Accepted { result: EnqueueResult::Enqueued, .. }))
    }
}

/// Runs per statement: the round trip costs little, and the statement fits into one message.
const CHUNK: usize = 2000;
/// The additional time limit for each further chunk.
const CHUNK_TIME: Duration = Duration::from_secs(1);
/// The error if a key stays locked.
const KEY_HELD: &str = "cannot enqueue: another enqueue, or another open transaction, holds a key \
    of these runs; try again when it has ended";
/// How many times to try a key if its run is deleted during the look-up.
const TRIES: usize = 100;

impl Store {
    /// Enqueues all runs, or none if one is rejected or anything fails. Returns an answer per run,
    /// in the order of the runs. Calls `progress` with the number of runs done.
    ///
    /// Keys are locked in one order, so two batches with the same keys do not deadlock.
    pub(crate) fn enqueue(
        &self,
        runs: Vec<NewRun>,
        progress: impl Fn(usize) + Clone + Send + 'static,
    ) -> Result<Vec<Queued>> {
        let chunks = u32::try_from(runs.len() / CHUNK).unwrap_or(u32::MAX);
        let limits = Limits {
            statement: self.limits.statement + CHUNK_TIME.saturating_mul(chunks),
            ..self.limits
        };
        let order = lock_order(&runs);
        let has_keys = runs.iter().any(|run| run.key.is_some());
        // Another batch holds its keys as long as it takes.
        let until = (runs.len() > 1).then(|| Instant::now() + limits.statement);
        let asked = Arc::new((runs, order));
        let enqueued = loop {
            let (asked, progress) = (Arc::clone(&asked), progress.clone());
            let enqueued = self.transact_within(limits, "enqueue", move |client| {
                let (runs, order) = &*asked;
                enqueue_chunks(client, runs, order, &progress)
            });
            match enqueued {
                Err(error) if error.is_locked() && has_keys => {
                    if until.is_none_or(|until| Instant::now() > until) {
                        return Err(Error::new(Kind::Busy, Exit::Unavailable, KEY_HELD));
                    }
                }
                other => break other?,
            }
        };
        enqueued.into_iter().collect::<Option<_>>().ok_or_else(|| Error::broken("enqueue"))
    }
}

/// Returns the indexes of the runs in the order in which they are inserted: those with keys in the
/// order of locks, the others where they are.
fn lock_order(runs: &[NewRun]) -> Vec<usize> {
    let mut order: Vec<_> = (0..runs.len()).collect();
    let keyed: Vec<_> = order.iter().copied().filter(|index| runs[*index].key.is_some()).collect();
    let mut sorted = keyed.clone();
    sorted.sort_by(|a, b| runs[*a].place().cmp(&runs[*b].place()));
    for (place, index) in keyed.into_iter().zip(sorted) {
        order[place] = index;
    }
    order
}

/// Enqueues runs in this order, and undoes that if one is rejected.
fn enqueue_chunks(
    client: &mut Client,
    runs: &[NewRun],
    order: &[usize],
    progress: &impl Fn(usize),
) -> PgResult<Vec<Option<Queued>>> {
    let mut answers = vec![Some(Queued::NotTried); runs.len()];
    let mut done = 0;
    for chunk in order.chunks(CHUNK) {
        enqueue(client, runs, chunk, &mut answers)?;
        let is_accepted = |index: &usize| matches!(answers[*index], Some(Queued::Accepted(_)));
        if !chunk.iter().all(is_accepted) {
            client.batch_execute("ROLLBACK AND CHAIN")?;
            break;
        }
        done += chunk.len();
        progress(done);
    }
    Ok(answers)
}

/// Enqueues a chunk. An answer is `None` if the database did not return one for the run.
fn enqueue(
    client: &mut Client,
    runs: &[NewRun],
    chunk: &[usize],
    answers: &mut [Option<Queued>],
) -> PgResult<()> {
    chunk.iter().for_each(|index| answers[*index] = None);
    // Runs of built-in jobs are inserted; runs of definitions go through the database's function.
    let (mut open, defined): (Vec<_>, Vec<_>) =
        chunk.iter().copied().partition(|index| action::is_built_in(&runs[*index].job_type));
    if !defined.is_empty() {
        let called = send(client, query!("enqueue/enqueue_defined"), ALL, runs, &defined)?;
        for (index, called) in defined.into_iter().zip::<Vec<Called>>(called) {
            answers[index] = called.answer();
        }
    }
    // Repeat if the run with the key was deleted between the two statements: the key is free.
    for _ in 0..TRIES {
        if open.is_empty() {
            break;
        }
        let replacing: Vec<_> =
            open.iter().copied().filter(|index| runs[*index].replaces()).collect();
        if !replacing.is_empty() {
            for (index, id) in replacing.iter().zip(replace(client, runs, &replacing)?) {
                answers[*index] = id.map(|id| Queued::accepted(id, EnqueueResult::Replaced));
            }
            open.retain(|index| answers[*index].is_none());
        }
        for (index, id) in insert(client, runs, &open)? {
            answers[index] = Some(Queued::accepted(id, EnqueueResult::Enqueued));
        }
        open.retain(|index| answers[*index].is_none());
        if !open.is_empty() {
            for (index, answer) in find(client, runs, &open)? {
                answers[index] = Some(answer);
            }
            open.retain(|index| answers[*index].is_none());
        }
    }
    Ok(())
}

rows! {
    /// A result of `jobctl.try_enqueue`.
    struct Called {
        id: Option<i64>,
        result: Option<EnqueueResult>,
        code: Option<String>,
        reason: Option<String>,
        status: Option<Status>,
        due_at: Option<DateTime<Utc>>,
    }
}

rows! {
    /// The run that has the key of a run.
    struct KeyHolder {
        ordinal: i64,
        id: i64,
        /// Whether the payload is the same; `None` for a run of another job.
        same: Option<bool>,
        status: Status,
        due_at: Option<DateTime<Utc>>,
    }
}

impl Called {
    fn answer(self) -> Option<Queued> {
        Some(match self.code.as_deref() {
            None => {
                let Self { id, status, due_at, .. } = self;
                Queued::Accepted(Accepted { id, result: self.result?, status, due_at })
            }
            Some(error::KEY_TAKEN) => Queued::KeyTaken,
            Some(error::NO_DEFINITION) => Queued::Undefined,
            Some(code) => Queued::Refused(error::refusal(code), self.reason?),
        })
    }
}

/// Inserts runs of built-in jobs; returns the indexes and ids of those whose key was free.
fn insert(client: &mut Client, runs: &[NewRun], open: &[usize]) -> PgResult<Vec<(usize, i64)>> {
    if open.iter().all(|index| runs[*index].key.is_none()) {
        let ids: Vec<i64> =
            send(client, query!("enqueue/enqueue_keyless"), WITHOUT_KEYS, runs, open)?;
        return Ok(open.iter().copied().zip(ids).collect());
    }
    let rows: Vec<(i64, Option<String>, KeyScope)> =
        send(client, query!("enqueue/enqueue"), WITH_KEYS, runs, open)?;
    let mut open = open.iter().copied();
    // The rows are in the order of the runs, so a run that is skipped here is missing.
    let found = rows.into_iter().filter_map(|(id, key, scope)| {
        let index = open.find(|index| (&runs[*index].key, runs[*index].scope()) == (&key, scope));
        Some((index?, id))
    });
    Ok(found.collect())
}

/// The number of parameters of the statements.
const ALL: usize = 16;
const WITH_KEYS: usize = 14;
const WITHOUT_KEYS: usize = 11;

fn send<T: FromRow>(
    client: &mut Client,
    statement: &str,
    parameters: usize,
    runs: &[NewRun],
    which: &[usize],
) -> PgResult<Vec<T>> {
    let runs = column(which, |index| &runs[*index]);
    let arguments = columns!(
        &runs;
        job_type, payload, queue, priority, run_at, after, max_attempts, timeout, backoff,
        expires_in, share, key, key_scope, debounce, debounce_max, on_conflict,
    );
    client.list(statement, &arguments[..parameters])
}

/// Replaces waiting runs; returns an id or `None` per run.
fn replace(client: &mut Client, runs: &[NewRun], which: &[usize]) -> PgResult<Vec<Option<i64>>> {
    let runs = column(which, |index| &runs[*index]);
    let arguments = columns!(
        &runs;
        job_type, payload, run_at, after, key, debounce, debounce_max, expires_in, share,
    );
    client.list(query!("enqueue/replace"), &arguments)
}

/// Finds the runs that hold the keys of these runs. Gives no answer for a replacement of a run of
/// the same job: that run began to wait after the attempt to replace it, so the caller tries again.
fn find(client: &mut Client, runs: &[NewRun], taken: &[usize]) -> PgResult<Vec<(usize, Queued)>> {
    let asked = column(taken, |index| &runs[*index]);
    let arguments = columns!(&asked; key, job_type, payload, key_scope, run_at, after);
    let found: Vec<KeyHolder> = client.list(query!("enqueue/find_key"), &arguments)?;
    let answer = |holder: KeyHolder| {
        let index = *taken.get(usize::try_from(holder.ordinal - 1).ok()?)?;
        let run = &runs[index];
        let answer = match (run.on_conflict, holder.same) {
            (Some(OnConflict::Replace), Some(_)) => return None,
            (Some(OnConflict::Error), _) => {
                let key = run.key.as_deref().unwrap_or_default();
                Queued::Refused(Exit::Conflict, format!("key `{key}` already has a run"))
            }
            (None | Some(OnConflict::Same), Some(true)) => {
                Queued::existing(holder.id, holder.status, holder.due_at)
            }
            _ => Queued::KeyTaken,
        };
        Some((index, answer))
    };
    Ok(found.into_iter().filter_map(answer).collect())
}
