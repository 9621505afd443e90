//! `jobctl retry`: queues runs again.

use clap::Args;

use super::Database;
use super::bulk::{Request, Selection};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::store::{RetryTerms, RunAction};

/// Make failed, dead, cancelled or waiting runs due now
///
/// If no attempt is left, the run may start as many times again as at first; its
/// history is kept. A cancelled run keeps its time if that is in the future; --now
/// makes it due.
///
///   jobctl retry 3 4
///   jobctl retry --all-dead --job send_weekly_report --since 2h
///   jobctl retry --all-cancelled --since 10m --dry-run
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All dead runs that are not settled; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids")]
    all_dead: bool,
    /// All cancelled runs; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids")]
    all_cancelled: bool,
    /// Make cancelled runs due now, even if their time is still to come
    #[arg(long)]
    now: bool,
    /// Also take running runs from their workers, whose results then do not count
    #[arg(long, conflicts_with = "All")]
    force: bool,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let all = match (self.all_dead, self.all_cancelled) {
            (true, _) => Some(Status::Dead),
            (_, true) => Some(Status::Cancelled),
            _ => None,
        };
        self.runs.check(all.is_some(), "--all-dead or --all-cancelled")?;
        let store = database.open()?;
        let (from, only): (&[_], _) = match (&all, self.force) {
            (Some(status), _) => (std::slice::from_ref(status), ""),
            (None, false) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled],
                "only failed, dead, cancelled and queued runs can be retried; running ones with \
                 --force",
            ),
            (None, true) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled, Status::Running],
                "a run that succeeded cannot be retried",
            ),
        };
        let terms = RetryTerms { cancelled_now: self.now, unsettled: all.is_some() };
        let request = Request {
            action: RunAction::Retry(terms),
            from,
            granted: &|_| "queued",
            why: &|status| match status {
                "succeeded" | "running" => format!("its status is {status}; {only}"),
                _ => "another unfinished run has its key; cancel that run first".to_owned(),
            },
        };
        request.of(self.runs, &store, all.map(Status::as_str))
    }
}
