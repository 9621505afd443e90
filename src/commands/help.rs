//! The commands in groups, as `jobctl --help` shows them; clap has groups for flags only.

use std::fmt::Write;
use std::iter;

use clap::Command;

use super::GROUPS;

/// Returns the command with a help that shows its subcommands in their groups.
pub(super) fn grouped(command: Command) -> Command {
    // Hide these flags, so that all commands fit on one screen.
    let built = built(command).mut_args(|argument| match argument.get_id().as_str() {
        "help" | "version" | "color" => argument.hide(true),
        _ => argument,
    });
    let mut template = "{about-with-newline}{usage-heading} {usage}\n".to_owned();
    // The first command of a group has the group's name before it, and the others have none.
    let headings = |(group, size)| iter::once(group).chain(iter::repeat("")).take(size);
    let commands = GROUPS.into_iter().flat_map(headings).zip(built.get_subcommands());
    let (_, size_of_first_group) = GROUPS[0];
    for (index, (group, command)) in commands.enumerate() {
        if index == size_of_first_group {
            template += "More:\n";
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        // Writing into a string does not fail.
        let _ = writeln!(template, "{group:7} {:14} {about}", command.get_name());
    }
    // As a part of the template, the text has no empty line before it, which clap would add.
    let after = built.get_after_help().map(ToString::to_string).unwrap_or_default();
    built.help_template(format!("{template}{{options}}\n{after}"))
}

/// Builds the flags of all subcommands; clap builds only those of the given one.
fn built(mut command: Command) -> Command {
    command.build();
    command
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn the_commands_fit_on_one_screen() {
        let help = grouped(Cli::command()).term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 39, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn every_command_has_an_example_and_every_flag_one_line_of_help() {
        for command in built(Cli::command().disable_help_subcommand(true)).get_subcommands() {
            let (name, help) = (command.get_name(), command.clone().render_long_help().to_string());
            // An example is a command or a line of a crontab.
            let is_example = |line: &str| {
                let words = line.split_whitespace().skip_while(|word| *word != "jobctl").take(2);
                (line.starts_with("  jobctl") || line.starts_with("  *"))
                    && words.eq(["jobctl", name])
            };
            let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(
                about.lines().all(|line| line.chars().count() <= 80),
                "{name}: wider than a terminal:\n{about}"
            );
            assert!(help.lines().any(is_example), "`jobctl {name} --help` has no example:\n{help}");
            for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    !help.is_empty() && !help.starts_with('[') && !help.contains('\n'),
                    "{name}: {argument}: {help}"
                );
                assert!(argument.get_long_help().is_none(), "{name}: {argument}");
            }
        }
    }
}
