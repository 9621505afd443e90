//! Wake: how a tick takes its worker's claim right, and learns what there is to do.

use std::time::Duration;

use chrono::{DateTime, Utc};
use cron_zone::ZoneData;

use super::row::{PgResult, rows};
use super::session::Transaction;
use super::statement::query;
use super::{ClaimFilter, Error, FencingToken, Holder, Result, Store};
use crate::connect;
use crate::job::program_version::program_version;
use crate::job::seen_ticks::{SeenTicks, StoredTick};

rows! {
    /// The state that a tick finds when it looks for work.
    pub(crate) struct WakeResult {
        /// The tick that has the worker's claim right.
        pub(crate) claiming_tick: Option<String>,
        /// The queues of that tick; empty for all.
        pub(crate) claiming_queues: Vec<String>,
        /// The lease of some run expired.
        pub(crate) lost: bool,
        /// Some pending run expired.
        pub(crate) expired: bool,
        /// Leases or results are kept outside of their runs, because the rows were locked.
        pub(crate) locked: bool,
        /// Blocked runs wait for the decision of a tick, see decide_followers.sql, or runs were
        /// noted for jobs that follow theirs.
        pub(crate) followers: bool,
        /// Some schedule is due.
        pub(crate) fires: bool,
        last_tick_at: DateTime<Utc>,
        previous_tick_at: Option<DateTime<Utc>>,
    }

    /// What a tick must know before it changes anything.
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
    /// Returns what the wake found and stored about the ticks of its worker.
    fn tick(&self, created_at: DateTime<Utc>) -> StoredTick {
        let Self { previous_tick_at: previous_at, last_tick_at: now, .. } = *self;
        StoredTick { created_at, previous_at, now }
    }

    /// Whether the tick changes something before it claims.
    fn has_work(&self) -> bool {
        self.lost || self.expired || self.locked || self.followers || self.fires
    }
}

impl Store {
    /// Checks the schema's version, and records that the tick is alive and its `filter`. Takes or
    /// renews the claim right for `lasts`; releases the right if no run is pending, unless `keep`
    /// is set. With the right or with work to do, also reads what the tick must know before it
    /// works; `own` are the claims of this tick. Remembers the tick in `seen_ticks`. Fails and
    /// changes nothing if the database is older than the ticks that this host has seen in it, or if
    /// another tick has noticed that, until an operator accepts it.
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
        self.checks_version.set(true);
        let (ids, attempts, claimed_at) = FencingToken::columns(own);
        let ClaimFilter { queues, excluded_jobs, excluded_kinds, .. } = filter;
        let woken = self.transact("look for due runs", |transaction| {
            let seen: WakeResult = transaction.one(query!(
                "tick/wake";
                worker, tick, version, lasts, keep, queues, excluded_jobs, excluded_kinds, os_user,
            ))?;
            let mut before = BeforeWork::default();
            if seen.has_work() || seen.claiming_tick.as_ref() == Some(tick) {
                // A statement of its own, so that it sees the claims of the tick that had the right
                // before.
                let statement = query!("tick/before_work"; worker, ids, attempts, claimed_at);
                before = transaction.one(statement)?;
            }
            let stored = seen.tick(transaction.created_at.unwrap_or_default());
            let restored_at = before.restored_at.or_else(|| seen_ticks.lost_tick(stored));
            if !accepts(transaction, worker, restored_at)? {
                transaction.batch_execute("ROLLBACK AND CHAIN")?;
                return Ok(Err(before.restored_at.is_some()));
            }
            Ok(Ok((seen, before, stored)))
        })?;
        let (seen, before, stored) =
            woken.or_else(|is_recorded| self.record_restore(&holder.worker, is_recorded))?;
        seen_ticks.saw(stored);
        Ok((seen, before))
    }

    /// Records that this worker has noticed a restore, unless that `is_recorded`. Always returns an
    /// error.
    fn record_restore<T>(&self, worker: &str, is_recorded: bool) -> Result<T> {
        if !is_recorded {
            let statement = query!("tick/note_restore"; worker);
            self.query("record the restore", Transaction::execute, statement)?;
        }
        Err(Error::restored())
    }

    /// Reads what a tick must know before it claims a single run, which needs no claim right. Fails
    /// if a tick has noticed a restore that no operator has accepted.
    pub(crate) fn check_before_claim(
        &self,
        holder: &Holder,
        own: &[FencingToken],
        seen_ticks: &SeenTicks,
    ) -> Result<BeforeWork> {
        let worker = &holder.worker;
        let (ids, attempts, claimed_at) = FencingToken::columns(own);
        self.checks_version.set(true);
        let seen = self.transact("look for due runs", |transaction| {
            let statement = query!("tick/before_work"; worker, ids, attempts, claimed_at);
            let before: BeforeWork = transaction.one(statement)?;
            let (previous_at, now) = transaction.one(query!("tick/latest_tick"; worker))?;
            let created_at = transaction.created_at.unwrap_or_default();
            let stored = StoredTick { created_at, previous_at, now };
            let restored_at = before.restored_at.or_else(|| seen_ticks.lost_tick(stored));
            let is_accepted = accepts(transaction, worker, restored_at)?;
            Ok(if is_accepted { Ok(before) } else { Err(before.restored_at.is_some()) })
        })?;
        seen.or_else(|is_recorded| self.record_restore(&holder.worker, is_recorded))
    }

    /// Returns the system user of a worker's last tick, if it is known.
    pub(crate) fn last_user(&self, worker: &str) -> Result<Option<String>> {
        let statement = query!("tick/last_user"; worker);
        let user = self.query("look for the last tick", Transaction::first, statement)?;
        Ok(user.flatten())
    }

    /// Records that the database took long for an answer.
    pub(crate) fn note_slow(&self, worker: &str, took: Duration) {
        let statement = query!("tick/note_slow"; worker, took = took.as_secs_f64());
        if let Err(error) = self.query("record a slow answer", Transaction::execute, statement) {
            // The work matters more. The next slow answer is recorded, too.
            log::debug!("{error}");
        }
    }

    /// Releases a worker's claim right if that tick has it.
    pub(crate) fn leave(&self, worker: &str, tick: &str) -> Result<()> {
        let statement = query!("tick/release_right"; worker, tick);
        self.query("release the claim right", Transaction::execute, statement).map(drop)
    }
}

/// Returns whether no restore was noticed, or an operator has accepted it for this worker.
fn accepts(
    transaction: &mut Transaction,
    worker: &str,
    restored_at: Option<DateTime<Utc>>,
) -> PgResult<bool> {
    restored_at
        .map_or(Ok(true), |lost| transaction.one(query!("tick/restore_accepted"; worker, lost)))
}
