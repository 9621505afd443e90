//! The crontab of this process's user, through the program `crontab`.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// Returns the crontab; empty if the user has none.
pub(crate) fn read_crontab() -> io::Result<String> {
    let output = run("-l", "")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return if said.contains("no crontab for") { Ok(String::new()) } else { Err(error(&said)) };
    }
    String::from_utf8(output.stdout).map_err(|_| io::Error::other("the crontab is not UTF-8"))
}

/// Replaces the crontab; an empty text removes it.
pub(crate) fn replace_crontab(text: &str) -> io::Result<()> {
    let output = run(if text.is_empty() { "-r" } else { "-" }, text)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(error(&said)) }
}

fn run(argument: &str, input: &str) -> io::Result<Output> {
    let mut child = Command::new("crontab")
        .arg(argument)
        // The message about a missing crontab must be in English.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => io::Error::other("there is no program `crontab`"),
            _ => cause,
        })?;
    // `crontab` reads all input before it prints anything, or none.
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => return Err(cause),
            _ => {}
        }
    }
    child.wait_with_output()
}

fn error(said: &str) -> io::Error {
    io::Error::other(said.trim().replace('\n', "; "))
}
