//! Keeps in a small file which ticks of its worker a host has seen in the database, so that the
//! next tick notices that a backup was restored. A tick works without this file, too.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::Plan;
use crate::connect::Target;
use crate::files::{Folder, SETTINGS_LIMIT};
use crate::health::SeenTicks;
use crate::print;
use crate::text::duration::{DAY, MINUTE};

/// A file that no tick has written for so long is deleted: each container may be another worker.
const KEPT: Duration = DAY.saturating_mul(100);

pub(super) struct Notes {
    /// `None`: no notes are kept, or this user has no state folder.
    folder: Option<PathBuf>,
    name: OsString,
    pub(super) seen: SeenTicks,
    written_at: Instant,
}

impl Notes {
    /// The notes about one worker in one database; the address is the name of the database.
    pub(super) fn new(database: &Target, plan: &Plan) -> Self {
        let mut hasher = DefaultHasher::new();
        (database.to_string(), &plan.worker).hash(&mut hasher);
        let folder = print::state_folder().filter(|_| plan.is_remembered);
        Self {
            folder: folder.map(|state| state.join("ticks")),
            name: format!("{:016x}.json", hasher.finish()).into(),
            seen: SeenTicks::default(),
            written_at: Instant::now(),
        }
    }

    pub(super) fn read(&mut self) {
        self.seen = self.stored().unwrap_or_default();
    }

    /// Writes the notes if a minute has passed, because a tick may linger for a day.
    pub(super) fn write_each_minute(&mut self) {
        if self.written_at.elapsed() >= MINUTE {
            self.write();
        }
    }

    pub(super) fn write(&mut self) {
        self.written_at = Instant::now();
        if let Err(error) = self.try_write() {
            log::debug!("cannot remember this tick: {error}");
        }
    }

    fn stored(&self) -> Option<SeenTicks> {
        let folder = Folder::own(self.folder.as_ref()?).ok()?;
        serde_json::from_slice(&folder.read(&self.name, SETTINGS_LIMIT).ok()?).ok()
    }

    fn try_write(&self) -> io::Result<()> {
        let Some(path) = &self.folder else { return Ok(()) };
        let stored = self.stored();
        if !self.seen.replaces(&stored.clone().unwrap_or_default()) {
            return Ok(());
        }
        let folder = Folder::own(path)?;
        if stored.is_none() {
            remove_old(&folder)?;
        }
        folder.replace(&self.name, &serde_json::to_vec(&self.seen)?)
    }
}

fn remove_old(folder: &Folder) -> io::Result<()> {
    for (file, modified) in folder.list()? {
        let modified = UNIX_EPOCH + Duration::from_secs(modified.try_into().unwrap_or_default());
        if modified.elapsed().is_ok_and(|age| age > KEPT) {
            // Another tick may have removed it.
            let _ = folder.remove(&file);
        }
    }
    Ok(())
}
