//! Measures runs that wait for others: five shapes of ten thousand runs, and what claims and
//! results cost beside a hundred thousand that wait.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::database::Database;
use crate::drain::compare;
use crate::shape::Shape;
use crate::table::{Goal, Measured};
use crate::{Scale, peers};

/// Rounds of each comparison.
const ROUNDS: usize = 3;

pub fn after(scale: Scale) -> Vec<Measured> {
    let runs = scale.of(10_000, 1000);
    let plain = Shape::None;
    let ours = Shape::ALL.map(|shape| Measured {
        what: format!("{runs} x true, {} / {}", shape.name(), plain.name()),
        goal: match shape {
            Shape::Chain => Goal::None,
            _ => Goal::AtLeast(0.8),
        },
        ..compare(
            runs,
            rounds_of(shape).map(|_| (drain(shape, runs), drain(plain, runs))).collect(),
        )
    });
    let mut rows = vec![beside(scale)];
    rows.extend(ours);
    if !scale.quick {
        rows.extend(peers::graphs(runs));
    }
    rows
}

/// A chain takes a minute.
fn rounds_of(shape: Shape) -> Range<usize> {
    0..if matches!(shape, Shape::Chain) { 1 } else { ROUNDS }
}

/// Returns how long a tick needs for runs of this shape.
fn drain(shape: Shape, runs: usize) -> Duration {
    let database = Database::new();
    let mut batch = tempfile::NamedTempFile::new().unwrap();
    let mut lines = String::new();
    for place in 0..runs {
        let after: Vec<_> = shape.after(place, runs).iter().map(|it| format!("\"{it}\"")).collect();
        let payload = r#"{"command": ["true"]}"#;
        writeln!(
            lines,
            r#"{{"job_type": "shell", "payload": {payload}, "as": "{place}", "after": [{}]}}"#,
            after.join(", ")
        )
        .unwrap();
    }
    batch.write_all(lines.as_bytes()).unwrap();
    database.jobctl(["enqueue", "--batch", batch.path().to_str().unwrap()]).run();
    database.execute(["VACUUM ANALYZE"]);
    let took = database.jobctl(["tick", "--concurrency", "8", "--max-time", "10m"]).run();
    database.assert_all_ran_once(runs);
    took
}

/// Compares runs beside a hundred thousand blocked ones with the same runs alone.
fn beside(scale: Scale) -> Measured {
    let (runs, blocked) = (scale.of(10_000, 1000), scale.of(100_000, 10_000));
    let drain = |blocked: usize| {
        let database = Database::new();
        let payload = r#"{"command": ["true"]}"#;
        let fill = format!(
            "WITH dead AS (
                 INSERT INTO jobctl.job_runs (job_type, status, finished_at)
                 SELECT 'shell', 'dead', now() FROM generate_series(1, {blocked} / 100) RETURNING id
             ),
             waiting AS (
                 INSERT INTO jobctl.job_runs (job_type, status)
                 SELECT 'shell', 'blocked' FROM generate_series(1, {blocked}) RETURNING id
             )
             INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
             SELECT waiting.id, dead.id, 'stuck'
             FROM (SELECT id, row_number() OVER () / 100 AS place FROM waiting) AS waiting
             JOIN (SELECT id, row_number() OVER () AS place FROM dead) AS dead USING (place)"
        );
        database.execute([&fill]);
        database.fill(runs, "shell", payload);
        database.execute(["VACUUM ANALYZE"]);
        let took = database.jobctl(["tick", "--concurrency", "8", "--max-time", "10m"]).run();
        let done = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'";
        assert_eq!(usize::try_from(database.number(done)), Ok(runs));
        took
    };
    Measured {
        what: format!("{runs} x true beside {blocked} blocked runs / without them"),
        goal: Goal::AtLeast(0.98),
        ..compare(runs, (0..ROUNDS).map(|_| (drain(blocked), drain(0))).collect())
    }
}
