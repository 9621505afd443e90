//! Transactions over one connection. Each call is one of its own and leaves no state in the session, so
//! it works behind a pooler that hands each transaction to another server process.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{self, Error, Result};
use super::{query, schema};
use crate::connect::{Client, Link};

/// What the statements of a transaction are held to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest that each may run on the server.
    pub(crate) statement: Duration,
    /// Longest that each may wait for a lock there.
    pub(crate) lock: Duration,
    /// Longest that its answer may be on its way beyond that, for the network and the thread.
    pub(crate) silence: Duration,
    /// Whether they may read a table from end to end where an index would do. For a few hundred runs that are
    /// looked up by id, or stand at the head of their lane, the planner would rather read some ten thousand.
    pub(crate) whole_tables: bool,
    /// Whether all of them see one moment, and write nothing.
    pub(crate) one_moment: bool,
}

impl Limits {
    /// Those of a command that says nothing else.
    pub(crate) const USUAL: Self = Self {
        statement: Duration::from_secs(10),
        lock: Duration::from_secs(2),
        silence: Duration::from_secs(5),
        whole_tables: true,
        one_moment: false,
    };
}

/// How often a transaction that met another one is sent again.
const COLLISIONS: usize = 5;
/// How long to wait for an answer after an interruption.
const INTERRUPTED: Duration = Duration::from_secs(1);
/// How often a wait checks for an interruption.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Session {
    link: Link,
    checks: Cell<bool>,
    interrupted: Arc<AtomicBool>,
}

impl Session {
    pub(super) fn over(link: Link) -> Self {
        Self { link, checks: Cell::new(false), interrupted: Arc::default() }
    }

    /// When this flag is set, a wait for an answer ends early.
    pub(super) fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupted = flag;
    }

    /// Has the next transaction make sure of the schema's version before it does anything; that costs it
    /// no round trip.
    pub(super) fn check_version(&self) {
        self.checks.set(true);
    }

    /// Runs `work` in a transaction. `doing` completes "cannot ...".
    pub(super) fn transact<T: Send + 'static>(
        &self,
        doing: &'static str,
        limits: Limits,
        work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T> {
        self.send(doing, limits, work, || ()).wait(&self.interrupted)
    }

    /// Sends `work` to be done in a transaction, and calls `answered` when it is.
    pub(super) fn send<T: Send + 'static>(
        &self,
        doing: &'static str,
        limits: Limits,
        work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) -> Pending<T> {
        let (answer, answers) = mpsc::channel();
        let checks = self.checks.take();
        let stage = Arc::new(Stage::default());
        let seen = Arc::clone(&stage);
        self.link.send(move |client| {
            // Nobody listens any more when the answer came too late.
            let _ = answer.send(transaction(client, doing, limits, checks, &seen, &work));
            answered();
        });
        Pending { doing, answers, stage, until: Instant::now() + limits.statement + limits.silence }
    }
}

/// An answer that is on its way.
pub(crate) struct Pending<T> {
    doing: &'static str,
    answers: mpsc::Receiver<Result<T>>,
    stage: Arc<Stage>,
    /// Without an answer until then the server is taken for silent.
    pub(crate) until: Instant,
}

impl<T> Pending<T> {
    /// Waits for the answer. After an interruption it waits for at most `INTERRUPTED`.
    fn wait(mut self, interrupted: &AtomicBool) -> Result<T> {
        let mut may_be_interrupted = !interrupted.load(Ordering::Relaxed);
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(LOOK)) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) if left > LOOK => {}
                Err(_) => return Err(self.give_up()),
            }
            if may_be_interrupted && interrupted.load(Ordering::Relaxed) {
                may_be_interrupted = false;
                self.until = self.until.min(Instant::now() + INTERRUPTED);
            }
        }
    }

    /// The answer, if it is there.
    pub(crate) fn poll(&self) -> Option<Result<T>> {
        match self.answers.try_recv() {
            Ok(done) => Some(done),
            Err(TryRecvError::Empty) if Instant::now() < self.until => None,
            Err(_) => Some(Err(self.give_up())),
        }
    }

    fn give_up(&self) -> Error {
        match self.stage.turn(At::Abandoned) {
            At::Commit => Error::silent_at_commit(self.doing),
            At::Work | At::Abandoned => Error::silent(self.doing),
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.stage.turn(At::Abandoned);
    }
}

