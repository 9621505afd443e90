//! Flags and values that several commands take.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::Args;
use cron_zone::Zone;
use rustix::process::geteuid;

use super::when::When;
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::job::attempt::{HOOK_KEY_PREFIX, RUN_KEY_PREFIX};
use crate::job::definition_keys;
use crate::job::enqueue::{KeyScope, OnConflict};
use crate::job::failure::ErrorType;
use crate::job::status::Status;
use crate::print::{self, Output, Table};
use crate::store::{self, Cause, Relation, RunFilter, Store};
use crate::text::duration;
use crate::text::listing::Listing;
use crate::text::plain;
use crate::text::plural;
use crate::text::timestamp::instant;
pub(super) use crate::text::timestamp::parse as time;

/// A filter without an index reads this many runs in about a second; above it, a hint is printed.
const MANY_RUNS: i64 = 200_000;

/// The heading of the flags that select runs.
pub(super) const HEADING: &str = "Which runs";

/// Flags that select runs; a run must match all of them. In a struct that flattens this one, clap
/// also gives the heading to the fields that follow, unless they have their own.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
pub(super) struct Filter {
    /// Only runs of this job: a definition's name, or shell or http for runs without a definition
    #[arg(long, value_name = "JOB", value_parser = job)]
    job: Option<String>,
    /// Only runs of this queue
    #[arg(long, value_name = "QUEUE", value_parser = definition_keys::queue)]
    queue: Option<String>,
    /// Only runs with this key; KEY* stands for all keys that begin with KEY
    #[arg(long, value_name = "KEY", value_parser = key_filter)]
    key: Option<String>,
    /// Only runs with this share, which `enqueue --share` set
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: Option<String>,
    /// Only runs with an attempt on this worker, finished or running
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// Only runs with this value in their payload, as order.id=17; repeat it for several values
    #[arg(long, value_name = "PATH=VALUE", value_parser = member)]
    payload: Vec<(String, String)>,
    /// Only runs that this login of the database enqueued
    #[arg(long, value_name = "LOGIN")]
    enqueued_by: Option<String>,
    /// Only runs whose last failure was of this type, such as exit_code or timeout
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    error_type: Option<ErrorType>,
    /// Only runs with this text in their last error, or in the last line that the attempt with
    /// this error printed; ignores case
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only runs whose last failure belongs to this incident of `failures --group`
    #[arg(long, value_name = "INCIDENT", value_parser = incident)]
    incident: Option<(i64, i32)>,
    /// Only runs that wait or waited for this run, directly or through other runs
    #[arg(long, value_name = "ID", value_parser = run_id, group = "chain")]
    after: Option<i64>,
    /// Only runs that this run waits or waited for, directly or through other runs
    #[arg(long, value_name = "ID", value_parser = run_id, group = "chain")]
    before: Option<i64>,
    /// With --after or --before: only the nearest runs, not whole chains
    #[arg(long, requires = "chain")]
    direct: bool,
    /// Only runs that ended (if unfinished: were created) since then: 2h, 02:00, yesterday, a date
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    since: Option<When>,
    /// Only runs that ended (if unfinished: were created) before then
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    until: Option<When>,
}

impl Filter {
    /// Fills in the job that is given without `--job`.
    pub(super) fn or_job(self, argument: JobArgument) -> Self {
        Self { job: self.job.or(argument.name), ..self }
    }

    /// Fails if a filter is given. It needs the `flag` that selects all matching runs, which is
    /// missing.
    pub(super) fn refuse_without(&self, flag: &str) -> Result<(), Fault> {
        let Self { job, queue, key, share, worker, enqueued_by, error, .. } = self;
        let Self { payload, error_type, incident, after, before, since, until, .. } = self;
        let texts = [job, queue, key, share, worker, enqueued_by, error];
        let has_text = texts.into_iter().any(Option::is_some) || !payload.is_empty();
        if has_text
            || incident.is_some()
            || after.or(*before).is_some()
            || error_type.is_some()
            || since.is_some()
            || until.is_some()
        {
            return Err(Fault::usage(format!("filters need {flag}; add it, or give run ids")));
        }
        Ok(())
    }

