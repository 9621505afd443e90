//! `jobctl once`: runs a command whose effect must happen once.

use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::Database;
use crate::action;
use crate::execute::{self, Foreground};
use crate::exit::{Exit, Fault};
use crate::print;
use crate::store::{self, Effect, Store};

/// The statuses of `env`, `timeout` and every shell for a command that could not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// After the command: longer than a database takes to restart.
const RETRY_TIME: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Run a command whose effect must happen once
///
/// KEY is recorded before the command runs and completed when it succeeds. If the
/// command fails or a signal ends it, KEY is removed. If KEY is completed already,
/// `once` runs nothing and exits with 0. If a crash left KEY open, or another
/// `once` still uses it, the command does not run: exit 8. Then a person finds out
/// whether the effect happened, and says so with --settle.
///
/// The exit status of a failed command is passed on. A command that is not found
/// is 127, one that can't be executed 126. If the database is unavailable when the
/// command ends, `once` tries again for a minute.
///
///   jobctl once invoice:4711 -- bin/charge 4711
///   jobctl once --settle done invoice:4711
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The effect's name, for ever
    #[arg(value_parser = super::enqueue::key)]
    key: String,
    /// The command
    #[arg(last = true, required_unless_present = "settle", conflicts_with = "settle", value_name = "COMMAND")]
    command: Vec<String>,
    /// Settle a key that was left open: its effect happened, or is to be done again
    #[arg(long, value_name = "WHAT")]
    settle: Option<Settle>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Settle {
    /// It happened
    Done,
    /// It did not; the next `once` runs the command
    Redo,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        let key = print::plain(&self.key);
        if let Some(settle) = self.settle {
            let settled = match settle {
                Settle::Done => store.complete_effect(&self.key, None)?,
                Settle::Redo => store.take_back_effect(&self.key, None)?,
            };
            let why = || Fault::new(Exit::Conflict, format!("cannot settle `{key}`: it is not open"));
            return if settled { Ok(Exit::Done) } else { Err(why().into()) };
        }
        let recorded = match store.begin_effect(&self.key, run())? {
            Effect::Completed => return Ok(Exit::Done),
            Effect::Open(since) => {
                let begun = format!("was begun at {} and its end is not known", print::instant(since));
                return Err(open(&key, &begun).into());
            }
            Effect::Foreign => {
                let why = format!("cannot begin effect `{key}`: another role recorded it; an operator can settle it");
                return Err(Fault::new(Exit::Configuration, why).into());
            }
            Effect::Begun(recorded) => Some(recorded),
        };
        let take_back = || {
            let left_open =
                || format!("the command failed, but `{key}` stays open; run `jobctl once --settle redo '{key}'`");
            anew(&store, database, |store| store.take_back_effect(&self.key, recorded)).with_context(left_open)
        };
        match execute::foreground(&self.command) {
            Foreground::Succeeded => {
                let completed = anew(&store, database, |store| store.complete_effect(&self.key, recorded));
                let left_open = || {
                    format!("the command succeeded, but `{key}` stays open; run `jobctl once --settle done '{key}'`")
                };
                if completed.with_context(left_open)? {
                    return Ok(Exit::Done);
                }
                let why = format!(
                    "the command succeeded, but `{key}` was settled meanwhile as to be done again; see that it is not done twice"
                );
                Err(Fault::new(Exit::Conflict, why).into())
            }
            Foreground::Failed(status) => {
                take_back()?;
                Ok(Exit::Passed(status))
            }
            Foreground::NotStarted(error) => {
                take_back()?;
                let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
                let why = format!("cannot run the program{}: {error}", action::program(&self.command[0]));
                Err(Fault::new(Exit::Passed(status), why).into())
            }
            Foreground::Unknown(error) => {
                Err(open(&key, &format!("was begun and its end is not known: {error}")).into())
            }
        }
    }
}

/// Nothing is run and nothing taken back, where the effect may have happened.
fn open(key: &str, begun: &str) -> Fault {
    let message = format!(
        "effect `{key}` {begun}; find out whether it happened or is still being done, then run \
         `jobctl once --settle done|redo '{key}'`"
    );
    Fault::new(Exit::Open, message)
}

/// Records the result of the command. A database restart at this moment must not lose it, so this
/// tries again for a minute.
fn anew(store: &Store, database: &Database, say: impl Fn(&Store) -> store::Result<bool>) -> anyhow::Result<bool> {
    let passes =
        |said: &anyhow::Result<bool>| said.as_ref().is_err_and(|error| super::exit_of(error) == Exit::Unavailable);
    let again = || Ok(say(&database.open()?)?);
    let until = Instant::now() + RETRY_TIME;
    let mut said = say(store).map_err(anyhow::Error::from);
    if passes(&said) {
        said = again();
    }
    if let Err(error) = &said
        && passes(&said)
    {
        log::warn!("{error:#}; `once` tries again for a minute");
    }
    while passes(&said) && Instant::now() < until {
        thread::sleep(RETRY_PAUSE);
        said = again();
    }
    said
}

/// The run and attempt this is a part of, in a job.
fn run() -> Option<(i64, i32)> {
    let number = |name| std::env::var(name).ok();
    Some((number("JOBCTL_RUN_ID")?.parse().ok()?, number("JOBCTL_ATTEMPT")?.parse().ok()?))
}
