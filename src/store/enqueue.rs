//! Enqueue: inserts any number of runs, and finds the runs that have their keys.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::row::{PgResult, column, rows, timestamp};
use super::statement::query;
use super::transaction::Transaction;
use super::{Error, Kind, Result, Store, Timeouts, error};
use crate::exit::Exit;
use crate::job::action;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope, OnConflict};
use crate::job::status::Status;

/// A run to enqueue; `None` stands for the default. The statements read the fields by their names.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct NewRun {
    pub(crate) job_type: String,
    /// JSON text.
    #[serde(deserialize_with = "from_json", serialize_with = "as_json")]
    pub(crate) payload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i32>,
    #[serde(serialize_with = "timestamp::serialize", skip_serializing_if = "Option::is_none")]
    pub(crate) run_at: Option<DateTime<Utc>>,
    /// Seconds after the database's current time; excludes `run_at`.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<i32>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backoff: Option<String>,
    /// The run expires this many seconds after its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<String>,
    /// The only worker that may run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    #[serde(rename = "idempotency_key", skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_scope: Option<KeyScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_conflict: Option<OnConflict>,
    /// Seconds after the database's current time; excludes `run_at` and `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) debounce: Option<f64>,
    /// Seconds after the creation of the waiting run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) debounce_max: Option<f64>,
}

impl NewRun {
    /// Returns the scope of its key.
    pub(crate) fn scope(&self) -> KeyScope {
        self.key_scope.unwrap_or_default()
    }

    /// Returns whether it replaces a waiting run that has its key.
    pub(crate) fn replaces(&self) -> bool {
        self.on_conflict == Some(OnConflict::Replace)
    }

    /// Returns the run as the statements read it.
    pub(crate) fn encode(&self) -> EncodedRun {
        EncodedRun {
            // Writing the JSON only fails if the payload is not JSON. Then the database rejects the
            // empty text.
            text: serde_json::to_string(self).unwrap_or_default().into(),
            is_built_in: action::is_built_in(&self.job_type),
            replaces: self.replaces(),
            key: self.key.as_deref().map(|key| (key.into(), self.scope())),
        }
    }
}

/// Writes a payload as the JSON that its text contains, not as a string.
fn as_json<S: Serializer>(text: &str, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let json: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
    json.serialize(serializer)
}

/// Reads a payload: the text of any JSON value.
fn from_json<'de, D: Deserializer<'de>>(json: D) -> std::result::Result<String, D::Error> {
    Ok(<&RawValue>::deserialize(json)?.get().to_owned())
}

/// A run as the statements read it. A batch of millions of lines is kept in this form.
#[derive(Debug)]
pub(crate) struct EncodedRun {
    /// The JSON of a `NewRun`.
    text: Box<str>,
    is_built_in: bool,
    replaces: bool,
    key: Option<(Box<str>, KeyScope)>,
}

impl EncodedRun {
    /// Returns the run of which this was made.
    pub(crate) fn decode(&self) -> NewRun {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns the key of the run, with its scope, if it has one.
    pub(crate) fn key(&self) -> Option<&(Box<str>, KeyScope)> {
        self.key.as_ref()
    }

    /// Returns what decides the order in which keys are locked. Runs that replace others come
    /// first, because a chunk handles them first.
    fn lock_order(&self) -> impl Ord {
        // `false` sorts before `true`.
        (!self.replaces, &self.key)
    }
}

/// What a run of a batch waits for.
#[derive(Clone, Debug)]
pub(crate) struct Dependencies {
    /// The run's index in the batch.
    pub(crate) run: usize,
    pub(crate) after: Vec<Predecessor>,
    pub(crate) rule: AfterRule,
}

/// A run for which another one waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Predecessor {
    /// A run that the database has.
    Id(i64),
    /// A run of the batch, by its index.
    InBatch(usize),
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
    /// The key has a run, and the new run shall have none.
    KeyHasRun,
    /// No definition has the job's name.
    Undefined,
    /// `jobctl.enqueue` rejects the run for this reason.
    Refused(Exit, String),
    /// Not tried, because another run of the batch was rejected first.
    NotTried,
}

