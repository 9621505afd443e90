//! `jobctl cancel`: stops runs.

use clap::Args;

use super::Database;
use super::bulk::{Request, Selection};
use super::trail::Reason;
use crate::exit::Exit;
use crate::job::status::Status;

/// Stop runs: waiting ones at once, running within seconds
///
///   jobctl cancel 3 4
///   jobctl cancel --all-waiting --job send_weekly_report
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All queued and failed runs, due or not, or those that match the filters
    #[arg(id = "all", long = "all-waiting", conflicts_with = "ids")]
    all_waiting: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        if !self.all_waiting {
            self.runs.filter.refuse_without("--all-waiting")?;
        }
        let store = database.open()?;
        let from: &[_] = match self.all_waiting {
            true => &[Status::Queued, Status::Failed],
            false => &[Status::Queued, Status::Failed, Status::Running],
        };
        let cause = self.reason.cause();
        let request = Request {
            verb: "cancel",
            from,
            ask: &|ids| store.cancel(ids, from, &cause),
            granted: &|status| if status == "running" { "cancel requested" } else { "cancelled" },
            why: &|status| {
                format!(
                    "its status is {status}; only queued, failed and running runs can be cancelled"
                )
            },
        };
        request.of(self.runs, &store, self.all_waiting.then_some("waiting"))
    }
}
