//! Limits errors that cron would mail every minute while the database is down or is upgraded: each
//! is printed once an hour. Notes of the last errors are small files in the user's state folder,
//! because the database cannot store them now.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::complain;
use crate::text::duration::HOUR;

/// Prints an error unless the same error was printed within the hour. At a terminal, or if no note
/// can be kept, it prints each time.
pub(crate) fn complain_hourly(line: &str) {
    let kept = if io::stderr().is_terminal() { None } else { state_folder() };
    match kept.map(|folder| was_printed(&folder.join("said"), line)) {
        Some(Ok(true)) => {}
        Some(Ok(false)) => complain(&format!("{line}; repeated after an hour at the earliest")),
        Some(Err(_)) | None => complain(line),
    }
}

/// Returns the folder of jobctl's state, by the XDG base directory specification.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| Some(env::home_dir()?.join(".local/state")))?;
    Some(state.join("jobctl"))
}

fn name(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Returns whether the line was printed within the hour; if not, notes that it is printed now.
fn was_printed(folder: &Path, line: &str) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // If root runs with the HOME of another user, that user controls the folder and may place a
    // link in it.
    if fs::symlink_metadata(folder)?.uid() != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    for said in fs::read_dir(folder)? {
        let said = said?;
        let file = said.file_name();
        let hash = file.to_str().and_then(|file| u64::from_str_radix(file, 16).ok());
        // A note from the future means that the clock was set back: remove it, too.
        let is_new = || {
            Ok::<_, io::Error>(said.metadata()?.modified()?.elapsed().is_ok_and(|age| age < HOUR))
        };
        if hash.is_some_and(|hash| file == *name(hash)) && !is_new()? {
            // Another tick may have removed it.
            let _ = fs::remove_file(said.path());
        }
    }
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    match File::create_new(folder.join(name(hasher.finish()))) {
        Ok(mut file) => writeln!(file, "{line}").map(|()| false),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(error) => Err(error),
    }
}
