//! Writes about running runs: renews their leases, records their results, and recovers them if
//! their leases expired. A tick records results and claims due runs in one transaction.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::{join, join3};
use postgres::Row;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::claim::{Claim, ClaimFilter, ClaimResult, Claimed, Holder, claim, read_claim};
use super::row::{FromColumn, FromRow, PgResult, column, from_row, rows};
use super::statement::query;
use super::transaction::{Transaction, send};
use super::{Error, FencingToken, Kind, Result, Store, seconds};
use crate::job::next_status::NextStatus;
use crate::job::status::Status;

/// The state of a lease after a renewal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeaseState {
    /// Renewed in the row of its run.
    Renewed,
    /// Renewed in `job_locked_runs`, because another session has locked the row of its run, or a
    /// renewal there takes too long.
    Kept,
    /// Renewed, and an operator asked to cancel the run.
    CancelRequested,
    /// Not renewed, because another session has locked the row of its run, and the lease has ended.
    /// No other worker has the run yet: try again soon.
    Busy,
    /// Another worker has the run, or the run was deleted.
    Lost,
}

/// A claim and the state of its lease.
pub(crate) type Renewed = (FencingToken, LeaseState);

/// The claims whose results are recorded or kept, and the status of their runs. The lease of a
/// claim that is missing here is lost, and its run was not changed.
pub(crate) type Recorded = HashMap<FencingToken, Status>;

/// The result of an attempt, and the next status of its run.
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
    /// Corrects the times of a result for the time since it was stored.
    pub(crate) fn add_age(&mut self, stored_ago: Duration) {
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

/// The answer to a step of a tick.
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
    /// The result of the claim.
    pub(crate) taken: ClaimResult,
    /// The duration of the claim, without the writes before it.
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
        /// Whether the lease is too long, because the database's clock was ahead. Otherwise it
        /// expired.
        pub(crate) is_ahead: bool,
    }
}

/// A run that was recovered.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) id: i64,
    pub(crate) status: Status,
    /// The run expires before its next attempt.
    pub(crate) expires_first: bool,
}

from_row!(Recovered { id, status, expires_first });

/// What the end of runs causes.
#[derive(Debug, Default)]
struct AfterEnd {
    /// The ended runs that others wait for.
    followed: Vec<i64>,
    /// Whether other runs may be due now or soon, such as hooks.
    queues_runs: bool,
}

from_row!(AfterEnd { followed, queues_runs });

impl Store {
    /// Renews the leases of `held` in the rows of their runs, or if another session has locked such
    /// a row, in `job_locked_runs`. Renews those of `kept` only there, because their rows take too
    /// long. Returns the state of each.
    pub(crate) fn heartbeat(
        &self,
        worker: &str,
        held: &[FencingToken],
        kept: Vec<FencingToken>,
        lease: Duration,
    ) -> Result<Vec<Renewed>> {
        let (ids, attempts, claimed_at) = FencingToken::columns(held);
        self.transact("renew leases", |transaction| {
            let seconds = lease.as_secs_f64();
            let statement =
                query!("tick/renew_leases"; worker, ids, attempts, claimed_at, lease = seconds);
            let rows = transaction.rows(statement)?;
            let mut leases = rows.iter().map(renewed_lease).collect::<PgResult<Vec<_>>>()?;
            leases.extend(kept.iter().map(|claim| (*claim, LeaseState::Busy)));

            // Keep the leases that are not renewed in their rows.
            let busy = leases.iter_mut().filter(|(_, state)| *state == LeaseState::Busy);
            let mut busy: HashMap<_, _> = busy.map(|(claim, state)| (*claim, state)).collect();
            let claims: Vec<_> = busy.keys().copied().collect();
            let no_results = vec![None; claims.len()];
            let kept_rows = transaction.request(async |client| {
                keep_locked(client, worker, &claims, lease, no_results).await
            })?;
            for row in kept_rows {
                if let Some(state) = busy.get_mut(&FencingToken::from_row(&row)?) {
                    let is_cancelled: bool = row.try_get("cancel_requested")?;
                    **state =
                        if is_cancelled { LeaseState::CancelRequested } else { LeaseState::Kept };
                }
            }
            Ok(leases)
        })
    }

    /// Stores what jobs have printed so far. Returns the ids of the runs whose output is stored. It
    /// is not stored if another session has locked the run, or if the lease is lost.
    pub(crate) fn store_output(
        &self,
        worker: &str,
        outputs: &[(FencingToken, String)],
    ) -> Result<Vec<i64>> {
        let tokens = column(outputs, |(token, _)| *token);
        let (ids, attempts, claimed_at) = FencingToken::columns(&tokens);
        let outputs = column(outputs, |(_, output)| output.as_str());
        let statement = query!(
            "tick/store_output";
            worker, ids, attempts, claimed_at, outputs,
        );
        self.query("store output", Transaction::list, statement)
    }

