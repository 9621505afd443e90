//! The rows of the tables, as the model of the database has them and as PostgreSQL writes them.

use chrono::{DateTime, Utc};
use cron_zone::Schedule;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::job::action::JobKind;
use crate::job::enqueue::AfterRule;
use crate::job::status::Status;
use crate::store::{FencingToken, Finish};

type Time = DateTime<Utc>;

/// A row of `job_runs`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) id: i64,
    pub(super) definition_id: Option<i64>,
    pub(super) job_type: String,
    pub(super) payload: String,
    pub(super) queue: String,
    pub(super) priority: i32,
    pub(super) run_at: Time,
    pub(super) status: Status,
    pub(super) attempts: i32,
    pub(super) max_attempts: i32,
    pub(super) uncounted_attempts: i32,
    pub(super) snoozed_attempts: i32,
    pub(super) granted_attempts: Option<i32>,
    /// Seconds.
    pub(super) timeout: Option<f64>,
    pub(super) backoff: String,
    #[serde(rename = "idempotency_key")]
    pub(super) key: Option<String>,
    pub(super) key_scope: String,
    pub(super) scheduled_for: Option<Time>,
    pub(super) expires_at: Option<Time>,
    pub(super) share: Option<String>,
    pub(super) lock: Option<String>,
    pub(super) worker: Option<String>,
    pub(super) locked_by: Option<String>,
    pub(super) locked_until: Option<Time>,
    pub(super) cancel_requested_at: Option<Time>,
    pub(super) last_error: Option<String>,
    pub(super) error_type: Option<String>,
    pub(super) failed_at: Option<Time>,
    pub(super) started_at: Option<Time>,
    pub(super) finished_at: Option<Time>,
    pub(super) updated_at: Time,
}

impl Run {
    /// How often it may start.
    pub(super) fn most_attempts(&self) -> i32 {
        self.max_attempts + self.uncounted_attempts
    }

    /// Whether this worker may claim it.
    pub(super) fn is_for(&self, worker: &str) -> bool {
        self.worker.as_deref().is_none_or(|only| only == worker)
    }

    pub(super) fn is_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A row of `job_attempts`, without its output.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Attempt {
    pub(super) worker: String,
    pub(super) started_at: Time,
    pub(super) finished_at: Time,
    pub(super) outcome: String,
    pub(super) error_type: Option<String>,
    pub(super) error: Option<String>,
}

/// The columns of `job_definitions` that come from the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) kind: JobKind,
    pub(super) action: Value,
    pub(super) payload: Value,
    pub(super) schedule: Option<String>,
    pub(super) time_zone: String,
    pub(super) catch_up: String,
    pub(super) overlap: String,
    pub(super) max_running: Option<i32>,
    pub(super) max_attempts: i32,
    pub(super) timeout: Option<f64>,
    pub(super) expires: Option<f64>,
    pub(super) backoff: String,
    pub(super) priority: i32,
    pub(super) queue: String,
    pub(super) spread: f64,
    pub(super) enabled: bool,
    /// The columns that no rule here reads.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// Returns the first time of a schedule after `now`.
pub(super) fn first_fire(schedule: &str, time_zone: &str, now: Time) -> Option<Time> {
    Schedule::parse(schedule, time_zone).and_then(|schedule| schedule.first(now)).ok()
}

/// A row of `job_definitions`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Definition {
    pub(super) id: i64,
    #[serde(flatten)]
    pub(super) spec: Spec,
    pub(super) paused_at: Option<Time>,
    pub(super) next_run_at: Option<Time>,
    pub(super) put_off_until: Option<Time>,
    pub(super) rate_next_at: Option<Time>,
    pub(super) last_share: Option<String>,
    pub(super) skipped_fires: i64,
}

impl Definition {
    /// Whether a fire makes a run for each worker.
    pub(super) fn pins(&self) -> bool {
        self.spec.rest["each_worker"] == true
    }
}

/// A row of `job_workers`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Worker {
    pub(super) last_tick_at: Time,
    pub(super) ticking_since: Time,
    pub(super) queues: Vec<String>,
    /// The tick that has the claim right, and until when.
    pub(super) claiming: Option<(String, Time)>,
}

/// A row of `job_dependencies`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Dependency {
    pub(super) rule: AfterRule,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Open,
    Stuck,
    Due,
    Met,
}

/// A row of `job_locked_runs`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Kept {
    pub(super) claim: FencingToken,
    pub(super) worker: String,
    pub(super) locked_until: Time,
    pub(super) result: Option<Finish>,
    pub(super) written_at: Time,
}

impl Kept {
    /// Whether the run of this claim is not recovered.
    pub(super) fn lasts(&self, now: Time) -> bool {
        self.locked_until > now || self.result.is_some()
    }
}

impl Definition {
    /// How many of its runs may run at once.
    pub(super) fn most_running(&self) -> Option<i32> {
        let of_overlap = (self.spec.overlap == "queue").then_some(1);
        self.spec.max_running.into_iter().chain(of_overlap).min()
    }

    pub(super) fn most_fires(&self) -> i32 {
        match self.spec.catch_up.split_once(':') {
            Some((_, most)) => most.parse().unwrap_or(1),
            None if self.spec.catch_up == "all" => 100,
            None => 1,
        }
    }

    pub(super) fn fires(&self, now: Time) -> bool {
        self.spec.enabled
            && self.paused_at.is_none()
            && self.spec.schedule.is_some()
            && self.next_run_at.is_none_or(|next| next <= now)
            && self.put_off_until.is_none_or(|until| until <= now)
    }
}
