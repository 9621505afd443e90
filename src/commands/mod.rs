//! The command line. A subcommand, or two opposite ones, have a file with their arguments and their
//! `run`.

mod accept_restore;
mod apply;
mod arguments;
mod bulk;
mod cancel;
mod check;
mod completions;
mod crontab_block;
mod doctor;
mod edit;
mod enqueue;
mod env_file;
mod environment;
mod failures;
mod forget;
mod grants;
mod help;
mod hold;
mod import_crontab;
mod init;
mod jobs;
mod list;
mod list_dead;
mod load;
mod migrate;
mod next;
mod once;
mod outage;
mod pause;
mod prune;
mod quote;
mod report;
mod retry;
mod settle;
mod show;
mod status;
mod tick;
mod tips;
mod trail;
mod undo;
mod wait;
mod when;

use std::collections::BTreeSet;
use std::env::VarError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use cron_zone::ZoneData;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use crate::connect::{self, Readers, Target};
use crate::execute;
use crate::exit::{Exit, Fault};
use crate::health;
use crate::job::action::{self, JobKind};
use crate::job::due::Scheduled;
use crate::job::finding_code::Code;
use crate::job::status::HoldScope;
use crate::job::thresholds::Thresholds;
use crate::print::{self, Colour, Output};
use crate::store::{self, Store};
use crate::text::did_you_mean;
use crate::text::plain::plain;
pub(crate) use completions::answer_shell;
pub(crate) use env_file::load as load_env_file;
use environment::{Environment, with_variable, without_unfit_variables};
use help::grouped;
use tips::with_tip;

/// The variable with jobctl's own address, which jobs do not get.
const VARIABLE: &str = "JOBCTL_DATABASE_URL";
/// The heading of the flags that every command has.
const GLOBAL: &str = "Every command";

/// Background jobs in PostgreSQL tables, started by cron
#[derive(Debug, Parser)]
#[command(
    name = "jobctl",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "`jobctl help COMMAND` says more. A flag's variable is JOBCTL_<COMMAND>_<FLAG>."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) database: DatabaseFlags,
    /// Colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        help_heading = GLOBAL
    )]
    pub(crate) color: Colour,
    #[command(subcommand)]
    pub(crate) command: Command,
}

macro_rules! commands {
    ($($group:literal: $($command:ident($arguments:ty),)+)+) => {
        /// The groups of commands in the help, and how many commands each has.
        const GROUPS: [(&str, usize); [$($group),+].len()] =
            [$(($group, [$(stringify!($command)),+].len())),+];

        /// `defer` builds the flags of the given command only; building those of all commands is
        /// slow.
        #[derive(Debug, Subcommand)]
        #[command(defer = true)]
        pub(crate) enum Command {
            $($($command(Environment<$arguments>),)+)+
        }

        impl Command {
            pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
                match self {
                    $($(Self::$command(arguments) => {
                        arguments.0.run(database).map(Into::into)
                    })+)+
                }
            }
        }
    };
}

// The first group has what the first month needs, in the order of use.
commands! {
    "First":
    Init(init::Arguments),
    Apply(apply::Arguments),
    Enqueue(Box<enqueue::Arguments>),
    Tick(tick::Arguments),
    List(list::Arguments),
    Show(show::Arguments),
    Retry(retry::Arguments),
    Cancel(cancel::Arguments),
    Status(status::Arguments),
    Check(check::Arguments),
    Next(next::Arguments),
    Report(report::Arguments),
    "Set up":
    Migrate(migrate::Arguments),
    ImportCrontab(import_crontab::Arguments),
    Grants(grants::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Arguments),
    "Run":
    Once(once::Arguments),
    Wait(wait::Arguments),
    Prune(prune::Arguments),
    Load(load::Arguments),
    "Look":
    Jobs(jobs::Arguments),
    ListDead(list_dead::Arguments),
    Failures(failures::Arguments),
    Trail(trail::Arguments),
    "Act":
    Edit(Box<edit::Arguments>),
    Settle(settle::Arguments),
    Undo(undo::Arguments),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Hold(hold::Hold),
    Release(hold::Release),
    Forget(forget::Arguments),
    AcceptRestore(accept_restore::Arguments),
}

impl Command {
    /// Returns the arguments of `tick`, if this is that command.
    pub(crate) fn tick(&self) -> Option<&tick::Arguments> {
        if let Self::Tick(Environment(tick)) = self { Some(tick) } else { None }
    }

    /// Returns whether the command works without the file of variables and the log.
    pub(crate) fn needs_no_settings(&self) -> bool {
        matches!(self, Self::Completions(_))
    }

