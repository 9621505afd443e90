//! The trail: `--reason`, and the table of events.

use chrono::{DateTime, Utc};
use clap::Args;
use rustix::process::geteuid;

use super::arguments::checked;
use crate::connect;
use crate::print::{self, Table};
use crate::store::{Cause, Event};

const TABLE: Table<'_> =
    Table::new("recorded_at as at, action, host_user|recorded_by as by, detail, reason", "");

/// Prints the events of a run or of a definition for people.
pub(super) fn print(events: &[Event], now: DateTime<Utc>) -> anyhow::Result<()> {
    print::answer(&print::section("Trail", events, &TABLE.since(Some(now)).wrapped())?)
}

/// The reason for a change.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct Reason {
    /// The reason, which `show` and `job` print
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

impl Reason {
    pub(super) fn cause(&self) -> Cause {
        Cause { host_user: format!("{}@{}", user(), host_name()), reason: self.reason.clone() }
    }
}

fn reason(text: &str) -> Result<String, String> {
    let fits = (1..=1000).contains(&text.chars().count());
    checked(text, fits, "a reason has 1 to 1000 characters")
}

/// Returns the name of the user, with `sudo` that of its caller.
fn user() -> String {
    let variable = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
    let name = variable("SUDO_USER").or_else(connect::account_name).or_else(|| variable("USER"));
    name.map_or_else(|| geteuid().as_raw().to_string(), |name| name.chars().take(255).collect())
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
