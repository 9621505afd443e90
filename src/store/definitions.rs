//! Definitions and their schedules: apply, fire, pause, resume.

use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use postgres::types::Type;
use serde_json::Value;

use super::{Error, Kind, Parameter, Result, Store, collect, query};
use crate::exit::Exit;

/// A schedule whose next nominal time has come.
#[derive(Clone, Debug)]
pub(crate) struct DueSchedule {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) catch_up: String,
    /// The number of nominal times that one fire may queue.
    pub(crate) most_fires: i32,
    /// Seconds.
    pub(crate) spread: f64,
    /// The nominal time that has come; `None`: the next one is not known.
    pub(crate) seen: Option<DateTime<Utc>>,
    /// The database's now.
    pub(crate) now: DateTime<Utc>,
}

/// What a due schedule comes to.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: i64,
    pub(crate) seen: Option<DateTime<Utc>>,
    /// The times were computed from this schedule; if it has changed since, nothing is fired.
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    /// `None`: it never fires again.
    pub(crate) next: Option<DateTime<Utc>>,
    /// Nominal times to queue runs for.
    pub(crate) times: Vec<DateTime<Utc>>,
    /// Nominal times that are not made up for.
    pub(crate) missed: i64,
    /// Seconds after a nominal time at which its run is due.
    pub(crate) delay: f64,
    /// It can't be fired: nobody looks before then.
    pub(crate) put_off_until: Option<DateTime<Utc>>,
}

/// A definition's schedule, as `next` and `resume` need it.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    pub(crate) name: String,
    pub(crate) schedule: Option<String>,
    pub(crate) time_zone: String,
    pub(crate) enabled: bool,
    pub(crate) paused_at: Option<DateTime<Utc>>,
    pub(crate) next_run_at: Option<DateTime<Utc>>,
    /// Nominal times that were left out.
    pub(crate) skipped_fires: i64,
    /// The database's now.
    pub(crate) now: DateTime<Utc>,
}

/// What becomes of definitions that the file does not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Others {
    Disable,
    Remove,
}

/// Whether `apply` means it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Change,
    OnlyLook,
}

/// What `apply` changed: JSON of the rows.
#[derive(Debug)]
pub(crate) struct Applied {
    /// Name, row before (`None`: added), row after.
    pub(crate) changed: Vec<(String, Option<Value>, Value)>,
    /// Disabled or removed.
    pub(crate) others: Vec<String>,
}

/// How long one that applies waits for the others: well within what a transaction may take.
const APPLY_PATIENCE: Duration = Duration::from_secs(5);
/// Schedules fired per statement.
pub(crate) const FIRED_AT_ONCE: i64 = 500;

impl Store {
    /// Makes the definitions what `rows` yields for the database's now, in one transaction, one after the other where
    /// several apply. What is due is to be fired before.
    ///
    /// # Errors
    /// The database's, or others apply for too long.
    pub(crate) fn apply(
        &self,
        names: Vec<String>,
        rows: impl Fn(DateTime<Utc>) -> Value + Send + 'static,
        others: Others,
        purpose: Purpose,
    ) -> Result<Applied> {
        let applied = self.transact("apply definitions", move |client| {
            let asked = Instant::now();
            while !client.query_typed_one(query!("lock_definitions"), &[])?.try_get::<_, bool>("locked")? {
                if asked.elapsed() > APPLY_PATIENCE {
                    return Ok(None);
                }
                thread::sleep(Duration::from_millis(rand::random_range(20..80)));
            }
            let now = client.query_typed_one(query!("now"), &[])?.try_get("now")?;
            let changed = collect(client.query_typed(query!("apply"), &[(&rows(now), Type::JSONB)])?, |row| {
                let json = |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
                Ok((
                    row.try_get("name")?,
                    json(row.try_get("before")?),
                    json(row.try_get("after")?).unwrap_or_default(),
                ))
            })?;
            let statement = match others {
                Others::Disable => query!("disable_others"),
                Others::Remove => query!("remove_others"),
            };
            let others =
                collect(client.query_typed(statement, &[(&names, Type::TEXT_ARRAY)])?, |row| row.try_get("name"))?;
            if purpose == Purpose::OnlyLook {
                client.batch_execute("ROLLBACK AND CHAIN")?;
            }
            Ok(Some(Applied { changed, others }))
        })?;
        let busy = "cannot apply definitions: another apply is at work; try again";
        applied.ok_or_else(|| Error::new(Kind::Busy, Exit::Unavailable, busy))
    }

