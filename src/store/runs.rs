//! Writes about running runs: heartbeat, finish, recover. A tick records results and claims due
//! runs in one transaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postgres::Row;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::claim::{Claim, ClaimFilter, ClaimResult, Claimed, Holder, claim};
use super::row::{FromColumn, FromRow, PgResult, column, from_row, rows};
use super::session::Transaction;
use super::statement::{owned, query};
use super::{Error, FencingToken, Kind, Result, Store, seconds};
use crate::job::next_status::NextStatus;
use crate::job::status::Status;

/// The state of a lease after a heartbeat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeaseState {
    Renewed,
    /// Renewed in `job_locked_runs`: another session has locked the row, or it takes too long.
    Kept,
    /// Renewed, and an operator asked to cancel the run.
    CancelRequested,
    /// Still held, but another session has locked the row, and the lease is over: try again soon.
    Busy,
    Lost,
}

/// A claim and the state of its lease.
pub(crate) type Renewed = (FencingToken, LeaseState);

/// The claims whose results are recorded, and the status of their runs. The lease of a missing
/// claim is lost, and its run was not changed.
pub(crate) type Recorded = HashMap<FencingToken, Status>;

/// The result of an attempt, and the status that follows.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Finish {
    pub(crate) token: FencingToken,
    pub(crate) next_status: NextStatus,
    pub(crate) detail: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) http_status: Option<i32>,
    pub(crate) output: Option<String>,
    pub(crate) output_bytes: i64,
    pub(crate) output_truncated: bool,
    pub(crate) started_ago: Duration,
    pub(crate) ended_ago: Duration,
}

impl Finish {
    /// Moves the times of a result that was stored so long ago.
    pub(crate) fn age(&mut self, stored_ago: Duration) {
        self.started_ago = self.started_ago.saturating_add(stored_ago);
        self.ended_ago = self.ended_ago.saturating_add(stored_ago);
        let wait = &mut self.next_status.wait;
        *wait = wait.saturating_sub(stored_ago);
    }
}

/// A result that was stored because another session had locked its run.
#[derive(Debug)]
pub(crate) struct StoredResult {
    pub(crate) worker: String,
    /// The status of its run; `None`: the lease was lost before.
    pub(crate) recorded: Option<Status>,
}

#[derive(Debug, Default)]
pub(crate) struct StepResult {
    pub(crate) recorded: Recorded,
    /// Whether other runs may be due now or soon: hooks, or runs that waited for the ended ones.
    pub(crate) queues_runs: bool,
    /// Whether the next request decides about runs that wait for ended ones.
    pub(crate) follows: bool,
    /// Runs that another session has locked. Their claims are not released, and their results are
    /// only stored, or not recorded.
    pub(crate) locked: Vec<i64>,
    pub(crate) taken: ClaimResult,
    /// The duration of the claim alone.
    pub(crate) claiming: Duration,
}

rows! {
    /// A run whose lease expired, or is longer than any tick may ask for.
    pub(crate) struct LostLease {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) worker: String,
        pub(crate) attempt: i32,
        pub(crate) max_attempts: i32,
        pub(crate) uncounted_attempts: i32,
        pub(crate) backoff: String,
        /// The lease is too long, because the database's clock was ahead.
        pub(crate) is_ahead: bool,
    }
}

/// A run that was recovered.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) id: i64,
    pub(crate) status: Status,
    /// It expires before its next attempt.
    pub(crate) expires_first: bool,
}

from_row!(Recovered { id, status, expires_first });

/// What follows the end of runs.
#[derive(Debug, Default)]
struct AfterEnd {
    followed: Vec<i64>,
    queues_runs: bool,
}

from_row!(AfterEnd { followed, queues_runs });

