//! Tests of the machine at the limits of its rules, which the simulation rarely reaches.

use std::collections::BTreeSet;

use anyhow::anyhow;

use super::batch::BATCH_BYTES;
use super::results::RESULT_PAUSE;
use super::shutdown::{END_TIMEOUT, IDLE_END_TIMEOUT};
use super::step::LOCKED_PAUSE;
use super::*;
use crate::execute::WakeWhen;
use crate::job::attempt::{AttemptResult, JobOutput};
use crate::job::failure::Failure;
use crate::job::next_status::Prospect;
use crate::store::{self, ClaimResult, Claimed, LeaseState, Position, StepResult};
use crate::tick::claims::LIMITED_PAUSE;
use crate::tick::prefetch;
use crate::upkeep::Woken;

/// A tick with a lease of 30 s: a job stops 22.5 s after its renewal was sent. All renewals and
/// steps take equally long.
struct Tick {
    machine: Machine,
    pool: PoolState,
    now: Instant,
    takes: Duration,
    log: String,
    /// The request that has no answer yet.
    request: Option<Request>,
    timeout: Option<AnswerTimeout>,
    /// The instructions since the last event that are neither requests nor lines of the log.
    instructions: Vec<Instruction>,
}

const LINGERING: Bounds = Bounds {
    limit: usize::MAX,
    max_time: Duration::from_secs(3600),
    linger: true,
    grace: Duration::ZERO,
    prunes: false,
    outage: None,
};

impl Tick {
    fn of(bounds: Bounds) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(bounds, Timing::of(Duration::from_secs(30)), now),
            pool: PoolState { size: 4, running: 1, waiting: 0, oldest: None },
            now,
            takes: Duration::ZERO,
            log: String::new(),
            request: None,
            timeout: None,
            instructions: Vec::new(),
        }
    }

    /// A lingering tick that connects, wakes, and claims these runs.
    fn that_claims(claimed: Vec<Claimed>, takes: Duration) -> Self {
        Self { takes, ..Self::of(LINGERING) }.claims(claimed)
    }

    fn claims(mut self, claimed: Vec<Claimed>) -> Self {
        self.on(Event::Connected);
        self.wakes(Duration::ZERO, Duration::ZERO);
        self.answer(self.takes, step(&[], claimed));
        self
    }

    fn on(&mut self, event: Event) {
        self.instructions.clear();
        self.take(event);
    }

    fn take(&mut self, event: Event) {
        for instruction in self.machine.on(self.now, self.pool, event) {
            match instruction {
                Instruction::Send(request, timeout) => {
                    (self.request, self.timeout) = (Some(request), Some(timeout));
                }
                Instruction::Log(_, line, _) => self.log += &line,
                other => self.instructions.push(other),
            }
        }
        // The jobs print nothing.
        if self.request.take_if(|it| matches!(it, Request::Store(_))).is_some() {
            self.take(Event::Answered(Answer::Store(Ok(BTreeSet::new()))));
        }
    }

    /// Answers the request after `took`. A short claim releases the right if it was asked to.
    fn answer(&mut self, took: Duration, mut answer: Answer) {
        self.now += took;
        if let Some(Request::Step { claim: Some(claim), .. }) = self.request.take()
            && let Answer::Step(Ok(step)) = &mut answer
        {
            step.taken.has_released = claim.release_right && claim.is_short(&step.taken.claimed);
        }
        self.on(Event::Answered(answer));
    }

    /// Answers a wake after `took`, in which the longest answer took `longest`.
    fn wakes(&mut self, took: Duration, longest: Duration) {
        assert!(matches!(self.request, Some(Request::Wake(_))), "{:?}", self.request);
        let woken = Woken { may_claim: true, longest, ..Woken::default() };
        self.answer(took, woke(woken));
    }

    /// Answers requests until one of this kind is sent.
    fn until(&mut self, is_wanted: fn(&Request) -> bool) {
        while !self.request.as_ref().is_some_and(is_wanted) {
            match self.request.take() {
                None => {
                    self.now = self.machine.until().unwrap();
                    self.on(Event::Time);
                }
                Some(Request::Wake(wake)) => {
                    self.request = Some(Request::Wake(wake));
                    self.wakes(Duration::ZERO, Duration::ZERO);
                }
                Some(Request::Renew { claims, .. }) => self.answer(self.takes, renewed(&claims)),
                Some(_) => self.answer(self.takes, step(&[], Vec::new())),
            }
        }
    }

    /// The job of a run ends and has printed this many bytes.
    fn ends(&mut self, id: i64, bytes: usize) {
        self.on(Event::Ended(vec![Ended::Judged(Box::new(judged(id, bytes, self.now)))]));
    }

    fn at(&mut self, now: Instant) {
        self.now = now;
        self.on(Event::Time);
    }

    /// The results in the request that was sent.
    fn results(&self) -> Option<usize> {
        match &self.request {
            Some(Request::Step { results, .. }) => Some(results.len()),
            _ => None,
        }
    }

    fn has(&self, wanted: fn(&Instruction) -> bool) -> bool {
        self.instructions.iter().any(wanted)
    }

    /// The ids of the runs to stop, and why.
    fn stops(&self) -> Vec<(i64, StopReason)> {
        let stop = |it: &Instruction| match it {
            Instruction::Stop(claim, why) => Some((claim.id, *why)),
            _ => None,
        };
        self.instructions.iter().filter_map(stop).collect()
    }

    fn duties(&self) -> Vec<Duty> {
        self.machine.duties().map(|(_, duty)| duty).collect()
    }

    /// A step that is sent now: with a claim, and with the result of this run.
    fn step(&mut self, claims: bool, result: Option<i64>) -> SentRequest {
        let claim = claims.then(|| self.machine.claims.next_claim(self.now, &self.pool).unwrap());
        let result = result.map(|id| Box::new(judged(id, 5, self.now)));
        let writes = result.map(PendingWrite::Record).into_iter().collect();
        SentRequest { claim, writes, ..sent(Duty::Step, self.now) }
    }

    /// Lets the lease of run 1 end at this time.
    fn lease_ends(&mut self, at: Instant) {
        self.machine.leases.get_mut(&run(1).token()).unwrap().extend(at, true);
    }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

const MILLISECOND: Duration = Duration::from_millis(1);

pub(in crate::tick) fn judged(id: i64, bytes: usize, ended: Instant) -> JudgedAttempt {
    let output = JobOutput { text: "x".repeat(bytes), bytes: bytes as u64, truncated: false };
    let result = AttemptResult { output, ..AttemptResult::unstarted(Failure::Signal(9)) };
    JudgedAttempt::new(run(id), result, Prospect::Transient, (ended, ended), 0.5)
}

fn woke(woken: Woken) -> Answer {
    Answer::Wake { woken: Ok(woken), is_searching: false }
}

fn error(kind: Kind) -> store::Error {
    store::Error::example(kind)
}

fn sent(duty: Duty, at: Instant) -> SentRequest {
    let (renewed, writes, right_lasts) = (Vec::new(), Vec::new(), Duration::ZERO);
    SentRequest { at, duty, right_lasts, renewed, kept: 0, writes, is_again: false, claim: None }
}

pub(in crate::tick) fn run(id: i64) -> Claimed {
    Claimed { max_attempts: 2, backoff: "fixed:1m".into(), ..Claimed::example(id) }
}

fn step(recorded: &[Claimed], claimed: Vec<Claimed>) -> Answer {
    let recorded = recorded.iter().map(|run| (run.token(), Status::Succeeded)).collect();
    let taken = ClaimResult { claimed, ..ClaimResult::default() };
    Answer::Step(Ok(StepResult { recorded, taken, ..StepResult::default() }))
}

fn renewed(claims: &[FencingToken]) -> Answer {
    Answer::Renew(Ok(claims.iter().map(|claim| (*claim, LeaseState::Renewed)).collect()))
}

/// Returns a tick that sends a result after a renewal.
fn that_records(takes: Duration) -> Tick {
    let mut tick = Tick::that_claims(vec![run(1), run(2)], takes);
    tick.until(|request| matches!(request, Request::Renew { .. }));
    tick.ends(1, 0);
    tick.answer(takes, renewed(&[run(1).token(), run(2).token()]));
    assert_eq!(tick.results(), Some(1));
    tick
}

