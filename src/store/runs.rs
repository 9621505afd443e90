//! What a tick does to runs: wake, claim, heartbeat, finish, release, recover.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;
use serde::Serialize;

use super::{Parameter, Result, Store, collect, query, schema, seconds};
use crate::model::Status;

/// Who asks: a worker name, and which of its ticks.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) worker: String,
    pub(crate) tick: String,
}

/// What a tick finds when it looks.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The tick that has the worker's claim right.
    pub(crate) claiming_tick: Option<String>,
    /// Some run's lease has expired.
    pub(crate) lost: bool,
    /// Some schedule's time has come.
    pub(crate) fires: bool,
    /// Some definition limits how many of its runs go at once.
    pub(crate) limits: Limited,
}

/// Whether a claim has to look at definitions' limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Limited {
    No,
    Yes,
}

/// Which runs a tick takes, and on what terms.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) queues: Vec<String>,
    /// Job types that are left to other hosts.
    pub(crate) left_out: Vec<String>,
    /// Kinds of definitions that are.
    pub(crate) left_out_kinds: Vec<String>,
    pub(crate) lease: Duration,
}

/// What a definition says a run is to do.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) kind: String,
    /// JSON text.
    pub(crate) action: String,
}

/// A queue's priority, and a run of it: the place in the order of claims.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) run_at: DateTime<Utc>,
    pub(crate) id: i64,
}

/// A run in the hands of a tick, with what it takes to execute it and to prove that it is held.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    pub(crate) lane: Lane,
    /// JSON text.
    pub(crate) payload: String,
    /// As it was when the run was claimed; `None` for a built-in job, or when there is none.
    pub(crate) definition: Option<Defined>,
    /// The ordinal of this attempt: with the worker's name, the fence of every later write.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: String,
    pub(crate) key: Option<String>,
    /// RFC 3339.
    pub(crate) scheduled_for: Option<String>,
}

/// A run that a claim would take.
#[derive(Debug, Serialize)]
pub(crate) struct Due {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) run_at: DateTime<Utc>,
    /// The attempt that would be made.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
}

/// What a heartbeat says about one run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Held {
    Renewed,
    /// Renewed, and somebody asked to cancel the run.
    CancelAsked,
    /// Still held, but the row was locked by somebody else: ask again soon.
    Busy,
    Lost,
}

/// What an attempt came to, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    pub(crate) id: i64,
    pub(crate) attempt: i32,
    pub(crate) status: Status,
    pub(crate) wait: Duration,
    pub(crate) outcome: &'static str,
    pub(crate) error_type: Option<&'static str>,
    pub(crate) error: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) http_status: Option<i32>,
    pub(crate) output: Option<String>,
    pub(crate) output_bytes: i64,
    pub(crate) output_truncated: bool,
    pub(crate) started_ago: Duration,
    pub(crate) ended_ago: Duration,
}

/// A run whose lease ran out.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    pub(crate) worker: String,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) backoff: String,
}

