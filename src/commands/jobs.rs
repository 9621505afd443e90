//! `jobctl jobs`: the definitions, or one of them with its next times, its last runs and its trail.

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use cron_zone::Schedule;
use serde::Serialize;
use serde_json::{Map, Value};

use super::arguments::DefinitionName;
use super::{DatabaseFlags, list, show};
use crate::job::stored_definition;
use crate::print::{self, Cell, Fields, Output, Table};
use crate::store::{RunFilter, RunList, Store, StoredDefinition};
use crate::text::listing::Listing;
use crate::text::timestamp;

/// List definitions: what they run, and which are paused
///
/// With a name: that definition's keys as in the TOML file, with defaults, its last
/// runs and its trail. Leaves out the values of headers and of the environment, and
/// the query of a URL.
///
///   jobctl jobs
///   jobctl jobs cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    definition: DefinitionName,
    #[command(flatten)]
    output: Output,
}

/// A definition as the list shows it.
#[derive(Default, Serialize)]
struct Listed {
    job_type: String,
    /// The command or the call, without secrets.
    executes: String,
    schedule: Option<String>,
    time_zone: Option<String>,
    queue: Option<String>,
    max_running: Option<i64>,
    max_attempts: Option<i64>,
    timeout_seconds: Option<f64>,
    state: Option<String>,
    #[serde(with = "timestamp")]
    since_at: Option<DateTime<Utc>>,
    changed_by: Option<String>,
    reason: Option<String>,
    #[serde(with = "timestamp")]
    next_run_at: Option<DateTime<Utc>>,
    file: Option<String>,
}

const TABLE: Table<'_> = Table::new(
    "job_type as job, executes as runs, schedule+time_zone as schedule, \
     next_run_at|state as next, since_at as since, changed_by as by, queue, \
     timeout_seconds as timeout",
    "no definition; `jobctl apply` adds those of a file",
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        if let Some(name) = self.definition.get() {
            return show_one(&store, name.clone(), self.output);
        }
        let definitions = store.list_definitions(None)?;
        let now = definitions.first().map(|definition| definition.now);
        let jobs: Vec<_> = definitions.into_iter().map(Listed::from).collect();
        print::rows(self.output, &jobs, &TABLE.since(now))?;
        super::hint_stops(&store, self.output, None)
    }
}

impl From<StoredDefinition> for Listed {
    fn from(definition: StoredDefinition) -> Self {
        let keys: Value = serde_json::from_str(&definition.keys).unwrap_or_default();
        let text = |key: &str| keys[key].as_str().map(str::to_owned);
        Self {
            job_type: definition.job_type,
            executes: stored_definition::summary(&keys),
            schedule: text("schedule"),
            time_zone: text("time_zone").filter(|_| !keys["schedule"].is_null()),
            queue: text("queue"),
            max_running: keys["max_running"].as_i64(),
            max_attempts: keys["max_attempts"].as_i64(),
            timeout_seconds: stored_definition::timeout(&keys).map(|timeout| timeout.as_secs_f64()),
            state: definition.state,
            since_at: definition.since_at,
            changed_by: definition.changed_by,
            reason: definition.reason,
            next_run_at: definition.next_run_at,
            file: text("file"),
        }
    }
}

/// How many next times and how many last runs are shown.
const SHOWN: usize = 5;

/// A definition with its next times, last runs and trail, as `jobs NAME` shows it.
#[derive(Serialize)]
struct JobAnswer {
    #[serde(flatten)]
    definition: StoredDefinition,
    /// In the time zone of the schedule; empty if it does not fire.
    next_times: Vec<String>,
    keys: Map<String, Value>,
    last_runs: Listing,
    events: Listing,
}

/// Shows one definition, and what stops it.
fn show_one(store: &Store, name: String, output: Output) -> anyhow::Result<()> {
    let definition = store.list_definitions(Some(name.clone()))?.pop();
    let definition = definition.ok_or_else(|| super::no_definition(store, &name))?;
    let now = definition.now;
    let stored: Value = serde_json::from_str(&definition.keys).unwrap_or_default();
    // A schedule without a next time does not fire.
    let texts = stored["schedule"].as_str().zip(stored["time_zone"].as_str());
    let schedule = texts
        .filter(|_| definition.next_run_at.is_some())
        .and_then(|(text, zone)| Schedule::parse(text, zone).ok());
    let times = schedule.iter().flat_map(|schedule| schedule.fires(now).take(SHOWN));
    let filter = RunFilter { job: Some(name.clone()), ..RunFilter::default() };
    let keys = stored_definition::shown(&stored);
    let answer = JobAnswer {
        next_times: times
            .map(|fire| fire.local.to_rfc3339_opts(SecondsFormat::Secs, false))
            .collect(),
        keys: keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        last_runs: store.list_runs(RunList::Any, filter, SHOWN as i64)?,
        events: store.list_events(None, Some(name.clone()))?,
        definition,
    };
    print::object(output, &answer, |fields| text(&answer, &keys, fields))?;
    super::hint_stops(store, output, Some(name))
}

/// Prints a definition for people: its facts, its last runs and its trail.
fn text(answer: &JobAnswer, keys: &[(&'static str, Value)], fields: &Fields) -> anyhow::Result<()> {
    let now = answer.definition.now;
    let mut facts = fields.cells(
        "job_type as job, state, since_at as since, changed_by as by, reason, \
         skipped_fires as skipped times, application_schedules as schedules of applications, \
         schedule_owners as schedule owners",
        Some(now),
    );
    facts.retain(|(name, _)| match *name {
        "skipped times" => answer.definition.skipped_fires > 0,
        "schedules of applications" | "schedule owners" => {
            answer.definition.application_schedules > 0
        }
        _ => true,
    });
    let times = answer.next_times.join(", ");
    facts.push(("next times", if times.is_empty() { Cell::Nothing } else { Cell::Text(times) }));
    facts
        .extend(keys.iter().map(|(key, value)| (*key, Cell::Text(stored_definition::toml(value)))));
    print::facts(facts)?;
    let mut runs = answer.last_runs.clone();
    list::hide_errors_before_success(&mut runs);
    print::answer(&print::section("Last runs", &runs.rows, &list::TABLE.since(Some(now)))?)?;
    show::trail(&answer.events, now)
}
