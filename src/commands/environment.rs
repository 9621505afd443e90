//! Reads flags from variables: `JOBCTL_<COMMAND>_<FLAG>` sets each flag of a command, except those
//! that select what to change. An empty value is an error: a filter that is empty by mistake would
//! select all runs.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::builder::{FalseyValueParser, Resettable};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Id};

use super::Cli;
use super::arguments::HEADING;
use super::completions::with_candidates;
use super::env_file::{self, is_blank, is_typed};
use crate::exit::Fault;
use crate::text::did_you_mean;

/// Variables that apply to all commands.
const OF_ALL: [&str; 3] = ["JOBCTL_DATABASE_URL", env_file::VARIABLE, "JOBCTL_LOG"];
/// Variables that a job gets.
const OF_JOBS: [&str; 7] = [
    "JOBCTL_AFTER",
    "JOBCTL_ATTEMPT",
    "JOBCTL_IDEMPOTENCY_KEY",
    "JOBCTL_JOB",
    "JOBCTL_MAX_ATTEMPTS",
    "JOBCTL_RUN_ID",
    "JOBCTL_SCHEDULED_FOR",
];

/// Commands that can change many runs at a time.
const OF_MANY_RUNS: [&str; 7] = ["retry", "cancel", "edit", "settle", "prune", "hold", "release"];

/// Commands that change one thing, and the flag that names it.
const OF_ONE: [(&str, &str); 4] =
    [("enqueue", "job"), ("pause", "job"), ("resume", "job"), ("forget", "worker")];

/// The arguments `A` of a command. Each flag can also be set by its variable.
#[derive(Debug)]
pub(crate) struct Environment<A>(pub(crate) A);

