//! The driver of a tick: it tells the machine each event (an answer of the database, an ended
//! attempt, a signal or a time), and performs the instructions that the machine returns.
//!
//! It does not wait itself: `step` returns what to wait for. So a simulation runs it, too, and
//! chooses what comes first.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use log::Level;

use super::execution::{Ended, JudgedAttempt, Task};
use super::machine::{Event, Instruction, Machine};
use super::request::{Answer, AnswerTimeout, Request};
use crate::execute::{PoolState, WakeWhen};
use crate::job::attempt::StopReason;
use crate::job::status::Status;
use crate::store::{self, Claimed, FencingToken};

/// About this many bytes of output are stored at once. The rest follows after the next renewal.
const OUTPUT_AT_ONCE: usize = 256 * 1024;

/// What a driver runs on: a clock, signals, threads and a connection.
pub(super) trait Runtime {
    fn now(&self) -> Instant;

    /// Returns a random number in 0..1.
    fn random(&mut self) -> f64;

    /// Takes the signals that have come since the last call, and returns how many.
    fn take_signals(&mut self) -> usize;

    /// Returns how many runs the pool has, running and waiting.
    fn pool(&self) -> PoolState;

    /// Lets the pool end a wait once, when it reaches the state `wake_when`. Returns true if the
    /// pool has reached it already: then the pool ends no wait. `unrecorded` is the number of bytes
    /// of output that were taken from the pool, but are not yet recorded.
    fn wake_when(&mut self, wake_when: WakeWhen, unrecorded: usize) -> bool;

    /// Takes the attempts that have ended since the last call.
    fn take_ended(&mut self) -> Vec<Ended>;

    /// Hands runs to the pool. Fails if there is not even one thread.
    fn submit(&mut self, tasks: Vec<Task>) -> anyhow::Result<()>;

    /// Withdraws the runs that no thread has started.
    fn withdraw(&mut self) -> Vec<Claimed>;

    /// Lets the jobs of these claims continue until this time.
    fn extend(&mut self, claims: &[FencingToken], until: Instant);

    /// Asks a job to stop.
    fn stop(&mut self, claim: &FencingToken, why: StopReason);

    /// Ends the grace period of all jobs that were asked to stop.
    fn hurry(&mut self);

    /// Takes what the job of a claim has printed, if that is new.
    fn take_output(&mut self, claim: &FencingToken) -> Option<String>;

    /// Makes the output of the job of a claim count as new again, because it was not stored.
    fn keep_output(&mut self, claim: &FencingToken);

    /// Drops the connection and the attempt to connect.
    fn disconnect(&mut self);

    /// Begins to connect.
    fn connect(&mut self);

    /// Takes the result of the attempt to connect, once it is there.
    fn take_connection(&mut self) -> Option<anyhow::Result<()>>;

    /// Logs a line, and the claim that it is about, if it is about one.
    fn log(&mut self, level: Level, line: &str, claim: Option<&FencingToken>);

    /// Logs and counts a result that was recorded with this status of its run; `None`: its lease
    /// was lost.
    fn recorded(&mut self, judged: &JudgedAttempt, status: Option<Status>);

    /// Learns that the machine gets this event. Only a simulation needs it.
    fn observe(&mut self, _event: &Event) {}
}

/// What to do before the next step.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing: call `step` again.
    Continue,
    /// Wait until a signal, the pool or a connection ends the wait, at most until this time
    /// (`None`: without a time limit); then call `woken`.
    Wait(Option<Instant>),
    /// Get the answer to this request, then call `answered`.
    Ask(Box<Request>, AnswerTimeout),
    /// End the tick: there is no next step.
    Exit(anyhow::Result<()>),
}

