//! `jobctl`: background jobs in PostgreSQL tables, started by cron.
//!
//! This file parses the command line, runs the command, and prints its error in one line.

mod commands;
mod connect;
mod execute;
mod exit;
mod health;
mod job;
mod print;
mod report;
mod schedule;
mod store;
mod text;
mod tick;
mod upkeep;

use std::process::ExitCode;

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
                let complain = if is_quiet && exit == Exit::Unavailable {
                    print::complain_hourly
                } else {
                    print::complain
                };
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
    print::set_colour(cli.color);
    print::start_log(cli.command.log_level(), cli.command.log_format())?;
    cli.command.run(&cli.database)
}
