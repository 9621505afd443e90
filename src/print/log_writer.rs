//! Writes the log to stderr in a thread of its own. A stopped terminal or a full pipe would
//! otherwise keep a tick from renewing leases and from handling signals.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::text::duration::MINUTE;

/// The most bytes that wait for the thread. If a line would exceed that, it is dropped.
const CAPACITY: usize = 4 * 1024 * 1024;
/// The most bytes of one write. `finish` sees progress after each write.
const CHUNK: usize = 4096;
/// How long the thread waits for more lines after the first one.
const BATCH_DELAY: Duration = Duration::from_micros(500);
/// How long the end of the process waits for the next write of the log. If none comes, the process
/// ends without the rest of the lines.
const STALL_TIMEOUT: Duration = MINUTE;

static LOG: Log = Log { waiting: Mutex::new(Buffer::NONE), changed: Condvar::new() };

/// The format of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    /// An object a line.
    Json,
}

static LOG_FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Sets the format of all lines.
pub(super) fn set_format(format: LogFormat) {
    // Fails only if it was set before; the log is started once.
    let _ = LOG_FORMAT.set(format);
}

/// Returns whether the lines of the log are JSON.
pub(super) fn is_json() -> bool {
    LOG_FORMAT.get() == Some(&LogFormat::Json)
}

/// The lines that wait for the thread. `changed` is notified of the first line that waits, and
/// after each write.
struct Log {
    waiting: Mutex<Buffer>,
    changed: Condvar,
}

struct Buffer {
    text: Vec<u8>,
    /// Lines dropped because the buffer was full.
    dropped: usize,
    /// Bytes that the thread has taken and not written yet.
    writing: usize,
    /// Whether the thread is running.
    has_thread: bool,
}

impl Buffer {
    const NONE: Self = Self { text: Vec::new(), dropped: 0, writing: 0, has_thread: false };
}

/// The target of the log.
pub(super) struct LogWriter;

impl Write for LogWriter {
    /// Buffers whole lines for the thread.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut waiting = LOG.waiting();
        if waiting.text.len() + lines.len() > CAPACITY {
            waiting.dropped += 1;
            return Ok(lines.len());
        }
        waiting.text.extend_from_slice(lines);
        if !waiting.has_thread {
            waiting.has_thread =
                thread::Builder::new().name("log".to_owned()).spawn(|| LOG.write()).is_ok();
        }
        if !waiting.has_thread {
            // Without a thread, write here, and wait until that is done.
            let text = std::mem::take(&mut waiting.text);
            return io::stderr().write_all(&text).map(|()| lines.len());
        }
        // The thread sleeps only while nothing waits.
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
    fn waiting(&self) -> MutexGuard<'_, Buffer> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the waiting lines, forever: the thread ends with the process.
    fn write(&self) {
        let mut waiting = self.waiting();
        loop {
            if waiting.text.is_empty() {
                drop(self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner));
                // Batch lines: a wake-up costs more than a write.
                thread::sleep(BATCH_DELAY);
                waiting = self.waiting();
                continue;
            }
            let mut text = std::mem::take(&mut waiting.text);
            let dropped = std::mem::take(&mut waiting.dropped);
            if dropped > 0 {
                // The note comes after the buffered lines, which are older than the dropped ones.
                text.extend_from_slice(lost(dropped).as_bytes());
            }
            waiting.writing = text.len();
            for chunk in text.chunks(CHUNK) {
                drop(waiting);
                // If stderr is closed, nothing else can report it.
                let _ = io::stderr().write_all(chunk);
                waiting = self.waiting();
                waiting.writing -= chunk.len();
                self.changed.notify_all();
            }
        }
    }
}

/// Returns the note that lines were dropped.
fn lost(lines: usize) -> String {
    if is_json() {
        format!("{{\"level\":\"warn\",\"message\":\"{lines} lines dropped\"}}\n")
    } else {
        format!("{lines} lines dropped\n")
    }
}

/// Waits until the log is written, or until nothing was written for `STALL_TIMEOUT`.
pub(crate) fn finish() {
    let mut waiting = LOG.waiting();
    let mut until = Instant::now() + STALL_TIMEOUT;
    while waiting.has_thread && waiting.writing + waiting.text.len() > 0 {
        let time_left = until.saturating_duration_since(Instant::now());
        if time_left.is_zero() {
            return;
        }
        let before = waiting.writing;
        waiting =
            LOG.changed.wait_timeout(waiting, time_left).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.writing != before {
            until = Instant::now() + STALL_TIMEOUT;
        }
    }
}
