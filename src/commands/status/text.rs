//! The status as text: tables for people, lines for awk.

use crate::health::{Finding, Severity};
use crate::print::{self, Output, Table};
use crate::store::Overview;

const JOBS: Table<'_> = Table::new(
    "job_type as job, waiting_runs as waiting, due_runs as due, \
     oldest_due_age_seconds as oldest due, running_runs as running, failed_runs as failed, \
     dead_runs as dead, next_run_at|state as next fire",
    "",
);

const RESULTS: Table<'_> = Table::new(
    "job_type as job, last_status as last, last_succeeded_at as last success, \
     succeeded_runs_last_24h as succeeded, run_time_median_seconds as median, \
     run_time_p95_seconds as 95 %, run_time_max_seconds as longest",
    "",
);

const WORKERS: Table<'_> = Table::new("worker, last_tick_at as last tick, version", "");

const RUNNING: Table<'_> = Table::new(
    "id as run, job_type as job, locked_by as worker, run_time_seconds as running for, \
     locked_until as lease ends",
    "",
);

const FINDINGS: Table<'_> = Table::new("severity, found, remedy", "");

/// Prints TSV; the first field of a line is its kind.
pub(super) fn lines(
    output: Output,
    overview: &Overview,
    findings: &[Finding],
) -> anyhow::Result<()> {
    print::tsv(output, "job", &overview.jobs)?;
    print::tsv(output, "worker", &overview.workers)?;
    print::tsv(output, "running", &overview.longest_running)?;
    print::tsv(output, "figures", &overview.figures)?;
    print::tsv(output, "finding", findings)
}

pub(super) fn tables(overview: Overview, mut findings: Vec<Finding>) -> anyhow::Result<String> {
    let Overview { now, mut jobs, workers, longest_running, .. } = overview;
    findings.retain(|finding| finding.severity == Severity::Bad);
    // The most troubled first.
    jobs.sort_by_cached_key(|job| {
        let name = Some(&job.job_type);
        let finding = findings.iter().position(|finding| finding.job_type.as_ref() == name);
        (finding.unwrap_or(usize::MAX), job.dead_runs == 0, job.failed_runs == 0)
    });
    findings.iter_mut().for_each(|finding| finding.found = finding.aged(now));
    let now = Some(now);
    let ended: Vec<_> = jobs
        .iter()
        .filter(|job| job.last_status.is_some() || job.succeeded_runs_last_24h > 0)
        .collect();
    let results = "Results (SUCCEEDED to LONGEST: last 24 hours)";
    // Several tables, so that none is wider than a terminal.
    let sections = [
        print::section("Needs attention", &findings, &FINDINGS.wrapped())?,
        match jobs.is_empty() {
            true => "\nNo definitions and no runs yet; see `jobctl apply` and `jobctl enqueue`.\n"
                .to_owned(),
            false => print::section("Jobs", &jobs, &JOBS.since(now))?,
        },
        print::section(results, &ended, &RESULTS.since(now))?,
        print::section("Workers", &workers, &WORKERS.since(now))?,
        print::section("Running longest", &longest_running, &RUNNING.since(now))?,
    ];
    Ok(sections.concat().trim_start().to_owned())
}
