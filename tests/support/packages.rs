//! Programs and packages of other languages that some tests need.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Reports that a test skips a part because a program or a right is missing on this machine.
///
/// `make test` lists these lines at its end. With JOBCTL_TEST_ALL, as in CI, the test fails.
#[track_caller]
pub fn leave_out(what: &str, why: &str) {
    assert!(
        env::var_os("JOBCTL_TEST_ALL").is_none(),
        "{what} is left out: {why}; JOBCTL_TEST_ALL is set"
    );
    let line = format!("{what}: {why}\n");
    // No macro: the harness hides the output of macros unless the test fails.
    let _ = write!(std::io::stderr(), "left out: {line}");
    if let Some(list) = env::var_os("JOBCTL_TEST_LEFT_OUT") {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }
}

/// Returns whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .status();
    found.unwrap().success()
}

/// Returns a folder with packages of Python, for PYTHONPATH.
pub fn python(package: &str) -> Result<PathBuf, String> {
    installed(package, &["python3", "-m", "pip", "install", "--quiet", package, "--target"])
}

/// Returns a folder with packages of Node.js, for NODE_PATH.
pub fn node(package: &str) -> Result<PathBuf, String> {
    let install = ["npm", "install", "--silent", "--no-audit", "--no-fund", package, "--prefix"];
    Ok(installed(package, &install)?.join("node_modules"))
}

/// Installs once for all runs of the tests, into a folder of the build.
fn installed(package: &str, install: &[&str]) -> Result<PathBuf, String> {
    let folders = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folders.join(format!("package-{package}"));
    if !folder.exists() {
        // Renamed when complete, so that two tests can install at the same time.
        let made = tempfile::tempdir_in(folders).unwrap();
        let mut command = Command::new(install[0]);
        command.args(&install[1..]).arg(made.path()).current_dir(made.path()).stdin(Stdio::null());
        let output =
            command.output().map_err(|error| format!("cannot run {}: {error}", install[0]))?;
        if !output.status.success() {
            let cause = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "cannot install {package}: {}",
                cause.lines().last().unwrap_or_default()
            ));
        }
        let _ = fs::rename(made.keep(), &folder);
    }
    Ok(folder)
}
