//! Suggestions for command lines that clap rejects.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use super::enqueue::QUOTES;
use super::{Cli, environment};
use crate::job::{action, definition_keys, payload};
use crate::text::did_you_mean;

/// Words that other tools use, and the tips about jobctl's commands for them.
const WORDS_OF_OTHER_TOOLS: [(&[&str], &str); 12] = [
    (&["run", "start", "exec"], "to run a job: jobctl enqueue JOB; then cron calls: jobctl tick"),
    (
        &["work", "worker", "serve", "daemon", "--daemon", "-d"],
        "to run jobs, cron calls: jobctl tick",
    ),
    (&["add", "push", "create", "submit"], "to add a run: jobctl enqueue JOB"),
    (&["ls", "ps", "runs", "history"], "to list runs: jobctl list"),
    (&["log", "logs", "output"], "to show a run's output: jobctl show ID --output"),
    (&["stop", "kill", "abort"], "to stop a run: jobctl cancel ID"),
    (&["rm", "delete", "clean", "purge"], "to delete old runs: jobctl prune"),
    (&["setup", "install", "upgrade"], "to create or upgrade the schema: jobctl migrate"),
    (&["stats", "info", "top"], "to print an overview: jobctl status"),
    (&["version"], "to print the version: jobctl --version"),
    (
        &["--at", "--when", "--time", "--delay", "--after"],
        "to start a run later: --run-at TIME or --in DURATION",
    ),
    (
        &["--payload", "--data", "--json-payload", "--args"],
        "to give a payload: jobctl enqueue JOB '{\"user\": 1}'",
    ),
];

/// Replaces clap's suggestion by jobctl's, if there is one. Removes a flag that clap suggests, but
/// that was hardly meant.
pub(super) fn with_tip(mut usage: clap::Error) -> clap::Error {
    let is_distant = suggests_a_distant_flag(&usage);
    if is_distant {
        usage.remove(ContextKind::SuggestedArg);
    }
    let tip = for_word_of_other_tool(&usage)
        .or_else(|| for_words_of_enqueue(&usage))
        .map(str::to_owned)
        .or_else(|| for_several_scopes(&usage))
        .or_else(|| for_name_or_id(&usage));
    if is_distant {
        // The usage line shows the distant flag, so remove it, too. The tips needed it until here.
        usage.remove(ContextKind::Usage);
    }
    if let Some(tip) = tip {
        usage.remove(ContextKind::SuggestedSubcommand);
        usage.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    } else if let Some(command) = near_command(&usage) {
        let command = ContextValue::Strings(vec![command]);
        usage.insert(ContextKind::SuggestedSubcommand, command);
    }
    usage
}

/// Returns whether clap suggests a flag that was hardly meant, such as `--force` for `--worker`.
fn suggests_a_distant_flag(usage: &clap::Error) -> bool {
    let text = |part| usage.get(part).map(ToString::to_string);
    let pair = text(ContextKind::InvalidArg).zip(text(ContextKind::SuggestedArg));
    pair.is_some_and(|(given, suggested)| {
        !suggested.starts_with(&given) && did_you_mean::nearest(&given, [&*suggested]).is_none()
    })
}

/// Returns the command that was probably meant by an unknown one, if clap suggests none, as after
/// `help`.
fn near_command(usage: &clap::Error) -> Option<String> {
    if usage.kind() != ErrorKind::InvalidSubcommand
        || usage.get(ContextKind::SuggestedSubcommand).is_some()
    {
        return None;
    }
    let given = usage.get(ContextKind::InvalidSubcommand)?.to_string();
    let commands = Cli::command();
    let names = commands.get_subcommands().map(|command| command.get_name());
    did_you_mean::nearest(&given, names).map(str::to_owned)
}

/// Returns the tip for a word that another tool uses.
fn for_word_of_other_tool(usage: &clap::Error) -> Option<&'static str> {
    let given = match usage.kind() {
        ErrorKind::InvalidSubcommand => usage.get(ContextKind::InvalidSubcommand)?,
        ErrorKind::UnknownArgument => usage.get(ContextKind::InvalidArg)?,
        _ => return None,
    };
    let given = given.to_string();
    WORDS_OF_OTHER_TOOLS
        .iter()
        .find(|(words, _)| words.contains(&given.as_str()))
        .map(|(_, tip)| *tip)
}

