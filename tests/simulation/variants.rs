//! Defects put in on purpose. Each must be found; a check that finds none of them checks nothing.

use std::time::{Duration, Instant};

use chrono::TimeDelta;

use super::super::driver::Driver;
use super::super::machine::Event;
use super::super::request::{Answer, Request};
use super::super::timing::Timing;
use super::super::turns::{Duty, Turns};
use super::database::Database;
use super::host::{Execution, Pool, Tick, Waits};
use crate::job::attempt::{HistoryOutcome, StopReason};
use crate::job::status::Status;
use crate::store::{FencingToken, LeaseState, Renewed, StepResult};
use crate::tick::execution::{Ended, Task};

macro_rules! variants {
    ($($name:ident $seeds:literal $what:literal,)*) => {
        /// A defect.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum Variant {
            /// The program as it is.
            None,
            $(#[doc = $what] $name,)*
        }

        /// Each defect, and within how many seeds it is found.
        pub(super) const VARIANTS: &[(Variant, u64, &str)] =
            &[$((Variant::$name, $seeds, $what),)*];
    };
}

variants! {
    NoFence 100 "a job may go on after its lease",
    LeaseFromAnswer 2000 "a lease is counted from the answer, not from the request",
    AheadOnLastAttempt 100 "last attempts are prefetched",
    LostResultWritten 500 "the result of a lost lease is written",
    FenceWithoutTime 2000 "a claim is known by its number only, not by its time",
    ReleaseUnfenced 6000 "a claim that is lost is released",
    UnstartedForgotten 500 "claims that were not started are not released",
    EveryTickClaims 100 "a tick claims without the claim right",
    NeverLeaves 100 "a tick that ends keeps the claim right",
    CancelIgnoredAtClaim 500 "a claimed run starts although it was cancelled",
    CancelNotSeen 2000 "a renewal does not see that a run was cancelled",
    AttemptGivenBack 100 "an attempt that was interrupted does not count",
    LostLeaseGoesOn 500 "a job goes on after its lease was lost",
    NotExtended 100 "a job is stopped although its lease was renewed",
    InterruptIgnored 500 "jobs are not stopped when the tick ends",
    WithdrawIgnored 500 "waiting runs start after a signal",
    SignalForgotten 500 "a signal is forgotten",
    RecoveredTooEarly 100 "a run is recovered by a clock that is ahead",
    NoLimit 100 "max_running is not looked at",
    FollowerLost 500 "a run stays blocked although all runs that it waits for have succeeded",
    ExpiryIgnored 500 "expired runs are claimed",
    StartsExpired 500 "a claimed run starts although it has expired since",
    LimitedForgotten 100 "runs of limited definitions are never claimed",
    FiredTwice 500 "the next time of a schedule is not stored",
    KeptIgnored 500 "a lease that is kept while its row is locked does not count",
    LostIsRenewed 500 "a lost lease counts as renewed",
    NoTimeToFire 500 "a tick that holds runs fires no schedules",
    NoBackoff 100 "a failed run is due at once",
    ResultsForgotten 500 "results that come while the database is away are forgotten",
    AbandonedClaims 500 "claims of an answer that was lost are not released",
    NoReconnectPause 500 "no pause between attempts to connect",
    WakeUpLost 500 "the end of a job does not wake the tick",
    RenewalsStarveResults 100 "renewals come before results, however slow the database is",
    WakesStarveClaims 100 "wakes come before claims, however slow the database is",
    ShortRight 100 "a claim right does not last longer if the database is slow",
    SignalLostInFlight 2000 "a signal that comes before an answer is lost",
    SignalTwice 500 "a signal counts twice",
    EndedLostInFlight 500 "attempts that end before an answer are lost",
    WithdrawnForgotten 500 "withdrawn runs are forgotten",
    TimeoutIsAnswer 500 "a request that has no answer in time counts as done",
    AnswerLost 500 "an answer is lost if a signal comes before it",
    ConnectForgotten 500 "an event in a pause before the next attempt to connect ends the attempts",
    OutputOfOneJob 500 "only the output of the first job is stored",
    OutputNotKept 500 "output that was not stored is forgotten",
    OutputBeforeLeases 500 "outputs are stored before leases are extended",
    OldTime 500 "an answer has the time of its request",
    MaxTimeIgnored 500 "a tick claims after --max-time",
    SlowNotLogged 500 "a tick does not say that the database is slow",
    InterruptionCounts 500 "an attempt that was interrupted uses up max_attempts",
    RefusalForgotten 500 "a refused connection is not noticed",
}

/// Rows to put back after a statement.
pub(super) type Saved = Option<Database>;

impl Variant {
    pub(super) fn timing(self, timing: Timing) -> Timing {
        let stop_after = if self == Self::NoFence { 10 * timing.lease } else { timing.stop_after };
        Timing { stop_after, ..timing }
    }

