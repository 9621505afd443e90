//! The facts that `doctor` judges. Every query reads only catalogs, statistics or an index.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::row::rows;
use super::statement::query;
use super::status::list_workers;
use super::transaction::Transaction;
use super::{Result, Store, migrations};

rows! {
    /// The session, its server and its settings.
    pub(crate) struct SessionFacts {
        /// The server process that answered.
        pub(crate) pid: i32,
        /// The age of the server process.
        pub(crate) age: Duration,
        pub(crate) server_version: String,
        /// `None` if the server hides it.
        pub(crate) encrypted: Option<bool>,
        pub(crate) tls_version: Option<String>,
        pub(crate) role: String,
        pub(crate) database: String,
        pub(crate) encoding: String,
        pub(crate) time_zone: String,
        pub(crate) standby: bool,
        pub(crate) read_only: bool,
        pub(crate) isolation: String,
        /// `origin`, unless a setting keeps triggers from firing.
        pub(crate) replication_role: String,
        pub(crate) synchronous_commit: String,
        pub(crate) fsync: bool,
        pub(crate) full_page_writes: bool,
        /// Whether autovacuum is on for the whole server.
        pub(crate) autovacuum: bool,
    }

    /// The actions that the current role may perform.
    #[derive(Copy)]
    pub(crate) struct RoleFacts {
        /// Whether the role may use the schema.
        pub(crate) enters: bool,
        pub(crate) enqueues: bool,
        pub(crate) records_effects: bool,
        pub(crate) ticks: bool,
        pub(crate) operates: bool,
        pub(crate) prunes: bool,
        pub(crate) views: bool,
    }

    /// A deviation from the role matrix; names are quoted for SQL.
    pub(crate) struct GrantFacts {
        /// `role`, `member`, `attribute` or `owner`, see doctor/grants.sql.
        pub(crate) kind: String,
        pub(crate) name: String,
        pub(crate) has: Vec<String>,
    }

    /// An object that differs from what the migrations make.
    pub(crate) struct ObjectFacts {
        /// `changed`, `missing`, `foreign`, `hidden` or `event trigger`, see doctor/objects.sql.
        pub(crate) kind: String,
        pub(crate) object: String,
        /// The statement that removes the object; empty for an object of jobctl.
        pub(crate) statement: String,
    }

    /// An index that a migration creates.
    pub(crate) struct IndexFacts {
        pub(crate) name: String,
        /// `None`: the index is missing.
        pub(crate) valid: Option<bool>,
        /// How often a statement used it.
        pub(crate) scans: i64,
        /// An estimate of the number of entries.
        pub(crate) entries: i64,
    }

    /// A table of jobctl.
    pub(crate) struct TableFacts {
        pub(crate) name: String,
        /// The size with indexes and TOAST, as text.
        pub(crate) size: String,
        pub(crate) heap_bytes: i64,
        /// An estimate of its live rows.
        pub(crate) live: i64,
        /// An estimate of its dead rows.
        pub(crate) dead: i64,
        /// `None`: it was never vacuumed.
        pub(crate) vacuumed_ago: Option<Duration>,
        /// Whether autovacuum is off for this table.
        pub(crate) left_alone: bool,
    }

    /// A session, transaction or slot that stops vacuum from removing dead rows.
    pub(crate) struct HolderFacts {
        pub(crate) kind: String,
        pub(crate) name: String,
        pub(crate) state: Option<String>,
        /// Since how long; `None` for a replication slot.
        pub(crate) held_for: Option<Duration>,
        /// How many transactions began since.
        pub(crate) transactions: i32,
    }
}

/// What stops vacuum from removing dead rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotFacts {
    /// Whether the role may see the sessions of other roles.
    pub(crate) sees_all: bool,
    /// The holder of the oldest snapshot first.
    pub(crate) holders: Vec<HolderFacts>,
}

/// The time zone rules of the database and of the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneFacts {
    /// Zone, instant, and UTC offset in seconds; `None` if the database does not know the zone.
    pub(crate) offsets: Vec<(String, DateTime<Utc>, Option<i32>)>,
    /// The name and the version of each worker that ticked within a day.
    pub(crate) workers: Vec<(String, String)>,
}

impl Store {
    /// Returns the facts about the session, its server and its settings.
    pub(crate) fn inspect_session(&self) -> Result<SessionFacts> {
        self.transact("inspect the session", |transaction| {
            // PostgreSQL may hide the details of the session from this role, but not from the
            // login.
            let role: String = transaction.one(query!("doctor/leave_role"))?;
            transaction.one(query!("doctor/session"; role))
        })
    }

    /// Returns what the current role may do.
    pub(crate) fn inspect_role(&self) -> Result<RoleFacts> {
        self.query("inspect the role", Transaction::one, query!("doctor/role"))
    }

    /// Returns the deviations from the role matrix. `matrix` has the GRANT statements of each set,
    /// the viewer's first.
    pub(crate) fn inspect_grants(&self, matrix: Vec<String>) -> Result<Vec<GrantFacts>> {
        self.transact("inspect grants", |transaction| {
            // Otherwise a setting of the role could quote names that need no quotes.
            transaction.execute(query!("schema/plain_texts"))?;
            transaction.list(query!("doctor/grants"; matrix))
        })
    }

    /// Returns the objects that differ from what the migrations make.
    pub(crate) fn inspect_objects(&self) -> Result<Vec<ObjectFacts>> {
        self.transact("inspect objects", |transaction| {
            // The next query compares texts with docs/schema.sql. So PostgreSQL must write names
            // and values as in that file, whatever the settings of the role are.
            transaction.execute(query!("schema/plain_texts"))?;
            transaction.list(query!("doctor/objects"; definitions = migrations::DEFINITIONS))
        })
    }

    /// Returns the indexes that the migrations create, by name.
    pub(crate) fn inspect_indexes(&self) -> Result<Vec<IndexFacts>> {
        let statement = query!("doctor/indexes"; names = migrations::indexes());
        self.query("inspect indexes", Transaction::list, statement)
    }

    /// Returns the tables of jobctl.
    pub(crate) fn inspect_tables(&self) -> Result<Vec<TableFacts>> {
        self.query("inspect tables", Transaction::list, query!("doctor/tables"))
    }

    /// Returns what stops vacuum from removing dead rows.
    pub(crate) fn inspect_snapshots(&self) -> Result<SnapshotFacts> {
        self.transact("inspect snapshots", |transaction| {
            let sees_all = transaction.one(query!("doctor/sees_sessions"))?;
            Ok(SnapshotFacts { sees_all, holders: transaction.list(query!("doctor/snapshots"))? })
        })
    }

    /// Returns the UTC offsets of the `wanted` zones at the `wanted` instants, and the versions of
    /// the workers. Reads nothing if `wanted` is empty.
    pub(crate) fn zone_facts(
        &self,
        wanted: BTreeSet<(String, DateTime<Utc>)>,
    ) -> Result<ZoneFacts> {
        if wanted.is_empty() {
            return Ok(ZoneFacts::default());
        }
        let (zones, instants): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        self.transact("inspect time zones", |transaction| {
            let offsets = transaction.list(query!("doctor/zones"; zones, instants))?;
            let now: DateTime<Utc> = transaction.one(query!("look/now"))?;
            let mut workers = list_workers(transaction, None)?;
            workers.retain(|worker| now - worker.last_tick_at < TimeDelta::days(1));
            let versions = workers.into_iter().map(|worker| (worker.worker, worker.version));
            Ok(ZoneFacts { offsets, workers: versions.collect() })
        })
    }
}
