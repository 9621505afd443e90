//! `jobctl prune`: deletes old finished runs and their history.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{run_id, up_to};
use super::bulk::{self, BulkFlags, BulkRequest};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::print::{self, Output, Progress, Table};
use crate::store;
use crate::store::{Archive, BatchSize, Keep, Operation, Store};
use crate::text::duration::CENTURY;
use crate::text::plural;
use crate::upkeep::{self, Pruning, Undeleted};

/// Delete old finished runs with their history
///
/// It goes from job to job, the oldest runs first. `keep` and `keep_dead` of a
/// definition win over the flags.
///
/// It works in small transactions, never waits for locks and can be stopped at any
/// time. It names runs that the database keeps, for example for a foreign key of
/// another program, deletes the others, and exits with 1. The keys of deleted runs
/// can be used again; recorded effects are kept. It also deletes workers that
/// stopped: after 30 times as long as they ticked, at least a day and at most 30
/// days. Events of the trail are kept for --dead-older-than, at least 90 days.
///
///   jobctl prune --older-than 7d --dry-run
///   jobctl prune --older-than 7d --archive /var/lib/jobctl/runs.jsonl
///   jobctl prune 3 4
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only these finished runs, even if they ended just now
    #[arg(
        value_name = "ID",
        conflicts_with_all = ["older_than", "dead_older_than"],
        value_parser = run_id
    )]
    ids: Vec<i64>,
    #[command(flatten)]
    ages: Ages,
    /// Append the runs to this file before they are deleted: JSON Lines, with their history
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = PathBufValueParser::new().try_map(named),
        conflicts_with_all = ["ids", "dry_run"]
    )]
    archive: Option<PathBuf>,
    #[command(flatten)]
    flags: BulkFlags,
    #[command(flatten)]
    output: Output,
}

/// How long finished runs are kept, except those of definitions with a time of their own.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Prune succeeded and cancelled runs that finished longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = up_to(CENTURY))]
    older_than: Duration,
    /// Prune dead runs that finished longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = up_to(CENTURY))]
    dead_older_than: Duration,
}

impl Ages {
    pub(super) fn keep(self) -> Keep {
        Keep { ended: self.older_than, dead: self.dead_older_than }
    }
}

/// How many runs of a status were deleted; in a dry run, how many a prune would delete.
#[derive(Default, Serialize)]
struct StatusCount {
    status: Status,
    runs: i64,
}

const TABLE: Table<'_> = Table::new("status, runs", "no run is old enough");

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let store = database.open()?;
        if !self.ids.is_empty() {
            return self.delete_ids(&store);
        }
        if !self.flags.dry_run {
            return self.delete_old(&store);
        }
        let keep = self.ages.keep();
        if self.flags.verbose {
            let mut ids = Vec::new();
            for series in upkeep::series(&store, keep)? {
                ids.extend(series.old(&store)?);
            }
            bulk::print_deleted(self.output, ids)?;
        } else {
            print_counts(self.output, &store.count_old(keep)?.into_iter().collect())?;
        }
        Ok(Exit::Done)
    }

    /// Deletes finished runs by their ids, whatever their age.
    fn delete_ids(self, store: &Store) -> anyhow::Result<Exit> {
        let request = BulkRequest {
            operation: Operation::Remove,
            from: &[Status::Succeeded, Status::Dead, Status::Cancelled],
            granted_word: &|_| "deleted",
            why_refused: &|_, status| {
                format!(
                    "its status is {status}; only succeeded, dead and cancelled runs can be deleted"
                )
            },
        };
        let flags = BulkFlags { verbose: true, ..self.flags };
        request.of_ids(self.ids, &flags, self.output, store)
    }

    /// Deletes old runs and events, and workers that stopped long ago.
    fn delete_old(self, store: &Store) -> anyhow::Result<Exit> {
        let keep = self.ages.keep();
        let mut total = None;
        // The count may be slow, so make it only for the question to a person and for the progress.
        if print::can_ask() {
            let runs = store.count_old(keep)?.iter().map(|(_, runs)| runs).sum();
            total = usize::try_from(runs).ok();
            if !self.flags.yes && runs > 0 {
                print::confirm("prune", &format!("delete {}", plural::of(runs, "old run")))?;
            }
        }
        let open = |file: &Path| {
            Archive::open(file).with_context(|| format!("cannot open {}", file.display()))
        };
        let archive = self.archive.as_deref().map(open).transpose()?;
        let pruning = Pruning {
            store,
            cause: &self.flags.reason.cause(),
            archive: archive.as_ref(),
            default: keep,
            time: None,
        };
        let progress = Progress::of(total);
        let deleted = delete(&pruning, &progress, self.flags.verbose);
        progress.clear();
        let mut deleted = deleted?;
        deleted.undeleted.extend(forget_workers(store)?);
        deleted.undeleted.iter().for_each(|line| print::complain(line));
        if self.flags.verbose {
            bulk::print_deleted(self.output, deleted.ids)?;
        } else {
            print_counts(self.output, &deleted.counts)?;
        }
        Ok(if deleted.undeleted.is_empty() { Exit::Done } else { Exit::CouldNot })
    }
}