impl Store {
    /// Renews the leases of `held`, and those of `kept` without their rows. Returns the state of
    /// each.
    pub(crate) fn heartbeat(
        &self,
        worker: &str,
        held: &[FencingToken],
        kept: Vec<FencingToken>,
        lease: Duration,
    ) -> Result<Vec<Renewed>> {
        let worker = worker.to_owned();
        let (ids, attempts, claimed_at) = FencingToken::columns(held);
        self.transact("renew leases", move |transaction| {
            let seconds = lease.as_secs_f64();
            let statement =
                query!("tick/heartbeat"; worker, ids, attempts, lease = seconds, claimed_at);
            let renewed = transaction.rows(statement)?;
            let mut renewed = renewed.iter().map(renewed_lease).collect::<PgResult<Vec<_>>>()?;
            renewed.extend(kept.iter().map(|claim| (*claim, LeaseState::Busy)));
            let busy = renewed.iter_mut().filter(|(_, state)| *state == LeaseState::Busy);
            let mut busy: HashMap<_, _> = busy.map(|(claim, state)| (*claim, state)).collect();
            let claims: Vec<_> = busy.keys().copied().collect();
            for row in keep_locked(transaction, &worker, &claims, lease, vec![None; claims.len()])?
            {
                if let Some(state) = busy.get_mut(&FencingToken::from_row(&row)?) {
                    **state = match row.try_get("cancel_requested")? {
                        true => LeaseState::CancelRequested,
                        false => LeaseState::Kept,
                    };
                }
            }
            Ok(renewed)
        })
    }

    /// Stores what jobs have printed so far. Returns the ids of the runs whose output is stored.
    /// The others are locked by other sessions, or their leases are lost.
    pub(crate) fn store_output(
        &self,
        worker: &str,
        outputs: &[(FencingToken, String)],
    ) -> Result<Vec<i64>> {
        let (tokens, texts): (Vec<_>, Vec<_>) = outputs.iter().cloned().unzip();
        let (ids, attempts, claimed_at) = FencingToken::columns(&tokens);
        let statement = owned!(
            "tick/store_output";
            worker = worker.to_owned(), ids, attempts, claimed_at, outputs = texts,
        );
        self.query("store output", Transaction::list, statement)
    }

    /// Records results, releases claims that were never started, then claims due runs: all or
    /// nothing. Waits for locked runs or skips them, which needs one more statement. Their results
    /// are stored, as are those in `kept`, and a later wake of any tick records them. Returns also
    /// the ended runs that others wait for. If the connection is lost, the error carries the claims
    /// that exist if the transaction was committed, which is unknown.
    pub(crate) fn finish_and_claim(
        &self,
        holder: &Holder,
        ended: Vec<Finish>,
        kept: Vec<Finish>,
        unstarted: Vec<FencingToken>,
        wanted: Option<(Claim, ClaimFilter)>,
        skips_locked: bool,
    ) -> std::result::Result<(StepResult, Vec<i64>), (Error, Vec<FencingToken>)> {
        let holder = holder.clone();
        let doing = match (&*ended, &*kept, &*unstarted) {
            ([], [], []) => "claim runs",
            ([], [], _) => "release claims",
            _ => "record results",
        };
        let claims = Arc::new(Mutex::<Vec<FencingToken>>::default());
        let made = Arc::clone(&claims);
        let work = move |transaction: &mut Transaction| {
            let locked = if skips_locked {
                let tokens = ended.iter().map(|one| one.token).chain(unstarted.iter().copied());
                locked(transaction, &tokens.map(|token| token.id).collect::<Vec<_>>())?
            } else {
                Vec::new()
            };
            let free: Vec<_> = ended.iter().filter(|one| !locked.contains(&one.token.id)).collect();
            let (mut recorded, mut after) = match free.as_slice() {
                [] => (Recorded::new(), AfterEnd::default()),
                free => finish(transaction, &holder.worker, free)?,
            };
            let skipped = ended.iter().filter(|one| locked.contains(&one.token.id)).chain(&kept);
            let results = skipped.clone().map(|one| Some(json!(one))).collect();
            let claims: Vec<_> = skipped.clone().map(|one| one.token).collect();
            let kept = keep_locked(transaction, &holder.worker, &claims, Duration::ZERO, results)?;
            let kept: Vec<_> = kept.iter().map(FencingToken::from_row).collect::<PgResult<_>>()?;
            let kept = skipped.filter(|one| kept.contains(&one.token));
            recorded.extend(kept.map(|one| (one.token, one.next_status.status)));
            let free = unstarted.iter().filter(|token| !locked.contains(&token.id));
            let free: Vec<_> = free.copied().collect();
            if !free.is_empty() {
                let (ids, attempts, claimed_at) = FencingToken::columns(&free);
                let statement =
                    query!("tick/release"; worker = holder.worker, ids, attempts, claimed_at);
                let released: AfterEnd = transaction.one(statement)?;
                after.followed.extend(released.followed);
                after.queues_runs |= released.queues_runs;
            }
            let began = Instant::now();
            let taken = match &wanted {
                Some((asked, filter)) => claim(transaction, &holder, asked, filter)?,
                None => ClaimResult::default(),
            };
            *made.lock().unwrap_or_else(PoisonError::into_inner) =
                taken.claimed.iter().map(Claimed::token).collect();
            let claiming = began.elapsed();
            let AfterEnd { followed, queues_runs } = after;
            let step =
                StepResult { recorded, queues_runs, locked, taken, claiming, follows: false };
            Ok((step, followed))
        };
        self.transact(doing, work).map_err(|error| {
            // From now on, the connection's thread does not begin to commit.
            let claims = || claims.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let claims = if error.kind == Kind::Lost { claims() } else { Vec::new() };
            (error, claims)
        })
    }

