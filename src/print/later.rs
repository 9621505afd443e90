//! The log on its way to stderr. Whoever logs does not wait for whoever reads it: a terminal that is stopped, or a
//! pipe that nobody empties, would keep a tick from its leases and its signals.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that wait to be written; what comes then is left out.
const MOST: usize = 4 * 1024 * 1024;
/// Bytes that are written at once.
const PIECE: usize = 4096;
/// How long a line waits for others.
const COMPANY: Duration = Duration::from_micros(500);
/// How long nothing may be written before the end does not wait for the rest: somebody may be reading.
const PATIENCE: Duration = Duration::from_secs(60);

static LOG: Log = Log { waiting: Mutex::new(Waiting::NONE), changed: Condvar::new() };

struct Log {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    text: Vec<u8>,
    /// Lines that found no room.
    left_out: usize,
    /// Bytes that the thread has taken and not written yet.
    writing: usize,
    has_thread: bool,
}

impl Waiting {
    const NONE: Self = Self { text: Vec::new(), left_out: 0, writing: 0, has_thread: false };
}

/// Where the log is written to.
pub(super) struct Later;

impl Write for Later {
    /// Takes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut waiting = LOG.waiting();
        if waiting.text.len() + lines.len() > MOST {
            waiting.left_out += 1;
            return Ok(lines.len());
        }
        waiting.text.extend_from_slice(lines);
        if !waiting.has_thread {
            waiting.has_thread = thread::Builder::new().name("log".to_owned()).spawn(|| LOG.write()).is_ok();
        }
        if !waiting.has_thread {
            // Out of threads: then it is waited for.
            let text = std::mem::take(&mut waiting.text);
            return io::stderr().write_all(&text).map(|()| lines.len());
        }
        let is_first = waiting.text.len() == lines.len();
        drop(waiting);
        if is_first {
            LOG.changed.notify_all();
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life; it ends with the process.
    fn write(&self) {
        let mut waiting = self.waiting();
        loop {
            if waiting.text.is_empty() {
                drop(self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner));
                // A line seldom comes alone, and each time that this wakes costs the others more than the lines do.
                thread::sleep(COMPANY);
                waiting = self.waiting();
                continue;
            }
            let mut text = std::mem::take(&mut waiting.text);
            let left_out = std::mem::take(&mut waiting.left_out);
            if left_out > 0 {
                // Behind what came before them.
                text.extend_from_slice(format!("{left_out} lines are left out\n").as_bytes());
            }
            waiting.writing = text.len();
            for piece in text.chunks(PIECE) {
                drop(waiting);
                // There is nowhere left to say that stderr is gone.
                let _ = io::stderr().write_all(piece);
                waiting = self.waiting();
                waiting.writing -= piece.len();
                self.changed.notify_all();
            }
        }
    }
}

/// Waits until the log is written, as long as something of it is.
pub(crate) fn finish() {
    let mut waiting = LOG.waiting();
    let mut until = Instant::now() + PATIENCE;
    while waiting.has_thread && waiting.writing + waiting.text.len() > 0 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let before = waiting.writing;
        waiting = LOG.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.writing != before {
            until = Instant::now() + PATIENCE;
        }
    }
}
