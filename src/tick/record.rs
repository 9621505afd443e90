//! Writes what attempts came to, all that are at hand in one statement, and says it in the log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::pool::Attempt;
use super::{Look, Tick};
use crate::duration;
use crate::model::{Outcome, Status, Why};
use crate::store::{self, Claimed, Expired, Finish, Kind};
use crate::verdict::Verdict;

/// An attempt that ended, and what follows from it; judged once, however often it takes to record.
pub(super) struct Judged {
    pub(super) attempt: Attempt,
    verdict: Verdict,
}

impl Judged {
    pub(super) fn new(attempt: Attempt) -> Self {
        let run = &attempt.run;
        let verdict =
            Verdict::of(&attempt.ended, attempt.prospect, run.attempt, run.max_attempts, &run.backoff, rand::random());
        Self { attempt, verdict }
    }

    /// What it keeps in memory until it is recorded.
    pub(super) fn bytes(&self) -> usize {
        self.attempt.ended.output.text.len()
    }
}

/// Bytes of output in one statement; more wait for the next.
const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

impl Tick {
    /// Records what has ended, all of it unless it is much; whatever fails stays to be recorded later.
    pub(super) fn record(&mut self) -> store::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.ended.is_empty() {
            return Ok(());
        }
        let mut bytes = 0;
        let fits = |judged: &&Judged| {
            bytes += judged.bytes();
            bytes <= BYTES_AT_ONCE
        };
        let batch = self.ended.iter().take_while(fits).count().max(1);
        let finishes = self.ended[..batch].iter().map(finish);
        let worker = &self.holder.worker;
        let recorded = match store.finish(worker, finishes.clone().collect()) {
            // One value that PostgreSQL refuses must not cost the others their results.
            Err(error) if error.kind == Kind::Data => {
                let mut recorded = HashMap::new();
                for one in finishes {
                    recorded.extend(finish_alone(store, worker, one)?);
                }
                recorded
            }
            other => other?,
        };
        if self.look == Look::AfterRun {
            self.look = Look::Now;
        }
        let mut lost = Vec::new();
        for judged in self.ended.drain(..batch) {
            let run = &judged.attempt.run;
            self.held.remove(&run.id);
            self.ended_bytes -= judged.bytes();
            match recorded.get(&run.id) {
                Some(status) => log_recorded(&judged, *status),
                None => {
                    log::warn!("{}: lease lost, result not recorded", subject(run));
                    lost.push((run.id, run.attempt, judged.attempt.started));
                }
            }
        }
        for (id, attempt, started) in lost {
            store.note_lost(worker, id, attempt, "its worker lost the lease and ended it", started.elapsed())?;
        }
        Ok(())
    }
}

/// Records one result; where its text can't be stored, the state is.
fn finish_alone(store: &store::Store, worker: &str, mut one: Finish) -> store::Result<HashMap<i64, Status>> {
    match store.finish(worker, vec![one.clone()]) {
        Err(error) if error.kind == Kind::Data => {
            log::warn!("run {}: output not stored: {error}", one.id);
            one.output = Some("[output could not be stored]".to_owned());
            one.error = one.error.map(|_| "error could not be stored".to_owned());
            one.detail = None;
            store.finish(worker, vec![one])
        }
        other => other,
    }
}

fn finish(judged: &Judged) -> Finish {
    let Judged { attempt: Attempt { run, ended, started, finished, .. }, verdict } = judged;
    let now = Instant::now();
    Finish {
        id: run.id,
        attempt: run.attempt,
        status: verdict.status,
        wait: verdict.wait,
        outcome: verdict.outcome,
        error_type: verdict.error_type,
        detail: match (&verdict.error, ended.note) {
            (Some(error), Some(note)) => Some(format!("{error}; {note}")),
            (None, note) => note.map(str::to_owned),
            (Some(_), None) => None,
        },
        error: verdict.error.clone(),
        exit_code: ended.exit_code,
        signal: ended.signal,
        http_status: ended.http_status.map(i32::from),
        output: (ended.output.bytes > 0).then(|| ended.output.text.clone()),
        output_bytes: i64::try_from(ended.output.bytes).unwrap_or(i64::MAX),
        output_truncated: ended.output.truncated,
        started_ago: now - *started,
        ended_ago: now - *finished,
    }
}

/// Who a line of the log is about: `run 42 shell attempt 1/10`.
pub(super) fn subject(run: &Claimed) -> String {
    describe(run.id, &run.job_type, run.attempt, run.max_attempts)
}

fn describe(id: i64, job_type: &str, attempt: i32, max_attempts: i32) -> String {
    // Any program may have written the job's name: no line break, no escape sequence.
    format!("run {id} {} attempt {attempt}/{max_attempts}", job_type.escape_debug())
}

fn log_recorded(judged: &Judged, status: Status) {
    let Judged { attempt: Attempt { run, ended, started, finished, .. }, verdict } = judged;
    let took = duration::show(*finished - *started);
    let subject = subject(run);
    let note = ended.note.map(|note| format!("; {note}")).unwrap_or_default();
    let what = match (&ended.outcome, &verdict.error) {
        (Outcome::Failed(_), Some(error)) => error,
        (Outcome::Stopped(Why::Interrupted | Why::LeaseLost), _) => "interrupted",
        (Outcome::Stopped(Why::Cancelled), _) => "cancelled",
        _ => "succeeded",
    };
    match status {
        Status::Failed => {
            log::info!("{subject}: {what} after {took}{note}, next attempt in {}", duration::show(verdict.wait));
        }
        Status::Queued => log::info!("{subject}: {what} after {took}{note}, queued again"),
        Status::Dead => log::warn!("{subject}: {what} after {took}{note}, dead"),
        Status::Cancelled if what != "cancelled" => log::info!("{subject}: {what} after {took}{note}, cancelled"),
        Status::Succeeded | Status::Cancelled | Status::Running => log::info!("{subject}: {what} after {took}{note}"),
    }
}

pub(super) fn log_recovered(run: &Expired, status: Status, wait: Duration) {
    let subject = describe(run.id, &run.job_type, run.attempt, run.max_attempts);
    let next = match status {
        Status::Failed => format!("next attempt in {}", duration::show(wait)),
        other => other.as_str().to_owned(),
    };
    log::warn!("{subject}: lease of worker {} expired, {next}", run.worker.escape_debug());
}
