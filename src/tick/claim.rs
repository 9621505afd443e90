//! Decides when and how many runs to claim, hands them to the pool, and releases runs that cannot
//! start.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use log::Level;

use super::finish_and_claim::CLAIM_PAUSE;
use super::pool::Task;
use super::{ClaimWhen, Phase, Tick, prefetch, record};
use crate::execute::Stop;
use crate::job::attempt::StopReason;
use crate::job::failure::Failure;
use crate::job::payload::PAYLOAD_LIMIT;
use crate::store::{self, Claim, ClaimResult, Claimed};

/// How often an idle lingering tick polls. A run starts about half of this after its enqueue, for
/// 15 short transactions a second.
const LINGER_POLL: Duration = Duration::from_millis(65);
/// The pause after a claim that skipped a definition with `max_running`, because another session
/// has locked it.
const DEFINITION_POLL: Duration = Duration::from_millis(30);
/// How long the tick claims again after such claims, instead of ending when it is idle.
const DEFINITION_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether another tick of the worker has released the claim right.
const RIGHT_POLL: Duration = Duration::from_secs(1);

impl Tick {
    /// Returns the next claim, if one is due. `held` is the number of runs that the tick holds.
    pub(super) fn next_claim(&mut self, held: usize) -> store::Result<Option<Claim>> {
        match self.phase {
            Phase::Working if self.search.is_some() => return Ok(None),
            Phase::Working => {}
            Phase::Draining => return self.release_claim_right().map(|()| None),
            // The right is released last: the database may be silent, and the jobs must be stopped
            // in time.
            Phase::Stopping(_) | Phase::Ending(_) => return Ok(None),
        }
        let now = Instant::now();
        let is_due = match self.claim_when {
            ClaimWhen::Now => true,
            ClaimWhen::At(instant) => now >= instant,
            ClaimWhen::AfterRun => false,
        };
        if !is_due || now < self.no_claim_before {
            return Ok(None);
        }
        let left = self.plan.limit - self.runs_started;
        let wanted = self.prefetch.wanted(self.pool.size, held).min(left);
        // Before jobs print more output, record the output that is waiting.
        if wanted == 0 || self.results.bytes() > record::BYTES_AT_ONCE {
            self.claim_when = ClaimWhen::AfterRun;
            return Ok(None);
        }
        if !self.may_claim {
            self.wake()?;
        }
        let wanted = match self.held_by_others {
            _ if !self.may_claim => 0,
            // The worker's only tick may exceed its concurrency: very short runs are prefetched.
            0 => wanted,
            others => wanted.min(self.pool.size.saturating_sub(held + others)),
        };
        if wanted == 0 {
            if self.may_claim {
                let why = "other ticks of this worker run as many as --concurrency allows";
                self.log_why_due_runs_wait(Level::Info, why)?;
            }
            if self.plan.linger {
                self.claim_when = ClaimWhen::At(Instant::now() + RIGHT_POLL);
                return Ok(None);
            }
            self.claim_when = ClaimWhen::AfterRun;
            return self.release_claim_right().map(|()| None);
        }
        let after = self.cursor.next(Instant::now());
        Ok(Some(Claim {
            wanted: self.plan.wanted.clone(),
            at_most: i32::try_from(wanted).unwrap_or(i32::MAX),
            free_threads: i32::try_from(self.pool.size.saturating_sub(held)).unwrap_or(i32::MAX),
            bytes: i64::try_from(prefetch::BYTES_AHEAD + self.pool.size * PAYLOAD_LIMIT)
                .unwrap_or(i64::MAX),
            // Only a full scan shows that nothing is due.
            release_right: !self.plan.linger && after.is_none(),
            after,
            after_lane: self.cursor.after_lane.clone(),
            limits: self.limits,
        }))
    }

