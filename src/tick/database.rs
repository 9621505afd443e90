//! Sends the machine's requests, and waits for the answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::Plan;
use super::request::{Answer, AnswerTimeout, Request};
use super::timing::Timing;
use crate::connect::Client;
use crate::health;
use crate::job::failure::Failure;
use crate::job::seen_ticks::SeenTicks;
use crate::store::{
    self, BatchSize, Claimed, FencingToken, Holder, Kind, StepResult, Store, Timeouts, bisect,
};
use crate::upkeep::{self, TimeSlice, UnclaimableSearch, Upkeep, UpkeepState};

/// The tick's session.
pub(super) struct Database {
    store: Store,
    /// The present search for runs that can't be claimed. It goes on from wake to wake.
    search: Option<UnclaimableSearch>,
    state: UpkeepState,
    /// How many outputs the next statement stores.
    output_batch: BatchSize,
    /// Ended runs. The blocked runs that wait for them are neither released nor cancelled yet.
    followed: Vec<i64>,
    /// How often in a row this tick could not release or cancel any of these blocked runs, because
    /// other sessions had locked them.
    undecided: usize,
}

/// How often a tick tries to release or cancel locked runs before it leaves them to the next wake.
const MOST_UNDECIDED: usize = 5;

impl Database {
    /// Returns a session over this connection. A signal sets `interrupted`, which ends a wait
    /// early.
    pub(super) fn over(client: Client, interrupted: Arc<AtomicBool>) -> Self {
        let store = Store::over(client, interrupted);
        Self {
            store,
            search: None,
            state: UpkeepState::default(),
            output_batch: BatchSize::default(),
            followed: Vec::new(),
            undecided: 0,
        }
    }

    /// Releases or cancels the blocked runs that wait for runs in `followed`. The next wake decides
    /// about those that this leaves.
    fn decide_followers(&mut self, timeouts: Timeouts) {
        if self.followed.is_empty() {
            return;
        }
        self.store.set_timeouts(timeouts);
        let until = Instant::now() + timeouts.statement;
        let mut slice = TimeSlice::new(Some(until), &mut self.state);
        let followed = Some(&mut self.followed);
        let decided = upkeep::release_followers(&self.store, &mut slice, followed);
        self.undecided = if slice.has_changed { 0 } else { self.undecided + 1 };
        if let Err(error) = &decided {
            log::debug!("the next wake decides about the blocked runs: {error}");
        }
        if decided.is_err() || self.undecided > MOST_UNDECIDED {
            self.followed.clear();
        }
    }

    /// Sends a request, and waits for the answer.
    pub(super) fn ask(
        &mut self,
        request: Request,
        timeout: AnswerTimeout,
        (plan, holder, timing): (&mut Plan, &Holder, &Timing),
        seen_ticks: &mut SeenTicks,
    ) -> Answer {
        let began = Instant::now();
        let timeouts = timing.timeouts_of(&request, timeout, began);
        let short = timeouts.short();
        // Followers of runs that ended in earlier requests: a step may then claim them, and after
        // `Leave`, only the wake of another tick would decide about them.
        if matches!(request, Request::Step { .. } | Request::Leave { .. }) {
            self.decide_followers(short);
        }
        self.store.set_timeouts(timeouts);
        let Self { store, search, state, output_batch, .. } = self;
        match request {
            Request::Wake(wake) => {
                let (concurrency, filter) = (plan.concurrency, &mut plan.filter);
                let mut upkeep =
                    Upkeep { store, holder, filter, concurrency, state, search, seen_ticks };
                let woken = upkeep.wake(wake);
                Answer::Wake { woken, is_searching: search.is_some() }
            }
            Request::Renew { claims, kept } => {
                Answer::Renew(store.heartbeat(&holder.worker, &claims, kept, timing.lease))
            }
            Request::Step { results, kept, unstarted, claim, skips_locked } => {
                let claim = claim.map(|claim| (claim, plan.filter.clone()));
                let has_claim = claim.is_some();
                let step =
                    store.finish_and_claim(holder, results, kept, unstarted, claim, skips_locked);
                Answer::Step(step.map(|(step, ended)| self.complete(step, ended, has_claim, short)))
            }
            Request::Store(outputs) => {
                let until = began + timeouts.statement;
                Answer::Store(store_output(store, &holder.worker, outputs, output_batch, until))
            }
            Request::Leave { slow } => {
                let result = store.leave(&holder.worker, &holder.tick);
                if let Some(slow) = slow {
                    store.note_slow(&holder.worker, slow);
                }
                Answer::Leave(result)
            }
            Request::Prune => {
                if let Some(keep) = plan.keep {
                    upkeep::prune(store, &holder.worker, keep);
                }
                Answer::Prune
            }
        }
    }

