//! One run: everything that decides when it starts, its history, and what it has printed. Also the
//! events of a run or of a definition.

use chrono::{DateTime, Utc};

use super::row::{self, FromRow, rows, timestamp};
use super::statement::query;
use super::transaction::Transaction;
use super::{Result, Store};
use crate::job::attempt::HistoryOutcome;
use crate::job::status::Status;
use crate::job::thresholds::TICK_OVERDUE;
use crate::text::listing::Listing;

rows! {
    /// How far a run is, see run_states.sql.
    pub(crate) struct RunState {
        pub(crate) id: i64,
        pub(crate) job: String,
        pub(crate) status: Status,
        pub(crate) attempts: i32,
        pub(crate) error_type: Option<String>,
        /// The exit status of the last attempt.
        pub(crate) exit_code: Option<i32>,
        /// The signal that ended the last attempt.
        pub(crate) signal: Option<i32>,
        /// Whether the run can't start, because a run that it waits for is dead, cancelled or
        /// deleted.
        pub(crate) stuck: bool,
    }
}

rows! {
    /// The facts of a run that decide when it starts.
    pub(crate) struct RunDetails {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) queue: String,
        pub(crate) run_at: DateTime<Utc>,
        pub(crate) status: Status,
        pub(crate) attempts: i32,
        pub(crate) max_attempts: i32,
        pub(crate) key_scope: String,
        /// No attempt starts after this time.
        pub(crate) expires_at: Option<DateTime<Utc>>,
        pub(crate) share: Option<String>,
        /// The lock of its definition, or its own.
        pub(crate) lock: Option<String>,
        /// The only worker that may run it.
        pub(crate) only_worker: Option<String>,
        pub(crate) locked_until: Option<DateTime<Utc>>,
        pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
        /// The end of what the running attempt has printed, at the last heartbeat.
        pub(crate) live_output: Option<String>,
        pub(crate) settled_at: Option<DateTime<Utc>>,
        /// Whether the definition has a schedule and is not enabled.
        pub(crate) disabled: bool,
        /// When the definition's schedule was paused.
        pub(crate) paused_at: Option<DateTime<Utc>>,
        /// When the hold began that keeps the run from being claimed.
        pub(crate) held_at: Option<DateTime<Utc>>,
        /// When this hold ends; `None`: when it is released.
        pub(crate) held_until: Option<DateTime<Utc>>,
        pub(crate) held_by: Option<String>,
        /// The held worker, if the hold is of a worker, and no other worker serves the queue.
        pub(crate) held_worker: Option<String>,
        pub(crate) hold_reason: Option<String>,
        /// The limit of simultaneous runs of the definition.
        pub(crate) most_running: Option<i32>,
        pub(crate) max_running_per_share: Option<i32>,
        /// How many runs with its lock may run at once.
        pub(crate) lock_most: Option<i32>,
        /// How many runs with its lock are running.
        pub(crate) running_of_lock: Option<i64>,
        /// The rate of the definition.
        pub(crate) rate: Option<String>,
        /// When the rate lets the next run start.
        pub(crate) allowed_at: Option<DateTime<Utc>>,
        /// The rate of the definition for each share.
        pub(crate) rate_per_share: Option<String>,
        /// When that rate lets the next run of this share start.
        pub(crate) share_allowed_at: Option<DateTime<Utc>>,
        /// The run that lost its key to this one and is still running.
        pub(crate) replaced_run: Option<i64>,
        /// The unfinished run that took the key of this one.
        pub(crate) replaced_by: Option<i64>,
        /// The number of running runs of the job.
        pub(crate) running: i64,
        pub(crate) running_of_share: i64,
        /// The number of due runs of the queue that come first, at most 1,000.
        pub(crate) ahead: i64,
        /// The pace of its queue in the last 10 minutes; `None`: no run ended.
        pub(crate) seconds_a_run: Option<f64>,
        /// The last time that a worker of this queue looked for runs.
        pub(crate) served_at: Option<DateTime<Utc>>,
        /// The number of runs that it was enqueued to wait for.
        pub(crate) predecessors: i32,
        /// How many predecessors have not ended as the run asks.
        pub(crate) unmet: i64,
        /// The statuses of these predecessors.
        pub(crate) unmet_statuses: Option<String>,
        /// The first of these predecessors.
        pub(crate) first_unmet: Option<i64>,
        /// The predecessor that keeps the run from starting, see stuck_predecessor.sql.
        pub(crate) stuck_on: Option<i64>,
        pub(crate) stuck_status: Option<String>,
        /// Whether predecessors have ended as the run asks, and no tick has released or cancelled
        /// the run yet.
        pub(crate) is_released: bool,
        /// Whether its job has ended, but another session has locked the run.
        pub(crate) has_result: bool,
        /// The server process whose transaction has locked the run.
        pub(crate) locker: Option<i32>,
        /// The server process whose transaction has locked its limited definition.
        pub(crate) definition_locker: Option<i32>,
        /// By the database's clock.
        pub(crate) now: DateTime<Utc>,
    }

    /// A finished attempt; the fields are named as the columns are.
    pub(crate) struct Attempt {
        pub(crate) attempt: i32,
        pub(crate) worker: String,
        pub(crate) started_at: DateTime<Utc> as "timestamp",
        pub(crate) finished_at: DateTime<Utc> as "timestamp",
        pub(crate) run_time_seconds: f64,
        pub(crate) outcome: HistoryOutcome,
        pub(crate) error_type: Option<String>,
        pub(crate) error: Option<String>,
        pub(crate) exit_code: Option<i32>,
        pub(crate) signal: Option<i32>,
        pub(crate) http_status: Option<i32>,
        pub(crate) output: Option<String>,
        pub(crate) output_bytes: i64,
        pub(crate) output_truncated: bool,
    }

    /// What a run has printed in its last attempt.
    pub(crate) struct LastOutput {
        pub(crate) id: i64,
        pub(crate) output: Option<String>,
    }

    /// The output of an attempt, as far as the database has it.
    pub(crate) struct StoredOutput {
        /// Whether the attempt is running.
        pub(crate) live: bool,
        /// Whether the run waits for its next attempt.
        pub(crate) waiting: bool,
        /// `None`: there is no such attempt.
        pub(crate) attempt: Option<i32>,
        pub(crate) output: Option<String>,
    }
}