    /// Records results, releases the claims of runs that did not start, then claims due runs: all
    /// or nothing. Returns the result, and the ended runs that others wait for.
    ///
    /// - `ended`: the results to record.
    /// - `kept`: the results to store in `job_locked_runs`. A later wake of any tick records them.
    /// - `unstarted`: the claims to release.
    /// - `wanted`: the claim, and which runs it may take; `None`: claim nothing.
    /// - `skips_locked`: whether to skip runs that other sessions have locked, at the cost of one
    ///   more statement, instead of waiting for the locks. The results of skipped runs are stored
    ///   as those in `kept`, and their claims are not released.
    ///
    /// With an error, returns the claims that exist if the transaction was committed. If the
    /// connection was lost, that is unknown.
    pub(crate) fn finish_and_claim(
        &self,
        holder: &Holder,
        ended: Vec<Finish>,
        kept: Vec<Finish>,
        unstarted: Vec<FencingToken>,
        wanted: Option<(Claim, ClaimFilter)>,
        skips_locked: bool,
    ) -> std::result::Result<(StepResult, Vec<i64>), (Error, Vec<FencingToken>)> {
        let doing = match (&*ended, &*kept, &*unstarted) {
            ([], [], []) => "claim runs",
            ([], [], _) => "release claims",
            _ => "record results",
        };
        let mut claimed_tokens = Vec::new();
        let done = self.transact(doing, |transaction| {
            let mut locked = Vec::new();
            if skips_locked {
                let tokens = ended.iter().map(|one| one.token).chain(unstarted.iter().copied());
                let ids: Vec<_> = tokens.map(|token| token.id).collect();
                locked = lock_runs(transaction, &ids)?;
            }
            let is_free = |token: &FencingToken| !locked.contains(&token.id);
            let (to_record, of_locked_runs): (Vec<_>, Vec<_>) =
                ended.iter().partition(|one| is_free(&one.token));
            let to_keep: Vec<_> = of_locked_runs.into_iter().chain(&kept).collect();
            let to_release: Vec<_> = unstarted.iter().copied().filter(is_free).collect();
            let answers = transaction.request(async |client| {
                let wanted = wanted.as_ref();
                send_step(client, holder, &to_record, &to_keep, &to_release, wanted).await
            })?;
            let claiming = answers.claim_began.elapsed();
            let (mut recorded, mut after) = read_recorded_and_note_lost(
                transaction,
                &holder.worker,
                &to_record,
                answers.recorded,
            )?;
            for row in &answers.kept {
                let token = FencingToken::from_row(row)?;
                if let Some(stored) = to_keep.iter().find(|one| one.token == token) {
                    recorded.insert(token, stored.next_status.status);
                }
            }
            if let Some(row) = answers.released.first() {
                let after_release = AfterEnd::from_row(row)?;
                after.followed.extend(after_release.followed);
                after.queues_runs |= after_release.queues_runs;
            }
            let taken = read_claim(&answers.claimed)?;
            claimed_tokens = column(&taken.claimed, Claimed::token);
            let AfterEnd { followed, queues_runs } = after;
            let step =
                StepResult { recorded, queues_runs, locked, taken, claiming, follows: false };
            Ok((step, followed))
        });
        done.map_err(|error| {
            // Any other error is an answer, which says that the transaction was not committed.
            let claims = if error.kind == Kind::Lost { claimed_tokens } else { Vec::new() };
            (error, claims)
        })
    }

