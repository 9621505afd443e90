//! `jobctl doctor`: is everything in order, and what to do if not.

use std::time::{Instant, SystemTime};

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;

use super::{Database, grants};
use crate::connect::Target;
use crate::exit::{Exit, Fault};
use crate::findings::{self, Clock, Finding, Identity, Link, Verdict};
use crate::fires::{self, Failing};
use crate::patience::PATIENCE;
use crate::print::{self, Cell, Form};
use crate::schedule::ZoneData;
use crate::store::{self, Mode, Store};

/// The quickest answer tells the most about the clock.
const QUESTIONS: usize = 3;

/// Check that all is in order, and say what to do if not
///
/// Changes nothing. Each line is ok, warn, bad (needs a person: exit status 1) or
/// unknown (this role may not see it). Run it as the user whose crontab it is:
///
///   jobctl doctor
///   jobctl doctor --crontab
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Print what to paste into a crontab; needs no database
    #[arg(long, conflicts_with = "json")]
    crontab: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        if self.crontab {
            let program = std::env::current_exe().context("cannot find out where jobctl is")?;
            let program = program.to_str().filter(|path| !path.contains(char::is_control));
            let program = program.ok_or_else(|| {
                Fault::new(Exit::CouldNot, "cannot write jobctl's path into a crontab; move it to a plainer one")
            })?;
            print::answer(&crontab(program))?;
            return Ok(Exit::Done);
        }
        let findings = examine(&database.target()?)?;
        print::full_rows(Form::new(self.json), &["verdict", "check", "found", "remedy"], &findings, |finding| {
            vec![
                Cell::from(finding.verdict.as_str()),
                finding.check.into(),
                finding.found.clone().into(),
                finding.remedy.clone().into(),
            ]
        })?;
        let worst = findings.iter().map(|finding| finding.verdict).max();
        Ok(if worst == Some(Verdict::Bad) { Exit::CouldNot } else { Exit::Done })
    }
}

/// What jobctl's own tables are like can be asked only where they are.
fn examine(target: &Target) -> anyhow::Result<Vec<Finding>> {
    let opened = Instant::now();
    let store = Store::connect(target)?;
    let first = store.inspect_session()?;
    let open_for = opened.elapsed();
    let clock = clock(&store)?;
    let other = Store::connect(target).ok().and_then(|other| other.inspect_session().ok());
    let session = store.inspect_session()?;
    let identity = if target.is_local() {
        Identity::Local
    } else if target.verifies() {
        Identity::Verified
    } else {
        Identity::Unverified
    };
    let link = Link { address: target.to_string(), identity, sessions: [first, session.clone()], open_for, other };
    let missing =
        store.missing_migrations(Mode::Inspect).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>());
    let mut findings = vec![
        findings::connection(&link, clock),
        findings::pooler(&link),
        findings::writes(&session),
        findings::durability(&session),
        findings::database(&session),
        findings::clock(clock),
        findings::schema(missing.as_deref()),
    ];
    let is_ours = match &missing {
        Ok(missing) => missing.is_empty(),
        Err(error) => error.exit == Exit::Configuration,
    };
    if is_ours {
        findings.push(tell("role", &store.inspect_role(), |may| findings::role(&session, *may)));
        match store.inspect_grants(grants::matrix()) {
            Ok(facts) => findings.extend(findings::grants(&facts)),
            Err(error) => findings.push(findings::untold("grants", &error)),
        }
        let runs = store.inspect_runs();
        findings.push(tell("ticks", &runs, findings::ticks));
        findings.push(tell("leases", &runs, findings::leases));
        let scheduled = store.list_schedules(None).unwrap_or_default();
        findings.push(tell("schedules", &runs, |runs| findings::schedules(runs, &Failing::among(&scheduled))));
        let zones = store.inspect_zones(fires::zones_in_use(&scheduled));
        findings.push(tell("time zones", &zones, |zones| findings::zones(ZoneData::current(), zones)));
        findings.push(tell("dead runs", &runs, findings::dead));
        let waiting = store.inspect_waiting(PATIENCE);
        findings.push(tell("definitions", &waiting, |waiting| findings::definitions(waiting)));
        if let Ok(runs) = &runs {
            findings.push(tell("queues", &waiting, |waiting| findings::queues(runs, waiting)));
        }
        let indexes = store.inspect_indexes();
        findings.push(tell("indexes", &indexes, |indexes| findings::indexes(indexes)));
        let sequences = store.inspect_sequences();
        findings.push(tell("sequences", &sequences, |behind| findings::sequences(behind)));
        let tables = store.inspect_tables();
        findings.push(tell("vacuum", &tables, |tables| findings::vacuum(&session, tables)));
        findings.push(tell("size", &tables, |tables| findings::sizes(tables, indexes.as_deref().unwrap_or_default())));
    }
    findings.push(tell("snapshots", &store.inspect_snapshots(), |facts| findings::snapshots(&session, facts)));
    Ok(findings)
}

/// Judges facts, or says that the database would not tell them.
fn tell<T>(check: &'static str, facts: &store::Result<T>, judge: impl Fn(&T) -> Finding) -> Finding {
    match facts {
        Ok(facts) => judge(facts),
        Err(error) => findings::untold(check, error),
    }
}

/// Holds the host's clock, which decides nothing, against the database's.
fn clock(store: &Store) -> store::Result<Clock> {
    let ask = || {
        let asked = Instant::now();
        let now = store.now()?;
        let took = asked.elapsed();
        // `Utc::now` panics before 1970.
        let halfway = DateTime::<Utc>::from(SystemTime::now()) - TimeDelta::from_std(took / 2).unwrap_or_default();
        Ok(Clock { ahead: halfway - now, took })
    };
    let mut best = ask()?;
    for _ in 1..QUESTIONS {
        best = [best, ask()?].into_iter().min_by_key(|clock| clock.took).unwrap_or(best);
    }
    Ok(best)
}

/// Lines for a crontab that wake a worker every minute, whatever else the crontab sets. Jobs need
/// the address too, so it is a variable. Until the address is filled in, each tick logs that it
/// can't connect.
fn crontab(program: &str) -> String {
    // Quotes for the shell; and cron, before it, takes a bare % for the end of the command.
    let program = format!("'{}'", program.replace('\'', r"'\''")).replace('%', r"\%");
    format!(
        "# Wakes a jobctl worker every minute; overlapping is safe. Paste with `crontab -e` as the user whose\n\
         # rights the jobs are to have. Fill in the address of the database: jobs see it too. Keep\n\
         # the password in ~/.pgpass, because cron mails its variables. The programs that jobs call\n\
         # must be on this PATH. The log is jobctl.log in your home folder.\n\
         DATABASE_URL=postgresql://USER@HOST/DATABASE\n\
         * * * * * PATH=/usr/local/bin:/usr/bin:/bin {program} tick >>\"$HOME/jobctl.log\" 2>&1\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_crontab_survives_cron_and_the_shell() {
        let command = |path| {
            let lines = crontab(path);
            let line = lines.lines().last().unwrap_or_default().to_owned();
            line.split_once("/bin ").map(|(_, command)| command.to_owned()).unwrap_or_default()
        };
        assert_eq!(command("/usr/local/bin/jobctl"), r#"'/usr/local/bin/jobctl' tick >>"$HOME/jobctl.log" 2>&1"#);
        assert_eq!(command("/a b/100%'s/jobctl"), r#"'/a b/100\%'\''s/jobctl' tick >>"$HOME/jobctl.log" 2>&1"#);
    }
}
