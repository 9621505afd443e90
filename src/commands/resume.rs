//! `jobctl resume`: lets a paused schedule go on.

use chrono::SecondsFormat;
use clap::Args;
use serde_json::json;

use super::Database;
use crate::exit::{Exit, Fault};
use crate::fires;
use crate::print::{self, Form};

/// Let a paused schedule continue from now
///
/// Times missed during the pause are not made up. If a clock was ahead and the
/// stored next time is too late, it is corrected.
///
///   jobctl resume cleanup_nightly
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
        loop {
            let definition = super::definition(&store, &self.name)?;
            let next = match definition.schedule.as_ref().filter(|_| definition.enabled) {
                Some(schedule) => Some(
                    fires::first(schedule, &definition.time_zone, definition.now)
                        .map_err(|why| Fault::new(Exit::Conflict, format!("cannot resume {}: {why}", self.name)))?,
                ),
                None => None,
            };
            if let Some(next) = store.resume(definition, next)? {
                let next = next.map(|next| next.to_rfc3339_opts(SecondsFormat::Secs, true));
                let line = format!("{}\tresumed\t{}\n", self.name, next.as_deref().unwrap_or("-"));
                let value = json!({"job": self.name, "state": "resumed", "at": next});
                return print::either(Form::new(self.json), &value, &line).map(|()| Exit::Done);
            }
        }
    }
}
