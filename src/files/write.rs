//! Writes files. jobctl often runs as root, and in folders that other users can write. These rules
//! keep other users from choosing which file it changes, which users read it, or which rights it
//! has:
//!
//! - A link is followed only if it belongs to this user or to root.
//! - A file of another user is never written to, and a file that replaces it does not take over its
//!   permissions.
//! - A new file gets a name that did not exist, and its permissions before its content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat, readlinkat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{not_a_file, read};

/// The most links in a path, as in the kernel.
const LINKS: usize = 40;
/// The permissions that a new file can take over from the old file which it replaces: neither a
/// setuid bit nor the right to execute it.
const TAKEN_OVER: u32 = 0o666;
/// A permission of the group or of all others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The permissions of a file that only its owner can read.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Opens a folder, also one whose names this user can't list.
const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Does not open links, and does not wait for the writer of a named pipe.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// An open folder. It stays the same if another user moves a folder of its path.
pub(crate) struct Folder(OwnedFd);

/// What happens to missing folders in a path.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Missing {
    Create,
    Fail,
}

impl Folder {
    /// Opens the folder of a file, and returns it with the file's name there. Walks from `/` folder
    /// by folder, and follows links only if they belong to this user or to root.
    fn of_file(file: &Path, missing: Missing) -> io::Result<(Self, OsString)> {
        // The parts of the path that are still to walk; the next one is the last element.
        let reversed = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut parts = reversed(&std::path::absolute(file)?);
        // The path of `folder`, for errors.
        let (mut path, mut links) = (PathBuf::from("/"), 0);
        let mut folder = openat(CWD, "/", FOLDER, Mode::empty())?;
        while let Some(part) = parts.pop() {
            match statat(&folder, &part, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(link) if file_type(&link) == FileType::Symlink => {
                    if !is_own(&link) && link.st_uid != 0 {
                        let link = path.join(&part);
                        return Err(io::Error::other(format!(
                            "{} is a link of another user; remove it, or name another file",
                            link.display()
                        )));
                    }
                    links += 1;
                    if links > LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&folder, &part, Vec::new())?;
                    parts.extend(reversed(Path::new(OsStr::from_bytes(target.as_bytes()))));
                    continue;
                }
                // The last part is the name of the file, which may be missing.
                _ if parts.is_empty() => return Ok((Self(folder), part)),
                Err(Errno::NOENT) if missing == Missing::Create => make_folder(&folder, &part)?,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            folder = openat(&folder, &part, FOLDER, Mode::empty())?;
            path.push(part);
        }
        Err(not_a_file())
    }

    /// Opens a folder, or creates it. Fails if another user can write to it.
    pub(crate) fn own(path: &Path) -> io::Result<Self> {
        let (above, name) = Self::of_file(path, Missing::Create)?;
        make_folder(&above.0, &name)?;
        let folder = openat(&above.0, &name, FOLDER, Mode::empty())?;
        let seen = fstat(&folder)?;
        if !is_own(&seen) || seen.st_mode & WRITABLE_BY_OTHERS != 0 {
            let path = path.display();
            return Err(io::Error::other(format!("another user can write to the folder {path}")));
        }
        Ok(Self(folder))
    }

    /// Replaces a file atomically: a reader finds the old text or the new text, never a part. An
    /// own file keeps its permissions.
    pub(crate) fn replace(&self, name: &OsStr, text: &[u8]) -> io::Result<()> {
        self.put(name, text, Mode::from(TAKEN_OVER))
    }