    /// Returns the filter for the store.
    ///
    /// - `statuses`: the runs must be in one of them; empty for any status.
    pub(super) fn resolve(
        self,
        store: &Store,
        time_zone: &TimeZone,
        statuses: &[Status],
        output: Output,
    ) -> anyhow::Result<RunFilter> {
        if let Some(job) = &self.job {
            super::check_job_exists(store, job)?;
        }
        let [since, until] = time_zone.window(store, [self.since, self.until])?;
        let (prefix, key) = match self.key {
            Some(key) if key.ends_with('*') => (key.strip_suffix('*').map(str::to_owned), None),
            key => (None, key),
        };
        let mut ids = None;
        if let Some((run, attempt)) = self.incident {
            let runs = store.incident_runs(run, attempt)?;
            ids = Some(runs.ok_or_else(|| no_incident((run, attempt)))?);
        }
        if let Some(id) = self.after.or(self.before) {
            let relation = match self.after {
                Some(_) => Relation::Followers,
                None => Relation::Predecessors,
            };
            let mut related = store.related_runs(id, relation, self.direct)?;
            // With --incident, a run must match both.
            related.retain(|id| ids.as_ref().is_none_or(|ids| ids.contains(id)));
            ids = Some(related);
        }
        let filter = RunFilter {
            statuses: statuses.to_vec(),
            job: self.job,
            queue: self.queue,
            key,
            key_prefix: prefix,
            share: self.share,
            worker: self.worker,
            error_type: self.error_type,
            error: self.error,
            payload: self.payload,
            enqueued_by: self.enqueued_by,
            since,
            until,
            ids,
            ..RunFilter::default()
        };
        if filter.reads_all()
            && let Some(estimate) = store.run_estimate()?.filter(|runs| *runs > MANY_RUNS)
        {
            let runs = plural::grouped_of(estimate, "run");
            print::hint(output, &format!("this may read all {runs}; add --since to read fewer"));
        }
        Ok(filter)
    }
}

/// The job of `--job`, without the flag.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct JobArgument {
    /// The same as --job JOB
    #[arg(value_name = "JOB", value_parser = named_job, conflicts_with = "job")]
    pub(super) name: Option<String>,
}

/// The definition that a command is about.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(super) struct DefinitionName {
    /// A definition's name
    name: Option<String>,
    /// The same as NAME
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

impl DefinitionName {
    pub(super) fn get(&self) -> Option<&String> {
        self.name.as_ref().or(self.job.as_ref())
    }
}

/// The time zone of `--since` and `--until`. It is not a part of [`Filter`] for two reasons: a
/// variable may set it, because it selects no runs. And if `Filter` flattened another struct, clap
/// would leave the group `Filter` empty, with which the ids of runs conflict.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct TimeZone {
    /// Time zone of --since and --until: UTC, or an area and city as in America/New_York
    #[arg(
        long,
        value_name = "TZ",
        default_value = "UTC",
        value_parser = Zone::parse,
        help_heading = HEADING
    )]
    time_zone: Zone,
}

impl TimeZone {
    /// Resolves `--since` and `--until` by the database's clock.
    pub(super) fn window(
        &self,
        store: &Store,
        window: [Option<When>; 2],
    ) -> anyhow::Result<[Option<DateTime<Utc>>; 2]> {
        if window == [None; 2] {
            return Ok([None; 2]);
        }
        let instants = When::window(window, store.now()?, &self.time_zone);
        if let [Some(since), Some(until)] = instants
            && since > until
        {
            let lacks_date = |when: &Option<When>| matches!(when, Some(When::TimeOfDay(_)));
            let remedy = if window.iter().any(lacks_date) { "add the dates" } else { "swap them" };
            let [since, until] = [since, until].map(instant);
            bail!(Fault::usage(format!("--since {since} is after --until {until}; {remedy}")));
        }
        Ok(instants)
    }
}

