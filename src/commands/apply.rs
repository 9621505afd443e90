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
use crate::job::{definition_keys, stored_definition};
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
    #[arg(long = "as", value_name = "NAME", value_parser = definition_keys::file)]
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

/// A row of the answer. An added or ended definition has one row, and a changed definition one for
/// each changed key. If times of its schedule are due, it has one more row, about these times.
#[derive(Debug, Default, Serialize)]
struct Change {
    /// `add`, `change`, `disable`, `remove`, or `due` for the row about due times.
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
        let changed = definitions.iter().filter(|definition| is_changed(&definition.name));
        warn_of_zone(changed, store.now()?);
        let mut following = String::new();
        for (job, after) in applied.graph.edges.iter().filter(|(job, _)| is_changed(job)) {
            following += &format!("{} -> {job}\n", after.join(", "));
        }
        print_changes(self.output, &changes(applied, self.unlisted()))?;
        if self.output.format() == Format::Table {
            print::answer(&following)?;
        }
        Ok(())
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

    /// Applies the definitions. If a person must agree to the end of definitions, the first call
    /// of the store changes nothing: asks, and calls it again. Asks again if that call would end
    /// other definitions.
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

    /// Fails if jobs belong to another file, name a wrong hook, or follow each other in a wrong
    /// way.
    fn check(&self, applied: &Applied, definitions: &[Definition]) -> Result<(), Fault> {
        let is_listed = |job: &str| definitions.iter().any(|listed| listed.name == job);
        let Applied { foreign, wrong_hooks, graph, .. } = applied;
        let mistakes: Vec<_> = if !foreign.is_empty() {
            foreign.iter().map(|(job, file)| foreign_job(job, file)).collect()
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

    /// Prints all mistakes but the last, and returns the last one as the error, which `main`
    /// prints. Each mistake begins with its line and a colon, or with a blank, because it is
    /// printed after the file's name and a colon.
    fn refuse(&self, mistakes: impl ExactSizeIterator<Item = String>) -> Fault {
        let left_out = mistakes.len().saturating_sub(MOST_PROBLEMS);
        let mut mistakes: Vec<_> = mistakes.take(MOST_PROBLEMS).collect();
        if left_out > 0 {
            mistakes.push(format!(" {}", plural::of(left_out as i64, "more mistake")));
        }
        let last = mistakes.pop().unwrap_or_default();
        let error = |mistake: &String| format!("cannot apply: {}:{mistake}", self.file);
        mistakes.iter().for_each(|mistake| print::complain(&error(mistake)));
        Fault::usage(error(&last))
    }
}

/// Prints the changes. Leaves out columns that no row needs.
fn print_changes(output: Output, changes: &[Change]) -> anyhow::Result<()> {
    let is_due = changes.iter().any(|change| change.due_at.is_some());
    let loses_runs = changes.iter().any(|change| change.waiting_runs.is_some());
    let has_keys = changes.iter().any(|change| change.definition_key.is_some());
    let is_wide = is_due || loses_runs || has_keys;
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
    let runs_with_hooks: i64 =
        ended.iter().filter(|ended| ended.has_hooks).map(|ended| ended.waiting).sum();
    if runs_with_hooks > 0 {
        print::complain(&format!(
            "{} of removed definitions will be dead, and enqueue no hooks",
            plural::of(runs_with_hooks, "waiting run")
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
    // A zone with clock changes may be like UTC in one half of the year, as London is in winter.
    let seasons = [now, now + TimeDelta::days(182)];
    let differs_in_zone = |definition: &Definition| {
        let Some(in_utc) = definition.schedule.as_ref().filter(|_| definition.lacks_zone) else {
            return false;
        };
        let expression = definition.row["schedule"].as_str().unwrap_or_default();
        Schedule::parse(expression, &zone).is_ok_and(|in_zone| {
            seasons.iter().any(|season| in_utc.after(*season) != in_zone.after(*season))
        })
    };
    if definitions.into_iter().any(differs_in_zone) {
        print::complain(&format!(
            "schedules without `time_zone` fire in UTC, but this host's zone is {zone}; \
             `time_zone` in [defaults] sets it for all jobs of the file"
        ));
    }
}

/// The mistake that a job belongs to another file.
fn foreign_job(job: &str, file: &str) -> String {
    let whose = match file {
        "" => "a file without a name".to_owned(),
        name => format!("the file `{name}`"),
    };
    format!("job `{job}` belongs to {whose}; rename the job, or add --take-over")
}

/// The mistake that a key names a job without a definition, or that it is a key of a job which is
/// a hook itself. `is_listed` says whether the file has a job.
fn wrong_hook(wrong: &WrongHook, is_listed: impl Fn(&str) -> bool) -> String {
    let WrongHook { job, key, hook, served } = wrong;
    let Some(served) = served else {
        return format!("job `{job}`: `{key}`: no definition `{hook}`; add it to the file");
    };
    let remedy = if is_listed(served) {
        String::new()
    } else {
        format!(
            "; `{served}` is no longer in the file, but its definition stays; add --prune to \
             remove it"
        )
    };
    format!(
        "job `{job}`: `{key}`: `{job}` is a hook of `{served}`, and a hook has no hooks{remedy}"
    )
}

/// Asks whether to disable or remove the definitions that the file no longer has.
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

/// Returns the rows of the definitions. An enabled schedule gets its first time after `now`.
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

/// Returns the rows of the answer.
fn changes(applied: Applied, unlisted: Unlisted) -> Vec<Change> {
    let Applied { changed, ended, due, .. } = applied;
    let whole =
        |change, job: &str| Change { change, job_type: job.to_owned(), ..Change::default() };
    let row_about_due_times = |job: &str| {
        let of_job = due.iter().find(|due| due.job == job)?;
        let (due_at, due_runs) = (Some(of_job.since), Some(of_job.runs));
        Some(Change { due_at, due_runs, ..whole("due", job) })
    };
    let mut changes = Vec::new();
    for ChangedDefinition { name, before, after } in changed {
        let of_job: Vec<_> = match before {
            None => vec![whole("add", &name)],
            Some(before) => stored_definition::differing(&before, &after)
                .into_iter()
                .map(|(key, old, new)| Change {
                    definition_key: Some(key),
                    old,
                    new,
                    ..whole("change", &name)
                })
                .collect(),
        };
        // Without a changed key, nothing is printed about the due times either.
        if !of_job.is_empty() {
            changes.extend(of_job);
            changes.extend(row_about_due_times(&name));
        }
    }
    for EndedDefinition { name, waiting, .. } in ended {
        let waiting_runs = if waiting > 0 { Some(waiting) } else { None };
        changes.push(Change { waiting_runs, ..whole(verb(unlisted), &name) });
        changes.extend(row_about_due_times(&name));
    }
    changes
}
