//! The status as metrics, in version 0.0.4 of Prometheus' text exposition format. Pure.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use crate::health::{self, Finding};
use crate::store::{JobStatus, Overview};
use crate::text::plain::plain;

/// A metric with its samples: labels and value.
pub(super) struct Gauge {
    name: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// The metrics of a status. A run counts once in `jobctl_runs`, by its status. Due is not a status,
/// so due runs have their own metric.
pub(super) fn gauges(overview: &Overview, findings: &[Finding]) -> Vec<Gauge> {
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
            (vec![("job_type", plain(&job.job_type)), ("status", status.to_owned())], number(runs))
        })
    });
    let per_job = |name, help, value: fn(&JobStatus) -> Option<f64>| Gauge {
        name,
        help,
        samples: overview
            .jobs
            .iter()
            .filter_map(|job| Some((vec![("job_type", plain(&job.job_type))], value(job)?)))
            .collect(),
    };
    let ticks = overview.workers.iter();
    let findings = health::codes().map(|code| {
        let count = findings.iter().filter(|finding| finding.code == Some(code)).count();
        (vec![("code", code.to_owned())], number(i64::try_from(count).unwrap_or(i64::MAX)))
    });
    vec![
        Gauge {
            name: "jobctl_findings",
            help: "Problems that jobctl check or doctor reports, by code.",
            samples: findings.collect(),
        },
        Gauge {
            name: "jobctl_runs",
            help: "Runs that are not done, by status.",
            samples: runs.collect(),
        },
        per_job("jobctl_due_runs", "Queued and failed runs that are due.", |job| {
            Some(number(job.due_runs))
        }),
        per_job(
            "jobctl_oldest_due_age_seconds",
            "How long the oldest due run has been due; 0 if none is due.",
            |job| Some(job.oldest_due_age_seconds.unwrap_or_default()),
        ),
        per_job("jobctl_succeeded_last_24h", "Runs that succeeded in the last 24 hours.", |job| {
            Some(number(job.succeeded_runs_last_24h))
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
        Gauge {
            name: "jobctl_worker_last_tick_timestamp_seconds",
            help: "When the worker last ticked.",
            samples: ticks
                .map(|tick| (vec![("worker", plain(&tick.worker))], timestamp(tick.last_tick_at)))
                .collect(),
        },
    ]
}

/// Writes gauges as text, except those without a sample.
pub(super) fn exposition(gauges: &[Gauge]) -> String {
    let mut text = String::new();
    for Gauge { name, help, samples } in gauges.iter().filter(|gauge| !gauge.samples.is_empty()) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

/// Exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn number(count: i64) -> f64 {
    count as f64
}

fn timestamp(at: DateTime<Utc>) -> f64 {
    number(at.timestamp_millis()) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(samples: Vec<(Vec<(&'static str, String)>, f64)>) -> Gauge {
        Gauge { name: "jobctl_x", help: "Of x.", samples }
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
