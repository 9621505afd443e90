//! `jobctl next`: when schedules fire.

use std::time::SystemTime;

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::Database;
use crate::exit::{Exit, Fault};
use crate::fires;
use crate::print::{self, Cell, Form};
use crate::schedule::{Fire, HORIZON_YEARS, Schedule};
use crate::store::Scheduled;

const FIRES: &str = "fires";
const BROKEN: &str = "broken";

/// Show when schedules fire, clock changes included
///
/// Without a name: the next time of every definition, and how many of its times
/// were left out so far. With --schedule no database is needed, which is the way
/// to try an expression:
///
///   jobctl next --schedule '30 2 * * mon-fri' --time-zone Europe/Berlin
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A definition's name
    #[arg(group = "one")]
    name: Option<String>,
    /// Minute, hour, day of month, month and day of week, or @hourly, @daily, @weekly, @monthly, @yearly
    #[arg(long, value_name = "EXPR", group = "one")]
    schedule: Option<String>,
    /// Time zone of the schedule: UTC, or an area and city as in America/New_York
    #[arg(long, value_name = "TZ", default_value = "UTC")]
    time_zone: String,
    /// Show times after this one: RFC 3339, with its offset [default: now]
    #[arg(long, value_name = "TIME", value_parser = super::enqueue::time)]
    from: Option<DateTime<Utc>>,
    /// Number of times to show
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// A definition's next time.
#[derive(Serialize)]
struct Next {
    job: String,
    at: Option<DateTime<Utc>>,
    schedule: String,
    time_zone: String,
    /// Why it does not fire, if it does not.
    state: &'static str,
    skipped_fires: i64,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let form = Form::new(self.json);
        if let Some(expression) = &self.schedule {
            // Uses the host's clock: there is no database, and the clock only selects the lines to
            // show. `Utc::now` panics before 1970.
            let from = self.from.unwrap_or_else(|| SystemTime::now().into());
            return self.show(form, expression, &self.time_zone, from);
        }
        let store = database.open()?;
        let Some(name) = &self.name else {
            let definitions = store.list_schedules(None)?;
            let next: Vec<_> = definitions.into_iter().filter_map(next).collect();
            let header = ["at", "job", "state", "schedule", "time zone", "skipped"];
            print::rows_or("no definition has a schedule", form, &header, &next, |next| {
                vec![
                    next.at.map_or_else(|| "-".into(), Cell::At),
                    next.job.clone().into(),
                    next.state.into(),
                    next.schedule.clone().into(),
                    next.time_zone.clone().into(),
                    next.skipped_fires.into(),
                ]
            })?;
            return Ok(Exit::Done);
        };
        let definition = super::definition(&store, name)?;
        let from = self.from.unwrap_or(definition.now);
        match &definition.schedule {
            Some(expression) => {
                let state = state(&definition);
                if state != FIRES && state != BROKEN {
                    print::complain(&format!("`{}` is {state}: it fires at none of these times", definition.name));
                }
                self.show(form, expression, &definition.time_zone, from)
            }
            None => Err(Fault::new(Exit::Conflict, format!("definition `{}` has no schedule", definition.name)).into()),
        }
    }

    fn show(&self, form: Form, expression: &str, time_zone: &str, from: DateTime<Utc>) -> anyhow::Result<Exit> {
        let schedule = Schedule::parse(expression, time_zone).map_err(Fault::usage)?;
        schedule.first(from).map_err(Fault::usage)?;
        let fires: Vec<_> = schedule.fires(from).take(usize::from(self.count)).collect();
        print::heading(form, &schedule.words())?;
        print::full_rows(form, &["at", "local time", "clock change"], &fires, cells)?;
        if let Some(last) = fires.last().filter(|_| fires.len() < usize::from(self.count)) {
            let last = last.at.format("%Y-%m-%d");
            print::complain(&format!(
                "the list ends here: no time within {HORIZON_YEARS} years of {last} and before the year 10000 matches"
            ));
        }
        Ok(Exit::Done)
    }
}

fn next(definition: Scheduled) -> Option<Next> {
    let state = state(&definition);
    let at = definition.next_run_at.filter(|_| state == FIRES);
    Some(Next {
        job: definition.name,
        at,
        schedule: definition.schedule?,
        time_zone: definition.time_zone,
        state,
        skipped_fires: definition.skipped_fires,
    })
}

/// Whether it fires, or why not.
fn state(definition: &Scheduled) -> &'static str {
    match (definition.enabled, definition.paused_at) {
        (false, _) => "disabled",
        (true, Some(_)) => "paused",
        (true, None) if fires::is_broken(definition) => BROKEN,
        (true, None) => FIRES,
    }
}

fn cells(fire: &Fire) -> Vec<Cell> {
    vec![
        fire.at.into(),
        Cell::Whole(fire.local.format("%a %Y-%m-%d %H:%M %:z").to_string()),
        fire.mark.as_ref().map(ToString::to_string).into(),
    ]
}
