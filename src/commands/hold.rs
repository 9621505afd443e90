//! `jobctl hold` and `jobctl release`: keep waiting runs from starting, and let them start again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{Reason, length, worker};
use crate::job::definition::queue;
use crate::job::status::HoldScope;
use crate::print::{self, Output, Table};
use crate::store::HoldTarget;
use crate::text::duration::{SECOND, YEAR};
use crate::text::{did_you_mean, timestamp};

const HOLDS: Table<'_> = Table::new(
    "scope as held, name, held_at as since, held_until as until, host_user|recorded_by as by, \
     reason",
    "no holds",
);

/// Keep waiting runs from starting until they are released
///
/// Running runs finish; a run that was claimed just before may still start within
/// 1.3 seconds. Runs can still be enqueued, by schedules too. A worker
/// that is held starts nothing, so its host can be shut down. `pause` stops a
/// schedule instead. Without --for, `check` reports a hold after a day, or if it
/// keeps runs of a scheduled job late.
///
///   jobctl hold --queue mail --for 2h --reason "SMTP is down"
///   jobctl hold --worker web2
///   jobctl hold --list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Hold {
    #[command(flatten)]
    target: HoldFlags,
    /// List the holds
    #[arg(long, group = "what", conflicts_with_all = ["lasts", "reason"])]
    list: bool,
    /// Release it after this time [default: never]
    #[arg(
        long = "for",
        id = "lasts",
        value_name = "DURATION",
        value_parser = length(SECOND, YEAR)
    )]
    lasts: Option<Duration>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// Let held runs start again
///
/// --all ends `hold --all`. Jobs, queues and workers that are held on their own
/// stay held. Paused schedules stay paused: `resume` continues them. If the
/// target is not held, release says so and exits with 0.
///
///   jobctl release --queue mail
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Release {
    #[command(flatten)]
    target: HoldFlags,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// What to hold or to release.
#[derive(Args, Debug)]
#[group(id = "what", required = true, multiple = false)]
struct HoldFlags {
    /// The runs of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// The runs of this queue
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    queue: Option<String>,
    /// The runs that this worker would start
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// All runs
    #[arg(long)]
    all: bool,
}

impl From<HoldFlags> for HoldTarget {
    fn from(target: HoldFlags) -> Self {
        let HoldFlags { job, queue, worker, all: _ } = target;
        let (scope, name) = match (job, queue, worker) {
            (Some(job), ..) => (HoldScope::Job, job),
            (_, Some(queue), _) => (HoldScope::Queue, queue),
            (.., Some(worker)) => (HoldScope::Worker, worker),
            _ => (HoldScope::All, String::new()),
        };
        Self { scope, name }
    }
}

#[derive(Default, Serialize)]
struct Held {
    scope: HoldScope,
    name: String,
    result: &'static str,
    #[serde(with = "timestamp")]
    held_until: Option<DateTime<Utc>>,
}

impl Hold {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        if self.list {
            return print::list(self.output, &store.holds()?, &HOLDS);
        }
        if let Some(job) = &self.target.job {
            super::known_job(&store, job)?;
        }
        let target = HoldTarget::from(self.target);
        let held_until = store.hold(target.clone(), self.lasts, self.reason.cause())?;
        let known = store.hold_names(target.clone())?;
        let HoldTarget { scope, name } = target;
        if matches!(scope, HoldScope::Queue | HoldScope::Worker) && !known.contains(&name) {
            let meant = did_you_mean::suggestion(&name, known.iter().map(String::as_str));
            let who = match scope {
                HoldScope::Queue => "waiting run, definition or worker has the queue",
                _ => "worker has ticked as",
            };
            print::complain(&format!("no {who} `{name}`; it is held all the same{meant}"));
        }
        let held = Held { scope, name, result: "held", held_until };
        let table = Table::new("scope, name, result, held_until as until", "");
        print::row(self.output, &held, &table)
    }
}

#[derive(Default, Serialize)]
struct Released {
    scope: HoldScope,
    name: String,
    result: &'static str,
}

impl Release {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let target = HoldTarget::from(self.target);
        let store = database.open()?;
        let ended = store.end_holds(target.clone(), self.reason.cause())?;
        let HoldTarget { scope, name } = target;
        let others = if scope == HoldScope::All { store.holds()?.rows.len() } else { 0 };
        let list = "`jobctl hold --list` prints them";
        if others > 0 {
            print::complain(&format!("other holds stay in force: {others}; {list}"));
        }
        if ended.is_empty() {
            let what = match scope {
                HoldScope::All => "all runs".to_owned(),
                _ => format!("{scope} {name}"),
            };
            print::complain(&format!("no holds of {what} are in force; {list}"));
        }
        let result = "released";
        let released = ended.into_iter().map(|(scope, name)| Released { scope, name, result });
        let table = Table::new("scope, name, result", "");
        print::rows(self.output, &released.collect::<Vec<_>>(), &table)
    }
}
