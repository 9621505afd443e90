//! `jobctl apply`: makes the definitions what a file says.

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Database;
use crate::definition::{self, Definition};
use crate::exit::{Exit, Fault};
use crate::print::{self, Form};
use crate::store::{Applied, Others, Purpose};
use crate::{fires, tick};

/// Make the job definitions match a TOML file
///
/// Definitions that the file does not have are disabled: their schedules stop.
/// Nothing is changed when anything in the file is wrong.
///
///   jobctl apply jobs.toml --dry-run
///   jobctl apply jobs.toml
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A TOML file, like examples/jobs.toml
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Remove definitions that the file does not have, instead of disabling them
    #[arg(long)]
    prune: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// A difference between the definitions and the file.
#[derive(Debug, Serialize)]
struct Change {
    job: String,
    change: &'static str,
    /// Columns that differ.
    keys: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("cannot read `{}`", self.file))?;
        let store = database.open()?;
        let definitions = definition::read(&text, store.now()?).map_err(|problem| {
            Fault::usage(format!("nothing is applied: {}:{}: {}", self.file, problem.line, problem.what))
        })?;
        let names = definitions.iter().map(|definition| definition.name.clone()).collect();
        let others = if self.prune { Others::Remove } else { Others::Disable };
        let purpose = if self.dry_run { Purpose::OnlyLook } else { Purpose::Change };
        if purpose == Purpose::Change {
            // What is refused is put off by it: the file may be what mends that.
            tick::fire(&store, || true)?;
        }
        let applied = store.apply(names, move |now| rows(&definitions, now), others, purpose)?;
        let changes = changes(applied, others);
        let form = Form::new(self.json);
        print::rows_or("nothing changes", form, &["change", "job", "keys"], &changes, |change| {
            vec![change.change.to_owned(), change.job.clone(), change.keys.join(", ")]
        })?;
        Ok(Exit::Done)
    }
}

/// The rows of the definitions, each with its next nominal time.
fn rows(definitions: &[Definition], now: DateTime<Utc>) -> Value {
    let row = |definition: &Definition| {
        let mut row = serde_json::to_value(definition).unwrap_or_default();
        let next = definition.schedule.as_ref().filter(|_| definition.enabled);
        let next = next.and_then(|schedule| fires::first(schedule, &definition.time_zone, now).ok());
        row["next_run_at"] = next.map_or(Value::Null, |next| Value::from(next.to_rfc3339()));
        row
    };
    definitions.iter().map(row).collect()
}

fn changes(applied: Applied, others: Others) -> Vec<Change> {
    let changed = applied.changed.into_iter().filter_map(|(job, before, after)| match before {
        None => Some(Change { job, change: "add", keys: Vec::new() }),
        Some(before) => {
            let keys = differing(&before, &after);
            (!keys.is_empty()).then_some(Change { job, change: "change", keys })
        }
    });
    let gone = match others {
        Others::Disable => "disable",
        Others::Remove => "remove",
    };
    changed.chain(applied.others.into_iter().map(|job| Change { job, change: gone, keys: Vec::new() })).collect()
}

/// The columns in which a definition differs, but for those that follow from others.
fn differing(before: &Value, after: &Value) -> Vec<String> {
    let none = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    let follows =
        ["action_bytes", "payload_bytes", "most_fires", "most_running", "next_run_at", "put_off_until", "updated_at"];
    let differs = |key: &&String| before.get(*key) != after.get(*key) && !follows.contains(&key.as_str());
    after.keys().filter(differs).cloned().collect()
}
