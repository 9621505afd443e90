//! `jobctl apply`: makes the definitions match a file.

use std::sync::Arc;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::Value;

use super::DatabaseFlags;
use super::arguments::Reason;
use crate::exit::Fault;
use crate::files::{self, MIB};
use crate::job::definition::{self, Definition, Problem};
use crate::job::definition_keys;
use crate::print::{self, Output, Table};
use crate::store::{Applied, ApplyMode, Unlisted, WrongHook};
use crate::text::{plural, timestamp};

/// The longest file that is read.
const FILE_LIMIT: u64 = 4 * MIB;
/// Mistakes that are printed; one at the beginning of a file can cause many.
const MOST_PROBLEMS: usize = 50;

/// Make the job definitions match a TOML file
///
/// Definitions that the file does not have are disabled: their schedules stop.
/// If one of them has a schedule, or they are more than the file keeps, it asks
/// first; without a terminal it needs --yes. Nothing is changed when anything in
/// the file is wrong, or when it has no jobs. It prints each changed key with its
/// old and new value, without secrets.
///
///   jobctl apply jobs.toml --dry-run
///   jobctl apply jobs.toml
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A TOML file of at most 4 MiB and 10,000 jobs, like examples/jobs.toml; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Remove definitions that the file does not have, instead of disabling them
    #[arg(long)]
    prune: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// A difference between the definitions and the file: of a changed definition, one for each key. If
/// times of its schedule are due, another one says what becomes of them.
#[derive(Debug, Default, Serialize)]
struct Change {
    change: &'static str,
    job_type: String,
    definition_key: Option<String>,
    /// As TOML, without secrets.
    old: Option<String>,
    new: Option<String>,
    /// The oldest due time of the schedule.
    #[serde(with = "timestamp")]
    due_at: Option<DateTime<Utc>>,
    /// How many runs the next tick queues for due times, unless an earlier run is not finished.
    due_runs: Option<usize>,
}

const NONE: &str = "nothing changes";

/// For changes of whole definitions only.
const WHOLE: Table<'_> = Table::new("change, job_type as job", NONE);

const TABLE: Table<'_> =
    Table::new("change, job_type as job, definition_key as key, old, new", NONE);

/// With due times.
const DUE: Table<'_> = Table::new(
    "change, job_type as job, definition_key as key, old, new, due_at as due since, \
     due_runs as runs",
    NONE,
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let text = files::input(&self.file)
            .and_then(|file| files::read_text(file, FILE_LIMIT))
            .with_context(|| format!("cannot read `{}`", self.file))?;
        let store = database.open()?;
        let definitions = definition::read(&text, store.now()?).map_err(|problems| {
            self.refuse(&problems, |Problem { line, what }| format!("{}:{line}: {what}", self.file))
        })?;
        if definitions.is_empty() {
            let why = "it has no jobs; `enabled = false` in a job stops it";
            return Err(Fault::usage(format!("cannot apply: {}: {why}", self.file)).into());
        }
        let definitions = Arc::new(definitions);
        let others = if self.prune { Unlisted::Remove } else { Unlisted::Disable };
        let mut mode = match (self.dry_run, self.yes) {
            (true, _) => ApplyMode::DryRun,
            (false, true) => ApplyMode::Change,
            (false, false) => ApplyMode::ChangeIfAgreed(Vec::new()),
        };
        let applied = loop {
            let names = definitions.iter().map(|definition| definition.name.clone()).collect();
            let listed = Arc::clone(&definitions);
            let rows = move |now| rows(&listed, now);
            let applied = store.apply(names, rows, others, mode, self.reason.cause())?;
            if !applied.wrong_hooks.is_empty() {
                let is_listed = |job: &str| definitions.iter().any(|listed| listed.name == job);
                let show = |wrong: &WrongHook| wrong_hook(wrong, is_listed);
                return Err(self.refuse(&applied.wrong_hooks, show).into());
            }
            if !applied.must_ask {
                break applied;
            }
            confirm(&applied, others)?;
            mode = ApplyMode::ChangeIfAgreed(applied.others);
        };
        let changes = changes(applied, others);
        let is_whole = changes.iter().all(|change| change.definition_key.is_none());
        let table = match changes.iter().any(|change| change.due_at.is_some()) {
            true => DUE.wrapped(),
            false if is_whole => WHOLE,
            false => TABLE.wrapped(),
        };
        print::rows(self.output, &changes, &table)
    }

    /// Prints the mistakes except the last one, which `main` prints.
    fn refuse<T>(&self, mistakes: &[T], show: impl Fn(&T) -> String) -> Fault {
        let mut lines: Vec<_> = mistakes.iter().take(MOST_PROBLEMS).map(show).collect();
        let others = mistakes.len() - lines.len();
        if others > 0 {
            lines.push(format!("{}: {}", self.file, plural::of(others as i64, "more mistake")));
        }
        let last = lines.pop().unwrap_or_default();
        lines.iter().for_each(|line| print::complain(&format!("cannot apply: {line}")));
        Fault::usage(format!("cannot apply: {last}"))
    }
}

