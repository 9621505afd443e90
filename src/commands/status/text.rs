//! The status as text: tables for people, lines for awk.

use std::io::{self, IsTerminal};

use crate::print::{self, Cell, Form};
use crate::store::{self, JobStatus, Overview, RunningRun, Worker};

pub(super) fn show(overview: &Overview) -> anyhow::Result<()> {
    if io::stdout().is_terminal() { tables(overview) } else { lines(overview) }
}

/// A table for each question, so that none is wider than a terminal unless a name is long.
fn tables(overview: &Overview) -> anyhow::Result<()> {
    let Overview { now, jobs, workers, running } = overview;
    if jobs.is_empty() {
        print::heading(Form::Text, "No definitions and no runs yet; see `jobctl apply` and `jobctl enqueue`.")?;
    } else {
        print::heading(Form::Text, "Jobs")?;
        let header = ["job", "waiting", "due", "oldest due", "running", "failed", "dead", "next fire"];
        print::rows(Form::Text, &header, jobs, |job| {
            vec![
                job.job.clone().into(),
                job.waiting.into(),
                job.due.into(),
                length(job.oldest_due_age_seconds),
                job.running.into(),
                job.failed.into(),
                job.dead.into(),
                job.next_fire_at.map_or_else(|| job.state.clone().into(), |at| Cell::Since(at, *now)),
            ]
        })?;
        print::answer("\n")?;
    }
    let succeeded: Vec<_> = jobs.iter().filter(|job| job.succeeded_last_24h > 0).collect();
    if !succeeded.is_empty() {
        print::heading(Form::Text, "Succeeded in the last 24 hours")?;
        print::rows(Form::Text, &["job", "runs", "median", "95 %", "longest"], &succeeded, |job| {
            vec![
                job.job.clone().into(),
                job.succeeded_last_24h.into(),
                length(job.run_time_median_seconds),
                length(job.run_time_p95_seconds),
                length(job.run_time_max_seconds),
            ]
        })?;
        print::answer("\n")?;
    }
    if workers.is_empty() {
        return print::answer("No worker has ticked yet; cron wakes one with `* * * * * jobctl tick`.\n");
    }
    print::heading(Form::Text, "Workers")?;
    print::rows(Form::Text, &["worker", "last tick", "version"], workers, |worker| {
        vec![worker.worker.clone().into(), Cell::Since(worker.last_tick_at, *now), worker.version.clone().into()]
    })?;
    if !running.is_empty() {
        print::answer("\n")?;
        print::heading(Form::Text, "Running longest")?;
        print::rows(Form::Text, &["run", "job", "worker", "running for", "lease ends"], running, |run| {
            vec![
                Cell::from(run.id),
                run.job.clone().into(),
                run.worker.clone().into(),
                length(run.running_for_seconds),
                Cell::Since(run.locked_until, *now),
            ]
        })?;
    }
    Ok(())
}

/// Every line says first what it is; lengths of time are seconds.
fn lines(overview: &Overview) -> anyhow::Result<()> {
    print::rows(Form::Text, &[], &overview.jobs, job_line)?;
    print::rows(Form::Text, &[], &overview.workers, worker_line)?;
    print::rows(Form::Text, &[], &overview.running, running_line)
}

fn job_line(job: &JobStatus) -> Vec<Cell> {
    vec![
        "job".into(),
        job.job.clone().into(),
        job.waiting.into(),
        job.due.into(),
        job.running.into(),
        job.failed.into(),
        job.dead.into(),
        job.succeeded_last_24h.into(),
        number(job.oldest_due_age_seconds),
        number(job.run_time_median_seconds),
        number(job.run_time_p95_seconds),
        number(job.run_time_max_seconds),
        job.next_fire_at.into(),
        job.state.clone().into(),
    ]
}

fn worker_line(worker: &Worker) -> Vec<Cell> {
    vec!["worker".into(), worker.worker.clone().into(), worker.last_tick_at.into(), worker.version.clone().into()]
}

fn running_line(run: &RunningRun) -> Vec<Cell> {
    vec![
        "running".into(),
        run.id.into(),
        run.job.clone().into(),
        run.worker.clone().into(),
        number(run.running_for_seconds),
        run.locked_until.into(),
    ]
}

fn length(seconds: Option<f64>) -> Cell {
    seconds.map(store::seconds).into()
}

fn number(seconds: Option<f64>) -> Cell {
    seconds.map_or(Cell::Nothing, |seconds| Cell::Number(seconds.to_string()))
}
