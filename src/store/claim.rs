//! The claim, by which a tick gets runs, and what becomes of runs that can't be claimed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use serde::Deserialize;
use tokio_postgres::Client;

use super::row::{FromRow, PgResult, column, rows, timestamp};
use super::statement::query;
use super::transaction::{Transaction, send};
use super::{Error, Result, Store};
use crate::job::action::JobKind;
use crate::job::failure::Failure;

/// The tick that holds runs, and its worker.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) worker: String,
    pub(crate) tick: String,
}

/// Which runs a tick may claim, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct ClaimFilter {
    /// Only runs of these queues; empty for all.
    pub(crate) queues: Vec<String>,
    /// No runs of these job types, which other hosts run.
    pub(crate) excluded_jobs: Vec<String>,
    /// No runs of definitions of these kinds.
    pub(crate) excluded_kinds: Vec<JobKind>,
    /// None of these runs, which can be neither claimed nor put off.
    pub(crate) excluded_runs: Vec<i64>,
    /// Only this run. Its claim does not need the worker's claim right.
    pub(crate) only_run: Option<i64>,
    /// How long the lease of a claimed run lasts.
    pub(crate) lease: Duration,
}

/// The action of a definition.
#[derive(Clone, Debug)]
pub(crate) struct DefinedAction {
    pub(crate) kind: JobKind,
    /// JSON text; the runs of a claim share it.
    pub(crate) action: Arc<str>,
}

rows! {
    /// A run's position in the order of claims. A queue and a priority are a lane.
    pub(crate) struct Position {
        pub(crate) queue: String,
        pub(crate) priority: i32,
        pub(crate) run_at: DateTime<Utc>,
        pub(crate) id: i64,
    }
}

/// A lane: the waiting runs of one queue with one priority, named by both.
pub(crate) type Lane = (String, i32);

/// The result of a claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimResult {
    /// The claimed runs, each with a lease.
    pub(crate) claimed: Vec<Claimed>,
    /// The first job whose due runs the claim skipped, because another session has locked its
    /// definition.
    pub(crate) skipped: Option<String>,
    /// A trigger of another program made the database skip due runs.
    pub(crate) skips_runs: bool,
    /// The claim released the claim right, because no more runs are due.
    pub(crate) has_released: bool,
    /// The last lane that the claim looked at, if there may be more lanes: the next full scan
    /// begins after it. `None`: the next full scan begins at the first lane.
    pub(crate) last_lane: Option<Lane>,
    /// The id of the last limited definition that the claim looked at, if there are more of them:
    /// the next claim begins after it. `None`: the next claim begins with the first one.
    pub(crate) last_definition: Option<i64>,
    /// For each definition that has more shares than the claim looked at: the last of these. The
    /// next claim begins after them.
    pub(crate) last_shares: Vec<LastShare>,
}

/// How many due runs to claim, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) at_most: i32,
    /// How many of the claimed runs can start at once. The last attempt of a run is not claimed
    /// before it can start.
    pub(crate) free_threads: i32,
    /// Claim no more runs once their payloads exceed this number of bytes.
    pub(crate) bytes: i64,
    /// Continue in these lanes after these runs; `None`: a full scan.
    pub(crate) after: Option<Vec<Position>>,
    /// Begin the full scan after this lane; `None`: at the first lane.
    pub(crate) after_lane: Option<Lane>,
    /// Look at the limited definitions after the one with this id; `None`: begin with the first
    /// one.
    pub(crate) after_definition: Option<i64>,
    /// Continue after these shares.
    pub(crate) after_shares: Vec<LastShare>,
    /// Whether to release the claim right if fewer than `at_most` runs are due.
    pub(crate) release_right: bool,
    /// Whether the claim must check the limits of definitions.
    pub(crate) limits: bool,
    /// Whether the claim may take runs with a lock of their own.
    pub(crate) locks: bool,
}

impl Claim {
    /// Returns whether the claim found fewer runs than it may take.
    pub(crate) fn is_short(&self, claimed: &[Claimed]) -> bool {
        claimed.len() < usize::try_from(self.at_most).unwrap_or(0)
    }
}