    /// Returns runs whose lease expired or is too long, except `rejected`, in random order.
    pub(crate) fn lost_leases(&self, limit: usize, rejected: Vec<i64>) -> Result<Vec<LostLease>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = owned!("tick/lost_leases"; limit, rejected);
        self.query("look for lost leases", Transaction::list, statement)
    }

    /// Shortens leases of these runs that are longer than any tick may ask for. Returns the runs,
    /// and when their leases end.
    pub(crate) fn shorten_leases(&self, ids: Vec<i64>) -> Result<Vec<(i64, Duration)>> {
        let statement = owned!("tick/shorten_leases"; ids);
        let rows = self.query("shorten leases", Transaction::list::<(i64, f64)>, statement)?;
        Ok(rows.into_iter().map(|(id, ends_in)| (id, seconds(ends_in))).collect())
    }

    /// Takes runs with lost leases (id, attempt, wait) from their workers. Returns the recovered
    /// runs.
    pub(crate) fn recover(
        &self,
        lost: &[(i64, i32, Duration)],
        error: &'static str,
    ) -> Result<Vec<Recovered>> {
        let ids = column(lost, |(id, ..)| *id);
        let attempts = column(lost, |(_, attempt, _)| *attempt);
        let waits = column(lost, |(.., wait)| wait.as_secs_f64());
        self.query(
            "recover lost leases",
            Transaction::list,
            owned!("tick/recover"; ids, attempts, waits, error),
        )
    }

    /// Returns claims whose stored results can be recorded now, or that are over, in random order.
    pub(crate) fn stored_results(&self, limit: usize) -> Result<Vec<FencingToken>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = owned!("tick/stored_results"; limit);
        self.query("look for stored results", Transaction::list, statement)
    }

    /// Records the stored result of a claim, and deletes its row of `job_locked_runs`. `None`: it
    /// has none, or another session has locked the run.
    pub(crate) fn record_stored(&self, claim: FencingToken) -> Result<Option<StoredResult>> {
        self.transact("record stored results", move |transaction| {
            let FencingToken { id, attempt, claimed_at } = claim;
            let taken = transaction.first(query!("tick/take_stored"; id, attempt, claimed_at))?;
            let Some((worker, Some(result), stored_ago)) = taken else { return Ok(None) };
            // A result that can't be read is lost. Another tick recovers the run.
            let Ok(mut result) = serde_json::from_value::<Finish>(result) else {
                return Ok(Some(StoredResult { worker, recorded: None }));
            };
            result.age(stored_ago);
            let (recorded, _) = finish(transaction, &worker, &[&result])?;
            let recorded = recorded.get(&claim).copied();
            Ok(Some(StoredResult { worker, recorded }))
        })
    }

    /// Returns waiting runs that expired, in random order.
    pub(crate) fn expired(&self, limit: usize) -> Result<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query("look for expired runs", Transaction::list, owned!("tick/expired"; limit))
    }

    /// Cancels those of the runs that wait and expired. Returns how many.
    pub(crate) fn expire(&self, ids: &[i64]) -> Result<usize> {
        let statement = owned!("tick/expire"; ids = ids.to_vec());
        let ended = self.query("cancel expired runs", Transaction::list::<i64>, statement)?;
        Ok(ended.len())
    }
}

