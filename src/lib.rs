//! `jobctl`: background jobs in PostgreSQL tables, started by cron.
//!
//! This file parses the command line, runs the command, and prints its error in one line. It is a
//! library only for the program and for the benchmark.

// The simulation writes rows of definitions with `json!`.
#![cfg_attr(test, recursion_limit = "256")]

mod commands;
mod connect;
mod execute;
mod exit;
mod files;
mod health;
mod job;
mod print;
mod report;
mod store;
mod text;
mod tick;
mod upkeep;

use std::process::ExitCode;

use log::LevelFilter;

use exit::Exit;
use print::LogFormat;

#[doc(hidden)]
pub use execute::benchmark;

/// Runs the command line, and returns the exit status of the process.
#[must_use]
pub fn main() -> ExitCode {
    execute::hide_environment();
    let loaded = commands::load_env_file();
    if commands::answer_shell() {
        return ExitCode::SUCCESS;
    }
    let parsed = commands::parse();
    let tick = parsed.as_ref().ok().and_then(|cli| cli.command.tick());
    // Process 1 runs the command in a child with a process group of its own. Do this only for
    // commands that execute jobs: others may ask for confirmation, and only a process of the
    // terminal's group can read the answer.
    if parsed.as_ref().is_ok_and(|cli| cli.command.executes_jobs())
        && let Some(exit) = execute::run_as_init()
    {
        return exit;
    }
    let is_quiet = tick.is_some_and(|tick| tick.quiet);
    let result = match (loaded, parsed) {
        // Completions, help and version are printed even if the file of variables has a mistake.
        (_, Ok(cli)) if cli.command.needs_no_settings() => cli.command.run(&cli.database),
        (_, Err(usage)) if !usage.use_stderr() => Ok(commands::explain(&usage)),
        // If the command line has a mistake, too, only the file's mistake is printed.
        (Err(error), _) => Err(error),
        (Ok(()), Ok(cli)) => run(cli),
        (Ok(()), Err(usage)) => Ok(commands::explain(&usage)),
    };
    let exit = result.unwrap_or_else(|error| {
        // Cron mails each line, so print the error of a quiet tick once an hour.
        let complain = if is_quiet { print::complain_hourly } else { print::complain };
        complain(&format!("{error:#}"));
        commands::exit_of(&error)
    });
    print::finish();
    ExitCode::from(exit.status())
}

/// Starts the log and runs the command.
fn run(cli: commands::Cli) -> anyhow::Result<Exit> {
    print::set_colour(cli.color);
    match cli.command.tick() {
        Some(tick) if tick.quiet => print::start_log(LevelFilter::Warn, tick.log_format),
        Some(tick) => print::start_log(LevelFilter::Info, tick.log_format),
        None => print::start_log(LevelFilter::Warn, LogFormat::Text),
    }?;
    cli.command.run(&cli.database)
}
