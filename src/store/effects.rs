//! Effects that happen once, recorded by their keys.

use chrono::{DateTime, Utc};
use postgres::types::Type;

use super::{Parameter, Result, Store, query};

/// What is known of an effect.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Recorded just now: whoever asked may do it, and owns this record.
    Begun(DateTime<Utc>),
    Completed,
    /// Somebody recorded it then and has neither completed it nor taken it back.
    Open(DateTime<Utc>),
    /// Another role recorded the effect, and the current role may not settle it.
    Foreign,
}

impl Store {
    /// Records an effect before it happens; `run` is the job's run and attempt, in a job.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn begin_effect(&self, key: &str, run: Option<(i64, i32)>) -> Result<Effect> {
        let key = key.to_owned();
        self.transact("record the effect", move |client| {
            loop {
                let (id, attempt) = run.unzip();
                let parameters: &[Parameter<'_>] = &[(&key, Type::TEXT), (&id, Type::INT8), (&attempt, Type::INT4)];
                if let Some(recorded) =
                    client.query_typed_one(query!("begin_effect"), parameters)?.try_get("recorded_at")?
                {
                    return Ok(Effect::Begun(recorded));
                }
                // One that was taken back between the two statements is free again: hence the loop.
                if let Some(row) = client.query_typed(query!("find_effect"), &[(&key, Type::TEXT)])?.first() {
                    return Ok(match (row.try_get("may_settle")?, row.try_get("completed")?) {
                        (false, _) => Effect::Foreign,
                        (true, true) => Effect::Completed,
                        (true, false) => Effect::Open(row.try_get("recorded_at")?),
                    });
                }
            }
        })
    }

    /// Notes that an open effect has happened; `false`: it is not open. Its owner says when it was
    /// recorded: another record of the same key is another owner's.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn complete_effect(&self, key: &str, recorded: Option<DateTime<Utc>>) -> Result<bool> {
        let key = key.to_owned();
        self.transact("complete the effect", move |client| {
            let parameters: &[Parameter<'_>] = &[(&key, Type::TEXT), (&recorded, Type::TIMESTAMPTZ)];
            client.query_typed(query!("complete_effect"), parameters).map(|rows| !rows.is_empty())
        })
    }

    /// Notes that an open effect has not happened; `false`: it is not open. As `complete_effect`.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn take_back_effect(&self, key: &str, recorded: Option<DateTime<Utc>>) -> Result<bool> {
        let key = key.to_owned();
        self.transact("take the effect back", move |client| {
            let parameters: &[Parameter<'_>] = &[(&key, Type::TEXT), (&recorded, Type::TIMESTAMPTZ)];
            client.query_typed(query!("take_back_effect"), parameters).map(|rows| !rows.is_empty())
        })
    }
}
