//! Writes what attempts came to, all that are at hand in one statement, and says it in the log.

use std::time::{Duration, Instant};

use super::lease::Leases;
use super::pool::Attempt;
use super::{Tick, pace};
use crate::duration;
use crate::model::{Failure, Outcome, Status, Why};
use crate::store::{self, Claimed, Expired, Finish, Kind, Recorded};
use crate::verdict::Verdict;

/// An attempt that ended, and what follows from it; judged once, however often it takes to record.
pub(super) struct Judged {
    pub(super) attempt: Attempt,
    verdict: Verdict,
}

impl Judged {
    pub(super) fn new(attempt: Attempt) -> Self {
        let run = &attempt.run;
        // The database's time, except for the moment that the run waited for a thread.
        let now = run.claimed_at + (attempt.finished - attempt.started);
        let (ended, prospect, random) = (&attempt.ended, attempt.prospect, rand::random());
        let verdict = Verdict::of(ended, prospect, run.attempt, run.max_attempts, &run.backoff, random, now);
        Self { attempt, verdict }
    }

    /// What it keeps in memory until it is recorded.
    fn bytes(&self) -> usize {
        self.attempt.ended.output.text.len()
    }
}

/// Before a result is sent again whose run somebody has locked.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// The same for a rejected result. Longer than the claim pause, so runs are claimed in between.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of output in one statement; more wait for the next.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// What attempts came to that the database or the log does not know yet.
#[derive(Default)]
pub(super) struct Results {
    /// To be recorded.
    pub(super) ended: Vec<Judged>,
    /// Results whose run is locked or was rejected. They wait; other results do not.
    blocked: Vec<Judged>,
    blocked_until: Option<Instant>,
    /// When the latest that waits for next to nothing is due again.
    pub(super) due_again: Option<Instant>,
    /// Not in the log yet.
    recorded: Vec<(Status, Judged)>,
    /// Ended too late, and not in the history yet.
    lost: Vec<Judged>,
    /// The maximum of results in the next statement: half as many as in the last rejected one.
    at_most: Option<usize>,
}

impl Results {
    pub(super) fn is_empty(&self) -> bool {
        [&self.ended, &self.blocked, &self.lost].iter().all(|results| results.is_empty())
    }

