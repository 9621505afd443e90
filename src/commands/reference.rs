//! Everything below the marker in `docs/reference.md`, written from the definitions of the help.
//! The test in `man.rs` keeps it up to date.

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

use super::help::GROUPS;

/// The generated part of the page follows this line.
pub(super) const MARKER: &str =
    "<!-- Generated from here on: `UPDATE_MAN=1 cargo test --bin jobctl manual_pages` -->\n";

/// The exit statuses of every command.
pub(super) const EXIT_STATUSES: [(u8, &str); 10] = [
    (0, "done; also a tick whose jobs failed, and an enqueue that found its key"),
    (1, "the command failed; also if `check` or `doctor` found a problem"),
    (2, "wrong usage; nothing was tried"),
    (3, "no such run or definition"),
    (
        4,
        "conflict: the status of the run, the schedule or the effect forbids it, the definition is \
         disabled, or the key belongs to a run with another job or payload",
    ),
    (5, "the database can't be reached, or can't answer now"),
    (6, "the schema is older or newer than the program, or was not created by it"),
    (7, "a wrong setting, or a missing privilege"),
    (8, "`once`: the effect was begun, and it is not known whether it happened"),
    (9, "`enqueue`: the definition is full, see `max_waiting`; nothing is enqueued"),
];

/// The environment variables that jobctl reads.
pub(super) const VARIABLES: [(&str, &str); 5] = [
    (
        "JOBCTL_DATABASE_URL, DATABASE_URL",
        "the address of the database, in this order, unless `--database-url` gives it; else the \
         `PG*` variables decide, as for `psql`",
    ),
    (
        "JOBCTL_<COMMAND>_<FLAG>",
        "the value of a flag, named in capitals with `_` for `-`: `JOBCTL_TICK_MAX_TIME` sets \
        `--max-time` of `jobctl tick`. A flag on the command line has precedence. A flag without a \
        value is on unless its variable is empty, `0`, `no` or `false`. \
         `doctor` reports unknown `JOBCTL_` variables",
    ),
    ("JOBCTL_LOG", "the level of the log: `off`, `error`, `warn`, `info`, `debug` or `trace`"),
    (
        "NO_COLOR, CLICOLOR_FORCE",
        "no colour, or colour even without a terminal; `--color` has precedence",
    ),
    ("TZDIR", "the folder of the time zone files, instead of `/usr/share/zoneinfo`"),
];

/// Returns the generated part: environment, exit statuses, then the commands in the order of the
/// help, with the flags that all of them share.
pub(super) fn generated(command: &Command) -> String {
    let mut text = String::new();
    add_table(
        &mut text,
        "## Environment",
        ["variable", "meaning"],
        VARIABLES.iter().map(|row| {
            let names: Vec<_> = row.0.split(", ").map(|name| format!("`{name}`")).collect();
            [names.join(", "), row.1.to_owned()]
        }),
    );
    let statuses = EXIT_STATUSES.iter().map(|row| [row.0.to_string(), row.1.to_owned()]);
    add_table(&mut text, "## Exit status", ["status", "meaning"], statuses);
    text += "\nWith several ids, the exit status is the largest one.\n";
    let shared = command.get_arguments().filter(|argument| argument.is_global_set()).map(row);
    let answers =
        ["--help", "--version"].map(|flag| command.get_arguments().find(|a| a.to_string() == flag));
    let shared = shared.chain(answers.into_iter().flatten().map(row));
    add_table(&mut text, "## Flags of every command", ["flag", "meaning", "default"], shared);
    text += "\n## Commands\n";
    for (group, names) in GROUPS {
        let _ = write!(text, "\n{group}:");
        for name in names {
            let _ = write!(text, " [{name}](#jobctl-{name})");
        }
        text += "\n";
    }
    let grouped = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let commands: Vec<_> = grouped.filter_map(|name| command.find_subcommand(name)).collect();
    let shared = shared_flags(&commands);
    let rows = shared.iter().map(|(row, names)| {
        let [flag, meaning, default] = row.clone();
        [flag, meaning, default, names.join(", ")]
    });
    let header = ["flag", "meaning", "default", "commands"];
    add_table(&mut text, "### Shared flags", header, rows);
    commands.iter().for_each(|command| add_command(&mut text, command, &shared));
    text
}

