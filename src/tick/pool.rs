//! A bounded pool of threads that execute what a tick has claimed. Threads are started when there is
//! work for them, and what none has taken yet can be taken back.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Event;
use crate::action::{self, Action};
use crate::execute::{Executor, Stop};
use crate::model::{Ended, Failure, Identity, Outcome, RUN_KEY_PREFIX};
use crate::store::Claimed;
use crate::verdict::Prospect;

/// Bytes of output that wait to be recorded; with more, nothing is started.
const BYTES_UNRECORDED: usize = 4 * 1024 * 1024;

/// A claimed run on its way to a thread.
pub(super) struct Task {
    pub(super) run: Claimed,
    pub(super) stop: Arc<Stop>,
    pub(super) submitted: Instant,
}

/// A run that was executed, or found to be stopped before it could start.
pub(super) struct Attempt {
    pub(super) run: Claimed,
    pub(super) has_begun: bool,
    pub(super) ended: Ended,
    pub(super) prospect: Prospect,
    pub(super) started: Instant,
    pub(super) finished: Instant,
}

/// What the tick's thread wants to be woken for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Attention {
    /// Nothing: it has yet to hear from the database.
    #[default]
    None,
    /// No more than so many tasks wait, or so many attempts ended, or with so many bytes of output.
    Shortage { waiting: usize, ended: usize, bytes: usize },
    /// Any attempt that ends.
    Ended,
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    size: usize,
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
    ended: Vec<Attempt>,
    /// Of output, in `ended`.
    bytes: usize,
    /// Of output that the tick's thread has taken and that is not recorded.
    unrecorded: usize,
    attention: Attention,
}

impl Tasks {
    /// The next task, unless so much output waits to be recorded that there must not be more.
    fn take(&mut self) -> Option<Task> {
        if self.bytes + self.unrecorded > BYTES_UNRECORDED { None } else { self.waiting.pop_front() }
    }

    /// Whether there is what the tick's thread wants to be woken for; it is called once.
    fn calls(&mut self) -> bool {
        let calls = match self.attention {
            Attention::None => false,
            Attention::Shortage { waiting, ended, bytes } => {
                self.waiting.len() <= waiting || self.ended.len() >= ended || self.bytes >= bytes
            }
            Attention::Ended => !self.ended.is_empty(),
        };
        if calls {
            self.attention = Attention::None;
        }
        calls
    }
}

impl Pool {
    pub(super) fn new(size: usize, executor: Executor, events: Sender<Event>) -> Self {
        let shared = Shared { tasks: Mutex::default(), arrived: Condvar::new(), executor, events };
        Self { shared: Arc::new(shared), size, threads: 0 }
    }

    /// Threads at most; fewer than were asked for where the system has no more.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Hands tasks over, in the order in which they are to start.
    ///
    /// # Errors
    /// The system refuses even a single thread.
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

    /// Takes back what no thread has started.
    pub(super) fn take_back(&self) -> Vec<Task> {
        self.shared.tasks().waiting.drain(..).collect()
    }

    /// Wakes the tick's thread, once, by `Event::Ended` for what it wants; true: it is there already. So many bytes
    /// of what has ended are `unrecorded`.
    pub(super) fn attend(&self, attention: Attention, unrecorded: usize) -> bool {
        let mut tasks = self.shared.tasks();
        if unrecorded < tasks.unrecorded {
            self.shared.arrived.notify_all();
        }
        tasks.unrecorded = unrecorded;
        tasks.attention = attention;
        tasks.calls()
    }

    /// Takes what has ended.
    pub(super) fn ended(&self) -> Vec<Attempt> {
        let mut tasks = self.shared.tasks();
        tasks.bytes = 0;
        std::mem::take(&mut tasks.ended)
    }

    /// Returns the number of tasks that threads execute now.
    pub(super) fn running(&self) -> usize {
        self.shared.tasks().running
    }

    /// Tasks that no thread has started.
    pub(super) fn waiting(&self) -> usize {
        self.shared.tasks().waiting.len()
    }