impl Queued {
    /// Returns the run, if it was accepted.
    pub(crate) fn accepted_run(self) -> Option<Accepted> {
        if let Self::Accepted(accepted) = self { Some(accepted) } else { None }
    }

    /// Returns the id of the run, if it was accepted and not dropped.
    fn id(&self) -> Option<i64> {
        if let Self::Accepted(accepted) = self { accepted.id } else { None }
    }

    /// Returns whether a new run was inserted.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self, Self::Accepted(Accepted { result: EnqueueResult::Enqueued, .. }))
    }
}

/// How many runs a statement has at most. With this number, the round trip costs little, and the
/// runs fit into one message.
const CHUNK: usize = 2000;
/// How many dependencies a statement has at most.
const PAIRS: usize = 20_000;
/// The additional time limit for each further chunk.
const CHUNK_TIME: Duration = Duration::from_secs(1);
/// The error if a key stays locked.
const KEY_HELD: &str = "cannot enqueue: another enqueue, or another open transaction, holds a key \
    of these runs; try again when it has ended";

impl Store {
    /// Returns the run that has a key.
    pub(crate) fn key_holder(&self, key: &str, scope: KeyScope) -> Result<Option<i64>> {
        self.query("read runs", Transaction::first, query!("look/key_holder"; key, scope))
    }

    /// Enqueues all runs, or none if one is rejected or anything fails. Returns an answer per run,
    /// in the order of the runs. Calls `progress` with the number of runs done.
    ///
    /// Every batch locks its keys in the same order, so two batches with the same keys do not
    /// deadlock.
    pub(crate) fn enqueue(
        &self,
        runs: &[EncodedRun],
        dependencies: &[Dependencies],
        progress: impl Fn(usize),
    ) -> Result<Vec<Queued>> {
        let chunks = u32::try_from(runs.len() / CHUNK).unwrap_or(u32::MAX);
        let timeouts = Timeouts {
            statement: self.timeouts.statement + CHUNK_TIME.saturating_mul(chunks),
            ..self.timeouts
        };
        let order = insert_order(runs);
        let has_keys = runs.iter().any(|run| run.key.is_some());
        // Another batch keeps its keys locked until it ends, so a batch waits as long as it may
        // take itself. A single run does not wait longer than for one lock.
        let waits_until = Instant::now() + timeouts.statement;
        let enqueued = loop {
            let result = self.transact_within(timeouts, "enqueue", |transaction| {
                enqueue_chunks(transaction, runs, &order, dependencies, &progress)
            });
            match result {
                Err(error) if error.is_locked() && has_keys => {
                    if runs.len() <= 1 || Instant::now() > waits_until {
                        return Err(Error::new(Kind::Busy, Exit::Unavailable, KEY_HELD));
                    }
                }
                other => break other?,
            }
        };
        enqueued.into_iter().collect::<Option<_>>().ok_or_else(|| Error::broken("enqueue"))
    }
}

/// Returns the indexes of the runs in the order in which they are inserted. The places of runs
/// without a key stay. The runs with keys share their places in the order in which keys are locked.
fn insert_order(runs: &[EncodedRun]) -> Vec<usize> {
    let mut order: Vec<_> = (0..runs.len()).collect();
    let keyed: Vec<_> = order.iter().copied().filter(|index| runs[*index].key.is_some()).collect();
    let mut sorted = keyed.clone();
    sorted.sort_by(|a, b| runs[*a].lock_order().cmp(&runs[*b].lock_order()));
    for (place, index) in keyed.into_iter().zip(sorted) {
        order[place] = index;
    }
    order
}

/// Enqueues runs in this order, and lets them wait for others. If a run is rejected, undoes that,
/// and returns. The answer for a run is `None` if the database returned none. After each chunk,
/// calls `progress` with the number of runs done.
fn enqueue_chunks(
    transaction: &mut Transaction,
    runs: &[EncodedRun],
    order: &[usize],
    dependencies: &[Dependencies],
    progress: &impl Fn(usize),
) -> PgResult<Vec<Option<Queued>>> {
    let mut answers = vec![Some(Queued::NotTried); runs.len()];
    let mut enqueued = 0;
    for chunk in order.chunks(CHUNK) {
        enqueue_chunk(transaction, runs, chunk, &mut answers)?;
        let is_accepted = |index: &usize| matches!(answers[*index], Some(Queued::Accepted(_)));
        if !chunk.iter().all(is_accepted) {
            transaction.undo()?;
            return Ok(answers);
        }
        enqueued += chunk.len();
        progress(enqueued);
    }
    if let Some((index, refused)) = wait_for(transaction, dependencies, &answers)? {
        answers[index] = Some(refused);
        transaction.undo()?;
    }
    Ok(answers)
}

