//! Opens all files that people name: to read them, up to a limit, and to write them, by one rule.

mod note;
mod read;
mod write;

pub(crate) use note::{Note, config_folder, state_folder};
pub(crate) use read::{input, open, open_private, read, read_text};
pub(crate) use write::{Folder, append_to, replace, replace_or_create, replace_private};

use std::io;

/// The longest settings file that is read: a unit, a crontab, a note.
pub(crate) const SETTINGS_LIMIT: u64 = MIB;
pub(crate) const MIB: u64 = 1024 * 1024;

/// The error for a folder, a device or a named pipe in the place of a file.
fn not_a_file() -> io::Error {
    io::Error::other("it is not a plain file; move it, or name another one")
}
