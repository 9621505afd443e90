//! Wake: how a tick takes its worker's claim right, and learns what there is to do.

use std::time::Duration;

use chrono::{DateTime, Utc};
use cron_zone::ZoneData;

use super::row::{PgResult, rows};
use super::statement::query;
use super::transaction::Transaction;
use super::{ClaimFilter, Error, FencingToken, Holder, Result, Store};
use crate::connect;
use crate::job::program_version::program_version;
use crate::job::seen_ticks::{SeenTicks, StoredTick};

rows! {
    /// What a wake finds: the claim right, and the work that is due.
    pub(crate) struct WakeResult {
        /// The tick that has the worker's claim right now.
        pub(crate) claiming_tick: Option<String>,
        /// The queues of that tick; empty for all.
        pub(crate) claiming_queues: Vec<String>,
        /// Whether the lease of some run expired.
        pub(crate) lost: bool,
        /// Whether some pending run expired.
        pub(crate) expired: bool,
        /// Whether leases or results are kept in `job_locked_runs`.
        pub(crate) locked: bool,
        /// Whether blocked runs wait for the decision of a tick, see decide_followers.sql, or ended
        /// runs were noted for jobs that follow theirs.
        pub(crate) followers: bool,
        /// Whether some schedule is due.
        pub(crate) fires: bool,
        /// The time of this wake.
        last_tick_at: DateTime<Utc>,
        /// The time of the worker's latest tick before this wake.
        previous_tick_at: Option<DateTime<Utc>>,
    }

    /// What a tick must know before it works: before it claims, fires or recovers runs.
    pub(crate) struct BeforeWork {
        /// How many runs the worker's other ticks have claimed.
        held: i32,
        /// Whether some definition limits how many of its runs may run at once, or some pending run
        /// has a lock of its own.
        pub(crate) limits: bool,
        /// When a tick of any worker noticed a restore that no operator has accepted.
        restored_at: Option<DateTime<Utc>>,
    }
}

impl BeforeWork {
    /// Returns how many runs the worker's other ticks have claimed.
    pub(crate) fn held(&self) -> usize {
        usize::try_from(self.held).unwrap_or(0)
    }
}

impl WakeResult {
    /// Returns the times of the worker's ticks: the latest one before this wake, and this one.
    fn tick(&self, created_at: DateTime<Utc>) -> StoredTick {
        let Self { previous_tick_at: previous_at, last_tick_at: now, .. } = *self;
        StoredTick { created_at, previous_at, now }
    }

    /// Whether the tick changes something before it claims.
    fn has_work(&self) -> bool {
        self.lost || self.expired || self.locked || self.followers || self.fires
    }
}

/// The database lost a tick, as after the restore of a backup, and no operator has accepted that.
/// Until then, ticks start no runs.
#[derive(Clone, Copy)]
enum Restore {
    /// A tick has recorded the restore in the trail.
    Recorded,
    /// This tick is the first to notice the restore.
    Noticed,
}

impl Store {
    /// Records that a tick is alive, and takes or renews its worker's claim right. If the tick has
    /// the right or work to do, also reads what it must know before it works.
    ///
    /// - `filter`: the runs that the tick may claim. It is recorded, too.
    /// - `lasts`: the right ends after this time if it is not renewed.
    /// - `keep`: whether the tick gets the right even if no run is pending. Otherwise the right is
    ///   released then, so that another tick of the worker can take it.
    /// - `own`: the claims of this tick. All other claims of its worker are counted.
    /// - `seen_ticks`: the ticks of the worker that this host has seen. This tick is added.
    ///
    /// Fails and changes nothing if the schema has another version, or after a restore that no
    /// operator has accepted.
    pub(crate) fn wake(
        &self,
        holder: &Holder,
        filter: &ClaimFilter,
        lasts: Duration,
        keep: bool,
        own: &[FencingToken],
        seen_ticks: &mut SeenTicks,
    ) -> Result<(WakeResult, BeforeWork)> {
        let (Holder { worker, tick }, lasts) = (holder, lasts.as_secs_f64());
        let version = program_version(ZoneData::current().version());
        let os_user = connect::system_user();
        // Another program may have migrated the schema since the last wake.
        self.checks_version.set(true);
        let (ids, attempts, claimed_at) = FencingToken::columns(own);
        let ClaimFilter { queues, excluded_jobs, excluded_kinds, .. } = filter;
        let (seen, before, stored, restore) =
            self.transact("look for due runs", |transaction| {
                let seen: WakeResult = transaction.one(query!(
                "tick/wake";
                worker, tick, version, lasts, keep, queues, excluded_jobs, excluded_kinds, os_user,
            ))?;
                let mut before = BeforeWork::default();
                if seen.has_work() || seen.claiming_tick.as_ref() == Some(tick) {
                    // A separate statement, which begins after the wake has got the right. So it
                    // sees all claims of the tick that had the right before.
                    let statement = query!("tick/before_work"; worker, ids, attempts, claimed_at);
                    before = transaction.one(statement)?;
                }
                let stored = seen.tick(transaction.created_at.unwrap_or_default());
                let restore = unaccepted_restore(transaction, worker, &before, stored, seen_ticks)?;
                if restore.is_some() {
                    transaction.undo()?;
                }
                Ok((seen, before, stored, restore))
            })?;
        self.fail_after_restore(worker, restore)?;
        seen_ticks.saw(stored);
        Ok((seen, before))
    }