impl<A: Args> Args for Environment<A> {
    fn augment_args(command: Command) -> Command {
        with_candidates(with_variables(A::augment_args(command)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        with_variables(A::augment_args_for_update(command))
    }
}

impl<A: FromArgMatches> FromArgMatches for Environment<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Parses a command without arguments: all its flags come from variables.
pub(super) fn of_variables(command: &str) -> Result<Cli, Fault> {
    parse(["jobctl", command].map(OsString::from)).map_err(|usage| {
        let text = usage.to_string();
        let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Fault::usage(format!("in the variables of `{command}`: {why}"))
    })
}

/// Parses a command line, and fails if a value is empty.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut commands = Cli::command();
    let matches = commands.try_get_matches_from_mut(words)?;
    check_values(&commands, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// Fails if a flag of the command has an empty value or an empty element, or if `check_variables`
/// does.
fn check_values(commands: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((subcommand, given)) = matches.subcommand() else { return Ok(()) };
    let Some(command) = commands.find_subcommand(subcommand) else { return Ok(()) };
    check_variables(command)?;
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        let values = || given.get_raw(id).into_iter().flatten();
        if !values().any(is_blank) {
            continue;
        }
        let is_variable = given.value_source(id) == Some(ValueSource::EnvVariable);
        let source =
            if is_variable { variable_name(subcommand, long) } else { format!("--{long}") };
        let is_list = values().count() > 1;
        return Err(refusal(if is_list {
            Fault::empty_element(&source)
        } else {
            Fault::empty(&source)
        }));
    }
    Ok(())
}

/// Fails if a variable of the command is empty, or the command does not read it.
fn check_variables(command: &Command) -> Result<(), clap::Error> {
    let command_name = command.get_name();
    for argument in command.get_arguments() {
        let Some((long, name)) = variable(command_name, argument) else { continue };
        let Some(value) = std::env::var_os(&name) else { continue };
        if selects_runs(command_name, argument) {
            return Err(refusal(Fault::usage(format!(
                "cannot use {name}: no variable selects or confirms what `{command_name}` changes; \
                 unset it, and write --{long} instead"
            ))));
        } else if is_blank(&value) {
            return Err(refusal(Fault::empty(&name)));
        }
    }
    Ok(())
}

fn refusal(fault: Fault) -> clap::Error {
    clap::Error::raw(ErrorKind::InvalidValue, fault)
}

/// Returns whether a flag selects what a command changes, or confirms the change. Such a flag has
/// no variable: one that was left over would make the command change other runs than its line says.
/// The time zone is a setting, because it has no effect without --since and --until.
fn selects_runs(command: &str, argument: &Arg) -> bool {
    match argument.get_long() {
        Some("yes" | "force" | "take-over") => true,
        Some("time-zone") => false,
        Some(flag) if OF_ONE.contains(&(command, flag)) => true,
        _ => argument.get_help_heading() == Some(HEADING) && OF_MANY_RUNS.contains(&command),
    }
}

/// Gives the command's flags their variables, if these are set. Also allows a hyphen at the start
/// of times and numbers: otherwise clap takes `-5s` for an unknown flag, instead of a value out of
/// range.
fn with_variables(command: Command) -> Command {
    let command_name = command.get_name().to_owned();
    // `check_variables` names an empty variable; clap's error about its value would not.
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !is_blank(&value));
    command.mut_args(|argument| {
        let argument = match argument.get_value_names().and_then(<[_]>::first).map(|name| &**name) {
            Some("DURATION" | "TIME") => argument.allow_hyphen_values(true),
            Some("N" | "ID") => argument.allow_negative_numbers(true),
            _ => argument,
        };
        let name = variable(&command_name, &argument).map(|(_, name)| name);
        let name = name.filter(|name| is_set(name) && !selects_runs(&command_name, &argument));
        let Some(name) = name else { return argument };
        let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
        let argument = argument.env(name).hide_env(true);
        if is_switch { argument.value_parser(FalseyValueParser::new()) } else { argument }
    })
}

/// Parses the command line again without the variables that do not fit to it, after clap failed
/// with `usage`. clap treats a variable like a typed flag, so a variable of a crontab could
/// conflict with an argument, or require a missing one. Variables that conflict with each other
/// remain an error.
pub(super) fn without_unfit_variables(usage: clap::Error) -> Result<ArgMatches, clap::Error> {
    if !matches!(usage.kind(), ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument) {
        return Err(usage);
    }
    let mut commands = Cli::command();
    commands.build();
    let Some(command) = given(&commands) else { return Err(usage) };
    check_variables(command)?;
    // Parses the command line with only the variables of these flags.
    let parse = |kept: &[&Id]| {
        let drop_others = |argument: Arg| {
            let is_kept = kept.contains(&argument.get_id());
            if is_kept { argument } else { argument.env(Resettable::Reset) }
        };
        let reduced = commands
            .clone()
            .mut_subcommand(command.get_name(), |command| command.mut_args(drop_others));
        reduced.try_get_matches()
    };
    // Returns the arguments that are missing with only these variables; `None`: no argument is.
    let missing = |ids: &[&Id]| {
        let error = parse(ids).err()?;
        match error.get(ContextKind::InvalidArg)? {
            ContextValue::Strings(missing)
                if error.kind() == ErrorKind::MissingRequiredArgument =>
            {
                Some(missing.clone())
            }
            _ => None,
        }
    };
    // Returns whether a variable alone conflicts with an argument.
    let conflicts =
        |id: &&Id| parse(&[id]).is_err_and(|error| error.kind() == ErrorKind::ArgumentConflict);
    let with_variable = command.get_arguments().filter(|argument| argument.get_env().is_some());
    let mut candidates: Vec<_> =
        with_variable.map(Arg::get_id).filter(|id| !conflicts(id)).collect();
    // Keep each variable with which no further argument is missing. After one was kept, try the
    // others again, because they may require it. Of n variables that are set, this parses at most
    // n² times, and a crontab sets few.
    let mut kept = Vec::new();
    let mut missing_before = missing(&kept).unwrap_or_default();
    let mut place = 0;
    while let Some(id) = candidates.get(place) {
        let missing_with = missing(&[&kept[..], &[id]].concat()).unwrap_or_default();
        if missing_with.iter().all(|argument| missing_before.contains(argument)) {
            kept.push(candidates.remove(place));
            missing_before = missing_with;
            place = 0;
        } else {
            place += 1;
        }
    }
    let matches = parse(&kept)?;
    check_values(&commands, &matches)?;
    Ok(matches)
}

/// Returns the subcommand that the command line names.
pub(super) fn given(commands: &Command) -> Option<&Command> {
    std::env::args_os().skip(1).find_map(|word| commands.find_subcommand(word))
}

/// Returns a command's flag without its hyphens, and its variable; `None`: the argument is not a
/// flag, or one without a variable, such as `--help`.
fn variable<'a>(command: &str, argument: &'a Arg) -> Option<(&'a str, String)> {
    let prints_help = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    let long = argument.get_long().filter(|_| !prints_help && !argument.is_global_set())?;
    Some((long, variable_name(command, long)))
}

