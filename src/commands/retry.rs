//! `jobctl retry`: queues runs again.

use clap::Args;

use super::DatabaseFlags;
use super::bulk::{BulkRequest, Selection};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::store::{Operation, RetryTerms};

/// Make failed, dead, cancelled or waiting runs due now
///
/// If no attempt is left, the run may start as many times again as at first; its
/// history is kept. A cancelled run keeps its time if that is in the future; --now
/// makes it due.
///
/// --all-cancelled leaves out runs that a newer run replaced. It takes runs that
/// expired or were dropped only with --error-type.
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
    /// All runs that an operator cancelled; filters narrow them down
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
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let all = match (self.all_dead, self.all_cancelled) {
            (true, _) => Some(Status::Dead),
            (_, true) => Some(Status::Cancelled),
            _ => None,
        };
        self.runs.check(all.is_some(), "--all-dead or --all-cancelled", "retry")?;
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
        let request = BulkRequest {
            operation: Operation::Retry(terms),
            from,
            granted: &|_| "queued",
            why: &|id, status| {
                if !from.contains(&status) {
                    return format!("its status is {status}; {only}");
                }
                // Many runs are counted together, so their reason names no run.
                let run = all.is_none().then(|| store.show(id, Some(1)).ok().flatten()).flatten();
                match run.and_then(|run| run.run.replaced_by) {
                    Some(newer) => format!("run {newer} replaced it; cancel that run first"),
                    None => "another unfinished run has its key; cancel that run first".to_owned(),
                }
            },
        };
        request.of(self.runs, &store, all.map(Status::as_str))
    }
}