    /// Completes a step: reads the results for its claimed runs, and decides about the followers of
    /// the `ended` runs. If the step had a claim, the next request decides instead, because claimed
    /// runs start first.
    fn complete(
        &mut self,
        mut step: StepResult,
        ended: Vec<i64>,
        has_claim: bool,
        timeouts: Timeouts,
    ) -> StepResult {
        read_results(&mut self.store, &mut step.taken.claimed, timeouts);
        self.followed.extend(ended);
        if !has_claim {
            self.decide_followers(timeouts);
        }
        StepResult { follows: !self.followed.is_empty(), ..step }
    }

    /// Returns the number of due runs that this tick may claim, at most `most`.
    pub(super) fn count_due(&self, plan: &Plan, most: i64) -> store::Result<usize> {
        self.store.preview(&plan.worker, &plan.filter, most).map(|due| due.len())
    }

    /// Returns words for the due runs and schedules that the tick leaves alone on purpose, such as
    /// held runs. Counts at most `most` of each kind: for `most` or more, the words are "over
    /// `most - 1`".
    pub(super) fn left_alone(&self, plan: &Plan, most: i64) -> store::Result<String> {
        let counts = self.store.count_stopped(&plan.worker, &plan.filter, most)?;
        Ok(health::left_alone(&counts, most - 1))
    }

    /// Returns the number of transactions so far.
    pub(super) fn transactions(&self) -> u64 {
        self.store.transactions()
    }
}

/// Gives each claimed run the results of the runs that it waited for, if its job gets them. Reads
/// them for one claimed run at a time: one whose results can't be read must not delay the others.
/// Begins no statement after the time that one statement may take. If the results for a claimed run
/// are still unread then, it does not start, and its claim is released.
fn read_results(store: &mut Store, claimed: &mut [Claimed], timeouts: Timeouts) {
    store.set_timeouts(timeouts);
    let until = Instant::now() + timeouts.statement;
    for run in claimed.iter_mut().filter(|run| run.passes_results) {
        let results = match store.results(run.id) {
            Ok(results) => Ok(results),
            // The connection is lost, so the next statement would fail, too.
            Err(error) if error.kind == Kind::Lost => return,
            // A row may be the cause. Then another attempt would not help: `BadPayload` is
            // permanent.
            Err(error) if error.may_be_about_rows() => Err(Failure::BadPayload(error.to_string())),
            // The cause may be gone at the next attempt: `Spawn` is not permanent.
            Err(error) => Err(Failure::Spawn(error.for_log())),
        };
        run.results = Some(results);
        if Instant::now() >= until {
            return;
        }
    }
}

/// Stores what jobs have printed. Begins no statement after `until`. Returns the ids of the runs
/// whose output is still to be stored, without those whose output the database rejects: sending it
/// again would not help.
fn store_output(
    store: &Store,
    worker: &str,
    outputs: Vec<(FencingToken, String)>,
    batch: &mut BatchSize,
    until: Instant,
) -> store::Result<BTreeSet<i64>> {
    let mut unstored: BTreeSet<_> = outputs.iter().map(|(token, _)| token.id).collect();
    let rejected = bisect(
        outputs,
        batch,
        || Instant::now() < until,
        |part| {
            let stored = store.store_output(worker, part)?;
            unstored.retain(|id| !stored.contains(id));
            Ok(())
        },
    )?;
    unstored.retain(|id| !rejected.iter().any(|((token, _), _)| token.id == *id));
    Ok(unstored)
}
