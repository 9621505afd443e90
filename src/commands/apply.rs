//! `jobctl apply`: makes the definitions match a file.

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, ValueHint};
use cron_zone::Schedule;
use serde::Serialize;
use serde_json::Value;

use super::DatabaseFlags;
use super::arguments::Reason;
use super::import_crontab::host_zone;
use crate::exit::Fault;
use crate::files::{self, MIB};
use crate::job::action;
use crate::job::definition::{self, Definition, DefinitionFile, Problem};
use crate::job::definition_keys;
use crate::print::{self, Format, Output, Table};
use crate::store::{
    Applied, ApplyMode, ApplyTerms, ChangedDefinition, EndedDefinition, Store, UnknownEnqueuer,
    Unlisted, WrongHook,
};
use crate::text::{plural, timestamp};

/// The longest file that is read.
const FILE_LIMIT: u64 = 4 * MIB;
/// Mistakes that are printed; one at the beginning of a file can cause many.
const MOST_PROBLEMS: usize = 50;

/// Make the job definitions match a TOML file
///
/// A definition has a name, a command or a call, and perhaps a schedule:
///
///   [jobs.backup]
///   shell = "pg_dump --file /var/backups/app.sql app"
///   schedule = "30 2 * * *"
///   time_zone = "Europe/Berlin"
///   timeout = "2h"
///
/// Definitions that the file no longer has are disabled: their schedules stop.
/// If one of them has a schedule, or they are more than the file keeps, it asks
/// first; without a terminal it needs --yes. Nothing is changed when anything in
/// the file is wrong, or when it has no jobs. It prints each changed key with its
/// old and new value, without secrets.
///
/// Several files need names, by [file] name = "NAME" or by --as. A file disables
/// only its own definitions, and may not have one of another file.
///
///   jobctl apply jobs.toml --dry-run
///   jobctl apply jobs.toml
///   jobctl apply billing.toml --as billing
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A TOML file of at most 4 MiB and 10,000 jobs, like examples/jobs.toml; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Remove definitions that the file no longer has, instead of disabling them
    #[arg(long)]
    prune: bool,
    /// The file's name, not its path; overrides the name in its [file] table
    #[arg(long = "as", value_name = "NAME", value_parser = definition::file)]
    name: Option<String>,
    /// Take definitions that belong to another file, instead of failing
    #[arg(long)]
    take_over: bool,
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
    /// How many waiting runs of a removed definition the next tick ends as dead.
    waiting_runs: Option<i64>,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let text = self.read_file()?;
        let store = database.open()?;
        let DefinitionFile { name, mut definitions } = definition::read(&text, store.now()?)
            .map_err(|problems| {
                self.refuse(problems.iter().map(|Problem { line, what }| format!("{line}: {what}")))
            })?;
        let name = self.name.clone().or(name).unwrap_or_default();
        for definition in &mut definitions {
            definition.row["file"] = name.as_str().into();
        }
        if definitions.is_empty() {
            let why = "the file has no jobs; to stop a job, keep it with `enabled = false`";
            return Err(Fault::usage(format!("cannot apply: {}: {why}", self.file)).into());
        }
        warn_of_headers(&definitions);
        let applied = self.apply(&store, name, &definitions)?;
        warn_of_enqueuers(&applied.unknown_enqueuers);
        warn_of_lost_hooks(&applied.ended);
        let is_changed = |job: &str| applied.changed.iter().any(|changed| changed.name == job);
        let is_new = |definition: &&Definition| is_changed(&definition.name);
        warn_of_zone(definitions.iter().filter(is_new), store.now()?);
        let edges = applied.graph.edges.iter().filter(|(job, _)| is_changed(job));
        let edges: String =
            edges.map(|(job, after)| format!("{} -> {job}\n", after.join(", "))).collect();
        print_changes(self.output, &changes(applied, self.unlisted()))?;
        match self.output.format() == Format::Table {
            true => print::answer(&edges),
            false => Ok(()),
        }
    }

    fn read_file(&self) -> anyhow::Result<String> {
        let bytes = files::input(&self.file)
            .and_then(|file| files::read(file, FILE_LIMIT))
            .with_context(|| format!("cannot read `{}`", self.file))?;
        Ok(String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            Fault::usage(format!("cannot apply: {}:{line}: it is not UTF-8", self.file))
        })?)
    }

    /// Applies the definitions. Asks a person before it ends definitions that matter, and asks
    /// again if meanwhile it would end other ones.
    fn apply(
        &self,
        store: &Store,
        file: String,
        definitions: &[Definition],
    ) -> anyhow::Result<Applied> {
        let unlisted = self.unlisted();
        let mode = match (self.dry_run, self.yes) {
            (true, _) => ApplyMode::DryRun,
            (false, true) => ApplyMode::Change,
            (false, false) => ApplyMode::ChangeIfAgreed(Vec::new()),
        };
        let mut terms = ApplyTerms { file, unlisted, takes_over: self.take_over, mode };
        loop {
            let names = definitions.iter().map(|definition| definition.name.clone()).collect();
            let rows_at = |now| rows(definitions, now);
            let applied = store.apply(names, rows_at, terms.clone(), self.reason.cause())?;
            self.check(&applied, definitions)?;
            if !applied.must_ask {
                return Ok(applied);
            }
            confirm(&applied.ended, unlisted)?;
            let agreed = applied.ended.into_iter().map(|ended| ended.name).collect();
            terms.mode = ApplyMode::ChangeIfAgreed(agreed);
        }
    }

    /// Fails if the database refuses the definitions.
    fn check(&self, applied: &Applied, definitions: &[Definition]) -> Result<(), Fault> {
        let is_listed = |job: &str| definitions.iter().any(|listed| listed.name == job);
        let Applied { foreign: others, wrong_hooks, graph, .. } = applied;
        let mistakes: Vec<_> = if !others.is_empty() {
            others.iter().map(foreign).collect()
        } else if !wrong_hooks.is_empty() {
            wrong_hooks.iter().map(|wrong| wrong_hook(wrong, is_listed)).collect()
        } else {
            graph.mistakes.clone()
        };
        if mistakes.is_empty() {
            return Ok(());
        }
        Err(self.refuse(mistakes.iter().map(|why| format!(" {why}"))))
    }

    fn unlisted(&self) -> Unlisted {
        if self.prune { Unlisted::Remove } else { Unlisted::Disable }
    }

    /// Prints the mistakes except the last one, which `main` prints. Each mistake begins with its
    /// line and a colon, or with a blank: it follows the file's name and a colon.
    fn refuse(&self, mistakes: impl ExactSizeIterator<Item = String>) -> Fault {
        let others = mistakes.len().saturating_sub(MOST_PROBLEMS);
        let mut mistakes: Vec<_> = mistakes.take(MOST_PROBLEMS).collect();
        if others > 0 {
            mistakes.push(format!(" {}", plural::of(others as i64, "more mistake")));
        }
        let last = mistakes.pop().unwrap_or_default();
        let error = |mistake: &String| format!("cannot apply: {}:{mistake}", self.file);
        mistakes.iter().for_each(|mistake| print::complain(&error(mistake)));
        Fault::usage(error(&last))
    }
}

