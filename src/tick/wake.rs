//! How a tick looks what there is to do: it reports, takes the claim right, fires schedules and recovers lost leases.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::time::Instant;

use log::Level;
use rand::seq::SliceRandom;

use super::bisect::Bisection;
use super::{Phase, Tick, WhenIdle, fire, id, record};
use crate::store;
use crate::verdict;

/// Lost leases recovered per statement.
const RECOVERED_AT_ONCE: usize = 500;

impl Tick {
    /// Looks what there is to do; takes or renews the claim right.
    pub(super) fn wake(&mut self) -> store::Result<()> {
        let Some(store) = &self.connection.store else { return Ok(()) };
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
            fire::fire(store, || self.has_time())?;
        }
        if seen.lost {
            self.recover()?;
        }
        if seen.fires || seen.lost {
            // What was fired or recovered may be due.
            seen = wake()?;
        }
        // The right is fresh; leases are renewed at their own time.
        if self.leases.held() == 0 {
            self.next_beat = sent + self.timing.heartbeat;
        }
        self.limits = seen.limits;
        let gained = !self.may_claim;
        self.may_claim = seen.claiming_tick.as_ref() == Some(&self.holder.tick);
        if !self.may_claim && seen.claiming_tick.is_some() {
            self.tell_of_other_tick(&seen.claiming_queues)?;
        }
        if self.may_claim && (gained || self.others > 0) {
            self.others = store.held(&self.holder.worker)?.saturating_sub(self.leases.held());
        }
        Ok(())
    }

    /// Logs why due runs wait although another tick of this worker claims from the queues
    /// `claiming`.
    fn tell_of_other_tick(&self, claiming: &[String]) -> store::Result<()> {
        let own = &self.plan.wanted.queues;
        let is_served = |queue: &String| claiming.contains(queue);
        if claiming.is_empty() || !own.is_empty() && own.iter().all(is_served) {
            return self.tell_why_due_runs_wait(Level::Info, "another tick of this worker claims them");
        }
        let why = format!("another tick of this worker claims only from queue {}", claiming.join(","));
        self.tell_why_due_runs_wait(Level::Warn, &why)
    }

    /// Logs once why due runs wait, and the remedy. Cron mails the log, so if the runs will soon be
    /// claimed anyway, the line is shown only on a terminal.
    pub(super) fn tell_why_due_runs_wait(&self, level: Level, why: &str) -> store::Result<()> {
        static SAID: Once = Once::new();
        let Some(store) = self.connection.store.as_ref().filter(|_| !SAID.is_completed()) else { return Ok(()) };
        let is_heard = level == Level::Warn || io::stderr().is_terminal();
        if is_heard && !store.preview(&self.plan.wanted, 1)?.is_empty() {
            let worker = self.plan.worker.escape_debug();
            SAID.call_once(|| {
                log::log!(level, "worker {worker}: runs are due, but {why}; give this tick its own --worker")
            });
        }
        Ok(())
    }

    /// Whether firing and recovering may go on: renewals and results come first.
    fn has_time(&self) -> bool {
        self.leases.held() == 0 || Instant::now() < self.next_beat - self.timing.heartbeat / 2
    }

    /// Takes runs whose lease ran out away from their holders. A run whose every start kills its
    /// worker ends here, dead.
    fn recover(&self) -> store::Result<()> {
        static SAID: Once = Once::new();
        const WHAT: &str = "lease expired: its worker died, hung or lost the database";
        let Some(store) = &self.connection.store else { return Ok(()) };
        loop {
            let expired = store.expired(RECOVERED_AT_ONCE)?;
            let mut waits: Vec<_> = expired
                .iter()
                .map(|run| (run.id, run.attempt, verdict::wait_after(run.attempt, &run.backoff, rand::random())))
                .collect();
            // The database may reject many of these runs. The next recovery continues, in random order.
            waits.shuffle(&mut rand::rng());
            let mut recovered = Vec::new();
            let mut search = Bisection::of(waits.clone());
            while !search.is_done() && self.has_time() {
                let refused = search.step(|part| {
                    recovered.extend(store.recover(part, WHAT)?);
                    Ok(())
                })?;
                if let Some((wait, why)) = refused {
                    SAID.call_once(|| log::error!("run {}: {why}", wait.0));
                }
            }
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
}
