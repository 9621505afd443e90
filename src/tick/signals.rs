//! Catches signals as events of the tick, and stops the tick after one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::{Event, Phase, Tick};
use crate::execute::Stop;
use crate::job::attempt::StopReason;
use crate::text::duration;

/// While nothing runs, the thread that forwards signals starts only after this time. Most ticks
/// have ended by then, and the thread would take 5 % of their time.
pub(super) const FORWARD_AFTER: Duration = Duration::from_millis(100);
/// How long to wait for jobs after they were asked to stop. Then the process exits without them.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a tick that runs nothing.
const IDLE_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Catches signals. Called before the first connection, so that no signal is missed. Processes that
/// are started later get the default action of these signals, even if jobctl's parent ignored them.
/// The returned flag is set by a signal while the tick's thread waits for the database.
pub(super) fn catch() -> io::Result<(Signals, Arc<AtomicBool>)> {
    const ALL: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
    // At the file size limit, writing to the log fails instead of killing the tick.
    flag::register(SIGXFSZ, Arc::default())?;
    // Register these before the flags: a signal that only sets a flag does not stop the tick.
    let signals = Signals::new(ALL)?;
    let caught = Arc::default();
    for signal in ALL {
        flag::register(signal, Arc::clone(&caught))?;
    }
    Ok((signals, caught))
}

impl Tick {
    /// Forwards signals as soon as there may be something to stop: runs are being claimed.
    pub(super) fn forward_signals(&mut self) {
        let is_early = self.in_flight.is_none() && self.started.elapsed() < FORWARD_AFTER;
        let Some(mut signals) = self.signals.take_if(|_| !is_early) else { return };
        let events = self.sender.clone();
        // The loop ends when the tick has ended and no event can be sent.
        let forward =
            move || signals.forever().try_for_each(|_| events.send(Event::Signal)).unwrap_or(());
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(forward);
        if let Err(error) = thread.context("cannot catch signals") {
            self.failure.get_or_insert(error);
            self.end_all();
        }
    }

    /// Reacts to a signal. After the first one running jobs may finish within the grace period.
    /// Another one kills them.
    pub(super) fn stop(&mut self) {
        match self.phase {
            Phase::Working | Phase::Draining => {
                let (running, grace) = (self.pool.running(), duration::show(self.plan.grace));
                log::info!("stopping: {running} running, grace {grace}");
                self.phase = Phase::Stopping(Instant::now() + self.plan.grace);
                // Do this even without a connection, so that the waiting runs do not start.
                self.release_waiting();
                if self.leases.held() == 0 {
                    self.shorten_timeouts(self.plan.grace);
                }
            }
            Phase::Stopping(_) | Phase::Ending(_) => {
                self.end_all();
                self.leases.for_each_stop(Stop::hurry);
            }
        }
    }

    pub(super) fn end_all(&mut self) {
        self.leases.for_each_stop(|stop| stop.ask(StopReason::Interrupted));
        // Further errors and signals must not delay the end.
        if !matches!(self.phase, Phase::Ending(_)) {
            let timeout = if self.leases.held() == 0 { IDLE_END_TIMEOUT } else { END_TIMEOUT };
            self.phase = Phase::Ending(Instant::now() + timeout);
        }
    }

    /// Shortens all database timeouts, because nothing runs. The tick waits for an answer at most
    /// for the grace period, and a second for the last statements.
    pub(super) fn shorten_timeouts(&mut self, grace: Duration) {
        if let Some(request) = &mut self.in_flight {
            let until = request.until_mut();
            *until = (*until).min(Instant::now() + grace.max(IDLE_END_TIMEOUT));
        }
        if let Some(store) = &mut self.connection.store {
            store.limit(self.timing.last_limits);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping(_) | Phase::Ending(_))
    }
}