    /// Decides when and where to claim next, after a claim that was sent at `sent` and took `took`.
    pub(super) fn claimed(
        &mut self,
        claim: &Claim,
        sent: Instant,
        took: Duration,
        taken: &ClaimResult,
    ) {
        self.cursor.observe(claim, sent, took, taken);
        let short = claim.is_short(&taken.claimed);
        self.prefetch.observe_claim(&taken.claimed, short);
        self.may_claim = !(short && claim.release_right);
        let holds = !taken.claimed.is_empty() || self.leases.held() > 0;
        // Another session has locked a limited definition. Another tick's claim unlocks it soon; a
        // person's open transaction may keep the lock for hours.
        let skipped = short && taken.skipped;
        self.skipped_since = skipped.then(|| self.skipped_since.unwrap_or_else(Instant::now));
        let waits = self.skipped_since.is_some_and(|since| since.elapsed() < DEFINITION_TIMEOUT);
        self.claim_when = match self.plan.linger {
            _ if !short => ClaimWhen::Now,
            _ if waits => ClaimWhen::At(Instant::now() + DEFINITION_POLL),
            _ if claim.after.is_some() => self.cursor.after_short(holds),
            _ if !self.cursor.found_all() => ClaimWhen::Now,
            true => ClaimWhen::At(Instant::now() + LINGER_POLL),
            false => ClaimWhen::AfterRun,
        };
    }

    /// Hands claimed runs to the pool. The claim was sent at `sent`.
    pub(super) fn start(&mut self, claimed: Vec<Claimed>, sent: Instant) {
        let mut tasks = Vec::with_capacity(claimed.len());
        for run in claimed {
            log::debug!("{}: claimed", record::subject(&run));
            let stop = Arc::new(Stop::new(sent + self.timing.fence, self.timing.lost_grace));
            if run.cancel_asked {
                stop.ask(StopReason::Cancelled);
            }
            self.leases.hold(&run, Arc::clone(&stop), sent + self.timing.lease);
            // The wait for a thread begins now, however long the claim took.
            tasks.push(Task { run, stop, submitted: Instant::now() });
        }
        self.runs_started += tasks.len();
        if let Err(error) = self.pool.submit(tasks) {
            self.failure.get_or_insert(anyhow::Error::new(error).context("cannot start a thread"));
            self.end_all();
        }
    }

    /// Releases the runs that wait for a thread if the tick stops, or if they have waited too long
    /// because runs take longer than before.
    pub(super) fn release_waiting(&mut self) {
        let timeout = self.prefetch.thread_timeout();
        let is_late = self.pool.waiting_for().is_some_and(|waited| waited >= timeout);
        if is_late || self.is_stopping() {
            for task in self.pool.withdraw() {
                self.release_unstarted(&task.run);
            }
        }
    }

    /// Releases a run that this host can't start now. Logs that once, because cron mails the log.
    pub(super) fn release_unstartable(&mut self, run: &Claimed, why: &Failure) {
        static LOGGED: Once = Once::new();
        LOGGED.call_once(|| log::warn!("{}: {why}; claim released", record::subject(run)));
        self.no_claim_before = Instant::now() + CLAIM_PAUSE;
        self.release_unstarted(run);
    }

    /// Marks a claim for release whose run was not started.
    pub(super) fn release_unstarted(&mut self, run: &Claimed) {
        self.prefetch.reset();
        self.cursor.reset();
        self.runs_started -= 1;
        if let Some(expires) = self.leases.remove(run) {
            self.leases.release_later([run.token()], expires);
        }
    }

    /// Releases the marked claims. Claims whose rows are locked stay marked. None of these runs is
    /// executed, whatever the answer is.
    pub(super) fn release(&mut self) -> store::Result<()> {
        self.leases.drop_expired(self.timing.result_kept);
        let unstarted: Vec<_> = self.leases.unstarted.iter().map(|(claim, _)| *claim).collect();
        let Some(store) = self.connection.store.as_ref().filter(|_| !unstarted.is_empty()) else {
            return Ok(());
        };
        let locked = store.release(&self.holder.worker, unstarted)?;
        if locked.len() < self.leases.unstarted.len() && self.claim_when == ClaimWhen::AfterRun {
            self.claim_when = ClaimWhen::Now;
        }
        self.leases.unstarted.retain(|(claim, _)| locked.contains(&claim.id));
        Ok(())
    }

    pub(super) fn release_claim_right(&mut self) -> store::Result<()> {
        if let Some(store) = self.connection.store.as_ref().filter(|_| self.may_claim) {
            store.leave(&self.holder.worker, &self.holder.tick)?;
            self.may_claim = false;
        }
        Ok(())
    }
}
