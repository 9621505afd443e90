//! The flags that select runs: `list`, `list-dead`, `retry`, `cancel` and `settle` share them.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::arguments::{TimeZone, key};
use crate::exit::Fault;
use crate::job::definition;
use crate::job::failure::ERROR_TYPES;
use crate::job::status::Status;
use crate::schedule::When;
use crate::store::{self, Store};

/// The heading of these flags in the help.
pub(super) const HEADING: &str = "Which runs";

/// Flags that select runs; a run must match all of them. clap applies the heading to the fields
/// after this one too, unless they have their own.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
pub(super) struct Filter {
    /// Only runs of this job: a definition's name, or shell or http
    #[arg(long, value_name = "JOB", value_parser = job)]
    job: Option<String>,
    /// Only runs of this queue
    #[arg(long, value_name = "Q", value_parser = definition::queue)]
    queue: Option<String>,
    /// Only runs with this key
    #[arg(long, value_name = "KEY", value_parser = key)]
    key: Option<String>,
    /// Only runs whose last failure was of this type, such as exit_code or timeout
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = PossibleValuesParser::new(ERROR_TYPES.split(' ')),
        hide_possible_values = true
    )]
    error_type: Option<String>,
    /// Only runs that ended (if unfinished: were created) since then: 2h, 02:00, yesterday, a date
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    since: Option<When>,
    /// Only runs that ended (if unfinished: were created) before then
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    until: Option<When>,
}

impl Filter {
    /// Fails if a filter is given, but not the flag that it needs.
    pub(super) fn refuse_without(&self, flag: &str) -> Result<(), Fault> {
        let Self { job, queue, key, error_type, since, until } = self;
        let texts = [job, queue, key, error_type].into_iter().any(Option::is_some);
        if texts || since.is_some() || until.is_some() {
            return Err(Fault::usage(format!("filters need {flag}; add it, or give run ids")));
        }
        Ok(())
    }

    /// Returns the database's filter, for runs in one of these statuses or in any.
    pub(super) fn resolve(
        self,
        store: &Store,
        time_zone: &TimeZone,
        statuses: &[Status],
    ) -> anyhow::Result<store::RunFilter> {
        if let Some(job) = &self.job {
            super::known_job(store, job)?;
        }
        let [since, until] = time_zone.window(store, [self.since, self.until])?;
        Ok(store::RunFilter {
            statuses: statuses.to_vec(),
            job: self.job,
            queue: self.queue,
            key: self.key,
            error_type: self.error_type,
            since,
            until,
            ..store::RunFilter::default()
        })
    }
}

/// Reads a run's status; shells complete it.
pub(super) fn status() -> impl TypedValueParser<Value = Status> {
    let words = PossibleValuesParser::new(Status::ALL.map(Status::as_str));
    words.try_map(|word| Status::parse(&word).ok_or("is not a status"))
}

/// Reads a job's name. Runs can have names that no definition may have.
pub(super) fn job(text: &str) -> Result<String, String> {
    if (1..=63).contains(&text.chars().count()) {
        return Ok(text.to_owned());
    }
    Err("a job's name has 1 to 63 characters".to_owned())
}
