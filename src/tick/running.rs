//! The runs that a tick has handed to its threads, until they end. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::execute::Stop;
use crate::job::attempt::describe;
use crate::store::{Claimed, Token};
use crate::text::duration;

/// The log mentions a run once it takes longer than this.
const LONG: Duration = Duration::from_secs(60);
/// The shortest time between two searches for such runs.
const PAUSE: Duration = Duration::from_secs(1);

struct Execution {
    stop: Arc<Stop>,
    since: Instant,
    job_type: String,
    max_attempts: i32,
    is_long: bool,
}

#[derive(Default)]
pub(super) struct RunningRuns {
    /// By claim, not by run: after a lost lease, this tick may claim the same run again.
    runs: HashMap<Token, Execution>,
    /// When to search for long runs.
    search_at: Option<Instant>,
}

impl RunningRuns {
    pub(super) fn insert(&mut self, run: &Claimed, stop: Arc<Stop>, now: Instant) {
        self.search_at.get_or_insert(now + LONG);
        let (job_type, max_attempts) = (run.job_type.clone(), run.max_attempts);
        let running = Execution { stop, since: now, job_type, max_attempts, is_long: false };
        self.runs.insert(run.token(), running);
    }

    pub(super) fn remove(&mut self, claim: &Token) {
        self.runs.remove(claim);
    }

    pub(super) fn stop(&self, claim: &Token) -> Option<&Stop> {
        self.runs.get(claim).map(|running| &*running.stop)
    }

    pub(super) fn stops(&self) -> impl Iterator<Item = &Stop> {
        self.runs.values().map(|running| &*running.stop)
    }

    /// Returns when to call `long`.
    pub(super) fn until(&self) -> Option<Instant> {
        self.search_at
    }

    /// Returns the runs that have become long, each once: the claim, the job, and the log line.
    pub(super) fn long(&mut self, now: Instant) -> Vec<(Token, String, String)> {
        let mut long = Vec::new();
        if self.search_at.take_if(|at| now >= *at).is_none() {
            return long;
        }
        for (claim, running) in self.runs.iter_mut().filter(|(_, running)| !running.is_long) {
            let Execution { since, job_type, max_attempts, is_long, .. } = running;
            if now >= *since + LONG {
                *is_long = true;
                let subject = describe(claim.id, job_type, claim.attempt, *max_attempts);
                let line = format!("{subject}: still running after {}", duration::show(LONG));
                long.push((*claim, job_type.clone(), line));
            } else {
                let next = (*since + LONG).max(now + PAUSE);
                self.search_at = Some(self.search_at.map_or(next, |at| at.min(next)));
            }
        }
        long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_returned_once() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let example = |id| Claimed { attempt: 2, max_attempts: 10, ..Claimed::example(id) };
        let run = |id| Claimed { job_type: "backup".to_owned(), ..example(id) };
        let mut running = RunningRuns::default();
        for (id, since) in [(1, 0), (2, 0), (3, 30)] {
            let stop = Arc::new(Stop::new(after(600), Duration::ZERO));
            running.insert(&run(id), stop, after(since));
        }
        running.remove(&run(2).token());
        let mut lines = |seconds| -> Vec<_> {
            running.long(after(seconds)).into_iter().map(|(.., line)| line).collect()
        };
        assert_eq!(lines(59), [""; 0]);
        assert_eq!(lines(60), ["run 1 backup attempt 2/10: still running after 1m"]);
        assert_eq!(lines(89), [""; 0]);
        assert_eq!(lines(90), ["run 3 backup attempt 2/10: still running after 1m"]);
        assert_eq!(running.until(), None);
    }
}
