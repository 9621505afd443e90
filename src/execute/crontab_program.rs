//! The crontab of this process's user, through the program `crontab`.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::sanitize;

/// Returns the crontab; empty if the user has none.
pub(crate) fn read_crontab() -> io::Result<String> {
    match run("-l", "") {
        Err(error) if error.to_string().contains("no crontab for") => Ok(String::new()),
        Err(error) => Err(error),
        Ok(text) => {
            String::from_utf8(text).map_err(|_| io::Error::other("the crontab is not UTF-8"))
        }
    }
}

/// Replaces the crontab; an empty text removes it.
pub(crate) fn replace_crontab(text: &str) -> io::Result<()> {
    run(if text.is_empty() { "-r" } else { "-" }, text).map(drop)
}

/// Runs `crontab` with this argument and this input, and returns what it printed. If it failed, the
/// error is its message.
fn run(argument: &str, input: &str) -> io::Result<Vec<u8>> {
    let mut command = Command::new("crontab");
    sanitize::withhold_variables(&mut command);
    let mut child = command
        .arg(argument)
        // The message about a missing crontab must be in English.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| io::Error::other(super::why_not_started("crontab", &cause)))?;
    // Write all input before reading the output: `crontab` prints nothing before it has read all
    // input. If it reads none, the pipe breaks, and its exit status says what happened.
    if let Some(mut stdin) = child.stdin.take()
        && let Err(cause) = stdin.write_all(input.as_bytes())
        && cause.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(cause);
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(message.trim().replace('\n', "; ")))
}