    /// The number of results that wait.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// When there is something to send.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if self.ended.is_empty() && self.lost.is_empty() { self.blocked_until } else { Some(now) }
    }

    /// What they keep in memory.
    pub(super) fn bytes(&self) -> usize {
        self.ended.iter().chain(&self.blocked).map(Judged::bytes).sum()
    }

    /// Returns how many results fit into the next statement. Large outputs and rejected results
    /// reduce the number.
    pub(super) fn batch(&mut self) -> usize {
        if self.blocked_until.is_some_and(|until| Instant::now() >= until) {
            self.unblock();
        }
        let mut bytes = 0;
        let fits = |judged: &&Judged| {
            bytes += judged.bytes();
            bytes <= BYTES_AT_ONCE
        };
        let fitting = self.ended.iter().take_while(fits).count().max(1).min(self.ended.len());
        self.at_most.map_or(fitting, |at_most| at_most.min(fitting))
    }

    /// The oldest `count`, as they are written. How long ago something was is counted now.
    pub(super) fn oldest(&self, count: usize) -> Vec<Finish> {
        self.ended[..count].iter().map(finish).collect()
    }

    fn unblock(&mut self) {
        self.ended.append(&mut self.blocked);
        self.blocked_until = None;
    }

    /// All wait alike now, but for the notes in the history: those are not worth it.
    pub(super) fn connection_lost(&mut self) {
        self.unblock();
        self.lost.clear();
    }

    /// Lets go of the oldest `count`: each is recorded, or its lease is lost. Those whose runs are `locked` are kept
    /// for later.
    pub(super) fn let_go(&mut self, count: usize, recorded: &Recorded, locked: &[i64], leases: &mut Leases) {
        self.at_most = self.at_most.filter(|at_most| *at_most < self.ended.len()).map(|at_most| 2 * at_most);
        for judged in self.ended.drain(..count) {
            let run = &judged.attempt.run;
            if locked.contains(&run.id) {
                self.blocked_until = Some(Instant::now() + LOCKED_PAUSE);
                self.blocked.push(judged);
                continue;
            }
            leases.let_go(run);
            match recorded.get(&run.token()) {
                Some(status) => {
                    let wait = judged.verdict.wait;
                    if matches!(status, Status::Failed | Status::Queued) && wait < pace::BLINK {
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

    /// Gives up those whose lease has been over for so long. As long as nobody has recovered their runs, which takes
    /// the same database that is away, they are still to be recorded; the fence decides.
    pub(super) fn give_up_expired(&mut self, kept: Duration, leases: &mut Leases) {
        let now = Instant::now();
        self.ended.retain(|judged| {
            let run = &judged.attempt.run;
            let over = leases.expiry(run).is_none_or(|expires| now >= expires + kept);
            if over {
                leases.let_go(run);
                log::warn!("{}: result not recorded, lease lost", subject(run));
            }
            !over
        });
    }

    /// Says in the log what became of them; nobody waits for that.
    pub(super) fn tell(&mut self) {
        self.recorded.drain(..).for_each(|(status, judged)| log_recorded(&judged, status));
    }
}

impl Tick {
    /// The database rejected some of the oldest `count` results. The next statement has half of
    /// them, so leases can be renewed in between. A result that is rejected alone is dropped, and
    /// its lease runs out; after an unexpected error it is first sent again for a while.
    pub(super) fn results_refused(&mut self, count: usize) -> store::Result<()> {
        if count > 1 {
            self.results.at_most = Some(count / 2);
            return Ok(());
        }
        let waited = self.results.ended[0].attempt.finished.elapsed();
        match self.record_alone(finish(&self.results.ended[0])) {
            Ok(recorded) => self.results.let_go(1, &recorded, &[], &mut self.leases),
            // An unexpected error may pass, unlike one about the data.
            Err(error) if error.kind == Kind::Data || error.may_be_about_rows() && waited >= self.timing.fence => {
                let run = self.results.ended.remove(0).attempt.run;
                log::error!("{}: {error}; its lease will run out", subject(&run));
                self.leases.let_go(&run);
            }
            Err(error) => {
                if error.may_be_about_rows() {
                    self.results.blocked.push(self.results.ended.remove(0));
                    self.results.blocked_until = Some(Instant::now() + REFUSED_PAUSE);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records one result; where its text can't be stored, the state is.
    fn record_alone(&self, mut one: Finish) -> store::Result<Recorded> {
        let Some(store) = &self.connection.store else { return Ok(Recorded::new()) };
        match store.record(&self.holder.worker, vec![one.clone()]) {
            Err(error) if error.kind == Kind::Data => {
                log::warn!("run {}: output not stored: {error}", one.token.id);
                one.output = Some("[output could not be stored]".to_owned());
                one.error = one.error.map(|_| "error could not be stored".to_owned());
                one.detail = None;
                store.record(&self.holder.worker, vec![one])
            }
            other => other,
        }
    }

    /// Notes in the history that a lease was lost, one at a time: results and renewals come first.
    pub(super) fn note_lost(&mut self) -> store::Result<()> {
        let Some(store) = &self.connection.store else { return Ok(()) };
        if let Some(Judged { attempt: Attempt { run, started, .. }, .. }) = self.results.lost.last() {
            let why = "its worker lost the lease and ended it";
            store.note_lost(&self.holder.worker, run.token(), why, started.elapsed())?;
            self.results.lost.pop();
        }
        Ok(())
    }
}

fn finish(judged: &Judged) -> Finish {
    let Judged { attempt: Attempt { run, ended, started, finished, .. }, verdict } = judged;
    let now = Instant::now();
    Finish {
        token: run.token(),
        status: verdict.status,
        wait: verdict.wait,
        outcome: verdict.outcome,
        error_type: verdict.error_type,
        detail: match (&verdict.error, &ended.note) {
            (Some(error), Some(note)) => Some(format!("{error}; {note}")),
            (None, note) => note.clone(),
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
    let subject = subject(run);
    let note = ended.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    let took = match &ended.outcome {
        // A timeout says it itself, and of the others nothing was started.
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
    let what = match (&ended.outcome, &verdict.error) {
        (Outcome::Failed(_) | Outcome::Stopped(Why::LeaseLost), Some(error)) => error,
        (Outcome::Stopped(Why::Interrupted), _) => "interrupted",
        (Outcome::Stopped(Why::Cancelled), _) => "cancelled",
        _ => "succeeded",
    };
    match status {
        Status::Failed => {
            log::info!("{subject}: {what}{took}{note}, next attempt in {}", duration::show(verdict.wait));
        }
        Status::Queued => log::info!("{subject}: {what}{took}{note}, queued again"),
        Status::Dead => log::warn!("{subject}: {what}{took}{note}, dead"),
        Status::Cancelled if what != "cancelled" => log::info!("{subject}: {what}{took}{note}, cancelled"),
        Status::Succeeded | Status::Cancelled | Status::Running => log::info!("{subject}: {what}{took}{note}"),
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
