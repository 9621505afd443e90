//! Measures whole processes: their time and their memory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// The argument that makes this program run a command and print the command's peak memory.
pub const MEMORY: &str = "--measure-memory";

/// Returns a command of jobctl for the database at this address.
pub struct Jobctl(pub Command);

impl Jobctl {
    pub fn new<const N: usize>(database: &str, arguments: [&str; N]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobctl"));
        command.args(arguments).env("DATABASE_URL", database).env("JOBCTL_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command)
    }

    /// Starts a tick with `--linger`.
    pub fn lingers(mut self) -> Running {
        Running(self.0.spawn().unwrap())
    }

    #[track_caller]
    pub fn run(self) -> Duration {
        time(self.0)
    }
}

/// Returns psql from the server's folder. On Debian, the psql on the PATH is a slow wrapper script.
pub fn psql(database: &str) -> Command {
    let mut command = of_server("psql");
    command.arg("-X").arg(database);
    command
}

/// Returns a program from the server's folder.
pub fn of_server(program: &str) -> Command {
    let folder =
        std::env::var("PG_BIN").expect("make bench names the folder of the server's programs");
    let mut command = Command::new(format!("{folder}/{program}"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A process that goes on until it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the time from a process's start to its end.
#[track_caller]
pub fn time(command: Command) -> Duration {
    time_ending_in(command, &[0])
}

/// Returns the time of a process that must end with one of these exit statuses.
#[track_caller]
pub fn time_ending_in(mut command: Command, statuses: &[i32]) -> Duration {
    let started = Instant::now();
    let status = command.status().unwrap();
    let took = started.elapsed();
    assert!(status.code().is_some_and(|code| statuses.contains(&code)), "{command:?}: {status}");
    took
}

/// Returns the peak of a command's resident memory, in MiB.
#[track_caller]
pub fn peak_memory(command: Jobctl) -> f64 {
    let mut wrapper = Command::new(std::env::current_exe().unwrap());
    wrapper.arg(MEMORY).arg(command.0.get_program()).args(command.0.get_args());
    wrapper.envs(command.0.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = wrapper.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{wrapper:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap() / 1024.0
}

/// Runs a command and prints the peak of its resident memory, in KiB. A separate process does
/// this, because the kernel keeps only the maximum over all children.
pub fn measure_memory(command: &[String]) {
    time({
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        child
    });
    println!("{}", getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss());
}
