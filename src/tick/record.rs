//! Records the results of attempts, many per statement, and logs them.

use std::time::{Duration, Instant};

use super::lease::Leases;
use super::pool::EndedAttempt;
use super::{Tick, prefetch};
use crate::job::attempt::{Outcome, StopReason};
use crate::job::failure::Failure;
use crate::job::next_status::NextStatus;
use crate::job::status::Status;
use crate::store::{self, Claimed, Expired, Finish, Kind, Recorded};
use crate::text::duration;

/// An attempt that ended, and the run's next status. It is judged once, even if recording it takes
/// several tries.
pub(super) struct JudgedAttempt {
    pub(super) attempt: EndedAttempt,
    next_status: NextStatus,
}

impl JudgedAttempt {
    pub(super) fn new(attempt: EndedAttempt) -> Self {
        let run = &attempt.run;
        // The database's time, less the short wait for a thread.
        let now = run.claimed_at + (attempt.finished - attempt.started);
        let next_status = NextStatus::of(
            &attempt.ended,
            attempt.is_permanent,
            run.attempt,
            run.max_attempts,
            &run.backoff,
            rand::random(),
            now,
        );
        Self { attempt, next_status }
    }

    fn bytes(&self) -> usize {
        self.attempt.ended.output.text.len()
    }
}

/// The pause before a result is sent again because another session has locked its run.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// The same for a rejected result. Longer than the claim pause, so runs are claimed in between.
const REJECTED_PAUSE: Duration = Duration::from_secs(2);
/// The maximum of output in one statement, in bytes.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// Results that are not yet in the database or not yet in the log.
#[derive(Default)]
pub(super) struct Results {
    /// To be recorded.
    pub(super) ended: Vec<JudgedAttempt>,
    /// Results whose run is locked or was rejected. They wait; other results do not.
    pub(super) blocked: Vec<JudgedAttempt>,
    blocked_until: Option<Instant>,
    /// When the latest run with a very short backoff is due again.
    pub(super) due_again: Option<Instant>,
    /// Recorded and not yet logged.
    recorded: Vec<(Status, JudgedAttempt)>,
    /// Results whose lease was lost, to be noted in the history.
    lost: Vec<JudgedAttempt>,
    /// The maximum of results in the next statement: half as many as in the last rejected one.
    at_most: Option<usize>,
}

impl Results {
    pub(super) fn is_empty(&self) -> bool {
        [&self.ended, &self.blocked, &self.lost].iter().all(|results| results.is_empty())
    }

    /// Returns when there is something to send.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if self.ended.is_empty() && self.lost.is_empty() { self.blocked_until } else { Some(now) }
    }

    /// Returns the bytes of output that wait to be recorded.
    pub(super) fn bytes(&self) -> usize {
        self.ended.iter().chain(&self.blocked).map(JudgedAttempt::bytes).sum()
    }

    /// Returns how many results fit into the next statement. Large outputs and rejected results
    /// reduce the number.
    pub(super) fn batch(&mut self) -> usize {
        if self.blocked_until.is_some_and(|until| Instant::now() >= until) {
            self.unblock();
        }
        let mut bytes = 0;
        let fits = |judged: &&JudgedAttempt| {
            bytes += judged.bytes();
            bytes <= BYTES_AT_ONCE
        };
        let fitting = self.ended.iter().take_while(fits).count().max(1).min(self.ended.len());
        self.at_most.map_or(fitting, |at_most| at_most.min(fitting))
    }

    /// Returns the oldest `count` results as parameters of a statement. It contains the age of each
    /// result, so call this just before sending.
    pub(super) fn oldest(&self, count: usize) -> Vec<Finish> {
        self.ended[..count].iter().map(finish).collect()
    }

    fn unblock(&mut self) {
        self.ended.append(&mut self.blocked);
        self.blocked_until = None;
    }

    /// Keeps all results for the next connection, but drops the notes about lost leases.
    pub(super) fn connection_lost(&mut self) {
        self.unblock();
        self.lost.clear();
    }

    /// Takes the database's answer about the oldest `count` results. Results whose runs are
    /// `locked` are kept for later. A result that is not in `recorded` has lost its lease.
    pub(super) fn recorded(
        &mut self,
        count: usize,
        recorded: &Recorded,
        locked: &[i64],
        leases: &mut Leases,
    ) {
        self.at_most =
            self.at_most.filter(|at_most| *at_most < self.ended.len()).map(|at_most| 2 * at_most);
        for judged in self.ended.drain(..count) {
            let run = &judged.attempt.run;
            if locked.contains(&run.id) {
                self.blocked_until = Some(Instant::now() + LOCKED_PAUSE);
                self.blocked.push(judged);
                continue;
            }
            leases.remove(run);
            match recorded.get(&run.token()) {
                Some(status) => {
                    let wait = judged.next_status.wait;
                    if matches!(status, Status::Failed | Status::Queued) && wait < prefetch::WINDOW
                    {
                        self.due_again = Some(Instant::now() + wait);
                    }
                    self.recorded.push((*status, judged));
                }
                None => {
                    log::warn!("{}: lease lost, result not recorded", subject(run));
                    self.lost.push(judged);
                }
            }
        }
    }

    /// Drops results whose lease ended longer than `kept` ago. Until then recording may still
    /// succeed: while the database is down, no other tick can recover the run. If one did, the
    /// claim's token no longer matches, and the result does not change the run.
    pub(super) fn drop_expired(&mut self, kept: Duration, leases: &mut Leases) {
        let now = Instant::now();
        self.ended.retain(|judged| {
            let run = &judged.attempt.run;
            let over = leases.expiry(run).is_none_or(|expires| now >= expires + kept);
            if over {
                leases.remove(run);
                log::warn!("{}: result not recorded, lease lost", subject(run));
            }
            !over
        });
    }

    /// Logs the recorded results, after the next request was sent.
    pub(super) fn log(&mut self) {
        self.recorded.drain(..).for_each(|(status, judged)| log_recorded(&judged, status));
    }
}