    /// Fails if there is a restore that no operator has accepted. Records it in the trail if this
    /// tick is the first to notice it.
    fn fail_after_restore(&self, worker: &str, restore: Option<Restore>) -> Result<()> {
        match restore {
            None => Ok(()),
            Some(Restore::Recorded) => Err(Error::restored()),
            Some(Restore::Noticed) => {
                let statement = query!("tick/note_restore"; worker);
                self.query("record the restore", Transaction::execute, statement)?;
                Err(Error::restored())
            }
        }
    }

    /// Reads what a tick must know before it claims a single run, which needs no claim right.
    ///
    /// - `own`: the claims of this tick. All other claims of its worker are counted.
    /// - `seen_ticks`: the ticks of the worker that this host has seen. This tick is not added,
    ///   because it does not record that it is alive.
    ///
    /// Fails after a restore that no operator has accepted.
    pub(crate) fn check_before_claim(
        &self,
        holder: &Holder,
        own: &[FencingToken],
        seen_ticks: &SeenTicks,
    ) -> Result<BeforeWork> {
        let worker = &holder.worker;
        let (ids, attempts, claimed_at) = FencingToken::columns(own);
        self.checks_version.set(true);
        let (before, restore) = self.transact("look for due runs", |transaction| {
            let statement = query!("tick/before_work"; worker, ids, attempts, claimed_at);
            let before: BeforeWork = transaction.one(statement)?;
            let (previous_at, now) = transaction.one(query!("tick/latest_tick"; worker))?;
            let created_at = transaction.created_at.unwrap_or_default();
            let stored = StoredTick { created_at, previous_at, now };
            let restore = unaccepted_restore(transaction, worker, &before, stored, seen_ticks)?;
            Ok((before, restore))
        })?;
        self.fail_after_restore(worker, restore)?;
        Ok(before)
    }

    /// Returns the system user of a worker's last tick, if it is known.
    pub(crate) fn last_user(&self, worker: &str) -> Result<Option<String>> {
        let statement = query!("tick/last_user"; worker);
        let user = self.query("look for the last tick", Transaction::first, statement)?;
        Ok(user.flatten())
    }

    /// Records that the database took this long for an answer. Does not fail.
    pub(crate) fn note_slow(&self, worker: &str, took: Duration) {
        let statement = query!("tick/note_slow"; worker, took = took.as_secs_f64());
        if let Err(error) = self.query("record a slow answer", Transaction::execute, statement) {
            // The work matters more. The next slow answer is recorded, too.
            log::debug!("{error}");
        }
    }

    /// Releases a worker's claim right, if this tick has it.
    pub(crate) fn leave(&self, worker: &str, tick: &str) -> Result<()> {
        let statement = query!("tick/release_right"; worker, tick);
        self.query("release the claim right", Transaction::execute, statement).map(drop)
    }
}

/// Returns the restore that no operator has accepted for this worker, if there is one: recorded by
/// a tick, or noticed now because the database lacks a tick that this host has seen.
fn unaccepted_restore(
    transaction: &mut Transaction,
    worker: &str,
    before: &BeforeWork,
    stored: StoredTick,
    seen_ticks: &SeenTicks,
) -> PgResult<Option<Restore>> {
    let (lost, restore) = if let Some(restored_at) = before.restored_at {
        (restored_at, Restore::Recorded)
    } else if let Some(lost_tick) = seen_ticks.lost_tick(stored) {
        (lost_tick, Restore::Noticed)
    } else {
        return Ok(None);
    };
    let is_accepted: bool = transaction.one(query!("tick/restore_accepted"; worker, lost))?;
    Ok(if is_accepted { None } else { Some(restore) })
}