/// A run of a batch, and a run for which it waits.
struct Pair {
    /// The index of the run in the batch.
    index: usize,
    run: i64,
    predecessor: i64,
    rule: AfterRule,
}

/// Lets new runs wait for others. Returns the index of the first run that can't wait, and why.
fn wait_for(
    transaction: &mut Transaction,
    dependencies: &[Dependencies],
    answers: &[Option<Queued>],
) -> PgResult<Option<(usize, Queued)>> {
    let pairs = match dependency_pairs(dependencies, answers) {
        Ok(pairs) => pairs,
        Err(refused) => return Ok(Some(refused)),
    };
    for chunk in pairs.chunks(PAIRS) {
        let row: Option<WaitRefused> = transaction.first(query!(
            "enqueue/wait_for";
            runs = column(chunk, |pair| pair.run),
            predecessors = column(chunk, |pair| pair.predecessor),
            rules = column(chunk, |pair| pair.rule),
        ))?;
        let refused = row.and_then(|row| Some((row.run_id?, row.code?, row.reason?)));
        if let Some((run_id, code, reason)) = refused {
            let of_run = chunk.iter().find(|pair| pair.run == run_id).unwrap_or(&chunk[0]);
            let exit = error::exit_of_refusal(&code);
            return Ok(Some((of_run.index, Queued::Refused(exit, reason))));
        }
    }
    Ok(None)
}

/// Returns the pairs of a new run and a run for which it waits. Fails with the index of the first
/// run that can't wait, and why.
fn dependency_pairs(
    dependencies: &[Dependencies],
    answers: &[Option<Queued>],
) -> std::result::Result<Vec<Pair>, (usize, Queued)> {
    let new_ids: BTreeSet<_> =
        answers.iter().flatten().filter(|answer| answer.is_new()).filter_map(Queued::id).collect();
    let mut pairs = Vec::new();
    for Dependencies { run: index, after, rule } in dependencies {
        let refuse = |exit, why: &str| (*index, Queued::Refused(exit, why.to_owned()));
        // Only an inserted run waits, not an existing run with the key.
        let Some(answer) = answers[*index].as_ref().filter(|answer| answer.is_new()) else {
            continue;
        };
        let Some(run) = answer.id() else { continue };
        for before in after {
            let predecessor = match before {
                // No run had this id before the batch. If it were allowed, two lines could wait for
                // each other.
                Predecessor::Id(id) if new_ids.contains(id) => {
                    return Err(refuse(Exit::NotFound, &format!("no run {id}")));
                }
                Predecessor::Id(id) => Some(*id),
                Predecessor::InBatch(place) => answers[*place].as_ref().and_then(Queued::id),
            };
            let Some(predecessor) = predecessor else {
                let why = "it waits for a run that was dropped, as its definition is full";
                return Err(refuse(Exit::Full, why));
            };
            pairs.push(Pair { index: *index, run, predecessor, rule: *rule });
        }
    }
    Ok(pairs)
}

