//! Keeps in a small file which ticks of its worker a host has seen in the database, so that the
//! next tick notices that a backup was restored. A tick works without this file, too.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
        let folder = self.folder.as_ref().and_then(|path| Folder::own(path).ok());
        self.seen = folder.and_then(|folder| self.stored(&folder)).unwrap_or_default();
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

    fn stored(&self, folder: &Folder) -> Option<SeenTicks> {
        serde_json::from_slice(&folder.read(&self.name, SETTINGS_LIMIT).ok()?).ok()
    }

    fn try_write(&self) -> io::Result<()> {
        let Some(path) = &self.folder else { return Ok(()) };
        let folder = Folder::own(path)?;
        let stored = self.stored(&folder);
        let is_new = stored.is_none();
        if !self.seen.replaces(&stored.unwrap_or_default()) {
            return Ok(());
        }
        if is_new {
            remove_old(&folder)?;
        }
        folder.replace(&self.name, &serde_json::to_vec(&self.seen)?)
    }
}

fn remove_old(folder: &Folder) -> io::Result<()> {
    for (file, age) in folder.list()? {
        if age.is_some_and(|age| age > KEPT) {
            // Another tick may have removed it.
            let _ = folder.remove(&file);
        }
    }
    Ok(())
}
