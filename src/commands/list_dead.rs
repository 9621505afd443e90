//! `jobctl list-dead`: what failed for good, and why.

use clap::Args;

use super::Database;
use super::filter::Filter;
use crate::exit::Exit;
use crate::model::Status;
use crate::print::{self, Cell, Form};

/// List dead runs, the latest death first
///
/// What most of them died of, and which they are:
///
///   jobctl list-dead --group
///   jobctl list-dead --job send_weekly_report --since 1d
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// Count them by job and error type, most frequent first
    #[arg(long)]
    group: bool,
    /// Show at most N
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(1, i64::MAX))]
    limit: Option<i64>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

const NONE: &str = "no dead run matches";

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let form = Form::new(self.json);
        let filter = self.filter.resolve(&store, &[Status::Dead])?;
        if self.group {
            let header = ["job", "error type", "runs", "first died", "last died", "newest", "error"];
            let mut groups = store.group_dead(filter)?;
            groups.truncate(self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
            print::rows_or(NONE, form, &header, &groups, |group| {
                vec![
                    Cell::from(group.job_type.clone()),
                    group.error_type.clone().into(),
                    group.runs.into(),
                    Cell::Since(group.first_died_at, group.now),
                    Cell::Since(group.last_died_at, group.now),
                    group.newest_id.into(),
                    group.last_error.clone().into(),
                ]
            })?;
            return Ok(Exit::Done);
        }
        let header = ["id", "job", "attempts", "died at", "error type", "error"];
        print::rows_or(NONE, form, &header, &store.list_dead(filter, self.limit)?, |run| {
            vec![
                Cell::from(run.id),
                run.job_type.clone().into(),
                Cell::Whole(format!("{}/{}", run.attempts, run.max_attempts)),
                run.finished_at.into(),
                run.error_type.clone().into(),
                run.last_error.clone().into(),
            ]
        })?;
        Ok(Exit::Done)
    }
}
