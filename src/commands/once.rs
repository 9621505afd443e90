//! `jobctl once`: runs a command whose effect must happen once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};

use super::DatabaseFlags;
use super::arguments::{checked, key};
use crate::execute::{self, Foreground, Printed};
use crate::exit::{Exit, Fault};
use crate::job::action;
use crate::print::{self, Output, Table};
use crate::store::{self, Effect, RESULT_LIMIT, Store};
use crate::text::duration::{MINUTE, SECOND};
use crate::text::plain::plain;
use crate::text::{shell, timestamp};

/// The exit status if there is no such command, as of every shell, `env` and `timeout`.
const NOT_FOUND: u8 = 127;
/// The exit status if the command is there, but can't be run.
const NOT_EXECUTABLE: u8 = 126;
/// How long to try to record the result. Long enough for a restart of the database.
const RETRY_TIME: Duration = MINUTE;

/// Run a command whose effect must happen once
///
/// KEY is recorded before the command runs and completed when it succeeds. If the
/// command fails or a signal ends it, KEY is removed. If KEY is already completed,
/// `once` prints the output that the command had, and exits with 0. While another
/// attempt that began KEY runs, the command does not run: exit 75, which asks for
/// an attempt of the job later. If a crash left KEY open, or a `once` outside of
/// jobs still uses it, the command does not run: exit 8. Then find out whether the
/// effect happened, and settle the key with --settle. As the exit status of a job,
/// 8 is permanent: the run is dead at once. --if-open decides instead: redo runs
/// the command again, skip takes the effect as done.
///
/// The output is stored if it is text of at most 8 KiB; otherwise a warning says
/// so. So if a script with several `once` steps is restarted, the finished steps
/// print their stored output again.
///
/// A failed command's exit status is passed on. It is 127 if the command is not
/// found, and 126 if it cannot be executed. While it runs, Ctrl-C ends it, SIGTERM
/// and SIGHUP are passed on to it, and `once` waits for its end. If the database
/// is unavailable then, `once` tries again for a minute, or until a signal.
///
///   jobctl once invoice:4711 -- bin/charge 4711
///   jobctl once --settle done invoice:4711 --result payment-17
///   jobctl once --list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The effect's unique name; never use it for another effect
    #[arg(value_parser = key, required_unless_present = "list")]
    key: Option<String>,
    /// The command
    #[arg(
        last = true,
        required_unless_present_any = ["settle", "list"],
        conflicts_with = "settle",
        value_name = "COMMAND"
    )]
    command: Vec<String>,
    /// What to do if the effect was begun and may have happened
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "stop",
        conflicts_with_all = ["settle", "list"]
    )]
    if_open: IfOpen,
    /// Settle an open key: done if its effect happened, redo if it did not
    #[arg(long, value_name = "WHAT")]
    settle: Option<Settle>,
    /// With --settle done: the output to keep for the key, which each later call prints; at most
    /// 8 KiB, without the newline at the end, which jobctl adds
    #[arg(long, value_name = "TEXT", requires = "settle", value_parser = result)]
    result: Option<String>,
    /// List the open keys
    #[arg(long, conflicts_with_all = ["key", "command", "settle"])]
    list: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum IfOpen {
    /// Exit with 8: a person decides
    Stop,
    /// Run the command again
    Redo,
    /// Take it as done, without output
    Skip,
}

const OPEN: Table<'_> = Table::new(
    "key, recorded_at as begun, recorded_by as by, run_id as run, attempt",
    "no effect is open",
);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Settle {
    /// It happened
    Done,
    /// It did not happen; the next `once` runs the command
    Redo,
}

impl Settle {
    /// Settles a key. Returns whether this changed it: it was open, or it had no result and has one
    /// now. With `recorded`, only settles the effect that was begun at this time.
    fn write(
        self,
        store: &Store,
        key: &str,
        recorded: Option<DateTime<Utc>>,
        result: Option<&str>,
    ) -> store::Result<bool> {
        match self {
            Self::Done => store.complete_effect(key, recorded, result),
            Self::Redo => store.remove_effect(key, recorded),
        }
    }
}