#[test]
fn a_tick_claims_only_if_it_can_renew_its_leases_afterwards() {
    for (seconds, claims) in [(0, true), (7, true), (8, false)] {
        let tick = that_records(Duration::from_secs(seconds));
        let is_claim = matches!(tick.request, Some(Request::Step { claim: Some(_), .. }));
        assert_eq!(is_claim, claims, "{seconds}");
    }
}

#[test]
fn a_result_that_is_sent_again_has_more_time_if_leases_leave_it() {
    for (takes, has_time) in [(1, true), (8, false)] {
        let mut tick = that_records(Duration::from_secs(takes));
        assert_eq!(tick.timeout.unwrap().extra, Duration::ZERO);
        tick.answer(Duration::ZERO, Answer::Step(Err((error(Kind::Lost), Vec::new()))));
        tick.on(Event::Connected);
        tick.until(|request| matches!(request, Request::Step { skips_locked: true, .. }));
        assert_eq!(tick.timeout.unwrap().extra > Duration::ZERO, has_time, "{takes}");
    }
}

#[test]
fn a_wake_records_a_slow_answer_only_if_leases_leave_the_time() {
    for (claimed, records) in [(Vec::new(), true), (vec![run(1)], false)] {
        let mut tick = Tick::that_claims(claimed, Duration::from_secs(6));
        assert!(tick.log.contains("the database is slow: it took 6s"), "{}", tick.log);
        tick.until(|request| matches!(request, Request::Wake(_)));
        let Some(Request::Wake(wake)) = &tick.request else { unreachable!() };
        assert_eq!(wake.slow.is_some(), records);
        assert_eq!(tick.machine.link.has_slow_answer(), !records);
    }
}

#[test]
fn a_wake_with_several_answers_is_slow_only_if_one_of_them_is() {
    for (longest, is_slow) in [(4, false), (6, true)] {
        let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
        tick.until(|request| matches!(request, Request::Wake(_)));
        tick.wakes(Duration::from_secs(8), Duration::from_secs(longest));
        assert_eq!(tick.log.contains("the database is slow: it took 6s"), is_slow);
        assert_eq!(tick.machine.link.has_slow_answer(), is_slow);
    }
}

/// One statement with many results costs less than many statements with one.
#[test]
fn a_result_waits_for_others_while_every_thread_has_work() {
    const BYTES: usize = 7;
    let full = PoolState { size: 4, running: 4, waiting: 1, oldest: None };
    let with_work = || {
        let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
        tick.pool = full;
        tick
    };
    let mut tick = with_work();
    let ends = tick.now + prefetch::WINDOW;
    tick.ends(1, BYTES);
    assert_eq!((tick.results(), tick.machine.until()), (None, Some(ends)));
    let WakeWhen::Shortage { waiting, ended, bytes } = tick.machine.wake_when() else {
        panic!("{:?}", tick.machine.wake_when())
    };
    assert_eq!(
        (waiting, ended, bytes),
        (0, prefetch::FULL_BATCH - 1, BATCH_BYTES - judged(1, BYTES, tick.now).bytes())
    );
    tick.at(ends);
    assert_eq!(tick.results(), Some(1));
    assert!(matches!(tick.machine.wake_when(), WakeWhen::Ended));
    tick.ends(2, 2 * BYTES);
    let output = judged(1, BYTES, ends).bytes() + judged(2, 2 * BYTES, ends).bytes();
    assert_eq!(tick.machine.bytes(), output);

    let mut tick = with_work();
    tick.machine.next_renewal = tick.now + MILLISECOND;
    tick.ends(1, 0);
    assert_eq!((tick.results(), tick.machine.until()), (None, Some(tick.now + MILLISECOND)));
    // A result is sent at once if a thread would be idle, if many results wait, or if they take
    // much memory.
    let mut tick = with_work();
    tick.pool.waiting = 0;
    tick.ends(1, 0);
    assert_eq!(tick.results(), Some(1));
    let mut tick = with_work();
    let results = (3..).take(prefetch::FULL_BATCH).map(|id| judged(id, 0, tick.now));
    let ended = results.map(|judged| Ended::Judged(Box::new(judged))).collect();
    tick.on(Event::Ended(ended));
    assert_eq!(tick.results(), Some(prefetch::FULL_BATCH));
    let mut tick = with_work();
    tick.ends(1, BATCH_BYTES - judged(1, 0, tick.now).bytes());
    assert_eq!(tick.results(), Some(1));
    let mut tick = with_work();
    tick.machine.end_phase(PhaseEnd::Spent);
    tick.ends(1, 0);
    assert_eq!(tick.results(), Some(1));
}

#[test]
fn a_run_that_waits_too_long_for_a_thread_is_withdrawn() {
    let bounds = Bounds { linger: false, ..LINGERING };
    let waiting = || {
        let mut tick = Tick::of(bounds).claims(vec![run(1)]);
        tick.pool = PoolState { size: 4, running: 4, waiting: 1, oldest: Some(tick.now) };
        (tick.now + prefetch::WINDOW * 5 / 2, tick)
    };
    let withdraws = |tick: &Tick| tick.has(|it| matches!(it, Instruction::Withdraw));
    let (late, mut tick) = waiting();
    tick.at(late - MILLISECOND);
    assert_eq!((withdraws(&tick), tick.machine.until()), (false, Some(late)));
    tick.at(late);
    assert!(withdraws(&tick));
    let (late, mut tick) = waiting();
    tick.on(Event::ConnectFailed(anyhow!("refused")));
    tick.at(late);
    assert!(!withdraws(&tick), "without a connection, it could not be released");
    let (_, mut tick) = waiting();
    tick.on(Event::Signal);
    assert!(withdraws(&tick));
}

#[test]
fn a_tick_claims_no_more_once_it_has_started_as_many_runs_as_allowed() {
    let bounds = Bounds { limit: 2, ..LINGERING };
    for (claimed, phase) in [(1, Phase::Working), (2, Phase::Draining)] {
        let mut tick = Tick::of(bounds).claims((1..=claimed).map(run).collect());
        tick.on(Event::Time);
        assert_eq!(tick.machine.phase, phase);
    }
}

#[test]
fn each_duty_has_its_time() {
    let idle = Tick::of(LINGERING).claims(Vec::new());
    assert_eq!(idle.duties(), [Duty::Wake, Duty::Step]);
    // Without the claim right, a tick wakes to ask for it.
    let mut idle = Tick::of(LINGERING).claims(Vec::new());
    idle.machine.claims.lose_right();
    assert_eq!((idle.duties(), idle.machine.other_claims()), (vec![Duty::Wake], false));
    let (woken, now) = (Woken { other_claims: true, ..Woken::default() }, idle.now);
    idle.machine.claims.woken(now, woken, now);
    assert!(idle.machine.other_claims());
    // A short tick wakes no more once nothing is due.
    let bounds = Bounds { linger: false, ..LINGERING };
    let mut holding = Tick::of(bounds).claims(vec![run(1)]);
    assert_eq!(holding.duties(), [Duty::Renew]);
    holding.machine.renewals_until_output = 0;
    assert_eq!(holding.duties(), [Duty::Renew, Duty::Store]);
    // While jobs are asked to stop, a lease is renewed only if it ends before them.
    holding.machine.end_phase(PhaseEnd::Failure);
    let stopped = holding.machine.phase_ends.unwrap();
    for (at, renews) in [
        (stopped - MILLISECOND, vec![Duty::Renew]),
        (stopped, Vec::new()),
        (stopped + MILLISECOND, Vec::new()),
        // Nor is output stored, although there is time for it.
        (stopped + seconds(60.0), Vec::new()),
    ] {
        holding.lease_ends(at);
        assert_eq!(holding.duties(), renews);
    }
}