/// Flags that mean the same in three commands or more, with the names of these.
fn shared_flags<'a>(commands: &[&'a Command]) -> Vec<([String; 3], Vec<&'a str>)> {
    let mut flags: Vec<([String; 3], Vec<&str>)> = Vec::new();
    for command in commands {
        for row in own_arguments(command).filter(|argument| !argument.is_positional()).map(row) {
            match flags.iter_mut().find(|(flag, _)| *flag == row) {
                Some((_, names)) => names.push(command.get_name()),
                None => flags.push((row, vec![command.get_name()])),
            }
        }
    }
    flags.retain(|(_, names)| names.len() >= 3);
    flags
}

fn own_arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|a| !a.is_global_set() && a.get_id() != "help")
}

fn add_command(text: &mut String, command: &Command, shared: &[([String; 3], Vec<&str>)]) {
    let usage = command.clone().render_usage().to_string();
    let about = command.get_long_about().or(command.get_about());
    let usage = usage.trim_start_matches("Usage: ");
    let _ = writeln!(text, "\n### jobctl {}\n\n`{usage}`\n", command.get_name());
    for line in about.map(ToString::to_string).unwrap_or_default().lines() {
        // Examples are indented by two; Markdown needs four.
        let line = if line.starts_with("  ") { format!("  {line}") } else { escaped(line) };
        let _ = writeln!(text, "{line}");
    }
    let (arguments, flags): (Vec<_>, Vec<_>) =
        own_arguments(command).partition(|argument| argument.is_positional());
    let is_shared = |flag: &[String; 3]| shared.iter().any(|(shared, _)| shared == flag);
    let (shared, own): (Vec<_>, Vec<_>) = flags.into_iter().map(row).partition(is_shared);
    for (title, rows) in [("argument", arguments.into_iter().map(row).collect()), ("flag", own)] {
        if !rows.is_empty() {
            add_table(text, "", [title, "meaning", "default"], rows.into_iter());
        }
    }
    if !shared.is_empty() {
        let names: Vec<_> = shared.iter().map(|[flag, ..]| flag.as_str()).collect();
        let _ = writeln!(text, "\n[Shared flags](#shared-flags): {}", names.join(", "));
    }
}

/// The name, meaning and default of an argument or flag.
fn row(argument: &Arg) -> [String; 3] {
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = match help.split_once(" [default: ") {
        Some((meaning, default)) => (meaning, default.trim_end_matches(']').to_owned()),
        None if argument.get_action().takes_values() => {
            let values = argument.get_default_values().iter().map(|value| value.to_string_lossy());
            (help.as_str(), values.collect::<Vec<_>>().join(", "))
        }
        None => (help.as_str(), String::new()),
    };
    let mut meaning = escaped(meaning);
    if argument.get_action().takes_values() {
        let values = argument.get_possible_values();
        let values = values.iter().map(|value| {
            let help = value.get_help().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("`{}`{help}", value.get_name())
        });
        let values: Vec<_> = values.collect();
        let is_named =
            |value: &PossibleValue| help.contains(value.get_name()) && value.get_help().is_none();
        if !argument.get_possible_values().iter().all(is_named) {
            meaning = format!("{meaning}: {}", values.join(", "));
        }
    }
    [format!("`{short}{argument}`"), meaning, escaped(&default)]
}

fn add_table<const N: usize>(
    text: &mut String,
    title: &str,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    if !title.is_empty() {
        let _ = writeln!(text, "\n{title}");
    }
    let _ = writeln!(text, "\n| {} |\n|{}", header.join(" | "), "---|".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
}

/// Markdown that shows the text as it is; parts in backticks stay.
fn escaped(text: &str) -> String {
    let escape = |(index, part): (usize, &str)| {
        if index % 2 == 1 { part.to_owned() } else { part.replace('*', "\\*").replace('<', "\\<") }
    };
    text.split('`').enumerate().map(escape).collect::<Vec<_>>().join("`")
}
