//! Catches the signals that stop a tick.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// While nothing runs, the thread that forwards signals starts only after this time. Most ticks
/// have ended by then, and the thread would take 5 % of their time.
pub(super) const FORWARD_AFTER: Duration = Duration::from_millis(100);

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

/// Forwards each caught signal by calling `forward` in a thread of its own, until it fails: then
/// the tick has ended.
pub(super) fn forward<E>(
    mut signals: Signals,
    forward: impl Fn() -> Result<(), E> + Send + 'static,
) -> io::Result<()> {
    let work = move || signals.forever().try_for_each(|_| forward()).unwrap_or_default();
    thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}
