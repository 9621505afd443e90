//! `jobctl status`: an overview of jobs, workers and running runs.

mod prometheus;
mod text;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::Database;
use crate::exit::Fault;
use crate::health::limits::Thresholds;
use crate::health::{self, Finding};
use crate::print::{self, Format, Output};
use crate::store::{Overview, Store};

/// The time between two redraws by --watch.
const REDRAWN_AFTER: Duration = Duration::from_secs(2);

/// Show problems, jobs, workers and long runs
///
/// In TSV, each line begins with its kind: job, worker, running, figures or
/// finding; --header names the fields of each kind. For the textfile
/// collector of node_exporter, which must not read half a file:
///
///   jobctl status --format tsv --header
///   jobctl status --prometheus >jobctl.tmp && mv jobctl.tmp jobctl.prom
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only this job
    #[arg(long, value_name = "J")]
    job: Option<String>,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["json", "format", "header"])]
    prometheus: bool,
    /// Redraw the tables every 2 seconds, until Ctrl-C
    #[arg(long, conflicts_with_all = ["prometheus", "json", "format", "header"])]
    watch: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    overview: &'a Overview,
    findings: &'a [Finding],
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<()> {
        if self.watch && !io::stdout().is_terminal() {
            return Err(Fault::usage("--watch needs a terminal; omit it in scripts").into());
        }
        let store = database.open()?;
        if self.watch {
            loop {
                let (overview, findings) = self.read(&store)?;
                print::redraw(&text::tables(overview, findings)?)?;
                thread::sleep(REDRAWN_AFTER);
            }
        }
        let (overview, findings) = self.read(&store)?;
        match self.output.format() {
            _ if self.prometheus => {
                print::answer(&prometheus::exposition(&prometheus::metrics(&overview, &findings)))
            }
            Format::Json | Format::JsonLines => {
                print::json(&Answer { findings: &findings, overview: &overview })
            }
            Format::Tsv => text::lines(self.output, &overview, &findings),
            Format::Table => print::answer(&text::tables(overview, findings)?),
        }
    }

    fn read(&self, store: &Store) -> anyhow::Result<(Overview, Vec<Finding>)> {
        let overview = store.status(self.job.clone())?;
        let findings = health::work(&overview.work, &Thresholds::default());
        if let Some(job) = &self.job
            && overview.jobs.is_empty()
        {
            super::known_job(store, job)?;
        }
        Ok((overview, findings))
    }
}