/// Returns the tip for an unknown argument of `enqueue`: the shell has split a payload, or a
/// command has no `shell --` before it. clap's own tip would put `--` in a wrong place.
fn for_words_of_enqueue(usage: &clap::Error) -> Option<&'static str> {
    let is_close_to_a_flag = usage.get(ContextKind::SuggestedArg).is_some();
    let is_enqueue = usage.get(ContextKind::Usage)?.to_string().contains("jobctl enqueue ");
    if usage.kind() != ErrorKind::UnknownArgument || is_close_to_a_flag || !is_enqueue {
        return None;
    }
    let is_broken_json = |word: String| {
        word.starts_with(['{', '[', '"']) && payload::check(word.as_bytes()).is_err()
    };
    let mut words = std::env::args_os().filter_map(|word| word.into_string().ok());
    let is_split = words.any(is_broken_json);
    Some(if is_split { QUOTES } else { "to run a command: jobctl enqueue shell -- COMMAND" })
}

/// Returns the tip for a `hold` or `release` with targets of several kinds, such as a job and a
/// queue: one command for each. Together they would look like filters, which select fewer runs, but
/// each further hold keeps more runs from starting.
fn for_several_scopes(usage: &clap::Error) -> Option<String> {
    let commands = Cli::command();
    let name = environment::given(&commands)?.get_name();
    if usage.kind() != ErrorKind::ArgumentConflict || !["hold", "release"].contains(&name) {
        return None;
    }
    let text = |part| usage.get(part).map(ToString::to_string).unwrap_or_default();
    let (prior, invalid) = (text(ContextKind::PriorArg), text(ContextKind::InvalidArg));
    let flags: Vec<_> = prior.split(", ").chain(invalid.split(", ")).collect();
    let is_target = |flag: &str| {
        ["[JOB]", "--job", "--queue", "--worker"].iter().any(|target| flag.starts_with(target))
    };
    if !flags.iter().all(|flag| is_target(flag)) {
        return None;
    }
    let each: Vec<_> = flags.iter().map(|flag| format!("jobctl {name} {flag}")).collect();
    Some(format!("to {name} the runs of each: {}", each.join(" && ")))
}

/// Returns the tip for a job's name in the place of a run's id, for a run's id in the place of a
/// job's name, or for a missing id.
fn for_name_or_id(usage: &clap::Error) -> Option<String> {
    let mut commands = Cli::command();
    commands.build();
    let command = environment::given(&commands)?;
    let text = |part| usage.get(part).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let takes_id = argument.contains("<ID>") || argument.contains("[ID]");
    match usage.kind() {
        ErrorKind::ValueValidation if takes_id && is_name(&value) => {
            Some(for_name_as_id(command, &argument, &value))
        }
        ErrorKind::ValueValidation if argument == "[JOB]" && value.parse::<u64>().is_ok() => {
            Some(format!("to show one run: jobctl show {value}"))
        }
        ErrorKind::MissingRequiredArgument if takes_id => Some(for_missing_id(command)),
        _ => None,
    }
}

/// Returns the tip for a `job`'s name in the place of a run's id.
fn for_name_as_id(command: &Command, argument: &str, job: &str) -> String {
    let flags = all_flags(command);
    // The id of a flag, such as `--after ID`, can't be replaced by a flag for all runs.
    let is_flag = argument.starts_with('-');
    match flags.first() {
        Some(flag) if !is_flag => {
            let name = command.get_name();
            format!("to select runs by their job: jobctl {name} {flag} --job {job}")
        }
        _ => format!("to list the ids of a job's runs: jobctl list --job {job}"),
    }
}

/// Returns the tip for a command that lacks the ids of runs.
fn for_missing_id(command: &Command) -> String {
    let flags = all_flags(command);
    if flags.is_empty() {
        return "to list the ids of runs: jobctl list".to_owned();
    }
    format!(
        "instead of ids: {}; filters such as --job, --queue and --since narrow them down",
        flags.join(" or ")
    )
}

/// Returns the flags that make a command take all runs that match its filters instead of ids, such
/// as `--all-waiting`; empty if it has none.
fn all_flags(command: &Command) -> Vec<String> {
    let group = command.get_groups().find(|group| group.get_id() == "All");
    let is_all = |argument: &&Arg| {
        argument.get_id() == "All"
            || group.is_some_and(|group| group.get_args().any(|id| id == argument.get_id()))
    };
    let flags = command.get_arguments().filter(is_all);
    flags.filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect()
}

/// Returns whether a word can be a job's name, but not a run's id.
fn is_name(word: &str) -> bool {
    let has_letter = word.contains(|c: char| c.is_ascii_alphabetic());
    action::is_built_in(word) || definition_keys::check_name(word).is_ok() && has_letter
}