impl IfOpen {
    /// Returns how an open key is settled, and the words for that; `None`: it is not settled.
    fn settlement(self) -> Option<(Settle, &'static str)> {
        match self {
            Self::Stop => None,
            Self::Redo => Some((Settle::Redo, "its command runs again")),
            Self::Skip => Some((Settle::Done, "it is taken as done")),
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        if let (Some(Settle::Redo), Some(_)) = (self.settle, &self.result) {
            bail!(Fault::usage("--result needs --settle done"));
        }
        action::check_program(&self.command)
            .map_err(|why| Fault::new(Exit::Passed(NOT_FOUND), why))?;
        let interrupted = Arc::default();
        let store = database.open_until(&interrupted)?;
        let Some(name) = &self.key else {
            print::list(self.output, &store.list_open_effects()?, &OPEN)?;
            return Ok(Exit::Done);
        };
        if let Some(settle) = self.settle {
            if !settle.write(&store, name, None, self.result.as_deref())? {
                let why = format!("cannot settle `{}`: it is not open", plain(name));
                bail!(Fault::new(Exit::Conflict, why));
            }
            return Ok(Exit::Done);
        }
        let Some(recorded) = self.begin_or_print(&store, name)? else { return Ok(Exit::Done) };
        let effect = BegunEffect { name, recorded, store, database, interrupted };
        match execute::foreground(&self.command, RESULT_LIMIT) {
            Foreground::Succeeded(printed) => effect.complete(printed),
            Foreground::Failed(status) => {
                effect.remove()?;
                Ok(Exit::Passed(status))
            }
            Foreground::NotStarted(error) => {
                effect.remove()?;
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                let status = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
                let cause = execute::why_not_started(&self.command[0], &error);
                let why = format!("cannot run the command: {cause}");
                Err(Fault::new(Exit::Passed(status), why).into())
            }
            Foreground::Unknown(error) => {
                let begun = format!("was begun, and it is unknown whether it happened: {error}");
                Err(open_effect(name, &begun).into())
            }
        }
    }

    /// Begins the effect, and returns when. If the effect is completed, prints its stored output
    /// instead, and returns `None`.
    fn begin_or_print(&self, store: &Store, name: &str) -> anyhow::Result<Option<DateTime<Utc>>> {
        let key = plain(name);
        let mut effect = store.begin_effect(name, running_attempt())?;
        if let Effect::Open(since) = effect
            && let Some((settle, outcome)) = self.if_open.settlement()
        {
            // Nothing was settled if another `once` was faster: then print nothing.
            if settle.write(store, name, Some(since), None)? {
                let since = timestamp::instant(since);
                print::complain(&format!("effect `{key}` was begun at {since}; {outcome}"));
            }
            effect = store.begin_effect(name, running_attempt())?;
        }
        match effect {
            Effect::Begun(recorded) => Ok(Some(recorded)),
            Effect::Completed(result) => {
                print::answer(&result.unwrap_or_default())?;
                Ok(None)
            }
            Effect::InUse(run) => {
                let why = format!(
                    "cannot begin effect `{key}`: run {run}, which is running, has begun it; \
                     try again after its end"
                );
                Err(Fault::new(Exit::InUse, why).into())
            }
            Effect::Open(since) => {
                let since = timestamp::instant(since);
                let begun = format!("was begun at {since}, and it is unknown whether it happened");
                Err(open_effect(name, &begun).into())
            }
            Effect::Foreign => {
                let why = format!(
                    "cannot begin effect `{key}`: another role recorded it; \
                     an operator can settle it"
                );
                Err(Fault::new(Exit::Configuration, why).into())
            }
        }
    }
}

/// An effect that this process has begun. The methods record how its command ended.
struct BegunEffect<'a> {
    name: &'a str,
    recorded: DateTime<Utc>,
    store: Store,
    database: &'a DatabaseFlags,
    interrupted: Arc<AtomicBool>,
}