rows! {
    /// A claimed run, with everything to execute it and to prove that its lease is held.
    pub(crate) struct Claimed {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        /// Where the scan found the run. `None` for a run of a limited definition: no scan found
        /// it, it was claimed by its id.
        pub(crate) position: Option<Position> = None,
        /// JSON text.
        pub(crate) payload: String,
        /// The definition at the time of the claim; `None` for a built-in job, or if there is none.
        #[serde(skip)]
        pub(crate) definition: Option<DefinedAction> = None,
        /// The number of this attempt.
        pub(crate) attempt: i32,
        /// The number of the last attempt that it may have, uncounted attempts included.
        pub(crate) max_attempts: i32,
        /// How many earlier attempts do not use up `max_attempts`.
        pub(crate) uncounted_attempts: i32,
        /// By the database's clock.
        pub(crate) claimed_at: DateTime<Utc>,
        /// An operator asked to cancel the run while it waited.
        pub(crate) cancel_asked: bool,
        /// How long after the claim the attempt may start.
        pub(crate) expires_in: Option<Duration>,
        pub(crate) timeout: Option<Duration>,
        pub(crate) backoff: String,
        /// The idempotency key for effects; `None` if another run may have the same.
        pub(crate) key: Option<String>,
        /// RFC 3339.
        pub(crate) scheduled_for: Option<String>,
        /// The ids of the runs that it waited for, with commas.
        pub(crate) after: Option<String>,
        /// Whether the job gets the results of the runs that it waited for.
        pub(crate) passes_results: bool,
        /// Whether the definition says that the job prints JSON.
        pub(crate) prints_json: bool,
        /// The W3C trace context that the run continues.
        pub(crate) traceparent: Option<String>,
        /// The results of the runs that it waited for, as JSON, or why they can't be read; `None`:
        /// they were not read.
        #[serde(skip)]
        pub(crate) results: Option<std::result::Result<String, Failure>> = None,
    }
}

impl Claimed {
    /// Returns the number of this attempt without uncounted ones, which decides the backoff.
    pub(crate) fn counted_attempt(&self) -> i32 {
        self.attempt - self.uncounted_attempts
    }

    /// Returns the trace id of its trace context, which is `00-TRACE_ID-...`.
    pub(crate) fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_ref()?.get(3..35)
    }

    /// Returns the number of bytes of the job's input: the payload, and the results that it gets.
    pub(crate) fn bytes(&self) -> usize {
        let results = match &self.results {
            Some(Ok(results)) => results.len(),
            Some(Err(_)) | None => 0,
        };
        self.payload.len() + results
    }

    /// Returns the token that each write about this claim repeats.
    pub(crate) fn token(&self) -> FencingToken {
        FencingToken { id: self.id, attempt: self.attempt, claimed_at: self.claimed_at }
    }
}

/// A run that could not be claimed.
#[derive(Debug)]
pub(crate) struct SetAside {
    pub(crate) id: i64,
    pub(crate) why: Error,
    pub(crate) end: AsideEnd,
}

/// What became of a run that could not be claimed.
#[derive(Debug)]
pub(crate) enum AsideEnd {
    /// Claims skip the run for a while.
    PutOff,
    /// The run can't be read, so it ended.
    Dead,
    /// The run could not be put off either, for this reason.
    Kept(Error),
}

impl SetAsideRow {
    /// Returns the run and its errors. If the run can't have caused one of these, returns that one
    /// as an error.
    fn judge(self) -> Result<SetAside> {
        let doing = if self.is_dead { "read runs" } else { "claim runs" };
        let why = Error::of_code(doing, &self.code, &self.message).if_about_one_row()?;
        let end = match self.second_code.zip(self.second_message) {
            Some((code, message)) => {
                let error = Error::of_code("put off a run", &code, &message);
                AsideEnd::Kept(error.if_about_one_row()?)
            }
            None if self.is_dead => AsideEnd::Dead,
            None => AsideEnd::PutOff,
        };
        Ok(SetAside { id: self.id, why, end })
    }
}

