//! The file to which `prune` appends runs before it deletes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

/// A file of JSON Lines.
#[derive(Clone, Debug)]
pub(crate) struct Archive(Arc<File>);

impl Archive {
    /// Opens the file, or creates one that only its owner can read: payloads may be secret.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path)?;
        // Without this, a crash of the host could lose a new file's name.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Self(Arc::new(file)))
    }

    /// Appends lines, and returns when they are on disk. If that fails, the file is as before.
    pub(super) fn append<'a>(&self, lines: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        if text.is_empty() {
            return Ok(());
        }
        // Another prune may append to the same file.
        flock(&self.0, FlockOperation::LockExclusive)?;
        let appended = self.append_locked(text.as_bytes());
        flock(&self.0, FlockOperation::Unlock)?;
        appended
    }

    fn append_locked(&self, text: &[u8]) -> io::Result<()> {
        let mut file = &*self.0;
        let before = file.metadata()?.len();
        let written = (|| {
            if before > 0 {
                // A crash may have left a part of a line.
                let mut last = [0];
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    file.write_all(b"\n")?;
                }
            }
            file.write_all(text)?;
            file.sync_all()
        })();
        if written.is_err() {
            // The error of the write matters, not that of the clean-up.
            let _ = file.set_len(before);
        }
        written
    }
}
