//! `jobctl`: background jobs in PostgreSQL tables, started by cron.
//!
//! This file parses the command line, runs the command, and prints its error in one line.

mod attempt;
mod commands;
mod connect;
mod execute;
mod exit;
mod files;
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

use log::LevelFilter;

use exit::Exit;
use print::LogFormat;

fn main() -> ExitCode {
    execute::hide_environment();
    let loaded = commands::load_env_file();
    if commands::answer_shell() {
        return ExitCode::SUCCESS;
    }
    if let Err(error) = loaded {
        print::complain(&format!("{error:#}"));
        return ExitCode::from(commands::exit_of(&error).status());
    }
    let exit = match commands::parse() {
        Ok(cli) => {
            let is_quiet = cli.command.tick().is_some_and(|tick| tick.quiet);
            run(cli).unwrap_or_else(|error| {
                let exit = commands::exit_of(&error);
                // Cron mails each line, and an outage, an upgrade or a restore lasts for minutes.
                let is_hourly =
                    is_quiet && matches!(exit, Exit::Unavailable | Exit::Schema | Exit::Restored);
                let complain = if is_hourly { print::complain_hourly } else { print::complain };
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
    match cli.command.tick() {
        Some(tick) if tick.quiet => print::start_log(LevelFilter::Warn, tick.log_format),
        Some(tick) => print::start_log(LevelFilter::Info, tick.log_format),
        None => print::start_log(LevelFilter::Warn, LogFormat::Text),
    }?;
    cli.command.run(&cli.database)
}