impl BegunEffect<'_> {
    /// Records that the command succeeded, with its output if that can be stored. Fails if a person
    /// has settled the key meanwhile, or if the output could not be printed.
    fn complete(&self, printed: Printed) -> anyhow::Result<Exit> {
        let key = plain(self.name);
        let output = printed.kept.and_then(|bytes| String::from_utf8(bytes).ok());
        let output = output.filter(|text| !text.contains('\0'));
        if !self.settle(Settle::Done, output.as_deref())? {
            let why = format!(
                "the command succeeded, but `{key}` was settled as redo meanwhile; \
                 make sure that the effect does not happen twice"
            );
            bail!(Fault::new(Exit::Conflict, why));
        }
        if output.is_none() {
            print::complain(&format!(
                "the output of `{key}` is not stored, because it is longer than 8 KiB or not text"
            ));
        }
        if let Some(error) = printed.unwritten {
            let why = format!(
                "cannot write the output; effect `{key}` is done, and `once` prints a stored \
                 output again"
            );
            return Err(error).context(why);
        }
        Ok(Exit::Done)
    }

    /// Removes the key after a failure, so that a later `once` runs the command.
    fn remove(&self) -> anyhow::Result<()> {
        if !self.settle(Settle::Redo, None)? {
            print::complain(&format!(
                "the command failed, but `{}` was settled while it ran; if a person settled it as \
                 done, no later `once` runs the command",
                plain(self.name)
            ));
        }
        Ok(())
    }

    /// Settles the key. Returns whether it was still open.
    fn settle(&self, settle: Settle, output: Option<&str>) -> anyhow::Result<bool> {
        let (result, word) = match settle {
            Settle::Done => ("succeeded", "done"),
            Settle::Redo => ("failed", "redo"),
        };
        // The command has ended, so a signal from now on is for `once`, and ends its retries.
        let _ = super::catch_signals(&self.interrupted);
        self.record(settle, output).with_context(|| {
            format!(
                "the command {result}, but `{}` is still open; \
                 run `jobctl once --settle {word} {}`",
                plain(self.name),
                shell::quoted(self.name)
            )
        })
    }

    /// Writes the result of the command. If the database is unavailable, tries again for a minute,
    /// or until a signal comes, so that a restart loses no result. Returns whether the key was
    /// still open.
    fn record(&self, settle: Settle, output: Option<&str>) -> anyhow::Result<bool> {
        let write =
            |store: &Store| Ok(settle.write(store, self.name, Some(self.recorded), output)?);
        let write_on_new_connection = || write(&self.database.open_until(&self.interrupted)?);
        let is_transient = |written: &anyhow::Result<bool>| {
            written.as_ref().is_err_and(|error| super::exit_of(error) == Exit::Unavailable)
        };
        let until = Instant::now() + RETRY_TIME;
        let mut written = write(&self.store);
        let is_repeated = is_transient(&written);
        // Warn only if a new connection fails, too: the first one was idle while the command ran.
        if is_repeated {
            written = write_on_new_connection();
        }
        if let Err(error) = &written
            && is_transient(&written)
        {
            log::warn!("{error:#}; `once` tries again for a minute");
        }
        let may_repeat = || Instant::now() < until && !self.interrupted.load(Ordering::Relaxed);
        while is_transient(&written) && may_repeat() {
            thread::sleep(SECOND);
            written = write_on_new_connection();
        }
        // If a repeated write finds no key to remove, the first one has removed it, and its answer
        // was lost.
        Ok(written? || is_repeated && matches!(settle, Settle::Redo))
    }
}

/// Reads the text of `--result`, and adds the newline at the end that an output has.
fn result(text: &str) -> Result<String, String> {
    let line = format!("{}\n", text.strip_suffix('\n').unwrap_or(text));
    let fits = (2..=RESULT_LIMIT).contains(&line.len());
    checked(&line, fits, "must have text, at most 8 KiB")
}

/// Returns the error for an effect that may have happened. `begun` says when it was begun.
fn open_effect(name: &str, begun: &str) -> Fault {
    let (key, word) = (plain(name), shell::quoted(name));
    let message = format!(
        "effect `{key}` {begun}; check whether it happened or still runs, then run \
         `jobctl once --settle done {word}` if it happened, or else `--settle redo`"
    );
    Fault::new(Exit::Open, message)
}

/// Returns the run and the attempt that execute this command; `None`: it is not a job's.
fn running_attempt() -> Option<(i64, i32)> {
    let variable = |name| std::env::var(name).ok();
    Some((variable("JOBCTL_RUN_ID")?.parse().ok()?, variable("JOBCTL_ATTEMPT")?.parse().ok()?))
}
