//! The trail of runs and of definitions, and definitions with the events that stopped them.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::{owned, rows, timestamp};
use super::{Result, Store, query};
use crate::connect::Client;

rows! {
    /// A change that a person asked for; the fields are named as the columns are.
    #[derive(Serialize)]
    pub(crate) struct Event {
        pub(crate) recorded_at: DateTime<Utc> as "timestamp",
        pub(crate) action: String,
        /// The login that made the change.
        pub(crate) recorded_by: String,
        pub(crate) host_user: Option<String>,
        pub(crate) reason: Option<String>,
        pub(crate) detail: Option<String>,
    }

    /// A definition, and why its schedule does not fire.
    #[derive(Serialize)]
    pub(crate) struct StoredDefinition {
        pub(crate) job_type: String,
        /// JSON in the words of the file, including secrets.
        #[serde(skip)]
        pub(crate) keys: String,
        /// `fires`, `paused` or `disabled`; `None`: no schedule, and not disabled.
        pub(crate) state: Option<String>,
        /// The start of the pause, or the time when the definition was disabled if it is known.
        pub(crate) since_at: Option<DateTime<Utc>> as "timestamp",
        /// The user that paused or disabled it.
        pub(crate) changed_by: Option<String>,
        pub(crate) reason: Option<String>,
        #[serde(skip)]
        pub(crate) next_run_at: Option<DateTime<Utc>>,
        pub(crate) skipped_fires: i64,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }
}

impl Store {
    /// Returns the last events of a run, also of a deleted one, the oldest first.
    pub(crate) fn run_events(&self, run: i64) -> Result<Vec<Event>> {
        let arguments = owned![run, None::<String>];
        self.query("read the trail", Client::list, query!("look/list_events"), arguments)
    }

    /// Returns the last events of a definition, also of a removed one, the oldest first.
    pub(crate) fn definition_events(&self, name: String) -> Result<Vec<Event>> {
        let arguments = owned![None::<i64>, name];
        self.query("read the trail", Client::list, query!("look/list_events"), arguments)
    }

    /// Returns all definitions by name, or the definition of that name.
    pub(crate) fn list_definitions(&self, name: Option<String>) -> Result<Vec<StoredDefinition>> {
        self.query("read definitions", Client::list, query!("look/list_definitions"), owned![name])
    }
}
