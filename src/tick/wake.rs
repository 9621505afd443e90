//! Reports that the tick is alive, takes the claim right, fires schedules and recovers lost leases.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::time::Instant;

use log::Level;
use rand::seq::SliceRandom;

use super::bisect::Bisection;
use super::{Phase, Tick, fire, id, record};
use crate::job::backoff::wait_after;
use crate::store;

/// Lost leases recovered per statement.
const RECOVERED_AT_ONCE: usize = 500;

impl Tick {
    /// Takes or renews the claim right, fires schedules and recovers lost runs.
    pub(super) fn wake(&mut self) -> store::Result<()> {
        let Some(store) = &self.connection.store else { return Ok(()) };
        let working = self.phase == Phase::Working;
        let keep = working && (self.plan.linger || self.may_claim);
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
            // Fired or recovered runs may be due.
            seen = wake()?;
        }
        // The claim right was renewed, but no lease: while the tick holds leases, do not delay the
        // next heartbeat.
        if self.leases.held() == 0 {
            self.next_heartbeat = sent + self.timing.heartbeat;
        }
        self.limits = seen.limits;
        let gained = !self.may_claim;
        self.may_claim = seen.claiming_tick.as_ref() == Some(&self.holder.tick);
        if !self.may_claim && seen.claiming_tick.is_some() {
            self.log_other_tick(&seen.claiming_queues)?;
        }
        if self.may_claim && (gained || self.held_by_others > 0) {
            let held = store.held(&self.holder.worker)?;
            self.held_by_others = held.saturating_sub(self.leases.held());
        }
        Ok(())
    }

    /// Logs why due runs wait: another tick of this worker has the claim right, and it claims only
    /// from the queues `claiming` (empty: from all).
    fn log_other_tick(&self, claiming: &[String]) -> store::Result<()> {
        let own = &self.plan.wanted.queues;
        let is_served = |queue: &String| claiming.contains(queue);
        if claiming.is_empty() || !own.is_empty() && own.iter().all(is_served) {
            let why = "another tick of this worker claims them";
            return self.log_why_due_runs_wait(Level::Info, why);
        }
        let queues = claiming.join(",");
        let why = format!("another tick of this worker claims only from queue {queues}");
        self.log_why_due_runs_wait(Level::Warn, &why)
    }

    /// Logs once why due runs wait, and the remedy. Cron mails the log, so if the runs will soon be
    /// claimed anyway, the line is shown only on a terminal.
    pub(super) fn log_why_due_runs_wait(&self, level: Level, why: &str) -> store::Result<()> {
        static LOGGED: Once = Once::new();
        let Some(store) = self.connection.store.as_ref().filter(|_| !LOGGED.is_completed()) else {
            return Ok(());
        };
        let is_shown = level == Level::Warn || io::stderr().is_terminal();
        if is_shown && !store.preview(&self.plan.wanted, 1)?.is_empty() {
            let worker = self.plan.worker.escape_debug();
            let remedy = "give this tick its own --worker";
            LOGGED.call_once(|| {
                log::log!(level, "worker {worker}: runs are due, but {why}; {remedy}");
            });
        }
        Ok(())
    }

    /// Returns whether firing and recovering may continue: renewals and results come first.
    fn has_time(&self) -> bool {
        self.leases.held() == 0 || Instant::now() < self.next_heartbeat - self.timing.heartbeat / 2
    }

    /// Recovers the runs whose leases ran out. A run whose every attempt kills its worker is marked
    /// dead here.
    fn recover(&self) -> store::Result<()> {
        static LOGGED: Once = Once::new();
        const WHAT: &str = "lease expired: its worker crashed, hung or lost the database";
        let Some(store) = &self.connection.store else { return Ok(()) };
        loop {
            let expired = store.expired(RECOVERED_AT_ONCE)?;
            let wait = |attempt, backoff| wait_after(attempt, backoff, rand::random());
            let waits: Vec<_> = expired
                .iter()
                .map(|run| (run.id, run.attempt, wait(run.attempt, &run.backoff)))
                .collect();
            // If the database rejects many of these runs, time may run out. In random order, each
            // recovery tries other runs first.
            let mut shuffled = waits.clone();
            shuffled.shuffle(&mut rand::rng());
            let mut recovered = Vec::new();
            let mut search = Bisection::of(shuffled);
            while !search.is_done() && self.has_time() {
                let rejected = search.step(|part| {
                    recovered.extend(store.recover(part, WHAT)?);
                    Ok(())
                })?;
                if let Some((wait, why)) = rejected {
                    LOGGED.call_once(|| log::error!("run {}: {why}", wait.0));
                }
            }
            for (run, (.., wait)) in expired.iter().zip(&waits) {
                if let Some((_, status)) = recovered.iter().find(|(id, _)| *id == run.id) {
                    record::log_recovered(run, *status, *wait);
                }
            }
            // If none was recovered, another tick is recovering them or the database rejects them.
            if recovered.is_empty() || expired.len() < RECOVERED_AT_ONCE {
                return Ok(());
            }
        }
    }
}