/// The reason for a change.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct Reason {
    /// Why; `jobctl trail` shows it
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

impl Reason {
    pub(super) fn cause(&self) -> Cause {
        Cause { host_user: host_user(), reason: self.reason.clone(), operation: None }
    }
}

/// Returns the user and the host of this command, as in `ana@web1`.
pub(super) fn host_user() -> String {
    format!("{}@{}", user(), host_name())
}

fn reason(text: &str) -> Result<String, String> {
    let fits = (1..=1000).contains(&text.chars().count());
    checked(text, fits, "a reason has 1 to 1000 characters")
}

/// Returns the name of the user, with `sudo` that of its caller.
fn user() -> String {
    let variable = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
    let name = variable("SUDO_USER").or_else(connect::os_user).or_else(|| variable("USER"));
    name.map_or_else(|| geteuid().as_raw().to_string(), |name| name.chars().take(255).collect())
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Flags that choose the fields of a list and the order of its rows.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct Shown {
    /// Show these fields, named as in --json
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    columns: Vec<String>,
    /// Sort the rows that --limit leaves by these fields; -FIELD sorts backwards
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', allow_hyphen_values = true)]
    sort: Vec<String>,
}

impl Shown {
    /// Sorts the rows, keeps the named fields of each, and returns the columns of their table;
    /// `None` stands for the usual columns.
    fn apply(&self, list: &mut Listing) -> anyhow::Result<Option<String>> {
        let sorted = list.sort(&self.sort).map_err(|why| format!("--sort: {why}"));
        sorted.map_err(Fault::usage)?;
        if self.columns.is_empty() {
            return Ok(None);
        }
        let selected = list.select(&self.columns).map_err(|why| format!("--columns: {why}"));
        selected.map_err(Fault::usage)?;
        let column = |name: &String| format!("{name} as {}", name.replace('_', " "));
        Ok(Some(self.columns.iter().map(column).collect::<Vec<_>>().join(", ")))
    }
}

/// Prints at most `limit` rows of a list, and a hint if there are more rows.
///
/// - `which`: a word for the rows that come first, such as `newest`.
/// - `read` gets the number of rows to read, which is one more than the limit. It returns at least
///   as many, or all rows.
pub(super) fn print_first(
    output: Output,
    shown: &Shown,
    limit: i64,
    which: &str,
    table: &Table<'_>,
    read: impl FnOnce(i64) -> store::Result<Listing>,
) -> anyhow::Result<()> {
    // One more row than the limit shows whether there are more.
    let mut list = read(limit.saturating_add(1))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = list.rows.len() > limit;
    list.rows.truncate(limit);
    let columns = shown.apply(&mut list)?;
    let table = columns.as_ref().map_or(*table, |columns| table.with(columns));
    print::list(output, &list, &table)?;
    if has_more {
        print::hint(output, &format!("these are the {which} {limit}; --limit shows more"));
    }
    Ok(())
}

/// A function that reads the value of a flag.
pub(super) trait ReadFlag<T>:
    Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
{
}

impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> ReadFlag<T> for F {}

/// Reads a number within a range; the error names the range.
pub(super) fn within<N>(least: N, most: N) -> impl ReadFlag<N>
where
    N: Copy + Display + FromStr + PartialOrd + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("allowed are {least} to {most}"))
    }
}

/// Reads a duration within a range.
pub(super) fn length(least: Duration, most: Duration) -> impl ReadFlag<Duration> {
    move |text: &str| Ok(duration::parse_within(text, least, most)?)
}

/// Reads a duration of at most `most`.
pub(super) fn up_to(most: Duration) -> impl ReadFlag<Duration> {
    length(Duration::ZERO, most)
}

/// Reads a duration within a range as seconds, which the database takes.
pub(super) fn seconds(least: Duration, most: Duration) -> impl ReadFlag<f64> {
    move |text: &str| Ok(duration::parse_within(text, least, most)?.as_secs_f64())
}

