//! Programs and packages of other languages that some tests need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Returns a folder with these packages of Node.js, for NODE_PATH.
pub fn node(packages: &str) -> Result<PathBuf, String> {
    let mut install = vec!["npm", "install", "--silent", "--no-audit", "--no-fund"];
    install.extend(packages.split(' '));
    install.push("--prefix");
    Ok(installed(packages, &install)?.join("node_modules"))
}

/// Installs a package once for all runs of the tests, and returns its folder.
fn installed(package: &str, install: &[&str]) -> Result<PathBuf, String> {
    let folders = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folders.join(format!("package-{}", package.replace([' ', '/'], "-")));
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