    /// Returns whether the command starts commands of jobs.
    pub(crate) fn executes_jobs(&self) -> bool {
        match self {
            Self::Tick(_) => true,
            Self::Enqueue(Environment(enqueue)) => enqueue.run,
            _ => false,
        }
    }
}

/// Where the database is.
#[derive(Args, Debug, Default)]
pub(crate) struct DatabaseFlags {
    /// URL, visible in `ps`; else DATABASE_URL, else PG*
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    database_url: Option<String>,
}

impl DatabaseFlags {
    /// Returns the database of the flag, of the variables or of libpq's defaults.
    fn target(&self) -> anyhow::Result<Target> {
        let url = self.url()?;
        connect::resolve(url.as_deref(), &|name| std::env::var(name).ok())
    }

    /// Returns the address of the flag or of jobctl's own variable.
    fn url(&self) -> anyhow::Result<Option<String>> {
        if self.database_url.is_some() {
            return Ok(self.database_url.clone());
        }
        match std::env::var(VARIABLE) {
            Ok(url) if env_file::is_blank(url.as_ref()) => Err(Fault::empty(VARIABLE).into()),
            Ok(url) => Ok(Some(url)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => {
                Err(Fault::usage(format!("the variable {VARIABLE} is not UTF-8")).into())
            }
        }
    }

    /// Returns the variables by which another process finds the same database. If only this user
    /// reads them, these are all. Otherwise, leaves out those that the file of variables sets, and
    /// fails if one has a password.
    fn variables(&self, readers: Readers) -> anyhow::Result<Vec<(String, String)>> {
        let is_given = self.database_url.is_some();
        let is_missing = |name: &str| readers == Readers::OnlyUser || !env_file::has_set(name);
        let url = self.url()?.filter(|_| is_given || is_missing(VARIABLE));
        let environment = |name: &str| std::env::var(name).ok().filter(|_| is_missing(name));
        connect::variables(VARIABLE, self.given_by(), url.as_deref(), &environment, readers)
    }

    /// Returns the flag or the variable that names the address.
    fn given_by(&self) -> &'static str {
        if self.database_url.is_some() { "--database-url" } else { VARIABLE }
    }

    /// Returns a text about where the address is from: the flag, variables, files.
    fn origin(&self, target: &Target) -> String {
        let with_file = |origin: &String| {
            let name = if origin == connect::GIVEN { self.given_by() } else { origin };
            match env_file::path().filter(|_| env_file::has_set(name)) {
                Some(file) => format!("{name} in {}", file.display()),
                None => name.to_owned(),
            }
        };
        let mut origins = target.origins().iter().map(with_file).collect::<Vec<_>>().join(", ");
        if origins.is_empty() {
            origins = "libpq's defaults: no flag or variable names it".to_owned();
        }
        match env_file::own_path().filter(|own| own.exists() && env_file::path() != Some(own)) {
            Some(own) => format!("{origins}; {} is not read", own.display()),
            None => origins,
        }
    }

    /// Connects to a database whose schema is this program's.
    fn open(&self) -> anyhow::Result<Store> {
        Store::open(&self.target()?)
    }

    /// Connects as `open` does. While `interrupted` is set, each wait for the server ends early.
    fn open_until(&self, interrupted: &Arc<AtomicBool>) -> anyhow::Result<Store> {
        Store::open_until(&self.target()?, Arc::clone(interrupted))
    }
}

/// Returns the signals that ask the command to stop. A signal that is ignored, as under `nohup`,
/// stays ignored.
fn stop_signals() -> Vec<i32> {
    let ignored: Vec<_> = execute::ignored_signals().collect();
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter();
    all.filter(|signal| !ignored.contains(signal)).collect()
}

/// Catches the signals that ask the command to stop: from now on, each of them sets `interrupted`.
fn catch_signals(interrupted: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut caught = stop_signals().into_iter();
    let caught =
        caught.try_for_each(|signal| flag::register(signal, Arc::clone(interrupted)).map(drop));
    caught.context("cannot catch signals")
}

/// Reads the command line and the environment. For `--help` and `--version`, the answer is an
/// error, too.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    environment::parse(std::env::args_os()).or_else(|usage| match usage.kind() {
        // Build the grouped help only on request: it is slow.
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            parse_with(grouped(Cli::command()))
        }
        // The version of the time zones is read from the system's files.
        ErrorKind::DisplayVersion => {
            let version = concat!(env!("CARGO_PKG_VERSION"), "\ntime zones: ");
            parse_with(Cli::command().version(format!("{version}{}", ZoneData::current())))
        }
        _ => without_unfit_variables(usage)
            .and_then(|matches| Cli::from_arg_matches(&matches))
            .map_err(|usage| with_tip(with_variable(usage))),
    })
}

