//! Sends the machine's requests. For renewals, results and claims the driver does not wait, so that
//! it sees signals and ended attempts meanwhile. It waits for the other answers, which are rare.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Instant;

use log::Level;

use super::request::{Answer, Request, Wake, Woken};
use super::timing::Timing;
use super::{Plan, id};
use crate::connect::ConnectionThread;
use crate::store::{self, Cause, Holder, Limits, PendingStep, Renewed, Store, Token};
use crate::text::plural;
use crate::upkeep::{self, UnclaimableSearch};

/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: i64 = 1000;

enum PendingRequest {
    Renew(store::Pending<Vec<Renewed>>),
    Step(PendingStep),
}

impl PendingRequest {
    /// When the server counts as silent.
    fn until(&mut self) -> &mut Instant {
        match self {
            Self::Renew(pending) => &mut pending.until,
            Self::Step(step) => &mut step.answer.until,
        }
    }
}

/// The tick's session.
pub(super) struct Database {
    store: Store,
    pending: Option<PendingRequest>,
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
    /// `new_output` returns what the job of a claim has printed, if there is more than before.
    pub(super) fn send(
        &mut self,
        request: Request,
        plan: &mut Plan,
        holder: &Holder,
        timing: &Timing,
        new_output: impl Fn(&Token) -> Option<String>,
        wake_up: impl Fn() + Send + Sync + 'static,
    ) -> Option<Answer> {
        let (store, worker, filter) = (&self.store, &holder.worker, &mut plan.filter);
        Some(match request {
            Request::Renew(claims) => {
                let outputs = claims.iter().map(new_output).collect();
                let answer = store.heartbeat(worker, &claims, outputs, timing.lease, wake_up);
                self.pending = Some(PendingRequest::Renew(answer));
                return None;
            }
            Request::Step { results, claim, locked_runs } => {
                let claim = claim.map(|claim| (claim, filter.clone()));
                let answer = store.finish_and_claim(holder, results, claim, locked_runs, wake_up);
                self.pending = Some(PendingRequest::Step(answer));
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
            Request::Leave => Answer::Leave(store.leave(worker, &holder.tick)),
            Request::Prune => {
                prune(store, plan);
                Answer::Prune
            }
        })
    }

    /// Returns the answer that `send` did not return, if it is there.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        let answer = match self.pending.as_ref()? {
            PendingRequest::Renew(pending) => Answer::Renew(pending.poll()?),
            PendingRequest::Step(step) => Answer::Step(step.poll()?),
        };
        self.pending = None;
        Some(answer)
    }

    /// Returns the deadline of the pending answer. After it, the server counts as silent.
    pub(super) fn until(&mut self) -> Option<Instant> {
        self.pending.as_mut().map(|pending| *pending.until())
    }

    /// Sets the limits of later statements, and waits for the answer in flight until `until`.
    pub(super) fn shorten(&mut self, limits: Limits, until: Instant) {
        self.store.limit(limits);
        if let Some(end) = self.pending.as_mut().map(PendingRequest::until) {
            *end = until.min(*end);
        }
    }

    /// Returns the number of due runs that match, at most `most`.
    pub(super) fn count_due(&self, plan: &Plan, most: i64) -> store::Result<usize> {
        self.store.preview(&plan.worker, &plan.filter, most).map(|due| due.len())
    }

    pub(super) fn transactions(&self) -> u64 {
        self.store.transactions()
    }
}

/// Takes or renews the claim right, fires schedules, recovers lost runs and ends expired ones.
fn wake(
    store: &Store,
    holder: &Holder,
    plan: &Plan,
    timing: &Timing,
    asked: Wake,
) -> store::Result<Woken> {
    let has_time = || asked.until.is_none_or(|until| Instant::now() < until);
    let report = || store.wake(holder, &plan.filter.queues, timing.right, asked.keeps_right);
    let mut seen = report()?;
    if let Some(dead) = seen.claiming_tick.as_deref().filter(|tick| id::is_dead(tick)) {
        store.leave(&holder.worker, dead)?;
        seen = report()?;
    }
    if seen.fires {
        upkeep::fire(store, has_time)?;
    }
    if seen.lost {
        upkeep::recover(store, has_time)?;
    }
    if seen.expired {
        upkeep::expire(store, has_time)?;
    }
    if seen.fires || seen.lost {
        // Fired or recovered runs may be due.
        seen = report()?;
    }
    let may_claim = seen.claiming_tick.as_ref() == Some(&holder.tick);
    let mut held_by_others = 0;
    let mut why = None;
    if may_claim {
        held_by_others = store.held_by_others(&holder.worker, &asked.own_claims)?;
        let held = held_by_others + asked.own_claims.len();
        let is_full = held_by_others > 0 && held >= plan.concurrency;
        let text = "other ticks of this worker use all of --concurrency";
        why = is_full.then(|| (Level::Info, text.to_owned()));
    } else if seen.claiming_tick.is_some() {
        why = Some(why_not(&seen.claiming_queues, &plan.filter.queues));
    }
    if let Some((level, why)) = why {
        log_why_due_runs_wait(store, plan, level, &why)?;
    }
    let other_claims = !may_claim && seen.claiming_tick.is_some();
    Ok(Woken { may_claim, other_claims, held_by_others, limits: seen.limits })
}

/// Returns why this tick claims nothing from its `own` queues: the tick that has the claim right
/// claims from the queues `claiming` (empty: from all).
fn why_not(claiming: &[String], own: &[String]) -> (Level, String) {
    let is_served = |queue: &String| claiming.contains(queue);
    if claiming.is_empty() || !own.is_empty() && own.iter().all(is_served) {
        return (Level::Info, "another tick of this worker claims them".to_owned());
    }
    let queues = claiming.join(",");
    (Level::Warn, format!("another tick of this worker claims only from queue {queues}"))
}

/// Logs once why due runs wait, and the remedy. `level` is below a warning if the runs will soon be
/// claimed anyway, because cron mails warnings.
fn log_why_due_runs_wait(store: &Store, plan: &Plan, level: Level, why: &str) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    if log::log_enabled!(level)
        && !LOGGED.is_completed()
        && !store.preview(&plan.worker, &plan.filter, 1)?.is_empty()
    {
        let worker = plan.worker.escape_debug();
        let remedy = "give this tick its own --worker";
        LOGGED.call_once(|| {
            log::log!(level, "worker {worker}: runs are due, but {why}; {remedy}");
        });
    }
    Ok(())
}

/// Deletes old runs. A failure is not a failure of the tick.
fn prune(store: &Store, plan: &Plan) {
    let cause = Cause { host_user: plan.worker.clone(), reason: None };
    let mut left = PRUNED_AT_ONCE;
    for old in &plan.prune {
        match store.prune(*old, None, left, &cause, None) {
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