impl Tick {
    /// The database rejected some of the oldest `count` results. The next statement has half of
    /// them, so leases can be renewed in between. A result that is rejected alone is dropped, and
    /// its lease runs out; after an unexpected error it is first sent again for a while.
    pub(super) fn results_rejected(&mut self, count: usize) -> store::Result<()> {
        if count > 1 {
            self.results.at_most = Some(count / 2);
            return Ok(());
        }
        let waited = self.results.ended[0].attempt.finished.elapsed();
        match self.record_alone(finish(&self.results.ended[0])) {
            Ok(recorded) => self.results.recorded(1, &recorded, &[], &mut self.leases),
            // Retrying may help after an unexpected error, but not if the data is the cause.
            Err(error)
                if error.kind == Kind::Data
                    || error.may_be_about_rows() && waited >= self.timing.fence =>
            {
                let run = self.results.ended.remove(0).attempt.run;
                log::error!("{}: {error}; its lease will run out", subject(&run));
                self.leases.remove(&run);
            }
            Err(error) => {
                if error.may_be_about_rows() {
                    self.results.blocked.push(self.results.ended.remove(0));
                    self.results.blocked_until = Some(Instant::now() + REJECTED_PAUSE);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records one result. If its text can't be stored, records the status without it.
    fn record_alone(&self, mut one: Finish) -> store::Result<Recorded> {
        let Some(store) = &self.connection.store else { return Ok(Recorded::new()) };
        match store.record(&self.holder.worker, vec![one.clone()]) {
            Err(error) if error.kind == Kind::Data => {
                log::warn!("run {}: output not stored: {error}", one.token.id);
                one.output = Some("[output could not be stored]".to_owned());
                let error = &mut one.next_status.error;
                *error = error.take().map(|_| "error could not be stored".to_owned());
                one.detail = None;
                store.record(&self.holder.worker, vec![one])
            }
            other => other,
        }
    }

    /// Notes one lost lease in the history. One per call, so results and renewals are sent first.
    pub(super) fn note_lost(&mut self) -> store::Result<()> {
        if let (Some(store), Some(judged)) = (&self.connection.store, self.results.lost.last()) {
            let EndedAttempt { run, started, .. } = &judged.attempt;
            let why = "its worker lost the lease and ended it";
            store.note_lost(&self.holder.worker, run.token(), why, started.elapsed())?;
            self.results.lost.pop();
        }
        Ok(())
    }
}

fn finish(judged: &JudgedAttempt) -> Finish {
    let JudgedAttempt { attempt: EndedAttempt { run, ended, started, finished, .. }, next_status } =
        judged;
    let now = Instant::now();
    Finish {
        token: run.token(),
        next_status: next_status.clone(),
        detail: ended.note.as_ref().map(|note| match &next_status.error {
            Some(error) => format!("{error}; {note}"),
            None => note.clone(),
        }),
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

/// Returns the subject of a log line: `run 42 shell attempt 1/10`.
pub(super) fn subject(run: &Claimed) -> String {
    describe(run.id, &run.job_type, run.attempt, run.max_attempts)
}

fn describe(id: i64, job_type: &str, attempt: i32, max_attempts: i32) -> String {
    // Any program may have written the job's name, so escape line breaks and control characters.
    format!("run {id} {} attempt {attempt}/{max_attempts}", job_type.escape_debug())
}

fn log_recorded(judged: &JudgedAttempt, status: Status) {
    let JudgedAttempt { attempt: EndedAttempt { run, ended, started, finished, .. }, next_status } =
        judged;
    let subject = subject(run);
    let note = ended.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    let took = match &ended.outcome {
        // A timeout names its duration; the other failures started nothing.
        Outcome::Failed(
            Failure::Timeout(_)
            | Failure::Spawn(_)
            | Failure::Exhausted(_)
            | Failure::BadPayload(_)
            | Failure::Unstartable(_)
            | Failure::NotAllowed(_),
        ) => String::new(),
        _ => format!(" after {}", duration::show(*finished - *started)),
    };
    let what = match (&ended.outcome, &next_status.error) {
        (Outcome::Failed(_) | Outcome::Stopped(StopReason::LeaseLost), Some(error)) => error,
        (Outcome::Stopped(StopReason::Interrupted), _) => "interrupted",
        (Outcome::Stopped(StopReason::Cancelled), _) => "cancelled",
        _ => "succeeded",
    };
    let next = match status {
        Status::Failed => format!(", next attempt in {}", duration::show(next_status.wait)),
        Status::Queued => ", queued again".to_owned(),
        Status::Dead => ", dead".to_owned(),
        Status::Cancelled if what != "cancelled" => ", cancelled".to_owned(),
        Status::Succeeded | Status::Cancelled | Status::Running => String::new(),
    };
    let level = if status == Status::Dead { log::Level::Warn } else { log::Level::Info };
    log::log!(level, "{subject}: {what}{took}{note}{next}");
}

pub(super) fn log_recovered(run: &Expired, status: Status, wait: Duration) {
    let subject = describe(run.id, &run.job_type, run.attempt, run.max_attempts);
    let next = match status {
        Status::Failed => format!("next attempt in {}", duration::show(wait)),
        other => other.as_str().to_owned(),
    };
    log::warn!("{subject}: lease of worker {} expired, {next}", run.worker.escape_debug());
}
