//! `jobctl accept-restore`: lets ticks start runs in a database that was restored from a backup.

use clap::Args;
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::Reason;
use crate::exit::{Exit, Fault};
use crate::print::{self, Output, Table};
use crate::store::AcceptedRestore;

/// Let ticks start runs in a restored database
///
/// A host remembers its last ticks. If the database lacks one that is more than
/// ten minutes older than the newest, ticks start nothing and exit with 7, because
/// runs that finished since the backup would be executed again. Look at the runs
/// first: `jobctl tick --dry-run` lists them, `jobctl cancel` ends those whose work
/// is done. Then accept the database, for all hosts, as the schema's owner. This
/// raises the ids of new runs by a million, because keys contain ids, and runs
/// since the backup have used some. After a failover that lost runs, --yes raises
/// the ids, too.
///
///   jobctl accept-restore --reason 'restored last night, the payments are done'
///   jobctl accept-restore --yes --reason 'failover at 03:10'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Accept the database although no tick has noticed a restore
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Answer {
    result: &'static str,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let accepted = database.open()?.accept_restore(self.reason.cause(), self.yes)?;
        let AcceptedRestore { skipped, ids_are_raised } = accepted.ok_or_else(|| {
            let why = "cannot accept a restore: no tick has noticed one; after a restore while no \
                       tick ran, or a failover that lost runs, add --yes";
            Fault::new(Exit::Conflict, why)
        })?;
        if !ids_are_raised {
            print::complain(&format!(
                "new runs can get the ids of lost runs, and so their keys, such as jobctl-run-17; \
                 as the schema's owner, run SELECT setval('jobctl.job_runs_id_seq', \
                 nextval('jobctl.job_runs_id_seq') + {skipped})"
            ));
        }
        print::row(self.output, &Answer { result: "accepted" }, &Table::new("result", ""))
    }
}
