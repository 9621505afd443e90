//! Turns signals into events of the tick. From here on they end nothing by themselves.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Event;

/// So long signals may be kept while nothing runs: most ticks have ended by then, and a thread to start and to
/// end is a twentieth of their time.
pub(super) const KEPT: Duration = Duration::from_millis(100);

/// Starts to listen; before the first connection, so that none is missed. A caught signal is also
/// back at its default in every process that is started later, even where jobctl's own parent had
/// it ignored.
///
/// # Errors
/// The system refuses a handler.
pub(super) fn catch() -> io::Result<Signals> {
    Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
}

/// Hands on those that were caught, and what comes.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn forward(mut signals: Signals, events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
