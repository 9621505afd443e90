//! Which runs are meant: the flags that `list`, `list-dead`, `retry` and `cancel` share.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::duration::{self, CENTURY};
use crate::exit::Fault;
use crate::model::{ERROR_TYPES, Status};
use crate::store::{self, Store};

/// What the flags stand under in the help.
const HEADING: &str = "Which runs";

/// Flags that narrow down which runs are meant; all that are given must hold.
#[derive(Args, Debug)]
pub(super) struct Filter {
    /// Only runs of this job: a definition's name, or shell or http
    #[arg(long, value_name = "JOB", value_parser = job, help_heading = HEADING)]
    job: Option<String>,
    /// Only runs of this queue
    #[arg(long, value_name = "Q", value_parser = crate::definition::queue, help_heading = HEADING)]
    queue: Option<String>,
    /// Only runs with this key
    #[arg(long, value_name = "KEY", value_parser = super::enqueue::key, help_heading = HEADING)]
    key: Option<String>,
    /// Only runs whose last failure was of this type, such as exit_code or timeout
    #[arg(long, value_name = "TYPE", value_parser = ERROR_TYPES, hide_possible_values = true, help_heading = HEADING)]
    error_type: Option<String>,
    /// Only runs that ended (if unfinished: were created) since then: 1h, 2d, or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = When::parse, help_heading = HEADING)]
    since: Option<When>,
    /// Only runs that ended (if unfinished: were created) before then
    #[arg(long, value_name = "TIME", value_parser = When::parse, help_heading = HEADING)]
    until: Option<When>,
}

/// An instant as it is given.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Before the database's now.
    Ago(Duration),
    At(DateTime<Utc>),
}

impl When {
    fn parse(text: &str) -> Result<Self, String> {
        // Farther back is what RFC 3339 is for.
        let ago = duration::parse_within(text, Duration::ZERO, CENTURY).map(Self::Ago);
        ago.or_else(|_| super::enqueue::time(text).map(Self::At)).map_err(|_| {
            format!("`{text}` is neither so long ago, as 30m, 2h or 1d, nor a time, as 2026-01-31T08:00:00+01:00")
        })
    }

    fn resolve(self, store: &Store) -> anyhow::Result<DateTime<Utc>> {
        match self {
            Self::Ago(length) => Ok(store.now()? - length),
            Self::At(time) => Ok(time),
        }
    }
}

impl Filter {
    /// # Errors
    /// Something is given: it narrows down the runs that `flag`, which is missing, stands for.
    pub(super) fn refuse_without(&self, flag: &str) -> Result<(), Fault> {
        let Self { job, queue, key, error_type, since, until } = self;
        let texts = [job, queue, key, error_type].into_iter().any(Option::is_some);
        if texts || since.is_some() || until.is_some() {
            return Err(Fault::usage(format!("cannot tell which runs are meant; filters narrow down {flag}: add it")));
        }
        Ok(())
    }

    /// Returns the database's filter, for runs in one of these statuses or in any.
    ///
    /// # Errors
    /// The job has neither a definition nor runs; the database's.
    pub(super) fn resolve(self, store: &Store, statuses: &[Status]) -> anyhow::Result<store::Filter> {
        if let Some(job) = &self.job {
            super::known_job(store, job)?;
        }
        Ok(store::Filter {
            statuses: statuses.to_vec(),
            job: self.job,
            queue: self.queue,
            key: self.key,
            error_type: self.error_type,
            since: self.since.map(|when| when.resolve(store)).transpose()?,
            until: self.until.map(|when| when.resolve(store)).transpose()?,
        })
    }
}

/// Takes a run's status, and lets a shell complete it.
pub(super) fn status() -> impl TypedValueParser<Value = Status> {
    let words = PossibleValuesParser::new(Status::ALL.map(Status::as_str));
    words.try_map(|word| Status::parse(&word).ok_or("is no status"))
}

/// Any name that a row can hold: not only definitions have runs.
fn job(text: &str) -> Result<String, String> {
    if (1..=63).contains(&text.chars().count()) {
        return Ok(text.to_owned());
    }
    Err("a job's name has 1 to 63 characters".to_owned())
}