/// Enqueues a chunk, and sets the answers for its runs. An answer is `None` if the database did not
/// return one for the run.
fn enqueue_chunk(
    transaction: &mut Transaction,
    runs: &[EncodedRun],
    chunk: &[usize],
    answers: &mut [Option<Queued>],
) -> PgResult<()> {
    // For a single run, there are faster statements.
    if let [index] = *chunk {
        let EncodedRun { text, is_built_in, replaces, key } = &runs[index];
        let run = &**text;
        if !is_built_in {
            let answer: EnqueuedRow = transaction.one(query!("enqueue/try_enqueue"; run))?;
            answers[index] = answer.queued();
            return Ok(());
        }
        let inserted = match key {
            None => transaction.first(query!("enqueue/insert_run"; run))?,
            Some(_) if *replaces => None,
            Some(_) => transaction.first(query!("enqueue/insert_keyed_run"; run))?,
        };
        if inserted.is_some() {
            let result = EnqueueResult::Enqueued;
            let accepted = Accepted { id: inserted, result, status: None, due_at: None };
            answers[index] = Some(Queued::Accepted(accepted));
            return Ok(());
        }
        // Another run has the key, this run may replace it, or a trigger skipped the row. The
        // statement for chunks handles these cases.
    }
    let texts: Vec<_> = chunk.iter().map(|index| &*runs[*index].text).collect();
    let rows: Vec<EnqueuedRow> = transaction.list(query!("enqueue/enqueue_runs"; runs = texts))?;
    let mut rows = rows.into_iter();
    for index in chunk {
        answers[*index] = rows.next().and_then(EnqueuedRow::queued);
    }
    Ok(())
}

rows! {
    /// The answer for a run of a statement.
    struct EnqueuedRow {
        id: Option<i64>,
        result: Option<EnqueueResult>,
        code: Option<String>,
        reason: Option<String>,
        status: Option<Status>,
        due_at: Option<DateTime<Utc>>,
    }
}

rows! {
    /// Why a run can't wait for another.
    struct WaitRefused {
        run_id: Option<i64>,
        code: Option<String>,
        reason: Option<String>,
    }
}

impl EnqueuedRow {
    /// Returns the answer; `None` if the row lacks a part of it.
    fn queued(self) -> Option<Queued> {
        Some(match self.code.as_deref() {
            None => {
                let Self { id, status, due_at, .. } = self;
                Queued::Accepted(Accepted { id, result: self.result?, status, due_at })
            }
            Some(error::KEY_TAKEN) => Queued::KeyTaken,
            Some(error::KEY_HAS_RUN) => Queued::KeyHasRun,
            Some(error::NO_DEFINITION) => Queued::Undefined,
            Some(code) => Queued::Refused(error::exit_of_refusal(code), self.reason?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::statement::text;
    use super::*;

    /// Returns the names in the list of columns that a statement reads from the JSON of a run.
    fn read_names(statement: &str) -> Vec<&str> {
        let (_, rest) = statement.split_once("jsonb_to_record(").unwrap();
        let (columns, _) = rest.split_once(")\n").unwrap();
        let columns = columns.lines().skip(1).filter(|line| !line.trim().is_empty());
        columns.map(|line| line.split_whitespace().next().unwrap().trim_matches('"')).collect()
    }

    #[test]
    fn the_statements_read_each_field_of_a_run() {
        let run = NewRun {
            job_type: "a".to_owned(),
            payload: "{}".to_owned(),
            queue: Some(String::new()),
            priority: Some(1),
            run_at: Some(DateTime::UNIX_EPOCH),
            after: Some(1.0),
            max_attempts: Some(1),
            timeout: Some(1.0),
            backoff: Some(String::new()),
            expires_in: Some(1.0),
            share: Some(String::new()),
            lock: Some(String::new()),
            worker: Some(String::new()),
            traceparent: Some(String::new()),
            key: Some(String::new()),
            key_scope: Some(KeyScope::Live),
            on_conflict: Some(OnConflict::Same),
            debounce: Some(1.0),
            debounce_max: Some(1.0),
        };
        let text = serde_json::to_string(&run).unwrap();
        let mut fields: Vec<_> =
            serde_json::from_str::<serde_json::Map<_, _>>(&text).unwrap().into_iter().collect();
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        let of_keys = ["idempotency_key", "key_scope", "on_conflict", "debounce", "debounce_max"];
        let function = include_str!("../../sql/functions/enqueue_runs.sql");
        for (statement, left_out) in [
            (function, &[][..]),
            (text!("enqueue/try_enqueue"), &[]),
            (text!("enqueue/insert_run"), &of_keys),
            (text!("enqueue/insert_keyed_run"), &of_keys[2..]),
        ] {
            let mut names = [&read_names(statement), left_out].concat();
            names.sort_unstable();
            assert_eq!(names, fields.iter().map(|(name, _)| name).collect::<Vec<_>>());
        }
    }
}
