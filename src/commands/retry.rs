//! `jobctl retry`: makes runs due now.

use clap::Args;

use super::Database;
use super::filter::Filter;
use super::verdicts::{self, Request};
use crate::exit::Exit;
use crate::model::Status;
use crate::print::Form;

/// Make failed, dead, cancelled or waiting runs due now
///
/// Attempts that are used up are granted once more; the history stays.
///
///   jobctl retry 3 4
///   jobctl retry --all-dead --job send_weekly_report --since 2h
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Run ids
    #[arg(value_name = "ID", required_unless_present_any = ["all_dead", "Filter"], conflicts_with = "Filter", allow_negative_numbers = true, value_parser = verdicts::run_id)]
    ids: Vec<i64>,
    /// All dead runs, or those that the flags below select
    #[arg(long, conflicts_with = "ids")]
    all_dead: bool,
    #[command(flatten)]
    filter: Filter,
    /// Do not ask before --all-dead; it asks only at a terminal
    #[arg(long)]
    yes: bool,
    /// Also take running runs from their holders, whose results then count for nothing
    #[arg(long)]
    force: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        if !self.all_dead {
            self.filter.refuse_without("--all-dead")?;
        }
        let store = database.open()?;
        let form = Form::new(self.json);
        let (from, only): (&[_], _) = match (self.all_dead, self.force) {
            (true, _) => (&[Status::Dead], ""),
            (false, false) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled],
                "only failed, dead, cancelled and queued runs can be retried, and running ones with --force",
            ),
            (false, true) => (
                &[Status::Queued, Status::Failed, Status::Dead, Status::Cancelled, Status::Running],
                "a run that succeeded is not run again",
            ),
        };
        let request = Request {
            verb: "retry",
            from,
            ask: &|ids| store.retry(ids, from),
            granted: &|_| "queued",
            why: &|status| match status {
                "succeeded" | "running" => format!("its status is {status}; {only}"),
                _ => "its key is live in another run; cancel that one first".to_owned(),
            },
        };
        if self.all_dead {
            return request.of_matching(form, &store, self.filter, "dead", self.yes);
        }
        request.of_ids(form, self.ids)
    }
}
