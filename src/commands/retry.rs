//! `jobctl retry`: queues runs again.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::HEADING;
use super::bulk::{BulkRequest, Selection};
use crate::exit::{Exit, Fault};
use crate::job::status::Status;
use crate::store::{Operation, RetryTerms};

/// Make failed, dead, cancelled or waiting runs due now
///
/// A run without attempts left gets as many again as it had at first; its history
/// is kept. A cancelled run keeps its time if that is in the future, and waits
/// again for the runs that it waited for; --now makes it due.
///
/// --all-cancelled leaves out runs that a newer run replaced. Add --error-type for
/// runs that expired, were dropped, or waited for a run that did not succeed.
///
/// --again repeats runs that succeeded: those with the ids, or each that matches
/// the filters. A run keeps its payload, its key and its effects, so `once` does
/// not repeat its completed commands; a message counts these effects.
///
///   jobctl retry 3 4
///   jobctl retry --all-dead --job send_weekly_report --since 2h
///   jobctl retry --all-cancelled --since 10m --dry-run
///   jobctl retry --again --job invoice --since 09:00
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All dead runs except those closed by `jobctl settle`; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids", help_heading = HEADING)]
    all_dead: bool,
    /// All runs that an operator cancelled; filters narrow them down
    #[arg(long, group = "All", conflicts_with = "ids", help_heading = HEADING)]
    all_cancelled: bool,
    /// Repeat succeeded runs: also those among the given ids; without ids, only succeeded runs,
    /// each that matches the filters
    #[arg(long, conflicts_with = "All", help_heading = HEADING)]
    again: bool,
    /// Make cancelled runs due now; without it, they keep a future time, and wait again for the
    /// runs that they waited for
    #[arg(long)]
    now: bool,
    /// Also take running runs from their workers; the results of these attempts do not count
    #[arg(long, conflicts_with = "All")]
    force: bool,
    #[command(flatten)]
    runs: Selection,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        // The status of all runs to retry; `None`: the runs are given by their ids.
        let all = if self.all_dead {
            Some(Status::Dead)
        } else if self.all_cancelled {
            Some(Status::Cancelled)
        } else if self.again && self.runs.ids().is_empty() {
            Some(Status::Succeeded)
        } else {
            None
        };
        self.runs.check(all.is_some(), "--all-dead, --all-cancelled or --again", "retry")?;
        if self.force && all.is_some() {
            return Err(Fault::usage("--force needs run ids").into());
        }
        let from: Vec<_> = match all {
            Some(status) => vec![status],
            None => Status::that(|status| self.retries(*status)),
        };
        let store = database.open()?;
        let terms = RetryTerms { cancelled_now: self.now, unsettled: all.is_some() };
        let request = BulkRequest {
            operation: Operation::Retry(terms),
            from: &from,
            granted_word: &|answer| {
                if answer.is_blocked && !self.now { "blocked" } else { "queued" }
            },
            why_refused: &|id, status| {
                if !from.contains(&status) {
                    let flag = if status == Status::Running { "--force" } else { "--again" };
                    return format!("its status is {status}; {flag} retries it");
                }
                // Of all matching runs, those with the same reason are one line, so it names no
                // run.
                let details =
                    if all.is_none() { store.show(id, Some(1)).ok().flatten() } else { None };
                match details.and_then(|details| details.run.replaced_by) {
                    Some(newer) => format!("run {newer} replaced it; cancel that run first"),
                    None => "another unfinished run has its key; cancel that run first".to_owned(),
                }
            },
        };
        request.of_selection(self.runs, &store, all.map(Status::as_str))
    }

    /// Returns whether a run of this status is retried by its id.
    fn retries(&self, status: Status) -> bool {
        match status {
            Status::Blocked
            | Status::Queued
            | Status::Failed
            | Status::Dead
            | Status::Cancelled => true,
            Status::Running => self.force,
            Status::Succeeded => self.again,
        }
    }
}
