//! `jobctl cancel`: stops runs.

use clap::Args;

use super::Database;
use super::filter::Filter;
use super::verdicts::{self, Request};
use crate::exit::Exit;
use crate::model::Status;
use crate::print::Form;

/// Stop runs: waiting ones at once, running within seconds
///
///   jobctl cancel 3 4
///   jobctl cancel --all-waiting --job send_weekly_report
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Run ids
    #[arg(value_name = "ID", required_unless_present_any = ["all_waiting", "Filter"], conflicts_with = "Filter", allow_negative_numbers = true, value_parser = verdicts::run_id)]
    ids: Vec<i64>,
    /// All queued and failed runs, due or not, or those that the flags below select
    #[arg(long, conflicts_with = "ids")]
    all_waiting: bool,
    #[command(flatten)]
    filter: Filter,
    /// Do not ask before --all-waiting; it asks only at a terminal
    #[arg(long)]
    yes: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        if !self.all_waiting {
            self.filter.refuse_without("--all-waiting")?;
        }
        let store = database.open()?;
        let form = Form::new(self.json);
        let from: &[_] = match self.all_waiting {
            true => &[Status::Queued, Status::Failed],
            false => &[Status::Queued, Status::Failed, Status::Running],
        };
        let request = Request {
            verb: "cancel",
            from,
            ask: &|ids| store.cancel(ids, from),
            granted: &|status| if status == "running" { "cancel requested" } else { "cancelled" },
            why: &|status| format!("its status is {status}; only queued, failed and running runs can be cancelled"),
        };
        if self.all_waiting {
            return request.of_matching(form, &store, self.filter, "waiting", self.yes);
        }
        request.of_ids(form, self.ids)
    }
}