fn wrong_hook(wrong: &WrongHook, is_listed: impl Fn(&str) -> bool) -> String {
    let WrongHook { job, key, hook, served } = wrong;
    let Some(served) = served else {
        return format!("job `{job}`: `{key}`: no definition `{hook}`; add it to the file");
    };
    let remedy = if is_listed(served) { "" } else { "; the file does not have it, see --prune" };
    format!(
        "job `{job}`: `{key}`: `{job}` is a hook of `{served}`, and a hook has no hooks{remedy}"
    )
}

/// Asks whether definitions that the file does not have may end.
fn confirm(applied: &Applied, others: Unlisted) -> anyhow::Result<()> {
    let ended = plural::of(applied.others.len() as i64, "definition");
    let scheduled = match applied.scheduled {
        0 => String::new(),
        scheduled => format!(", {scheduled} with a schedule"),
    };
    let what = format!("{} {ended}{scheduled}", verb(others));
    print::confirm("apply", &what)
}

fn verb(others: Unlisted) -> &'static str {
    match others {
        Unlisted::Disable => "disable",
        Unlisted::Remove => "remove",
    }
}

/// The rows of the definitions, each with its next nominal time.
fn rows(definitions: &[Definition], now: DateTime<Utc>) -> Value {
    let row = |definition: &Definition| {
        let mut row = definition.row.clone();
        let next = definition.schedule.as_ref().filter(|_| row["enabled"] == true);
        let next = next.and_then(|schedule| schedule.first(now).ok());
        row["next_run_at"] = next.map_or(Value::Null, |next| Value::from(next.to_rfc3339()));
        row
    };
    definitions.iter().map(row).collect()
}

fn changes(applied: Applied, others: Unlisted) -> Vec<Change> {
    let whole = |change, job_type| Change { change, job_type, ..Change::default() };
    let gone = verb(others);
    let Applied { changed, others, due, .. } = applied;
    let changed = changed.into_iter().map(|(job, before, after)| match before {
        None => vec![whole("add", job)],
        Some(before) => {
            let keys = definition_keys::differing(&before, &after).into_iter();
            let change = |(key, old, new)| Change {
                definition_key: Some(key),
                old,
                new,
                ..whole("change", job.clone())
            };
            keys.map(change).collect()
        }
    });
    let others = others.into_iter().map(|job| vec![whole(gone, job)]);
    let with_due = |mut changes: Vec<Change>| {
        let of_job = changes.first().and_then(|change| {
            let Change { job_type, .. } = change;
            let due = due.iter().find(|due| due.job == *job_type)?;
            let (due_at, due_runs) = (Some(due.since), Some(due.runs));
            Some(Change { due_at, due_runs, ..whole("due", job_type.clone()) })
        });
        changes.extend(of_job);
        changes
    };
    changed.chain(others).flat_map(with_due).collect()
}
