//! The command line: one file per subcommand, which holds its arguments and its `run`.

mod apply;
mod cancel;
mod check;
mod completions;
mod doctor;
mod enqueue;
mod environment;
mod filter;
mod grants;
mod groups;
mod list;
mod list_dead;
#[cfg(test)]
mod man;
mod migrate;
mod next;
mod once;
mod pause;
mod prune;
mod report;
mod resume;
mod retry;
mod show;
mod status;
mod tick;
mod tips;
mod verdicts;

use std::fmt::Display;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use log::LevelFilter;

use crate::connect::Target;
use crate::exit::{Exit, Fault};
use crate::schedule::ZoneData;
use crate::store::{self, Scheduled, Store};
use crate::{action, print, spelling};
pub(crate) use completions::answer_shell;
use environment::{Environment, with_environment};
use groups::grouped;
use tips::with_tip;

/// Background jobs out of PostgreSQL tables, woken by cron
#[derive(Debug, Parser)]
#[command(
    name = "jobctl",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "`jobctl help COMMAND` says more. Every flag can also be set as JOBCTL_<FLAG>."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The flags of a command are made only when it is given: there are a hundred and more, and each command
/// would wait for all.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Migrate(Environment<migrate::Arguments>),
    Apply(Environment<apply::Arguments>),
    Enqueue(Environment<Box<enqueue::Arguments>>),
    Tick(Environment<tick::Arguments>),
    Retry(Environment<retry::Arguments>),
    Cancel(Environment<cancel::Arguments>),
    List(Environment<list::Arguments>),
    ListDead(Environment<list_dead::Arguments>),
    Show(Environment<show::Arguments>),
    Next(Environment<next::Arguments>),
    Once(Environment<once::Arguments>),
    Pause(Environment<pause::Arguments>),
    Resume(Environment<resume::Arguments>),
    Status(Environment<status::Arguments>),
    Check(Environment<check::Arguments>),
    Prune(Environment<prune::Arguments>),
    Doctor(Environment<doctor::Arguments>),
    Report(Environment<report::Arguments>),
    Grants(Environment<grants::Arguments>),
    Completions(Environment<completions::Arguments>),
}

impl Command {
    /// What is worth a line on stderr, unless the user says otherwise.
    pub(crate) fn log_level(&self) -> LevelFilter {
        match self {
            Self::Tick(tick) if !tick.0.quiet => LevelFilter::Info,
            _ => LevelFilter::Warn,
        }
    }

    /// Whether cron mails what it says, and nobody wants the same every minute.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Self::Tick(tick) if tick.0.quiet)
    }
}

/// Where the database is.
#[derive(Args, Debug)]
pub(crate) struct Database {
    /// URL, visible in `ps`; else DATABASE_URL, else PG*
    #[arg(long, global = true, value_name = "URL", help_heading = "Connection")]
    database_url: Option<String>,
}

impl Database {
    fn target(&self) -> anyhow::Result<Target> {
        Target::resolve(self.database_url.as_deref(), &|name| std::env::var(name).ok())
    }

    /// Connects to a database whose schema is this program's.
    fn open(&self) -> anyhow::Result<Store> {
        Store::open(&self.target()?)
    }
}

/// Flags of which one would be ignored, and so are refused where both are typed; a crontab sets its variables for
/// all commands alike.
const EXCLUSIVE: [(&str, &str, &str); 4] = [
    ("retry", "force", "all_dead"),
    ("show", "json", "output"),
    ("prune", "ids", "older_than"),
    ("prune", "ids", "dead_older_than"),
];