/// The wake fired or recovered runs, and can do more.
#[test]
fn a_wake_that_leaves_work_is_followed_by_another_unless_runs_are_held() {
    let bounds = Bounds { linger: false, ..LINGERING };
    for (claimed, wakes_again) in [(Vec::new(), true), (vec![run(1)], false)] {
        let mut tick = Tick::of(bounds);
        tick.on(Event::Connected);
        if !claimed.is_empty() {
            tick = tick.claims(claimed);
            tick.machine.unanswered = Some(sent(Duty::Wake, tick.now));
        }
        tick.machine.claims.pause(tick.now);
        tick.answer(Duration::ZERO, woke(Woken { has_more: true, ..Woken::default() }));
        assert_eq!(matches!(tick.request, Some(Request::Wake(_))), wakes_again);
    }
}

#[test]
fn a_search_delays_no_result_and_no_claim_is_sent_meanwhile() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    tick.machine.search = Search::Running;
    tick.machine.next_wake = tick.now;
    tick.machine.turns = Turns([Duty::Wake, Duty::Renew, Duty::Step]);
    tick.ends(1, 0);
    let Some(Request::Step { results, claim: None, .. }) = &tick.request else {
        panic!("{:?}", tick.request)
    };
    assert_eq!(results.len(), 1);
    tick.answer(Duration::ZERO, step(&[run(1)], Vec::new()));
    assert!(matches!(tick.request, Some(Request::Wake(_))), "{:?}", tick.request);
}

#[test]
fn a_claim_needs_time_for_itself_and_for_all_renewals() {
    let with_end = |takes: [f64; 2], end: Duration| {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        let [took_step, took_renewal] = takes.map(seconds);
        tick.machine.link.observe_step(took_step);
        tick.machine.link.observe_renewal(took_renewal);
        tick.lease_ends(tick.now + end);
        tick.machine.has_time_to_claim()
    };
    // A new lease lasts 30 s, of which a job has 22.5.
    assert!(with_end([1.5, 0.5], seconds(9.5)));
    assert!(!with_end([1.5, 0.5], seconds(9.5) - MILLISECOND));
    // A quarter of a heartbeat endangers no lease.
    assert!(!with_end([0.75, 0.5], Duration::ZERO));
    assert!(with_end([0.749, 0.5], Duration::ZERO));
    assert!(Tick::that_claims(Vec::new(), seconds(8.0)).machine.has_time_to_claim());
}

#[test]
fn a_lease_that_might_end_is_renewed_first_but_results_have_every_third_turn() {
    let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
    let safe = tick.now + seconds(7.5) + 2 * tick.machine.timing.answer_limit();
    tick.machine.leases.get_mut(&run(2).token()).unwrap().extend(safe, true);
    tick.lease_ends(safe);
    assert!(!tick.machine.is_lease_in_danger() && !tick.machine.renews_first());
    tick.lease_ends(safe - MILLISECOND);
    assert!(tick.machine.is_lease_in_danger());
    for (turns, has_result, renews_first) in [
        ([Duty::Step, Duty::Wake, Duty::Renew], false, true),
        ([Duty::Wake, Duty::Renew, Duty::Step], true, true),
        ([Duty::Step, Duty::Wake, Duty::Renew], true, false),
    ] {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        tick.lease_ends(safe - MILLISECOND);
        (tick.machine.next_renewal, tick.machine.next_wake) = (tick.now, tick.now);
        tick.machine.turns = Turns(turns);
        if has_result {
            tick.machine.writes.push(PendingWrite::Release(run(1).token()));
        }
        assert_eq!(tick.machine.renews_first(), renews_first);
        tick.on(Event::Time);
        assert_eq!(matches!(tick.request, Some(Request::Renew { .. })), renews_first);
    }
}

#[test]
fn nothing_is_sent_before_the_pause_is_over() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
    let over = tick.machine.link.paused_until().unwrap();
    tick.ends(1, 0);
    tick.at(over - MILLISECOND);
    assert_eq!((tick.results(), tick.machine.until()), (None, Some(over)));
    tick.at(over);
    assert_eq!(tick.results(), Some(1));
}

#[test]
fn an_answer_is_awaited_as_long_as_the_phase_allows() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    let (claiming, result) = (sent(Duty::Step, tick.now), judged(1, 0, tick.now));
    let recording = SentRequest {
        writes: vec![PendingWrite::Record(Box::new(result))],
        ..sent(Duty::Step, tick.now)
    };
    let until = |tick: &Tick, sent: &SentRequest| tick.machine.answer_timeout(sent).until;
    assert_eq!(until(&tick, &recording), None);
    tick.machine.end_phase(PhaseEnd::Spent);
    assert_eq!(until(&tick, &recording), None);
    tick.machine.end_phase(PhaseEnd::Signal);
    assert_eq!(until(&tick, &recording), Some(tick.now), "there is no time of grace");
    tick.machine.end_phase(PhaseEnd::Spent);
    assert_eq!(until(&tick, &recording), None, "the last result");
    assert_eq!(until(&tick, &claiming), Some(tick.now + END_TIMEOUT));
    // A slow database has the time of three of its answers.
    tick.machine.link.observe(seconds(6.0));
    assert_eq!(until(&tick, &claiming), Some(tick.now + seconds(18.0)));
}

#[test]
fn after_a_signal_a_claim_alone_is_awaited_for_the_time_of_grace() {
    let bounds = Bounds { grace: seconds(10.0), ..LINGERING };
    for (claimed, claims, most) in
        [(vec![], true, 10.0), (vec![run(1)], true, 3.0), (vec![], false, 3.0)]
    {
        let mut tick = Tick::of(bounds).claims(claimed);
        tick.machine.link.observe(seconds(1.0));
        let claim = tick.machine.claims.next_claim(tick.now, &tick.pool).filter(|_| claims);
        assert_eq!(claim.is_some(), claims);
        let step = SentRequest { claim, ..sent(Duty::Step, tick.now) };
        assert_eq!(tick.machine.answer_timeout(&step).interrupted, seconds(most));
    }
}

#[test]
fn output_that_could_not_be_stored_waits_for_two_renewals() {
    for (kind, connects) in [(Kind::Lost, true), (Kind::Busy, false)] {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        tick.machine.unanswered = Some(sent(Duty::Store, tick.now));
        tick.answer(Duration::ZERO, Answer::Store(Err(error(kind))));
        assert_eq!(tick.has(|it| matches!(it, Instruction::Connect(_))), connects);
        // Stored output waits for one renewal only.
        assert_eq!(tick.machine.renewals_until_output, 2);
    }
}

#[test]
fn a_slow_answer_is_logged_with_what_it_was_for() {
    let line = |duty, answer| {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        let mut sent = sent(duty, tick.now);
        sent.renewed = vec![run(1).token(), run(2).token()];
        if let Answer::Step(Ok(StepResult { recorded, .. })) = &answer {
            let release = |_: &FencingToken| PendingWrite::Release(run(3).token());
            sent.writes = recorded.keys().map(release).collect();
        }
        tick.now += seconds(5.0);
        tick.machine.now = tick.now;
        tick.machine.observe(&sent, &answer);
        tick.on(Event::Time);
        let logged = tick.log.split_once("it took ").map(|(_, line)| line.to_owned());
        logged.and_then(|line| Some(line.split_once(';')?.0.to_owned()))
    };
    let woken = Woken { longest: seconds(5.0), ..Woken::default() };
    for (duty, answer, what) in [
        (Duty::Renew, renewed(&[]), Some("to renew the leases of 2 runs")),
        (Duty::Step, step(&[run(3)], Vec::new()), Some("to record 1 run")),
        (Duty::Step, step(&[], Vec::new()), Some("to claim runs")),
        (Duty::Wake, woke(woken), Some("to look for due runs")),
        (Duty::Renew, Answer::Renew(Err(error(Kind::Busy))), Some("to renew the leases of 2")),
        (Duty::Renew, Answer::Renew(Err(error(Kind::Lost))), None),
        (Duty::Step, Answer::Step(Err((error(Kind::Lost), Vec::new()))), None),
        (Duty::Prune, Answer::Prune, None),
    ] {
        let logged = line(duty, answer);
        let expected = what.map(|what| format!("5s {what}"));
        let starts = logged.as_ref().zip(expected.as_ref()).is_none_or(|(it, w)| it.starts_with(w));
        assert!(logged.is_some() == expected.is_some() && starts, "{logged:?}, {expected:?}");
    }
}

