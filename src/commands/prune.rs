//! `jobctl prune`: deletes old finished runs and their history.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Database;
use super::verdicts::{self, Request};
use crate::exit::{Exit, Fault};
use crate::model::Status;
use crate::print::{self, Cell, Form};
use crate::store::{Old, Store};
use crate::{count, duration, store};

/// Runs deleted per statement, and so per transaction: about 30 ms.
const BATCH: i64 = 1000;

/// Delete old finished runs with their history, oldest first
///
/// It works in small transactions, never waits for locks and can be stopped at any
/// time. The keys of deleted runs are free again; recorded effects stay. It also
/// deletes workers that stopped 30 days ago, or a day ago if they ticked only once.
///
///   jobctl prune --older-than 7d --dry-run
///   jobctl prune --older-than 7d
///   jobctl prune 3 4
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only these runs, however old they are
    #[arg(value_name = "ID", conflicts_with = "dry_run", allow_negative_numbers = true, value_parser = verdicts::run_id)]
    ids: Vec<i64>,
    #[command(flatten)]
    ages: Ages,
    /// Only count what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation at a terminal
    #[arg(long)]
    yes: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// How long finished runs are kept.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Prune succeeded and cancelled runs that finished longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = age)]
    older_than: Duration,
    /// Prune dead runs that finished longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = age)]
    dead_older_than: Duration,
}

impl Ages {
    pub(super) fn old(self) -> Vec<Old> {
        vec![
            Old { statuses: &[Status::Succeeded, Status::Cancelled], age: self.older_than },
            Old { statuses: &[Status::Dead], age: self.dead_older_than },
        ]
    }
}

/// How many runs of a status were deleted, or would be.
#[derive(Serialize)]
struct Count {
    status: String,
    runs: i64,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        if !self.ids.is_empty() {
            return remove(&store, self.ids, Form::new(self.json));
        }
        let question = || {
            let runs = self.counts(|old| store.count_old(old))?.iter().map(|count| count.runs).sum();
            Ok((runs > 0).then(|| format!("delete {}?", count::of(runs, "old run"))))
        };
        let counts = if self.dry_run {
            self.counts(|old| store.count_old(old))?
        } else if self.yes || print::confirm(question)? {
            let deleted = self.counts(|old| delete(&store, old))?;
            store.forget_workers()?;
            deleted
        } else {
            return Err(Fault::new(Exit::CouldNot, "no run was deleted").into());
        };
        print::rows_or("no run is old enough", Form::new(self.json), &["status", "runs"], &counts, |count| {
            vec![Cell::Status(count.status.clone()), count.runs.into()]
        })?;
        Ok(Exit::Done)
    }

    /// Returns the counts of all old runs by `of`, in the order of the statuses.
    fn counts(&self, of: impl Fn(Old) -> store::Result<Vec<(String, i64)>>) -> store::Result<Vec<Count>> {
        let mut counts = Vec::new();
        for old in self.ages.old() {
            let found = of(old)?;
            counts.extend(old.statuses.iter().filter_map(|status| {
                let (status, runs) = found.iter().find(|(word, _)| word == status.as_str())?;
                Some(Count { status: status.clone(), runs: *runs })
            }));
        }
        Ok(counts)
    }
}

/// Deletes these.
fn remove(store: &Store, ids: Vec<i64>, form: Form) -> anyhow::Result<Exit> {
    let from = &[Status::Succeeded, Status::Dead, Status::Cancelled];
    let request = Request {
        verb: "prune",
        from,
        ask: &|ids| store.remove(ids, from),
        granted: &|_| "deleted",
        why: &|status| format!("its status is {status}; only succeeded, dead and cancelled runs can be deleted"),
    };
    request.of_ids(form, ids)
}

/// Deletes batch by batch until there are no more; returns how many of each status.
fn delete(store: &Store, old: Old) -> store::Result<Vec<(String, i64)>> {
    let mut deleted: Vec<(String, i64)> = old.statuses.iter().map(|status| (status.as_str().to_owned(), 0)).collect();
    let mut last = None;
    loop {
        let mut batch = store.prune(old, last.as_ref(), BATCH)?;
        for run in &batch {
            deleted.iter_mut().filter(|(status, _)| *status == run.status).for_each(|(_, runs)| *runs += 1);
        }
        let is_last = (batch.len() as i64) < BATCH;
        last = batch.pop();
        if is_last {
            break;
        }
        let runs: i64 = deleted.iter().map(|(_, runs)| runs).sum();
        print::progress(&format!("{runs} deleted"));
    }
    print::progress("");
    deleted.retain(|(_, runs)| *runs > 0);
    Ok(deleted)
}

fn age(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::ZERO, duration::CENTURY)
}
