//! A bounded pool of threads. Threads are started when there is work for them. Tasks that no thread
//! has started can be withdrawn. The pool does not know the meaning of a task.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::Stop;

/// While more bytes of output than this wait to be recorded, no task is started.
const BYTES_UNRECORDED: usize = 4 * 1024 * 1024;

/// The state of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolState {
    /// The maximum number of threads. It is lower than wanted if the system has no more.
    pub(crate) size: usize,
    /// How many tasks run.
    pub(crate) running: usize,
    /// How many tasks wait for a thread.
    pub(crate) waiting: usize,
    /// Since when the oldest waiting task waits.
    pub(crate) oldest: Option<Instant>,
}

/// When the pool wakes its owner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum WakeWhen {
    #[default]
    Never,
    /// As soon as at most `waiting` tasks wait for a thread, or at least `ended` results or `bytes`
    /// of their output wait for the owner.
    Shortage { waiting: usize, ended: usize, bytes: usize },
    /// As soon as any task has ended.
    Ended,
}

/// Threads that turn tasks `T` into results `R`.
pub(crate) struct Pool<T, R> {
    shared: Arc<Shared<T, R>>,
    /// The maximum number of threads.
    size: usize,
    /// How many threads were started. They never end.
    threads: usize,
}

type Work<T, R> = dyn Fn(T, &Stop) -> R + Send + Sync;

/// What the owner and the threads share.
struct Shared<T, R> {
    tasks: Mutex<Tasks<T, R>>,
    /// Wakes the threads that wait for a task.
    arrived: Condvar,
    /// Runs a task, and returns its result.
    work: Box<Work<T, R>>,
    /// Returns the number of bytes of output in a result.
    bytes: fn(&R) -> usize,
    /// Wakes the owner.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A task that waits for a thread.
struct QueuedTask<T> {
    task: T,
    stop: Arc<Stop>,
    submitted: Instant,
}

/// The tasks that wait, and the results that the owner has not taken.
struct Tasks<T, R> {
    waiting: VecDeque<QueuedTask<T>>,
    running: usize,
    ended: Vec<R>,
    /// Bytes of output in `ended`.
    bytes: usize,
    /// Bytes of output in results that the owner has taken, but not yet recorded.
    unrecorded: usize,
    wake_when: WakeWhen,
}

impl<T, R> Tasks<T, R> {
    /// Takes the next task, unless too much output waits to be recorded.
    fn take_next(&mut self) -> Option<QueuedTask<T>> {
        let is_full = self.bytes + self.unrecorded > BYTES_UNRECORDED;
        if is_full { None } else { self.waiting.pop_front() }
    }

    /// Returns whether the owner must be woken now, because the state for which it waits is
    /// reached. If so, the owner no longer counts as waiting, because it is woken only once.
    fn take_wake(&mut self) -> bool {
        let is_reached = match self.wake_when {
            WakeWhen::Never => false,
            WakeWhen::Shortage { waiting, ended, bytes } => {
                self.waiting.len() <= waiting || self.ended.len() >= ended || self.bytes >= bytes
            }
            WakeWhen::Ended => !self.ended.is_empty(),
        };
        if is_reached {
            self.wake_when = WakeWhen::Never;
        }
        is_reached
    }
}

impl<T: Send + 'static, R: Send + 'static> Pool<T, R> {
    /// Returns a pool of at most `size` threads. The first tasks start them.
    ///
    /// - `work` runs a task on a thread and returns its result.
    /// - `bytes` returns how many bytes of output a result has.
    /// - `wake` wakes the owner, on the thread of a task that has ended.
    pub(crate) fn new(
        size: usize,
        work: impl Fn(T, &Stop) -> R + Send + Sync + 'static,
        bytes: fn(&R) -> usize,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let tasks = Mutex::new(Tasks {
            waiting: VecDeque::new(),
            running: 0,
            ended: Vec::new(),
            bytes: 0,
            unrecorded: 0,
            wake_when: WakeWhen::Never,
        });
        let (arrived, work, wake) = (Condvar::new(), Box::new(work), Box::new(wake));
        Self { shared: Arc::new(Shared { tasks, arrived, work, bytes, wake }), size, threads: 0 }
    }

