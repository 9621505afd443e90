//! How a tick looks what there is to do: it reports, takes the claim right, fires schedules and recovers lost leases.

use std::sync::Once;
use std::time::Instant;

use super::{Phase, Tick, WhenIdle, bisect, fire, id, record};
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
            fire::fire(store)?;
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
        if seen.claiming_tick.is_some() {
            self.warn_of_other_queues(&seen.claiming_queues);
        }
        if self.may_claim && (gained || self.others > 0) {
            self.others = store.held(&self.holder.worker)?.saturating_sub(self.leases.held());
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

    /// Takes runs whose lease ran out away from their holders. A run whose every start kills its
    /// worker ends here, dead.
    fn recover(&self) -> store::Result<()> {
        static SAID: Once = Once::new();
        const WHAT: &str = "lease expired: its worker died, hung or lost the database";
        let Some(store) = &self.connection.store else { return Ok(()) };
        loop {
            let expired = store.expired(RECOVERED_AT_ONCE)?;
            let waits: Vec<_> = expired
                .iter()
                .map(|run| (run.id, run.attempt, verdict::wait_after(run.attempt, &run.backoff, rand::random())))
                .collect();
            let mut recovered = Vec::new();
            let refused = bisect::refused(waits.clone(), |part| {
                recovered.extend(store.recover(part, WHAT)?);
                Ok(())
            })?;
            // The next look will meet it again.
            refused.iter().for_each(|(wait, why)| SAID.call_once(|| log::error!("run {}: {why}", wait.0)));
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
