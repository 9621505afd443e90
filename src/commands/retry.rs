//! `jobctl retry`: makes runs due now.

use clap::Args;

use super::Database;
use super::bulk::{Request, Selection};
use super::trail::Reason;
use crate::exit::Exit;
use crate::job::status::Status;

/// Make failed, dead, cancelled or waiting runs due now
///
/// A run without attempts left gets as many again; its history is kept.
///
///   jobctl retry 3 4
///   jobctl retry --all-dead --job send_weekly_report --since 2h
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All dead runs that are not settled; filters narrow them down
    #[arg(id = "all", long = "all-dead", conflicts_with = "ids")]
    all_dead: bool,
    /// Also take running runs from their workers, whose results then do not count
    #[arg(long, conflicts_with = "all")]
    force: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        if !self.all_dead {
            self.runs.filter.refuse_without("--all-dead")?;
        }
        let store = database.open()?;
        let (from, only): (&[_], _) = match (self.all_dead, self.force) {
            (true, _) => (&[Status::Dead], ""),
            (false, false) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled],
                "only failed, dead, cancelled and queued runs can be retried; running ones with \
                 --force",
            ),
            (false, true) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled, Status::Running],
                "a run that succeeded cannot be retried",
            ),
        };
        let cause = self.reason.cause();
        let request = Request {
            verb: "retry",
            from,
            ask: &|ids| store.retry(ids, from, &cause),
            granted: &|_| "queued",
            why: &|status| match status {
                "succeeded" | "running" => format!("its status is {status}; {only}"),
                _ => "another unfinished run has its key; cancel that run first".to_owned(),
            },
        };
        request.of(self.runs, &store, self.all_dead.then_some("dead"))
    }
}
