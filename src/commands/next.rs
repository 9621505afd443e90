//! `jobctl next`: the next times of schedules.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};
use clap::{ArgGroup, Args};
use cron_zone::{Fire, HORIZON_YEARS, Schedule, Zone};
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{DefinitionName, length, time};
use crate::exit::{Exit, Fault};
use crate::job::due::{self, Scheduled};
use crate::print::{self, Format, Output, Table};
use crate::store::{self, Store};
use crate::text::duration::{DAY, SECOND};
use crate::text::plain::plain;
use crate::text::{duration, plural, timestamp};

/// Show when schedules fire, clock changes included
///
/// Without a name: the next time of each definition, how its last attempt ended,
/// and how many of its times were skipped. With a name: its next times. The first
/// one is stored: it fires even if the expression yields another. Usual run times
/// are medians of a job's last successes, at most 30. --schedule tries an
/// expression, and needs no database:
///
///   jobctl next --within 1h
///   jobctl next --schedule '30 2 * * mon-fri' --time-zone Europe/Berlin
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(group = ArgGroup::new("one").args(["name", "job", "schedule"]))]
pub(crate) struct Arguments {
    #[command(flatten)]
    definition: DefinitionName,
    /// Minute, hour, day of month (also L, LW), month and day of week (also mon#1, friL); or
    /// @hourly, @daily, @weekly, @monthly, @yearly, @every 90m
    #[arg(long, value_name = "EXPR")]
    schedule: Option<String>,
    /// Time zone of the schedule: UTC, or an area and city as in America/New_York
    #[arg(
        long,
        value_name = "TZ",
        default_value = "UTC",
        requires = "schedule",
        conflicts_with_all = ["name", "job"]
    )]
    time_zone: String,
    /// Show times after this one: RFC 3339, with its offset [default: now]
    #[arg(long, value_name = "TIME", requires = "one", value_parser = time)]
    from: Option<DateTime<Utc>>,
    /// Number of times to show
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        requires = "one",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    count: u16,
    /// List all fires within this time, and how long their runs usually take in all
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with_all = ["one", "from", "count"],
        value_parser = length(SECOND, DAY)
    )]
    within: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

/// The schedules of applications that `--within` reads for each job.
const MOST_WITHIN: i64 = 10_000;

/// A schedule's next time.
#[derive(Default, Serialize)]
struct Next {
    #[serde(with = "timestamp")]
    next_run_at: Option<DateTime<Utc>>,
    job_type: String,
    /// `fires`, `broken`, `paused` or `disabled`; for a job that follows others and is neither
    /// paused nor disabled, `after` and their names.
    state: String,
    schedule: Option<String>,
    time_zone: Option<String>,
    skipped_fires: i64,
    /// `next_run_at` in the time zone of the schedule.
    local_time: Option<String>,
    last_status: Option<String>,
    #[serde(with = "timestamp")]
    last_succeeded_at: Option<DateTime<Utc>>,
    usual_seconds: Option<f64>,
    #[serde(with = "timestamp")]
    usual_end_at: Option<DateTime<Utc>>,
    /// The name of a schedule that an application made.
    application_schedule: Option<String>,
    /// The login of that application.
    owner: Option<String>,
}

// A narrow terminal gets fewer columns: columns of numbers are left out from the left to the right.
const DEFINITIONS: Table<'_> = Table::new(
    "next_run_at|state as next, usual_seconds as usual, usual_end_at as usual end, \
     skipped_fires as skipped, local_time as local time, job_type as job, \
     schedule+time_zone as schedule, last_status as last result, \
     last_succeeded_at as last success, application_schedule as name, owner as made by",
    "no definition has a schedule",
);

/// A nominal time of a schedule.
#[derive(Default, Serialize)]
struct Nominal {
    #[serde(with = "timestamp")]
    scheduled_for: DateTime<Utc>,
    local_time: String,
    clock_change: Option<String>,
    usual_seconds: Option<f64>,
    #[serde(with = "timestamp")]
    usual_end_at: Option<DateTime<Utc>>,
    /// This field and those after it are only set with `--within`.
    job_type: Option<String>,
    /// The name of a schedule that an application made.
    application_schedule: Option<String>,
    /// The login of that application.
    owner: Option<String>,
    time_zone: Option<String>,
}

const TIMES: Table<'_> =
    Table::new("scheduled_for as at, local_time as local time, clock_change as clock change", "");

