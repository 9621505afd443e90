//! A bounded pool of threads that execute claimed runs. Threads are started when there is work for
//! them. Runs that no thread has started can be withdrawn.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Event;
use crate::execute::{Executor, Stop};
use crate::job::action::{self, Action};
use crate::job::attempt::{AttemptIdentity, AttemptResult, Outcome, RUN_KEY_PREFIX};
use crate::job::failure::Failure;
use crate::job::next_status::is_permanent;
use crate::store::Claimed;

/// While more bytes of output than this wait to be recorded, no run is started.
const BYTES_UNRECORDED: usize = 4 * 1024 * 1024;

/// A claimed run on its way to a thread.
pub(super) struct Task {
    pub(super) run: Claimed,
    pub(super) stop: Arc<Stop>,
    pub(super) submitted: Instant,
}

/// A run that was executed, or stopped before it could start.
pub(super) struct EndedAttempt {
    pub(super) run: Claimed,
    pub(super) has_begun: bool,
    pub(super) ended: AttemptResult,
    pub(super) is_permanent: bool,
    pub(super) started: Instant,
    pub(super) finished: Instant,
}

/// When the pool wakes the tick's thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum WakeWhen {
    #[default]
    Never,
    /// At most `waiting` tasks wait, or `ended` attempts or `bytes` of their output are ready.
    Shortage { waiting: usize, ended: usize, bytes: usize },
    /// Any attempt has ended.
    Ended,
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    /// The maximum of threads: fewer than wanted if the system has no more.
    pub(super) size: usize,
    threads: usize,
}

struct Shared {
    tasks: Mutex<Tasks>,
    arrived: Condvar,
    executor: Executor,
    events: Sender<Event>,
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    running: usize,
    idle: usize,
    ended: Vec<EndedAttempt>,
    /// Bytes of output in `ended`.
    bytes: usize,
    /// Bytes of output that the tick's thread has taken and not yet recorded.
    unrecorded: usize,
    wake_when: WakeWhen,
}

impl Tasks {
    fn take(&mut self) -> Option<Task> {
        let is_full = self.bytes + self.unrecorded > BYTES_UNRECORDED;
        if is_full { None } else { self.waiting.pop_front() }
    }

    /// Returns whether to wake the tick's thread now. It is woken once.
    fn wakes(&mut self) -> bool {
        let wakes = match self.wake_when {
            WakeWhen::Never => false,
            WakeWhen::Shortage { waiting, ended, bytes } => {
                self.waiting.len() <= waiting || self.ended.len() >= ended || self.bytes >= bytes
            }
            WakeWhen::Ended => !self.ended.is_empty(),
        };
        if wakes {
            self.wake_when = WakeWhen::Never;
        }
        wakes
    }
}

impl Pool {
    pub(super) fn new(size: usize, executor: Executor, events: Sender<Event>) -> Self {
        let shared = Shared { tasks: Mutex::default(), arrived: Condvar::new(), executor, events };
        Self { shared: Arc::new(shared), size, threads: 0 }
    }

