//! Effects that happen once, recorded by their keys.

use chrono::{DateTime, Utc};

use super::{Result, Store, query};

#[derive(Debug)]
pub(crate) enum Effect {
    /// Recorded now: the caller may perform the effect and owns this record.
    Begun(DateTime<Utc>),
    Completed,
    /// Recorded earlier, at this time, and neither completed nor removed.
    Open(DateTime<Utc>),
    /// Another role recorded the effect, and the current role may not settle it.
    Foreign,
}

impl Store {
    /// Records an effect before it happens. `run` is the run and the attempt, inside a job.
    pub(crate) fn begin_effect(&self, key: &str, run: Option<(i64, i32)>) -> Result<Effect> {
        let key = key.to_owned();
        let (run, attempt) = run.unzip();
        self.transact("record the effect", move |client| {
            loop {
                let begun = client.one(query!("effect/begin"), &[&key, &run, &attempt])?;
                if let Some(recorded) = begun {
                    return Ok(Effect::Begun(recorded));
                }
                return Ok(match client.first(query!("effect/find"), &[&key])? {
                    // The effect was removed between the two statements: its key is free again.
                    None => continue,
                    Some((_, false, _)) => Effect::Foreign,
                    Some((_, true, true)) => Effect::Completed,
                    Some((recorded, true, false)) => Effect::Open(recorded),
                });
            }
        })
    }

    /// Marks an open effect as completed; returns false if it is not open. The owner passes the
    /// time of its record: a record of another time belongs to another owner.
    pub(crate) fn complete_effect(
        &self,
        key: &str,
        recorded: Option<DateTime<Utc>>,
    ) -> Result<bool> {
        self.settle_effect("complete the effect", query!("effect/complete"), key, recorded)
    }

    /// Removes an open effect, which did not happen; otherwise like `complete_effect`.
    pub(crate) fn remove_effect(&self, key: &str, recorded: Option<DateTime<Utc>>) -> Result<bool> {
        self.settle_effect("remove the effect", query!("effect/remove"), key, recorded)
    }

    fn settle_effect(
        &self,
        doing: &'static str,
        query: &'static str,
        key: &str,
        recorded: Option<DateTime<Utc>>,
    ) -> Result<bool> {
        let key = key.to_owned();
        self.transact(doing, move |client| Ok(client.execute(query, &[&key, &recorded])? > 0))
    }
}