rows! {
    /// What became of a run that could not be claimed, and the errors.
    struct SetAsideRow {
        id: i64,
        is_dead: bool,
        /// The error of the claim.
        code: String,
        message: String,
        /// The error of putting the run off, if that failed.
        second_code: Option<String>,
        second_message: Option<String>,
    }

    /// The last share of a limited definition that a claim looked at, or the last lock of runs.
    pub(crate) struct LastShare {
        pub(crate) definition: i64,
        pub(crate) share: String,
    }

    /// Identifies a claim, even among several claims of the same attempt. Every later write must
    /// match it and the worker's name (fencing).
    #[derive(Copy, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize)]
    pub(crate) struct FencingToken {
        pub(crate) id: i64,
        pub(crate) attempt: i32,
        pub(crate) claimed_at: DateTime<Utc>,
    }

    /// A run that a claim would take.
    pub(crate) struct DueRun {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) queue: String,
        pub(crate) priority: i32,
        pub(crate) run_at: DateTime<Utc> as "timestamp",
        /// The number of the next attempt.
        pub(crate) attempt: i32,
        pub(crate) max_attempts: i32,
    }
}

impl LastShare {
    /// The `definition` of a lock of runs. No definition has this id.
    pub(crate) const OF_LOCKS: i64 = 0;
}

impl FencingToken {
    /// Returns ids, attempts and times as arguments of a statement.
    pub(super) fn columns(tokens: &[Self]) -> (Vec<i64>, Vec<i32>, Vec<DateTime<Utc>>) {
        tokens.iter().map(|token| (token.id, token.attempt, token.claimed_at)).collect()
    }
}

impl Store {
    /// Returns the runs that a claim would take, at most `limit`. Changes nothing.
    pub(crate) fn preview(
        &self,
        worker: &str,
        wanted: &ClaimFilter,
        limit: i64,
    ) -> Result<Vec<DueRun>> {
        let ClaimFilter { queues, excluded_jobs, excluded_kinds, excluded_runs, only_run, .. } =
            wanted;
        let statement = query!(
            "tick/preview";
            queues, excluded_jobs, limit, excluded_kinds, excluded_runs, worker, only_run,
        );
        self.query("look for due runs", Transaction::list, statement)
    }

    /// Returns the results of the runs that a run waited for, as JSON.
    pub(crate) fn results(&self, run: i64) -> Result<String> {
        let doing = "read the outputs of the runs that it waited for";
        self.query(doing, Transaction::one, query!("tick/predecessor_outputs"; run))
    }

    /// Sends a claim that takes no run. It only fails if the database would reject the claim of any
    /// run.
    pub(crate) fn claim_nothing(&self) -> Result<()> {
        self.query("claim runs", Transaction::execute, query!("tick/claim_nothing")).map(drop)
    }

    /// Claims a due run as a tick does, and undoes that. Fails if the run can't be claimed.
    pub(crate) fn try_claim(&self, holder: &Holder, wanted: &ClaimFilter, run: i64) -> Result<()> {
        let wanted = ClaimFilter { only_run: Some(run), ..wanted.clone() };
        let one = Claim {
            at_most: 1,
            free_threads: 1,
            bytes: 1,
            after: None,
            after_lane: None,
            after_definition: None,
            after_shares: Vec::new(),
            release_right: false,
            limits: true,
            locks: true,
        };
        self.transact("claim runs", |transaction| {
            transaction.request(async |client| claim(client, holder, &one, &wanted).await)?;
            transaction.undo()
        })
    }

    /// Tries to claim runs. Puts off those that can't be claimed, ends those that can't be read,
    /// and returns both. Fails and changes nothing if an error has another cause than these runs.
    ///
    /// - `runs`: the runs to try.
    /// - `put_off_for`: how long claims skip a run that is put off.
    /// - `slow`: the error of these runs, if their claims are known to take too long. Then they are
    ///   put off without a try.
    pub(crate) fn set_aside(
        &self,
        worker: &str,
        runs: Vec<i64>,
        put_off_for: Duration,
        slow: Option<&Error>,
    ) -> Result<Vec<SetAside>> {
        let (put_off_for, slow) = (put_off_for.as_secs_f64(), slow.map(Error::cause));
        self.transact("claim runs", |transaction| {
            let rows: Vec<SetAsideRow> = transaction
                .list(query!("tick/set_aside_unclaimable"; worker, runs, put_off_for, slow))?;
            let judged: Result<Vec<SetAside>> = rows.into_iter().map(SetAsideRow::judge).collect();
            if judged.is_err() {
                transaction.undo()?;
            }
            Ok(judged)
        })?
    }
}

