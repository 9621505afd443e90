//! Turns signals into events of the tick, and what it does about them. From here on they end nothing by themselves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::{Event, Phase, Tick};
use crate::duration;
use crate::execute::Stop;
use crate::model::Why;

/// So long signals may be kept while nothing runs: most ticks have ended by then, and a thread to start and to
/// end is a twentieth of their time.
pub(super) const KEPT: Duration = Duration::from_millis(100);
/// What executions get to end after they were told to, before the process ends without them.
const END_PATIENCE: Duration = Duration::from_secs(15);
/// The same for a tick that runs nothing.
const IDLE_END_PATIENCE: Duration = Duration::from_secs(1);

/// Catches signals. Called before the first connection, so that no signal is missed. Processes that
/// are started later get the default action of these signals, even if jobctl's parent ignored them.
/// The returned flag is set by a signal while the tick's thread waits for the database.
///
/// # Errors
/// The system refuses a handler.
pub(super) fn catch() -> io::Result<(Signals, Arc<AtomicBool>)> {
    const ALL: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
    // A log that may not grow any more is no reason to leave the runs behind: writing to it fails instead.
    flag::register(SIGXFSZ, Arc::default())?;
    // Register these before the flags: a signal that only sets a flag does not stop the tick.
    let signals = Signals::new(ALL)?;
    let caught = Arc::default();
    for signal in ALL {
        flag::register(signal, Arc::clone(&caught))?;
    }
    Ok((signals, caught))
}

/// Hands on those that were caught, and what comes.
///
/// # Errors
/// The system refuses a thread.
fn forward(mut signals: Signals, events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Tick {
    /// Has signals handed on as soon as there may be something to stop: runs are being claimed.
    pub(super) fn forward_signals(&mut self) {
        let kept = self.asked.is_none() && self.started.elapsed() < KEPT;
        let Some(caught) = self.caught.take_if(|_| !kept) else { return };
        if let Err(error) = forward(caught, self.sender.clone()).context("cannot catch signals") {
            self.failure.get_or_insert(error);
            self.end_all();
        }
    }

    /// A signal: the first lets what runs end by itself for a while, another one does not.
    pub(super) fn stop(&mut self) {
        match self.phase {
            Phase::Working | Phase::Draining => {
                log::info!("stopping: {} running, grace {}", self.pool.running(), duration::show(self.plan.grace));
                self.phase = Phase::Stopping(Instant::now() + self.plan.grace);
                // Whether or not there is a database to give it back to.
                self.take_back_waiting();
                if self.leases.held() == 0 {
                    self.be_brief(self.plan.grace);
                }
            }
            Phase::Stopping(_) | Phase::Ending(_) => {
                self.end_all();
                self.leases.tell(Stop::hurry);
            }
        }
    }

    pub(super) fn end_all(&mut self) {
        self.leases.tell(|stop| stop.ask(Why::Interrupted));
        // However often it is called: one error after the other must not put the end off.
        if !matches!(self.phase, Phase::Ending(_)) {
            let patience = if self.leases.held() == 0 { IDLE_END_PATIENCE } else { END_PATIENCE };
            self.phase = Phase::Ending(Instant::now() + patience);
        }
    }

    /// Shortens all database timeouts, because nothing runs. An answer is awaited for at most the
    /// grace period; the last statements take a second.
    pub(super) fn be_brief(&mut self, grace: Duration) {
        if let Some(asked) = &mut self.asked {
            asked.await_until(Instant::now() + grace.max(IDLE_END_PATIENCE));
        }
        if let Some(store) = &mut self.connection.store {
            store.limit(self.timing.parting);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping(_) | Phase::Ending(_))
    }
}