#[test]
fn a_lease_that_has_just_begun_is_not_renewed() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    let begun = tick.now + seconds(29.0);
    for (end, renews) in [(begun, false), (begun - MILLISECOND, true)] {
        tick.lease_ends(end);
        let request = tick.machine.renew(&mut sent(Duty::Renew, tick.now));
        assert_eq!(request.is_some(), renews);
    }
    // The next renewal comes after a heartbeat.
    assert_eq!(tick.machine.next_renewal, tick.now + seconds(5.0));
}

#[test]
fn a_renewal_takes_the_state_of_each_lease() {
    let mut tick = Tick::that_claims((1..=4).map(run).collect(), Duration::ZERO);
    let (began, expires) = (tick.now, tick.now + seconds(30.0));
    tick.at(began + seconds(5.0));
    assert!(matches!(tick.request, Some(Request::Renew { .. })));
    let states =
        [LeaseState::Renewed, LeaseState::CancelRequested, LeaseState::Busy, LeaseState::Lost];
    let answer = (1..).map(|id| run(id).token()).zip(states).collect();
    tick.answer(seconds(1.0), Answer::Renew(Ok(answer)));
    let lease = |id| tick.machine.leases.get(&run(id).token()).unwrap().expires();
    assert_eq!([1, 2, 3, 4].map(lease), [5.0, 5.0, 0.0, 0.0].map(|it| expires + seconds(it)));
    assert_eq!(tick.stops(), [(2, StopReason::Cancelled), (4, StopReason::LeaseLost)]);
    assert!(tick.has(|it| matches!(it, Instruction::Extend(claims, _) if claims.len() == 2)));
    // A busy lease is renewed a heartbeat after this time, and a lost one never.
    let far = expires + seconds(60.0);
    let at = |second| tick.machine.leases.to_renew(began + seconds(second), far).0.len();
    assert_eq!([9.9, 10.0].map(at), [2, 3]);
    assert_eq!(tick.machine.next_renewal, began + seconds(10.0));
}

#[test]
fn a_rejected_lease_costs_the_others_nothing() {
    let renewed = |tick: &mut Tick, runs: std::ops::RangeInclusive<i64>, kind| {
        let renewed = runs.map(|id| run(id).token()).collect();
        let sent = SentRequest { renewed, ..sent(Duty::Renew, tick.now) };
        tick.machine.renewed(&sent, Err(error(kind))).is_err()
    };
    let claims = || Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
    for kind in [Kind::Data, Kind::Fatal] {
        let mut tick = claims();
        assert!(!renewed(&mut tick, 1..=2, kind));
        assert_eq!(tick.machine.leases.renewals(), 2, "each is renewed alone");
    }
    let far = Instant::now() + seconds(3600.0);
    let mut tick = claims();
    assert!(renewed(&mut tick, 1..=1, Kind::Fatal), "it may be accepted later");
    tick.machine.leases.remove(&run(2).token());
    let at = |second| tick.machine.leases.to_renew(tick.now + seconds(second), far).0.len();
    assert_eq!([0.999, 1.0].map(at), [0, 1]);
    let mut tick = claims();
    assert!(!renewed(&mut tick, 1..=1, Kind::Data));
    assert_eq!(tick.machine.leases.to_renew(far, far).0, [run(2).token()], "never again");
    tick.on(Event::Time);
    assert!(tick.log.contains("run 1: the statement failed; another tick recovers the run"));
}

#[test]
fn after_a_slow_renewal_all_leases_are_kept_and_the_slow_run_is_found() {
    let slow = || {
        let mut slow = error(Kind::Busy);
        slow.is_too_slow = true;
        Answer::Renew(Err(slow))
    };
    let ids = |claims: &[FencingToken]| claims.iter().map(|it| it.id).collect::<Vec<_>>();
    let mut tick = Tick::that_claims((1..=9).map(run).collect(), Duration::ZERO);
    // The rows and the other leases of each renewal; run 5 is slow.
    let mut sent = Vec::new();
    while !tick.log.contains("run 5: the statement failed; its lease is kept") {
        tick.until(|request| matches!(request, Request::Renew { .. }));
        let Some(Request::Renew { claims, kept }) = tick.request.take() else { unreachable!() };
        sent.push((ids(&claims), kept.len()));
        let is_slow = claims.contains(&run(5).token());
        let answer = if is_slow { slow() } else { renewed(&[claims, kept].concat()) };
        tick.answer(seconds(if is_slow { 5.0 } else { 0.0 }), answer);
        assert!(sent.len() < 20, "{sent:?}");
    }
    assert_eq!(sent[..2], [((1..=9).collect(), 0), (vec![], 9)]);
    let (rows, kept, _) = tick.machine.leases.to_renew(tick.now, tick.now + seconds(60.0));
    assert_eq!((rows.len(), kept.len()), (0, 9), "all are kept once more");
    tick.machine.leases.renew_rows_again();
    for _ in 0..4 {
        tick.machine.leases.accepted(1, true);
    }
    let (rows, kept, _) = tick.machine.leases.to_renew(tick.now, tick.now + seconds(60.0));
    assert_eq!((ids(&kept), ids(&rows).contains(&5)), (vec![5], false));
}

#[test]
fn a_renewal_that_took_too_long_is_sent_for_half_of_the_leases() {
    for (took, kind, renewals) in [
        (seconds(5.0), Kind::Busy, 2),
        (seconds(5.0) - MILLISECOND, Kind::Busy, 1),
        (Duration::ZERO, Kind::Fatal, 2),
    ] {
        let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
        tick.at(tick.now + seconds(5.0));
        tick.answer(took, Answer::Renew(Err(error(kind))));
        assert_eq!(tick.machine.leases.renewals(), renewals);
        let pause = if kind == Kind::Busy { seconds(1.0) } else { Duration::ZERO };
        assert_eq!(tick.machine.next_renewal, tick.now + pause);
    }
}

#[test]
fn renewals_that_leave_leases_out_follow_each_other_at_once() {
    let bounds = Bounds { linger: false, ..LINGERING };
    let mut tick = Tick::of(bounds).claims(vec![run(1), run(2)]);
    tick.at(tick.machine.next_renewal);
    // One statement renews one of them.
    tick.machine.leases.rejected(2);
    tick.machine.unanswered.as_mut().unwrap().renewed.pop();
    tick.answer(Duration::ZERO, renewed(&[run(1).token()]));
    let Some(Request::Renew { claims: others, .. }) = &tick.request else {
        panic!("{:?}", tick.request)
    };
    assert_eq!(**others, [run(2).token()]);
    tick.answer(Duration::ZERO, renewed(&[run(2).token()]));
    assert_eq!(tick.machine.next_renewal, tick.now + seconds(5.0));
}

#[test]
fn a_wake_begins_nothing_that_would_delay_a_renewal() {
    let until = |end: Duration, answer: f64| {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        tick.machine.link.observe(seconds(answer));
        let used = seconds(7.5) + tick.machine.timing.answer_limit() + seconds(3.0 * answer);
        tick.lease_ends(tick.now + used + end);
        let Request::Wake(wake) = tick.machine.wake(Duration::ZERO) else { unreachable!() };
        wake.until - tick.now
    };
    assert_eq!(until(seconds(60.0), 1.0), seconds(6.0));
    assert_eq!(until(seconds(2.0), 1.0), seconds(2.0));
    assert_eq!(until(seconds(0.1), 1.0), seconds(1.25));
    assert_eq!(until(seconds(60.0), 0.0), seconds(1.25));
}

#[test]
fn the_limit_of_a_statement_decides_whether_an_answer_was_quick() {
    let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
    let sent = tick.now;
    for (took, is_quick, is_too_long) in [
        (seconds(2.5) - MILLISECOND, true, false),
        (seconds(2.5), false, false),
        (seconds(5.0) - MILLISECOND, false, false),
        (seconds(5.0), false, true),
    ] {
        tick.machine.now = sent + took;
        assert_eq!(tick.machine.was_quick(sent), is_quick, "{took:?}");
        assert_eq!(tick.machine.took_too_long(sent), is_too_long, "{took:?}");
    }
}

