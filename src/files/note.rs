//! Notes: small JSON files in the user's state folder, by which a process remembers something for
//! the next one.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Folder, SETTINGS_LIMIT};
use crate::text::duration::DAY;

/// Notes that were not written for this long are deleted. Otherwise, hosts on which each container
/// is a new worker would get more and more notes.
const NOTE_LIFETIME: Duration = DAY.saturating_mul(100);

/// Returns the folder of jobctl's state; `None`: this user has none.
pub(crate) fn state_folder() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("jobctl"))
}

/// Returns the folder of this user's settings; `None`: this user has none.
pub(crate) fn config_folder() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

/// Returns a folder of the XDG base directory specification: the one in the variable, or else the
/// one in the user's home.
fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let given = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    given.or_else(|| Some(env::home_dir()?.join(in_home)))
}

/// A file in which one command remembers something about one subject.
pub(crate) struct Note {
    folder: PathBuf,
    name: OsString,
}

impl Note {
    /// Returns the note of a command about a subject in this database; `None`: this user has no
    /// state folder.
    pub(crate) fn of(command: &str, database: &str, subject: impl Hash) -> Option<Self> {
        let name = format!("{command}-{}-{}.json", hash(database), hash(subject));
        Some(Self { folder: state_folder()?, name: name.into() })
    }

    /// Deletes the notes about a database. If there are no notes about another database, deletes
    /// the whole folder.
    pub(crate) fn forget(database: &str) -> io::Result<()> {
        let Some(path) = state_folder().filter(|path| path.exists()) else { return Ok(()) };
        // Fails if another user can write to the folder: a link in it might lead elsewhere.
        let folder = Folder::own(&path)?;
        let names = folder.list()?.into_iter().map(|(name, _)| name.to_string_lossy().into_owned());
        let (forgotten, others): (Vec<_>, Vec<_>) = names
            .filter(|name| name.ends_with(".json"))
            .partition(|name| name.contains(&hash(database)));
        forgotten.iter().try_for_each(|name| folder.remove(name.as_ref()))?;
        if others.is_empty() { fs::remove_dir_all(path) } else { Ok(()) }
    }

    /// Returns the path of the note's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(Path::new(&self.name))
    }

    /// Returns the contents of the note, if it can be read.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        self.read_in(&Folder::own(&self.folder).ok()?)
    }

    /// Reads the note, in its open folder.
    fn read_in<T: DeserializeOwned>(&self, folder: &Folder) -> Option<T> {
        serde_json::from_slice(&folder.read(&self.name, SETTINGS_LIMIT).ok()?).ok()
    }

    /// Writes the note, unless `stays` returns true for the note that is there: another process may
    /// have written it since this one read it.
    pub(crate) fn write<T: DeserializeOwned + Serialize>(
        &self,
        value: &T,
        stays: impl FnOnce(&T) -> bool,
    ) -> io::Result<()> {
        let folder = Folder::own(&self.folder)?;
        match self.read_in(&folder) {
            Some(old) if stays(&old) => return Ok(()),
            Some(_) => {}
            // A process that writes its first note deletes the old notes of others.
            None => remove_old(&folder)?,
        }
        folder.replace(&self.name, &serde_json::to_vec(value)?)
    }
}

/// Returns the hash of a database or a subject, as a part of a file's name.
fn hash(text: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Deletes notes that were not written for a long time.
fn remove_old(folder: &Folder) -> io::Result<()> {
    for (file, age) in folder.list()? {
        if age.is_some_and(|age| age > NOTE_LIFETIME) {
            // Ignore an error: another process may have removed the note.
            let _ = folder.remove(&file);
        }
    }
    Ok(())
}
