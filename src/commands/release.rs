//! `jobctl release`: ends holds.

use clap::Args;
use serde::Serialize;

use super::Database;
use super::hold::Target;
use super::trail::Reason;
use crate::exit::{Exit, Fault};
use crate::print::{self, Output, Table};
use crate::store::HoldTarget;

/// Let held runs start again
///
/// With --all, it ends every hold. Paused schedules stay paused: `resume` continues
/// them.
///
///   jobctl release --queue mail
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Released {
    scope: String,
    name: String,
    result: &'static str,
}

const TABLE: Table<'_> = Table::new("scope, name, result", "");

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<()> {
        let target = HoldTarget::from(self.target);
        let ended = database.open()?.end_holds(target.clone(), self.reason.cause())?;
        if ended.is_empty() {
            let HoldTarget { scope, name } = target;
            let what = if scope == "all" { "runs".to_owned() } else { format!("{scope} {name}") };
            let why = format!("{what}: not held; `jobctl hold --list` prints the holds");
            return Err(Fault::new(Exit::NotFound, why).into());
        }
        let released = ended.into_iter().map(|it| Released {
            scope: it.scope,
            name: it.name,
            result: "released",
        });
        print::rows(self.output, &released.collect::<Vec<_>>(), &TABLE)
    }
}
