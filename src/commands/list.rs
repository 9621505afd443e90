//! `jobctl list`: what happened, and what is to come.

use clap::Args;

use super::Database;
use super::filter::{self, Filter};
use crate::exit::Exit;
use crate::model::Status;
use crate::print::{self, Cell, Form};
use crate::store::{self, Run};

/// List runs, the newest first
///
/// What happened last night, and what went wrong:
///
///   jobctl list --since 12h
///   jobctl list --since 12h --status failed,dead
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only these: queued, running, succeeded, failed, dead, cancelled
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        value_parser = filter::status(),
        hide_possible_values = true,
        help_heading = "Which runs"
    )]
    status: Vec<Status>,
    #[command(flatten)]
    filter: Filter,
    /// Show at most N
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true, value_parser = super::within(1, i64::MAX - 1))]
    limit: i64,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let form = Form::new(self.json);
        // One more than is shown tells whether there are more.
        let mut runs = store.list_runs(self.filter.resolve(&store, &self.status)?, self.limit + 1)?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let header = ["id", "job", "status", "attempts", "created", "ended", "run time", "error"];
        print::rows_or("no run matches", form, &header, &runs, cells)?;
        if has_more {
            print::hint(form, &format!("these are the newest {limit}; --limit shows more"));
        }
        Ok(Exit::Done)
    }
}

fn cells(run: &Run) -> Vec<Cell> {
    vec![
        run.id.into(),
        run.job_type.clone().into(),
        Cell::Status(run.status.clone()),
        Cell::Whole(format!("{}/{}", run.attempts, run.max_attempts)),
        Cell::Since(run.created_at, run.now),
        run.finished_at.map_or(Cell::Nothing, |at| Cell::Since(at, run.now)),
        run.run_seconds.map(store::seconds).into(),
        run.last_error.clone().into(),
    ]
}
