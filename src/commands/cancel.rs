//! `jobctl cancel`: stops runs.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::HEADING;
use super::bulk::{BulkRequest, Selection};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::store::Operation;

/// Stop runs: waiting ones at once, running within seconds
///
///   jobctl cancel 3 4
///   jobctl cancel --all-waiting --job send_weekly_report --reason 'wrong month'
///
/// `retry ID` and `retry --all-cancelled` undo it.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All blocked, queued and failed runs, due or not; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids", help_heading = HEADING)]
    all_waiting: bool,
    /// All waiting and running runs; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids", help_heading = HEADING)]
    all: bool,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let (from, word) = if self.all_waiting {
            (Status::that(|status| status.is_waiting()), "waiting")
        } else {
            (Status::that(|status| !status.is_final()), "unfinished")
        };
        let all = if self.all_waiting || self.all { Some(word) } else { None };
        self.runs.check(all.is_some(), "--all-waiting or --all", "cancel")?;
        let store = database.open()?;
        let request = BulkRequest {
            operation: Operation::Cancel,
            from: &from,
            granted_word: &|answer| match answer.status {
                Status::Running => "cancel requested",
                _ => "cancelled",
            },
            why_refused: &|_, status| {
                format!("its status is {status}; only unfinished runs can be cancelled")
            },
        };
        request.of_selection(self.runs, &store, all)
    }
}
