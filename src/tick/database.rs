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
    search: Option<UnclaimableSearch>,
    state: UpkeepState,
    /// How many outputs the next statement stores.
    output_batch: BatchSize,
    /// Ended runs. The blocked runs that wait for them are neither released nor cancelled yet.
    followed: Vec<i64>,
    /// How many requests in a row could not release or cancel these blocked runs, because other
    /// sessions had locked them.
    undecided: usize,
}

/// How often a tick tries to release or cancel locked runs before it leaves them to the next wake.
const MOST_UNDECIDED: usize = 5;

impl Database {
    /// A signal sets `interrupted`, which ends a wait early.
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
        if matches!(request, Request::Step { .. } | Request::Leave { .. }) {
            self.decide_followers(short);
        }
        self.store.set_timeouts(timeouts);
        let Self { store, search, state, output_batch, .. } = self;
        match request {
            Request::Wake(wake) => {
                let Plan { filter, concurrency, .. } = plan;
                let concurrency = *concurrency;
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

    /// Completes a step: reads the results that its claimed runs get, and decides about the
    /// followers of the `ended` runs. With a claim (`has_claim`), the next request decides, because
    /// claimed runs start first.
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

    /// Returns the number of due runs that match, at most `most`.
    pub(super) fn count_due(&self, plan: &Plan, most: i64) -> store::Result<usize> {
        self.store.preview(&plan.worker, &plan.filter, most).map(|due| due.len())
    }

    /// Returns words for what the tick leaves alone on purpose, such as held runs.
    pub(super) fn left_alone(&self, plan: &Plan, most: i64) -> store::Result<String> {
        let counts = self.store.count_stopped(&plan.worker, &plan.filter, most)?;
        Ok(health::left_alone(&counts, most - 1))
    }

    pub(super) fn transactions(&self) -> u64 {
        self.store.transactions()
    }
}

/// Reads the results that these runs get, one run at a time: a run whose results can't be read must
/// not delay the others. No statement begins after the time limit of one. The claims of the runs
/// whose results are still unread then are released.
fn read_results(store: &mut Store, claimed: &mut [Claimed], timeouts: Timeouts) {
    store.set_timeouts(timeouts);
    let until = Instant::now() + timeouts.statement;
    for run in claimed.iter_mut().filter(|run| run.passes_results) {
        run.results = match store.results(run.id) {
            Err(error) if error.kind == Kind::Lost => return,
            Err(error) if error.may_be_about_rows() => {
                Some(Err(Failure::BadPayload(error.to_string())))
            }
            Err(error) => Some(Err(Failure::Spawn(error.for_log()))),
            Ok(results) => Some(Ok(results)),
        };
        if Instant::now() >= until {
            return;
        }
    }
}

/// Stores what jobs have printed; no statement begins after `until`. Returns the ids of the runs
/// whose output is still to be stored. A rejected output is dropped, so its run is not among them.
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
