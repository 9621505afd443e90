//! Complaints that cron would mail every minute while a database is down: each is made once an hour. What was
//! said is kept in small files of the user's state folder, because the database is just what can't be asked.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use super::complain;

const HOUR: Duration = Duration::from_secs(3600);

/// Complains unless the same was said within the hour. Whoever sits at a terminal is told each time, and so is
/// everybody where nothing can be kept.
pub(crate) fn complain_hourly(line: &str) {
    let kept = if io::stderr().is_terminal() { None } else { folder() };
    match kept.map(|folder| was_said(&folder, line)) {
        Some(Ok(true)) => {}
        Some(Ok(false)) => complain(&format!("{line}; not said again for an hour")),
        Some(Err(_)) | None => complain(line),
    }
}

/// Where the XDG base directory specification wants such things.
fn folder() -> Option<PathBuf> {
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| Some(env::home_dir()?.join(".local/state")))?;
    Some(state.join("jobctl/said"))
}

fn name(hash: u64) -> String {
    format!("{hash:016x}")
}

fn is_ours(file: &str) -> bool {
    u64::from_str_radix(file, 16).is_ok_and(|hash| name(hash) == file)
}

/// Whether the line was said within the hour; if not, keeps that it is said now.
fn was_said(folder: &Path, line: &str) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Another user's file, if root runs with that user's HOME; or a link, which that user may own.
    if fs::symlink_metadata(folder)?.uid() != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    for said in fs::read_dir(folder)? {
        let said = said?;
        if !said.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        // A clock that was set back would keep it for longer.
        if said.metadata()?.modified()?.elapsed().is_ok_and(|age| age < HOUR) {
            continue;
        }
        // Another tick may have been faster.
        let _ = fs::remove_file(said.path());
    }
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    match File::create_new(folder.join(name(hasher.finish()))) {
        Ok(mut file) => writeln!(file, "{line}").map(|()| false),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(error) => Err(error),
    }
}
