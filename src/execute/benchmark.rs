//! Executes jobs without a database, for the benchmark.

use std::time::{Duration, Instant};

use super::{Executor, HostPolicy, ShellPolicy, Stop};
use crate::job::action::Action;
use crate::job::attempt::{AttemptIdentity, Outcome};

/// Returns a function that executes a built-in job as a tick does. The function takes the id of the
/// run, and returns whether it succeeded.
///
/// # Errors
///
/// The job is not built in, or the payload does not fit it.
pub fn execution(job: &str, payload: &str) -> Result<impl Fn(i64) -> bool + Sync, String> {
    let executor = Executor::new(ShellPolicy::Any, HostPolicy::new(&[])?);
    let action = Action::parse(job, payload).ok_or("it is not a built-in job")??;
    let job = job.to_owned();
    Ok(move |run_id| {
        let identity = AttemptIdentity {
            run_id,
            job: job.clone(),
            attempt: 1,
            max_attempts: 10,
            idempotency_key: format!("jobctl-run-{run_id}"),
            scheduled_for: None,
            after: None,
            traceparent: None,
        };
        let stop = Stop::new(Instant::now() + Duration::from_secs(60), Duration::from_secs(1));
        let ended = executor.execute(&action, &identity, None, &stop);
        matches!(ended.outcome, Outcome::Succeeded)
    })
}
