//! What becomes of the runs that a tick holds, or has lost: heartbeat, finish, recover.

use std::collections::HashMap;
use std::time::Duration;

use postgres::Row;
use postgres::types::Type;

use super::{Parameter, Pending, Result, Store, Token, collect, query};
use crate::connect::Client;
use crate::model::Status;

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

/// The state of a claim's lease after a renewal.
pub(crate) type Renewed = (Token, Held);

/// The status of each run after the results of these claims were recorded.
pub(crate) type Recorded = HashMap<Token, Status>;

/// What an attempt came to, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    pub(crate) token: Token,
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
    /// Renews leases as `heartbeat` does, and waits for the answer.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn renew(&self, worker: &str, held: &[Token], lease: Duration) -> Result<Vec<Renewed>> {
        self.transact("renew leases", renewal(worker, held, lease))
    }

    /// Renews the leases of `held` and returns the state of each. Does not wait: calls `answered`
    /// when the answer is there.
    pub(crate) fn heartbeat(
        &self,
        worker: &str,
        held: &[Token],
        lease: Duration,
        answered: impl FnOnce() + Send + 'static,
    ) -> Pending<Vec<Renewed>> {
        self.send("renew leases", renewal(worker, held, lease), answered)
    }

    /// Notes in the history that an attempt lost its lease, unless that stands there.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn note_lost(
        &self,
        worker: &str,
        claim: Token,
        error: &'static str,
        started_ago: Duration,
    ) -> Result<()> {
        let worker = worker.to_owned();
        self.transact("note a lost lease", move |client| {
            let started_ago = started_ago.as_secs_f64();
            let parameters: &[Parameter<'_>] = &[
                (&worker, Type::TEXT),
                (&claim.id, Type::INT8),
                (&claim.attempt, Type::INT4),
                (&error, Type::TEXT),
                (&started_ago, Type::FLOAT8),
            ];
            client.query_typed(query!("note_lost"), parameters).map(|_| ())
        })
    }

    /// Runs whose lease ran out, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn expired(&self, at_most: usize) -> Result<Vec<Expired>> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
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

/// Renews leases, and answers for each.
fn renewal(
    worker: &str,
    held: &[Token],
    lease: Duration,
) -> impl Fn(&mut Client) -> std::result::Result<Vec<Renewed>, postgres::Error> + Send + 'static {
    let worker = worker.to_owned();
    let (ids, attempts, claimed_at) = Token::columns(held);
    move |client| {
        let lease = lease.as_secs_f64();
        let parameters: &[Parameter<'_>] = &[
            (&worker, Type::TEXT),
            (&ids, Type::INT8_ARRAY),
            (&attempts, Type::INT4_ARRAY),
            (&lease, Type::FLOAT8),
            (&claimed_at, Type::TIMESTAMPTZ_ARRAY),
        ];
        collect(client.query_typed(query!("heartbeat"), parameters)?, |row| {
            let held = match (row.try_get("held")?, row.try_get("renewed")?, row.try_get("cancel_requested")?) {
                (false, ..) => Held::Lost,
                (true, false, _) => Held::Busy,
                (true, true, true) => Held::CancelAsked,
                (true, true, false) => Held::Renewed,
            };
            Ok((Token::read(row)?, held))
        })
    }
}

/// Which of these runs somebody else has locked; the others nobody can lock before the transaction ends.
///
/// # Errors
/// The database's.
pub(super) fn locked(client: &mut Client, runs: &[i64]) -> std::result::Result<Vec<i64>, postgres::Error> {
    collect(client.query_typed(query!("locked"), &[(&runs, Type::INT8_ARRAY)])?, |row| row.try_get("id"))
}

/// Writes what attempts came to, all in one statement. Returns those that are recorded, with the status
/// the run has now; one that is missing lost its lease, and nothing was written.
///
/// # Errors
/// The database's.
pub(super) fn finish(
    client: &mut Client,
    worker: &str,
    ended: &[&Finish],
) -> std::result::Result<Recorded, postgres::Error> {
    /// A column of the batch, in the order of its rows.
    macro_rules! column {
        ($of:expr) => {
            ended.iter().map($of).collect::<Vec<_>>()
        };
    }
    let parameters: &[Parameter<'_>] = &[
        (&worker, Type::TEXT),
        (&column!(|one| one.token.id), Type::INT8_ARRAY),
        (&column!(|one| one.token.attempt), Type::INT4_ARRAY),
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
        (&column!(|one| one.token.claimed_at), Type::TIMESTAMPTZ_ARRAY),
    ];
    let now = client.query_typed(query!("finish"), parameters)?;
    let mut rows = Vec::new();
    if now.len() < ended.len() {
        let again = [0, 1, 2, 3, 5, 7, 8, 17].map(|index| parameters[index].clone());
        rows = client.query_typed(query!("recorded_before"), &again)?;
    }
    // Also what was recorded just now has been recorded before; the later word counts.
    rows.extend(now);
    let read = |row: &Row| {
        let status = Status::parse(row.try_get("status")?).unwrap_or(Status::Dead);
        Ok((Token::read(row)?, status))
    };
    rows.iter().map(read).collect()
}