    /// Replaces a file atomically. A new file gets these permissions.
    fn put(&self, name: &OsStr, text: &[u8], new_mode: Mode) -> io::Result<()> {
        let old_mode = match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            seen => {
                let seen = seen?;
                // Otherwise, the new file would replace a device such as /dev/null.
                if file_type(&seen) != FileType::RegularFile {
                    return Err(not_a_file());
                }
                Some(Mode::from(seen.st_mode & TAKEN_OVER)).filter(|_| is_own(&seen))
            }
        };
        let new = format!(".{}.{:08x}", name.to_string_lossy(), rand::random::<u32>());
        // Until the file has the permissions of the old one, only this user can open it.
        let first_mode = if old_mode.is_some() { PRIVATE } else { new_mode };
        let mut file = self.new_file(new.as_ref(), first_mode)?;
        let written = old_mode
            .map_or(Ok(()), |old_mode| fchmod(&file, old_mode).map_err(io::Error::from))
            .and_then(|()| file.write_all(text))
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&self.0, &new, &self.0, name)?));
        if written.is_err() {
            // Ignore an error of this clean-up: the error of the write matters.
            let _ = self.remove(new.as_ref());
        }
        written
    }

    /// Creates a file with this text that only this user can read. Fails if the name exists.
    pub(crate) fn create(&self, name: &OsStr, text: &[u8]) -> io::Result<()> {
        self.new_file(name, PRIVATE)?.write_all(text)
    }

    /// Creates a file under a name that does not exist.
    fn new_file(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | SAFELY;
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    /// Reads an own file. Fails if it has more than `limit` bytes.
    pub(crate) fn read(&self, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
        let file = openat(&self.0, name, OFlags::RDONLY | SAFELY, Mode::empty())?;
        check_own(&fstat(&file)?)?;
        read(File::from(file), limit)
    }

    /// Removes a name from the folder.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Opens the folder once more, in a way that allows it to be listed and synchronised.
    fn listable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// Returns the names in the folder, and for how long each was not modified; `None` for a file
    /// from the future.
    pub(crate) fn list(&self) -> io::Result<Vec<(OsString, Option<Duration>)>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.listable()?)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            // Skip a file that another process has removed.
            if let Ok(seen) = statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW) {
                let seconds = seen.st_mtime.try_into().unwrap_or_default();
                let modified = UNIX_EPOCH + Duration::from_secs(seconds);
                found.push((name, modified.elapsed().ok()));
            }
        }
        Ok(found)
    }
}

/// Replaces a file atomically, or creates it. Fails if its folder is missing.
pub(crate) fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let (folder, name) = Folder::of_file(file, Missing::Fail)?;
    folder.replace(&name, text)
}

/// Replaces a file atomically, or creates it with its folders.
pub(crate) fn replace_or_create(file: &Path, text: &[u8]) -> io::Result<()> {
    let (folder, name) = Folder::of_file(file, Missing::Create)?;
    folder.replace(&name, text)
}

/// Replaces a file atomically, or creates it so that only this user can read it.
pub(crate) fn replace_private(file: &Path, text: &[u8]) -> io::Result<()> {
    let (folder, name) = Folder::of_file(file, Missing::Create)?;
    folder.put(&name, text, PRIVATE)
}

/// Opens an own file to read it and to append to it, or creates one that only this user can read.
pub(crate) fn append_to(file: &Path) -> io::Result<File> {
    let (folder, name) = Folder::of_file(file, Missing::Fail)?;
    match statat(&folder.0, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        // Check this before the file is opened: to open a device can have an effect.
        seen => check_own(&seen?)?,
    }
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | SAFELY;
    let opened = openat(&folder.0, &name, flags, PRIVATE)?;
    check_own(&fstat(&opened)?)?;
    // Write the folder to the disk: otherwise, a crash of the host could lose a new file's name.
    File::from(folder.listable()?).sync_all()?;
    Ok(File::from(opened))
}

/// Makes a folder that only this user can use, unless it exists.
fn make_folder(above: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match mkdirat(above, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

/// Returns the type of a file: plain, folder, link and so on.
fn file_type(seen: &Stat) -> FileType {
    FileType::from_raw_mode(seen.st_mode)
}

/// Returns whether a file belongs to this user.
fn is_own(seen: &Stat) -> bool {
    seen.st_uid == geteuid().as_raw()
}

/// Checks that no other user can write to a file, and that it has no second name, which another
/// user may have given to a file of this user.
fn check_own(seen: &Stat) -> io::Result<()> {
    if file_type(seen) != FileType::RegularFile {
        Err(not_a_file())
    } else if !is_own(seen) || seen.st_mode & WRITABLE_BY_OTHERS != 0 {
        Err(io::Error::other("another user can write to it; name another file"))
    } else if seen.st_nlink > 1 {
        Err(io::Error::other("it has a second name, a hard link; name another file"))
    } else {
        Ok(())
    }
}
