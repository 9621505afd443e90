//! `jobctl check`: nothing to say and exit 0 while all is well, else one line that says why not.

mod reasons;

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Database;
use crate::exit::Exit;
use crate::fires::Failing;
use crate::patience::{LAG, PATIENCE};
use crate::{duration, print};
use reasons::Limits;

const WEEK: Duration = Duration::from_secs(7 * 86400);
const YEAR: Duration = Duration::from_secs(365 * 86400);

/// Complain in one line, with exit 1, unless all is well
///
/// For cron, which mails what is printed, and for any monitor that looks at the
/// exit status:
///
///   */5 * * * * jobctl check --max-lag 30m
///
/// A database that can't be reached is exit 5, with its line on stderr.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Number of dead runs to tolerate; retry them, or prune what is settled
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true, value_parser = super::within(0, i64::MAX))]
    max_dead: i64,
    /// How long a run may be due, a schedule late, or a lost lease not recovered
    #[arg(long, value_name = "DURATION", default_value = duration::show(LAG), value_parser = limit)]
    max_lag: Duration,
    /// How long a worker may go without ticking; a stopped one is reported for at most a day
    #[arg(long, value_name = "DURATION", default_value = duration::show(PATIENCE), value_parser = limit)]
    max_tick_age: Duration,
    /// How long a run may be running [default: any time]
    #[arg(long, value_name = "DURATION", value_parser = limit)]
    max_running: Option<Duration>,
    /// Number of runs that may have failed recently, for good or not [default: any number]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(0, i64::MAX))]
    max_failures: Option<i64>,
    /// What counts as recently
    #[arg(long, value_name = "DURATION", default_value = "1h", requires = "max_failures", value_parser = recent)]
    within: Duration,
    /// Only these jobs; workers are checked all the same
    #[arg(long, value_name = "J", num_args = 1.., value_delimiter = ',')]
    job: Vec<String>,
    /// Print a JSON object, also when all is well
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        for job in &self.job {
            // Of a misspelt job nothing bad would ever be heard.
            super::known_job(&store, job)?;
        }
        let mut scheduled = store.list_schedules(None)?;
        scheduled.retain(|one| self.job.is_empty() || self.job.contains(&one.name));
        let jobs = if self.job.is_empty() { None } else { Some(self.job) };
        let failures = self.max_failures.map(|most| (most, self.within));
        let facts = store.check(jobs, failures.map(|(_, within)| within))?;
        let reasons = reasons::reasons(
            &facts,
            &Failing::among(&scheduled),
            &Limits {
                dead: self.max_dead,
                lag: self.max_lag,
                tick_age: self.max_tick_age,
                running: self.max_running,
                failures,
            },
        );
        if self.json {
            print::json(&json!({"fine": reasons.is_empty(), "reasons": reasons}))?;
        } else if !reasons.is_empty() {
            print::answer(&(print::plain(&reasons.join("; ")) + "\n"))?;
        }
        Ok(if reasons.is_empty() { Exit::Done } else { Exit::CouldNot })
    }
}

fn limit(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::ZERO, YEAR)
}

/// All failures within it are read.
fn recent(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::from_secs(1), WEEK)
}
