//! `jobctl migrate`: brings the schema up to date.

use std::time::Duration;

use clap::Args;

use super::DatabaseFlags;
use crate::print::{self, Output, Table};
use crate::store::{Mode, Store, Timeouts};

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
    #[command(flatten)]
    output: Output,
}

const UP_TO_DATE: &str = "nothing to do: the schema is up to date";

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let target = database.target()?;
        let mut store = Store::connect(&target)?;
        let migrations = if self.dry_run {
            // The server must answer this read within the time that it had for the login.
            let statement = target.connect_timeout().unwrap_or(Timeouts::USUAL.statement);
            store.set_timeouts(Timeouts { statement, silence: Duration::ZERO, ..Timeouts::USUAL });
            store.missing_migrations(Mode::Plan)?.to_vec()
        } else {
            store.migrate()?
        };
        print::rows(self.output, &migrations, &Table::new("name as migration", UP_TO_DATE))
    }
}
