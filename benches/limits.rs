//! Measures what limited jobs cost other runs: a backlog that waits for its rate, and the turns of
//! shares, also if a million shares wait.

use std::thread;
use std::time::Duration;

use crate::Scale;
use crate::database::Database;
use crate::drain::compare;
use crate::table::{Goal, Measured, median};

/// Rounds of the comparison.
const ROUNDS: usize = 3;
const TRUE: &str = r#"{"command": ["true"]}"#;

pub fn limits(scale: Scale) -> Vec<Measured> {
    vec![rate(scale), share(scale), shares(scale)]
}

/// Compares runs beside a backlog that waits for its rate with the same runs alone.
fn rate(scale: Scale) -> Measured {
    let (runs, backlog) = (scale.of(12_000, 1500), scale.of(300_000, 30_000));
    let drain = |backlog: usize| {
        let database = limited("rate", "'60/1m'", "'backlog'", backlog);
        database.fill(runs, "shell", TRUE);
        let took = database.jobctl(["tick", "--concurrency", "64", "--max-time", "10m"]).run();
        let done = "SELECT count(*) FROM jobctl.job_runs
            WHERE job_type = 'shell' AND status = 'succeeded'";
        assert_eq!(usize::try_from(database.number(done)), Ok(runs));
        took
    };
    Measured {
        what: format!("{runs} x true beside {backlog} runs of a job with a rate / without them"),
        goal: Goal::AtLeast(0.95),
        ..compare(runs, (0..ROUNDS).map(|_| (drain(backlog), drain(0))).collect())
    }
}

/// Measures how long single runs of some shares wait while another share has a backlog.
fn share(scale: Scale) -> Measured {
    let (singles, backlog) = (scale.of(20, 5), scale.of(100_000, 10_000));
    let database = limited("max_running_per_share", "2", "'backlog'", backlog);
    let tick = database.jobctl(["tick", "--linger", "--max-time", "10m"]).lingers();
    let mut client = database.client();
    let mut waits = Vec::new();
    while waits.len() < singles {
        // Spreads the enqueues over the polling interval.
        thread::sleep(Duration::from_millis(rand::random_range(50..200)));
        let share = format!("single {}", waits.len());
        let run: i64 = client
            .query_one("SELECT jobctl.enqueue('limited', share => $1)", &[&share])
            .unwrap()
            .get(0);
        let waited = "SELECT (extract(epoch FROM started_at - created_at) * 1e3)::float8
            FROM jobctl.job_runs WHERE id = $1 AND started_at IS NOT NULL";
        while client.query(waited, &[&run]).unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        waits.push(client.query_one(waited, &[&run]).unwrap().get(0));
    }
    drop(tick);
    waits.sort_by(f64::total_cmp);
    Measured {
        what: format!("--linger: single runs beside {backlog} of another share, median wait"),
        figures: format!("the longest of {singles}: {:.0} ms", waits[singles - 1]),
        value: median(waits),
        unit: " ms",
        goal: Goal::AtMost(1000.0),
    }
}

/// Compares ticks beside a million shares of a limited job with the same beside a hundred.
fn shares(scale: Scale) -> Measured {
    let (runs, many) = (scale.of(2000, 500), scale.of(1_000_000, 100_000));
    let [large, small] = [many, 100].map(|shares| {
        let database = limited("max_running", "4", "n", shares);
        database.fill(runs * ROUNDS, "shell", TRUE);
        database
    });
    let tick = |database: &Database| database.jobctl(["tick", "--limit", &runs.to_string()]).run();
    Measured {
        what: format!("{runs} runs beside {many} shares of a limited job / beside 100"),
        goal: Goal::AtLeast(0.8),
        ..compare(runs, (0..ROUNDS).map(|_| (tick(&large), tick(&small))).collect())
    }
}

/// Returns a database with this many due runs of a job that has this limit. `share` is an
/// expression; `n` counts the runs.
fn limited(limit: &str, value: &str, share: &str, backlog: usize) -> Database {
    let database = Database::new();
    let define = format!(
        "INSERT INTO jobctl.job_definitions (name, kind, action, {limit})
         VALUES ('limited', 'shell', '{TRUE}', {value})"
    );
    let fill = format!(
        "INSERT INTO jobctl.job_runs (definition_id, job_type, share)
         SELECT id, name, {share} FROM jobctl.job_definitions, generate_series(1, {backlog}) AS n"
    );
    database.execute([&define, &fill, "VACUUM ANALYZE jobctl.job_runs"]);
    database
}
