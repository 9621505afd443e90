//! Effects that happen once, recorded by their keys.

use chrono::{DateTime, Utc};

use super::row::rows;
use super::statement::query;
use super::transaction::Transaction;
use super::{Result, Store};
use crate::text::listing::Listing;

/// How many bytes of a result an effect keeps.
pub(crate) const RESULT_LIMIT: usize = 8 * 1024;
/// How often to try to record an effect that is neither recorded nor found.
const TRIES: u32 = 5;

rows! {
    /// An effect that was recorded before.
    struct Found {
        recorded_at: DateTime<Utc>,
        /// Whether the current role may settle it.
        is_own: bool,
        completed: bool,
        /// The run whose attempt recorded it, if this attempt still runs.
        used_by: Option<i64>,
        /// The output of the command, if it is stored.
        result: Option<String>,
    }

    /// Completed effects that runs recorded.
    pub(crate) struct RunEffects {
        pub(crate) effects: i64,
        /// The number of runs that recorded them.
        pub(crate) runs: i64,
        /// The key of one of these effects.
        pub(crate) first_key: String,
    }
}

/// The answer to a request to record an effect.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The effect is recorded now, at this time. The caller may perform it, and owns this record.
    Begun(DateTime<Utc>),
    /// The effect was completed earlier; with the output of the command, if it is stored.
    Completed(Option<String>),
    /// The effect was recorded earlier, at this time, and neither completed nor removed.
    Open(DateTime<Utc>),
    /// The effect is open, and the attempt of this run that recorded it still runs.
    InUse(i64),
    /// Another role recorded the effect, and the current role may not settle it.
    Foreign,
}

impl Found {
    /// Returns the answer to a request to record this effect again.
    fn answer(self) -> Effect {
        if !self.is_own {
            Effect::Foreign
        } else if self.completed {
            Effect::Completed(self.result)
        } else if let Some(run) = self.used_by {
            Effect::InUse(run)
        } else {
            Effect::Open(self.recorded_at)
        }
    }
}

impl Store {
    /// Records an effect before it happens, or returns what became of an earlier record. `run`: the
    /// run and the attempt that ask for it; `None`: outside of a job.
    pub(crate) fn begin_effect(&self, key: &str, run: Option<(i64, i32)>) -> Result<Effect> {
        let (run, attempt) = run.unzip();
        self.transact("record the effect", |transaction| {
            let mut tries = 0;
            loop {
                let begun = transaction.one(query!("effect/begin"; key, run, attempt))?;
                if let Some(recorded) = begun {
                    return Ok(Effect::Begun(recorded));
                }
                let found: Option<Found> =
                    transaction.first(query!("effect/find"; key, run, attempt))?;
                if let Some(found) = found {
                    return Ok(found.answer());
                }
                // The effect was removed between the two statements, so its key is free again. Or a
                // trigger skipped the row: after some tries, fail with an error about that.
                tries += 1;
                if tries == TRIES {
                    transaction.execute(query!("effect/require_begun"))?;
                }
            }
        })
    }

    /// Marks an open effect as completed. Returns false if it is not open. The owner passes the
    /// time of its record, because a record of another time belongs to another owner.
    pub(crate) fn complete_effect(
        &self,
        key: &str,
        recorded: Option<DateTime<Utc>>,
        result: Option<&str>,
    ) -> Result<bool> {
        let statement = query!("effect/complete"; key, recorded, result);
        Ok(self.query("complete the effect", Transaction::execute, statement)? > 0)
    }

    /// Removes an open effect, because it did not happen. Otherwise like `complete_effect`.
    pub(crate) fn remove_effect(&self, key: &str, recorded: Option<DateTime<Utc>>) -> Result<bool> {
        let statement = query!("effect/remove"; key, recorded);
        Ok(self.query("remove the effect", Transaction::execute, statement)? > 0)
    }

    /// Returns the completed effects that these runs recorded; `None` if there are none.
    pub(crate) fn effects_of_runs(&self, ids: Vec<i64>) -> Result<Option<RunEffects>> {
        self.query("read effects", Transaction::first, query!("effect/of_runs"; ids))
    }

    /// Returns the effects that began and did not complete, the oldest first.
    pub(crate) fn list_open_effects(&self) -> Result<Listing> {
        self.query("list effects", Transaction::listing, query!("effect/list_open"))
    }
}