/// The value of `after_definition` in claim.sql for a claim that takes neither runs of limited
/// definitions nor runs with locks of their own.
const NO_LIMITS_NO_LOCKS: i64 = -1;

/// Sends a claim. `read_claim` reads its answer.
pub(super) async fn claim(
    client: &Client,
    holder: &Holder,
    claim: &Claim,
    wanted: &ClaimFilter,
) -> PgResult<Vec<Row>> {
    let ClaimFilter { queues, excluded_jobs, excluded_kinds, excluded_runs, only_run, lease } =
        wanted;
    let after = claim.after.as_deref();
    let lane = claim.after_lane.as_ref();
    let Holder { worker, tick } = holder;
    let statement = query!(
        "tick/claim";
        worker,
        tick,
        at_most = claim.at_most,
        lease = lease.as_secs_f64(),
        queues,
        excluded_jobs,
        excluded_kinds,
        excluded_runs,
        after_queues = after.map(|lanes| column(lanes, |lane| lane.queue.as_str())),
        after_priorities = after.map(|lanes| column(lanes, |lane| lane.priority)),
        after_run_at = after.map(|lanes| column(lanes, |lane| lane.run_at)),
        after_ids = after.map(|lanes| column(lanes, |lane| lane.id)),
        bytes = claim.bytes,
        free_threads = claim.free_threads,
        lane_queue = lane.map(|(queue, _)| queue),
        lane_priority = lane.map(|(_, priority)| priority),
        after_definition = match (claim.limits, claim.locks) {
            (true, _) => Some(claim.after_definition.unwrap_or(0)),
            (false, true) => None,
            (false, false) => Some(NO_LIMITS_NO_LOCKS),
        },
        after_definitions = column(&claim.after_shares, |last| last.definition),
        after_shares = column(&claim.after_shares, |last| last.share.as_str()),
        only_run,
        releases_right = claim.release_right,
    );
    send(client, statement).await
}

/// Reads the answer to a claim.
pub(super) fn read_claim(rows: &[Row]) -> PgResult<ClaimResult> {
    let mut result = ClaimResult::default();
    let Some(first) = rows.first() else { return Ok(result) };
    let lane: Option<String> = first.try_get("cut_queue")?;
    result.last_lane = lane.zip(first.try_get("cut_priority")?);
    result.skips_runs = first.try_get("skips_runs")?;
    result.skipped = first.try_get("skipped_job")?;
    result.has_released = first.try_get("has_released")?;
    result.last_definition = first.try_get("last_definition")?;
    let definitions: Option<Vec<i64>> = first.try_get("last_definitions")?;
    let shares: Option<Vec<String>> = first.try_get("last_shares")?;
    let definitions_and_shares =
        definitions.unwrap_or_default().into_iter().zip(shares.unwrap_or_default());
    result.last_shares =
        definitions_and_shares.map(|(definition, share)| LastShare { definition, share }).collect();
    // If no run was claimed, the only row has no run.
    if first.try_get::<_, Option<i64>>("id")?.is_none() {
        return Ok(result);
    }
    // To send less, only one row of each job has the text of the action.
    let mut actions: HashMap<String, Arc<str>> = HashMap::new();
    for row in rows {
        if let Some(action) = row.try_get::<_, Option<&str>>("action")? {
            actions.insert(row.try_get("job_type")?, action.into());
        }
    }
    let read = |row| {
        let mut run = Claimed::from_row(row)?;
        if !row.try_get::<_, bool>("is_limited")? {
            run.position = Some(Position::from_row(row)?);
        }
        let kind: Option<JobKind> = row.try_get("kind")?;
        let action = actions.get(&run.job_type).cloned();
        run.definition = kind.zip(action).map(|(kind, action)| DefinedAction { kind, action });
        Ok(run)
    };
    result.claimed = rows.iter().map(read).collect::<PgResult<_>>()?;
    Ok(result)
}

#[cfg(test)]
impl Claimed {
    pub(crate) fn example(id: i64) -> Self {
        let job_type = "shell".to_owned();
        Self { id, job_type, attempt: 1, max_attempts: 1, ..Self::default() }
    }
}
