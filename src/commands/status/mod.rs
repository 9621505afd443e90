//! `jobctl status`: is cron still ticking, how does each job do, what runs next.

mod prometheus;
mod text;

use clap::Args;

use super::Database;
use crate::exit::Exit;
use crate::print;

/// Show how jobs are doing, who ticks, and what runs longest
///
/// In a pipe, each line begins with its kind:
///
///   job      NAME WAITING DUE RUNNING FAILED DEAD SUCCEEDED_LAST_24H
///            OLDEST_DUE_AGE RUN_TIME_MEDIAN RUN_TIME_P95 RUN_TIME_MAX
///            NEXT_FIRE STATE
///   worker   NAME LAST_TICK VERSION
///   running  ID JOB WORKER RUNNING_FOR LEASE_UNTIL
///
/// separated by tabs; ages and run times in seconds. For the textfile collector of
/// node_exporter, which must not see half a file:
///
///   jobctl status --prometheus >jobctl.tmp && mv jobctl.tmp jobctl.prom
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only this job
    #[arg(long, value_name = "J")]
    job: Option<String>,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
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
        } else if self.json {
            print::json(&overview)?;
        } else {
            text::show(&overview)?;
        }
        Ok(Exit::Done)
    }
}
