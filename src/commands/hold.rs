//! `jobctl hold` and `jobctl release`: keep waiting runs from starting, and let them start again.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{HEADING, Reason, job, length, named_job, worker};
use super::outage::{LastingSession, OUTAGE_LIMIT};
use crate::exit::{Exit, Fault};
use crate::job::definition_keys::queue;
use crate::job::status::HoldScope;
use crate::print::{self, Output, Table};
use crate::store::{HeldRunning, HoldTarget, Store};
use crate::text::duration::{SECOND, YEAR};
use crate::text::{did_you_mean, plural, timestamp};

/// How often --until-idle looks for running runs. Longer than a claim, which takes at most 1.3
/// seconds: see `wait_until_idle`.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

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
/// keeps runs of a scheduled job late. A command holds only jobs, only queues or
/// only workers. Holds add up: a second one does not narrow the first.
///
///   jobctl hold invoices --reason "the ledger is closed"
///   jobctl hold --queue mail --for 2h --reason "SMTP is down"
///   jobctl hold --worker web2 --until-idle && systemctl reboot
///   jobctl hold --list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Hold {
    #[command(flatten)]
    target: HoldFlags,
    /// List the holds
    #[arg(long, group = "scope", conflicts_with_all = ["lasts", "until_idle", "reason"])]
    list: bool,
    /// End the hold after this time [default: never]
    #[arg(
        long = "for",
        id = "lasts",
        value_name = "DURATION",
        value_parser = length(SECOND, YEAR)
    )]
    lasts: Option<Duration>,
    /// Wait until none of the held runs is running; exit with 4 if the hold ends first. Ctrl-C ends
    /// the wait, not the hold
    #[arg(long)]
    until_idle: bool,
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

/// Which runs to hold or to release.
#[derive(Args, Debug)]
#[group(id = "scope", required = true, multiple = false)]
struct HoldFlags {
    /// The same as --job JOB
    #[arg(value_name = "JOB", value_parser = named_job)]
    name: Option<String>,
    /// The runs of this job; --job, --queue and --worker can be repeated
    #[arg(long, value_name = "JOB", value_parser = job, help_heading = HEADING)]
    job: Vec<String>,
    /// The runs of this queue
    #[arg(long, value_name = "QUEUE", value_parser = queue, help_heading = HEADING)]
    queue: Vec<String>,
    /// Keep this worker from starting runs, or release it
    #[arg(long, value_name = "WORKER", value_parser = worker, help_heading = HEADING)]
    worker: Vec<String>,
    /// Hold all runs, or end `hold --all`
    #[arg(long, help_heading = HEADING)]
    all: bool,
}

impl HoldFlags {
    /// Returns each target once, sorted by scope and name.
    fn targets(self) -> Vec<HoldTarget> {
        // The target of --all has no name.
        let all = if self.all { vec![String::new()] } else { Vec::new() };
        let named = [
            (HoldScope::All, all),
            (HoldScope::Job, self.job.into_iter().chain(self.name).collect()),
            (HoldScope::Queue, self.queue),
            (HoldScope::Worker, self.worker),
        ];
        let mut targets = Vec::new();
        for (scope, names) in named {
            let names = BTreeSet::from_iter(names);
            targets.extend(names.into_iter().map(|name| HoldTarget { scope, name }));
        }
        targets
    }
}

/// A target that is now held, as the answer shows it.
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
            return print::list(self.output, &store.list_holds()?, &HOLDS);
        }
        for job in self.target.job.iter().chain(&self.target.name) {
            super::check_job_exists(&store, job)?;
        }
        let targets = self.target.targets();
        let ends = store.hold(targets.clone(), self.lasts, self.reason.cause())?;
        let mut held = Vec::new();
        for (target, held_until) in targets.iter().zip(ends) {
            warn_of_name(&store, target)?;
            let HoldTarget { scope, name } = target.clone();
            held.push(Held { scope, name, result: "held", held_until });
        }
        let table = Table::new("scope, name, result, held_until as until", "");
        print::rows(self.output, &held, &table)?;
        if self.until_idle {
            wait_until_idle(LastingSession::new(database, OUTAGE_LIMIT, store), &targets)?;
        }
        Ok(())
    }
}

/// Waits until no run of these targets is running. Fails if their hold ends before that, because
/// runs can start then.
fn wait_until_idle(mut session: LastingSession<'_>, targets: &[HoldTarget]) -> anyhow::Result<()> {
    let mut is_shown = false;
    loop {
        // Sleep before the first count, too: a claim that began before the hold may not be visible.
        thread::sleep(POLL_INTERVAL);
        let HeldRunning { running, is_held } =
            session.insist(POLL_INTERVAL, |store| Ok(store.held_running(targets)?))?;
        if !is_held {
            let left = plural::grouped_of(running, "running run");
            let why = format!(
                "the hold ended before its runs did: --for is over, or it was released; {left}; \
                 hold them again, for longer"
            );
            bail!(Fault::new(Exit::Conflict, why));
        }
        if running == 0 {
            return Ok(());
        }
        if !is_shown {
            let runs = plural::grouped_of(running, "running run");
            print::complain(&format!("held; waiting for {runs} to end"));
            is_shown = true;
        }
    }
}

/// Warns of a queue that no waiting run, definition or worker names, or of a worker that never
/// ticked.
fn warn_of_name(store: &Store, target: &HoldTarget) -> anyhow::Result<()> {
    let name = &target.name;
    let unknown = match target.scope {
        HoldScope::Queue => "waiting run, definition or worker has the queue",
        HoldScope::Worker => "worker has ticked as",
        HoldScope::All | HoldScope::Job => return Ok(()),
    };
    let known = store.hold_names(target.scope, name)?;
    if !known.contains(name) {
        let suggestion = did_you_mean::suggestion(name, known.iter().map(String::as_str));
        print::complain(&format!("no {unknown} `{name}`; it is held all the same{suggestion}"));
    }
    Ok(())
}

/// A hold that has ended, as the answer shows it.
#[derive(Default, Serialize)]
struct Released {
    scope: HoldScope,
    name: String,
    result: &'static str,
}

impl Release {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let all = self.target.all;
        let targets = self.target.targets();
        let store = database.open()?;
        let ended = store.end_holds(targets.clone(), self.reason.cause())?;
        let left = if all { store.list_holds()?.rows.len() } else { 0 };
        let list = "`jobctl hold --list` prints them";
        if left > 0 {
            print::complain(&format!("other holds stay in force: {left}; {list}"));
        }
        for HoldTarget { scope, name } in targets {
            if !ended.contains(&(scope, name.clone())) {
                let target = if all { "all runs".to_owned() } else { format!("{scope} {name}") };
                print::complain(&format!("no holds of {target} are in force; {list}"));
            }
        }
        let result = "released";
        let released = ended.into_iter().map(|(scope, name)| Released { scope, name, result });
        let table = Table::new("scope, name, result", "");
        print::rows(self.output, &released.collect::<Vec<_>>(), &table)
    }
}
