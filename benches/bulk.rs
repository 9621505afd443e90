//! Measures a batch of enqueues against COPY of the same rows into the same table.

use std::fmt::Write as _;

use crate::Scale;
use crate::database::Database;
use crate::process::time;
use crate::table::{Goal, Measured, median, rate};

const ROUNDS: usize = 3;

/// The job `invoice`, which the payload suits as well as the job `shell`.
const DEFINITION: &str = "INSERT INTO jobctl.job_definitions (name, kind, action) \
    VALUES ('invoice', 'shell', '{\"command\": \"true\"}')";

pub fn bulk(scale: Scale) -> Vec<Measured> {
    ["shell", "invoice"].map(|job| batch(scale.of(100_000, 20_000), job)).into()
}

fn batch(runs: usize, job: &str) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let (lines, rows) = (folder.path().join("lines"), folder.path().join("rows"));
    let (mut json, mut text) = (String::new(), String::new());
    for number in 1..=runs {
        let payload = format!(r#"{{"command": ["send-invoice", "{number}"]}}"#);
        writeln!(json, r#"{{"job_type": "{job}", "payload": {payload}}}"#).unwrap();
        writeln!(text, "{job}\t{payload}").unwrap();
    }
    std::fs::write(&lines, json).unwrap();
    std::fs::write(&rows, text).unwrap();
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let database = Database::new();
            let mut copy = database.psql();
            copy.arg("-qc").arg(format!(
                r"\copy jobctl.job_runs (job_type, payload) from '{}'",
                rows.display()
            ));
            let copied = time(copy);
            let database = Database::new();
            database.execute([DEFINITION]);
            let took = database.jobctl(["enqueue", "--batch", lines.to_str().unwrap()]).run();
            assert_eq!(
                database.number("SELECT count(*) FROM jobctl.job_runs"),
                i64::try_from(runs).unwrap()
            );
            (took, copied)
        })
        .collect();
    let (ours, copied) = (
        rounds.iter().map(|pair| pair.0).min().unwrap(),
        rounds.iter().map(|pair| pair.1).min().unwrap(),
    );
    Measured {
        what: format!("enqueue --batch of {runs} lines of {job} / psql's \\copy of the same rows"),
        figures: format!("{} and {}, best of {ROUNDS}", rate(runs, ours), rate(runs, copied)),
        value: median(
            rounds.iter().map(|(ours, copied)| copied.as_secs_f64() / ours.as_secs_f64()).collect(),
        ),
        unit: "",
        goal: Goal::AtLeast(0.45),
    }
}