    /// Returns the order of the duties that a defect never changes.
    pub(super) fn turns(self) -> Option<Turns> {
        let first = match self {
            Self::RenewalsStarveResults => [Duty::Renew, Duty::Step, Duty::Wake],
            Self::WakesStarveClaims => [Duty::Wake, Duty::Step, Duty::Renew],
            _ => return None,
        };
        Some(Turns(first))
    }

    /// Changes the time that the driver reads; the latest request was sent at `sent`.
    pub(super) fn clock(self, now: Instant, sent: Instant, waits: &Waits) -> Instant {
        if self == Self::OldTime && matches!(waits, Waits::Answer) { sent } else { now }
    }

    pub(super) fn signals(self, signals: usize, waits: &Waits) -> usize {
        match (self, waits) {
            (Self::SignalForgotten, _) | (Self::SignalLostInFlight, Waits::Answer) => 0,
            (Self::SignalTwice, _) => 2 * signals,
            _ => signals,
        }
    }

    /// Changes which attempts the driver learns of.
    pub(super) fn ended(self, mut ended: Vec<Ended>, tick: &mut Tick) -> Vec<Ended> {
        match self {
            Self::ResultsForgotten if tick.connected.is_none() => ended.clear(),
            Self::EndedLostInFlight if matches!(tick.waits, Waits::Answer) => ended.clear(),
            Self::AttemptGivenBack => {
                let return_it = |ended| match ended {
                    Ended::Judged(judged)
                        if judged.next_status.outcome == HistoryOutcome::Interrupted =>
                    {
                        Ended::Unstarted(judged.run)
                    }
                    ended => ended,
                };
                ended = ended.into_iter().map(return_it).collect();
            }
            _ => {}
        }
        ended
    }

    /// Changes runs that the pool gets. The latest answer came `took` after its request was sent.
    pub(super) fn tasks(self, tasks: &mut [Task], took: Duration) {
        match self {
            Self::LeaseFromAnswer => tasks.iter_mut().for_each(|task| task.until += took),
            Self::StartsExpired => tasks.iter_mut().for_each(|task| task.start_by = None),
            _ => {}
        }
    }

    /// Returns until when leases are extended, if they are.
    pub(super) fn extends(
        self,
        claims: &[FencingToken],
        until: Instant,
        took: Duration,
        pool: &mut Pool,
    ) -> Option<Instant> {
        let has_output =
            claims.iter().any(|it| pool.running.get(it).is_some_and(Execution::has_output));
        match self {
            Self::LeaseFromAnswer => Some(until + took),
            Self::NotExtended => None,
            Self::OutputBeforeLeases if has_output => {
                pool.late.push((claims.to_vec(), until));
                None
            }
            _ => Some(until),
        }
    }

    /// Outputs were stored, or were not.
    pub(super) fn stored(self, pool: &mut Pool, now: Instant) {
        for (claims, until) in std::mem::take(&mut pool.late) {
            pool.extend(&claims, until, now);
        }
    }

    pub(super) fn ignores(self, why: StopReason) -> bool {
        matches!(
            (self, why),
            (Self::LostLeaseGoesOn, StopReason::LeaseLost)
                | (Self::InterruptIgnored, StopReason::Interrupted)
        )
    }

    /// Returns the answer that a request has which was not answered in time.
    pub(super) fn timed_out(self, request: &Request) -> Option<Answer> {
        match (self, request) {
            (Self::TimeoutIsAnswer, Request::Renew { claims, .. }) => {
                let renewed = claims.iter().map(|claim| (*claim, LeaseState::Renewed));
                Some(Answer::Renew(Ok(renewed.collect::<Vec<Renewed>>())))
            }
            (Self::TimeoutIsAnswer, Request::Step { .. }) => {
                Some(Answer::Step(Ok(StepResult::default())))
            }
            _ => None,
        }
    }

    pub(super) fn max_time(self, max_time: Duration) -> Duration {
        if self == Self::MaxTimeIgnored { 2 * max_time } else { max_time }
    }

    pub(super) fn logs(self) -> bool {
        self != Self::SlowNotLogged
    }

    /// The driver has what it waited for.
    pub(super) fn resumed(self, driver: &mut Driver) {
        match self {
            Self::ConnectForgotten => driver.connect_at = None,
            Self::AnswerLost => {
                let is_signal = |event: &Event| matches!(event, Event::Signal);
                if driver.events.iter().any(is_signal) {
                    driver.events.retain(|event| !matches!(event, Event::Answered(_)));
                }
            }
            _ => {}
        }
    }