    /// Returns at most `limit` runs whose lease expired or is too long, except `rejected`, in
    /// random order.
    pub(crate) fn lost_leases(&self, limit: usize, rejected: Vec<i64>) -> Result<Vec<LostLease>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = query!("tick/lost_leases"; limit, rejected);
        self.query("look for lost leases", Transaction::list, statement)
    }

    /// Shortens leases of these runs that are longer than any tick may ask for. Returns the runs,
    /// and when their leases end.
    pub(crate) fn shorten_leases(&self, ids: Vec<i64>) -> Result<Vec<(i64, Duration)>> {
        let statement = query!("tick/shorten_leases"; ids);
        let rows = self.query("shorten leases", Transaction::list::<(i64, f64)>, statement)?;
        Ok(rows.into_iter().map(|(id, ends_in)| (id, seconds(ends_in))).collect())
    }

    /// Takes runs whose leases expired from their workers. Each element of `lost` is the id of the
    /// run, its attempt, and the wait before the next attempt. Returns the recovered runs.
    pub(crate) fn recover(
        &self,
        lost: &[(i64, i32, Duration)],
        error: &'static str,
    ) -> Result<Vec<Recovered>> {
        let ids = column(lost, |(id, ..)| *id);
        let attempts = column(lost, |(_, attempt, _)| *attempt);
        let next_attempt_in = column(lost, |(.., wait)| wait.as_secs_f64());
        self.query(
            "recover lost leases",
            Transaction::list,
            query!("tick/recover"; ids, attempts, next_attempt_in, error),
        )
    }

    /// Returns at most `limit` claims whose stored results can be recorded now, or that are over,
    /// in random order.
    pub(crate) fn stored_results(&self, limit: usize) -> Result<Vec<FencingToken>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = query!("tick/stored_results"; limit);
        self.query("look for stored results", Transaction::list, statement)
    }

    /// Records the result of a claim that is stored in `job_locked_runs`, and deletes it there.
    /// Returns `None` if no result is stored, or if another session has locked the run.
    pub(crate) fn record_stored(&self, claim: FencingToken) -> Result<Option<StoredResult>> {
        self.transact("record stored results", |transaction| {
            let FencingToken { id, attempt, claimed_at } = claim;
            let taken = transaction.first(query!("tick/take_stored"; id, attempt, claimed_at))?;
            let Some((worker, Some(result), stored_ago)) = taken else { return Ok(None) };
            // A result that can't be read is lost, so a tick recovers the run later.
            let Ok(mut result) = serde_json::from_value::<Finish>(result) else {
                return Ok(Some(StoredResult { worker, recorded: None }));
            };
            result.add_age(stored_ago);
            let finished =
                transaction.request(async |client| finish(client, &worker, &[&result]).await)?;
            let (recorded, _) =
                read_recorded_and_note_lost(transaction, &worker, &[&result], finished)?;
            let recorded = recorded.get(&claim).copied();
            Ok(Some(StoredResult { worker, recorded }))
        })
    }

    /// Returns at most `limit` pending runs that expired, in random order.
    pub(crate) fn expired(&self, limit: usize) -> Result<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query("look for expired runs", Transaction::list, query!("tick/expired"; limit))
    }

    /// Cancels those of these runs that are waiting and have expired. Returns their number.
    pub(crate) fn expire(&self, ids: &[i64]) -> Result<usize> {
        let statement = query!("tick/expire"; ids);
        let ended = self.query("cancel expired runs", Transaction::list::<i64>, statement)?;
        Ok(ended.len())
    }
}

/// The answers to the statements of a step: the rows of each, or none if it was not sent.
struct StepAnswers {
    recorded: Vec<Row>,
    kept: Vec<Row>,
    released: Vec<Row>,
    claimed: Vec<Row>,
    /// When the other answers had come, so that the server began the claim.
    claim_began: Instant,
}

/// Sends the statements of a step together. The claim comes last, because it may take runs that the
/// other statements queue.
async fn send_step(
    client: &Client,
    holder: &Holder,
    to_record: &[&Finish],
    to_keep: &[&Finish],
    to_release: &[FencingToken],
    wanted: Option<&(Claim, ClaimFilter)>,
) -> PgResult<StepAnswers> {
    let worker = &holder.worker;
    let kept_results = column(to_keep, |one| Some(json!(one)));
    let kept_tokens = column(to_keep, |one| one.token);
    // The statements are sent in this order, before the first answer.
    let others = async {
        let finish = finish(client, worker, to_record);
        let keep = keep_locked(client, worker, &kept_tokens, Duration::ZERO, kept_results);
        let release = release(client, worker, to_release);
        (join3(finish, keep, release).await, Instant::now())
    };
    let claim = async {
        let Some((asked, filter)) = wanted else { return Ok(Vec::new()) };
        claim(client, holder, asked, filter).await
    };
    let (((recorded, kept, released), claim_began), claimed) = join(others, claim).await;
    // After an error, the server rejects all later statements. So return the first error.
    Ok(StepAnswers {
        recorded: recorded?,
        kept: kept?,
        released: released?,
        claimed: claimed?,
        claim_began,
    })
}

