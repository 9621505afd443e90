//! `jobctl migrate`: brings the schema up to date.

use std::time::Duration;

use clap::Args;

use super::Database;
use crate::exit::Exit;
use crate::print::{self, Form};
use crate::store::{Limits, Mode, Store};

/// Bring the database's schema up to date
///
/// Safe to run at any time, even many times at once.
///
///   jobctl migrate --dry-run
///   jobctl migrate
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only say which migrations are missing
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let target = database.target()?;
        let mut store = Store::connect(&target)?;
        let names: Vec<_> = if self.dry_run {
            // The server must answer this read as fast as it answered the login.
            let answer = target.timeout().unwrap_or(Limits::USUAL.statement);
            store.limit(Limits { statement: answer, silence: Duration::ZERO, ..Limits::USUAL });
            store.missing_migrations(Mode::Plan)?.iter().map(|step| step.name).collect()
        } else {
            store.migrate()?
        };
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        print::either(Form::new(self.json), &names, &lines).map(|()| Exit::Done)
    }
}