/// The stage of a transaction, shared by the thread that runs it and the thread that waits for it.
/// A transaction that nothing waits for is not committed.
#[derive(Default)]
struct Stage(Mutex<At>);

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum At {
    #[default]
    Work,
    /// COMMIT was sent.
    Commit,
    /// Nothing waits for the answer any more.
    Abandoned,
}

impl Stage {
    /// Moves to `next` unless the transaction is abandoned; returns the previous stage.
    fn turn(&self, next: At) -> At {
        let mut at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *at;
        if before != At::Abandoned {
            *at = next;
        }
        before
    }
}

fn transaction<T>(
    client: &mut Client,
    doing: &str,
    limits: Limits,
    checks: bool,
    stage: &Stage,
    work: &impl Fn(&mut Client) -> std::result::Result<T, postgres::Error>,
) -> Result<T> {
    // The queries name their schema; whoever may create a function in `public` must not get it called
    // in place of one of PostgreSQL's own. What they read is mostly in memory: with costs meant for disks
    // that seek, a batch of a few runs would be looked up by reading all of them, and compiling a plan
    // takes longer than any of them runs.
    let Limits { statement, lock, whole_tables, one_moment, .. } = limits;
    let isolation = if one_moment { "REPEATABLE READ, READ ONLY" } else { "READ COMMITTED" };
    // A host that is frozen or cut off in the midst of a transaction would keep what it has locked from everybody
    // until TCP gives up, after hours: hence the limit for being idle.
    let begin = format!(
        "BEGIN ISOLATION LEVEL {isolation}; SET LOCAL search_path = pg_catalog, pg_temp; \
         SET LOCAL random_page_cost = 1.1; SET LOCAL jit = off; SET LOCAL enable_seqscan = {whole_tables}; \
         SET LOCAL statement_timeout = {0}; SET LOCAL idle_in_transaction_session_timeout = {0}; \
         SET LOCAL lock_timeout = {1}; {2}",
        statement.as_millis(),
        lock.as_millis(),
        if checks { query!("schema_version") } else { "" }
    );
    let mut collisions = 0;
    loop {
        stage.turn(At::Work);
        let begun = client.simple_query(&begin).map_err(|error| Error::of(doing, &error));
        if let Err(error) = begun.and_then(|answers| if checks { schema::check(&answers) } else { Ok(()) }) {
            let _ = client.batch_execute("ROLLBACK");
            return Err(error);
        }
        let done = work(client);
        let at_commit = done.is_ok();
        if at_commit && stage.turn(At::Commit) == At::Abandoned {
            let _ = client.batch_execute("ROLLBACK");
            return Err(Error::silent(doing));
        }
        match done.and_then(|done| client.batch_execute("COMMIT").map(|()| done)) {
            Ok(done) => return Ok(done),
            Err(error) => {
                // Where the connection is gone, so is the transaction.
                let _ = client.batch_execute("ROLLBACK");
                if error::is_read_only(&error) && is_set_read_only(client) {
                    return Err(Error::read_only(doing));
                }
                if !error::is_collision(&error) || collisions == COLLISIONS {
                    return Err(if at_commit { Error::of_commit(doing, &error) } else { Error::of(doing, &error) });
                }
            }
        }
        collisions += 1;
        thread::sleep(Duration::from_millis(rand::random_range(1..20)));
    }
}

/// Returns whether a setting makes the session read-only; otherwise the server is a standby.
fn is_set_read_only(client: &mut Client) -> bool {
    matches!(client.session_state(), Ok(Some(state)) if !state.standby && state.read_only)
}