    /// Adds tasks, in the order in which they are to start. Fails if the system refuses even a
    /// single thread.
    pub(super) fn submit(&mut self, tasks: Vec<Task>) -> io::Result<()> {
        let mut queue = self.shared.tasks();
        queue.waiting.extend(tasks);
        let missing = queue.waiting.len().saturating_sub(queue.idle).min(self.size - self.threads);
        drop(queue);
        self.shared.arrived.notify_all();
        for _ in 0..missing {
            let shared = Arc::clone(&self.shared);
            match thread::Builder::new().spawn(move || shared.work()) {
                Ok(_) => self.threads += 1,
                Err(error) if self.threads == 0 => return Err(error),
                Err(error) => {
                    log::warn!("{} threads instead of {}: {error}", self.threads, self.size);
                    self.size = self.threads;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Withdraws the tasks that no thread has started.
    pub(super) fn withdraw(&self) -> Vec<Task> {
        self.shared.tasks().waiting.drain(..).collect()
    }

    /// Has the pool send one `Event::Wake` at the given state. Returns true if the state is
    /// already reached; then no event comes. `unrecorded` is the output that the caller keeps.
    pub(super) fn wake_when(&self, wake_when: WakeWhen, unrecorded: usize) -> bool {
        let mut tasks = self.shared.tasks();
        if unrecorded < tasks.unrecorded {
            self.shared.arrived.notify_all();
        }
        tasks.unrecorded = unrecorded;
        tasks.wake_when = wake_when;
        tasks.wakes()
    }

    pub(super) fn ended(&self) -> Vec<EndedAttempt> {
        let mut tasks = self.shared.tasks();
        tasks.bytes = 0;
        std::mem::take(&mut tasks.ended)
    }

    pub(super) fn running(&self) -> usize {
        self.shared.tasks().running
    }

    pub(super) fn waiting(&self) -> usize {
        self.shared.tasks().waiting.len()
    }

    /// Returns how long the next task has waited for a thread.
    pub(super) fn waiting_for(&self) -> Option<Duration> {
        self.shared.tasks().waiting.front().map(|task| task.submitted.elapsed())
    }
}

impl Shared {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // No code under this lock can panic.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of a thread. It never returns; the thread ends with the process.
    fn work(&self) {
        let mut ended = None;
        loop {
            let task = self.next(ended);
            let started = Instant::now();
            let stopped = task.stop.asked();
            // A panic is a bug, but it must not stop the other runs.
            let (outcome, is_permanent) = catch_unwind(AssertUnwindSafe(|| {
                let action = action(&task.run);
                let ended = match (stopped, &action) {
                    (Some(why), _) => AttemptResult {
                        outcome: Outcome::Stopped(why),
                        ..AttemptResult::unstarted(Failure::Signal(0))
                    },
                    (None, Err(failure)) => AttemptResult::unstarted(failure.clone()),
                    (None, Ok(action)) => execute(&task, action, &self.executor),
                };
                let is_permanent = is_permanent(&ended.outcome, action.as_ref().ok());
                (ended, is_permanent)
            }))
            .unwrap_or_else(|_| {
                let failure = Failure::Spawn("jobctl panicked; please report it".to_owned());
                (AttemptResult::unstarted(failure), false)
            });
            ended = Some(EndedAttempt {
                run: task.run,
                has_begun: stopped.is_none(),
                ended: outcome,
                is_permanent,
                started,
                finished: Instant::now(),
            });
        }
    }

    /// Hands over the attempt that ended, and waits for the next task.
    fn next(&self, ended: Option<EndedAttempt>) -> Task {
        let mut tasks = self.tasks();
        if let Some(attempt) = ended {
            tasks.running -= 1;
            tasks.bytes += attempt.ended.output.text.len();
            tasks.ended.push(attempt);
        }
        loop {
            let task = tasks.take();
            if tasks.wakes() {
                // Sending fails only if the tick has ended; then no event is needed.
                let _ = self.events.send(Event::Wake);
            }
            if let Some(task) = task {
                tasks.running += 1;
                return task;
            }
            tasks.idle += 1;
            tasks = self.arrived.wait(tasks).unwrap_or_else(PoisonError::into_inner);
            tasks.idle -= 1;
        }
    }
}

fn execute(task: &Task, action: &Action, executor: &Executor) -> AttemptResult {
    let run = &task.run;
    let identity = AttemptIdentity {
        run_id: run.id,
        job: run.job_type.clone(),
        attempt: run.attempt,
        max_attempts: run.max_attempts,
        idempotency_key: run.key.clone().unwrap_or_else(|| format!("{RUN_KEY_PREFIX}{}", run.id)),
        scheduled_for: run.scheduled_for.clone(),
    };
    executor.execute(action, &identity, run.timeout, &task.stop)
}

/// Returns what to execute: by the run's definition, or by the payload of a built-in job.
fn action(run: &Claimed) -> Result<Action, Failure> {
    let job_type = run.job_type.escape_debug();
    let definition = run.definition.as_ref().filter(|_| !action::is_built_in(&run.job_type));
    let action = match definition {
        Some(definition) => {
            Action::of_definition(&definition.kind, &definition.action, &run.payload)
                .map_err(|why| format!("definition `{job_type}` can't be executed: {why}"))
        }
        None => Action::parse(&run.job_type, &run.payload).unwrap_or_else(|| {
            Err(format!("no definition `{job_type}`; it was never applied, or was removed"))
        }),
    };
    action.map_err(Failure::BadPayload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_starts_while_too_much_output_waits_to_be_recorded() {
        let now = Instant::now();
        let task = |id| Task {
            run: Claimed::example(id),
            stop: Arc::new(Stop::new(now, Duration::ZERO)),
            submitted: now,
        };
        let mut tasks =
            Tasks { waiting: [1, 2].map(task).into(), bytes: BYTES_UNRECORDED, ..Tasks::default() };
        let started = |tasks: &mut Tasks| tasks.take().map(|task| task.run.id);
        assert_eq!(started(&mut tasks), Some(1));
        tasks.unrecorded = 1;
        assert_eq!(started(&mut tasks), None);
        tasks.bytes = 0;
        assert_eq!(started(&mut tasks), Some(2));
    }
}