/// Reads the command line and the environment.
///
/// # Errors
/// Wrong usage; also `--help` and `--version`, which are answers.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let matches = match with_environment(Cli::command()).try_get_matches() {
        // Only who asks for help waits until its text is made.
        Err(usage) if shows_help(usage.kind()) => with_environment(grouped(Cli::command())).try_get_matches()?,
        // Only `--version` reads the system's files for the version of the time zones.
        Err(usage) if usage.kind() == ErrorKind::DisplayVersion => {
            let version = concat!(env!("CARGO_PKG_VERSION"), "\ntime zones: ");
            Cli::command().version(format!("{version}{}", ZoneData::current())).try_get_matches()?
        }
        matches => matches.map_err(with_tip)?,
    };
    let source = |command, flag| matches.subcommand_matches(command).and_then(|matches| matches.value_source(flag));
    let typed = |command, flag| source(command, flag) == Some(ValueSource::CommandLine);
    for (command, one, other) in EXCLUSIVE {
        if typed(command, one) && typed(command, other) {
            let one = if one == "ids" { "[ID]..." } else { &format!("--{one}") };
            let why = format!("the argument '{one}' cannot be used with '--{other}'\n").replace('_', "-");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
        }
    }
    let named = source("next", "name").is_some();
    let given = source("next", "schedule").is_some();
    for (flag, has_effect, needed) in [
        ("from", named || given, "a NAME or '--schedule'"),
        ("count", named || given, "a NAME or '--schedule'"),
        ("time_zone", given, "'--schedule'"),
    ] {
        if typed("next", flag) && !has_effect {
            let why = format!("the argument '--{flag}' needs {needed}\n").replace('_', "-");
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, why));
        }
    }
    Cli::from_arg_matches(&matches)
}

fn shows_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Prints what clap has to say: an answer to stdout, a complaint to stderr.
pub(crate) fn explain(usage: &clap::Error) -> Exit {
    let answer = matches!(usage.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = usage.render().to_string();
    if usage.kind() == ErrorKind::InvalidUtf8
        && let Some(what) = environment::not_utf8()
    {
        print::complain(&format!("{what} is not UTF-8"));
        return Exit::Usage;
    }
    if !answer {
        // clap's own words behind our name, as on every other line to stderr.
        match text.strip_prefix("error: ") {
            Some(text) => print::explain(text),
            None => print::explain(&format!("which command?\n\n{text}")),
        }
        return Exit::Usage;
    }
    match print::answer(&text) {
        Ok(()) => Exit::Done,
        Err(error) => {
            print::complain(&format!("{error:#}"));
            Exit::CouldNot
        }
    }
}

/// Returns the exit status of an error, with any context around it.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    error
        .chain()
        .find_map(|cause| {
            let fault = cause.downcast_ref::<Fault>().map(|fault| fault.exit);
            fault.or_else(|| cause.downcast_ref::<store::Error>().map(|error| error.exit))
        })
        .unwrap_or(Exit::CouldNot)
}

/// Reads a number within a range, which a refusal names.
fn within<N>(least: N, most: N) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: Copy + Display + FromStr + PartialOrd + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("allowed are {least} to {most}"))
    }
}

/// The definition of that name, with the database's now.
///
/// # Errors
/// There is none; names what may have been meant.
fn definition(store: &Store, name: &str) -> anyhow::Result<Scheduled> {
    if let Some(found) = store.list_schedules(Some(name.to_owned()))?.pop() {
        return Ok(found);
    }
    Err(no_definition(store, name).into())
}

/// Refuses the name of a job that is neither defined nor built in, nor has runs.
fn known_job(store: &Store, name: &str) -> anyhow::Result<()> {
    if !action::is_built_in(name) && !store.has_runs(name.to_owned())? {
        definition(store, name)?;
    }
    Ok(())
}

/// The refusal of a name that no definition has. Whoever may only enqueue may not read the names; then
/// there is nothing to suggest but the built-in jobs.
fn no_definition(store: &Store, name: &str) -> Fault {
    if action::is_built_in(name) {
        return Fault::new(Exit::NotFound, format!("no definition `{name}`: it is a built-in job"));
    }
    let definitions = store.list_schedules(None).unwrap_or_default();
    let words = definitions.iter().map(|definition| definition.name.as_str()).chain(action::BUILT_IN);
    let meant = spelling::suggestion(name, words);
    let meant = if meant.is_empty() { "; built-in jobs are shell and http" } else { &meant };
    Fault::new(Exit::NotFound, format!("no definition `{}`{meant}", print::plain(name)))
}
