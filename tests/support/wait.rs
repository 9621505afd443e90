//! Waits for conditions, never for time.

use std::time::{Duration, Instant};

/// Waits until the condition holds, and checks it every 10 ms. Fails after 30 s, which is longer
/// than any machine needs. `what` completes the error "waited 30s for".
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
