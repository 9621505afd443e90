//! Measures lasting load: an application enqueues calls at a rate, while sessions that follow each
//! other hold snapshots, so that dead row versions stay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::database::Database;
use crate::server::Server;
use crate::table::{Goal, Measured, percentile};
use crate::wait;

/// Calls per second.
const RATE: usize = 800;
/// Sessions that hold a snapshot at the same time.
const SNAPSHOTS: u32 = 3;

pub fn soak(scale: Scale) -> Vec<Measured> {
    [false, true].into_iter().flat_map(|prunes| under_load(scale, prunes)).collect()
}

fn under_load(scale: Scale, prunes: bool) -> [Measured; 3] {
    let lasts = Duration::from_secs(scale.of(900, 60) as u64);
    let held = Duration::from_secs(scale.of(120, 20) as u64);
    let (database, server) = (Database::new(), Server::start(usize::MAX));
    let tick = ["tick", "--linger", "--concurrency", "16", "--max-time", "30m"];
    let tick = database.jobctl(tick).lingers();
    let unfinished = || {
        database
            .number("SELECT count(*) FROM jobctl.job_runs WHERE status IN ('queued', 'running')")
    };
    let wal = || database.number("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    let full_pages = || database.number("SELECT wal_fpi FROM pg_stat_wal");
    let (wal_before, full_pages_before, started) = (wal(), full_pages(), Instant::now());
    let is_over = AtomicBool::new(false);
    let (runs, backlog) = thread::scope(|scope| {
        let (database, server, is_over) = (&database, &server, &is_over);
        for number in 0..SNAPSHOTS {
            scope.spawn(move || hold_snapshots(database, held, held * number / SNAPSHOTS, is_over));
        }
        if prunes {
            scope.spawn(move || {
                while !wait_for(Duration::from_secs(10), is_over) {
                    database.jobctl(["prune", "--older-than", "1m"]).run();
                }
            });
        }
        let runs = wait::enqueue(database, RATE, lasts, "http", |due| wait::payload(server, due));
        let backlog = unfinished();
        is_over.store(true, Ordering::Relaxed);
        (runs, backlog)
    });
    while unfinished() > 0 {
        thread::sleep(Duration::from_millis(50));
    }
    let written = (wal() - wal_before) as f64;
    let full_pages = (full_pages() - full_pages_before) as f64 * 8.0 / runs as f64;
    drop(tick);
    let waits = server.waits();
    assert_eq!(waits.len(), runs);
    let minute = (60 * RATE).min(runs / 2);
    let late = |waits: &[f64]| {
        let mut waits = waits.to_vec();
        waits.sort_by(f64::total_cmp);
        percentile(&waits, 99)
    };
    let (first, last) = (late(&waits[..minute]), late(&waits[runs - minute..]));
    let dead = database.number(
        "SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables WHERE schemaname = 'jobctl'",
    );
    let size = database.number("SELECT pg_total_relation_size('jobctl.job_runs')") >> 20;
    let minutes = started.elapsed().as_secs() / 60;
    let with = if prunes { ", old ones pruned" } else { "" };
    let row = |what: &str, figures, value, unit, goal| Measured {
        what: format!("{RATE} calls a second beside {SNAPSHOTS} snapshots{with}: {what}"),
        figures,
        value,
        unit,
        goal,
    };
    [
        row(
            "wait in the last minute, 99 %",
            format!("{minutes} minutes; {first:.0} ms in the first minute"),
            last,
            " ms",
            Goal::AtMost(100.0),
        ),
        row(
            "unfinished at the end",
            format!("{dead} dead rows, {size} MiB of runs and indexes"),
            backlog as f64,
            "",
            Goal::AtMost(RATE as f64),
        ),
        row(
            "WAL a run",
            format!("at most {full_pages:.2} KiB of it are full pages after checkpoints"),
            written / 1024.0 / runs as f64,
            " KiB",
            Goal::AtMost(2.0),
        ),
    ]
}

/// Holds one snapshot after the other, the first one after a delay.
fn hold_snapshots(database: &Database, held: Duration, delay: Duration, is_over: &AtomicBool) {
    let mut client = database.client();
    let is_over = |lasts| wait_for(lasts, is_over);
    if is_over(delay) {
        return;
    }
    loop {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM jobctl.job_workers";
        client.batch_execute(begin).unwrap();
        let ends = is_over(held);
        client.batch_execute("COMMIT").unwrap();
        if ends {
            return;
        }
    }
}

/// Waits. Returns whether the load is over.
fn wait_for(lasts: Duration, is_over: &AtomicBool) -> bool {
    let until = Instant::now() + lasts;
    while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(100));
    }
    is_over.load(Ordering::Relaxed)
}