impl Store {
    /// Makes sure of the schema's version, reports that the tick is alive and which queues it serves
    /// (none means all), and takes, renews or (where no run waits and `keep` is not wanted) gives back
    /// the claim right, which lasts for `lasts`.
    ///
    /// # Errors
    /// A schema that is older or newer than the program; the database's, as for all functions here.
    pub(crate) fn wake(&self, holder: &Holder, queues: &[String], lasts: Duration, keep: bool) -> Result<Seen> {
        let (holder, queues) = (holder.clone(), queues.to_vec());
        let (version, seen) = self.transact("look for due runs", move |client| {
            let lasts = lasts.as_secs_f64();
            let parameters: &[Parameter<'_>] = &[
                (&holder.worker, Type::TEXT),
                (&holder.tick, Type::TEXT),
                (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                (&lasts, Type::FLOAT8),
                (&keep, Type::BOOL),
                (&schema::newest(), Type::INT4),
                (&queues, Type::TEXT_ARRAY),
            ];
            let row = &client.query_typed(query!("wake"), parameters)?[0];
            let seen = Seen {
                claiming_tick: row.try_get("claiming_tick")?,
                lost: row.try_get("lost")?,
                fires: row.try_get("fires")?,
                limits: if row.try_get("limited")? { Limited::Yes } else { Limited::No },
            };
            Ok((row.try_get("schema_version")?, seen))
        })?;
        schema::check(version).map(|()| seen)
    }

    /// Takes up to `at_most` due runs: after the given ones in their lanes, or, without any, in all. With
    /// `keep` false the claim right goes back when fewer are due.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn claim(
        &self,
        holder: &Holder,
        wanted: &Wanted,
        at_most: i32,
        after: &[Lane],
        keep: bool,
        limits: Limited,
    ) -> Result<Vec<Claimed>> {
        let (holder, wanted, after) = (holder.clone(), wanted.clone(), after.to_vec());
        self.transact("claim runs", move |client| {
            let lease = wanted.lease.as_secs_f64();
            let give_back = !keep;
            let locked: Vec<i64> = match limits {
                Limited::Yes => collect(client.query_typed(query!("lock_limited"), &[])?, |row| row.try_get("id"))?,
                Limited::No => Vec::new(),
            };
            let parameters: &[Parameter<'_>] = &[
                (&holder.worker, Type::TEXT),
                (&holder.tick, Type::TEXT),
                (&at_most, Type::INT4),
                (&lease, Type::FLOAT8),
                (&wanted.queues, Type::TEXT_ARRAY),
                (&wanted.left_out, Type::TEXT_ARRAY),
                (&wanted.left_out_kinds, Type::TEXT_ARRAY),
                (&locked, Type::INT8_ARRAY),
                (&give_back, Type::BOOL),
                (&after.iter().map(|lane| lane.queue.as_str()).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                (&after.iter().map(|lane| lane.priority).collect::<Vec<_>>(), Type::INT4_ARRAY),
                (&after.iter().map(|lane| lane.run_at).collect::<Vec<_>>(), Type::TIMESTAMPTZ_ARRAY),
                (&after.iter().map(|lane| lane.id).collect::<Vec<_>>(), Type::INT8_ARRAY),
            ];
            collect(client.query_typed(query!("claim"), parameters)?, |row| {
                Ok(Claimed {
                    id: row.try_get("id")?,
                    job_type: row.try_get("job_type")?,
                    lane: Lane {
                        queue: row.try_get("queue")?,
                        priority: row.try_get("priority")?,
                        run_at: row.try_get("run_at")?,
                        id: row.try_get("id")?,
                    },
                    payload: row.try_get("payload")?,
                    definition: match (row.try_get("kind")?, row.try_get("action")?) {
                        (Some(kind), Some(action)) => Some(Defined { kind, action }),
                        _ => None,
                    },
                    attempt: row.try_get("attempts")?,
                    max_attempts: row.try_get("max_attempts")?,
                    timeout: row.try_get::<_, Option<f64>>("timeout")?.map(seconds),
                    backoff: row.try_get("backoff")?,
                    key: row.try_get("idempotency_key")?,
                    scheduled_for: row.try_get("scheduled_for")?,
                })
            })
        })
    }

    /// How many runs a worker holds, over all its ticks.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn held(&self, worker: &str) -> Result<usize> {
        let worker = worker.to_owned();
        self.transact("count the worker's runs", move |client| {
            let held: i32 = client.query_typed(query!("held"), &[(&worker, Type::TEXT)])?[0].try_get("held")?;
            Ok(usize::try_from(held).unwrap_or(0))
        })
    }