/// Lets flags take the words of enums, so that clap checks them and shells complete them.
macro_rules! flag_words {
    ($($name:ty),+ $(,)?) => {$(
        impl clap::ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                &Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                Some(self.as_str().into())
            }
        }
    )+};
}
pub(super) use flag_words;
flag_words!(ErrorType, KeyScope, OnConflict, Status);

/// Reads a job's name. Runs can have names that no definition may have.
pub(super) fn job(text: &str) -> Result<String, String> {
    let fits = (1..=63).contains(&text.chars().count());
    checked(text, fits, "a job's name has 1 to 63 characters")
}

/// Reads a job's name that is given without `--job`. Rejects numbers, because other commands take a
/// run's id in this place.
pub(super) fn named_job(text: &str) -> Result<String, String> {
    match text.parse::<u64>() {
        Ok(_) => Err("a number is a run's id; a job with such a name needs --job".to_owned()),
        Err(_) => job(text),
    }
}

/// Reads a path of a payload and the value there, as in `order.id=17`.
fn member(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(path, _)| !path.is_empty());
    let owned = |(path, value): (&str, &str)| (path.to_owned(), value.to_owned());
    parts.map(owned).ok_or_else(|| "must be a path and a value, as in order.id=17".to_owned())
}

/// Returns the error for an attempt that has no incident.
pub(super) fn no_incident((run, attempt): (i64, i32)) -> Fault {
    // 0 stands for a run that died without a failed attempt.
    if attempt == 0 {
        let why = format!("run {run} has no failed attempt; `jobctl show {run}` says how it ended");
        return Fault::new(Exit::NotFound, why);
    }
    let why = format!("run {run} has no failed attempt {attempt}, and so no incident");
    Fault::new(Exit::NotFound, format!("{why}; `jobctl failures --group` lists the incidents"))
}

/// Reads the id of an incident: a run and the number of its attempt, as in 17.2; 0 stands for a run
/// that died without a failed attempt.
pub(super) fn incident(text: &str) -> Result<(i64, i32), String> {
    let read = text.split_once('.').and_then(|(run, attempt)| {
        let attempt = attempt.parse().ok().filter(|attempt| *attempt >= 0)?;
        Some((run_id(run).ok()?, attempt))
    });
    read.ok_or_else(|| "must be a run and an attempt, as in 17.2".to_owned())
}

/// Reads a run's id.
pub(super) fn run_id(text: &str) -> Result<i64, String> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| format!("ids are whole numbers from 1 to {}", i64::MAX))
}

/// Checks a worker's name.
pub(super) fn worker(text: &str) -> Result<String, String> {
    plain::short("worker's name", text)
}

/// Checks the key of an effect.
pub(super) fn key(text: &str) -> Result<String, String> {
    plain::short("key", text)
}

/// Checks a key or the beginning of keys. A script whose prefix is empty by mistake must not select
/// all keys.
fn key_filter(text: &str) -> Result<String, String> {
    match text.strip_suffix('*').map(str::trim) {
        Some("") => Err("KEY* needs the beginning of the keys before its *".to_owned()),
        _ => key(text),
    }
}

/// Checks the key of a run.
pub(super) fn run_key(text: &str) -> Result<String, String> {
    let reserved = [(RUN_KEY_PREFIX, "runs without a key"), (HOOK_KEY_PREFIX, "hooks")];
    match reserved.iter().find(|(prefix, _)| text.starts_with(prefix)) {
        Some((prefix, whose)) => {
            Err(format!("the key prefix {prefix} is reserved for {whose}; use another key"))
        }
        None => key(text),
    }
}

/// Checks the lock of a run.
pub(super) fn lock(text: &str) -> Result<String, String> {
    plain::short("lock", text)
}

/// Checks the share of a run.
pub(super) fn share(text: &str) -> Result<String, String> {
    plain::short("share", text)
}

/// Returns the text if it `fits`, or else the broken rule as an error.
pub(super) fn checked(text: &str, fits: bool, rule: &str) -> Result<String, String> {
    if fits { Ok(text.to_owned()) } else { Err(rule.to_owned()) }
}