/// Prints the changes, with the columns that have a value.
fn print_changes(output: Output, changes: &[Change]) -> anyhow::Result<()> {
    let has = |field: fn(&Change) -> bool| changes.iter().any(field);
    let is_due = has(|change| change.due_at.is_some());
    let loses_runs = has(|change| change.waiting_runs.is_some());
    let is_wide = is_due || loses_runs || has(|change| change.definition_key.is_some());
    let mut columns = "change, job_type as job".to_owned();
    if is_wide {
        columns += ", definition_key as key, old, new";
    }
    if is_due {
        columns += ", due_at as due since, due_runs as runs";
    }
    if loses_runs {
        columns += ", waiting_runs as waiting runs";
    }
    let table = Table::new(&columns, "nothing changes");
    print::rows(output, changes, &if is_wide { table.wrapped() } else { table })
}

/// Warns of roles in `enqueuers` that do not exist.
fn warn_of_enqueuers(unknown: &[UnknownEnqueuer]) {
    for UnknownEnqueuer { role, job, jobs } in unknown {
        let jobs = match jobs - 1 {
            0 => format!("job `{job}`"),
            others => format!("job `{job}` and {}", plural::of(others, "other")),
        };
        print::complain(&format!(
            "`enqueuers` of {jobs} name role `{role}`, which does not exist; create it, or correct \
             the name"
        ));
    }
}

/// Warns of removed definitions whose waiting runs would have enqueued hooks.
fn warn_of_lost_hooks(ended: &[EndedDefinition]) {
    let unreported: i64 =
        ended.iter().filter(|ended| ended.has_hooks).map(|ended| ended.waiting).sum();
    if unreported > 0 {
        print::complain(&format!(
            "{} of removed definitions will be dead, and enqueue no hooks",
            plural::of(unreported, "waiting run")
        ));
    }
}

