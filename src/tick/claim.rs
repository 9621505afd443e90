//! What a tick claims, and when; hands it to the pool, and gives back what can't start.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use log::Level;

use super::exchange::CLAIM_PAUSE;
use super::pool::Task;
use super::{Look, Phase, Tick, WhenIdle, pace, record};
use crate::execute::Stop;
use crate::model::{Failure, Why};
use crate::payload::PAYLOAD_LIMIT;
use crate::store::{self, Claim, Claimed, Taken};

/// How often a lingering tick with nothing to do looks: a run starts about half of this after its
/// enqueue, for 15 short transactions a second.
const LINGER_POLL: Duration = Duration::from_millis(65);
/// How often a tick looks again that has passed over a limited definition, and how long it does not end for that.
const DEFINITION_POLL: Duration = Duration::from_millis(30);
const DEFINITION_PATIENCE: Duration = Duration::from_secs(2);
/// How often it looks whether another tick of its worker has given the claim right back.
const RIGHT_POLL: Duration = Duration::from_secs(1);

impl Tick {
    /// What to claim now, when so many runs are `held`.
    pub(super) fn next_claim(&mut self, held: usize) -> store::Result<Option<Claim>> {
        match self.phase {
            Phase::Working if self.refused.is_some() => return Ok(None),
            Phase::Working => {}
            Phase::Draining => return self.give_right_back().map(|()| None),
            // Last, because the database may be silent: the jobs are to be told in time.
            Phase::Stopping(_) | Phase::Ending(_) => return Ok(None),
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
        if wanted == 0 || self.results.bytes() > record::BYTES_AT_ONCE {
            self.look = Look::AfterRun;
            return Ok(None);
        }
        if !self.may_claim {
            self.wake()?;
        }
        let room = if self.may_claim { self.room(held) } else { 0 };
        let wanted = wanted.min(room);
        if wanted == 0 {
            if self.may_claim {
                let why = "other ticks of this worker run as many as --concurrency allows";
                self.tell_why_due_runs_wait(Level::Info, why)?;
            }
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
            behind: self.lanes.behind(),
            limits: self.limits,
        }))
    }

    /// Updates where and when to look next, after a claim that was sent at `sent` and took `took`.
    pub(super) fn learn(&mut self, claim: &Claim, sent: Instant, took: Duration, taken: &Taken) {
        self.lanes.learn(claim, sent, took, taken);
        let short = claim.is_short(&taken.claimed);
        self.pace.observe_claim(&taken.claimed, short);
        self.may_claim = !(short && claim.give_back);
        let holds = !taken.claimed.is_empty() || self.leases.held() > 0;
        let waits = self.waits_for_definition(short && taken.passed_over);
        self.look = match (short, self.plan.when_idle) {
            (false, _) => Look::Now,
            (true, _) if waits => Look::At(Instant::now() + DEFINITION_POLL),
            (true, _) if claim.after.is_some() => self.lanes.after_short(holds),
            (true, _) if !self.lanes.brought_all() => Look::Now,
            (true, WhenIdle::Linger) => Look::At(Instant::now() + LINGER_POLL),
            (true, WhenIdle::Exit) => Look::AfterRun,
        };
    }

    /// Whether to wait for whoever has locked a limited definition: another claim soon lets go of it, a person may not.
    fn waits_for_definition(&mut self, passed_over: bool) -> bool {
        let since = passed_over.then(|| self.passed_over_since.unwrap_or_else(Instant::now));
        self.passed_over_since = since;
        since.is_some_and(|since| since.elapsed() < DEFINITION_PATIENCE)
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
        let mut tasks = Vec::with_capacity(claimed.len());
        for run in claimed {
            log::debug!("run {} {} attempt {}/{}: claimed", run.id, run.job_type, run.attempt, run.max_attempts);
            let stop = Arc::new(Stop::new(sent + self.timing.fence, self.timing.lost_grace));
            if run.cancel_asked {
                stop.ask(Why::Cancelled);
            }
            let expires = sent + self.timing.lease;
            self.leases.hold(&run, Arc::clone(&stop), expires);
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
        if let Some(expires) = self.leases.let_go(run) {
            self.leases.give_back([run.token()], expires);
        }
    }

    /// Gives back claims that were not started, and those that somebody has locked later. They are not executed,
    /// whatever the answer is.
    pub(super) fn release(&mut self) -> store::Result<()> {
        self.leases.forget_expired(self.timing.result_kept);
        let unstarted = self.leases.unstarted();
        let Some(store) = self.connection.store.as_ref().filter(|_| !unstarted.is_empty()) else { return Ok(()) };
        let all = unstarted.len();
        let locked = store.release(&self.holder.worker, unstarted)?;
        if locked.len() < all && self.look == Look::AfterRun {
            self.look = Look::Now;
        }
        self.leases.given_back(&locked);
        Ok(())
    }

    pub(super) fn give_right_back(&mut self) -> store::Result<()> {
        if let Some(store) = self.connection.store.as_ref().filter(|_| self.may_claim) {
            store.leave(&self.holder.worker, &self.holder.tick)?;
            self.may_claim = false;
        }
        Ok(())
    }
}