/// Reads the command line with this definition of it.
fn parse_with(command: clap::Command) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command.try_get_matches()?)
}

/// Prints clap's message: help and version to stdout, an error to stderr.
pub(crate) fn explain(usage: &clap::Error) -> Exit {
    let is_answer = matches!(usage.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = usage.render().to_string();
    if usage.kind() == ErrorKind::InvalidUtf8
        && let Some(origin) = environment::not_utf8()
    {
        print::complain(&format!("{origin} is not UTF-8"));
        return Exit::Usage;
    }
    if !is_answer {
        // `explain` puts the program's name in the place of clap's `error: `.
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

/// Returns the exit status of an error, which may be that of an error inside it.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    error
        .chain()
        .find_map(|cause| {
            let fault = cause.downcast_ref::<Fault>().map(|fault| fault.exit);
            fault.or_else(|| cause.downcast_ref::<store::Error>().map(|error| error.exit))
        })
        .unwrap_or(Exit::CouldNot)
}

/// Prints, for a person at a terminal, the holds in force. For one job, prints only the holds that
/// concern it, and also whether workers are missing for its runs.
fn hint_stops(store: &Store, output: Output, job: Option<String>) -> anyhow::Result<()> {
    if !output.is_for_people() {
        return Ok(());
    }
    let thresholds = Thresholds::default();
    let is_for_one_job = job.is_some();
    let work = store.inspect_work(job.map(|job| vec![job]), thresholds)?;
    let stops_runs = |code| match code {
        Code::RunsHeld => true,
        Code::WorkerMissing | Code::QueueUnserved | Code::JobUnserved => is_for_one_job,
        _ => false,
    };
    let findings = health::work(&work, &thresholds).into_iter();
    for finding in findings.filter(|finding| finding.code.is_some_and(stops_runs)) {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        print::hint(output, &format!("{}; {remedy}", finding.aged(work.now)));
    }
    Ok(())
}

/// Returns the definition of that name. The error suggests a similar name.
fn definition(store: &Store, name: &str) -> anyhow::Result<Scheduled> {
    if let Some(found) = store.list_schedules(Some(name.to_owned()), 0)?.pop() {
        return Ok(found);
    }
    Err(no_definition(store, name).into())
}

/// Fails if the job is unknown: it has no definition and no runs, and is not built in.
fn check_job_exists(store: &Store, name: &str) -> anyhow::Result<()> {
    if !action::is_built_in(name) && !store.has_runs(name.to_owned())? {
        definition(store, name)?;
    }
    Ok(())
}

/// Warns of unknown queues or workers whose names are close to a known one: they may be misspelt,
/// and then no worker starts the runs. Prints nothing if this login may not read the known names,
/// as that of an application that only enqueues.
fn warn_of_names<'a>(store: &Store, scope: HoldScope, names: impl IntoIterator<Item = &'a str>) {
    let names: BTreeSet<_> = names.into_iter().collect();
    if names.is_empty() {
        return;
    }
    let known = store.hold_names(scope, "").unwrap_or_default();
    let unknown = if scope == HoldScope::Worker {
        "no tick has named the worker"
    } else {
        "no definition or worker has the queue"
    };
    for name in names {
        if known.iter().any(|known| known == name) {
            continue;
        }
        let suggestion = did_you_mean::suggestion(name, known.iter().map(String::as_str));
        if !suggestion.is_empty() {
            print::complain(&format!("{unknown} `{name}`{suggestion}"));
        }
    }
}

/// The error for a name without a definition, with similar names as a suggestion. If this login may
/// not read the names of definitions, suggests only the built-in jobs.
fn no_definition(store: &Store, name: &str) -> Fault {
    if action::is_built_in(name) {
        return Fault::new(Exit::NotFound, format!("no definition `{name}`: it is a built-in job"));
    }
    let definitions = store.list_schedules(None, 0).unwrap_or_default();
    let jobs = definitions
        .iter()
        .map(|definition| definition.name.as_str())
        .chain(JobKind::ALL.map(JobKind::as_str));
    let suggestion = did_you_mean::suggestion(name, jobs);
    let remedy =
        if suggestion.is_empty() { "; built-in jobs are shell and http" } else { &suggestion };
    Fault::new(Exit::NotFound, format!("no definition `{}`{remedy}", plain(name)))
}

#[cfg(test)]
#[path = "../../tests/manual_pages/mod.rs"]
mod manual_pages;
