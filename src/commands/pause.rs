//! `jobctl pause`: stops a schedule.

use clap::Args;
use serde::Serialize;

use super::Database;
use super::trail::Reason;
use crate::print::{self, Output, Table};

/// Stop a definition's schedule until it is resumed
///
/// Waiting runs still run, and the job can still be enqueued.
///
///   jobctl pause cleanup_nightly
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
struct Paused<'a> {
    job_type: &'a str,
    result: &'static str,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<()> {
        let store = database.open()?;
        match store.pause(self.name.clone(), self.reason.cause())? {
            Some(has_schedule) => {
                if !has_schedule {
                    print::complain(&format!(
                        "`{}` has no schedule yet; the pause has no effect until it has one",
                        self.name
                    ));
                }
                let paused = Paused { job_type: &self.name, result: "paused" };
                let table = Table::new("job_type as job, result", "");
                print::row(self.output, &paused, &table)
            }
            None => Err(super::no_definition(&store, &self.name).into()),
        }
    }
}
