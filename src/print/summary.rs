//! The summary of a tick, for the person at the terminal. Pure.

use crate::job::status::Status;

/// Counts results by the status of their runs.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    succeeded: u64,
    failed: u64,
    dead: u64,
    /// Interrupted, snoozed or cancelled runs, and lost leases.
    other: u64,
}

impl Summary {
    /// Counts a result that was recorded with this status of the run; `None`: the lease was lost.
    pub(crate) fn count(&mut self, status: Option<Status>) {
        *match status {
            Some(Status::Succeeded) => &mut self.succeeded,
            Some(Status::Failed) => &mut self.failed,
            Some(Status::Dead) => &mut self.dead,
            Some(Status::Blocked | Status::Queued | Status::Running | Status::Cancelled) | None => {
                &mut self.other
            }
        } += 1;
    }

    /// Returns the summary.
    ///
    /// - `due`: the number of runs that are still due, at most `most` + 1; `None`: it is unknown.
    /// - `reason`: why the tick stopped; `None`: it can claim nothing more.
    /// - `left_alone`: words for the due runs and schedules that the tick left alone on purpose;
    ///   empty for none.
    pub(crate) fn line(
        &self,
        due: Option<usize>,
        most: usize,
        reason: Option<&str>,
        left_alone: &str,
    ) -> String {
        let Self { succeeded, failed, dead, other } = self;
        let other = if *other > 0 { format!(", {other} stopped") } else { String::new() };
        let still = match due {
            // "0 still due" would be wrong if runs that the tick left alone are due.
            Some(0) if !left_alone.is_empty() => String::new(),
            Some(due) if due > most => format!(", over {most} still due"),
            Some(due) => format!(", {due} still due"),
            None => String::new(),
        };
        let reason = reason.unwrap_or(match due {
            Some(1..) => "nothing more can be claimed now",
            _ if !left_alone.is_empty() => "nothing else is due",
            _ => "nothing is due",
        });
        let rest = if left_alone.is_empty() { String::new() } else { format!("; {left_alone}") };
        format!("{succeeded} succeeded, {failed} failed, {dead} dead{other}{still}: {reason}{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_results_and_says_why_the_tick_stopped() {
        let mut summary = Summary::default();
        let says = |summary: &Summary, due, reason, text: &str| {
            assert_eq!(summary.line(Some(due), 1000, reason, ""), text);
        };
        let nothing = "0 succeeded, 0 failed, 0 dead, 0 still due: nothing is due";
        says(&summary, 0, None, nothing);
        let held = summary.line(Some(0), 1000, None, "12 due runs are held");
        let expected = "0 succeeded, 0 failed, 0 dead: nothing else is due; 12 due runs are held";
        assert_eq!(held, expected);
        for status in [Status::Succeeded, Status::Succeeded, Status::Failed, Status::Dead] {
            summary.count(Some(status));
        }
        let rest = "2 succeeded, 1 failed, 1 dead, 7 still due: nothing more can be claimed now";
        says(&summary, 7, None, rest);
        summary.count(Some(Status::Queued));
        summary.count(None);
        let stopped =
            "2 succeeded, 1 failed, 1 dead, 2 stopped, over 1000 still due: a signal came";
        says(&summary, 1001, Some("a signal came"), stopped);
    }
}
