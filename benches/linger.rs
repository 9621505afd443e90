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
    // The processor time of the tick's server process, in milliseconds.
    let process = database.number(
        "SELECT pid::bigint FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name = 'jobctl'",
    );
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e6
    };
    std::thread::sleep(Duration::from_millis(500));
    let (before, started) = (used(), Instant::now());
    std::thread::sleep(WATCHED);
    let idle = (used() - before) / started.elapsed().as_secs_f64();
    let runs = scale.of(600, 180);
    let (before, started) = (used(), Instant::now());
    let pace = Duration::from_secs(1) / 60;
    for run in 1..=u32::try_from(runs).unwrap() {
        let insert = "INSERT INTO jobctl.job_runs (job_type, payload) VALUES ('shell', \
            '{\"command\": \"true\"}')";
        client.batch_execute(insert).unwrap();
        std::thread::sleep((pace * run).saturating_sub(started.elapsed()));
    }
    std::thread::sleep(Duration::from_millis(200));
    let elapsed = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let busy = (used() - before - idle * 0.2) / runs as f64;
    let figures = format!("{runs} runs in {elapsed:.0} s");
    drop(tick);
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| percentile(&latencies, part);
    vec![
        Measured {
            what: format!("--linger: commit of an enqueue to the job's start, median of {times}"),
            figures: format!("10 % under {:.0} ms, 90 % under {:.0} ms", at(10), at(90)),
            value: median(latencies.clone()),
            unit: " ms",
            goal: Goal::AtMost(15.0),
        },
        Measured {
            what: "--linger: processor time of the server while idle, per second".to_owned(),
            figures: String::new(),
            value: idle,
            unit: " ms",
            goal: Goal::AtMost(60.0),
        },
        Measured {
            what: "--linger: processor time of the server for a run, 60 a second".to_owned(),
            figures,
            value: busy,
            unit: " ms",
            goal: Goal::AtMost(1.5),
        },
    ]
}