fn renewed_lease(row: &Row) -> PgResult<Renewed> {
    let state = ["held", "renewed", "cancel_requested"].map(|column| row.try_get(column));
    let [held, renewed, cancel_requested] = state;
    let state = match (held?, renewed?, cancel_requested?) {
        (false, ..) => LeaseState::Lost,
        (true, false, _) => LeaseState::Busy,
        (true, true, true) => LeaseState::CancelRequested,
        (true, true, false) => LeaseState::Renewed,
    };
    Ok((FencingToken::from_row(row)?, state))
}

/// Keeps leases or results of runs that another session has locked. Returns the rows of those that
/// were kept.
fn keep_locked(
    transaction: &mut Transaction,
    worker: &str,
    claims: &[FencingToken],
    lease: Duration,
    results: Vec<Option<Value>>,
) -> PgResult<Vec<Row>> {
    let [_, ..] = claims else { return Ok(Vec::new()) };
    let (ids, attempts, claimed_at) = FencingToken::columns(claims);
    let lease = lease.as_secs_f64();
    let statement = query!("tick/keep_locked"; worker, ids, attempts, claimed_at, lease, results);
    transaction.rows(statement)
}

/// Returns the runs that another session has locked. This transaction locks the others.
fn locked(transaction: &mut Transaction, runs: &[i64]) -> PgResult<Vec<i64>> {
    transaction.list(query!("tick/locked"; ids = runs))
}

/// Records the results of attempts in one statement; returns also what follows. In the history, an
/// attempt that lost its lease gets that as its result.
fn finish(
    transaction: &mut Transaction,
    worker: &str,
    ended: &[&Finish],
) -> PgResult<(Recorded, AfterEnd)> {
    let ids = column(ended, |one| one.token.id);
    let attempts = column(ended, |one| one.token.attempt);
    let claimed_at = column(ended, |one| one.token.claimed_at);
    let statuses = column(ended, |one| one.next_status.status);
    let outcomes = column(ended, |one| one.next_status.outcome);
    let errors = column(ended, |one| one.next_status.error.as_deref());
    let details = column(ended, |one| one.detail.as_deref());
    let now = transaction.rows(query!(
        "tick/finish";
        worker,
        ids,
        attempts,
        statuses,
        waits = column(ended, |one| one.next_status.wait.as_secs_f64()),
        outcomes,
        error_types = column(ended, |one| one.next_status.error_type),
        errors,
        details,
        exit_codes = column(ended, |one| one.exit_code),
        signals = column(ended, |one| one.signal),
        http_statuses = column(ended, |one| one.http_status),
        outputs = column(ended, |one| one.output.as_deref()),
        output_bytes = column(ended, |one| one.output_bytes),
        truncated = column(ended, |one| one.output_truncated),
        started_ago = column(ended, |one| one.started_ago.as_secs_f64()),
        ended_ago = column(ended, |one| one.ended_ago.as_secs_f64()),
        claimed_at,
    ))?;
    let mut rows = Vec::new();
    if now.len() < ended.len() {
        rows = transaction.rows(query!(
            "tick/recorded_before";
            worker, ids, attempts, statuses, outcomes, errors, details, claimed_at,
        ))?;
    }
    let after = now.first().map(AfterEnd::from_row).transpose()?.unwrap_or_default();
    // recorded_before.sql also returns the results that finish.sql has just recorded. Their newer
    // status counts, so they come last.
    rows.extend(now);
    let read = |row: &Row| Ok((FencingToken::from_row(row)?, Status::from_column(row, "status")?));
    let recorded: Recorded = rows.iter().map(read).collect::<PgResult<_>>()?;
    let lost: Vec<_> = ended.iter().filter(|one| !recorded.contains_key(&one.token)).collect();
    if !lost.is_empty() {
        transaction.execute(query!(
            "tick/note_lost";
            worker,
            ids = column(&lost, |one| one.token.id),
            attempts = column(&lost, |one| one.token.attempt),
            started_ago = column(&lost, |one| one.started_ago.as_secs_f64()),
        ))?;
    }
    Ok((recorded, after))
}
