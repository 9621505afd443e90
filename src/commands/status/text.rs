//! The status as text: tables for people, lines for awk.

use crate::health::{Finding, Severity};
use crate::print::{self, Form, Format, Table};
use crate::store::Overview;

const JOBS: Table<'_> = Table::new(
    &[
        ("job", "job_type"),
        ("waiting", "waiting_runs"),
        ("due", "due_runs"),
        ("oldest due", "oldest_due_age_seconds"),
        ("running", "running_runs"),
        ("failed", "failed_runs"),
        ("dead", "dead_runs"),
        ("next fire", "next_run_at|state"),
    ],
    "",
);

const RESULTS: Table<'_> = Table::new(
    &[
        ("job", "job_type"),
        ("last", "last_status"),
        ("last success", "last_succeeded_at"),
        ("succeeded", "succeeded_runs_last_24h"),
        ("median", "run_time_median_seconds"),
        ("95 %", "run_time_p95_seconds"),
        ("longest", "run_time_max_seconds"),
    ],
    "",
);

const WORKERS: Table<'_> =
    Table::new(&[("worker", "worker"), ("last tick", "last_tick_at"), ("version", "version")], "");

const RUNNING: Table<'_> = Table::new(
    &[
        ("run", "id"),
        ("job", "job_type"),
        ("worker", "locked_by"),
        ("running for", "run_time_seconds"),
        ("lease ends", "locked_until"),
    ],
    "",
);

const FINDINGS: Table<'_> =
    Table::new(&[("severity", "severity"), ("found", "found"), ("remedy", "remedy")], "");

pub(super) fn show(
    form: Form,
    overview: Overview,
    mut findings: Vec<Finding>,
) -> anyhow::Result<()> {
    let Overview { now, mut jobs, workers, longest_running, figures, .. } = overview;
    if form.format == Format::Tsv {
        print::tsv(form, "job", &jobs)?;
        print::tsv(form, "worker", &workers)?;
        print::tsv(form, "running", &longest_running)?;
        print::tsv(form, "figures", &figures)?;
        return print::tsv(form, "finding", &findings);
    }
    findings.retain(|finding| finding.severity == Severity::Bad);
    // The most troubled first.
    jobs.sort_by_cached_key(|job| {
        let name = Some(&job.job_type);
        let finding = findings.iter().position(|finding| finding.job_type.as_ref() == name);
        (finding.unwrap_or(usize::MAX), job.dead_runs == 0, job.failed_runs == 0)
    });
    if !findings.is_empty() {
        findings.iter_mut().for_each(|finding| finding.found = finding.aged(now));
        print::heading(form, "Needs attention")?;
        print::rows(form, &findings, &FINDINGS.wrapped())?;
        print::answer("\n")?;
    }
    let now = Some(now);
    // Several tables, so that none is wider than a terminal.
    if jobs.is_empty() {
        print::heading(
            form,
            "No definitions and no runs yet; see `jobctl apply` and `jobctl enqueue`.",
        )?;
    } else {
        print::heading(form, "Jobs")?;
        print::rows(form, &jobs, &JOBS.since(now))?;
        print::answer("\n")?;
    }
    let ended: Vec<_> = jobs
        .into_iter()
        .filter(|job| job.last_status.is_some() || job.succeeded_runs_last_24h > 0)
        .collect();
    if !ended.is_empty() {
        print::heading(form, "Results (SUCCEEDED to LONGEST: last 24 hours)")?;
        print::rows(form, &ended, &RESULTS.since(now))?;
        print::answer("\n")?;
    }
    if !workers.is_empty() {
        print::heading(form, "Workers")?;
        print::rows(form, &workers, &WORKERS.since(now))?;
    }
    if longest_running.is_empty() {
        return Ok(());
    }
    print::answer("\n")?;
    print::heading(form, "Running longest")?;
    print::rows(form, &longest_running, &RUNNING.since(now))
}
