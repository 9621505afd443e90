//! The manual pages in `man/` and the commands in `docs/reference.md`, written from the same
//! definitions as the help. They are shipped as files, so that no generator is in the binary; this
//! test keeps them up to date.

mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::Cli;
use reference::{EXIT_STATUSES, MARKER, VARIABLES, generated};

/// The description in jobctl(1); the help of a command has its own.
const DESCRIPTION: &str = "\
Cron starts jobctl. PostgreSQL decides which runs are due and which worker may execute them, and
remembers the results. Jobs are defined in a file (jobctl apply) and may have a schedule.
Applications and scripts enqueue, and `jobctl tick` does the work.

To begin with, and then from a crontab:

  jobctl migrate
  jobctl enqueue shell -- echo hello
  * * * * * jobctl tick --quiet";

const SEE_ALSO: &str = ".SH SEE ALSO\n.BR jobctl (1)\n";

#[test]
fn the_manual_pages_and_the_reference_are_up_to_date() {
    const REFERENCE: &str = "docs/reference.md";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reference = fs::read_to_string(root.join(REFERENCE)).unwrap();
    let (head, _) = reference.split_once(MARKER).expect("the page has its marker");
    let mut pages = pages();
    pages.insert(REFERENCE.to_owned(), [head, MARKER, &generated(&definitions())].concat());
    let folder = root.join("man");
    if env::var_os("UPDATE_MAN").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        pages.iter().for_each(|(name, page)| fs::write(root.join(name), page).unwrap());
    }
    let files = fs::read_dir(&folder).unwrap();
    let files = files.map(|file| format!("man/{}", file.unwrap().file_name().display()));
    let names: BTreeSet<_> = pages.keys().cloned().chain(files).collect();
    let is_stale =
        |name: &&String| fs::read_to_string(root.join(name)).ok().as_ref() != pages.get(*name);
    let stale: Vec<_> = names.iter().filter(is_stale).collect();
    assert!(stale.is_empty(), "stale: {stale:?}; run `UPDATE_MAN=1 cargo test --lib manual_pages`");
}

/// The commands with all their flags.
fn definitions() -> Command {
    let mut command =
        Cli::command().disable_help_subcommand(true).subcommand_help_heading("COMMANDS");
    command.build();
    command
}

/// The text of each page by its path.
fn pages() -> BTreeMap<String, String> {
    // The foot of each page already has the version.
    let command = definitions().version(None);
    let commands: Vec<_> = command.get_subcommands().cloned().collect();
    // The section ENVIRONMENT replaces the text below the help.
    let mut pages =
        BTreeMap::from([page(command.after_help(None).long_about(DESCRIPTION), &more())]);
    pages.extend(commands.into_iter().map(|command| page(command, SEE_ALSO)));
    pages
}

/// The sections of jobctl(1) that the definitions of the help do not have.
fn more() -> String {
    let mut more = ".SH ENVIRONMENT\n".to_owned();
    VARIABLES.iter().for_each(|(names, meaning)| more += &item(names, meaning));
    more += ".SH EXIT STATUS\n";
    let statuses = EXIT_STATUSES.iter();
    statuses.for_each(|(status, meaning)| more += &item(&status.to_string(), meaning));
    more + ".SH SEE ALSO\n.BR crontab (5),\n.BR psql (1)\n"
}

/// An entry of a list; parts in backticks are bold.
fn item(name: &str, meaning: &str) -> String {
    let part = |(index, part): (usize, &str)| {
        let part = part.replace('-', "\\-");
        if index % 2 == 1 { format!("\\fB{part}\\fR") } else { part }
    };
    let meaning: String = meaning.split('`').enumerate().map(part).collect();
    let mut letters = meaning.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    format!(".TP\n\\fB{name}\\fR\n{}{}.\n", first.collect::<String>(), letters.as_str())
}

fn page(command: Command, more: &str) -> (String, String) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // One line as in the help; the generated one would list all flags without their values.
    let usage = command.clone().render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let man = Man::new(command)
        .source(concat!("jobctl ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    // No date, because it would change with every build. An empty argument needs its quotes.
    let man = man.date("\"\"");
    let mut text = Vec::new();
    man.render(&mut text).unwrap();
    (format!("man/{name}.1"), with_examples(&String::from_utf8(text).unwrap()) + more)
}

/// Keeps indented lines unchanged.
fn with_examples(page: &str) -> String {
    let mut text = String::new();
    let mut as_it_stands = false;
    for line in page.lines() {
        if line.starts_with("  ") != as_it_stands {
            as_it_stands = !as_it_stands;
            text += if as_it_stands { ".nf\n" } else { ".fi\n" };
        }
        text += line;
        text += "\n";
    }
    text
}