#[test]
fn results_and_a_claim_that_failed_together_are_sent_apart() {
    for (claims, records, kind, is_apart, fails) in [
        (true, true, Kind::Data, true, false),
        (true, true, Kind::Busy, true, true),
        (true, false, Kind::Busy, false, true),
        (false, true, Kind::Busy, false, true),
    ] {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        let step = tick.step(claims, records.then_some(1));
        let failed = tick.machine.step_failed(step, error(kind), Vec::new()).is_err();
        assert_eq!((tick.machine.claims_apart, failed), (is_apart, fails));
        if records {
            assert_eq!(tick.machine.writes.due(tick.now), Some(tick.now));
            let mut again = sent(Duty::Step, tick.now);
            tick.machine.now = tick.now + seconds(1.0);
            assert!(matches!(
                tick.machine.step(&mut again),
                Some(Request::Step { claim, skips_locked: true, .. })
                    if claim.is_none() == is_apart
            ));
        }
    }
}

#[test]
fn a_claim_that_took_too_long_is_repeated_for_fewer_runs() {
    // Returns whether the step fails, how many runs the next claim takes, whether a search begins,
    // and whether jobs with limits are left out.
    let fails = |took, kind, at_most, limits, is_too_slow| {
        let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
        let mut step = tick.step(true, None);
        let claim = step.claim.as_mut().unwrap();
        (claim.at_most, claim.limits) = (at_most, limits);
        tick.machine.now += took;
        let mut error = error(kind);
        error.is_too_slow = is_too_slow;
        let failed = tick.machine.step_failed(step, error, Vec::new()).is_err();
        let next = tick.machine.claims.next_claim(tick.now + seconds(10.0), &tick.pool);
        let searches = tick.machine.is_searching();
        tick.on(Event::Time);
        (
            failed,
            next.unwrap().at_most,
            searches,
            tick.log.contains("claiming runs of jobs with limits took longer than 5s"),
        )
    };
    let (short, long) = (seconds(5.0) - MILLISECOND, seconds(5.0));
    assert_eq!(fails(long, Kind::Busy, 3, false, true), (false, 1, false, false));
    assert_eq!(fails(long, Kind::Lost, 3, false, false), (true, 1, false, false));
    assert_eq!(fails(long, Kind::Busy, 1, false, true), (false, 3, true, false));
    assert_eq!(fails(short, Kind::Busy, 3, false, true), (false, 1, false, false));
    assert_eq!(fails(long, Kind::Busy, 3, true, true), (false, 3, true, true));
    assert_eq!(fails(long, Kind::Busy, 3, true, false), (false, 1, false, false));
    assert_eq!(fails(long, Kind::Lost, 3, true, false), (true, 1, false, false));
    // With a result, one of them alone may have been the cause.
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    let mut step = tick.step(true, Some(1));
    step.claim.as_mut().unwrap().limits = true;
    tick.machine.now += long;
    let mut error = error(Kind::Busy);
    error.is_too_slow = true;
    assert!(tick.machine.step_failed(step, error, Vec::new()).is_err());
    assert_eq!(tick.machine.claims.next_claim(tick.now + long, &tick.pool).unwrap().at_most, 3);
}

#[test]
fn jobs_with_limits_are_left_out_for_a_while_after_every_second_claim_without_an_answer() {
    let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
    let woken = Woken { may_claim: true, limits: true, ..Woken::default() };
    // After so many claims without an answer: whether the next claim takes jobs with limits, and
    // how many warnings were logged.
    for (losses, takes_limited, warnings) in
        [(1, true, 0), (2, false, 1), (3, true, 1), (4, false, 1)]
    {
        tick.machine.claims.woken(tick.now, woken, tick.now + seconds(600.0));
        let step = tick.step(true, None);
        assert!(step.claim.as_ref().unwrap().limits, "the pause is over");
        tick.now += seconds(5.0);
        tick.machine.now = tick.now;
        assert!(tick.machine.step_failed(step, error(Kind::Lost), Vec::new()).is_err());
        assert_eq!(tick.step(true, None).claim.unwrap().limits, takes_limited, "{losses}");
        let is_warning = |it: &&Instruction| matches!(it, Instruction::Log(Level::Warn, ..));
        assert_eq!(tick.machine.instructions.iter().filter(is_warning).count(), warnings);
        tick.now += LIMITED_PAUSE;
    }
}

#[test]
fn a_claim_that_a_run_may_have_failed_begins_a_search() {
    for kind in [Kind::Data, Kind::Fatal, Kind::Busy] {
        let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
        let step = tick.step(true, None);
        let failed = tick.machine.step_failed(step, error(kind), Vec::new()).is_err();
        let searches = kind != Kind::Busy;
        assert_eq!((tick.machine.is_searching(), failed), (searches, !searches));
    }
}

#[test]
fn a_result_that_takes_too_long_is_kept_and_delays_no_other() {
    let slow = || {
        let mut slow = error(Kind::Busy);
        slow.is_too_slow = true;
        slow
    };
    let claims = || Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
    let sent_again = |tick: &mut Tick| {
        let mut again = sent(Duty::Step, tick.now);
        tick.machine.now = tick.now + seconds(1.0);
        match tick.machine.step(&mut again) {
            Some(Request::Step { results, kept, .. }) => (results.len(), kept.len()),
            other => panic!("{other:?}"),
        }
    };
    // One of several may be the cause.
    let mut tick = claims();
    let mut step = tick.step(false, Some(1));
    step.writes.push(PendingWrite::Record(Box::new(judged(2, 5, tick.now))));
    assert!(tick.machine.step_failed(step, slow(), Vec::new()).is_err());
    assert_eq!(sent_again(&mut tick), (1, 0));

    let mut tick = claims();
    let step = tick.step(false, Some(1));
    assert!(tick.machine.step_failed(step, slow(), Vec::new()).is_ok());
    assert_eq!(sent_again(&mut tick), (0, 1));
    tick.on(Event::Time);
    assert!(tick.log.contains("1/2: the statement failed; the result is kept"), "{}", tick.log);

    // At the end, none is tried again.
    let mut tick = claims();
    let mut step = tick.step(false, Some(1));
    step.writes.push(PendingWrite::Record(Box::new(judged(2, 5, tick.now))));
    tick.machine.phase = Phase::Ending;
    assert!(tick.machine.step_failed(step, slow(), Vec::new()).is_ok());
    assert_eq!(sent_again(&mut tick), (0, 2));

    // If even that takes too long, it is sent again; the release of a claim is, once.
    let mut tick = claims();
    let keep = PendingWrite::Keep(Box::new(judged(1, 5, tick.now)));
    let step = SentRequest { writes: vec![keep], ..sent(Duty::Step, tick.now) };
    assert!(tick.machine.step_failed(step, slow(), Vec::new()).is_ok());
    assert_eq!(tick.machine.writes.due(tick.now), Some(tick.now + RESULT_PAUSE));
    let (claim, mut tick) = (run(2).token(), claims());
    for is_again in [false, true] {
        let writes = vec![PendingWrite::Release(claim)];
        let step = SentRequest { writes, is_again, ..sent(Duty::Step, tick.now) };
        assert!(tick.machine.step_failed(step, slow(), Vec::new()).is_ok());
        assert_eq!(tick.machine.leases.get(&claim).is_none(), is_again);
        assert_eq!(tick.machine.failure.is_some(), is_again);
    }
}