    /// How long the next task has been waiting for a thread.
    pub(super) fn waiting_for(&self) -> Option<Duration> {
        self.shared.tasks().waiting.front().map(|task| task.submitted.elapsed())
    }
}

impl Shared {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // Nothing that can panic happens under this lock.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life; it ends with the process.
    fn work(&self) {
        let mut ended = None;
        loop {
            let task = self.next(ended);
            let started = Instant::now();
            let stopped = task.stop.asked();
            // A panic is a bug, but the run that met it must not take the others with it.
            let (outcome, prospect) = catch_unwind(AssertUnwindSafe(|| {
                let action = action(&task.run);
                let ended = match stopped {
                    Some(why) => Ended { outcome: Outcome::Stopped(why), ..Ended::unstarted(Failure::Signal(0)) },
                    None => attempt(&task, action.as_ref(), &self.executor),
                };
                let prospect = Prospect::of(&ended.outcome, action.as_ref().ok());
                (ended, prospect)
            }))
            .unwrap_or_else(|_| {
                let failure = Failure::Spawn("jobctl panicked; please report it".to_owned());
                (Ended::unstarted(failure), Prospect::Transient)
            });
            let (has_begun, finished) = (stopped.is_none(), Instant::now());
            ended = Some(Attempt { run: task.run, has_begun, ended: outcome, prospect, started, finished });
        }
    }

    /// Hands over what has ended, and waits for the next task.
    fn next(&self, ended: Option<Attempt>) -> Task {
        let mut tasks = self.tasks();
        if let Some(attempt) = ended {
            tasks.running -= 1;
            tasks.bytes += attempt.ended.output.text.len();
            tasks.ended.push(attempt);
        }
        loop {
            let task = tasks.take();
            if tasks.calls() {
                // Nobody listens any more when the tick has ended.
                let _ = self.events.send(Event::Ended);
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

fn attempt(task: &Task, action: Result<&Action, &Failure>, executor: &Executor) -> Ended {
    let run = &task.run;
    let action = match action {
        Ok(action) => action,
        Err(failure) => return Ended::unstarted(failure.clone()),
    };
    let identity = Identity {
        run_id: run.id,
        job: run.job_type.clone(),
        attempt: run.attempt,
        max_attempts: run.max_attempts,
        idempotency_key: run.key.clone().unwrap_or_else(|| format!("{RUN_KEY_PREFIX}{}", run.id)),
        scheduled_for: run.scheduled_for.clone(),
    };
    executor.execute(action, &identity, run.timeout, &task.stop)
}

/// What to execute: what the definition says now, or what a built-in job's payload says.
fn action(run: &Claimed) -> Result<Action, Failure> {
    let definition = run.definition.as_ref().filter(|_| !action::is_built_in(&run.job_type));
    let action = match definition {
        Some(definition) => Action::of_definition(&definition.kind, &definition.action, &run.payload)
            .map_err(|why| format!("definition `{}` can't be executed: {why}", run.job_type.escape_debug())),
        None => Action::parse(&run.job_type, &run.payload).unwrap_or_else(|| {
            Err(format!("no definition `{}`; it was never applied, or was removed", run.job_type.escape_debug()))
        }),
    };
    action.map_err(Failure::BadPayload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_started_while_too_much_output_waits_to_be_recorded() {
        let now = Instant::now();
        let task =
            |id| Task { run: Claimed::example(id), stop: Arc::new(Stop::new(now, Duration::ZERO)), submitted: now };
        let mut tasks = Tasks { waiting: [1, 2].map(task).into(), bytes: BYTES_UNRECORDED, ..Tasks::default() };
        let started = |tasks: &mut Tasks| tasks.take().map(|task| task.run.id);
        assert_eq!(started(&mut tasks), Some(1));
        tasks.unrecorded = 1;
        assert_eq!(started(&mut tasks), None);
        tasks.bytes = 0;
        assert_eq!(started(&mut tasks), Some(2));
    }
}