/// The columns with `--within`.
const FIRES: Table<'_> = Table::new(
    "scheduled_for as at, job_type as job, usual_seconds as usual, usual_end_at as usual end, \
     local_time as local time, time_zone as time zone, clock_change as clock change, \
     application_schedule as name, owner as made by",
    "no schedule fires within this time",
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        if let Some(expression) = &self.schedule {
            // There is no database, so use the host's clock, which only selects the lines to show.
            // `Utc::now` would panic before 1970.
            let from = self.from.unwrap_or_else(|| SystemTime::now().into());
            return self.show(expression, &self.time_zone, from, None, None);
        }
        if let Some(name) = self.definition.get().filter(|name| is_schedule(name)) {
            let why = format!("`{}` is not a name; to try a schedule: --schedule", plain(name));
            return Err(Fault::usage(format!("{why} '{}'", plain(name))).into());
        }
        let store = database.open()?;
        let mut name = None;
        if let Some(given) = self.definition.get() {
            let definition = super::definition(&store, given)?;
            self.show_definition(&store, &definition)?;
            name = Some(definition.name);
        } else if let Some(within) = self.within {
            let definitions = store.list_schedules(None, MOST_WITHIN)?;
            hint_more(&definitions, MOST_WITHIN);
            self.show_all(definitions, within)?;
        } else {
            self.list(store.list_schedules(None, store::SHOWN_APPLICATION_SCHEDULES)?)?;
        }
        super::hint_stops(&store, self.output, name)
    }

    /// Shows the times of a definition's schedule, or lists the schedules that applications made
    /// for it.
    fn show_definition(&self, store: &Store, definition: &Scheduled) -> anyhow::Result<()> {
        let name = &definition.name;
        let Some(expression) = &definition.schedule else {
            let most = store::SHOWN_APPLICATION_SCHEDULES;
            let schedules = store.list_schedules(Some(name.clone()), most)?;
            if schedules.len() > 1 {
                return self.list(schedules);
            }
            let why = match &definition.after {
                Some(after) => format!("definition `{name}` has no schedule: it follows {after}"),
                None => format!("definition `{name}` has no schedule"),
            };
            return Err(Fault::new(Exit::Conflict, why).into());
        };
        let state = state(definition);
        if !matches!(state, "fires" | "broken") {
            print::complain(&format!("`{name}` is {state}: it does not fire at these times"));
        }
        // Show the stored next time if it is after --from. With --from in the past, show only times
        // of the expression: the stored time says nothing about the past.
        let is_shown = |at: &DateTime<Utc>| {
            state == "fires" && self.from.is_none_or(|from| from >= definition.now && *at > from)
        };
        let from = self.from.unwrap_or(definition.now);
        let stored = definition.next_run_at.filter(is_shown);
        self.show(expression, &definition.time_zone, from, stored, definition.usual_seconds)
    }

    /// Lists the next time of each schedule.
    fn list(&self, definitions: Vec<Scheduled>) -> anyhow::Result<()> {
        hint_more(&definitions, store::SHOWN_APPLICATION_SCHEDULES);
        let now = definitions.first().map(|definition| definition.now);
        let mut next: Vec<_> = definitions.into_iter().filter_map(next).collect();
        // Schedules without a next time come last.
        next.sort_by_key(|one| (one.next_run_at.is_none(), one.next_run_at));
        print::rows(self.output, &next, &DEFINITIONS.since(now))
    }

    /// Prints the schedule in words, if the output is for people, and its times after `from`, as
    /// `times` returns them.
    fn show(
        &self,
        expression: &str,
        time_zone: &str,
        from: DateTime<Utc>,
        stored: Option<DateTime<Utc>>,
        usual: Option<f64>,
    ) -> anyhow::Result<()> {
        let schedule = Schedule::parse(expression, time_zone).map_err(Fault::usage)?;
        let zone = Zone::parse(time_zone).map_err(Fault::usage)?;
        let all = times(&schedule, &zone, from, stored, usual).map_err(Fault::usage)?;
        let times: Vec<_> = all.take(usize::from(self.count)).collect();
        if self.output.format() == Format::Table {
            let words = plain(&schedule.words());
            let usual = usual.and_then(|usual| Duration::try_from_secs_f64(usual).ok());
            print::answer(&match usual {
                Some(usual) => {
                    format!("{words} A run usually takes {}.\n\n", duration::show(usual))
                }
                None => format!("{words}\n\n"),
            })?;
        }
        print::rows(self.output, &times, &TIMES.wrapped())?;
        if let Some(last) = times.last().filter(|_| times.len() < usize::from(self.count)) {
            let last = last.scheduled_for.format("%Y-%m-%d");
            print::complain(&format!(
                "no more times within {HORIZON_YEARS} years after {last} and before the year 10000"
            ));
        }
        Ok(())
    }

    /// Lists the fires of all schedules `within` this time from now on, sorted by time.
    fn show_all(&self, definitions: Vec<Scheduled>, within: Duration) -> anyhow::Result<()> {
        let mut fires = Vec::new();
        for definition in definitions.iter().filter(|definition| state(definition) == "fires") {
            let Scheduled { schedule, time_zone, next_run_at, now, usual_seconds, .. } = definition;
            let Some(expression) = schedule else { continue };
            let schedule = Schedule::parse(expression, time_zone).map_err(Fault::usage)?;
            let zone = Zone::parse(time_zone).map_err(Fault::usage)?;
            let times = times(&schedule, &zone, *now, *next_run_at, *usual_seconds)
                .map_err(Fault::usage)?
                .take_while(|fire| fire.scheduled_for <= *now + within);
            fires.extend(times.map(|fire| Nominal {
                job_type: Some(definition.name.clone()),
                application_schedule: definition.application_schedule.clone(),
                owner: definition.owner.clone(),
                time_zone: Some(time_zone.clone()),
                ..fire
            }));
        }
        fires.sort_by_key(|fire| fire.scheduled_for);
        let now = definitions.first().map(|definition| definition.now);
        print::rows(self.output, &fires, &FIRES.since(now))?;
        if self.output.format() == Format::Table && !fires.is_empty() {
            let known: Vec<_> = fires.iter().filter_map(|fire| fire.usual_seconds).collect();
            let sum = Duration::try_from_secs_f64(known.iter().sum()).unwrap_or_default();
            let all = plural::of(fires.len() as i64, "fire");
            let unknown = match fires.len() - known.len() {
                0 => String::new(),
                unknown => format!("; unknown for {unknown}"),
            };
            let sum = duration::show(sum);
            print::answer(&format!("\n{all}; usual run time in all {sum}{unknown}\n"))?;
        }
        Ok(())
    }
}