    /// Changes a request that has reached the server, and the rows that it sees.
    pub(super) fn before(self, request: &mut Request, database: &mut Database) -> Saved {
        let row = |claim: &mut FencingToken, is_same: fn(&FencingToken, i32) -> bool| {
            if let Some(run) = database.runs.get(&claim.id)
                && is_same(claim, run.attempts)
                && let Some(claimed_at) = run.started_at
            {
                (claim.attempt, claim.claimed_at) = (run.attempts, claimed_at);
            }
        };
        match (self, &mut *request) {
            (Self::LostResultWritten, Request::Step { results, .. }) => {
                results.iter_mut().for_each(|result| row(&mut result.token, |_, _| true));
            }
            (Self::FenceWithoutTime, Request::Step { results, .. }) => {
                let is_same = |claim: &FencingToken, attempts| claim.attempt == attempts;
                results.iter_mut().for_each(|result| row(&mut result.token, is_same));
            }
            (Self::ReleaseUnfenced, Request::Step { unstarted, .. }) => {
                unstarted.iter_mut().for_each(|claim| row(claim, |_, _| true));
            }
            (Self::UnstartedForgotten, Request::Step { unstarted, .. }) => unstarted.clear(),
            (Self::NoBackoff, Request::Step { results, .. }) => {
                results.iter_mut().for_each(|result| result.next_status.wait = Duration::ZERO);
            }
            (Self::InterruptionCounts, Request::Step { results, .. }) => {
                for result in results {
                    if result.next_status.outcome == HistoryOutcome::Interrupted {
                        result.next_status.outcome = HistoryOutcome::Failed;
                    }
                }
            }
            (Self::NoTimeToFire, Request::Wake(wake)) => {
                wake.until -= Duration::from_secs(60);
            }
            (Self::ShortRight, Request::Wake(wake)) => {
                wake.right_lasts = wake.right_lasts.min(Duration::from_secs(2));
            }
            (Self::RecoveredTooEarly, Request::Wake(_)) => database.now += TimeDelta::seconds(5),
            (_, Request::Step { claim: Some(claim), .. }) => match self {
                Self::AheadOnLastAttempt => claim.free_threads = i32::MAX,
                Self::LimitedForgotten => claim.limits = false,
                _ => {}
            },
            _ => {}
        }
        let is_kept = match request {
            Request::Step { .. } => matches!(
                self,
                Self::NoLimit | Self::EveryTickClaims | Self::ExpiryIgnored | Self::FollowerLost
            ),
            Request::Wake(_) => {
                matches!(self, Self::FiredTwice | Self::KeptIgnored)
            }
            Request::Leave { .. } => self == Self::NeverLeaves,
            _ => false,
        };
        let saved = is_kept.then(|| database.clone());
        if is_kept && self == Self::NoLimit {
            let limits = database.definitions.values_mut();
            limits.for_each(|it| it.spec.max_running = it.spec.max_running.map(|_| 1000));
        }
        if is_kept && self == Self::KeptIgnored {
            database.kept.clear();
        }
        if is_kept && self == Self::ExpiryIgnored {
            database.runs.values_mut().for_each(|run| run.expires_at = None);
        }
        saved
    }

    /// Puts rows back after the statement.
    pub(super) fn after(self, saved: Saved, database: &mut Database) {
        let Some(saved) = saved else { return };
        match self {
            Self::FollowerLost => {
                for (id, run) in saved.runs {
                    let is_queued =
                        database.runs.get(&id).is_some_and(|it| it.status == Status::Queued);
                    if run.status == Status::Blocked && is_queued {
                        database.set(id, Some(run));
                    }
                }
            }
            Self::KeptIgnored => database.kept = saved.kept,
            Self::ExpiryIgnored => {
                for (id, run) in saved.runs {
                    database.runs.entry(id).and_modify(|it| it.expires_at = run.expires_at);
                }
            }
            Self::NoLimit => database.definitions = saved.definitions,
            Self::FiredTwice => {
                for (name, row) in saved.definitions {
                    database.definitions.insert(name, row);
                }
            }
            _ => database.workers = saved.workers,
        }
    }

    pub(super) fn answer(self, answer: &mut Answer) {
        match (self, answer) {
            (Self::EveryTickClaims, Answer::Wake { woken: Ok(woken), .. }) => {
                (woken.may_claim, woken.held_by_others) = (true, 0);
            }
            (Self::CancelIgnoredAtClaim, Answer::Step(Ok(step))) => {
                step.taken.claimed.iter_mut().for_each(|run| run.cancel_asked = false);
            }
            (Self::AbandonedClaims, Answer::Step(Err((_, claims)))) => claims.clear(),
            (_, Answer::Renew(Ok(renewed))) => {
                let wrong = match self {
                    Self::CancelNotSeen => LeaseState::CancelRequested,
                    Self::LostIsRenewed => LeaseState::Lost,
                    _ => return,
                };
                let states = renewed.iter_mut().map(|(_, state)| state);
                states.filter(|state| **state == wrong).for_each(|it| *it = LeaseState::Renewed);
            }
            _ => {}
        }
    }
}
