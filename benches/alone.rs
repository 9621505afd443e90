//! Measures jobs without a database: in a plain pool of threads, and through jobctl's executor.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `sh -c true` this many times in a pool of threads.
pub fn spawn(count: usize, threads: usize) -> Duration {
    pool(count, threads, |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "true"]).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
    })
}

/// Executes a built-in job this many times, as a tick does but without the database.
pub fn executions(count: usize, threads: usize, job: &str, payload: &str) -> Duration {
    let execute = jobctl::benchmark::execution(job, payload).unwrap();
    pool(count, threads, |number| assert!(execute(i64::try_from(number).unwrap())))
}

fn pool(count: usize, threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let next = AtomicUsize::new(1);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > count {
                        break;
                    }
                    work(number);
                }
            });
        }
    });
    started.elapsed()
}
