//! What a tick takes, and gives back: wake, claim, release, leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;
use serde::Serialize;

use super::runs::locked;
use super::{Parameter, Result, Store, collect, query, seconds};
use crate::connect::Client;
use crate::schedule::ZoneData;

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
    /// What it looks for; empty for all queues.
    pub(crate) claiming_queues: Vec<String>,
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
    /// Runs that can be neither claimed nor put off.
    pub(crate) left_out_runs: Vec<i64>,
    pub(crate) lease: Duration,
}

/// What a definition says a run is to do.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) kind: String,
    /// JSON text; the runs of a claim share it.
    pub(crate) action: Arc<str>,
}

/// A queue's priority, and a run of it: the place in the order of claims.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) run_at: DateTime<Utc>,
    pub(crate) id: i64,
}

/// A queue and a priority.
pub(crate) type LaneName = (String, i32);

/// The result of a claim.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Claimed runs, each with a lease.
    pub(crate) claimed: Vec<Claimed>,
    /// More runs are due, but another session has locked their definition.
    pub(crate) passed_over: bool,
    /// The last lane that the claim looked at, if there are more lanes.
    pub(crate) cut: Option<LaneName>,
}

/// How many due runs to take, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) wanted: Wanted,
    pub(crate) at_most: i32,
    /// So many of them can start at once. No run's last attempt is taken ahead of its start.
    pub(crate) at_once: i32,
    /// Bytes of payload; the run that exceeds them is the last.
    pub(crate) bytes: i64,
    /// Only in these lanes, after these runs; `None`: everywhere.
    pub(crate) after: Option<Vec<Lane>>,
    /// Full scan after this lane; `None`: from the first lane.
    pub(crate) behind: Option<LaneName>,
    /// Whether the claim right goes back when fewer are due.
    pub(crate) give_back: bool,
    pub(crate) limits: Limited,
}

impl Claim {
    /// Whether fewer runs than were wanted came of it.
    pub(crate) fn is_short(&self, claimed: &[Claimed]) -> bool {
        claimed.len() < usize::try_from(self.at_most).unwrap_or(0)
    }
}

/// A run in the hands of a tick, with what it takes to execute it and to prove that it is held.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    /// Where it was met; `None` for a run of a limited definition, which is looked up.
    pub(crate) lane: Option<Lane>,
    /// JSON text.
    pub(crate) payload: String,
    /// As it was when the run was claimed; `None` for a built-in job, or when there is none.
    pub(crate) definition: Option<Defined>,
    /// The number of this attempt.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    /// By the database's clock.
    pub(crate) claimed_at: DateTime<Utc>,
    /// Somebody has asked to cancel it while it waited.
    pub(crate) cancel_asked: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: String,
    /// What makes its effects happen once, where no other run has the same.
    pub(crate) key: Option<String>,
    /// RFC 3339.
    pub(crate) scheduled_for: Option<String>,
}

impl Claimed {
    /// Any run, for tests.
    #[cfg(test)]
    pub(crate) fn example(id: i64) -> Self {
        Self {
            id,
            job_type: "shell".to_owned(),
            lane: None,
            payload: String::new(),
            definition: None,
            attempt: 1,
            max_attempts: 1,
            claimed_at: DateTime::UNIX_EPOCH,
            cancel_asked: false,
            timeout: None,
            backoff: String::new(),
            key: None,
            scheduled_for: None,
        }
    }

    pub(crate) fn token(&self) -> Token {
        Token { id: self.id, attempt: self.attempt, claimed_at: self.claimed_at }
    }
}

/// Identifies a claim, even among several claims of the same attempt. Every later write must match
/// it and the worker's name (fencing).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Token {
    pub(crate) id: i64,
    pub(crate) attempt: i32,
    pub(crate) claimed_at: DateTime<Utc>,
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

impl Token {
    /// Returns ids, attempts and times as parameters of a statement.
    pub(super) fn columns(tokens: &[Self]) -> (Vec<i64>, Vec<i32>, Vec<DateTime<Utc>>) {
        tokens.iter().map(|token| (token.id, token.attempt, token.claimed_at)).collect()
    }

