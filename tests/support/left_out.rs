//! Tests that can't run all their parts on every machine.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// Reports that a test skips a part because a program or a right is missing on this machine.
///
/// `make test` lists these lines at its end. With JOBCTL_TEST_ALL, as in CI, the test fails.
#[track_caller]
pub(crate) fn leave_out(what: &str, why: &str) {
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
