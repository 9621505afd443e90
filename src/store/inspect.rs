//! The facts that `doctor` judges. None of them needs more than a look at the catalogs, the statistics
//! or an index.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use postgres::types::Type;

use super::status::list_workers;
use super::{Parameter, Result, Store, collect, query, schema, seconds};

/// What kind of session a connection got.
#[derive(Clone, Debug)]
pub(crate) struct SessionFacts {
    /// Of the server process that answered this time.
    pub(crate) pid: i32,
    /// Since that process was started.
    pub(crate) age: Duration,
    pub(crate) server_version: String,
    /// `None` where the server does not say.
    pub(crate) encrypted: Option<bool>,
    pub(crate) tls_version: Option<String>,
    pub(crate) role: String,
    pub(crate) database: String,
    pub(crate) encoding: String,
    pub(crate) time_zone: String,
    pub(crate) standby: bool,
    pub(crate) read_only: bool,
    pub(crate) isolation: String,
    pub(crate) synchronous_commit: String,
    pub(crate) fsync: bool,
    pub(crate) full_page_writes: bool,
    /// Whether the server vacuums by itself at all.
    pub(crate) autovacuum: bool,
}

/// What the current role may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoleFacts {
    pub(crate) enters: bool,
    pub(crate) enqueues: bool,
    pub(crate) records_effects: bool,
    pub(crate) ticks: bool,
    pub(crate) operates: bool,
    pub(crate) prunes: bool,
    pub(crate) views: bool,
}

/// A deviation from the role matrix; names are quoted for SQL.
#[derive(Clone, Debug)]
pub(crate) struct GrantFacts {
    /// `role`, `member`, `trigger`, `rule` or `unseen`, see inspect_grants.sql.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) has: Vec<String>,
}

/// An index that a migration creates.
#[derive(Clone, Debug)]
pub(crate) struct IndexFacts {
    pub(crate) name: String,
    /// `None`: it is missing.
    pub(crate) valid: Option<bool>,
    pub(crate) scans: i64,
    /// An estimate.
    pub(crate) entries: i64,
}

/// A sequence that would return ids that its table already has.
#[derive(Clone, Debug)]
pub(crate) struct SequenceFacts {
    pub(crate) name: String,
    /// The statement that corrects it.
    pub(crate) setval: String,
}

#[derive(Clone, Debug)]
pub(crate) struct TableFacts {
    pub(crate) name: String,
    /// With its indexes and what is stored out of line, in words.
    pub(crate) size: String,
    pub(crate) heap_bytes: i64,
    /// Estimates, both.
    pub(crate) live: i64,
    pub(crate) dead: i64,
    /// `None`: never.
    pub(crate) vacuumed_ago: Option<Duration>,
    /// Whether autovacuum is told to leave it alone.
    pub(crate) left_alone: bool,
}

