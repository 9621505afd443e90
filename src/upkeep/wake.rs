//! The wake of a tick, which is repeated every few seconds. First, it takes or renews its worker's
//! claim right. Then it works for the runs of all workers: fires schedules, records stored results,
//! recovers lost runs, cancels expired runs, and releases blocked runs.

use std::sync::Once;
use std::time::{Duration, Instant};

use log::Level;

use super::{
    FailedClaim, TimeSlice, UnclaimableSearch, UpkeepState, expire, fire, record_stored_results,
    recover, release_followers, tick_id,
};
use crate::job::seen_ticks::SeenTicks;
use crate::store::{self, ClaimFilter, FencingToken, Holder, Store, WakeResult};

/// The request of a tick that wakes.
#[derive(Debug)]
pub(crate) struct Wake {
    /// Whether to take the claim right even if no run waits.
    pub(crate) keeps_right: bool,
    /// How long the claim right lasts if it is not renewed.
    pub(crate) right_lasts: Duration,
    /// The claims of this tick. The wake leaves them out when it counts the runs of the worker's
    /// other ticks. Their number would not be enough, because some may be lost.
    pub(crate) own_claims: Vec<FencingToken>,
    /// The wake begins no transaction after this time, because other statements have their turn.
    pub(crate) until: Instant,
    /// A claim that failed: begin a search for runs that can't be claimed.
    pub(crate) failed_claim: Option<FailedClaim>,
    /// Record that the database took this long for an answer; `None`: it was not slow.
    pub(crate) slow: Option<Duration>,
}

/// What a tick learns when it wakes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Woken {
    /// Whether the tick has its worker's claim right, or claims only one run.
    pub(crate) may_claim: bool,
    /// Whether another tick of the worker has the claim right.
    pub(crate) other_claims: bool,
    /// The runs that other ticks of the worker hold; 0 without the claim right.
    pub(crate) held_by_others: usize,
    /// Whether some definition limits how many of its runs may run at once; `false` without the
    /// claim right.
    pub(crate) limits: bool,
    /// Whether this wake had no time to fire, recover or expire everything that is due, so that the
    /// next wake can do more.
    pub(crate) has_more: bool,
    /// How long the database took to answer the request for the claim right.
    pub(crate) took: Duration,
    /// How long the database took for the slowest answer of this wake.
    pub(crate) longest: Duration,
}

/// The session of a tick that wakes.
pub(crate) struct Upkeep<'a> {
    pub(crate) store: &'a Store,
    pub(crate) holder: &'a Holder,
    pub(crate) filter: &'a mut ClaimFilter,
    /// The maximum number of runs that the worker executes at a time.
    pub(crate) concurrency: usize,
    pub(crate) state: &'a mut UpkeepState,
    pub(crate) search: &'a mut Option<UnclaimableSearch>,
    pub(crate) seen_ticks: &'a mut SeenTicks,
}