    /// Reads the token from a row with columns of the same names.
    ///
    /// # Errors
    /// A column is missing.
    pub(super) fn read(row: &Row) -> std::result::Result<Self, postgres::Error> {
        Ok(Self { id: row.try_get("id")?, attempt: row.try_get("attempt")?, claimed_at: row.try_get("claimed_at")? })
    }
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
        self.session.check_version();
        self.transact("look for due runs", move |client| {
            let lasts = lasts.as_secs_f64();
            let version = ZoneData::current().program_version();
            let parameters: &[Parameter<'_>] = &[
                (&holder.worker, Type::TEXT),
                (&holder.tick, Type::TEXT),
                (&version, Type::TEXT),
                (&lasts, Type::FLOAT8),
                (&keep, Type::BOOL),
                (&queues, Type::TEXT_ARRAY),
            ];
            let row = client.query_typed_one(query!("wake"), parameters)?;
            Ok(Seen {
                claiming_tick: row.try_get("claiming_tick")?,
                claiming_queues: row.try_get("queues")?,
                lost: row.try_get("lost")?,
                fires: row.try_get("fires")?,
                limits: if row.try_get("limited")? { Limited::Yes } else { Limited::No },
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
            let held: i32 = client.query_typed_one(query!("held"), &[(&worker, Type::TEXT)])?.try_get("held")?;
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
                (&wanted.left_out_runs, Type::INT8_ARRAY),
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

    /// Checks that a claim can read all that it needs of these runs.
    ///
    /// # Errors
    /// The database's: `may_be_about_rows` if some of the runs are unreadable.
    pub(crate) fn read(&self, runs: Vec<i64>) -> Result<()> {
        self.transact("read runs", move |client| {
            client.query_typed(query!("read_runs"), &[(&runs, Type::INT8_ARRAY)]).map(|_| ())
        })
    }

    /// Ends an unreadable run; does nothing if the run is not due any more.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn end_unreadable(&self, run: i64, why: String) -> Result<()> {
        self.transact("end a run", move |client| {
            let parameters: &[Parameter<'_>] = &[(&run, Type::INT8), (&why, Type::TEXT)];
            client.query_typed(query!("end_unreadable"), parameters).map(|_| ())
        })
    }

    /// Finds out whether a claim can read these runs and make them running; changes nothing.
    ///
    /// # Errors
    /// The database's: `may_be_about_rows` if some of the runs can't be claimed.
    pub(crate) fn try_claim(&self, worker: &str, runs: Vec<i64>) -> Result<()> {
        let worker = worker.to_owned();
        self.transact("claim runs", move |client| {
            client.query_typed(query!("read_runs"), &[(&runs, Type::INT8_ARRAY)])?;
            client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE")?;
            client.query_typed(query!("try_claim"), &[(&worker, Type::TEXT), (&runs, Type::INT8_ARRAY)])?;
            client.batch_execute("ROLLBACK AND CHAIN")
        })
    }

    /// Lets a run wait that can't be claimed; does nothing where it is not due any more.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn put_off(&self, run: i64, why: String, wait: Duration) -> Result<()> {
        self.transact("put a run off", move |client| {
            let wait = wait.as_secs_f64();
            let parameters: &[Parameter<'_>] = &[(&run, Type::INT8), (&why, Type::TEXT), (&wait, Type::FLOAT8)];
            client.query_typed(query!("put_off"), parameters).map(|_| ())
        })
    }

    /// Gives back claims that were never started, but for the runs that somebody else has locked: these it returns.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn release(&self, worker: &str, unstarted: Vec<Token>) -> Result<Vec<i64>> {
        let worker = worker.to_owned();
        let (ids, attempts, claimed_at) = Token::columns(&unstarted);
        self.transact("give claims back", move |client| {
            let locked = locked(client, &ids)?;
            let parameters: &[Parameter<'_>] = &[
                (&worker, Type::TEXT),
                (&ids, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&claimed_at, Type::TIMESTAMPTZ_ARRAY),
                (&locked, Type::INT8_ARRAY),
            ];
            client.query_typed(query!("release"), parameters).map(|_| locked)
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
}

/// Claims due runs.
///
/// # Errors
/// The database's.
pub(super) fn claim(
    client: &mut Client,
    holder: &Holder,
    claim: &Claim,
) -> std::result::Result<Taken, postgres::Error> {
    /// A column of the lanes.
    macro_rules! column {
        ($of:expr) => {
            claim.after.as_ref().map(|lanes| lanes.iter().map($of).collect::<Vec<_>>())
        };
    }
    let wanted = &claim.wanted;
    let lease = wanted.lease.as_secs_f64();
    let (within_limits, passed_over) = match claim.limits {
        Limited::Yes => within_limits(client, claim)?,
        Limited::No => (Vec::new(), false),
    };
    let parameters: &[Parameter<'_>] = &[
        (&holder.worker, Type::TEXT),
        (&holder.tick, Type::TEXT),
        (&claim.at_most, Type::INT4),
        (&lease, Type::FLOAT8),
        (&wanted.queues, Type::TEXT_ARRAY),
        (&wanted.left_out, Type::TEXT_ARRAY),
        (&wanted.left_out_kinds, Type::TEXT_ARRAY),
        (&within_limits, Type::INT8_ARRAY),
        (&claim.give_back, Type::BOOL),
        (&column!(|lane| lane.queue.as_str()), Type::TEXT_ARRAY),
        (&column!(|lane| lane.priority), Type::INT4_ARRAY),
        (&column!(|lane| lane.run_at), Type::TIMESTAMPTZ_ARRAY),
        (&column!(|lane| lane.id), Type::INT8_ARRAY),
        (&claim.bytes, Type::INT8),
        (&claim.at_once, Type::INT4),
        (&claim.behind.as_ref().map(|(queue, _)| queue), Type::TEXT),
        (&claim.behind.as_ref().map(|(_, priority)| priority), Type::INT4),
        (&wanted.left_out_runs, Type::INT8_ARRAY),
    ];
    let mut rows = client.query_typed(query!("claim"), parameters)?;
    let cut = match rows.first() {
        Some(row) => row.try_get::<_, Option<String>>("cut_queue")?.zip(row.try_get("cut_priority")?),
        None => None,
    };
    // A row without a run only names the last lane.
    if let [row] = rows.as_slice()
        && row.try_get::<_, Option<i64>>("id")?.is_none()
    {
        rows.clear();
    }
    let mut actions: HashMap<String, Arc<str>> = HashMap::new();
    for row in &rows {
        if let Some(action) = row.try_get::<_, Option<&str>>("action")? {
            actions.insert(row.try_get("job_type")?, action.into());
        }
    }
    let claimed = collect(rows, |row| {
        let id = row.try_get("id")?;
        let job_type: String = row.try_get("job_type")?;
        let lane = Lane {
            queue: row.try_get("queue")?,
            priority: row.try_get("priority")?,
            run_at: row.try_get("run_at")?,
            id,
        };
        Ok(Claimed {
            id,
            lane: (!within_limits.contains(&id)).then_some(lane),
            payload: row.try_get("payload")?,
            definition: match (row.try_get("kind")?, actions.get(&job_type)) {
                (Some(kind), Some(action)) => Some(Defined { kind, action: Arc::clone(action) }),
                _ => None,
            },
            job_type,
            attempt: row.try_get("attempts")?,
            max_attempts: row.try_get("max_attempts")?,
            claimed_at: row.try_get("started_at")?,
            cancel_asked: row.try_get("cancel_requested")?,
            timeout: row.try_get::<_, Option<f64>>("timeout")?.map(seconds),
            backoff: row.try_get("backoff")?,
            key: row.try_get("effect_key")?,
            scheduled_for: row.try_get("scheduled_for")?,
        })
    })?;
    Ok(Taken { claimed, passed_over, cut })
}

/// Locks the definitions that limit their runs; returns which of these may be claimed, and whether somebody else has
/// locked a definition.
fn within_limits(client: &mut Client, claim: &Claim) -> std::result::Result<(Vec<i64>, bool), postgres::Error> {
    let Wanted { queues, left_out_runs, .. } = &claim.wanted;
    let due = client.query_typed(query!("lock_limited"), &[(queues, Type::TEXT_ARRAY)])?;
    let due: Vec<(i64, bool)> = collect(due, |row| Ok((row.try_get("id")?, row.try_get("locked")?)))?;
    let locked: Vec<i64> = due.iter().filter(|(_, locked)| *locked).map(|(id, _)| *id).collect();
    let parameters: &[Parameter<'_>] = &[
        (&locked, Type::INT8_ARRAY),
        (queues, Type::TEXT_ARRAY),
        (&claim.at_most, Type::INT4),
        (left_out_runs, Type::INT8_ARRAY),
    ];
    let runs = collect(client.query_typed(query!("within_limits"), parameters)?, |row| row.try_get("id"))?;
    Ok((runs, locked.len() < due.len()))
}
