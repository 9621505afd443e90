//! Measures how long runs wait for their start: an application enqueues calls at a rate, and the
//! called server notes how long ago the time of its enqueue was.

use std::thread;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::database::Database;
use crate::server::{Server, now};
use crate::table::{Goal, Measured, percentile};

/// Calls per second.
const RATES: [usize; 3] = [10, 100, 800];

pub fn wait(scale: Scale) -> Vec<Measured> {
    let lasts = Duration::from_secs(scale.of(20, 3) as u64);
    let lingering = RATES.map(|rate| {
        let database = Database::new();
        let tick = ["tick", "--linger", "--concurrency", "16", "--max-time", "10m"];
        let tick = database.jobctl(tick).lingers();
        let server = Server::start(usize::MAX);
        // The first runs would wait for the start of the tick.
        enqueue(&database, 10, Duration::from_millis(500), "http", |_| {
            format!(r#"{{"url": "{}"}}"#, server.url)
        });
        let runs = enqueue(&database, rate, lasts, "http", |due| payload(&server, due));
        let unfinished = "SELECT count(*) FROM jobctl.job_runs WHERE status <> 'succeeded'";
        while database.number(unfinished) > 0 {
            thread::sleep(Duration::from_millis(50));
        }
        drop(tick);
        let waits = server.waits();
        assert_eq!(waits.len(), runs);
        let what = format!("--linger: {rate} calls a second, enqueue to start, 99 %");
        row(what, waits, Goal::AtMost(100.0))
    });
    lingering.into_iter().chain([minute(scale)]).collect()
}

/// A minute's runs wait for the next tick of cron. Measures how long they wait once it starts.
fn minute(scale: Scale) -> Measured {
    let runs = scale.of(6000, 600);
    let (database, server) = (Database::new(), Server::start(usize::MAX));
    let filled = now();
    database.fill(runs, "http", &payload(&server, filled));
    let started = now();
    database.jobctl(["tick", "--concurrency", "16"]).run();
    database.assert_all_ran_once(runs);
    let until_tick = (started - filled) as f64 / 1e3;
    let waits = server.waits().into_iter().map(|wait| wait - until_tick).collect();
    let what = format!("a tick of cron: {runs} due calls, from its start, 99 %");
    row(what, waits, Goal::None)
}

fn row(what: String, mut waits: Vec<f64>, goal: Goal) -> Measured {
    waits.sort_by(f64::total_cmp);
    let [middle, most, last] = [50, 95, 99].map(|part| percentile(&waits, part));
    Measured {
        what,
        figures: format!("50 % under {middle:.0} ms, 95 % under {most:.0} ms"),
        value: last,
        unit: " ms",
        goal,
    }
}

/// Returns the payload of a call that is due at this time, in microseconds since 1970.
pub fn payload(server: &Server, due: u64) -> String {
    format!(r#"{{"url": "{}?due={due}"}}"#, server.url)
}

/// Enqueues runs at a rate, as an application does: a transaction has the runs that are due.
/// `payload` gets the time at which a run is due, in microseconds. Returns their number.
pub fn enqueue(
    database: &Database,
    rate: usize,
    lasts: Duration,
    job: &str,
    payload: impl Fn(u64) -> String,
) -> usize {
    let mut client = database.client();
    let insert = "INSERT INTO jobctl.job_runs (job_type, payload) SELECT $1, due::jsonb FROM \
                  unnest($2::text[]) AS due";
    let insert = client.prepare(insert).unwrap();
    let (started, began) = (Instant::now(), now());
    let due_after = |run: usize| Duration::from_secs_f64(run as f64 / rate as f64);
    let runs = (lasts.as_secs_f64() * rate as f64) as usize;
    let mut done = 0;
    while done < runs {
        thread::sleep(due_after(done).saturating_sub(started.elapsed()));
        let due = (done..runs).take_while(|run| due_after(*run) <= started.elapsed());
        let payloads: Vec<_> =
            due.map(|run| payload(began + due_after(run).as_micros() as u64)).collect();
        client.execute(&insert, &[&job, &payloads]).unwrap();
        done += payloads.len();
    }
    runs
}
