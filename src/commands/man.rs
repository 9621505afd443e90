//! The manual pages in `man/`, written from the same definitions as the help. They are shipped as
//! files, so that no generator is in the binary; this test keeps them up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::Cli;

/// What stands in jobctl(1) for what the help of a command says of it.
const DESCRIPTION: &str = "\
Cron wakes jobctl; PostgreSQL decides what is due and who may run it, and remembers what happened. Jobs are
defined in a file (jobctl apply) and may have a schedule. Applications and scripts enqueue, and `jobctl tick`
does the work.

To begin with, and then from a crontab:

  jobctl migrate
  jobctl enqueue shell -- echo hello
  * * * * * jobctl tick";

/// What the definitions don't say, and people look up.
const MORE: &str = r#".SH ENVIRONMENT
.TP
\fBDATABASE_URL\fR
Where the database is, unless
.B \-\-database\-url
or
.B JOBCTL_DATABASE_URL
says so. Else the
.B PG*
variables decide, as for
.BR psql (1).
.TP
\fBJOBCTL_\fR\fIFLAG\fR
A flag: in capitals, with
.B _
for
.BR \- ,
as in
.BR JOBCTL_MAX_TIME .
.TP
\fBNO_COLOR\fR
No colour, not even on a terminal.
.SH EXIT STATUS
.TP
.B 0
Done; also a tick whose jobs failed, and an enqueue that found its key.
.TP
.B 1
It could not; also if \fBcheck\fR or \fBdoctor\fR found something wrong.
.TP
.B 2
Wrong usage.
.TP
.B 3
No such run or definition.
.TP
.B 4
Conflict: the status of the run, the schedule or the effect forbids it, the definition
is disabled, or the key belongs to a run with another job or payload.
.TP
.B 5
The database can't be reached.
.TP
.B 6
The schema is older or newer than the program.
.TP
.B 7
Configuration or privileges.
.TP
.B 8
.BR jobctl\-once (1):
an effect was begun and its end is not known.
.SH SEE ALSO
.BR crontab (5),
.BR psql (1)
"#;

const SEE_ALSO: &str = ".SH SEE ALSO\n.BR jobctl (1)\n";

#[test]
fn the_manual_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let pages = pages();
    if env::var_os("UPDATE_MAN").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        pages.iter().for_each(|(name, page)| fs::write(folder.join(name), page).unwrap());
    }
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let shipped: BTreeMap<_, _> = files
        .map(|file| (file.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(file).unwrap()))
        .collect();
    let names: BTreeSet<_> = pages.keys().chain(shipped.keys()).collect();
    let stale: Vec<_> = names.into_iter().filter(|name| pages.get(*name) != shipped.get(*name)).collect();
    assert!(stale.is_empty(), "stale: {stale:?}; run `UPDATE_MAN=1 cargo test --bin jobctl manual_pages`");
}

/// The text of each page by its file's name.
fn pages() -> BTreeMap<String, String> {
    let mut command = Cli::command().disable_help_subcommand(true).subcommand_help_heading("COMMANDS");
    command.build();
    // At the foot of each page stands a version already.
    let command = command.version(None);
    let commands: Vec<_> = command.get_subcommands().cloned().collect();
    // `ENVIRONMENT` says at length what stands below the help.
    let mut pages = BTreeMap::from([page(command.after_help(None).long_about(DESCRIPTION), MORE)]);
    pages.extend(commands.into_iter().map(|command| page(command, SEE_ALSO)));
    pages
}

fn page(command: Command, more: &str) -> (String, String) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // One line as in the help; what is generated otherwise has all flags, without their values.
    let usage = command.clone().render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let man = Man::new(command).source(concat!("jobctl ", env!("CARGO_PKG_VERSION"))).manual("User Commands");
    // No date: it would be another one with every build. An empty argument needs its quotes.
    let man = man.date("\"\"");
    let mut text = Vec::new();
    man.render(&mut text).unwrap();
    (format!("{name}.1"), with_examples(&String::from_utf8(text).unwrap()) + more)
}

/// Indented lines are set as they stand.
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
