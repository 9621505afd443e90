//! Every flag can also be given as a variable, `JOBCTL_` and its name.

use clap::builder::FalseyValueParser;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::completions::with_candidates;

/// The arguments of a command, whose flags have their variables.
#[derive(Debug)]
pub(crate) struct Environment<A>(pub(crate) A);

impl<A: Args> Args for Environment<A> {
    fn augment_args(command: Command) -> Command {
        with_candidates(with_environment(A::augment_args(command)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        with_environment(A::augment_args_for_update(command))
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

/// Set for every shell job, for the job to read. As the values of flags they would make a job that
/// enqueues another hand its own limit on, and one that lists runs see its own only.
const TOLD_TO_JOBS: [&str; 3] = ["JOBCTL_ATTEMPT", "JOBCTL_JOB", "JOBCTL_MAX_ATTEMPTS"];
/// What a job inherits that was said to its tick: which queues to serve is not where to enqueue.
const TOLD_TO_TICKS: [&str; 2] = ["JOBCTL_LIMIT", "JOBCTL_QUEUE"];

/// Flags that limit what a host executes. An empty value must not allow everything.
const POLICY: [&str; 2] = ["http-allow", "shell"];

/// Gives the command's own flags their variables, and those that take a length of time whatever is written:
/// `-5s` would be taken for an unknown flag.
pub(super) fn with_environment(command: Command) -> Command {
    let in_job = std::env::var_os("JOBCTL_RUN_ID").is_some();
    let of_apply = command.get_name() == "apply";
    let of_tick = command.get_name() == "tick";
    let of_show = command.get_name() == "show";
    let acts_on_runs = matches!(command.get_name(), "retry" | "cancel");
    command.mut_args(|argument| {
        let is_time = argument.get_value_names().is_some_and(|names| names == ["DURATION"] || names == ["TIME"]);
        let argument = if is_time { argument.allow_hyphen_values(true) } else { argument };
        let Some(long) = argument.get_long() else { return argument };
        let name = format!("JOBCTL_{}", long.to_uppercase().replace('-', "_"));
        let is_answer = matches!(argument.get_action(), ArgAction::Help | ArgAction::Version);
        // A crontab can set a variable but not unset one.
        let is_empty = std::env::var_os(&name).is_some_and(|value| value.is_empty()) && !POLICY.contains(&long);
        let is_jobs_own = in_job && TOLD_TO_JOBS.contains(&name.as_str());
        // What a crontab says for its ticks must neither make `apply` remove definitions nor decide which
        // runs are retried or cancelled.
        let is_ticks_own = of_apply && name == "JOBCTL_PRUNE"
            || acts_on_runs && name == "JOBCTL_QUEUE"
            || in_job && !of_tick && TOLD_TO_TICKS.contains(&name.as_str());
        // The same word for another thing: where the report is to be written.
        let is_reports_own = of_show && name == "JOBCTL_OUTPUT";
        if is_answer || is_empty || is_jobs_own || is_ticks_own || is_reports_own {
            return argument;
        }
        let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
        let argument = argument.env(name).hide_env(true);
        if is_switch { argument.value_parser(FalseyValueParser::new()) } else { argument }
    })
}

/// Names the argument or the jobctl variable that is not UTF-8; clap does not name it.
pub(super) fn not_utf8() -> Option<String> {
    let argument = std::env::args_os().skip(1).find(|argument| argument.to_str().is_none());
    let ours = std::env::vars_os().filter(|(_, value)| value.to_str().is_none());
    let ours = ours.filter_map(|(name, _)| name.into_string().ok()).filter(|name| name.starts_with("JOBCTL_"));
    let named = argument.map(|argument| format!("the argument `{}`", argument.to_string_lossy()));
    named.or_else(|| ours.min().map(|variable| format!("the variable {variable}")))
}
