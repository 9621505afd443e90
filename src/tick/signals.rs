//! Turns signals into events of the tick. From here on they end nothing by themselves.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Event;

/// Starts to listen; before the first connection, so that none is missed. A caught signal is also
/// back at its default in every process that is started later, even where jobctl's own parent had
/// it ignored.
///
/// # Errors
/// The system refuses a handler.
pub(super) fn forward(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
