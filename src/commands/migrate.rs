//! `jobctl migrate`: brings the schema up to date.

use clap::Args;

use super::Database;
use crate::exit::Exit;
use crate::print;
use crate::store::Store;

/// Bring the database's schema up to date; safe to run many times at once
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Only say which migrations are missing
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = Store::connect(&database.target()?)?;
        let names: Vec<_> = if self.dry_run {
            store.missing_migrations()?.iter().map(|step| step.name).collect()
        } else {
            store.migrate()?
        };
        for name in names {
            print::answer(&format!("{name}\n"))?;
        }
        Ok(Exit::Done)
    }
}
