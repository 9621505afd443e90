//! Reports that the tick is alive, takes the claim right, fires schedules and recovers lost leases.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::time::Instant;

use log::Level;

use super::request::{Wake, Woken};
use super::timing::Timing;
use super::{Plan, id};
use crate::store::{self, Holder, Store};
use crate::upkeep::{fire, recover};

/// Takes or renews the claim right, fires schedules and recovers lost runs.
pub(super) fn wake(
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
        fire(store, has_time)?;
    }
    if seen.lost {
        recover(store, has_time)?;
    }
    if seen.fires || seen.lost {
        // Fired or recovered runs may be due.
        seen = report()?;
    }
    let may_claim = seen.claiming_tick.as_ref() == Some(&holder.tick);
    let mut held_by_others = 0;
    if may_claim && asked.counts_others {
        held_by_others = store.held(&holder.worker)?.saturating_sub(asked.held);
        if held_by_others + asked.held >= plan.concurrency {
            let why = "other ticks of this worker run as many as --concurrency allows";
            log_why_due_runs_wait(store, plan, Level::Info, why)?;
        }
    } else if !may_claim && seen.claiming_tick.is_some() {
        log_other_tick(store, plan, &seen.claiming_queues)?;
    }
    Ok(Woken { may_claim, held_by_others, limits: seen.limits })
}

/// Logs why due runs wait: another tick of this worker has the claim right, and it claims only from
/// the queues `claiming` (empty: from all).
fn log_other_tick(store: &Store, plan: &Plan, claiming: &[String]) -> store::Result<()> {
    let own = &plan.filter.queues;
    let is_served = |queue: &String| claiming.contains(queue);
    if claiming.is_empty() || !own.is_empty() && own.iter().all(is_served) {
        let why = "another tick of this worker claims them";
        return log_why_due_runs_wait(store, plan, Level::Info, why);
    }
    let queues = claiming.join(",");
    let why = format!("another tick of this worker claims only from queue {queues}");
    log_why_due_runs_wait(store, plan, Level::Warn, &why)
}

/// Logs once why due runs wait, and the remedy. Cron mails the log, so if the runs will soon be
/// claimed anyway, the line is shown only on a terminal.
fn log_why_due_runs_wait(store: &Store, plan: &Plan, level: Level, why: &str) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let is_shown = level == Level::Warn || io::stderr().is_terminal();
    if is_shown && !LOGGED.is_completed() && !store.preview(&plan.filter, 1)?.is_empty() {
        let worker = plan.worker.escape_debug();
        let remedy = "give this tick its own --worker";
        LOGGED.call_once(|| {
            log::log!(level, "worker {worker}: runs are due, but {why}; {remedy}");
        });
    }
    Ok(())
}
