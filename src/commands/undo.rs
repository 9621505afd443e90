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
/// Each of these commands has an operation id. A command that changed several runs
/// prints it on a terminal, and the trail has it for all of them:
///
///   jobctl trail --columns recorded_at,action,run_id,operation
///   jobctl undo 3fa94c01be
///
/// Restores the status, the times and the settings of each run that has not changed
/// since. Lists the other runs, leaves them unchanged, and exits with 4. A dead run
/// that was retried is dead again. What can't be restored: payloads, running runs
/// that a cancel stopped, runs that a tick has started, and runs that were
/// cancelled because another run was. An undo can't be undone.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The operation id, from the command's output or from the trail
    #[arg(value_name = "OPERATION")]
    operation: String,
    /// Print a line for each run, not only totals
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
            granted_word: &|_| "undone",
            why_refused: &|_, status| {
                format!("it has changed since, or can't be undone; it is {status}")
            },
        };
        let flags =
            BulkFlags { dry_run: false, yes: true, verbose: self.verbose, reason: self.reason };
        request.of_ids(ids, &flags, self.output, &store)
    }
}
