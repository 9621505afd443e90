//! The status as metrics, in version 0.0.4 of Prometheus' text exposition format. Pure.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use crate::health::{self, Finding};
use crate::store::{Figures, JobStatus, Overview, WAITS};
use crate::text::plain::plain;

type Labels = Vec<(&'static str, String)>;

/// A metric with its samples. A sample is the suffix of its name, which only histograms have, its
/// labels and its value.
pub(super) struct Metric {
    kind: &'static str,
    name: &'static str,
    help: &'static str,
    samples: Vec<(&'static str, Labels, f64)>,
}

/// The metrics of a status. A run counts once in `jobctl_runs`, by its status. Due is not a status,
/// so due runs have their own metric.
pub(super) fn metrics(overview: &Overview, findings: &[Finding]) -> Vec<Metric> {
    let by_status = |job: &JobStatus| {
        [
            ("queued", job.waiting_runs + job.due_runs - job.failed_runs),
            ("failed", job.failed_runs),
            ("running", job.running_runs),
            ("dead", job.dead_runs),
        ]
    };
    let runs = overview.jobs.iter().flat_map(|job| {
        by_status(job).map(|(status, runs)| {
            let labels = vec![("job_type", plain(&job.job_type)), ("status", status.to_owned())];
            ("", labels, runs as f64)
        })
    });
    let findings = health::codes().map(|code| {
        let count = findings.iter().filter(|finding| finding.code == Some(code)).count();
        ("", vec![("code", code.to_owned())], count as f64)
    });
    let ticks = overview
        .workers
        .iter()
        .map(|tick| ("", vec![("worker", plain(&tick.worker))], timestamp(tick.last_tick_at)));
    let per_job = |name, help, value: fn(&JobStatus) -> Option<f64>| {
        let jobs = overview.jobs.iter().map(|job| (&*job.job_type, value(job)));
        Metric { kind: "gauge", name, help, samples: samples(jobs) }
    };
    let total = |name, help, value: fn(&Figures) -> f64| {
        let jobs = overview.figures.iter().map(|job| (&*job.job_type, Some(value(job))));
        Metric { kind: "counter", name, help, samples: samples(jobs) }
    };
    let successes =
        overview.figures.iter().map(|job| (&*job.job_type, job.last_succeeded_at.map(timestamp)));
    vec![
        Metric {
            kind: "gauge",
            name: "jobctl_findings",
            help: "Problems that jobctl check or doctor reports, by code.",
            samples: findings.collect(),
        },
        Metric {
            kind: "gauge",
            name: "jobctl_runs",
            help: "Runs that are not done, by status.",
            samples: runs.collect(),
        },
        per_job("jobctl_due_runs", "Queued and failed runs that are due.", |job| {
            Some(job.due_runs as f64)
        }),
        per_job(
            "jobctl_oldest_due_age_seconds",
            "How long the oldest due run has been due; 0 if none is due.",
            |job| Some(job.oldest_due_age_seconds.unwrap_or_default()),
        ),
        per_job("jobctl_succeeded_last_24h", "Runs that succeeded in the last 24 hours.", |job| {
            Some(job.succeeded_runs_last_24h as f64)
        }),
        per_job(
            "jobctl_run_time_median_seconds",
            "Median run time of the runs that succeeded in the last 24 hours.",
            |job| job.run_time_median_seconds,
        ),
        per_job(
            "jobctl_run_time_p95_seconds",
            "95th percentile of the run time of the runs that succeeded in the last 24 hours.",
            |job| job.run_time_p95_seconds,
        ),
        per_job(
            "jobctl_run_time_max_seconds",
            "Longest run time of the runs that succeeded in the last 24 hours.",
            |job| job.run_time_max_seconds,
        ),
        per_job("jobctl_next_fire_timestamp_seconds", "When the schedule fires next.", |job| {
            job.next_run_at.map(timestamp)
        }),
        Metric {
            kind: "gauge",
            name: "jobctl_last_success_timestamp_seconds",
            help: "When a run of the job last succeeded.",
            samples: samples(successes),
        },
        total("jobctl_succeeded_total", "Runs that succeeded.", |job| job.succeeded as f64),
        total("jobctl_dead_total", "Runs that died.", |job| job.dead as f64),
        total("jobctl_expired_total", "Runs that expired.", |job| job.expired as f64),
        total("jobctl_failed_attempts_total", "Attempts that failed or lost their lease.", |job| {
            job.failed_attempts as f64
        }),
        total(
            "jobctl_retried_attempts_total",
            "Failed attempts after which the run waited for another one.",
            |job| job.retried_attempts as f64,
        ),
        total("jobctl_run_time_seconds_total", "Run time of the runs that succeeded.", |job| {
            job.run_time_seconds
        }),
        Metric {
            kind: "histogram",
            name: "jobctl_wait_seconds",
            help: "Time from due to start, of attempts whose result ended their run.",
            samples: overview.figures.iter().flat_map(waits).collect(),
        },
        Metric {
            kind: "gauge",
            name: "jobctl_worker_last_tick_timestamp_seconds",
            help: "When the worker last ticked.",
            samples: ticks.collect(),
        },
    ]
}

/// A sample for each job that has a value.
fn samples<'a>(
    jobs: impl Iterator<Item = (&'a str, Option<f64>)>,
) -> Vec<(&'static str, Labels, f64)> {
    jobs.filter_map(|(job, value)| Some(("", vec![("job_type", plain(job))], value?))).collect()
}

fn waits(job: &Figures) -> Vec<(&'static str, Labels, f64)> {
    let label = ("job_type", plain(&job.job_type));
    let buckets = WAITS.iter().zip(&job.waits).map(|(bound, count)| {
        ("_bucket", vec![label.clone(), ("le", (*bound).to_owned())], *count as f64)
    });
    let count = job.waits.last().copied().unwrap_or_default() as f64;
    let sums = [("_sum", job.wait_seconds), ("_count", count)];
    buckets.chain(sums.map(|(suffix, value)| (suffix, vec![label.clone()], value))).collect()
}

/// Writes metrics as text, except those without a sample.
pub(super) fn exposition(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for metric in metrics.iter().filter(|metric| !metric.samples.is_empty()) {
        let Metric { kind, name, help, samples } = metric;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (suffix, labels, value) in samples {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.join(","));
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn timestamp(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(samples: Vec<(Labels, f64)>) -> Metric {
        let samples = samples.into_iter().map(|(labels, value)| ("", labels, value)).collect();
        Metric { kind: "gauge", name: "jobctl_x", help: "Of x.", samples }
    }

    #[track_caller]
    fn writes(value: &str, label: &str) {
        let text = exposition(&[gauge(vec![(vec![("job", value.to_owned())], 1.0)])]);
        assert_eq!(
            text,
            format!(
                "# HELP jobctl_x Of x.\n# TYPE jobctl_x gauge\njobctl_x{{job=\"{label}\"}} 1\n"
            )
        );
    }

    #[test]
    fn a_label_value_cannot_end_its_label() {
        writes("backup", "backup");
        writes("", "");
        writes("a\"} 9\nforged 1", r#"a\"} 9\nforged 1"#);
        writes(r"C:\new", r"C:\\new");
        writes("\\\n", r"\\\n");
        writes("#{é, =}", "#{é, =}");
    }

    #[test]
    fn a_gauge_without_samples_is_left_out() {
        assert_eq!(exposition(&[gauge(Vec::new())]), "");
    }

    #[test]
    fn several_labels_and_fractions_are_written() {
        let labels = vec![("job", "a".to_owned()), ("status", "dead".to_owned())];
        let text = exposition(&[gauge(vec![(labels, 0.25)])]);
        assert!(text.ends_with("jobctl_x{job=\"a\",status=\"dead\"} 0.25\n"), "{text}");
    }
}
