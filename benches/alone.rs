//! What jobs cost without a database: in a plain pool of threads, and executed as jobctl does it.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::action::Action;
use crate::execute::{Executor, HostPolicy, ShellPolicy, Stop};
use crate::model::{Identity, Outcome};

/// So many `sh -c true` from a pool of threads and nothing else.
pub fn spawn(count: usize, threads: usize) -> Duration {
    pool(count, threads, |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "true"]).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
    })
}

/// So many executions of a built-in job, with all that jobctl does for one but the database's part.
pub fn executions(count: usize, threads: usize, job: &str, payload: &str) -> Duration {
    let executor = Executor::new(ShellPolicy::Any, HostPolicy::new(&[]).unwrap());
    pool(count, threads, |number| {
        let action = Action::parse(job, payload).unwrap().unwrap();
        let identity = Identity {
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
