//! One run: all that is known about it, what decides when it goes on, and its history.

use chrono::{DateTime, Utc};
use postgres::types::Type;
use serde::Serialize;

use super::{Parameter, Result, Store, collect, query};

/// A run, and what decides when it goes on.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    /// The payload as JSON text, including secrets; or why it is unreadable.
    pub(crate) payload: std::result::Result<String, String>,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) run_at: DateTime<Utc>,
    pub(crate) status: String,
    pub(crate) attempts: i32,
    pub(crate) max_attempts: i32,
    /// The run's own, or its definition's.
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) backoff: String,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) key_scope: String,
    pub(crate) scheduled_for: Option<DateTime<Utc>>,
    pub(crate) locked_by: Option<String>,
    pub(crate) locked_until: Option<DateTime<Utc>>,
    pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
    pub(crate) last_error: Option<String>,
    pub(crate) error_type: Option<String>,
    pub(crate) failed_at: Option<DateTime<Utc>>,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) finished_at: Option<DateTime<Utc>>,
    /// The login that enqueued the run.
    pub(crate) enqueued_by: String,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
    /// Its job is built in, or has a definition.
    pub(crate) defined: bool,
    /// Its definition has a schedule and is not enabled.
    pub(crate) disabled: bool,
    /// Since when its definition's schedule is paused.
    pub(crate) paused_at: Option<DateTime<Utc>>,
    /// How many runs of its definition may go at a time.
    pub(crate) most_running: Option<i32>,
    /// How many do.
    pub(crate) running: i64,
    /// Due runs of its queue that come first, as far as 1,000.
    pub(crate) ahead: i64,
    /// When a worker last looked for runs.
    pub(crate) ticked_at: Option<DateTime<Utc>>,
    /// When one last did that takes runs of this queue.
    pub(crate) served_at: Option<DateTime<Utc>>,
    /// The database's.
    pub(crate) now: DateTime<Utc>,
    pub(crate) history: Vec<Attempt>,
}

/// An attempt that has ended; the fields are named as the columns are.
#[derive(Debug, Serialize)]
pub(crate) struct Attempt {
    pub(crate) attempt: i32,
    pub(crate) worker: String,
    pub(crate) started_at: DateTime<Utc>,
    pub(crate) finished_at: DateTime<Utc>,
    pub(crate) outcome: String,
    pub(crate) error_type: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) http_status: Option<i32>,
    pub(crate) output: Option<String>,
    pub(crate) output_bytes: i64,
    pub(crate) output_truncated: bool,
}

impl Store {
    /// A run and its history, with the last `characters` of each output; `None` for all of it. No
    /// such run: `None`.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn show(&self, id: i64, characters: Option<i32>) -> Result<Option<Shown>> {
        let payload = match self.read_payload(id) {
            Ok(Some(payload)) => Ok(payload),
            Ok(None) => return Ok(None),
            Err(error) if error.may_be_about_rows() => Err(error.to_string()),
            Err(error) => return Err(error),
        };
        self.transact("show a run", move |client| {
            let rows = client.query_typed(query!("show"), &[(&id, Type::INT8)])?;
            let Some(row) = rows.first() else { return Ok(None) };
            let parameters: &[Parameter<'_>] = &[(&id, Type::INT8), (&characters, Type::INT4)];
            let history = collect(client.query_typed(query!("list_attempts"), parameters)?, |row| {
                Ok(Attempt {
                    attempt: row.try_get("attempt")?,
                    worker: row.try_get("worker")?,
                    started_at: row.try_get("started_at")?,
                    finished_at: row.try_get("finished_at")?,
                    outcome: row.try_get("outcome")?,
                    error_type: row.try_get("error_type")?,
                    error: row.try_get("error")?,
                    exit_code: row.try_get("exit_code")?,
                    signal: row.try_get("signal")?,
                    http_status: row.try_get("http_status")?,
                    output: row.try_get("output")?,
                    output_bytes: row.try_get("output_bytes")?,
                    output_truncated: row.try_get("output_truncated")?,
                })
            })?;
            Ok(Some(Shown {
                id: row.try_get("id")?,
                job_type: row.try_get("job_type")?,
                payload: payload.clone(),
                queue: row.try_get("queue")?,
                priority: row.try_get("priority")?,
                run_at: row.try_get("run_at")?,
                status: row.try_get("status")?,
                attempts: row.try_get("attempts")?,
                max_attempts: row.try_get("max_attempts")?,
                timeout_seconds: row.try_get("timeout_seconds")?,
                backoff: row.try_get("backoff")?,
                idempotency_key: row.try_get("idempotency_key")?,
                key_scope: row.try_get("key_scope")?,
                scheduled_for: row.try_get("scheduled_for")?,
                locked_by: row.try_get("locked_by")?,
                locked_until: row.try_get("locked_until")?,
                cancel_requested_at: row.try_get("cancel_requested_at")?,
                last_error: row.try_get("last_error")?,
                error_type: row.try_get("error_type")?,
                failed_at: row.try_get("failed_at")?,
                started_at: row.try_get("started_at")?,
                finished_at: row.try_get("finished_at")?,
                enqueued_by: row.try_get("enqueued_by")?,
                created_at: row.try_get("created_at")?,
                updated_at: row.try_get("updated_at")?,
                defined: row.try_get("defined")?,
                disabled: row.try_get("disabled")?,
                paused_at: row.try_get("paused_at")?,
                most_running: row.try_get("most_running")?,
                running: row.try_get("running")?,
                ahead: row.try_get("ahead")?,
                ticked_at: row.try_get("ticked_at")?,
                served_at: row.try_get("served_at")?,
                now: row.try_get("now")?,
                history,
            }))
        })
    }

    /// Reads the payload in its own transaction, so that an unreadable payload does not hide the
    /// rest. `None`: no such run.
    fn read_payload(&self, id: i64) -> Result<Option<String>> {
        self.transact("read the payload", move |client| {
            let rows = client.query_typed(query!("read_payload"), &[(&id, Type::INT8)])?;
            rows.first().map(|row| row.try_get("payload")).transpose()
        })
    }

    /// What an attempt printed (the last that has ended, where none is named). No such run: `None`;
    /// no such attempt: `Some(None)`.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn output(&self, id: i64, attempt: Option<i32>) -> Result<Option<Option<String>>> {
        self.transact("show an output", move |client| {
            let parameters: &[Parameter<'_>] = &[(&id, Type::INT8), (&attempt, Type::INT4)];
            let rows = client.query_typed(query!("output"), parameters)?;
            let Some(row) = rows.first() else { return Ok(None) };
            let found: Option<i32> = row.try_get("attempt")?;
            let output: Option<String> = row.try_get("output")?;
            Ok(Some(found.map(|_| output.unwrap_or_default())))
        })
    }
}
