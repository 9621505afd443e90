//! What to write instead, for a command line that clap refuses. Pure.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words that other tools use, and what jobctl calls the same.
const ELSEWHERE: [(&[&str], &str); 9] = [
    (&["run", "start", "work", "worker", "serve", "daemon", "--daemon", "-d"], "cron runs jobs by: jobctl tick"),
    (&["add", "push", "create", "submit"], "a run is added by: jobctl enqueue JOB"),
    (&["ls", "ps", "runs", "history"], "runs are listed by: jobctl list"),
    (&["log", "logs", "output"], "the output of a run is shown by: jobctl show ID --output"),
    (&["stop", "kill", "abort"], "a run is stopped by: jobctl cancel ID"),
    (&["rm", "delete", "clean", "purge"], "old runs are deleted by: jobctl prune"),
    (&["setup", "install", "upgrade"], "the schema is created and upgraded by: jobctl migrate"),
    (&["stats", "info", "top"], "an overview is printed by: jobctl status"),
    (&["version"], "the version is printed by: jobctl --version"),
];

/// Adds the tip of this program where clap has none, or a wrong one.
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

/// clap would have the single word of a command that `enqueue` can't place behind `--`.
fn of_enqueue(usage: &clap::Error) -> Option<&'static str> {
    let is_close_to_a_flag = usage.get(ContextKind::SuggestedArg).is_some();
    let is_enqueue = usage.get(ContextKind::Usage)?.to_string().contains("jobctl enqueue ");
    (usage.kind() == ErrorKind::UnknownArgument && !is_close_to_a_flag && is_enqueue)
        .then_some("for a command write: jobctl enqueue shell -- COMMAND")
}