/// Runs one machine on a runtime.
pub(super) struct Driver {
    pub(super) machine: Machine,
    /// Events for the machine, the oldest first.
    pub(super) events: VecDeque<Event>,
    /// Instructions that the machine returned and that are not performed yet, the next one first.
    instructions: VecDeque<Instruction>,
    /// When to begin to connect.
    pub(super) connect_at: Option<Instant>,
    /// The claims whose leases were extended, and whose output was not taken since.
    extended: BTreeSet<FencingToken>,
    /// The claims whose output is in the latest `Request::Store`.
    output_sent: Vec<FencingToken>,
    /// The last claim whose output was sent. The next request with output begins after it.
    output_cursor: Option<FencingToken>,
}

impl Driver {
    /// Begins to connect.
    pub(super) fn new(machine: Machine, runtime: &mut impl Runtime) -> Self {
        runtime.connect();
        Self {
            machine,
            events: VecDeque::new(),
            instructions: VecDeque::new(),
            connect_at: None,
            extended: BTreeSet::new(),
            output_sent: Vec::new(),
            output_cursor: None,
        }
    }

    /// Performs the instructions of the latest event. Then tells the machine the next event.
    /// Returns what the caller must do before the next step: for example, get the answer to a
    /// request, or wait because there is no event.
    pub(super) fn step(&mut self, runtime: &mut impl Runtime) -> Step {
        while let Some(instruction) = self.instructions.pop_front() {
            if let Some(step) = self.perform(runtime, instruction) {
                return step;
            }
        }
        let Some(event) = self.events.pop_front() else {
            let is_reached = runtime.wake_when(self.machine.wake_when(), self.machine.bytes());
            if is_reached {
                // The pool would not end a wait, so do not wait.
                self.woken(runtime);
                return Step::Continue;
            }
            return Step::Wait(self.machine.until().into_iter().chain(self.connect_at).min());
        };
        runtime.observe(&event);
        let instructions = self.machine.on(runtime.now(), runtime.pool(), event);
        self.instructions.extend(instructions);
        // While the driver waits for an answer, the pool does not wake it, but must know how much
        // output waits to be recorded.
        runtime.wake_when(WakeWhen::Never, self.machine.bytes());
        Step::Continue
    }

    /// Continues after a wait, with the events that ended it.
    pub(super) fn woken(&mut self, runtime: &mut impl Runtime) {
        self.take_events(runtime);
        self.connect(runtime);
        if self.events.is_empty() {
            self.events.push_back(Event::Time);
        }
    }

    /// Continues with the answer to the request of `Step::Ask`.
    pub(super) fn answered(&mut self, runtime: &mut impl Runtime, answer: Answer) {
        self.take_events(runtime);
        if let Answer::Store(result) = &answer {
            for claim in self.output_sent.iter().filter(|claim| is_unstored(claim.id, result)) {
                runtime.keep_output(claim);
            }
        }
        self.events.push_back(Event::Answered(answer));
    }

    /// Turns signals and ended attempts into events. Callers do this before they add a connection
    /// or an answer, so the first statement after that already records these results.
    fn take_events(&mut self, runtime: &mut impl Runtime) {
        let signals = runtime.take_signals();
        self.events.extend((0..signals).map(|_| Event::Signal));
        let ended = runtime.take_ended();
        if !ended.is_empty() {
            self.events.push_back(Event::Ended(ended));
        }
    }

    /// Begins to connect when it is time, and takes the connection when it is there.
    fn connect(&mut self, runtime: &mut impl Runtime) {
        if self.connect_at.take_if(|at| runtime.now() >= *at).is_some() {
            runtime.connect();
        }
        match runtime.take_connection() {
            Some(Ok(())) => self.events.push_back(Event::Connected),
            Some(Err(error)) => self.events.push_back(Event::ConnectFailed(error)),
            None => {}
        }
    }

