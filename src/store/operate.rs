//! What operators ask for: retry, cancel, remove.

use postgres::types::Type;

use super::{Parameter, Result, Store, collect, query};
use crate::model::Status;

/// A run an operator asked about: its status before, and whether the request was granted.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: i64,
    pub(crate) status: String,
    pub(crate) granted: bool,
}

impl Store {
    /// Makes runs due now whose status is one of `from`; an id that is missing from the answer does
    /// not exist. A running run is taken from its holder.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn retry(&self, ids: Vec<i64>, from: &[Status]) -> Result<Vec<Asked>> {
        self.ask("retry", query!("retry"), ids, from)
    }

    /// Stops runs whose status is one of `from`; an id that is missing from the answer does not exist.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn cancel(&self, ids: Vec<i64>, from: &[Status]) -> Result<Vec<Asked>> {
        self.ask("cancel", query!("cancel"), ids, from)
    }

    /// Deletes runs whose status is one of `from`, all of them final; an id that is missing from the answer does not
    /// exist.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn remove(&self, ids: Vec<i64>, from: &[Status]) -> Result<Vec<Asked>> {
        self.ask("prune", query!("remove"), ids, from)
    }

    fn ask(&self, doing: &'static str, query: &'static str, ids: Vec<i64>, from: &[Status]) -> Result<Vec<Asked>> {
        let from = Status::words(from);
        self.transact(doing, move |client| {
            let parameters: &[Parameter<'_>] = &[(&ids, Type::INT8_ARRAY), (&from, Type::TEXT_ARRAY)];
            collect(client.query_typed(query, parameters)?, |row| {
                Ok(Asked { id: row.try_get("id")?, status: row.try_get("status")?, granted: row.try_get("granted")? })
            })
        })
    }
}