/// Warns of headers with a `$NAME`, which a shell would replace, but a call does not.
fn warn_of_headers(definitions: &[Definition]) {
    for Definition { name, row, .. } in definitions {
        for (header, value) in row["action"]["headers"].as_object().into_iter().flatten() {
            if value.as_str().is_some_and(action::has_shell_variable) {
                print::complain(&format!(
                    "job `{name}`: header `{header}` has a `$` before a name, but only `${{NAME}}` \
                     is replaced by a variable"
                ));
            }
        }
    }
}

/// Warns, in one line, of schedules in UTC that would fire at other times in this host's zone.
fn warn_of_zone<'a>(definitions: impl IntoIterator<Item = &'a Definition>, now: DateTime<Utc>) {
    let zone = host_zone();
    let fires_elsewhere = |definition: &Definition| {
        let expression = definition.row["schedule"].as_str().unwrap_or_default();
        let utc = definition.schedule.as_ref().filter(|_| definition.lacks_zone);
        let both = utc.zip(Schedule::parse(expression, &zone).ok());
        // Where clocks change, one half of the year may be like UTC.
        let seasons = [now, now + TimeDelta::days(182)];
        both.is_some_and(|(utc, host)| {
            seasons.iter().any(|season| utc.after(*season) != host.after(*season))
        })
    };
    if definitions.into_iter().any(fires_elsewhere) {
        print::complain(&format!(
            "schedules without `time_zone` fire in UTC, but this host's zone is {zone}; \
             `time_zone` in [defaults] sets it for all jobs of the file"
        ));
    }
}

/// The mistake that a job belongs to another file.
fn foreign((job, file): &(String, String)) -> String {
    let whose = match file.as_str() {
        "" => "a file without a name".to_owned(),
        name => format!("the file `{name}`"),
    };
    format!("job `{job}` belongs to {whose}; rename the job, or add --take-over")
}

/// The mistake that a key names a job which can't be a hook. `is_listed` says whether the file has
/// a job.
fn wrong_hook(wrong: &WrongHook, is_listed: impl Fn(&str) -> bool) -> String {
    let WrongHook { job, key, hook, served } = wrong;
    let Some(served) = served else {
        return format!("job `{job}`: `{key}`: no definition `{hook}`; add it to the file");
    };
    let remedy = match is_listed(served) {
        true => String::new(),
        false => format!("; the file no longer has `{served}`, and --prune removes it"),
    };
    format!(
        "job `{job}`: `{key}`: `{job}` is a hook of `{served}`, and a hook has no hooks{remedy}"
    )
}

/// Asks whether definitions that the file no longer has may end.
fn confirm(ended: &[EndedDefinition], unlisted: Unlisted) -> anyhow::Result<()> {
    let scheduled = ended.iter().filter(|ended| ended.is_scheduled).count();
    let waiting: i64 = ended.iter().map(|ended| ended.waiting).sum();
    let mut change = format!("{} {}", verb(unlisted), plural::of(ended.len() as i64, "definition"));
    if scheduled > 0 {
        change += &format!(", {scheduled} with a schedule");
    }
    if waiting > 0 {
        change += &format!(", and lose {}", plural::of(waiting, "waiting run"));
    }
    print::confirm("apply", &change)
}

fn verb(unlisted: Unlisted) -> &'static str {
    match unlisted {
        Unlisted::Disable => "disable",
        Unlisted::Remove => "remove",
    }
}

/// The rows of the definitions, each with its next nominal time.
fn rows(definitions: &[Definition], now: DateTime<Utc>) -> Value {
    let row = |definition: &Definition| {
        let mut row = definition.columns();
        let next = definition.schedule.as_ref().filter(|_| row["enabled"] == true);
        let next = next.and_then(|schedule| schedule.first(now).ok());
        row["next_run_at"] = next.map_or(Value::Null, |next| Value::from(next.to_rfc3339()));
        row
    };
    definitions.iter().map(row).collect()
}

/// Returns the differences to print.
fn changes(applied: Applied, unlisted: Unlisted) -> Vec<Change> {
    let whole = |change, job_type| Change { change, job_type, ..Change::default() };
    let gone = verb(unlisted);
    let Applied { changed, ended, due, .. } = applied;
    let changed =
        changed.into_iter().map(|ChangedDefinition { name, before, after }| match before {
            None => vec![whole("add", name)],
            Some(before) => {
                let keys = definition_keys::differing(&before, &after).into_iter();
                let change = |(key, old, new)| Change {
                    definition_key: Some(key),
                    old,
                    new,
                    ..whole("change", name.clone())
                };
                keys.map(change).collect()
            }
        });
    let ended = ended.into_iter().map(|EndedDefinition { name, waiting, .. }| {
        vec![Change { waiting_runs: Some(waiting).filter(|runs| *runs > 0), ..whole(gone, name) }]
    });
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
    changed.chain(ended).flat_map(with_due).collect()
}