/// Returns a claim and the state of its lease, read from a row of renew_leases.sql.
fn renewed_lease(row: &Row) -> PgResult<Renewed> {
    let is_held: bool = row.try_get("held")?;
    let is_renewed: bool = row.try_get("renewed")?;
    let is_cancelled: bool = row.try_get("cancel_requested")?;
    let state = if !is_held {
        LeaseState::Lost
    } else if !is_renewed {
        LeaseState::Busy
    } else if is_cancelled {
        LeaseState::CancelRequested
    } else {
        LeaseState::Renewed
    };
    Ok((FencingToken::from_row(row)?, state))
}

/// Keeps leases or results of runs in `job_locked_runs`, because their rows are locked or take too
/// long. Returns a row for each claim whose lease or result was kept.
async fn keep_locked(
    client: &Client,
    worker: &str,
    claims: &[FencingToken],
    lease: Duration,
    results: Vec<Option<Value>>,
) -> PgResult<Vec<Row>> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, attempts, claimed_at) = FencingToken::columns(claims);
    let lease = lease.as_secs_f64();
    let statement = query!("tick/keep_locked"; worker, ids, attempts, claimed_at, lease, results);
    send(client, statement).await
}

/// Locks runs, and returns those that another session has locked.
fn lock_runs(transaction: &mut Transaction, runs: &[i64]) -> PgResult<Vec<i64>> {
    transaction.list(query!("tick/lock_runs"; ids = runs))
}

/// Releases the claims of runs that did not start. Returns what that causes, as a row of
/// `AfterEnd`.
async fn release(client: &Client, worker: &str, unstarted: &[FencingToken]) -> PgResult<Vec<Row>> {
    if unstarted.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, attempts, claimed_at) = FencingToken::columns(unstarted);
    send(client, query!("tick/release_claims"; worker, ids, attempts, claimed_at)).await
}

/// Records the results of attempts in one statement. `read_recorded_and_note_lost` reads its
/// answer.
async fn finish(client: &Client, worker: &str, ended: &[&Finish]) -> PgResult<Vec<Row>> {
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let statement = query!(
        "tick/finish";
        worker,
        ids = column(ended, |one| one.token.id),
        attempts = column(ended, |one| one.token.attempt),
        statuses = column(ended, |one| one.next_status.status),
        next_attempt_in = column(ended, |one| one.next_status.wait.as_secs_f64()),
        outcomes = column(ended, |one| one.next_status.outcome),
        error_types = column(ended, |one| one.next_status.error_type),
        errors = column(ended, |one| one.next_status.error.as_deref()),
        details = column(ended, |one| one.detail.as_deref()),
        exit_codes = column(ended, |one| one.exit_code),
        signals = column(ended, |one| one.signal),
        http_statuses = column(ended, |one| one.http_status),
        outputs = column(ended, |one| one.output.as_deref()),
        output_bytes = column(ended, |one| one.output_bytes),
        truncated = column(ended, |one| one.output_truncated),
        started_ago = column(ended, |one| one.started_ago.as_secs_f64()),
        ended_ago = column(ended, |one| one.ended_ago.as_secs_f64()),
        claimed_at = column(ended, |one| one.token.claimed_at),
    );
    send(client, statement).await
}

/// Returns the status of each attempt that `finish` or an earlier statement has recorded, and what
/// the end of the runs causes. Writes the other attempts, which have lost their leases, to the
/// history as lost. `finished`: the rows that `finish` returned.
fn read_recorded_and_note_lost(
    transaction: &mut Transaction<'_>,
    worker: &str,
    ended: &[&Finish],
    finished: Vec<Row>,
) -> PgResult<(Recorded, AfterEnd)> {
    let mut rows = Vec::new();
    if finished.len() < ended.len() {
        // The missing attempts may have been recorded before, by a statement whose answer was lost.
        rows = transaction.rows(query!(
            "tick/recorded_before";
            worker,
            ids = column(ended, |one| one.token.id),
            attempts = column(ended, |one| one.token.attempt),
            statuses = column(ended, |one| one.next_status.status),
            outcomes = column(ended, |one| one.next_status.outcome),
            errors = column(ended, |one| one.next_status.error.as_deref()),
            details = column(ended, |one| one.detail.as_deref()),
            claimed_at = column(ended, |one| one.token.claimed_at),
        ))?;
    }
    let after = finished.first().map(AfterEnd::from_row).transpose()?.unwrap_or_default();
    // recorded_before.sql also returns the results that finish.sql has just recorded. The status
    // from finish.sql is newer, so its rows come last and replace those.
    rows.extend(finished);
    let mut recorded = Recorded::new();
    for row in &rows {
        recorded.insert(FencingToken::from_row(row)?, Status::from_column(row, "status")?);
    }
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
