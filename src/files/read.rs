//! Reads files. Does not open devices, which never end, and named pipes, which may never begin.
//! Reads each file up to a limit, because it may be larger than the memory.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{MIB, not_a_file};

/// Folders of descriptors of this process. For `<(COMMAND)`, a shell passes a pipe there, which has
/// a writer already.
const DESCRIPTORS: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];

/// Opens a plain file, or a descriptor of this process such as /dev/stdin.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    if DESCRIPTORS.iter().any(|folder| path.starts_with(folder)) {
        return options.open(path);
    }
    // Without this flag, to open a named pipe would wait for its writer.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

/// Opens a file with secrets. Fails unless it belongs to this user or to root, and no other user
/// can read it.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    let seen = file.metadata()?;
    if ![0, geteuid().as_raw()].contains(&seen.uid()) {
        let why = "it belongs to another user; run `chown`, or run jobctl as that user";
        return Err(io::Error::other(why));
    } else if !is_private(&seen) {
        return Err(io::Error::other("other users can read it; run `chmod 600`"));
    }
    Ok(file)
}

/// Returns whether only the owner can read a file. As in libpq, a file of root may be readable by a
/// group.
fn is_private(seen: &Metadata) -> bool {
    seen.mode() & (if seen.uid() == 0 { 0o037 } else { 0o077 }) == 0
}

/// Opens a file, or stdin if its name is `-`.
pub(crate) fn input(name: &str) -> io::Result<File> {
    if name == "-" {
        return Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    }
    open(Path::new(name))
}

/// Reads a file to its end. Fails if it has more than `limit` bytes.
pub(crate) fn read(file: File, limit: u64) -> io::Result<Vec<u8>> {
    // One byte more than allowed shows that the file is too long.
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let mib = limit / MIB;
        return Err(io::Error::other(format!("it is longer than {mib} MiB; name another file")));
    }
    Ok(bytes)
}

/// Reads a file of text as `read` does. Fails if it is not UTF-8.
pub(crate) fn read_text(file: File, limit: u64) -> io::Result<String> {
    String::from_utf8(read(file, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
