//! `jobctl list-dead`: what failed for good, and why.

use clap::Args;

use super::Database;
use crate::exit::Exit;
use crate::print::{self, Cell, Form};

/// List dead runs, the latest death first
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Show so many at most
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(1, i64::MAX))]
    limit: Option<i64>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let dead = database.open()?.list_dead(self.limit)?;
        print::rows(
            Form::new(self.json),
            &["id", "job", "attempts", "died at", "error type", "error"],
            &dead,
            |run| {
                vec![
                    Cell::from(run.id),
                    run.job_type.clone().into(),
                    format!("{}/{}", run.attempts, run.max_attempts).into(),
                    run.finished_at.into(),
                    run.error_type.clone().into(),
                    run.last_error.clone().into(),
                ]
            },
        )?;
        Ok(Exit::Done)
    }
}