#[test]
fn a_rejected_result_is_sent_without_its_output_then_stored() {
    let fails = |tick: &mut Tick, kind| {
        let step = tick.step(false, Some(1));
        let failed = tick.machine.step_failed(step, error(kind), Vec::new()).is_err();
        tick.on(Event::Time);
        failed
    };
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
    assert!(!fails(&mut tick, Kind::Data));
    assert!(tick.log.contains("run 1: output not stored"), "{}", tick.log);
    assert_eq!(tick.machine.writes.due(tick.now), Some(tick.now));
    // It is sent again without its output.
    let (mut writes, _) = tick.machine.writes.take(tick.now);
    assert!(!writes[0].strip());
    let step = SentRequest { writes, ..sent(Duty::Step, tick.now) };
    assert!(tick.machine.step_failed(step, error(Kind::Data), Vec::new()).is_ok());
    tick.on(Event::Time);
    let line = "the statement failed; the result is kept in job_locked_runs";
    assert!(tick.log.contains(line), "{}", tick.log);
    assert!(!tick.machine.leases.is_empty() && tick.machine.failure.is_none());
    // Even that is rejected.
    let (writes, _) = tick.machine.writes.take(tick.now);
    assert!(writes[0].result_to_keep(tick.now).is_some());
    let step = SentRequest { writes, ..sent(Duty::Step, tick.now) };
    assert!(tick.machine.step_failed(step, error(Kind::Data), Vec::new()).is_ok());
    tick.on(Event::Time);
    assert!(tick.log.contains("another tick recovers the run"), "{}", tick.log);
    assert!(tick.machine.leases.is_empty() && tick.machine.failure.is_some());

    // An unexpected error may pass until the job would have had to stop.
    for (waited, is_kept) in [(seconds(22.5) - MILLISECOND, true), (seconds(22.5), false)] {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
        let step = tick.step(false, Some(1));
        tick.machine.now += waited;
        let failed = tick.machine.step_failed(step, error(Kind::Fatal), Vec::new()).is_err();
        assert_eq!(failed, is_kept);
        let due = tick.machine.writes.due(tick.now);
        assert_eq!(
            due,
            Some(tick.now + if is_kept { waited + RESULT_PAUSE } else { Duration::ZERO })
        );
    }
}

#[test]
fn a_result_of_a_locked_run_is_sent_again_after_a_pause() {
    let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
    let mut sent = tick.step(false, Some(1));
    sent.writes.push(PendingWrite::Record(Box::new(judged(2, 0, tick.now))));
    let recorded = [(run(2).token(), Status::Succeeded)].into();
    let step = StepResult { recorded, locked: vec![1, 2], ..StepResult::default() };
    tick.machine.stepped(sent, step);
    assert_eq!(tick.machine.leases.tokens().collect::<Vec<_>>(), [run(1).token()]);
    assert_eq!(tick.machine.writes.due(tick.now), Some(tick.now + LOCKED_PAUSE));
}

#[test]
fn an_idle_tick_claims_what_its_results_have_made_due() {
    let bounds = Bounds { linger: false, ..LINGERING };
    for (releases, queues_runs, claims) in
        [(true, false, true), (false, true, true), (false, false, false)]
    {
        let mut tick = Tick::of(bounds).claims(vec![run(1), run(2)]);
        assert!(tick.machine.claims.is_idle());
        let release = PendingWrite::Release(run(2).token());
        let mut sent = sent(Duty::Step, tick.now);
        sent.writes.extend(releases.then_some(release));
        tick.machine.stepped(sent, StepResult { queues_runs, ..StepResult::default() });
        assert_eq!(tick.machine.claims.is_idle(), !claims);
    }
    // A tick that polls keeps the time of its next claim.
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    let due = tick.machine.claims.due();
    let mut sent = sent(Duty::Step, tick.now);
    sent.writes.push(PendingWrite::Release(run(1).token()));
    tick.machine.now += MILLISECOND;
    tick.machine.stepped(sent, StepResult { queues_runs: true, ..StepResult::default() });
    assert_eq!(tick.machine.claims.due(), due);
}

#[test]
fn a_tick_that_has_released_followers_claims_again_at_once() {
    for follows in [true, false] {
        let bounds = Bounds { linger: false, ..LINGERING };
        let mut tick = Tick::of(bounds).claims(vec![run(1)]);
        let sent = tick.step(true, None);
        tick.machine.stepped(sent, StepResult { follows, ..StepResult::default() });
        assert_eq!(tick.machine.claims.is_idle(), !follows);
    }
}

#[test]
fn only_the_first_try_to_record_results_waits_for_locks() {
    let skips_locked = |push: fn(&mut Tick)| {
        let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
        push(&mut tick);
        let mut sent = sent(Duty::Step, tick.now);
        let Some(Request::Step { skips_locked, .. }) = tick.machine.step(&mut sent) else {
            panic!("{:?}", tick.machine)
        };
        skips_locked
    };
    fn result(tick: &Tick) -> PendingWrite {
        PendingWrite::Record(Box::new(judged(1, 0, tick.now)))
    }
    assert!(!skips_locked(|tick| tick.machine.writes.push(result(tick))));
    assert!(skips_locked(|tick| tick.machine.writes.send_again(result(tick), tick.now)));
    assert!(skips_locked(|tick| {
        tick.machine.writes.push(PendingWrite::Release(run(2).token()));
    }));
}

#[test]
fn a_definition_that_stays_locked_is_logged_once() {
    let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
    for _ in 0..4 {
        tick.now += seconds(3.0);
        tick.machine.now = tick.now;
        let sent = tick.step(true, None);
        let taken = ClaimResult { skipped: Some("mail".to_owned()), ..ClaimResult::default() };
        tick.machine.stepped(sent, StepResult { taken, ..StepResult::default() });
    }
    tick.take(Event::Time);
    assert_eq!(tick.log.matches("runs of mail do not start").count(), 1, "{}", tick.log);
}

/// A slow scan has claimed all due runs, and a claim that continues after them finds no other.
#[test]
fn only_a_tick_that_holds_runs_waits_before_it_repeats_a_slow_scan() {
    for (keeps, claimed, waits) in
        [(true, vec![], true), (false, vec![], false), (false, vec![run(2)], true)]
    {
        let mut tick = Tick::of(LINGERING).claims(Vec::new());
        let scan = tick.step(true, None);
        let found = Claimed { position: Some(Position::default()), ..run(1) };
        let taken = ClaimResult { claimed: vec![found], ..ClaimResult::default() };
        let claiming = seconds(1.0);
        tick.machine.stepped(scan, StepResult { taken, claiming, ..StepResult::default() });
        let next = tick.step(true, None);
        assert!(next.claim.as_ref().unwrap().after.is_some());
        if !keeps {
            tick.machine.leases.remove(&run(1).token());
        }
        let taken = ClaimResult { claimed, ..ClaimResult::default() };
        tick.machine.stepped(next, StepResult { taken, ..StepResult::default() });
        assert_eq!(tick.machine.claims.due() > Some(tick.now), waits);
    }
}

#[test]
fn last_attempts_start_first_and_each_run_has_its_limits() {
    let last = Claimed { max_attempts: 1, cancel_asked: true, ..run(2) };
    let expiring = Claimed { expires_in: Some(seconds(3.0)), ..run(1) };
    let mut tick = Tick::that_claims(vec![expiring, last], Duration::from_secs(1));
    let Some(Instruction::Start(tasks)) = tick.instructions.pop() else { unreachable!() };
    let sent = tick.now - seconds(1.0);
    let ids: Vec<_> = tasks.iter().map(|task| task.run.id).collect();
    assert_eq!(ids, [2, 1]);
    assert_eq!(tasks[0].stopped, Some(StopReason::Cancelled));
    assert_eq!((tasks[1].stopped, tasks[0].start_by), (None, None));
    assert_eq!(tasks[1].start_by, Some(sent + seconds(3.0)));
    assert!(tasks.iter().all(|task| task.until == sent + seconds(22.5)));
    assert_eq!((tick.machine.pool.waiting, tick.machine.pool.oldest), (2, Some(tick.now)));
    // A run that this tick claims again was lost meanwhile.
    tick.machine.start(vec![Claimed { attempt: 2, ..run(1) }], tick.now);
    tick.on(Event::Time);
    assert_eq!(tick.stops(), [(1, StopReason::LeaseLost)]);
}

