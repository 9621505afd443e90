//! `jobctl`: background jobs out of PostgreSQL tables, woken by cron.
//!
//! This file is the table of contents: the commands, the one line an error becomes, the exit status.

mod action;
mod backoff;
mod commands;
mod connect;
mod count;
mod definition;
mod duration;
mod execute;
mod exit;
mod findings;
mod fires;
mod model;
mod patience;
mod payload;
mod print;
mod redact;
mod report;
mod schedule;
mod spelling;
mod store;
mod tick;
mod verdict;
mod waiting;

use std::process::ExitCode;

use commands::Command;
use exit::Exit;

fn main() -> ExitCode {
    if commands::answer_shell() {
        return ExitCode::SUCCESS;
    }
    execute::hide_environment();
    let exit = match commands::parse() {
        Ok(cli) => {
            let is_quiet = cli.command.is_quiet();
            run(cli).unwrap_or_else(|error| {
                let exit = commands::exit_of(&error);
                let complain =
                    if is_quiet && exit == Exit::Unavailable { print::complain_hourly } else { print::complain };
                complain(&format!("{error:#}"));
                exit
            })
        }
        Err(usage) => commands::explain(&usage),
    };
    print::finish();
    ExitCode::from(exit.status())
}

fn run(cli: commands::Cli) -> anyhow::Result<Exit> {
    print::start_log(cli.command.log_level())?;
    let database = &cli.database;
    match cli.command {
        Command::Migrate(arguments) => arguments.0.run(database),
        Command::Apply(arguments) => arguments.0.run(database),
        Command::Enqueue(arguments) => arguments.0.run(database),
        Command::Tick(arguments) => arguments.0.run(database),
        Command::Retry(arguments) => arguments.0.run(database),
        Command::Cancel(arguments) => arguments.0.run(database),
        Command::List(arguments) => arguments.0.run(database),
        Command::ListDead(arguments) => arguments.0.run(database),
        Command::Prune(arguments) => arguments.0.run(database),
        Command::Doctor(arguments) => arguments.0.run(database),
        Command::Show(arguments) => arguments.0.run(database),
        Command::Grants(arguments) => arguments.0.run(database),
        Command::Next(arguments) => arguments.0.run(database),
        Command::Once(arguments) => arguments.0.run(database),
        Command::Report(arguments) => arguments.0.run(database),
        Command::Pause(arguments) => arguments.0.run(database),
        Command::Resume(arguments) => arguments.0.run(database),
        Command::Status(arguments) => arguments.0.run(database),
        Command::Check(arguments) => arguments.0.run(database),
        Command::Completions(arguments) => arguments.0.run(database),
    }
}
