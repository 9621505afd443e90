//! Limits the errors of ticks, which cron would mail every minute while the database is down or a
//! setting is wrong: each is printed once an hour. The last errors are remembered as small files in
//! the user's state folder, because the database may be what fails.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind, IsTerminal};
use std::path::Path;

use super::message::complain;
use crate::files::{Folder, state_folder};
use crate::text::duration::HOUR;
use crate::text::plain::line as printable;

/// Prints an error unless the same error was printed within the hour. At a terminal, or if the file
/// can't be written, prints it each time.
pub(crate) fn complain_hourly(line: &str) {
    let folder = if io::stderr().is_terminal() { None } else { state_folder() };
    match folder.map(|folder| note_printed(&folder.join("said"), line)) {
        Some(Ok(true)) => {}
        Some(Ok(false)) => complain(&format!("{line}; repeated after an hour at the earliest")),
        Some(Err(_)) | None => complain(line),
    }
}

/// Returns the name of the file of a line with this hash.
fn file_name(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Returns whether the line was printed within the hour. If not, remembers that it is printed now.
/// Each line has a file, whose name is the hash of the line.
fn note_printed(folder: &Path, line: &str) -> io::Result<bool> {
    let folder = Folder::own(folder)?;
    for (file, age) in folder.list()? {
        let hash = file.to_str().and_then(|file| u64::from_str_radix(file, 16).ok());
        // A file from the future has no age, because the clock was set back: remove it, too.
        let is_recent = age.is_some_and(|age| age < HOUR);
        if hash.is_some_and(|hash| *file == *file_name(hash)) && !is_recent {
            // Ignore an error: another tick may have removed the file.
            let _ = folder.remove(&file);
        }
    }
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    let text = printable(line) + "\n";
    match folder.create(OsStr::new(&file_name(hasher.finish())), text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        created => created.map(|()| false),
    }
}