/// Prints how many runs of each status were deleted; in a dry run, how many a prune would delete.
fn print_counts(output: Output, counts: &HashMap<Status, i64>) -> anyhow::Result<()> {
    let row = |status| Some(StatusCount { status, runs: *counts.get(&status)? });
    let rows: Vec<_> =
        [Status::Succeeded, Status::Cancelled, Status::Dead].into_iter().filter_map(row).collect();
    print::rows(output, &rows, &TABLE)
}

/// Checks the archive's name. Refuses `-`: standard output may lose lines after their runs are
/// deleted.
fn named(file: PathBuf) -> Result<PathBuf, &'static str> {
    if file == Path::new("-") { Err("name a file") } else { Ok(file) }
}

/// The deleted runs, and why the database kept other old rows.
#[derive(Default)]
struct Deleted {
    counts: HashMap<Status, i64>,
    /// Only with --verbose: a prune may delete millions of runs.
    ids: Vec<i64>,
    /// A line for each reason why the database keeps some runs, events or workers.
    undeleted: Vec<String>,
}

/// Deletes old runs and events part by part, until no old ones are left. Collects the ids of the
/// runs only if `verbose`.
fn delete(pruning: &Pruning<'_>, progress: &Progress, verbose: bool) -> store::Result<Deleted> {
    let mut done = 0;
    let mut deleted = Deleted::default();
    let (mut undeleted_runs, mut undeleted_events) = (Undeleted::default(), Undeleted::default());
    for series in upkeep::series(pruning.store, pruning.default)? {
        // Each part begins after the last id of the part before it.
        let mut next = Some(0);
        while let Some(after) = next {
            let part = pruning.delete_part(&series, after, usize::MAX, &mut undeleted_runs)?;
            for run in &part.pruned {
                *deleted.counts.entry(run.status).or_default() += 1;
                if verbose {
                    deleted.ids.push(run.id);
                }
            }
            done += part.pruned.len();
            progress.show(done);
            next = part.next;
        }
    }
    while pruning.delete_events(&mut undeleted_events)? {}
    deleted.undeleted.extend(undeleted_runs.lines("run"));
    deleted.undeleted.extend(undeleted_events.lines("event"));
    Ok(deleted)
}

/// Deletes workers that stopped long ago; returns a line for each reason why some are kept.
fn forget_workers(store: &Store) -> store::Result<Vec<String>> {
    let mut undeleted = Undeleted::default();
    undeleted.add(store::bisect(
        store.old_workers()?,
        &mut BatchSize::default(),
        || true,
        |names| store.forget_workers(names.to_vec()),
    )?);
    Ok(undeleted.lines("worker"))
}
