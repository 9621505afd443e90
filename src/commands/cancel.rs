//! `jobctl cancel`: stops runs.

use clap::Args;

use super::{Database, verdicts};
use crate::exit::Exit;
use crate::print::Form;

/// Stop runs: waiting ones at once, running ones within seconds
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Ids of runs
    #[arg(value_name = "ID", required = true, allow_negative_numbers = true, value_parser = verdicts::run_id)]
    ids: Vec<i64>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let ids = verdicts::distinct(self.ids);
        let answers = database.open()?.cancel(ids.clone())?;
        let granted = |status: &str| if status == "running" { "cancel requested" } else { "cancelled" };
        let why =
            |status: &str| format!("its status is {status}; only queued, failed and running runs can be cancelled");
        verdicts::print(Form::new(self.json), "cancel", &verdicts::judge(&ids, &answers, granted, why))
    }
}
