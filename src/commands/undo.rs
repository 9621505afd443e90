//! `jobctl undo`: restores what a command changed in runs.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::Reason;
use super::bulk::{BulkFlags, BulkRequest};
use crate::exit::{Exit, Fault};
use crate::job::status::Status;
use crate::print::Output;
use crate::store::Operation;

/// Undo a retry, a cancel, an edit or a settle
///
/// On a terminal, these commands print the name of what they did, and `trail` has
/// it, too. Each run gets back what it was, unless something has happened to it
/// since: then it is named, and stays as it is. A dead run that was retried is dead
/// again. Payloads, and runs that a cancel has stopped, do not come back, nor do
/// runs that a tick has cancelled or started because of the command.
///
///   jobctl undo 3fa94c01be
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The name that the command printed
    #[arg(value_name = "OPERATION")]
    operation: String,
    /// Print a line for each run, not only how many there are
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let ids = store.operation_runs(&self.operation)?;
        if ids.is_empty() {
            let why = format!(
                "no command `{}` is in the trail; `jobctl trail` has their names",
                self.operation
            );
            return Err(Fault::new(Exit::NotFound, why).into());
        }
        let request = BulkRequest {
            operation: Operation::Undo(self.operation),
            from: &Status::ALL,
            granted: &|_| "undone",
            why: &|_, status| format!("it has changed since, or can't be undone; it is {status}"),
        };
        let Self { verbose, reason, output, .. } = self;
        request.of_operation(
            &ids,
            &BulkFlags { dry_run: false, yes: true, verbose, reason },
            output,
            &store,
        )
    }
}