    /// What `claim` would take; changes nothing.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn preview(&self, wanted: &Wanted, at_most: i64) -> Result<Vec<Due>> {
        let wanted = wanted.clone();
        self.transact("look for due runs", move |client| {
            let parameters: &[Parameter<'_>] = &[
                (&wanted.queues, Type::TEXT_ARRAY),
                (&wanted.left_out, Type::TEXT_ARRAY),
                (&at_most, Type::INT8),
                (&wanted.left_out_kinds, Type::TEXT_ARRAY),
            ];
            collect(client.query_typed(query!("preview"), parameters)?, |row| {
                Ok(Due {
                    id: row.try_get("id")?,
                    job_type: row.try_get("job_type")?,
                    queue: row.try_get("queue")?,
                    priority: row.try_get("priority")?,
                    run_at: row.try_get("run_at")?,
                    attempt: row.try_get("attempt")?,
                    max_attempts: row.try_get("max_attempts")?,
                })
            })
        })
    }

    /// Renews the leases of `held`, pairs of run and attempt; answers for each.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn heartbeat(&self, worker: &str, held: &[(i64, i32)], lease: Duration) -> Result<Vec<(i64, Held)>> {
        let worker = worker.to_owned();
        let (ids, attempts): (Vec<i64>, Vec<i32>) = held.iter().copied().unzip();
        self.transact("renew leases", move |client| {
            let lease = lease.as_secs_f64();
            let parameters: &[Parameter<'_>] = &[
                (&worker, Type::TEXT),
                (&ids, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&lease, Type::FLOAT8),
            ];
            collect(client.query_typed(query!("heartbeat"), parameters)?, |row| {
                let held = match (row.try_get("held")?, row.try_get("renewed")?, row.try_get("cancel_requested")?) {
                    (false, ..) => Held::Lost,
                    (true, false, _) => Held::Busy,
                    (true, true, true) => Held::CancelAsked,
                    (true, true, false) => Held::Renewed,
                };
                Ok((row.try_get("id")?, held))
            })
        })
    }

    /// Writes what attempts came to, all in one statement. Returns those that are recorded, with the
    /// status the run has now; one that is missing lost its lease, and nothing was written.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn finish(&self, worker: &str, ended: Vec<Finish>) -> Result<HashMap<i64, Status>> {
        let worker = worker.to_owned();
        self.transact("record results", move |client| {
            /// A column of the batch, in the order of its rows.
            macro_rules! column {
                ($of:expr) => {
                    ended.iter().map($of).collect::<Vec<_>>()
                };
            }
            let parameters: &[Parameter<'_>] = &[
                (&worker, Type::TEXT),
                (&column!(|one| one.id), Type::INT8_ARRAY),
                (&column!(|one| one.attempt), Type::INT4_ARRAY),
                (&column!(|one| one.status.as_str()), Type::TEXT_ARRAY),
                (&column!(|one| one.wait.as_secs_f64()), Type::FLOAT8_ARRAY),
                (&column!(|one| one.outcome), Type::TEXT_ARRAY),
                (&column!(|one| one.error_type), Type::TEXT_ARRAY),
                (&column!(|one| one.error.as_deref()), Type::TEXT_ARRAY),
                (&column!(|one| one.detail.as_deref()), Type::TEXT_ARRAY),
                (&column!(|one| one.exit_code), Type::INT4_ARRAY),
                (&column!(|one| one.signal), Type::INT4_ARRAY),
                (&column!(|one| one.http_status), Type::INT4_ARRAY),
                (&column!(|one| one.output.as_deref()), Type::TEXT_ARRAY),
                (&column!(|one| one.output_bytes), Type::INT8_ARRAY),
                (&column!(|one| one.output_truncated), Type::BOOL_ARRAY),
                (&column!(|one| one.started_ago.as_secs_f64()), Type::FLOAT8_ARRAY),
                (&column!(|one| one.ended_ago.as_secs_f64()), Type::FLOAT8_ARRAY),
            ];
            let now = client.query_typed(query!("finish"), parameters)?;
            let mut rows = Vec::new();
            if now.len() < ended.len() {
                let again = [0, 1, 2, 3, 5].map(|index| parameters[index].clone());
                rows = client.query_typed(query!("recorded_before"), &again)?;
            }
            // Also what was recorded just now has been recorded before; the later word counts.
            rows.extend(now);
            let read = |row: &Row| {
                let status = Status::parse(row.try_get("status")?).unwrap_or(Status::Dead);
                Ok((row.try_get("run_id")?, status))
            };
            rows.iter().map(read).collect()
        })
    }

    /// Notes in the history that an attempt lost its lease, unless that stands there.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn note_lost(
        &self,
        worker: &str,
        id: i64,
        attempt: i32,
        error: &'static str,
        started_ago: Duration,
    ) -> Result<()> {
        let worker = worker.to_owned();
        self.transact("note a lost lease", move |client| {
            let started_ago = started_ago.as_secs_f64();
            let parameters: &[Parameter<'_>] = &[
                (&worker, Type::TEXT),
                (&id, Type::INT8),
                (&attempt, Type::INT4),
                (&error, Type::TEXT),
                (&started_ago, Type::FLOAT8),
            ];
            client.query_typed(query!("note_lost"), parameters).map(|_| ())
        })
    }

    /// Gives back claims that were never started.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn release(&self, worker: &str, unstarted: &[(i64, i32)]) -> Result<()> {
        let worker = worker.to_owned();
        let (ids, attempts): (Vec<i64>, Vec<i32>) = unstarted.iter().copied().unzip();
        self.transact("give claims back", move |client| {
            let parameters: &[Parameter<'_>] =
                &[(&worker, Type::TEXT), (&ids, Type::INT8_ARRAY), (&attempts, Type::INT4_ARRAY)];
            client.query_typed(query!("release"), parameters).map(|_| ())
        })
    }

    /// Gives a worker's claim right back, if that tick has it.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn leave(&self, worker: &str, tick: &str) -> Result<()> {
        let (worker, tick) = (worker.to_owned(), tick.to_owned());
        self.transact("give the claim right back", move |client| {
            let parameters: &[Parameter<'_>] = &[(&worker, Type::TEXT), (&tick, Type::TEXT)];
            client.query_typed(query!("leave"), parameters).map(|_| ())
        })
    }

    /// Runs whose lease ran out, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn expired(&self, at_most: i64) -> Result<Vec<Expired>> {
        self.transact("look for lost leases", move |client| {
            let parameters: &[Parameter<'_>] = &[(&at_most, Type::INT8)];
            collect(client.query_typed(query!("expired"), parameters)?, |row| {
                Ok(Expired {
                    id: row.try_get("id")?,
                    job_type: row.try_get("job_type")?,
                    worker: row.try_get("locked_by")?,
                    attempt: row.try_get("attempts")?,
                    max_attempts: row.try_get("max_attempts")?,
                    backoff: row.try_get("backoff")?,
                })
            })
        })
    }

    /// Takes expired runs (id, attempt, wait) from their holders; returns what was taken, with its
    /// new status.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn recover(&self, expired: &[(i64, i32, Duration)], error: &'static str) -> Result<Vec<(i64, Status)>> {
        let ids: Vec<_> = expired.iter().map(|(id, ..)| *id).collect();
        let attempts: Vec<_> = expired.iter().map(|(_, attempt, _)| *attempt).collect();
        let waits: Vec<_> = expired.iter().map(|(.., wait)| wait.as_secs_f64()).collect();
        self.transact("recover lost leases", move |client| {
            let parameters: &[Parameter<'_>] = &[
                (&ids, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&waits, Type::FLOAT8_ARRAY),
                (&error, Type::TEXT),
            ];
            collect(client.query_typed(query!("recover"), parameters)?, |row| {
                let status = Status::parse(row.try_get("status")?).unwrap_or(Status::Failed);
                Ok((row.try_get("id")?, status))
            })
        })
    }
}