#[test]
fn a_host_that_can_start_no_job_releases_claims_and_says_so_once() {
    let mut tick = Tick::that_claims(vec![run(1), run(2)], Duration::ZERO);
    tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
    let exhausted = |id| Ended::Exhausted(run(id), Failure::Signal(9));
    tick.on(Event::Ended(vec![exhausted(1), exhausted(2)]));
    assert_eq!(
        tick.log,
        "run 1 shell attempt 1/2: killed by SIGKILL (out of memory?); claim released"
    );
    assert_eq!(tick.machine.writes.releases(), 2);
    assert_eq!(tick.machine.claims.due(), Some(tick.now + seconds(1.0)));
}

#[test]
fn claims_of_a_lost_answer_are_released_within_their_lease() {
    let mut tick = Tick::that_claims(Vec::new(), Duration::ZERO);
    tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
    let step = tick.step(true, None);
    tick.machine.now += seconds(1.0);
    let made = vec![run(7).token()];
    assert!(tick.machine.step_failed(step, error(Kind::Lost), made).is_err());
    assert_eq!(tick.machine.writes.releases(), 1);
    let lease = tick.machine.leases.get(&run(7).token()).unwrap();
    assert_eq!(lease.expires(), tick.now + seconds(30.0));
}

/// What a tick does after an error: it goes on, drains, ends its jobs, or leaves.
#[test]
fn an_error_ends_only_what_it_affects() {
    let schema = || store::Error::new(Kind::Fatal, Exit::Schema, "the schema is newer");
    let lingering = LINGERING;
    let short = Bounds { linger: false, ..LINGERING };
    let (working, draining) = (Phase::Working, Phase::Draining);
    let after = |bounds, holds: bool, phase, why: store::Error, lasts| {
        let mut tick = Tick::of(bounds).claims(holds.then(|| run(1)).into_iter().collect());
        tick.machine.phase = phase;
        if lasts > Duration::ZERO {
            tick.machine.link.rejected(tick.now, tick.machine.timing.heartbeat);
        }
        tick.machine.now += lasts;
        tick.machine.on_error(why);
        (tick.machine.phase, tick.machine.failure.is_some())
    };
    let at_once = Duration::ZERO;
    for (bounds, holds, phase, why, lasts, expected) in [
        // A lock or a full disk passes.
        (lingering, false, working, error(Kind::Busy), at_once, (working, false)),
        (short, true, working, error(Kind::Busy), at_once, (working, false)),
        (short, true, Phase::Ending, error(Kind::Busy), seconds(60.0), (Phase::Ending, false)),
        (short, false, working, error(Kind::Busy), at_once, (Phase::Ending, true)),
        // A lingering tick that drains does not linger.
        (lingering, false, draining, error(Kind::Busy), at_once, (Phase::Ending, true)),
        // Jobs go on while an unexpected error lasts, but not to the end of their leases.
        (lingering, true, working, error(Kind::Fatal), at_once, (working, false)),
        (lingering, true, draining, error(Kind::Fatal), at_once, (draining, false)),
        (
            lingering,
            true,
            working,
            error(Kind::Fatal),
            seconds(22.5) - MILLISECOND,
            (working, false),
        ),
        (lingering, true, working, error(Kind::Fatal), seconds(22.5), (Phase::Ending, true)),
        (lingering, true, Phase::Ending, error(Kind::Fatal), at_once, (Phase::Ending, true)),
        (lingering, false, working, error(Kind::Fatal), at_once, (Phase::Ending, true)),
        // No run can be claimed, but results and leases are not affected.
        (lingering, true, working, error(Kind::Data), at_once, (draining, true)),
        (lingering, true, working, schema(), at_once, (draining, true)),
        (lingering, true, draining, schema(), at_once, (draining, false)),
        (lingering, false, working, schema(), at_once, (Phase::Ending, true)),
    ] {
        let what = format!("{bounds:?} {holds} {phase:?} {why:?} {lasts:?}");
        assert_eq!(after(bounds, holds, phase, why, lasts), expected, "{what}");
    }
}

#[test]
fn an_error_that_may_pass_is_logged_once() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    for _ in 0..2 {
        tick.machine.on_error(error(Kind::Fatal));
        tick.on(Event::Time);
    }
    assert_eq!(tick.log.matches("jobctl keeps trying").count(), 1, "{}", tick.log);
}

#[test]
fn a_tick_that_leaves_exits_whatever_the_error() {
    for (kind, is_up) in [(Kind::Lost, false), (Kind::Busy, true)] {
        let mut tick = Tick::of(Bounds { prunes: true, ..LINGERING }).claims(Vec::new());
        tick.machine.end_phase(PhaseEnd::Idle);
        assert_eq!(tick.duties(), [Duty::Leave, Duty::Prune]);
        tick.machine.unanswered = Some(sent(Duty::Leave, tick.now));
        tick.answer(Duration::ZERO, Answer::Leave(Err(error(kind))));
        let Some(Instruction::Exit(done)) = tick.instructions.pop() else {
            panic!("{:?}", tick.machine)
        };
        assert!(done.is_err());
        assert_eq!(tick.machine.link.is_up(), is_up);
    }
}

#[test]
fn a_tick_connects_again_while_it_holds_runs_or_lingers() {
    let short = Bounds { linger: false, ..LINGERING };
    for (bounds, holds, has_answered, drains, connects) in [
        (short, true, true, false, true),
        (short, true, false, true, true),
        (short, false, true, false, false),
        (LINGERING, false, true, false, true),
        (LINGERING, false, false, false, false),
        (LINGERING, false, true, true, false),
    ] {
        let mut tick = Tick::of(bounds).claims(holds.then(|| run(1)).into_iter().collect());
        tick.machine.phase = if drains { Phase::Draining } else { Phase::Working };
        if !has_answered {
            tick.machine.link.connected();
        }
        tick.machine.on_error(error(Kind::Lost));
        let is_connect = |it: &Instruction| matches!(it, Instruction::Connect(_));
        assert_eq!(tick.machine.instructions.iter().any(is_connect), connects);
        let logs = tick.machine.instructions.iter().any(|it| {
            matches!(it, Instruction::Log(_, line, _) if line.contains("1 running, reconnecting"))
        });
        assert_eq!(logs, connects && has_answered);
        assert_eq!(tick.machine.phase == Phase::Ending, !connects);
    }
}

#[test]
fn a_signal_says_how_many_jobs_may_finish() {
    for (running, says) in [(0, false), (1, true)] {
        let bounds = Bounds { grace: seconds(3.0), ..LINGERING };
        let mut tick = Tick::of(bounds).claims(vec![run(1)]);
        tick.pool.running = running;
        tick.on(Event::Signal);
        assert!(tick.log.contains(&format!("stopping: {running} running, grace 3s")));
        assert_eq!(tick.log.contains("a second signal ends them now"), says);
        assert_eq!(tick.machine.phase_ends, Some(tick.now + seconds(3.0)));
        assert!(!tick.has(|it| matches!(it, Instruction::Hurry)));
        tick.on(Event::Signal);
        assert!(tick.has(|it| matches!(it, Instruction::Hurry)));
        assert!(tick.has(|it| matches!(it, Instruction::Stop(_, StopReason::Interrupted))));
    }
}

#[test]
fn a_tick_that_only_releases_claims_waits_a_second_for_the_database() {
    // Runs that it holds, the claims that are being released, and those that will be.
    for (held, sent_releases, releases, wait) in [
        (0, 0, 0, IDLE_END_TIMEOUT),
        (1, 0, 0, END_TIMEOUT),
        (2, 1, 1, IDLE_END_TIMEOUT),
        (3, 1, 1, END_TIMEOUT),
        (2, 2, 0, IDLE_END_TIMEOUT),
        (3, 2, 0, END_TIMEOUT),
    ] {
        let mut tick = Tick::that_claims((1..=held).map(run).collect(), Duration::ZERO);
        let release = |id| PendingWrite::Release(run(id).token());
        let writes = (0..sent_releases).map(release).collect();
        tick.machine.unanswered = Some(SentRequest { writes, ..sent(Duty::Step, tick.now) });
        (0..releases).for_each(|id| tick.machine.writes.push(release(id)));
        tick.machine.end_phase(PhaseEnd::Failure);
        assert_eq!(tick.machine.phase_ends, Some(tick.now + wait));
    }
}

