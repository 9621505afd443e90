//! A bounded pool of threads that execute what a tick has claimed. Threads are started when there is
//! work for them, and what none has taken yet can be taken back.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Event;
use crate::action::Action;
use crate::execute::{Caller, Stop, execute};
use crate::model::{Ended, Failure, Identity, Outcome};
use crate::store::Claimed;
use crate::verdict::Prospect;

/// A claimed run on its way to a thread.
pub(super) struct Task {
    pub(super) run: Claimed,
    pub(super) stop: Arc<Stop>,
    pub(super) submitted: Instant,
}

/// A run that was executed, or found to be stopped before it could start.
pub(super) struct Attempt {
    pub(super) run: Claimed,
    pub(super) ended: Ended,
    pub(super) prospect: Prospect,
    pub(super) started: Instant,
    pub(super) finished: Instant,
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    size: usize,
    threads: usize,
    events: Sender<Event>,
}

struct Shared {
    tasks: Mutex<Tasks>,
    arrived: Condvar,
    caller: Caller,
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    idle: usize,
}

impl Pool {
    pub(super) fn new(size: usize, caller: Caller, events: Sender<Event>) -> Self {
        let shared = Shared { tasks: Mutex::default(), arrived: Condvar::new(), caller };
        Self { shared: Arc::new(shared), size, threads: 0, events }
    }

    /// Hands tasks over, in the order in which they are to start.
    pub(super) fn submit(&mut self, tasks: Vec<Task>) {
        let mut queue = self.shared.tasks();
        queue.waiting.extend(tasks);
        let missing = queue.waiting.len().saturating_sub(queue.idle).min(self.size - self.threads);
        drop(queue);
        self.shared.arrived.notify_all();
        for _ in 0..missing {
            let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
            thread::spawn(move || shared.work(&events));
            self.threads += 1;
        }
    }

    /// Takes back what no thread has started.
    pub(super) fn take_back(&self) -> Vec<Task> {
        self.shared.tasks().waiting.drain(..).collect()
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
    fn work(&self, events: &Sender<Event>) {
        loop {
            let task = self.next();
            let started = Instant::now();
            // A panic is a bug, but the run that met it must not take the others with it.
            let action = action(&task.run);
            let ended = catch_unwind(AssertUnwindSafe(|| attempt(&task, action.as_ref(), &self.caller)))
                .unwrap_or_else(|_| Ended::unstarted(Failure::Spawn("jobctl panicked; please report it".to_owned())));
            let prospect = Prospect::of(&ended.outcome, action.as_ref().ok());
            let attempt = Attempt { run: task.run, ended, prospect, started, finished: Instant::now() };
            if events.send(Event::Ended(Box::new(attempt))).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Task {
        let mut tasks = self.tasks();
        loop {
            if let Some(task) = tasks.waiting.pop_front() {
                return task;
            }
            tasks.idle += 1;
            tasks = self.arrived.wait(tasks).unwrap_or_else(PoisonError::into_inner);
            tasks.idle -= 1;
        }
    }
}

fn attempt(task: &Task, action: Result<&Action, &Failure>, caller: &Caller) -> Ended {
    let run = &task.run;
    if let Some(why) = task.stop.asked() {
        return Ended { outcome: Outcome::Stopped(why), ..Ended::unstarted(Failure::Signal(0)) };
    }
    let action = match action {
        Ok(action) => action,
        Err(failure) => return Ended::unstarted(failure.clone()),
    };
    let identity = Identity {
        run_id: run.id,
        job: run.job_type.clone(),
        attempt: run.attempt,
        max_attempts: run.max_attempts,
        idempotency_key: run.key.clone().unwrap_or_else(|| format!("jobctl-run-{}", run.id)),
        scheduled_for: run.scheduled_for.clone(),
    };
    execute(action, &identity, run.timeout, caller, &task.stop)
}

/// What to execute: what the definition says now, or what a built-in job's payload says.
fn action(run: &Claimed) -> Result<Action, Failure> {
    let action = match &run.definition {
        Some(definition) => Action::of_definition(&definition.kind, &definition.action, &run.payload)
            .map_err(|why| format!("definition `{}` can't be executed: {why}", run.job_type.escape_debug())),
        None => Action::parse(&run.job_type, &run.payload).unwrap_or_else(|| {
            Err(format!("no definition `{}`; it was never applied, or was removed", run.job_type.escape_debug()))
        }),
    };
    action.map_err(Failure::BadPayload)
}