    /// Returns how many tasks run and wait.
    pub(crate) fn state(&self) -> PoolState {
        let tasks = self.shared.tasks();
        let oldest = tasks.waiting.front().map(|task| task.submitted);
        let (running, waiting) = (tasks.running, tasks.waiting.len());
        PoolState { size: self.size, running, waiting, oldest }
    }

    /// Adds tasks, in the order in which they are to start. Fails if the system refuses even a
    /// single thread.
    pub(crate) fn submit(&mut self, tasks: Vec<(T, Arc<Stop>)>) -> io::Result<()> {
        let submitted = Instant::now();
        let mut queue = self.shared.tasks();
        for (task, stop) in tasks {
            queue.waiting.push_back(QueuedTask { task, stop, submitted });
        }
        let idle = self.threads - queue.running;
        let more_threads = queue.waiting.len().saturating_sub(idle).min(self.size - self.threads);
        drop(queue);
        self.shared.arrived.notify_all();
        for _ in 0..more_threads {
            let shared = Arc::clone(&self.shared);
            match thread::Builder::new().spawn(move || shared.work()) {
                Ok(_) => self.threads += 1,
                Err(error) if self.threads == 0 => return Err(error),
                // Go on with fewer threads.
                Err(error) => {
                    let (size, wanted) = (self.threads, self.size);
                    log::warn!("cannot run {wanted} jobs at a time, only {size}: {error}");
                    self.size = self.threads;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Withdraws the tasks that no thread has started.
    pub(crate) fn withdraw(&self) -> Vec<T> {
        self.shared.tasks().waiting.drain(..).map(|task| task.task).collect()
    }

    /// Lets the pool wake its owner once, when the state `wake_when` is reached. Returns true if
    /// this state is reached already. Then nothing wakes the owner. `unrecorded` is the number of
    /// bytes of output that the owner has taken, but not yet recorded.
    pub(crate) fn wake_when(&self, wake_when: WakeWhen, unrecorded: usize) -> bool {
        let mut tasks = self.shared.tasks();
        if unrecorded < tasks.unrecorded {
            // Threads may wait because too much was unrecorded.
            self.shared.arrived.notify_all();
        }
        tasks.unrecorded = unrecorded;
        tasks.wake_when = wake_when;
        tasks.take_wake()
    }

    /// Takes the results of the tasks that have ended.
    pub(crate) fn take_ended(&self) -> Vec<R> {
        let mut tasks = self.shared.tasks();
        tasks.bytes = 0;
        std::mem::take(&mut tasks.ended)
    }
}

impl<T, R> Shared<T, R> {
    /// Locks the tasks.
    fn tasks(&self) -> MutexGuard<'_, Tasks<T, R>> {
        // No code under this lock can panic.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one task after the other on this thread. Never returns: the thread ends with the
    /// process.
    fn work(&self) {
        let mut ended = None;
        loop {
            let QueuedTask { task, stop, .. } = self.next(ended);
            ended = Some((self.work)(task, &stop));
        }
    }

    /// Hands over the result of the task that has ended, if there is one, and waits for the next
    /// task.
    fn next(&self, ended: Option<R>) -> QueuedTask<T> {
        let mut tasks = self.tasks();
        if let Some(ended) = ended {
            tasks.running -= 1;
            tasks.bytes += (self.bytes)(&ended);
            tasks.ended.push(ended);
        }
        loop {
            let task = tasks.take_next();
            if tasks.take_wake() {
                (self.wake)();
            }
            if let Some(task) = task {
                tasks.running += 1;
                return task;
            }
            tasks = self.arrived.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_task_starts_while_too_much_output_waits_to_be_recorded() {
        let now = Instant::now();
        let stop = Arc::new(Stop::new(now, Duration::ZERO));
        let task = |task| QueuedTask { task, stop: Arc::clone(&stop), submitted: now };
        let pool = Pool::new(0, |_: i64, _| (), |()| 0, || ());
        let mut tasks = pool.shared.tasks();
        tasks.waiting = [1, 2].map(task).into();
        tasks.bytes = BYTES_UNRECORDED;
        let started = |tasks: &mut Tasks<_, _>| tasks.take_next().map(|task| task.task);
        assert_eq!(started(&mut tasks), Some(1));
        tasks.unrecorded = 1;
        assert_eq!(started(&mut tasks), None);
        tasks.bytes = 0;
        assert_eq!(started(&mut tasks), Some(2));
    }
}
