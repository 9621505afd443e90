//! Measures what very many locks, shares with a rate and schedules of applications cost.

use std::time::Instant;

use crate::Scale;
use crate::database::Database;
use crate::drain::compare;
use crate::short::pairs;
use crate::table::{Goal, Measured};

/// Rounds of the comparison.
const ROUNDS: usize = 3;
const TRUE: &str = r#"{"command": ["true"]}"#;

pub fn floods(scale: Scale) -> Vec<Measured> {
    vec![locks(scale), rates(scale), idle_schedules(scale), due_schedules(scale)]
}

/// Compares ticks beside runs with as many locks with the same beside a hundred.
fn locks(scale: Scale) -> Measured {
    let many = scale.of(100_000, 10_000);
    let fill = |locks: usize| {
        format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, lock)
             SELECT 'shell', '{TRUE}', 'account:' || n FROM generate_series(1, {locks}) AS n"
        )
    };
    beside(scale, &format!("runs with {many} locks"), [fill(many), fill(100)])
}

/// Compares ticks beside as many shares with a rate with the same beside a hundred.
fn rates(scale: Scale) -> Measured {
    let many = scale.of(1_000_000, 100_000);
    let fill = |shares: usize| {
        format!(
            "INSERT INTO jobctl.job_definitions (name, kind, action, rate_per_share)
                 VALUES ('limited', 'shell', '{TRUE}', '1/1h');
             INSERT INTO jobctl.job_runs (definition_id, job_type, share)
             SELECT id, name, n FROM jobctl.job_definitions, generate_series(1, {shares}) AS n"
        )
    };
    beside(scale, &format!("{many} shares with a rate"), [fill(many), fill(100)])
}

fn beside(scale: Scale, what: &str, fills: [String; 2]) -> Measured {
    let runs = scale.of(2000, 500);
    let [large, small] = fills.map(|fill| {
        let database = Database::new();
        database.fill(runs * ROUNDS, "shell", TRUE);
        database.execute([&fill, "VACUUM ANALYZE jobctl.job_runs"]);
        database
    });
    let tick = |database: &Database| database.jobctl(["tick", "--limit", &runs.to_string()]).run();
    Measured {
        what: format!("{runs} runs beside {what} / beside 100"),
        goal: Goal::AtLeast(0.8),
        ..compare(runs, (0..ROUNDS).map(|_| (tick(&large), tick(&small))).collect())
    }
}

/// Compares empty ticks beside many schedules of applications with empty ticks without them.
fn idle_schedules(scale: Scale) -> Measured {
    let many = scale.of(100_000, 10_000);
    let [large, small] = [with_schedules(many), with_schedules(0)];
    let tick = |database: &Database| database.jobctl(["tick"]).run();
    Measured {
        what: format!("empty tick beside {many} schedules of applications / without them"),
        goal: Goal::AtMost(1.02),
        ..pairs(scale.of(100, 30), || (tick(&large), tick(&small)))
    }
}

/// Compares a tick that fires many schedules of applications at once with as many enqueues in one
/// statement.
fn due_schedules(scale: Scale) -> Measured {
    let due = scale.of(10_000, 1000);
    let round = || {
        let database = with_schedules(due);
        database
            .execute(["UPDATE jobctl.job_schedules SET next_run_at = date_trunc('minute', now())"]);
        // It serves a queue without runs.
        let fires = database.jobctl(["tick", "--queue", "none"]).run();
        let begun = Instant::now();
        database.number(&format!(
            "SELECT count(jobctl.enqueue('report')) FROM generate_series(1, {due})"
        ));
        let enqueues = begun.elapsed();
        let runs = database.number("SELECT count(DISTINCT schedule) FROM jobctl.job_runs");
        assert_eq!(usize::try_from(runs), Ok(due));
        (fires, enqueues)
    };
    Measured {
        what: format!("{due} schedules fire in one tick / as many calls of jobctl.enqueue"),
        ..compare(due, (0..ROUNDS).map(|_| round()).collect())
    }
}

/// Returns a database with this many schedules of an application, whose next time is known.
fn with_schedules(schedules: usize) -> Database {
    let database = Database::new();
    let fill = format!(
        "INSERT INTO jobctl.job_definitions (name, kind, action)
             VALUES ('report', 'shell', '{TRUE}');
         INSERT INTO jobctl.job_schedules
             (name, definition_id, schedule, time_zone, payload, share, next_run_at)
         SELECT 'report:' || n, id, '0 9 * * mon', 'Europe/Berlin', to_jsonb(n), n,
             date_trunc('minute', now()) + interval '1 day'
         FROM jobctl.job_definitions, generate_series(1, {schedules}) AS n"
    );
    database.execute([&fill, "VACUUM ANALYZE jobctl.job_schedules"]);
    database
}