fn variable_name(command: &str, flag: &str) -> String {
    format!("JOBCTL_{command}_{flag}").to_uppercase().replace('-', "_")
}

/// Returns the error with the variable's name in the place of the flag's, if the value is from the
/// variable.
pub(super) fn with_variable(mut usage: clap::Error) -> clap::Error {
    let commands = Cli::command();
    let Some(command) = given(&commands).map(Command::get_name) else { return usage };
    for part in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        let Some(ContextValue::String(argument)) = usage.get(part) else { continue };
        let flag = argument.split(' ').next().unwrap_or_default();
        let Some(long) = flag.strip_prefix("--") else { continue };
        let name = variable_name(command, long);
        if !is_typed(flag) && std::env::var_os(&name).is_some() {
            usage.insert(part, ContextValue::String(name));
        }
    }
    usage
}

/// Returns each variable `JOBCTL_...` that is set, but that jobctl does not read, with the known
/// variable that was probably meant.
pub(super) fn unknown_variables() -> Vec<(String, Option<String>)> {
    let mut commands = Cli::command();
    commands.build();
    let mut known: BTreeSet<_> = OF_ALL.into_iter().chain(OF_JOBS).map(str::to_owned).collect();
    // Variables of flags that select what to change.
    let mut refused = BTreeSet::new();
    for command in commands.get_subcommands() {
        for argument in command.get_arguments() {
            let Some((_, name)) = variable(command.get_name(), argument) else { continue };
            if selects_runs(command.get_name(), argument) {
                refused.insert(name);
            } else {
                known.insert(name);
            }
        }
    }
    let set: BTreeSet<_> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let mut unknown = Vec::new();
    for name in set {
        if !name.starts_with("JOBCTL_") || known.contains(&name) {
            continue;
        }
        let is_refused = refused.contains(&name);
        let suggestion = if is_refused { None } else { similar_variable(&name, &known) };
        let suggestion = suggestion.map(str::to_owned);
        unknown.push((name, suggestion));
    }
    unknown
}

/// Returns the known variable that was probably meant by the name of an unknown one: a variable
/// with the same flag, of `tick` if it has one, or a variable with a similar name.
fn similar_variable<'k>(name: &str, known: &'k BTreeSet<String>) -> Option<&'k str> {
    let flag = name.strip_prefix("JOBCTL").unwrap_or(name);
    // Most variables in a crontab are for its ticks.
    let of_tick = known.get(&format!("JOBCTL_TICK{flag}"));
    of_tick
        .or_else(|| known.iter().find(|known| known.ends_with(flag)))
        .map(String::as_str)
        .or_else(|| did_you_mean::nearest(name, known.iter().map(String::as_str)))
}

/// Returns the variables that are set and name a proxy. jobctl reads none of them.
pub(super) fn proxy_variables() -> Vec<&'static str> {
    const NAMES: [&str; 6] =
        ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    NAMES.into_iter().filter(is_set).collect()
}

/// Names the argument or the jobctl variable that is not UTF-8, because clap's error does not.
pub(super) fn not_utf8() -> Option<String> {
    if let Some(argument) = std::env::args_os().skip(1).find(|word| word.to_str().is_none()) {
        return Some(format!("the argument `{}`", argument.to_string_lossy()));
    }
    let variables = std::env::vars_os().filter(|(_, value)| value.to_str().is_none());
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let first = names.filter(|name| name.starts_with("JOBCTL_")).min()?;
    Some(format!("the variable {first}"))
}