/// A run and its history.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) run: RunDetails,
    /// The run as it is printed.
    pub(crate) fields: Listing,
    /// The payload as JSON text, including secrets, or the reason why it is unreadable.
    pub(crate) payload: std::result::Result<String, String>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) events: Listing,
}

impl Store {
    /// Returns a run and its history. Returns the last `characters` of each output, or if that is
    /// `None`, the whole output. Returns `None` if there is no such run.
    pub(crate) fn show(&self, id: i64, characters: Option<i32>) -> Result<Option<History>> {
        // Read the payload in a transaction of its own: an error about it must not hide the rest.
        let payload = self.transact("read the payload", |transaction| {
            transaction.first::<String>(query!("look/read_payload"; id))
        });
        let payload = match payload {
            Ok(Some(payload)) => Ok(payload),
            Ok(None) => return Ok(None),
            Err(error) if error.may_be_about_rows() => Err(error.to_string()),
            Err(error) => return Err(error),
        };
        let tick_age = TICK_OVERDUE.as_secs_f64();
        self.transact("show a run", |transaction| {
            let rows = transaction.rows(query!("look/show"; id, tick_age))?;
            let Some(row) = rows.first() else { return Ok(None) };
            let (run, fields) = (RunDetails::from_row(row)?, row::listing(&rows, None)?);
            let attempts = transaction.list(query!("look/list_attempts"; id, characters))?;
            let events = transaction
                .listing(query!("look/list_events"; run = Some(id), definition = None::<String>))?;
            Ok(Some(History { run, fields, payload: payload.clone(), attempts, events }))
        })
    }

    /// Returns the output of an attempt: by default of the running one, or else of the last one
    /// that ended. Returns `None` if there is no such run.
    pub(crate) fn output(&self, id: i64, attempt: Option<i32>) -> Result<Option<StoredOutput>> {
        self.query("show an output", Transaction::first, query!("look/output"; id, attempt))
    }

    /// Returns what those of these runs that the login may see have printed in their last attempts.
    pub(crate) fn last_outputs(&self, ids: Vec<i64>) -> Result<Vec<LastOutput>> {
        self.query("read the outputs", Transaction::list, query!("look/results"; ids))
    }

    /// Returns the states of those of these runs that the login may see.
    pub(crate) fn run_states(&self, ids: Vec<i64>) -> Result<Vec<RunState>> {
        self.query("look at runs", Transaction::list, query!("look/run_states"; ids))
    }

    /// Returns the last events of a run or of a definition, the oldest first. Events stay when the
    /// run or the definition is deleted.
    pub(crate) fn list_events(
        &self,
        run: Option<i64>,
        definition: Option<String>,
    ) -> Result<Listing> {
        self.query(
            "read the trail",
            Transaction::listing,
            query!("look/list_events"; run, definition),
        )
    }
}
