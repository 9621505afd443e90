//! `jobctl retry`: makes runs due now.

use clap::Args;

use super::{Database, verdicts};
use crate::exit::Exit;
use crate::print::Form;

/// Make failed, dead, cancelled or waiting runs due now
///
/// Attempts that are used up are granted once more; the history stays.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Ids of runs
    #[arg(value_name = "ID", required_unless_present = "all_dead", allow_negative_numbers = true, value_parser = verdicts::run_id)]
    ids: Vec<i64>,
    /// All dead runs
    #[arg(long, conflicts_with = "ids")]
    all_dead: bool,
    /// Also take running runs from their holders, whose results then count for nothing
    #[arg(long)]
    force: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let ids = if self.all_dead { store.dead_ids()? } else { verdicts::distinct(self.ids) };
        let answers = store.retry(ids.clone(), self.force)?;
        let only = if self.force {
            "a run that succeeded is not run again"
        } else {
            "only failed, dead, cancelled and queued runs can be retried, and running ones with --force"
        };
        let why = |status: &str| match status {
            "succeeded" | "running" => format!("its status is {status}; {only}"),
            _ => "its key is live in another run; cancel that one first".to_owned(),
        };
        verdicts::print(Form::new(self.json), "retry", &verdicts::judge(&ids, &answers, |_| "queued", why))
    }
}
