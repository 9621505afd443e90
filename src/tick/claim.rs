//! What a tick does when it looks for work: takes the claim right, fires schedules, recovers lost
//! leases, says what to claim, and gives back what it does not need. None of it is done for good before the
//! database has said so.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use super::exchange::CLAIM_PAUSE;
use super::pool::Task;
use super::{HeldRun, Look, Phase, Tick, Unstarted, WhenIdle, id, lease, pace, record};
use crate::execute::Stop;
use crate::model::{Failure, Status};
use crate::payload::PAYLOAD_LIMIT;
use crate::store::{self, Claim, Claimed, DueSchedule, Fire, Kind, Store};
use crate::{fires, verdict};

/// How often a lingering tick with nothing to do looks: a run starts about half of this after its
/// enqueue, for 15 short transactions a second.
const LINGER_POLL: Duration = Duration::from_millis(65);
/// How often it looks whether another tick of its worker has given the claim right back.
const RIGHT_POLL: Duration = Duration::from_secs(1);
/// Lost leases recovered per statement.
const RECOVERED_AT_ONCE: usize = 500;

impl Tick {
    /// Looks what there is to do; takes or renews the claim right.
    pub(super) fn wake(&mut self) -> store::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let working = self.phase == Phase::Working;
        let keep = working && (self.plan.when_idle == WhenIdle::Linger || self.may_claim);
        let sent = Instant::now();
        let wake = || store.wake(&self.holder, &self.plan.wanted.queues, self.timing.right, keep);
        let mut seen = wake()?;
        if let Some(dead) = seen.claiming_tick.as_deref().filter(|tick| id::is_dead(tick)) {
            store.leave(&self.holder.worker, dead)?;
            seen = wake()?;
        }
        if seen.fires {
            self.fire()?;
            // What was fired may be due.
            seen = wake()?;
        }
        // The right is fresh; leases are renewed at their own time.
        if self.held.is_empty() {
            self.next_beat = sent + self.timing.heartbeat;
        }
        self.limits = seen.limits;
        let gained = !self.may_claim;
        self.may_claim = seen.claiming_tick.as_ref() == Some(&self.holder.tick);
        if seen.claiming_tick.is_some() {
            self.warn_of_other_queues(&seen.claiming_queues);
        }
        if self.may_claim && (gained || self.others > 0) {
            self.others = store.held(&self.holder.worker)?.saturating_sub(self.held.len());
        }
        if seen.lost {
            self.recover()?;
        }
        Ok(())
    }

    /// Says it, once, when the tick of this worker that may claim leaves out what this one is for: nobody takes that
    /// as long as both share a name.
    fn warn_of_other_queues(&self, claiming: &[String]) {
        static SAID: Once = Once::new();
        let own = &self.plan.wanted.queues;
        let is_served = |queue: &String| claiming.contains(queue);
        if claiming.is_empty() || !own.is_empty() && own.iter().all(is_served) {
            return;
        }
        SAID.call_once(|| {
            let worker = self.plan.worker.escape_debug();
            let waits = if own.is_empty() { "the others wait".to_owned() } else { format!("{} waits", own.join(",")) };
            let claiming = claiming.join(",");
            log::warn!("another tick of worker {worker} claims, from queue {claiming}, and {waits} for its end; give this tick a --worker of its own");
        });
    }

    /// Fires the schedules whose time has come.
    fn fire(&self) -> store::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        loop {
            let due = store.due_schedules()?;
            let (fires, broken) = fires::plan(&due);
            broken.iter().for_each(|why| log::error!("{why}"));
            let mut moved = false;
            for fires in fires::shares(fires) {
                moved |= fire_share(store, &due, fires)?;
            }
            // Where none could be moved on, another tick or a person has them.
            if !moved || due.len() < usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0) {
                return Ok(());
            }
        }
    }

    /// Takes runs whose lease ran out away from their holders. A run whose every start kills its
    /// worker ends here, dead.
    fn recover(&self) -> store::Result<()> {
        const WHAT: &str = "lease expired: its worker died, hung or lost the database";
        let Some(store) = &self.store else { return Ok(()) };
        loop {
            let expired = store.expired(RECOVERED_AT_ONCE)?;
            let waits: Vec<_> = expired
                .iter()
                .map(|run| (run.id, run.attempt, verdict::wait_after(run.attempt, &run.backoff, rand::random())))
                .collect();
            let recovered = match store.recover(&waits, WHAT) {
                // One row that is refused must not keep the others.
                Err(error) if error.kind == Kind::Data => {
                    waits.iter().flat_map(|wait| recover_alone(store, wait, WHAT)).collect()
                }
                recovered => recovered?,
            };
            for (id, status) in &recovered {
                let found = expired.iter().zip(&waits).find(|(run, _)| run.id == *id);
                if let Some((run, (.., wait))) = found {
                    record::log_recovered(run, *status, *wait);
                }
            }
            // Where none could be taken, another tick is at it.
            if recovered.is_empty() || expired.len() < RECOVERED_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// What to claim now, when so many runs are `held`.
    pub(super) fn next_claim(&mut self, held: usize) -> store::Result<Option<Claim>> {
        if self.phase != Phase::Working {
            return self.give_right_back().map(|()| None);
        }
        let now = Instant::now();
        let is_due = match self.look {
            Look::Now => true,
            Look::At(instant) => now >= instant,
            Look::AfterRun => false,
        };
        if !is_due || now < self.claims_from {
            return Ok(None);
        }
        let lingers = self.plan.when_idle == WhenIdle::Linger;
        let wanted = self.pace.wanted(self.pool.size(), held).min(self.plan.limit - self.taken);
        // What was printed is to be recorded before more is.
        if wanted == 0 || self.ended_bytes() > record::BYTES_AT_ONCE {
            self.look = Look::AfterRun;
            return Ok(None);
        }
        if !self.may_claim {
            self.wake()?;
        }
        let wanted = if self.may_claim { wanted.min(self.room(held)) } else { 0 };
        if wanted == 0 {
            self.look = if lingers { Look::At(Instant::now() + RIGHT_POLL) } else { Look::AfterRun };
            return if lingers { Ok(None) } else { self.give_right_back().map(|()| None) };
        }
        let after = self.lanes.next(Instant::now());
        Ok(Some(Claim {
            wanted: self.plan.wanted.clone(),
            at_most: i32::try_from(wanted).unwrap_or(i32::MAX),
            at_once: i32::try_from(self.pool.size().saturating_sub(held)).unwrap_or(i32::MAX),
            bytes: i64::try_from(pace::BYTES_AHEAD + self.pool.size() * PAYLOAD_LIMIT).unwrap_or(i64::MAX),
            // Only who has looked everywhere knows that nothing is due.
            give_back: !lingers && after.is_none(),
            after,
            limits: self.limits,
        }))
    }

    /// When and where to look next, after a claim that was sent at that time and took so long.
    pub(super) fn learn(&mut self, claim: &Claim, sent: Instant, took: Duration, claimed: &[Claimed]) {
        self.lanes.learn(claim, sent, took, claimed);
        let short = claim.is_short(claimed);
        self.may_claim = !(short && claim.give_back);
        let holds = !claimed.is_empty() || !self.held.is_empty();
        self.look = match (short, self.plan.when_idle) {
            (false, _) => Look::Now,
            (true, _) if claim.after.is_some() => self.lanes.after_short(holds),
            (true, WhenIdle::Linger) => Look::At(Instant::now() + LINGER_POLL),
            (true, WhenIdle::Exit) => Look::AfterRun,
        };
    }

    /// How many runs the worker may hold beyond those that this tick has `held`. A tick alone may hold more than its
    /// concurrency, because very short runs are claimed a blink ahead.
    fn room(&self, held: usize) -> usize {
        match self.others {
            0 => usize::MAX,
            others => self.pool.size().saturating_sub(held + others),
        }
    }

    /// Hands claimed runs to the pool. `claimed` was asked for at `sent`.
    pub(super) fn start(&mut self, claimed: Vec<Claimed>, sent: Instant) {
        if !claimed.is_empty() {
            self.pace.observe_claim(claimed.iter().any(|run| run.attempt >= run.max_attempts));
        }
        let mut tasks = Vec::with_capacity(claimed.len());
        for run in claimed {
            log::debug!("run {} {} attempt {}/{}: claimed", run.id, run.job_type, run.attempt, run.max_attempts);
            let stop = Arc::new(Stop::new(sent + self.timing.fence, self.timing.lost_grace));
            let expires = sent + self.timing.lease;
            self.held.insert(run.id, HeldRun { attempt: run.attempt, stop: Arc::clone(&stop), expires });
            // Counted from here: however long the claim took, a free thread gets its chance.
            tasks.push(Task { run, stop, submitted: Instant::now() });
        }
        self.taken += tasks.len();
        if let Err(error) = self.pool.submit(tasks) {
            self.failure.get_or_insert(anyhow::Error::new(error).context("cannot start a thread"));
            self.end_all();
        }
    }

    /// Takes back what no thread was free for in time: the runs were short before, and are not any more.
    pub(super) fn take_back_waiting(&mut self) {
        let late = self.pool.waiting_for().is_some_and(|waited| waited >= self.pace.patience());
        if !late && !self.is_stopping() {
            return;
        }
        for task in self.pool.take_back() {
            self.take_back(&task.run);
        }
    }

    /// Takes back what this host can't start just now. It says so once: cron mails what is logged.
    pub(super) fn take_back_unstartable(&mut self, run: &Claimed, why: &Failure) {
        static SAID: Once = Once::new();
        SAID.call_once(|| log::warn!("{}: {why}; given back", record::subject(run)));
        self.claims_from = Instant::now() + CLAIM_PAUSE;
        self.take_back(run);
    }

    /// Takes back a claim that was not started.
    pub(super) fn take_back(&mut self, run: &Claimed) {
        self.pace.reset();
        self.lanes.forget();
        self.taken -= 1;
        if let Some(held) = lease::give_up(&mut self.held, run) {
            self.unstarted.push(Unstarted { claim: run.token(), expires: held.expires });
        }
    }

    /// Gives back claims that were not started, and those that somebody has locked later. They are not executed,
    /// whatever the answer is.
    pub(super) fn release(&mut self) -> store::Result<()> {
        let now = Instant::now();
        self.unstarted.retain(|one| now < one.expires);
        let Some(store) = self.store.as_ref().filter(|_| !self.unstarted.is_empty()) else { return Ok(()) };
        let unstarted = self.unstarted.iter().map(|one| one.claim).collect();
        let locked = store.release(&self.holder.worker, unstarted)?;
        if locked.len() < self.unstarted.len() && self.look == Look::AfterRun {
            self.look = Look::Now;
        }
        self.unstarted.retain(|one| locked.contains(&one.claim.id));
        Ok(())
    }

    pub(super) fn give_right_back(&mut self) -> store::Result<()> {
        if let Some(store) = self.store.as_ref().filter(|_| self.may_claim) {
            store.leave(&self.holder.worker, &self.holder.tick)?;
            self.may_claim = false;
        }
        Ok(())
    }
}

/// Recovers one run. That it is refused is said once; the next look will meet it again.
fn recover_alone(store: &Store, wait: &(i64, i32, Duration), what: &'static str) -> Vec<(i64, Status)> {
    static SAID: Once = Once::new();
    store.recover(&[*wait], what).unwrap_or_else(|error| {
        SAID.call_once(|| log::error!("run {}: {error}", wait.0));
        Vec::new()
    })
}

/// Fires some of those that are `due`, and says whether any was moved on. Where one has runs that can't be stored,
/// it is put off and the others are fired.
fn fire_share(store: &Store, due: &[DueSchedule], fires: Vec<Fire>) -> store::Result<bool> {
    let find = |id| due.iter().find(|one| one.id == id);
    let fired = match (store.fire(fires.clone()), &fires[..]) {
        (Err(error), [refused]) if error.kind == Kind::Data => {
            let Some(refused) = find(refused.id) else { return Err(error) };
            log::error!("schedule of `{}` does not fire: {error}", refused.name);
            store.fire(vec![fires::put_off(refused)])?
        }
        (Err(error), _) if error.kind == Kind::Data => {
            let mut alone = fires.into_iter().map(|fire| fire_share(store, due, vec![fire]));
            return alone.try_fold(false, |moved, more| Ok(moved | more?));
        }
        (fired, _) => fired?,
    };
    // One that is put off, or gets its first time, has none.
    let had_times = |fire: &&Fire| fire.missed > 0 || !fire.times.is_empty();
    let with_times: Vec<_> = fires.iter().filter(had_times).map(|fire| fire.id).collect();
    for (id, runs) in &fired {
        let name = find(*id).map_or("", |one| one.name.as_str());
        match runs.len() {
            0 if !with_times.contains(id) => {}
            0 => log::info!("schedule {name}: not fired, its last run is not finished or its time was missed"),
            _ => log::info!(
                "schedule {name}: fired, {}",
                runs.iter().map(|run| format!("run {run}")).collect::<Vec<_>>().join(", ")
            ),
        }
    }
    Ok(!fired.is_empty())
}