    /// Performs an instruction. Returns the step that it needs from the caller: to get an answer,
    /// or to exit.
    fn perform(&mut self, runtime: &mut impl Runtime, instruction: Instruction) -> Option<Step> {
        match instruction {
            Instruction::Connect(pause) => {
                runtime.disconnect();
                self.connect_at = Some(runtime.now() + spread(pause, runtime.random()));
                self.connect(runtime);
            }
            Instruction::Send(Request::Store(_), timeout) => {
                let outputs = self.take_output(runtime);
                if !outputs.is_empty() {
                    return Some(Step::Ask(Box::new(Request::Store(outputs)), timeout));
                }
                let nothing_left = Answer::Store(Ok(BTreeSet::new()));
                self.events.push_front(Event::Answered(nothing_left));
            }
            Instruction::Send(request, timeout) => {
                return Some(Step::Ask(Box::new(request), timeout));
            }
            Instruction::Start(tasks) => {
                if let Err(error) = runtime.submit(tasks) {
                    self.events.push_back(Event::Failed(error));
                }
            }
            Instruction::Withdraw => {
                // Handle this event first: the pool's state already lacks these runs. The machine
                // would otherwise believe that they were started, and that --limit is reached.
                let unstarted = runtime.withdraw().into_iter().map(Ended::Unstarted).collect();
                self.events.push_front(Event::Ended(unstarted));
            }
            Instruction::Extend(claims, until) => {
                runtime.extend(&claims, until);
                self.extended.extend(claims);
            }
            Instruction::Stop(claim, why) => runtime.stop(&claim, why),
            Instruction::Hurry => runtime.hurry(),
            Instruction::Log(level, line, claim) => runtime.log(level, &line, claim.as_ref()),
            Instruction::Recorded(judged, status) => runtime.recorded(&judged, status),
            Instruction::Exit(result) => return Some(Step::Exit(result)),
        }
        None
    }

    /// Takes the new output of the jobs whose leases were extended, until it is enough for one
    /// request. Begins with the claim after the one that ended the latest request, so that each job
    /// has its turn.
    fn take_output(&mut self, runtime: &mut impl Runtime) -> Vec<(FencingToken, String)> {
        // Before the first request there is no cursor: `None` is less than any claim.
        let (before, after): (Vec<_>, Vec<_>) =
            self.extended.iter().partition(|claim| Some(**claim) <= self.output_cursor);
        self.output_sent.clear();
        let mut bytes_left = OUTPUT_AT_ONCE;
        let mut outputs = Vec::new();
        for claim in after.into_iter().chain(before) {
            if bytes_left == 0 {
                break;
            }
            self.extended.remove(&claim);
            if let Some(output) = runtime.take_output(&claim) {
                bytes_left = bytes_left.saturating_sub(output.len());
                self.output_sent.push(claim);
                outputs.push((claim, output));
            }
        }
        self.output_cursor = self.output_sent.last().copied().or(self.output_cursor);
        outputs
    }
}

/// Returns whether the output of a run is not stored: the request failed, or left the run out.
fn is_unstored(run: i64, result: &store::Result<BTreeSet<i64>>) -> bool {
    match result {
        Ok(left_out) => left_out.contains(&run),
        Err(_) => true,
    }
}

/// Returns 50 to 100 % of the pause, by a random number in 0..1, so that not all ticks connect at
/// the same time.
fn spread(pause: Duration, random: f64) -> Duration {
    pause.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::store::Kind;

    #[test]
    fn an_output_is_unstored_if_its_run_was_left_out_or_the_request_failed() {
        let left_out = Ok(BTreeSet::from([1]));
        assert_eq!([1, 2].map(|run| is_unstored(run, &left_out)), [true, false]);
        let failed = Err(store::Error::new(Kind::Lost, Exit::Unavailable, "lost"));
        assert!(is_unstored(1, &failed));
    }

    #[test]
    fn ticks_connect_again_after_half_of_the_pause_or_later() {
        let pauses = [0.0, 0.5, 1.0].map(|random| spread(Duration::from_secs(8), random));
        assert_eq!(pauses, [4, 6, 8].map(Duration::from_secs));
    }
}
