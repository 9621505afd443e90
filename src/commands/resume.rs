//! `jobctl resume`: continues a paused schedule.

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::Database;
use super::trail::Reason;
use crate::exit::{Exit, Fault};
use crate::print::{self, Output, Table};
use crate::schedule::due;
use crate::text::timestamp;

/// Continue a paused schedule from now on
///
/// It skips the times that it missed. It also corrects a stored next time that is
/// too late because a clock was ahead.
///
///   jobctl resume cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The definition's name
    name: String,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Resumed<'a> {
    job_type: &'a str,
    result: &'static str,
    #[serde(with = "timestamp")]
    next_run_at: Option<DateTime<Utc>>,
}

const TABLE: Table<'_> = Table::new("job_type as job, result, next_run_at as next fire", "");

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<()> {
        let store = database.open()?;
        let cause = self.reason.cause();
        loop {
            let definition = super::definition(&store, &self.name)?;
            let schedule = definition.schedule.as_ref().filter(|_| definition.enabled);
            let next = schedule
                .map(|schedule| due::first(schedule, &definition.time_zone, definition.now))
                .transpose()
                .map_err(|why| {
                    Fault::new(Exit::Conflict, format!("cannot resume {}: {why}", self.name))
                })?;
            if let Some(next) = store.resume(definition, next, &cause)? {
                let resumed =
                    Resumed { job_type: &self.name, result: "resumed", next_run_at: next };
                return print::row(self.output, &resumed, &TABLE);
            }
        }
    }
}
