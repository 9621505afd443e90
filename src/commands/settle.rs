//! `jobctl settle`: closes dead runs.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::HEADING;
use super::bulk::{BulkRequest, Selection};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::store::Operation;

/// Close dead runs: keep them, and stop reporting them
///
/// A settled run stays dead in the history. `check`, `status`, `list-dead` and the
/// report leave it out; `list-dead --all` shows it, and `retry ID` runs it again.
///
///   jobctl settle 3 4 --reason 'sent by hand'
///   jobctl settle --all-dead --job send_weekly_report --since 2h
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All dead runs that are not settled; filters narrow them down
    #[arg(id = "All", long = "all-dead", conflicts_with = "ids", help_heading = HEADING)]
    all_dead: bool,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        self.runs.check(self.all_dead, "--all-dead", "settle")?;
        let store = database.open()?;
        let from = &[Status::Dead];
        let request = BulkRequest {
            operation: Operation::Settle,
            from,
            granted_word: &|_| "settled",
            why_refused: &|_, status| {
                format!("its status is {status}; only dead runs can be settled")
            },
        };
        request.of_selection(self.runs, &store, self.all_dead.then_some("dead"))
    }
}
