//! The progress of a command that works on many runs, on stderr if it is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::text::duration::{self, SECOND};
use crate::text::plural;

/// Progress is shown after this time: a shorter command shows none.
const DELAY: Duration = SECOND;

/// The line that shows the progress.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    /// The number of runs, if it is known.
    total: Option<usize>,
}

impl Progress {
    pub(crate) fn of(total: Option<usize>) -> Self {
        Self { started: Instant::now(), total }
    }

    /// Shows that this many runs are done.
    pub(crate) fn show(&self, done: usize) {
        self.write(|took| line(done, self.total, took));
    }

    /// Removes the progress line.
    pub(crate) fn clear(&self) {
        self.write(|_| String::new());
    }

    /// Replaces the progress line, once the work has taken longer than `DELAY`.
    fn write(&self, line: impl FnOnce(Duration) -> String) {
        let (mut stderr, took) = (io::stderr(), self.started.elapsed());
        if took >= DELAY && stderr.is_terminal() {
            let _ = write!(stderr, "\r\x1b[K{}", line(took));
            let _ = stderr.flush();
        }
    }
}

/// Returns the line of a progress, such as `2,000 of 6,000 runs, 500 a second, 8s left`.
fn line(done: usize, total: Option<usize>, took: Duration) -> String {
    let grouped = |number: usize| plural::grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let rate = done as f64 / took.as_secs_f64();
    let runs = match total {
        Some(total) => format!("{} of {} runs", grouped(done), grouped(total)),
        None => format!("{} runs", grouped(done)),
    };
    let line = format!("{runs}, {} a second", grouped(rate as usize));
    // At a rate of 0, the time is infinite, which is not a duration.
    let left = total.and_then(|total| {
        Duration::try_from_secs_f64(total.saturating_sub(done) as f64 / rate).ok()
    });
    match left {
        Some(left) if left >= SECOND => format!("{line}, {} left", duration::show_whole(left)),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_the_rate_the_total_and_the_time_left() {
        let after = |seconds| Duration::from_secs(seconds);
        assert_eq!(line(0, Some(10), after(2)), "0 of 10 runs, 0 a second");
        assert_eq!(line(2000, Some(6000), after(4)), "2,000 of 6,000 runs, 500 a second, 8s left");
        assert_eq!(line(6000, Some(6000), after(4)), "6,000 of 6,000 runs, 1,500 a second");
        assert_eq!(line(123_456, None, after(100)), "123,456 runs, 1,234 a second");
    }
}
