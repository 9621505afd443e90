//! `jobctl jobs`: the definitions.

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Database;
use crate::job::definition_keys;
use crate::print::{self, Output, Table};
use crate::store::StoredDefinition;
use crate::text::timestamp;

/// List definitions: what they run, and which are paused
///
///   jobctl jobs
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Job {
    job_type: String,
    /// Without secrets.
    executes: String,
    schedule: Option<String>,
    time_zone: Option<String>,
    queue: Option<String>,
    max_running: Option<i64>,
    max_attempts: Option<i64>,
    timeout_seconds: Option<f64>,
    state: Option<String>,
    #[serde(with = "timestamp")]
    since_at: Option<DateTime<Utc>>,
    changed_by: Option<String>,
    reason: Option<String>,
    #[serde(with = "timestamp")]
    next_run_at: Option<DateTime<Utc>>,
}

const TABLE: Table<'_> = Table::new(
    "job_type as job, executes as runs, schedule, next_run_at|state as next, since_at as since, \
     changed_by as by, queue, timeout_seconds as timeout",
    "no definition; `jobctl apply` adds those of a file",
);

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<()> {
        let definitions = database.open()?.list_definitions(None)?;
        let now = definitions.first().map(|definition| definition.now);
        let jobs: Vec<_> = definitions.into_iter().map(Job::from).collect();
        print::rows(self.output, &jobs, &TABLE.since(now))
    }
}

impl From<StoredDefinition> for Job {
    fn from(definition: StoredDefinition) -> Self {
        let keys: Value = serde_json::from_str(&definition.keys).unwrap_or_default();
        let text = |key: &str| keys[key].as_str().map(str::to_owned);
        Self {
            job_type: definition.job_type,
            executes: definition_keys::summary(&keys),
            schedule: text("schedule"),
            time_zone: text("time_zone").filter(|_| !keys["schedule"].is_null()),
            queue: text("queue"),
            max_running: keys["max_running"].as_i64(),
            max_attempts: keys["max_attempts"].as_i64(),
            timeout_seconds: keys.get("timeout").and_then(Value::as_f64),
            state: definition.state,
            since_at: definition.since_at,
            changed_by: definition.changed_by,
            reason: definition.reason,
            next_run_at: definition.next_run_at,
        }
    }
}
