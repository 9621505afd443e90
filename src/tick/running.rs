//! The runs that a tick has handed to its threads, until they end.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::execution::subject;
use crate::execute::Stop;
use crate::job::status::Status;
use crate::store::{Claimed, FencingToken};
use crate::text::duration;

/// The log mentions a run once it takes longer than this.
const LONG: Duration = Duration::from_secs(60);

/// A run that was handed to a thread.
struct Execution {
    stop: Arc<Stop>,
    since: Instant,
    /// The subject of its log lines.
    subject: String,
    job_type: String,
    has_logged_long: Cell<bool>,
}

/// The runs that this tick executes, by claim, not by run: after a lost lease, this tick may claim
/// the same run again.
#[derive(Default)]
pub(super) struct RunningRuns(HashMap<FencingToken, Execution>);

impl RunningRuns {
    /// Adds a claimed run, and logs its claim.
    pub(super) fn insert(&mut self, run: &Claimed, worker: &str, stop: Arc<Stop>, now: Instant) {
        let (subject, job_type) = (subject(run), run.job_type.clone());
        log::debug!(
            run = run.id, job = job_type, attempt = run.attempt, worker = worker,
            status = Status::Running.as_str();
            "{subject}: claimed"
        );
        let has_logged_long = Cell::new(false);
        let running = Execution { stop, since: now, subject, job_type, has_logged_long };
        self.0.insert(run.token(), running);
    }

    /// Removes the run of a claim, because it has ended or will not start.
    pub(super) fn remove(&mut self, claim: &FencingToken) {
        self.0.remove(claim);
    }

    /// Returns what stops the job of a claim; `None`: it is not running any more.
    pub(super) fn stop(&self, claim: &FencingToken) -> Option<&Stop> {
        self.0.get(claim).map(|running| &*running.stop)
    }

    /// Returns what stops each job.
    pub(super) fn stops(&self) -> impl Iterator<Item = &Stop> {
        self.0.values().map(|running| &*running.stop)
    }

    /// Logs once that a run takes long; nothing for a claim that is not running any more.
    pub(super) fn log_if_long(&self, claim: &FencingToken, worker: &str, now: Instant) {
        let Some(running) = self.0.get(claim) else { return };
        if now >= running.since + LONG && !running.has_logged_long.replace(true) {
            let Execution { subject, job_type, .. } = running;
            let long = duration::show(LONG);
            log::info!(
                run = claim.id, job = job_type, attempt = claim.attempt, worker = worker,
                status = Status::Running.as_str();
                "{subject}: still running after {long}"
            );
        }
    }
}
