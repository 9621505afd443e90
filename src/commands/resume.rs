//! `jobctl resume`: lets a paused schedule go on.

use chrono::SecondsFormat;
use clap::Args;

use super::Database;
use crate::exit::{Exit, Fault};
use crate::{fires, print};

/// Let a paused schedule continue from now
///
/// Times missed during the pause are not made up.
///
///   jobctl resume cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The definition's name
    name: String,
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
                let next = next.map_or_else(|| "-".to_owned(), |next| next.to_rfc3339_opts(SecondsFormat::Secs, true));
                return print::answer(&format!("{}\tresumed\t{next}\n", self.name)).map(|()| Exit::Done);
            }
        }
    }
}
