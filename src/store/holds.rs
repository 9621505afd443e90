//! Holds: claims skip held jobs, queues and workers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::rows;
use super::{Cause, Result, Store, query};
use crate::text::timestamp;

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
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct Hold {
        pub(crate) scope: String,
        /// Empty for the scope `all`.
        pub(crate) name: String,
        #[serde(with = "timestamp")]
        pub(crate) held_at: DateTime<Utc>,
        /// `None`: until it is released.
        #[serde(with = "timestamp")]
        pub(crate) held_until: Option<DateTime<Utc>>,
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
        let lasts = lasts.map(|lasts| lasts.as_secs_f64());
        self.transact("hold", move |client| {
            let Cause { host_user, reason } = &cause;
            client.one(
                query!("operate/hold"),
                &[&target.scope, &target.name, &lasts, host_user, reason],
            )
        })
    }

    /// Ends the holds of a target, or all holds. Returns those that were in force.
    pub(crate) fn end_holds(&self, target: HoldTarget, cause: Cause) -> Result<Vec<Hold>> {
        self.transact("release", move |client| {
            let Cause { host_user, reason } = &cause;
            client
                .list(query!("operate/release"), &[&target.scope, &target.name, host_user, reason])
        })
    }

    /// Returns the holds that are in force, the oldest first.
    pub(crate) fn holds(&self) -> Result<Vec<Hold>> {
        self.transact("read holds", |client| client.list(query!("look/list_holds"), &[]))
    }
}
