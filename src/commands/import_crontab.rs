//! `jobctl import-crontab`: turns a crontab into a definitions file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, ValueHint};

use super::DatabaseFlags;
use super::arguments::{length, time};
use crate::exit::{Exit, Fault};
use crate::files::{self, SETTINGS_LIMIT};
use crate::job::crontab::{self, Imported, ImportedJob, Owner};
use crate::job::definition::{self, Definition};
use crate::print;
use crate::schedule::{Zone, cron};
use crate::text::duration::{DAY, MINUTE};
use crate::text::plural;

/// Turn a crontab into a definitions file
///
/// Prints the file that `apply` reads, and a warning for each line that needs a
/// person. It exits 1 if it left out a line that cron runs, other than those of
/// `jobctl init`. With --compare, it prints whether cron and jobctl start each
/// line at the same times, and exits 1 if not. Needs no database:
///
///   crontab -l | jobctl import-crontab - >jobs.toml
///   crontab -l | jobctl import-crontab - --compare 7d
///   jobctl import-crontab /etc/cron.d/app
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The crontab, of at most 1 MiB; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// The lines name a user; assumed for /etc/crontab and /etc/cron.d
    #[arg(long)]
    system: bool,
    /// Time zone of the schedules, unless CRON_TZ sets it [default: this host's]
    #[arg(long, value_name = "TZ", value_parser = Zone::parse)]
    time_zone: Option<Zone>,
    /// Compare the times of cron with the times of jobctl, for this long
    // The limit is a year, because cron's part takes a step for each minute.
    #[arg(long, value_name = "DURATION", value_parser = length(MINUTE, 366 * DAY))]
    compare: Option<Duration>,
    /// Compare the times after this one: RFC 3339, with its offset [default: now]
    #[arg(long, value_name = "TIME", requires = "compare", value_parser = time)]
    from: Option<DateTime<Utc>>,
}

impl Arguments {
    pub(crate) fn run(self, _: &DatabaseFlags) -> anyhow::Result<Exit> {
        let bytes = files::input(&self.file)
            .and_then(|file| files::read(file, SETTINGS_LIMIT))
            .with_context(|| format!("cannot read `{}`", self.file))?;
        // Comments may have any encoding; a command that is not UTF-8 is left out.
        let text = String::from_utf8_lossy(&bytes);
        if let Some(why) = crontab::refusal(&text) {
            let why = format!("cannot import `{}`: {why}", self.file);
            return Err(Fault::new(Exit::CouldNot, why).into());
        }
        // As jobs, the lines of `init` would start ticks in ticks.
        let text = super::crontab::without_block(&text).unwrap_or_else(|| text.into_owned());
        let is_system = is_of_system(&self.file);
        if is_system && !self.system {
            print::complain(&format!(
                "the lines of {} name a user: --system is assumed",
                self.file
            ));
        }
        let owner = if is_system || self.system { Owner::System } else { Owner::User };
        let zone = self.time_zone.as_ref().map_or_else(host_zone, |zone| zone.name().to_owned());
        // The host's clock only selects the times to compare.
        let from = self.from.unwrap_or_else(|| SystemTime::now().into());
        let accounts = accounts();
        let is_account = |word: &str, path: Option<&str>| is_account(&accounts, word, path);
        let imported = crontab::import(&text, owner, &zone, from, &is_account);
        for (line, why) in &imported.warnings {
            print::complain(&format!("{}:{line}: {why}", self.file));
        }
        let is_same = match self.compare {
            Some(length) => compare(&imported, from, from + length)?,
            None => print::answer(&imported.file).map(|()| true)?,
        };
        Ok(if is_same && !imported.is_incomplete { Exit::Done } else { Exit::CouldNot })
    }
}

/// Prints the times of each line at which only one of cron and jobctl starts it. Returns whether
/// there are none.
fn compare(imported: &Imported, from: DateTime<Utc>, until: DateTime<Utc>) -> anyhow::Result<bool> {
    let definitions = definition::read(&imported.file, from).map_err(|problems| {
        let why = problems.first().map(|problem| problem.what.as_str()).unwrap_or_default();
        Fault::new(Exit::CouldNot, format!("cannot compare: {why}"))
    })?;
    let mut is_same = true;
    for job in &imported.jobs {
        let defined = definitions.iter().find(|definition| definition.name == job.name);
        let (text, same) = compare_job(job, defined, from, until).map_err(Fault::usage)?;
        print::answer(&text)?;
        is_same &= same;
    }
    Ok(is_same)
}

/// Returns the text of a line, and whether both start it at the same times.
fn compare_job(
    job: &ImportedJob,
    defined: Option<&Definition>,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<(String, bool), String> {
    let zone = Zone::parse(&job.time_zone)?;
    let show = |at: DateTime<Utc>| zone.local(at).to_rfc3339_opts(SecondsFormat::Secs, false);
    let head = format!("line {}, {}: ", job.line, job.name);
    let by_cron = cron::starts(&job.schedule, &zone, from, until);
    let by_cron = by_cron.ok_or("cron refuses the schedule")?;
    let schedule = defined.and_then(|definition| definition.schedule.as_ref());
    let schedule = schedule.ok_or("the definition has no schedule")?;
    let by_jobctl = schedule.missed(from, until, usize::MAX).0;
    let times = |times: &[_]| plural::of(times.len() as i64, "time");
    if by_cron == by_jobctl {
        let first = by_cron.first().map(|at| format!(", first {}", show(*at)));
        let text = format!("{head}{}{}\n", times(&by_cron), first.unwrap_or_default());
        return Ok((text, true));
    }
    let (cron, jobctl) = (times(&by_cron), times(&by_jobctl));
    let mut text = format!("{head}differs: cron {cron}, jobctl {jobctl}\n");
    for at in by_cron.iter().chain(&by_jobctl).collect::<BTreeSet<_>>() {
        let [cron, jobctl] =
            [&by_cron, &by_jobctl].map(|times| times.iter().filter(|other| *other == at).count());
        if cron != jobctl {
            text += &format!("  {}  cron {cron}  jobctl {jobctl}\n", show(*at));
        }
    }
    Ok((text, false))
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

/// Returns whether a word is a user of this host, and not a program in this `PATH` or jobctl's own.
fn is_account(accounts: &BTreeSet<String>, word: &str, path: Option<&str>) -> bool {
    let paths = [path.map(OsString::from), env::var_os("PATH")];
    let is_program = |path: OsString| env::split_paths(&path).any(|it| it.join(word).exists());
    accounts.contains(word) && !paths.into_iter().flatten().any(is_program)
}

/// Returns the time zone of this host, or UTC if its name can't be found out.
fn host_zone() -> String {
    let linked = fs::canonicalize("/etc/localtime").ok();
    let linked = linked.as_ref().and_then(|path| path.to_str()?.split_once("/zoneinfo/"));
    let candidates =
        [env::var("TZ").ok(), linked.map(|(_, name)| name.to_owned()), time_zone_file()];
    let mut names = candidates.into_iter().flatten().map(|name| name.trim().to_owned());
    names.find(|name| Zone::parse(name).is_ok()).unwrap_or_else(|| "UTC".to_owned())
}

fn time_zone_file() -> Option<String> {
    let file = files::open(Path::new("/etc/timezone")).ok()?;
    files::read_text(file, SETTINGS_LIMIT).ok()
}
