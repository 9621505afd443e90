//! Holds: claims skip held jobs, queues and workers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::{owned, rows, timestamp};
use super::{Cause, Result, Store, query};
use crate::connect::Client;

/// What a hold applies to.
#[derive(Clone, Debug)]
pub(crate) struct HoldTarget {
    /// `job`, `queue`, `worker` or `all`.
    pub(crate) scope: &'static str,
    /// Empty for the scope `all`.
    pub(crate) name: String,
}

rows! {
    /// A hold that is in force; the fields are named as the columns are.
    #[derive(Serialize)]
    pub(crate) struct Hold {
        pub(crate) scope: String,
        /// Empty for the scope `all`.
        pub(crate) name: String,
        pub(crate) held_at: DateTime<Utc> as "timestamp",
        /// `None`: until it is released.
        pub(crate) held_until: Option<DateTime<Utc>> as "timestamp",
        /// The login.
        pub(crate) recorded_by: String,
        pub(crate) host_user: Option<String>,
        pub(crate) reason: Option<String>,
    }
}

impl Store {
    /// Keeps waiting runs from being claimed, for `lasts` or until they are released. Returns until
    /// when.
    pub(crate) fn hold(
        &self,
        target: HoldTarget,
        lasts: Option<Duration>,
        cause: Cause,
    ) -> Result<Option<DateTime<Utc>>> {
        let (HoldTarget { scope, name }, Cause { host_user, reason }) = (target, cause);
        let lasts = lasts.map(|lasts| lasts.as_secs_f64());
        let arguments = owned![scope, name, lasts, host_user, reason];
        self.query("hold", Client::one, query!("operate/hold"), arguments)
    }

    /// Ends the holds of a target, or all holds. Returns those that were in force.
    pub(crate) fn end_holds(&self, target: HoldTarget, cause: Cause) -> Result<Vec<Hold>> {
        let arguments = owned![target.scope, target.name, cause.host_user, cause.reason];
        self.query("release", Client::list, query!("operate/release"), arguments)
    }

    /// Returns the holds that are in force, the oldest first.
    pub(crate) fn holds(&self) -> Result<Vec<Hold>> {
        self.query("read holds", Client::list, query!("look/list_holds"), owned![])
    }
}
