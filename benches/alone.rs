//! Measures jobs without a database: in a plain pool of threads, and through jobctl's executor.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::execute::{Executor, HostPolicy, ShellPolicy, Stop};
use crate::job::action::Action;
use crate::job::attempt::{AttemptIdentity, Outcome};

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
    let executor = Executor::new(ShellPolicy::Any, HostPolicy::new(&[]).unwrap());
    pool(count, threads, |number| {
        let action = Action::parse(job, payload).unwrap().unwrap();
        let identity = AttemptIdentity {
            run_id: i64::try_from(number).unwrap(),
            job: job.to_owned(),
            attempt: 1,
            max_attempts: 10,
            idempotency_key: format!("jobctl-run-{number}"),
            scheduled_for: None,
        };
        let stop = Stop::new(Instant::now() + Duration::from_secs(60), Duration::from_secs(1));
        let ended = executor.execute(&action, &identity, None, &stop);
        assert!(matches!(ended.outcome, Outcome::Succeeded), "{ended:?}");
    })
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