/// Who keeps dead rows from being taken away.
#[derive(Clone, Debug)]
pub(crate) struct HolderFacts {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) state: Option<String>,
    /// `None` for a slot, which does not say.
    pub(crate) held_for: Option<Duration>,
    /// Begun since.
    pub(crate) transactions: i32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotFacts {
    /// Whether the role may see what others' sessions hold.
    pub(crate) sees_all: bool,
    /// The oldest horizon first.
    pub(crate) holders: Vec<HolderFacts>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunFacts {
    pub(crate) dead: i64,
    /// Runs whose lease has expired, and since when the first.
    pub(crate) lost: i64,
    pub(crate) lost_for: Option<Duration>,
    /// Schedules whose time has come, and since when the first.
    pub(crate) late_schedules: Vec<String>,
    pub(crate) late_for: Option<Duration>,
    /// Who ticked last, and when; `None`: nobody ever did.
    pub(crate) ticked: Option<(String, Duration)>,
}

/// Waiting runs of one job in one queue.
#[derive(Clone, Debug)]
pub(crate) struct WaitingFacts {
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) runs: i64,
    /// Of these.
    pub(crate) overdue: i64,
    pub(crate) defined: bool,
    pub(crate) served: bool,
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
    /// # Errors
    /// The database's, as of all of these.
    pub(crate) fn inspect_session(&self) -> Result<SessionFacts> {
        self.transact("inspect the session", |client| {
            let row = client.query_typed_one(query!("inspect_session"), &[])?;
            Ok(SessionFacts {
                pid: row.try_get("pid")?,
                age: seconds(row.try_get("age")?),
                server_version: row.try_get("server_version")?,
                encrypted: row.try_get("encrypted")?,
                tls_version: row.try_get("tls_version")?,
                role: row.try_get("role")?,
                database: row.try_get("database")?,
                encoding: row.try_get("encoding")?,
                time_zone: row.try_get("time_zone")?,
                standby: row.try_get("standby")?,
                read_only: row.try_get("read_only")?,
                isolation: row.try_get("isolation")?,
                synchronous_commit: row.try_get("synchronous_commit")?,
                fsync: row.try_get("fsync")?,
                full_page_writes: row.try_get("full_page_writes")?,
                autovacuum: row.try_get("autovacuum")?,
            })
        })
    }

    pub(crate) fn inspect_role(&self) -> Result<RoleFacts> {
        self.transact("inspect the role", |client| {
            let row = client.query_typed_one(query!("inspect_role"), &[])?;
            Ok(RoleFacts {
                enters: row.try_get("enters")?,
                enqueues: row.try_get("enqueues")?,
                records_effects: row.try_get("records_effects")?,
                ticks: row.try_get("ticks")?,
                operates: row.try_get("operates")?,
                prunes: row.try_get("prunes")?,
                views: row.try_get("views")?,
            })
        })
    }

    /// Returns deviations from the role matrix of these GRANT statements.
    pub(crate) fn inspect_grants(&self, matrix: String) -> Result<Vec<GrantFacts>> {
        self.transact("inspect grants", move |client| {
            collect(client.query_typed(query!("inspect_grants"), &[(&matrix, Type::TEXT)])?, |row| {
                Ok(GrantFacts { kind: row.try_get("kind")?, name: row.try_get("name")?, has: row.try_get("has")? })
            })
        })
    }

    /// The indexes that the migrations create, by name.
    pub(crate) fn inspect_indexes(&self) -> Result<Vec<IndexFacts>> {
        self.transact("inspect indexes", |client| {
            let parameters: &[Parameter<'_>] = &[(&schema::indexes(), Type::TEXT_ARRAY)];
            collect(client.query_typed(query!("inspect_indexes"), parameters)?, |row| {
                Ok(IndexFacts {
                    name: row.try_get("name")?,
                    valid: row.try_get("valid")?,
                    scans: row.try_get("scans")?,
                    entries: row.try_get("entries")?,
                })
            })
        })
    }

    /// Returns the sequences that are behind their tables.
    pub(crate) fn inspect_sequences(&self) -> Result<Vec<SequenceFacts>> {
        self.transact("inspect sequences", |client| {
            collect(client.query_typed(query!("inspect_sequences"), &[])?, |row| {
                Ok(SequenceFacts { name: row.try_get("name")?, setval: row.try_get("setval")? })
            })
        })
    }

    pub(crate) fn inspect_tables(&self) -> Result<Vec<TableFacts>> {
        self.transact("inspect tables", |client| {
            collect(client.query_typed(query!("inspect_tables"), &[])?, |row| {
                Ok(TableFacts {
                    name: row.try_get("name")?,
                    size: row.try_get("size")?,
                    heap_bytes: row.try_get("heap_bytes")?,
                    live: row.try_get("live")?,
                    dead: row.try_get("dead")?,
                    vacuumed_ago: row.try_get::<_, Option<f64>>("vacuumed_ago")?.map(seconds),
                    left_alone: row.try_get("left_alone")?,
                })
            })
        })
    }

    pub(crate) fn inspect_snapshots(&self) -> Result<SnapshotFacts> {
        self.transact("inspect snapshots", |client| {
            let mut facts = SnapshotFacts::default();
            for row in client.query_typed(query!("inspect_snapshots"), &[])? {
                facts.sees_all = row.try_get("sees_all")?;
                if let Some(kind) = row.try_get("kind")? {
                    facts.holders.push(HolderFacts {
                        kind,
                        name: row.try_get("name")?,
                        state: row.try_get("state")?,
                        held_for: row.try_get::<_, Option<f64>>("held_for")?.map(seconds),
                        transactions: row.try_get("transactions")?,
                    });
                }
            }
            Ok(facts)
        })
    }

    /// Returns the UTC offsets of zones at instants; reads nothing if `wanted` is empty.
    pub(crate) fn inspect_zones(&self, wanted: BTreeSet<(String, DateTime<Utc>)>) -> Result<ZoneFacts> {
        if wanted.is_empty() {
            return Ok(ZoneFacts::default());
        }
        self.transact("inspect time zones", move |client| {
            let (zones, instants): (Vec<_>, Vec<_>) = wanted.iter().cloned().unzip();
            let parameters: &[Parameter<'_>] = &[(&zones, Type::TEXT_ARRAY), (&instants, Type::TIMESTAMPTZ_ARRAY)];
            let offsets = collect(client.query_typed(query!("inspect_zones"), parameters)?, |row| {
                Ok((row.try_get("zone")?, row.try_get("instant")?, row.try_get("utc_offset")?))
            })?;
            let now: DateTime<Utc> = client.query_typed_one(query!("now"), &[])?.try_get("now")?;
            let workers = list_workers(client, None)?.into_iter();
            let recent = workers.filter(|worker| now - worker.last_tick_at < TimeDelta::days(1));
            let workers = recent.map(|worker| (worker.worker, worker.version)).collect();
            Ok(ZoneFacts { offsets, workers })
        })
    }

    pub(crate) fn inspect_runs(&self) -> Result<RunFacts> {
        self.transact("inspect runs", |client| {
            let row = client.query_typed_one(query!("inspect_runs"), &[])?;
            let length = |column| row.try_get::<_, Option<f64>>(column).map(|length| length.map(seconds));
            Ok(RunFacts {
                dead: row.try_get("dead")?,
                lost: row.try_get("lost")?,
                lost_for: length("lost_for")?,
                late_schedules: row.try_get("late_schedules")?,
                late_for: length("late_for")?,
                ticked: row.try_get::<_, Option<String>>("worker")?.zip(length("ticked_ago")?),
            })
        })
    }

    /// What waits, by job and queue. A worker counts for as long as `recent` after its last tick, and
    /// what is due for longer is overdue.
    pub(crate) fn inspect_waiting(&self, recent: Duration) -> Result<Vec<WaitingFacts>> {
        self.transact("inspect waiting runs", move |client| {
            let parameters: &[Parameter<'_>] = &[(&recent.as_secs_f64(), Type::FLOAT8)];
            collect(client.query_typed(query!("inspect_waiting"), parameters)?, |row| {
                Ok(WaitingFacts {
                    job_type: row.try_get("job_type")?,
                    queue: row.try_get("queue")?,
                    runs: row.try_get("runs")?,
                    overdue: row.try_get("overdue")?,
                    defined: row.try_get("defined")?,
                    served: row.try_get("served")?,
                })
            })
        })
    }
}
