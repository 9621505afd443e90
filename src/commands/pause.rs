//! `jobctl pause` and `jobctl resume`: stop a schedule, and continue it.

use chrono::{DateTime, Utc};
use clap::Args;
use cron_zone::Schedule;
use serde::Serialize;

use super::DatabaseFlags;
use super::arguments::{DefinitionName, Reason};
use crate::exit::{Exit, Fault};
use crate::print::{self, Output, Table};
use crate::text::timestamp;

/// Stop a definition's schedule until it is resumed
///
/// It also stops the schedules that applications made for the job, and a paused
/// job follows no others. Waiting runs still run, and the job can still be
/// enqueued. After a day, `check` reports the pause; `enabled = false` in the
/// file stops a schedule for good.
///
///   jobctl pause cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, mut_group("DefinitionName", |name| name.required(true)))]
pub(crate) struct Pause {
    #[command(flatten)]
    definition: DefinitionName,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Paused<'a> {
    job_type: &'a str,
    result: &'static str,
}

impl Pause {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let name = self.definition.get().map_or("", String::as_str);
        let store = database.open()?;
        let paused = store.pause(name.to_owned(), self.reason.cause())?;
        if !paused.ok_or_else(|| super::no_definition(&store, name))?.has_schedule {
            print::complain(&format!(
                "`{name}` has no schedule yet; the pause has no effect until it has one"
            ));
        }
        let answer = Paused { job_type: name, result: "paused" };
        print::row(self.output, &answer, &Table::new("job_type as job, result", ""))
    }
}

/// Continue a paused schedule from now on
///
/// It skips the times that it missed. It also corrects a stored next time that is
/// too late because a clock was ahead.
///
///   jobctl resume cleanup_nightly
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, mut_group("DefinitionName", |name| name.required(true)))]
pub(crate) struct Resume {
    #[command(flatten)]
    definition: DefinitionName,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Default, Serialize)]
struct Resumed<'a> {
    job_type: &'a str,
    result: &'static str,
    #[serde(with = "timestamp")]
    next_run_at: Option<DateTime<Utc>>,
}

const TABLE: Table<'_> = Table::new("job_type as job, result, next_run_at as next fire", "");

impl Resume {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let name = self.definition.get().map_or("", String::as_str);
        let store = database.open()?;
        let cause = self.reason.cause();
        loop {
            let definition = super::definition(&store, name)?;
            // A disabled definition gets no next time.
            let expression = definition.schedule.as_ref().filter(|_| definition.enabled);
            let next = expression
                .map(|text| Schedule::parse(text, &definition.time_zone)?.first(definition.now))
                .transpose()
                .map_err(|why| {
                    Fault::new(Exit::Conflict, format!("cannot resume {name}: {why}"))
                })?;
            let result = if definition.paused_at.is_some() { "resumed" } else { "not paused" };
            // `None`: `apply` has changed the schedule meanwhile, and so its next time. Try again.
            if let Some(resumed) = store.resume(definition, next, &cause)? {
                let next_run_at = resumed.next_run_at;
                let answer = Resumed { job_type: name, result, next_run_at };
                return print::row(self.output, &answer, &TABLE);
            }
        }
    }
}