/// Returns the times of a schedule after `from`. If there is a `stored` next time, begins with it,
/// even if the expression yields other times before it: the tick fires the stored time.
fn times<'a>(
    schedule: &'a Schedule,
    zone: &Zone,
    from: DateTime<Utc>,
    stored: Option<DateTime<Utc>>,
    usual_seconds: Option<f64>,
) -> Result<impl Iterator<Item = Nominal> + use<'a>, String> {
    let next = schedule.first(from)?;
    // A stored time that is also the next of the expression comes from there, with its mark.
    let differing = stored.filter(|stored| *stored != next);
    let first = differing.map(|at| Fire { at, local: zone.local(at), mark: None });
    let fires = schedule.fires(differing.map_or(from, |stored| stored.max(from)));
    Ok(first.into_iter().chain(fires).map(move |fire| Nominal {
        scheduled_for: fire.at,
        local_time: local_time(fire.local),
        clock_change: fire.mark,
        usual_seconds,
        usual_end_at: usual_seconds.and_then(|usual| timestamp::after(fire.at, usual)),
        ..Nominal::default()
    }))
}

/// Returns the row of a definition, with its next time if it fires. `None`: it has no schedule and
/// follows no job.
fn next(definition: Scheduled) -> Option<Next> {
    let mut state = state(&definition).to_owned();
    let next_run_at = definition.next_run_at.filter(|_| state == "fires");
    match (&definition.schedule, definition.after) {
        (None, None) => return None,
        (None, Some(after)) if state == "fires" => state = format!("after {after}"),
        _ => {}
    }
    let zone = Zone::parse(&definition.time_zone).ok();
    Some(Next {
        next_run_at,
        local_time: zone.zip(next_run_at).map(|(zone, at)| local_time(zone.local(at))),
        last_status: definition.last_status,
        last_succeeded_at: definition.last_succeeded_at,
        usual_end_at: next_run_at
            .zip(definition.usual_seconds)
            .and_then(|(at, usual)| timestamp::after(at, usual)),
        usual_seconds: definition.usual_seconds,
        job_type: definition.name,
        time_zone: definition.schedule.is_some().then_some(definition.time_zone),
        schedule: definition.schedule,
        state,
        skipped_fires: definition.skipped_fires,
        application_schedule: definition.application_schedule,
        owner: definition.owner,
    })
}

/// Prints, for each job with more than `most` schedules of applications, how many it has.
fn hint_more(definitions: &[Scheduled], most: i64) {
    // A job has several rows in succession, one for each schedule that is listed.
    let mut jobs: Vec<_> = definitions.iter().filter(|one| one.schedules > most).collect();
    jobs.dedup_by_key(|one| &one.name);
    for one in jobs {
        print::complain(&format!(
            "applications made {} for {}; the next {most} are listed",
            plural::grouped_of(one.schedules, "schedule"),
            one.name
        ));
    }
}

/// Returns a local time in RFC 3339.
fn local_time(at: DateTime<FixedOffset>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}

/// Returns whether the schedule fires, or why it does not.
fn state(definition: &Scheduled) -> &'static str {
    match (definition.enabled, definition.paused_at) {
        (false, _) => "disabled",
        (true, Some(_)) => "paused",
        (true, None) if due::is_broken(definition) => "broken",
        (true, None) => "fires",
    }
}

/// Returns whether a name is rather a schedule: no definition can have such a name.
fn is_schedule(name: &str) -> bool {
    name.starts_with('@') || name.contains(' ')
}
