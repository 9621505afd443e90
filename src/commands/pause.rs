//! `jobctl pause`: stops a schedule.

use clap::Args;
use serde_json::json;

use super::Database;
use crate::exit::Exit;
use crate::print::{self, Form};

/// Stop a definition's schedule until it is resumed
///
/// Waiting runs are still run, and it can still be enqueued.
///
///   jobctl pause cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The definition's name
    name: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        match store.pause(self.name.clone())? {
            Some(has_schedule) => {
                if !has_schedule {
                    print::complain(&format!(
                        "`{}` has no schedule: the pause stops nothing before it has one",
                        self.name
                    ));
                }
                let line = format!("{}\tpaused\n", self.name);
                let value = json!({"job": self.name, "state": "paused"});
                print::either(Form::new(self.json), &value, &line).map(|()| Exit::Done)
            }
            None => Err(super::no_definition(&store, &self.name).into()),
        }
    }
}
