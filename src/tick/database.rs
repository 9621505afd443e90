//! Sends the machine's requests. For renewals, results and claims the driver does not wait, so that
//! it sees signals and ended attempts meanwhile. It waits for the other answers, which are rare.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::Plan;
use super::request::{Answer, Request};
use super::timing::Timing;
use super::wake::wake;
use crate::connect::ConnectionThread;
use crate::store::{self, Holder, Kind, Limits, PendingStep, Renewed, Store};
use crate::text::plural;
use crate::upkeep::UnclaimableSearch;

/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: i64 = 1000;

enum Pending {
    Renew(store::Pending<Vec<Renewed>>),
    Step(PendingStep),
}

/// The tick's session.
pub(super) struct Database {
    store: Store,
    pending: Option<Pending>,
    search: Option<UnclaimableSearch>,
}

impl Database {
    /// A signal sets `interrupted`, which ends a wait early.
    pub(super) fn over(
        thread: ConnectionThread,
        limits: Limits,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let mut store = Store::over(thread, interrupted);
        store.limit(limits);
        Self { store, pending: None, search: None }
    }

    /// Sends a request. Returns the answer, or `None` if it comes later; then `wake` is called.
    pub(super) fn send(
        &mut self,
        request: Request,
        plan: &mut Plan,
        holder: &Holder,
        timing: &Timing,
        wake_up: impl Fn() + Send + Sync + 'static,
    ) -> Option<Answer> {
        let (store, worker, filter) = (&self.store, &holder.worker, &mut plan.filter);
        Some(match request {
            Request::Renew(claims) => {
                let answer = store.heartbeat(worker, &claims, timing.lease, wake_up);
                self.pending = Some(Pending::Renew(answer));
                return None;
            }
            Request::Step { results, claim, locked_runs } => {
                let claim = claim.map(|claim| (claim, filter.clone()));
                let answer = store.finish_and_claim(holder, results, claim, locked_runs, wake_up);
                self.pending = Some(Pending::Step(answer));
                return None;
            }
            Request::Wake(asked) => Answer::Wake(wake(store, holder, plan, timing, asked)),
            Request::Release(claims) => Answer::Release(store.release(worker, claims)),
            Request::Search(Some(error)) => {
                let begun = UnclaimableSearch::among_due(store, worker, filter, error);
                let result = begun.map(|search| self.search = Some(search));
                Answer::Search { is_done: self.search.is_none(), result }
            }
            Request::Search(None) => {
                let step = self.search.as_mut().map(|search| search.step(store, worker, filter));
                self.search.take_if(|search| search.is_done());
                Answer::Search { is_done: self.search.is_none(), result: step.unwrap_or(Ok(())) }
            }
            Request::NoteLost { claim, started_ago } => {
                let why = "its worker lost the lease and ended it";
                Answer::NoteLost(store.note_lost(worker, claim, why, started_ago))
            }
            Request::Leave => Answer::Leave(store.leave(worker, &holder.tick)),
            Request::Prune => {
                prune(store, plan);
                Answer::Prune
            }
        })
    }

    /// Returns the answer that `send` did not return, if it is there.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        match self.pending.take()? {
            Pending::Renew(pending) => match pending.poll() {
                Some(answer) => return Some(Answer::Renew(answer)),
                None => self.pending = Some(Pending::Renew(pending)),
            },
            Pending::Step(step) => match step.answer.poll() {
                Some(Ok(answer)) => return Some(Answer::Step(Ok(answer))),
                Some(Err(error)) => {
                    let is_lost = error.kind == Kind::Lost;
                    let claims = if is_lost { step.abandon() } else { Vec::new() };
                    return Some(Answer::Step(Err((error, claims))));
                }
                None => self.pending = Some(Pending::Step(step)),
            },
        }
        None
    }

    /// Returns when the server counts as silent.
    pub(super) fn until(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| match pending {
            Pending::Renew(pending) => pending.until,
            Pending::Step(step) => step.answer.until,
        })
    }

    /// Sets the limits of later statements, and waits for the answer in flight until `until`.
    pub(super) fn shorten(&mut self, limits: Limits, until: Instant) {
        self.store.limit(limits);
        let pending = self.pending.as_mut().map(|pending| match pending {
            Pending::Renew(pending) => &mut pending.until,
            Pending::Step(step) => &mut step.answer.until,
        });
        if let Some(end) = pending {
            *end = until.min(*end);
        }
    }

    pub(super) fn transactions(&self) -> u64 {
        self.store.transactions()
    }
}

/// Deletes old runs. A failure is not a failure of the tick.
fn prune(store: &Store, plan: &Plan) {
    let mut left = PRUNED_AT_ONCE;
    for old in &plan.prune {
        match store.prune(*old, None, left) {
            Ok(pruned) => left -= pruned.len() as i64,
            Err(error) => {
                log::warn!("old runs are not deleted: {}", error.for_log());
                return;
            }
        }
    }
    if left < PRUNED_AT_ONCE {
        log::info!("{} pruned", plural::of(PRUNED_AT_ONCE - left, "old run"));
    }
}