impl Upkeep<'_> {
    /// Takes or renews the claim right. Then does the work that it finds for the runs of all
    /// workers, and goes on with the search for due runs that can't be claimed.
    pub(crate) fn wake(&mut self, asked: Wake) -> store::Result<Woken> {
        if self.filter.only_run.is_some() {
            return self.wake_for_one_run(asked);
        }
        let Self { store, holder, .. } = *self;
        let mut slice = TimeSlice::new(Some(asked.until), self.state);
        let (filter, own) = (&*self.filter, &asked.own_claims);
        let Wake { right_lasts, keeps_right, .. } = asked;
        let mut take_right =
            || store.wake(holder, filter, right_lasts, keeps_right, own, self.seen_ticks);
        // Forget the answers before this wake.
        store.take_longest();
        let began = Instant::now();
        let (mut seen, mut before) = take_right()?;
        let took = began.elapsed();
        if let Some(slow) = asked.slow {
            store.note_slow(&holder.worker, slow);
        }
        if let Some(dead) = seen.claiming_tick.as_deref().filter(|tick| tick_id::is_dead(tick)) {
            // The process of that tick has crashed, so take its right.
            store.leave(&holder.worker, dead)?;
            (seen, before) = take_right()?;
        }
        work(store, &mut slice, &seen)?;
        if slice.has_changed && seen.claiming_tick.is_none() {
            // No tick got the right, because no run was pending. Now fired or recovered runs may
            // be.
            (seen, before) = take_right()?;
        }
        let has_more = slice.is_cut;
        let may_claim = seen.claiming_tick.as_ref() == Some(&holder.tick);
        let other_claims = !may_claim && seen.claiming_tick.is_some();
        let held_by_others = if may_claim { before.held() } else { 0 };
        if held_by_others > 0 && held_by_others + own.len() >= self.concurrency {
            let why = "runs of other ticks of this worker use all of --concurrency; those of \
                crashed ticks do so until their leases end";
            self.log_why_due_runs_wait(Level::Info, why)?;
        } else if other_claims {
            let (level, why) = why_unclaimed(&seen.claiming_queues, &self.filter.queues);
            self.log_why_due_runs_wait(level, &why)?;
        }
        self.search_unclaimable(asked.failed_claim, || Instant::now() < asked.until)?;
        Ok(Woken {
            may_claim,
            other_claims,
            held_by_others,
            limits: may_claim && before.limits,
            has_more,
            took,
            longest: store.take_longest(),
        })
    }

    /// Wakes for a tick that claims only one run. Does not take the claim right, which such a claim
    /// does not need, and records no tick, because it is not a sign that the worker serves its
    /// queues.
    fn wake_for_one_run(&mut self, asked: Wake) -> store::Result<Woken> {
        let before =
            self.store.check_before_claim(self.holder, &asked.own_claims, self.seen_ticks)?;
        // This tick has nothing else to do, so the search goes on to its end.
        self.search_unclaimable(asked.failed_claim, || true)?;
        Ok(Woken { may_claim: true, limits: before.limits, ..Woken::default() })
    }

    /// Begins a search for due runs that can't be claimed, if a claim has `failed`. Continues this
    /// search, or an earlier one, by at least one step, and as long as `has_time` returns true.
    fn search_unclaimable(
        &mut self,
        failed: Option<FailedClaim>,
        has_time: impl Fn() -> bool,
    ) -> store::Result<()> {
        let holder = self.holder;
        if let Some(failed) = failed {
            let search = UnclaimableSearch::start(self.store, holder, self.filter, failed)?;
            *self.search = Some(search);
        }
        while let Some(search) = self.search.as_mut() {
            let result = search.step(self.store, holder, self.filter);
            // Drop a search that is done, even if its last step failed.
            self.search.take_if(|search| search.is_done());
            result?;
            if !has_time() {
                break;
            }
        }
        Ok(())
    }

    /// Logs once why runs wait, and the remedy, if runs are due that this tick may claim. `level`
    /// is below a warning if the runs will soon be claimed anyway, because cron mails warnings.
    fn log_why_due_runs_wait(&self, level: Level, why: &str) -> store::Result<()> {
        static LOGGED: Once = Once::new();
        let worker = &self.holder.worker;
        if log::log_enabled!(level)
            && !LOGGED.is_completed()
            && !self.store.preview(worker, self.filter, 1)?.is_empty()
        {
            let worker = worker.escape_debug();
            let remedy = "give this tick its own --worker";
            LOGGED.call_once(|| {
                log::log!(level, "worker {worker}: runs are due, but {why}; {remedy}");
            });
        }
        Ok(())
    }
}

/// Does the work that a wake has found, for the runs of all workers, as long as there is time.
fn work(store: &Store, slice: &mut TimeSlice<'_>, found: &WakeResult) -> store::Result<()> {
    if found.fires && slice.try_begin() {
        fire(store, slice)?;
    }
    if found.locked && slice.try_begin() {
        record_stored_results(store, slice)?;
    }
    if found.lost && slice.try_begin() {
        recover(store, slice)?;
    }
    if found.expired && slice.try_begin() {
        expire(store, slice)?;
    }
    // The changes before may have ended runs for which others wait.
    if (found.followers || slice.has_changed) && slice.try_begin() {
        release_followers(store, slice, None)?;
    }
    Ok(())
}

/// Returns why this tick claims nothing, and the level to log that: another tick of the worker has
/// the claim right. It is worth a warning if that tick does not serve all queues of this one.
/// `claiming` are the queues of that tick, and `own` those of this one; empty: all queues.
fn why_unclaimed(claiming: &[String], own: &[String]) -> (Level, String) {
    let serves_all = claiming.is_empty();
    let serves_own = !own.is_empty() && own.iter().all(|queue| claiming.contains(queue));
    if serves_all || serves_own {
        return (Level::Info, "another tick of this worker claims them".to_owned());
    }
    let queues = claiming.join(",");
    (Level::Warn, format!("another tick of this worker claims only from queue {queues}"))
}
