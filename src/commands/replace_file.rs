//! Replaces a file atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::geteuid;

/// The sticky bit of a folder's mode: only the owner of a file may rename or remove it.
const STICKY: u32 = 0o1000;
/// The kernel's limit on links in a path.
const LINKS: usize = 40;

/// Follows links to a file. In a sticky folder such as /tmp, any user may create a link to any
/// file. There, only links of this user and of the folder's owner are followed. The kernel has the
/// same rule (`protected_symlinks`), but not every host enables it.
fn follow(file: &Path) -> anyhow::Result<PathBuf> {
    let mut path = std::path::absolute(file)?;
    for _ in 0..LINKS {
        let is_link = |part: &&Path| part.is_symlink();
        let outermost = path.ancestors().filter(is_link).last();
        let (Some(link), Some(folder)) = (outermost, outermost.and_then(Path::parent)) else {
            return Ok(path);
        };
        let (owner, folder_seen) = (fs::symlink_metadata(link)?.uid(), fs::metadata(folder)?);
        let is_sticky = folder_seen.mode() & STICKY != 0;
        if is_sticky && ![geteuid().as_raw(), folder_seen.uid()].contains(&owner) {
            bail!("{} is a link of another user; remove it, or name another file", link.display());
        }
        let mut next = folder.join(fs::read_link(link)?);
        next.extend(path.strip_prefix(link)?);
        path = next;
    }
    bail!("too many links")
}

/// Replaces a file atomically: a reader finds the old text or the new text, never a part. The file
/// keeps its permissions. `remedy` is what to do if the path is not a file.
pub(super) fn replace_file(file: &Path, text: &[u8], remedy: &str) -> anyhow::Result<()> {
    // Replace the target of a link, not the link.
    let file = &follow(file)?;
    let permissions = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => {
            let found = found?;
            // Renaming over a device would put a file in place of /dev/null.
            if !found.is_file() {
                bail!("it is not a file; {remedy}");
            }
            Some(found.permissions())
        }
    };
    let name = file.file_name().context("it has no name")?;
    let new =
        file.with_file_name(format!(".{}.{:08x}", name.to_string_lossy(), rand::random::<u32>()));
    let opened = OpenOptions::new().write(true).create_new(true).open(&new);
    let written = opened.and_then(|mut opened: File| {
        if let Some(permissions) = permissions {
            opened.set_permissions(permissions)?;
        }
        opened.write_all(text)?;
        opened.sync_all()?;
        fs::rename(&new, file)
    });
    if written.is_err() {
        // The error of the write matters, not that of the clean-up.
        let _ = fs::remove_file(&new);
    }
    Ok(written?)
}