#[test]
fn only_a_tick_that_did_its_work_deletes_old_runs() {
    for (signal, fails, prunes, ends) in [
        (false, false, true, None),
        (true, false, false, Some(IDLE_END_TIMEOUT)),
        (false, true, false, None),
    ] {
        let mut tick = Tick::of(Bounds { prunes: true, ..LINGERING }).claims(Vec::new());
        if signal {
            tick.machine.end_phase(PhaseEnd::Signal);
        }
        tick.machine.failure = fails.then(|| anyhow!("no memory"));
        tick.machine.end_phase(PhaseEnd::Idle);
        assert_eq!(tick.machine.may_prune, prunes);
        assert_eq!(tick.machine.phase_ends, ends.map(|wait| tick.now + wait));
    }
}

#[test]
fn a_tick_exits_once_nothing_is_left_to_do() {
    let idle = |change: fn(&mut Machine)| {
        let bounds = Bounds { linger: false, ..LINGERING };
        let mut tick = Tick::of(bounds).claims(Vec::new());
        tick.machine.phase = Phase::Working;
        change(&mut tick.machine);
        tick.machine.is_idle()
    };
    assert!(idle(|_| {}));
    assert!(!idle(|it| it.search = Search::Running));
    assert!(!idle(|it| it.wakes_again = true));
    assert!(!idle(|it| it.claims.claim_soon(it.now)));
    assert!(!idle(|it| _ = it.link.lost(it.now, anyhow!("refused"))));
    assert!(!idle(|it| drop(it.leases.add(run(1).token(), it.now, it.now))));
    // The right is released, a slow answer is recorded and old runs are deleted first.
    assert!(idle(|it| it.phase = Phase::Leaving));
    assert!(!idle(|it| {
        it.phase = Phase::Leaving;
        it.claims.woken(it.now, Woken { may_claim: true, ..Woken::default() }, it.now);
    }));
    assert!(!idle(|it| {
        it.phase = Phase::Leaving;
        it.link.take_slow_warning(Duration::from_secs(60), Duration::ZERO);
    }));
    assert!(!idle(|it| (it.phase, it.may_prune) = (Phase::Leaving, true)));
    assert!(idle(|it| {
        (it.phase, it.may_prune) = (Phase::Leaving, true);
        it.link.lost(it.now, anyhow!("refused"));
    }));
}

#[test]
fn a_tick_that_exits_with_claims_says_what_becomes_of_them() {
    let exits = |claimed: Vec<Claimed>, is_lost: bool, signal| {
        let mut tick = Tick::that_claims(claimed, Duration::ZERO);
        if is_lost {
            let result = PendingWrite::Record(Box::new(judged(1, 0, tick.now)));
            tick.machine.writes.answer_lost(std::slice::from_ref(&result));
            tick.machine.writes.push(result);
            tick.machine.link.lost(tick.now, anyhow!("the connection is lost"));
        }
        tick.machine.has_signal = signal;
        tick.machine.exit();
        tick.take(Event::Time);
        let done = tick.instructions.pop();
        let Some(Instruction::Exit(done)) = done else { panic!("{done:?}") };
        (done.map_err(|error| error.to_string()).err().unwrap_or_default(), tick.log)
    };
    assert_eq!(exits(Vec::new(), false, false), (String::new(), String::new()));
    let (error, log) = exits(vec![run(1)], false, false);
    assert!(error.contains("cannot record or release 1 run in time"), "{error}");
    let line = "run 1: not released at the exit; another tick recovers the run when its lease ends";
    assert!(log.contains(line), "{log}");
    let (error, log) = exits(vec![run(1)], true, true);
    assert!(error.contains("cannot record or release 1 run in time"), "{error}");
    assert!(log.contains("the database did not confirm the result"), "{log}");
    assert_eq!(exits(vec![run(1)], true, false).0, "the connection is lost");
    assert_eq!(exits(Vec::new(), true, true).0, "");
}

#[test]
fn a_tick_that_exits_while_an_error_lasts_fails_with_this_error() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    tick.machine.on_error(error(Kind::Busy));
    tick.machine.exit();
    tick.take(Event::Time);
    let Some(Instruction::Exit(Err(why))) = tick.instructions.pop() else { panic!() };
    assert_eq!(why.to_string(), error(Kind::Busy).to_string());
}

#[test]
fn a_tick_that_leaves_renews_no_lease() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    assert!(tick.machine.renewal_due().is_some());
    tick.machine.phase = Phase::Leaving;
    assert_eq!(tick.machine.renewal_due(), None);
}

/// Found by the simulation: the lease had ended before the exit, so no claim was left to count.
#[test]
fn a_tick_that_gave_a_result_up_before_its_exit_fails() {
    let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
    tick.machine.writes.push(PendingWrite::Record(Box::new(judged(1, 0, tick.now))));
    tick.machine.link.lost(tick.now, anyhow!("refused"));
    tick.machine.has_signal = true;
    tick.machine.now += seconds(120.0);
    tick.machine.drop_expired();
    tick.machine.exit();
    tick.take(Event::Time);
    let Some(Instruction::Exit(Err(error))) = tick.instructions.pop() else { panic!() };
    assert!(error.to_string().contains("cannot record or release 1 run in time"), "{error}");
}

#[test]
fn results_and_claims_are_kept_while_the_database_may_come_back() {
    // A lease of 30 s, then three times as long.
    for (is_up, releases, waited, is_kept) in [
        (false, false, seconds(120.0) - MILLISECOND, true),
        (false, false, seconds(120.0), false),
        (false, true, seconds(120.0), false),
        (true, false, seconds(120.0), true),
        (true, true, seconds(120.0), false),
        (true, true, seconds(120.0) - MILLISECOND, true),
    ] {
        let mut tick = Tick::that_claims(vec![run(1)], Duration::ZERO);
        tick.machine.writes.push(match releases {
            true => PendingWrite::Release(run(1).token()),
            false => PendingWrite::Record(Box::new(judged(1, 0, tick.now))),
        });
        if !is_up {
            tick.machine.link.lost(tick.now, anyhow!("refused"));
            assert_eq!(tick.machine.until(), Some(tick.now + seconds(120.0)));
        }
        tick.machine.now += waited;
        tick.machine.drop_expired();
        assert_eq!(
            (tick.machine.writes.len() == 1, tick.machine.leases.is_empty()),
            (is_kept, !is_kept)
        );
    }
}

#[test]
fn a_tick_without_running_jobs_gives_the_database_up_after_its_limit() {
    let bounds = Bounds { outage: Some(seconds(10.0)), ..LINGERING };
    // One that never connected.
    let mut tick = Tick::of(bounds);
    tick.pool.running = 0;
    tick.at(tick.now + seconds(10.0) - MILLISECOND);
    assert!(tick.instructions.is_empty());
    tick.at(tick.now + MILLISECOND);
    assert!(
        matches!(tick.instructions[..], [Instruction::Exit(Err(_))]),
        "{:?}",
        tick.instructions
    );
    // The time of one that held a run begins when its job has ended.
    let mut tick = Tick::of(bounds).claims(vec![run(1)]);
    let lost = tick.machine.now;
    tick.machine.unanswered = None;
    tick.on(Event::ConnectFailed(anyhow!("refused")));
    tick.at(lost + seconds(11.0));
    assert_eq!(tick.log, "");
    tick.pool.running = 0;
    tick.ends(1, 0);
    assert_eq!(tick.machine.until(), Some(lost + seconds(21.0)));
    // A connection that has not answered changes nothing.
    tick.on(Event::Connected);
    assert_eq!(tick.machine.gives_up_at(), None);
    tick.machine.unanswered = None;
    tick.on(Event::ConnectFailed(anyhow!("refused")));
    tick.at(lost + seconds(21.0));
    assert!(tick.log.contains("result not recorded, so the run will start again"), "{}", tick.log);
    let Some(Instruction::Exit(Err(error))) = tick.instructions.pop() else { panic!() };
    assert_eq!(error.to_string(), "refused");
}
