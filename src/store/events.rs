//! The trail: the events of a run or of a definition.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::rows;
use super::{Result, Store, query};
use crate::text::timestamp;

rows! {
    /// A change that a person asked for; the fields are named as the columns are.
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct Event {
        #[serde(with = "timestamp")]
        pub(crate) recorded_at: DateTime<Utc>,
        pub(crate) action: String,
        /// The login.
        pub(crate) recorded_by: String,
        pub(crate) host_user: Option<String>,
        pub(crate) reason: Option<String>,
        pub(crate) detail: Option<String>,
    }
}

impl Store {
    /// Returns the last events of a run, also of a deleted one, the oldest first.
    pub(crate) fn run_events(&self, run: i64) -> Result<Vec<Event>> {
        self.transact("read the trail", move |client| {
            client.list(query!("look/list_events"), &[&Some(run), &None::<String>])
        })
    }
}
