//! `jobctl forget`: removes a worker that is gone for good.

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args};
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{Reason, worker};
use crate::exit::{Exit, Fault};
use crate::job::status::HoldScope;
use crate::job::thresholds::TICK_OVERDUE;
use crate::print::{self, Output, Table};
use crate::text::{did_you_mean, timestamp};

/// Stop reporting a worker that is gone for good
///
/// A worker that ticked regularly for a day and then stopped is reported until it
/// ticks again or is forgotten. This also ends the holds of the worker. If its
/// name ticks again, the worker is known again.
///
///   jobctl forget web1 --reason 'the host was replaced'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(group = ArgGroup::new("one").args(["worker", "named"]).required(true))]
pub(crate) struct Arguments {
    /// The worker's name, as `jobctl status` shows it
    #[arg(value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// The same as WORKER
    #[arg(id = "named", long = "worker", value_name = "WORKER", value_parser = worker)]
    named: Option<String>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Forgotten {
    worker: String,
    result: &'static str,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        // clap requires one of both.
        let worker = self.worker.or(self.named).context("no worker is named")?;
        let Some(known) = store.forget_worker(worker.clone(), self.reason.cause())? else {
            let workers = store.hold_names(HoldScope::Worker, &worker)?;
            let suggestion = did_you_mean::suggestion(&worker, workers.iter().map(String::as_str));
            let why =
                format!("cannot forget {worker}: no worker with this name has ticked{suggestion}");
            return Err(Fault::new(Exit::NotFound, why).into());
        };
        if !known.forgotten {
            let why = format!(
                "cannot forget {worker}: it still ticks or holds runs; remove its crontab line, \
                 and wait until its runs have ended"
            );
            return Err(Fault::new(Exit::Conflict, why).into());
        }
        let is_recent =
            |at: &DateTime<Utc>| (known.now - at).to_std().unwrap_or_default() < TICK_OVERDUE;
        if let Some(at) = known.last_tick_at.filter(is_recent) {
            print::complain(&format!(
                "{worker} ticked {}; its next tick starts runs again, so remove its crontab line",
                timestamp::relative(at, known.now)
            ));
        }
        let forgotten = Forgotten { worker, result: "forgotten" };
        print::row(self.output, &forgotten, &Table::new("worker, result", ""))
    }
}
