//! `jobctl status`: an overview of jobs, workers and running runs.

mod prometheus;
mod text;

use clap::Args;

use super::Database;
use super::arguments::Output;
use crate::exit::Exit;
use crate::print;

/// Show jobs, workers and the longest running runs
///
/// In TSV, each line begins with its kind: job, worker or running; --header names
/// the fields of each kind. For the textfile collector of node_exporter, which
/// must not read half a file:
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
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let overview = store.status(self.job.clone())?;
        if let Some(job) = &self.job
            && overview.jobs.is_empty()
        {
            super::known_job(&store, job)?;
        }
        if self.prometheus {
            print::answer(&prometheus::exposition(&prometheus::gauges(&overview)))?;
        } else if self.output.form().is_json() {
            print::json(&overview)?;
        } else {
            text::show(self.output.form(), overview)?;
        }
        Ok(Exit::Done)
    }
}
