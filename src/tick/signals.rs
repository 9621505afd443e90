//! The signals that stop a tick, and the pipe on which its driver waits for them, the pool and a
//! connection.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals that this process catches, and the pipe that ends a wait.
pub(super) struct Signals {
    /// Each signal writes a byte that is not zero into this pipe, and each waker a zero.
    signals: SignalDelivery<UnixStream, SignalOnly>,
    sender: Arc<UnixStream>,
    /// Set by a signal, until `take` has returned it.
    interrupted: Arc<AtomicBool>,
}

impl Signals {
    /// Catches the signals that stop a tick. Called before the first connection, so that no signal
    /// is missed. Processes that are started later get the default action of these signals, even if
    /// jobctl's parent ignored them.
    pub(super) fn catch() -> io::Result<Self> {
        const ALL: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        // At the file size limit, writing to the log fails instead of killing the tick.
        flag::register(SIGXFSZ, Arc::default())?;
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let waker = Arc::new(sender.try_clone()?);
        // Register this before the flag: a signal that only sets the flag does not stop the tick.
        let signals = SignalDelivery::with_pipe(receiver, sender, SignalOnly, ALL)?;
        let interrupted = Arc::default();
        for signal in ALL {
            flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(Self { signals, sender: waker, interrupted })
    }

    /// Returns a function that ends `wait`.
    pub(super) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let sender = Arc::clone(&self.sender);
        // If the pipe is full, `wait` ends anyway.
        move || drop((&*sender).write(&[0]))
    }

    /// Returns a flag that is set while a signal has come and `take` has not returned it.
    pub(super) fn interrupted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// Sleeps until this time, or until a signal or a waker ends the wait.
    pub(super) fn wait(&self, until: Option<Instant>) {
        let time_left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // A time that `poll` can't express is so far away that this waits without a limit.
        let time_left = time_left.and_then(|time_left| Timespec::try_from(time_left).ok());
        // Ignore the result: a signal that interrupts the call has also written to the pipe, and
        // the caller looks at everything after each wait.
        let _ =
            poll(&mut [PollFd::new(self.signals.get_read(), PollFlags::IN)], time_left.as_ref());
    }

    /// Returns how many signals have come since the last call.
    pub(super) fn take(&self) -> usize {
        // Clear the flag before the read. If a signal comes in between, the read returns it, and
        // the flag, which it sets again, shortens one wait.
        self.interrupted.store(false, Ordering::Relaxed);
        let mut bytes = [0; 64];
        let read = self.signals.get_read().read(&mut bytes).unwrap_or(0);
        // `SignalDelivery::pending` would return two signals of one kind as one.
        bytes[..read].iter().filter(|byte| **byte != 0).count()
    }
}
