//! `jobctl report`: one self-contained HTML page.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use cron_zone::Zone;

use super::DatabaseFlags;
use super::arguments::length;
use super::when::When;
use crate::exit::Fault;
use crate::files;
use crate::print;
use crate::report::Page;
use crate::store::{Details, Timeouts};
use crate::text::duration::{DAY, MINUTE, SECOND};
use crate::text::timestamp;

/// The time limit of a statement: a window of a year may have many millions of runs.
const STATEMENT_LIMIT: Duration = MINUTE;

/// Write one HTML page that shows how the jobs are doing
///
/// It needs no other file, so a web server can serve it as it is:
///
///   */10 * * * *  jobctl report -o /var/www/jobs.html
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Show the time since then: 2h, 02:00, yesterday, a date; 1m to 366d ago
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = When::parse)]
    since: When,
    /// The page's title [default: `Jobs in` and the database's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Time zone of --since and of the times shown: UTC, or an area and city as in America/New_York
    #[arg(long, value_name = "TZ", default_value = "UTC", value_parser = Zone::parse)]
    time_zone: Zone,
    /// Interval at which the browser reloads the page; use cron's interval. After three intervals
    /// without a new page, it turns grey
    #[arg(long, value_name = "DURATION", value_parser = length(10 * SECOND, DAY))]
    refresh: Option<Duration>,
    /// Show the last line that each failed attempt printed; a viewer lacks the privilege
    #[arg(long)]
    with_output: bool,
    /// Replace this file atomically, instead of printing the page
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let mut store = database.open()?;
        let now = store.now()?;
        let since = self.since.resolve(now, &self.time_zone);
        let window = (now - since).to_std().unwrap_or_default();
        if !(MINUTE..=366 * DAY).contains(&window) {
            let since = timestamp::instant(since);
            let why = format!("--since {since} is out of range; allowed are 1m to 366d ago");
            return Err(Fault::usage(why).into());
        }
        let details = if self.with_output { Details::Output } else { Details::Errors };
        let page = Page {
            title: self.title,
            window,
            clock: self.time_zone,
            details,
            refresh: self.refresh,
        };
        store.set_timeouts(Timeouts { statement: STATEMENT_LIMIT, ..Timeouts::USUAL });
        let snapshot = store.report(|now, problems| page.scope(now, problems))?;
        let html = page.render(&snapshot);
        match self.output.filter(|file| file.as_os_str() != "-") {
            Some(file) => files::replace(&file, html.as_bytes())
                .with_context(|| format!("cannot write {}", file.display())),
            None => print::answer(&html),
        }
    }
}