    /// The database's now.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn now(&self) -> Result<DateTime<Utc>> {
        self.transact("read the clock", |client| client.query_typed_one(query!("now"), &[])?.try_get("now"))
    }

    /// Schedules whose time has come, oldest first, `FIRED_AT_ONCE` at most.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn due_schedules(&self) -> Result<Vec<DueSchedule>> {
        self.transact("look for due schedules", |client| {
            collect(client.query_typed(query!("due_schedules"), &[(&FIRED_AT_ONCE, Type::INT8)])?, |row| {
                Ok(DueSchedule {
                    id: row.try_get("id")?,
                    name: row.try_get("name")?,
                    schedule: row.try_get("schedule")?,
                    time_zone: row.try_get("time_zone")?,
                    catch_up: row.try_get("catch_up")?,
                    most_fires: row.try_get("most_fires")?,
                    spread: row.try_get("spread")?,
                    seen: row.try_get("next_run_at")?,
                    now: row.try_get("now")?,
                })
            })
        })
    }

    /// Fires schedules. Returns the queued runs of each, by id. Leaves out schedules that another
    /// tick fired first and schedules that have changed since they were read.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn fire(&self, fires: Vec<Planned>) -> Result<Vec<(i64, Vec<i64>)>> {
        self.transact("fire schedules", move |client| {
            let times = || fires.iter().flat_map(|fire| fire.times.iter().map(|time| (fire.id, *time)));
            let (ids, nominal): (Vec<i64>, Vec<DateTime<Utc>>) = times().unzip();
            /// A column of the schedules, in the order of their rows.
            macro_rules! column {
                ($of:expr) => {
                    fires.iter().map($of).collect::<Vec<_>>()
                };
            }
            let parameters: &[Parameter<'_>] = &[
                (&column!(|fire| fire.id), Type::INT8_ARRAY),
                (&column!(|fire| fire.seen), Type::TIMESTAMPTZ_ARRAY),
                (&column!(|fire| fire.next), Type::TIMESTAMPTZ_ARRAY),
                (&column!(|fire| fire.delay), Type::FLOAT8_ARRAY),
                (&column!(|fire| fire.missed), Type::INT8_ARRAY),
                (&ids, Type::INT8_ARRAY),
                (&nominal, Type::TIMESTAMPTZ_ARRAY),
                (&column!(|fire| fire.put_off_until), Type::TIMESTAMPTZ_ARRAY),
                (&column!(|fire| fire.schedule.as_str()), Type::TEXT_ARRAY),
                (&column!(|fire| fire.time_zone.as_str()), Type::TEXT_ARRAY),
            ];
            let rows = client.query_typed(query!("fire"), parameters)?;
            let fired = rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get::<_, Option<Vec<i64>>>("runs")?)));
            let fired = fired.collect::<std::result::Result<Vec<_>, postgres::Error>>()?;
            Ok(fired.into_iter().filter_map(|(id, runs)| Some((id, runs?))).collect())
        })
    }

    /// All definitions by name, or the one of that name.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn list_schedules(&self, name: Option<String>) -> Result<Vec<Scheduled>> {
        self.transact("read definitions", move |client| {
            collect(client.query_typed(query!("list_schedules"), &[(&name, Type::TEXT)])?, |row| {
                Ok(Scheduled {
                    name: row.try_get("name")?,
                    schedule: row.try_get("schedule")?,
                    time_zone: row.try_get("time_zone")?,
                    enabled: row.try_get("enabled")?,
                    paused_at: row.try_get("paused_at")?,
                    next_run_at: row.try_get("next_run_at")?,
                    skipped_fires: row.try_get("skipped_fires")?,
                    now: row.try_get("now")?,
                })
            })
        })
    }

    /// Pauses a schedule; `None`: no such definition, else whether it has a schedule.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn pause(&self, name: String) -> Result<Option<bool>> {
        self.transact("pause a schedule", move |client| {
            let rows = client.query_typed(query!("pause"), &[(&name, Type::TEXT)])?;
            rows.first().map(|row| row.try_get("has_schedule")).transpose()
        })
    }

    /// Resumes a schedule, with `next` as its next nominal time if it was paused, and returns when it fires next;
    /// `None`: the definition is not any more what `scheduled` says.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn resume(
        &self,
        scheduled: Scheduled,
        next: Option<DateTime<Utc>>,
    ) -> Result<Option<Option<DateTime<Utc>>>> {
        self.transact("resume a schedule", move |client| {
            let parameters: &[Parameter<'_>] = &[
                (&scheduled.name, Type::TEXT),
                (&next, Type::TIMESTAMPTZ),
                (&scheduled.schedule, Type::TEXT),
                (&scheduled.time_zone, Type::TEXT),
            ];
            let rows = client.query_typed(query!("resume"), parameters)?;
            rows.first().map(|row| row.try_get("next_run_at")).transpose()
        })
    }
}
