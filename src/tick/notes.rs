//! Remembers in a file which ticks of its worker a host has seen in the database, so that the next
//! tick notices that a backup was restored. A tick works without this file, too.

use std::time::Instant;

use super::Plan;
use crate::connect::Target;
use crate::files::Note;
use crate::job::seen_ticks::SeenTicks;
use crate::text::duration::MINUTE;

/// What this host remembers of a worker's ticks, and the file for it.
pub(super) struct Notes {
    /// `None`: nothing is remembered, or this user has no state folder.
    note: Option<Note>,
    pub(super) seen: SeenTicks,
    written_at: Instant,
}

impl Notes {
    /// The file about one worker in one database. The database's address is its name there.
    pub(super) fn new(database: &Target, plan: &Plan) -> Self {
        let note = || Note::of("tick", &database.to_string(), &plan.worker);
        Self {
            note: plan.is_remembered.then(note).flatten(),
            seen: SeenTicks::default(),
            written_at: Instant::now(),
        }
    }

    pub(super) fn read(&mut self) {
        self.seen = self.note.as_ref().and_then(Note::read).unwrap_or_default();
    }

    /// Writes the file if a minute has passed, because a tick may linger for a day.
    pub(super) fn write_each_minute(&mut self) {
        if self.written_at.elapsed() >= MINUTE {
            self.write();
        }
    }

    /// Writes the file, unless its ticks are about as new.
    pub(super) fn write(&mut self) {
        self.written_at = Instant::now();
        // A tick for one run reads the file, but sees no ticks to add.
        let has_seen = self.seen != SeenTicks::default();
        let Some(note) = self.note.as_ref().filter(|_| has_seen) else { return };
        if let Err(error) = note.write(&self.seen, |stored| !self.seen.replaces(stored)) {
            log::debug!(
                "cannot write the note of this tick, so later ones may miss a restore: {error}"
            );
        }
    }
}
