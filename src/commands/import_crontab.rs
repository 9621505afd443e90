//! `jobctl import-crontab`: turns a crontab into a definitions file.

use std::io::{self, Read};
use std::{env, fs};

use anyhow::Context;
use clap::{Args, ValueHint};

use super::Database;
use crate::exit::Exit;
use crate::job::crontab::{self, Owner};
use crate::print;
use crate::schedule::Zone;

/// Turn a crontab into a definitions file
///
/// Prints the file that `apply` reads, and a warning for each line that needs a
/// person. Needs no database:
///
///   crontab -l | jobctl import-crontab - >jobs.toml
///   jobctl import-crontab --system /etc/cron.d/app
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The crontab; - for stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,
    /// The lines name a user, as in /etc/crontab and /etc/cron.d
    #[arg(long)]
    system: bool,
    /// Time zone of the schedules, unless CRON_TZ sets it [default: this host's]
    #[arg(long, value_name = "TZ", value_parser = Zone::parse)]
    time_zone: Option<Zone>,
}

impl Arguments {
    pub(crate) fn run(self, _: &Database) -> anyhow::Result<Exit> {
        let text = if self.file == "-" {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            fs::read_to_string(&self.file)
        };
        let text = text.with_context(|| format!("cannot read `{}`", self.file))?;
        let owner = if self.system { Owner::System } else { Owner::User };
        let zone = self.time_zone.as_ref().map_or_else(host_zone, |zone| zone.name().to_owned());
        let imported = crontab::import(&text, owner, &zone);
        for (line, why) in &imported.warnings {
            print::complain(&format!("{}:{line}: {why}", self.file));
        }
        print::answer(&imported.file)?;
        Ok(Exit::Done)
    }
}

/// Returns the time zone of this host, or UTC if its name can't be found out.
fn host_zone() -> String {
    let linked = fs::canonicalize("/etc/localtime").ok();
    let linked = linked.as_ref().and_then(|path| path.to_str()?.split_once("/zoneinfo/"));
    let candidates = [
        env::var("TZ").ok(),
        linked.map(|(_, name)| name.to_owned()),
        fs::read_to_string("/etc/timezone").ok(),
    ];
    let mut names = candidates.into_iter().flatten().map(|name| name.trim().to_owned());
    names.find(|name| Zone::parse(name).is_ok()).unwrap_or_else(|| "UTC".to_owned())
}
