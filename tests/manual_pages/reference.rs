//! Everything below the marker in `docs/reference.md`. The test in `mod.rs` keeps it up to date.

use clap::{Arg, Command, CommandFactory};

use crate::commands::Cli;
use crate::commands::arguments::HEADING;

/// The generated part of the page follows this line.
pub(super) const MARKER: &str =
    "<!-- Generated from here on: `UPDATE_MAN=1 cargo test --lib manual_pages` -->\n";

/// The exit statuses of every command.
pub(super) const EXIT_STATUSES: [(u8, &str); 10] = [
    (0, "done; also a tick whose jobs failed, and an enqueue that found its key"),
    (
        1,
        "the command failed, or the database rejected a part of its changes; also if `check` or \
         `doctor` found a problem",
    ),
    (2, "wrong usage; nothing was tried"),
    (3, "no such run or definition"),
    (
        4,
        "conflict: the status of the run, the schedule or the effect forbids it, another \
         transaction has locked the run, the definition is disabled, or the key belongs to a run \
         with another job or payload",
    ),
    (5, "the database can't be reached, or can't answer now"),
    (6, "the schema is older or newer than the program, or was not created by it"),
    (7, "a wrong setting, a missing privilege, or a restored database before `accept-restore`"),
    (8, "`once`: the effect was begun, and it is not known whether it happened"),
    (9, "`enqueue`: the definition is full, see `max_waiting`; nothing is enqueued"),
];

/// The environment variables that jobctl reads.
pub(super) const VARIABLES: [(&str, &str); 6] = [
    (
        "JOBCTL_DATABASE_URL, DATABASE_URL",
        "the address of the database, in this order, unless `--database-url` gives it; else the \
         `PG*` variables decide, as for `psql`",
    ),
    (
        "JOBCTL_<COMMAND>_<FLAG>",
        "the value of a flag, named in capitals with `_` for `-`: `JOBCTL_TICK_MAX_TIME` sets \
        `--max-time` of `jobctl tick`. A flag on the command line has precedence. A flag without a \
        value is on unless its variable is `0`, `no`, `n`, `false`, `f` or `off`, in upper or \
        lower case. An empty value is an error. No variable confirms a change: a command fails if \
        one is set for its `--yes`, `--force` or `--take-over`. `retry`, `cancel`, `edit`, \
        `settle`, `prune`, `hold` and `release` also fail if one is set for a flag that selects \
        the runs to change; `enqueue`, `pause` and `resume` for `--job`; and `forget` for \
        `--worker`. `doctor` reports unknown `JOBCTL_` variables",
    ),
    (
        "JOBCTL_ENV_FILE",
        "a file that sets more variables, for jobctl and its jobs; see \
         [operations.md](operations.md#secrets-for-jobs). Without it, `~/.config/jobctl/env` is \
         read if no flag or variable names a database",
    ),
    ("JOBCTL_LOG", "the level of the log: `off`, `error`, `warn`, `info`, `debug` or `trace`"),
    (
        "NO_COLOR, CLICOLOR_FORCE",
        "no colour, or colour even without a terminal; `--color`, which is `auto`, `always` or \
         `never`, has precedence",
    ),
    ("TZDIR", "the folder of the time zone files, instead of `/usr/share/zoneinfo`"),
];

/// Returns the generated part: environment, exit statuses, and the flags of every command.
pub(super) fn generated(command: &Command) -> String {
    let mut text = "\n## Environment\n\n| variable | meaning |\n|---|---|\n".to_owned();
    for (names, meaning) in VARIABLES {
        text += &format!("| `{}` | {meaning} |\n", names.replace(", ", "`, `"));
    }
    text += "\n## Exit status\n\n| status | meaning |\n|---|---|\n";
    for (status, meaning) in EXIT_STATUSES {
        text += &format!("| {status} | {meaning} |\n");
    }
    text += "\nA command with several ids exits with the highest status of any of them.\n\n";
    text += "## Commands\n";
    let without_list = Cli::command().override_usage("jobctl [OPTIONS] <COMMAND>");
    text += &block(without_list.mut_subcommands(|command| command.hide(true)));
    let list = command.find_subcommand("list").expect("`list` has the filters");
    for command in command.get_subcommands() {
        let (name, shared) = (command.get_name(), shared(command, list));
        let own = command.clone().mut_args(|argument| {
            // The first block shows the flags that all commands have.
            let is_shown = argument.is_global_set() || argument.get_id() == "help";
            let is_shown = is_shown || shared.contains(&&argument);
            argument.hide(is_shown)
        });
        text += &format!("\n### jobctl {name}\n{}", block(own));
        let has_filters = shared.iter().any(|argument| argument.get_id() == "key");
        let flags = shared
            .iter()
            .filter(|argument| !has_filters || argument.get_help_heading() != Some(HEADING));
        let flags = flags.map(|flag| format!("`--{}`", flag.get_id().as_str().replace('_', "-")));
        let filters = has_filters.then(|| "the [filters](#filters)".to_owned());
        let also: Vec<_> = filters.into_iter().chain(flags).collect();
        if !also.is_empty() {
            text += &format!("\nLike [list](#jobctl-list): {}.\n", also.join(", "));
        }
    }
    text
}

/// The flags that a command has like `list`. The page shows them once.
fn shared<'a>(command: &'a Command, list: &Command) -> Vec<&'a Arg> {
    let is_shared = |argument: &&Arg| {
        let is_same = |other: &Arg| {
            argument.get_help_heading().is_some()
                && !argument.is_global_set()
                && (argument.get_id(), argument.get_help().map(ToString::to_string))
                    == (other.get_id(), other.get_help().map(ToString::to_string))
        };
        command.get_name() != list.get_name() && list.get_arguments().any(is_same)
    };
    command.get_arguments().filter(is_shared).collect()
}

/// The help with a line for each flag.
fn block(command: Command) -> String {
    format!("\n```text\n{}```\n", command.term_width(100).render_help())
}
