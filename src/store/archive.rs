//! The file to which `prune` appends runs before it deletes them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::files;
use crate::text::duration;

/// How long to wait for another program's lock. Another prune keeps the lock for the time of a
/// write.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often a waiting prune tries to lock the file.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// A file of JSON Lines.
#[derive(Debug)]
pub(crate) struct Archive(File);

impl Archive {
    /// Opens the file, or creates one that only its owner can read: payloads may be secret.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        files::append_to(path).map(Self)
    }

    /// Appends lines, and returns when they are on disk. If that fails, the file is as before.
    pub(super) fn append<'a>(&self, lines: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        if text.is_empty() {
            return Ok(());
        }
        self.lock()?;
        let result = self.append_locked(text.as_bytes());
        flock(&self.0, FlockOperation::Unlock)?;
        result
    }

    /// Locks the file, because another prune may append to it. Does not wait for long, because the
    /// transaction that deletes the runs is open.
    fn lock(&self) -> io::Result<()> {
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOCK_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let waited = duration::show(LOCK_WAIT);
                    return Err(io::Error::other(format!(
                        "another program has kept a lock (flock) on the file for {waited}"
                    )));
                }
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Appends to the locked file. If a write fails, shortens the file to its old length.
    fn append_locked(&self, text: &[u8]) -> io::Result<()> {
        let old_length = self.0.metadata()?.len();
        let result = write_at_end(&self.0, old_length, text);
        if result.is_err() {
            // Return the error of the write, not that of the clean-up.
            let _ = self.0.set_len(old_length);
        }
        result
    }
}

/// Appends to a file of this length, and returns when the text is on disk. If a crash has left a
/// part of a line at the end of the file, ends that line first.
fn write_at_end(mut file: &File, length: u64, text: &[u8]) -> io::Result<()> {
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(text)?;
    file.sync_all()
}
