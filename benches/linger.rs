//! Measures `tick --linger`: the delay from the commit of an enqueue to the job's first
//! instruction, and the load of an idle tick on the database.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::database::Database;
use crate::table::{Goal, Measured, median, percentile};

/// The duration of the observation of an idle tick.
const WATCHED: Duration = Duration::from_secs(3);

pub fn linger(scale: Scale) -> Vec<Measured> {
    let times = scale.of(200, 60);
    let database = Database::new();
    let tick = database.jobctl(["tick", "--linger", "--max-time", "10m"]).lingers();
    // The job's first instruction writes a line to a named pipe, which needs no inheritance.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .stdin(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let both = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let mut lines = BufReader::new(both);
    let payload = format!(r#"{{"command": "echo >{}"}}"#, pipe.display());
    let mut client = database.client();
    let mut latencies = Vec::new();
    for round in 0..=times {
        // Spreads the enqueues over the polling interval.
        std::thread::sleep(Duration::from_millis(rand::random_range(50..200)));
        let insert = format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) VALUES ('shell', '{payload}')"
        );
        client.batch_execute(&insert).unwrap();
        let committed = Instant::now();
        lines.read_line(&mut String::new()).unwrap();
        // The first run waits for the start of the tick.
        if round > 0 {
            latencies.push(committed.elapsed().as_secs_f64() * 1e3);
        }
    }
    let transactions = || {
        database.number(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = \
            current_database()",
        )
    };
    // A server process reports its counters at most once a second.
    std::thread::sleep(Duration::from_millis(1500));
    let (before, started) = (transactions(), Instant::now());
    std::thread::sleep(WATCHED);
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let rate = (transactions() - before) as f64 / started.elapsed().as_secs_f64();
    drop(tick);
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| percentile(&latencies, part);
    vec![
        Measured {
            what: format!("--linger: commit of an enqueue to the job's start, median of {times}"),
            figures: format!("10 % under {:.0} ms, 90 % under {:.0} ms", at(10), at(90)),
            value: median(latencies.clone()),
            unit: " ms",
            goal: Goal::AtMost(60.0),
        },
        Measured {
            what: "--linger: transactions a second while idle".to_owned(),
            figures: String::new(),
            value: rate,
            unit: "/s",
            goal: Goal::AtMost(20.0),
        },
    ]
}
