//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

/// Looks every 10 ms until the condition holds; gives up after 30 s, which no machine needs.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_until_within(Duration::from_secs(30), what, condition);
}

#[track_caller]
pub fn wait_until_within(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < timeout, "waited {timeout:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
