//! Suggestions for command lines that clap rejects. Pure.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use crate::text::did_you_mean;

/// Words that other tools use, and the jobctl commands for them.
const ELSEWHERE: [(&[&str], &str); 11] = [
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
];

/// Adds jobctl's suggestion if clap has none or a wrong one.
pub(super) fn with_tip(mut usage: clap::Error) -> clap::Error {
    let is_far = suggests_a_distant_flag(&usage);
    if is_far {
        usage.remove(ContextKind::SuggestedArg);
    }
    let tip = elsewhere(&usage).or_else(|| of_enqueue(&usage));
    if is_far {
        // It shows the distant flag.
        usage.remove(ContextKind::Usage);
    }
    if let Some(tip) = tip {
        usage.remove(ContextKind::SuggestedSubcommand);
        usage.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.to_owned().into()]));
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
    pair.is_some_and(|(given, meant)| {
        !meant.starts_with(&given) && did_you_mean::nearest(&given, [&*meant]).is_none()
    })
}

/// Returns the command that was probably meant: clap suggests none after `help`.
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

fn elsewhere(usage: &clap::Error) -> Option<&'static str> {
    let given = match usage.kind() {
        ErrorKind::InvalidSubcommand => usage.get(ContextKind::InvalidSubcommand)?,
        ErrorKind::UnknownArgument => usage.get(ContextKind::InvalidArg)?,
        _ => return None,
    };
    let given = given.to_string();
    ELSEWHERE.iter().find(|(words, _)| words.contains(&given.as_str())).map(|(_, tip)| *tip)
}

/// Returns the tip for a command after `enqueue` without `shell --`. For such a command line, clap
/// would put its `--` in the wrong place.
fn of_enqueue(usage: &clap::Error) -> Option<&'static str> {
    let is_close_to_a_flag = usage.get(ContextKind::SuggestedArg).is_some();
    let is_enqueue = usage.get(ContextKind::Usage)?.to_string().contains("jobctl enqueue ");
    (usage.kind() == ErrorKind::UnknownArgument && !is_close_to_a_flag && is_enqueue)
        .then_some("to run a command: jobctl enqueue shell -- COMMAND")
}
