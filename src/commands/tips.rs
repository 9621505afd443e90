//! Suggestions for command lines that clap rejects. Pure.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words that other tools use, and the jobctl commands for them.
const ELSEWHERE: [(&[&str], &str); 10] = [
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
];

/// Adds jobctl's suggestion if clap has none or a wrong one.
pub(super) fn with_tip(mut usage: clap::Error) -> clap::Error {
    if let Some(tip) = elsewhere(&usage).or_else(|| of_enqueue(&usage)) {
        usage.remove(ContextKind::SuggestedSubcommand);
        usage.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.to_owned().into()]));
    }
    usage
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
