//! Opens all files that people name: to read them, up to a limit, and to write them, by one rule.

mod note;
mod read;
mod write;

pub(crate) use note::{Note, config_folder, state_folder};
pub(crate) use read::{input, is_private, open, open_private, read, read_lossy, read_text};
pub(crate) use write::{Folder, append_to, replace, replace_or_create, replace_private};

use std::io;

/// The longest settings file that is read: a service file, a pass file, a unit, a crontab.
pub(crate) const SETTINGS_LIMIT: u64 = MIB;
pub(crate) const MIB: u64 = 1024 * 1024;

fn not_a_file() -> io::Error {
    io::Error::other("it is not a plain file; move it, or name another one")
}
