//! A tick remembers in a file of its host which ticks of its worker it has seen in the database. If
//! the database has lost some of them, a backup was restored, and the next tick notices that. A
//! tick works without this file, too.

use std::time::Instant;

use super::Plan;
use crate::connect::Target;
use crate::files::Note;
use crate::job::seen_ticks::SeenTicks;
use crate::text::duration::MINUTE;

/// What this host remembers of a worker's ticks, and the file for it.
pub(super) struct Notes {
    /// `None`: the plan says to remember nothing, or this user has no state folder.
    note: Option<Note>,
    pub(super) seen: SeenTicks,
    written_at: Instant,
}

impl Notes {
    /// Returns empty notes, with the file about this worker in this database. The file names the
    /// database by its address.
    pub(super) fn new(database: &Target, plan: &Plan) -> Self {
        let note = if plan.is_remembered {
            Note::of("tick", &database.to_string(), &plan.worker)
        } else {
            None
        };
        Self { note, seen: SeenTicks::default(), written_at: Instant::now() }
    }

    /// Reads the file.
    pub(super) fn read(&mut self) {
        self.seen = self.note.as_ref().and_then(Note::read).unwrap_or_default();
    }

    /// Writes the file if a minute has passed, because a tick may linger for a day.
    pub(super) fn write_each_minute(&mut self) {
        if self.written_at.elapsed() >= MINUTE {
            self.write();
        }
    }

    /// Writes the file, unless the ticks that it names are about as new.
    pub(super) fn write(&mut self) {
        self.written_at = Instant::now();
        let Some(note) = &self.note else { return };
        if self.seen == SeenTicks::default() {
            // There is nothing to remember. For example, this was the first tick, and only for one
            // run: then it does not look at other ticks.
            return;
        }
        if let Err(error) = note.write(&self.seen, |stored| !self.seen.replaces(stored)) {
            log::debug!(
                "cannot write the note of this tick, so later ones may miss a restore: {error}"
            );
        }
    }
}
