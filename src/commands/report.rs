//! `jobctl report`: one self-contained HTML page.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::geteuid;

use super::Database;
use crate::exit::{Exit, Fault};
use crate::print;
use crate::report::Page;
use crate::schedule::{When, Zone};
use crate::store::Limits;

const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(366 * 86400);
/// For a statement: a window of a year may hold many millions of runs.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// Write one HTML page that shows how the jobs are doing
///
/// It needs no other file, so a web server can serve it as it is:
///
///   */10 * * * *  jobctl report -o /var/www/jobs.html
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Look back to then: 2h, 02:00, yesterday, a date; 1m to 366d ago
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = When::parse)]
    since: When,
    /// The page's title [default: `Jobs in` and the database's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Time zone of --since and of the times shown: UTC, or an area and city as in America/New_York
    #[arg(long, value_name = "TZ", default_value = "UTC", value_parser = Zone::parse)]
    time_zone: Zone,
    /// Replace this file atomically, instead of printing the page
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let mut store = database.open()?;
        let now = store.now()?;
        let since = self.since.resolve(now, &self.time_zone);
        let window = (now - since).to_std().unwrap_or_default();
        if !(SHORTEST..=LONGEST).contains(&window) {
            let since = print::instant(since);
            let why = format!("--since {since} is out of range; allowed are 1m to 366d ago");
            return Err(Fault::usage(why).into());
        }
        let page = Page { title: self.title, window, clock: self.time_zone };
        let scope_page = page.clone();
        store.limit(Limits { statement: STATEMENT_LIMIT, ..Limits::USUAL });
        let snapshot = store.report(move |now| scope_page.scope(now))?;
        let html = page.render(&snapshot);
        match self.output.filter(|file| file.as_os_str() != "-") {
            Some(file) => {
                replace(&file, &html).with_context(|| format!("cannot write {}", file.display()))?
            }
            None => print::answer(&html)?,
        }
        Ok(Exit::Done)
    }
}

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
/// keeps its permissions.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    // Replace the target of a link, not the link.
    let file = &follow(file)?;
    let permissions = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => {
            let found = found?;
            // Renaming over a device would put a page in place of /dev/null.
            if !found.is_file() {
                bail!("it is not a file; omit -o to write to stdout");
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
        opened.write_all(text.as_bytes())?;
        opened.sync_all()?;
        fs::rename(&new, file)
    });
    if written.is_err() {
        // The error of the write matters, not that of the clean-up.
        let _ = fs::remove_file(&new);
    }
    Ok(written?)
}
