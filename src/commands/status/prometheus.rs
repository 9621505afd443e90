//! The status as metrics, in version 0.0.4 of Prometheus' text exposition format. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use crate::health::{Finding, Severity};
use crate::job::finding_code::Code;
use crate::job::status::HoldScope;
use crate::store::{Figures, Flow, JobStatus, Overview, StoppedFacts, WAITS};
use crate::text::plain::plain;

/// A value: the suffix of its metric's name, which is empty except in histograms, its labels, and
/// itself.
type Sample = (&'static str, String, f64);

/// A metric with at most one sample for each `T`: its name, its help, and the function that returns
/// the value of a `T`.
type Metric<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const OF_FLOW: [Metric<Flow>; 3] = [
    (
        "jobctl_empty_in_seconds",
        "Seconds until no run is due, at the pace of the last 10 minutes; no sample if a due run \
         can't start.",
        |flow| flow.empty_in_seconds,
    ),
    (
        "jobctl_at_best_seconds",
        "Seconds until no run is due, at the rate of the definition; no sample if a due run can't \
         start.",
        |flow| flow.at_best_seconds,
    ),
    (
        "jobctl_longest_running_seconds",
        "How long the run that started first has been running.",
        |flow| flow.longest_running_seconds,
    ),
];

const OF_JOBS: [Metric<JobStatus>; 7] = [
    ("jobctl_due_runs", "Queued and failed runs that are due.", |job| Some(job.due_runs as f64)),
    (
        "jobctl_oldest_due_age_seconds",
        "How long the oldest due run has been due; 0 if none is due.",
        |job| Some(job.oldest_due_age_seconds.unwrap_or_default()),
    ),
    ("jobctl_succeeded_last_24h", "Runs that succeeded in the last 24 hours.", |job| {
        Some(job.succeeded_runs_last_24h as f64)
    }),
    ("jobctl_run_time_median_seconds", "Median run time of the newest 200 successes.", |job| {
        job.run_time_median_seconds
    }),
    (
        "jobctl_run_time_p95_seconds",
        "95th percentile of the run time of the newest 200 successes.",
        |job| job.run_time_p95_seconds,
    ),
    ("jobctl_run_time_max_seconds", "Longest run time of the newest 200 successes.", |job| {
        job.run_time_max_seconds
    }),
    ("jobctl_next_fire_timestamp_seconds", "When the schedule fires next.", |job| {
        job.next_run_at.map(timestamp)
    }),
];

const LAST_SUCCESS: [Metric<Figures>; 1] =
    [("jobctl_last_success_timestamp_seconds", "When a run of the job last succeeded.", |job| {
        job.last_succeeded_at.map(timestamp)
    })];

const COUNTERS: [Metric<Figures>; 7] = [
    ("jobctl_succeeded_total", "Runs that succeeded.", |job| Some(job.succeeded as f64)),
    ("jobctl_dead_total", "Runs that died.", |job| Some(job.dead as f64)),
    ("jobctl_expired_total", "Runs that expired.", |job| Some(job.expired as f64)),
    ("jobctl_dropped_total", "Runs dropped because the definition was full.", |job| {
        Some(job.dropped as f64)
    }),
    ("jobctl_failed_attempts_total", "Attempts that failed or lost their lease.", |job| {
        Some(job.failed_attempts as f64)
    }),
    (
        "jobctl_retried_attempts_total",
        "Failed attempts after which the run waited for another one.",
        |job| Some(job.retried_attempts as f64),
    ),
    ("jobctl_run_time_seconds_total", "Run time of the attempts that succeeded.", |job| {
        Some(job.run_time_seconds)
    }),
];

/// Writes a status as metrics. Each run counts once in `jobctl_runs`, by its status; "due" is not a
/// status, so due runs have their own metric.
pub(super) fn exposition(overview: &Overview, findings: &[Finding]) -> String {
    let Overview { jobs, figures, workers, flow, .. } = overview;
    let last_ticks = workers
        .iter()
        .map(|worker| ("", label("worker", &worker.worker), timestamp(worker.last_tick_at)))
        .collect();
    [
        of_findings(findings),
        of_holds(&overview.work.stopped),
        metric(
            "gauge",
            "jobctl_flow_last_hour",
            "Events in the last hour, by kind: runs enqueued, runs succeeded, attempts started, \
             attempts failed.",
            flow.iter().filter_map(events_of_job).flatten().collect(),
        ),
        metrics("gauge", &OF_FLOW, flow, |flow| flow.job_type.as_deref()),
        metric(
            "gauge",
            "jobctl_runs",
            "Blocked, queued, failed, running and dead runs, by status.",
            jobs.iter().flat_map(by_status).collect(),
        ),
        metrics("gauge", &OF_JOBS, jobs, |job| Some(&job.job_type)),
        metrics("gauge", &LAST_SUCCESS, figures, |job| Some(&job.job_type)),
        metrics("counter", &COUNTERS, figures, |job| Some(&job.job_type)),
        metric(
            "histogram",
            "jobctl_wait_seconds",
            "Time from due to start, of attempts whose result ended their run.",
            figures.iter().flat_map(waits).collect(),
        ),
        metric(
            "gauge",
            "jobctl_worker_last_tick_timestamp_seconds",
            "When the worker last ticked.",
            last_ticks,
        ),
    ]
    .concat()
}

/// Writes metrics with a sample for each row that has a value and a job. `job` returns the job.
fn metrics<T>(
    kind: &str,
    metrics: &[Metric<T>],
    rows: &[T],
    job: fn(&T) -> Option<&str>,
) -> String {
    let write = |(name, help, value): &Metric<T>| {
        let sample = |row: &T| Some(("", label("job_type", job(row)?), value(row)?));
        metric(kind, name, help, rows.iter().filter_map(sample).collect())
    };
    metrics.iter().map(write).collect()
}

/// Writes the findings as metrics: how many problems and facts of each code there are.
fn of_findings(findings: &[Finding]) -> String {
    let (facts, problems): (Vec<_>, Vec<_>) =
        findings.iter().partition(|finding| finding.severity == Severity::Info);
    let count = |findings: &[&Finding], code: Code| {
        let count = findings.iter().filter(|finding| finding.code == Some(code)).count();
        ("", label("code", code.as_str()), count as f64)
    };
    let problems = metric(
        "gauge",
        "jobctl_findings",
        "Problems that jobctl check or doctor reports, by code.",
        Code::ALL.into_iter().map(|code| count(&problems, code)).collect(),
    );
    let facts = metric(
        "gauge",
        "jobctl_facts",
        "Holds, paused schedules and disabled jobs that are no problem, by code.",
        Code::STOPPED.into_iter().map(|code| count(&facts, code)).collect(),
    );
    problems + &facts
}

/// Writes the holds in force, and the due runs that each target keeps from starting.
fn of_holds(stopped: &[StoppedFacts]) -> String {
    let holds: Vec<_> = stopped.iter().filter_map(hold).collect();
    let count = |scope: HoldScope| {
        let count = holds.iter().filter(|(held, ..)| *held == scope).count();
        ("", label("scope", scope.as_str()), count as f64)
    };
    let counts = HoldScope::ALL.into_iter().map(count).collect();
    // Several holds of one target keep the same runs, so each target counts once.
    let runs: BTreeMap<_, _> = holds
        .iter()
        .map(|(scope, name, runs)| {
            ([label("scope", scope.as_str()), label("name", name)].join(","), *runs as f64)
        })
        .collect();
    let held = runs.into_iter().map(|(labels, runs)| ("", labels, runs)).collect();
    metric("gauge", "jobctl_holds", "Holds in force, by scope.", counts)
        + &metric("gauge", "jobctl_held_runs", "Due runs that a hold keeps from starting.", held)
}

/// Returns the events of a job in the last hour, by kind; `None` for the sum of all jobs.
fn events_of_job(flow: &Flow) -> Option<[Sample; 4]> {
    let job = flow.job_type.as_ref()?;
    let counts = [
        ("enqueued", flow.enqueued_1h),
        ("started", flow.started_1h),
        ("succeeded", flow.succeeded_1h),
        ("failed", flow.failed_1h),
    ];
    Some(counts.map(|(what, events)| {
        ("", [label("job_type", job), label("what", what)].join(","), events as f64)
    }))
}

/// Returns the number of unfinished and of dead runs of a job, by status.
fn by_status(job: &JobStatus) -> [Sample; 5] {
    // A queued or failed run counts as due or as not due.
    let queued_and_failed = job.not_due_runs + job.due_runs;
    let counts = [
        ("blocked", job.blocked_runs),
        ("queued", queued_and_failed - job.failed_runs),
        ("failed", job.failed_runs),
        ("running", job.running_runs),
        ("dead", job.dead_runs),
    ];
    counts.map(|(status, runs)| {
        let labels = [label("job_type", &job.job_type), label("status", status)];
        ("", labels.join(","), runs as f64)
    })
}

/// Returns the scope, the name and the due runs of a hold; `None`: the fact is not about a hold.
fn hold(fact: &StoppedFacts) -> Option<(HoldScope, &str, i64)> {
    let (scope, name) = match (&fact.job_type, &fact.queue, &fact.worker) {
        _ if fact.code != Code::RunsHeld => return None,
        (Some(job), ..) => (HoldScope::Job, &**job),
        (_, Some(queue), _) => (HoldScope::Queue, &**queue),
        (.., Some(worker)) => (HoldScope::Worker, &**worker),
        _ => (HoldScope::All, ""),
    };
    Some((scope, name, fact.runs))
}

/// Returns the histogram of the waits of a job's runs.
fn waits(job: &Figures) -> Vec<Sample> {
    let label_of_job = label("job_type", &job.job_type);
    let buckets = WAITS.iter().zip(&job.waits).map(|(bound, count)| {
        ("_bucket", format!("{label_of_job},{}", label("le", bound)), *count as f64)
    });
    // Each bucket also counts the shorter waits, so the last one counts all.
    let count = job.waits.last().copied().unwrap_or_default() as f64;
    let sums = [("_sum", job.wait_seconds), ("_count", count)];
    buckets.chain(sums.map(|(suffix, value)| (suffix, label_of_job.clone(), value))).collect()
}

/// Writes a metric, or nothing if it has no sample.
fn metric(kind: &str, name: &str, help: &str, samples: Vec<Sample>) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (suffix, labels, value) in samples {
        let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}");
    }
    text
}

/// Returns a label with its value, quoted.
fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", plain(value).replace('\\', r"\\").replace('"', r#"\""#))
}

/// Returns the seconds since 1970.
fn timestamp(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_value_cannot_end_its_label() {
        let is = |value, text: &str| assert_eq!(label("job", value), format!("job=\"{text}\""));
        is("backup", "backup");
        is("", "");
        is("a\"} 9\nforged 1", r#"a\"} 9\\nforged 1"#);
        is(r"C:\new", r"C:\\new");
        is("\\\n", r"\\\\n");
        is("#{é, =}", "#{é, =}");
    }

    #[test]
    fn a_gauge_without_samples_is_left_out() {
        assert_eq!(metric("gauge", "jobctl_x", "Of x.", Vec::new()), "");
    }

    #[test]
    fn a_metric_has_its_help_its_type_and_its_samples() {
        let labels = [label("job", "a"), label("status", "dead")].join(",");
        assert_eq!(
            metric("gauge", "jobctl_x", "Of x.", vec![("", labels, 0.25)]),
            "# HELP jobctl_x Of x.\n# TYPE jobctl_x gauge\n\
             jobctl_x{job=\"a\",status=\"dead\"} 0.25\n"
        );
    }
}
