//! `jobctl import-crontab`: turns a crontab into a definitions file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;
use std::{env, fs};

use anyhow::Context;
use clap::{Args, ValueHint};
use cron_zone::Zone;

use super::DatabaseFlags;
use crate::exit::{Exit, Fault};
use crate::files::{self, SETTINGS_LIMIT};
use crate::job::crontab_import::{self, Owner};
use crate::print;

/// Turn a crontab into a definitions file
///
/// Prints the file that `apply` reads, and a warning for each line that needs a
/// person. It exits 1 if it left out a line that cron runs, other than those of
/// `jobctl init`. Needs no database:
///
///   crontab -l | jobctl import-crontab - >jobs.toml
///   jobctl import-crontab /etc/cron.d/app
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The crontab, of at most 1 MiB; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// Each line names a user before its command; assumed for /etc/crontab and /etc/cron.d
    #[arg(long)]
    system: bool,
    /// Time zone of the schedules, unless CRON_TZ sets it [default: this host's]
    #[arg(long, value_name = "TZ", value_parser = Zone::parse)]
    time_zone: Option<Zone>,
}

impl Arguments {
    pub(crate) fn run(self, _: &DatabaseFlags) -> anyhow::Result<Exit> {
        let bytes = files::input(&self.file)
            .and_then(|file| files::read(file, SETTINGS_LIMIT))
            .with_context(|| format!("cannot read `{}`", self.file))?;
        // Bytes that are not UTF-8 are no error: comments may have any encoding, and the import
        // leaves out commands with such bytes.
        let text = String::from_utf8_lossy(&bytes);
        if let Some(why) = crontab_import::refusal(&text) {
            let why = format!("cannot import `{}`: {why}", self.file);
            return Err(Fault::new(Exit::CouldNot, why).into());
        }
        // Leave out the lines of `init`: as jobs, they would start ticks in ticks.
        let text = super::crontab_block::without_block(&text).unwrap_or_else(|| text.into_owned());
        let is_system = is_of_system(&self.file);
        if is_system && !self.system {
            print::complain(&format!(
                "the lines of {} name a user: --system is assumed",
                self.file
            ));
        }
        let owner = if is_system || self.system { Owner::System } else { Owner::User };
        let zone = self.time_zone.as_ref().map_or_else(host_zone, |zone| zone.name().to_owned());
        // The host's clock suffices: it is only used to find out whether a schedule ever fires.
        let now = SystemTime::now().into();
        let accounts = accounts();
        let is_account = |word: &str, path: Option<&str>| is_account(&accounts, word, path);
        let imported = crontab_import::import(&text, owner, &zone, now, &is_account);
        for (line, why) in &imported.warnings {
            print::complain(&format!("{}:{line}: {why}", self.file));
        }
        print::answer(&imported.file)?;
        Ok(if imported.is_incomplete { Exit::CouldNot } else { Exit::Done })
    }
}

/// Returns whether cron reads a user's name in each line of this file.
fn is_of_system(file: &str) -> bool {
    let path = fs::canonicalize(file).unwrap_or_default();
    path == Path::new("/etc/crontab") || path.starts_with("/etc/cron.d")
}

/// Returns the names of this host's users.
fn accounts() -> BTreeSet<String> {
    let text = files::open(Path::new("/etc/passwd"))
        .and_then(|file| files::read_text(file, SETTINGS_LIMIT))
        .unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

/// Returns whether a word is a user of this host, but not a program in the folders of `path` or of
/// this process's PATH.
fn is_account(accounts: &BTreeSet<String>, word: &str, path: Option<&str>) -> bool {
    let paths = [path.map(OsString::from), env::var_os("PATH")];
    let is_program =
        |path: OsString| env::split_paths(&path).any(|folder| folder.join(word).exists());
    accounts.contains(word) && !paths.into_iter().flatten().any(is_program)
}

/// Returns the time zone of this host, or UTC if its name can't be found out.
pub(super) fn host_zone() -> String {
    // Usually /etc/localtime is a link to /usr/share/zoneinfo/AREA/CITY.
    let localtime = fs::canonicalize("/etc/localtime").ok();
    let linked = localtime.as_ref().and_then(|path| path.to_str()?.split_once("/zoneinfo/"));
    let candidates =
        [env::var("TZ").ok(), linked.map(|(_, name)| name.to_owned()), time_zone_file()];
    let mut names = candidates.into_iter().flatten().map(|name| name.trim().to_owned());
    names.find(|name| Zone::parse(name).is_ok()).unwrap_or_else(|| "UTC".to_owned())
}

/// Returns the time zone that Debian's `/etc/timezone` names.
fn time_zone_file() -> Option<String> {
    let file = files::open(Path::new("/etc/timezone")).ok()?;
    files::read_text(file, SETTINGS_LIMIT).ok()
}
