//! The phases of a tick, and what ends each. Pure.

/// The phases of a tick, in their order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// The tick claims runs.
    Working,
    /// The tick claims nothing more. Running jobs may finish.
    Draining,
    /// A signal came. Running jobs may finish within the grace period.
    Stopping,
    /// All jobs were asked to stop.
    Ending,
    /// The tick waits for no job and no result any more. It releases the claim right and deletes
    /// old runs.
    Leaving,
    /// The tick exits.
    Done,
}

/// What ends a phase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PhaseEnd {
    /// The time of the phase is over, `--limit` is reached, or the database accepts no claims of
    /// this program.
    Spent,
    /// A signal asks the tick to stop.
    Signal,
    /// The tick can't go on.
    Failure,
    /// The tick has no claimed runs, and nothing is left to do.
    Idle,
}

impl Phase {
    /// Returns the phase that follows, or the same phase if `end` does not end it.
    /// docs/internals/architecture.md draws this table.
    pub(super) fn after(self, end: PhaseEnd) -> Self {
        match (self, end) {
            (Self::Working, PhaseEnd::Spent) => Self::Draining,
            (Self::Working | Self::Draining, PhaseEnd::Signal) => Self::Stopping,
            (Self::Working | Self::Draining | Self::Stopping, PhaseEnd::Failure)
            | (Self::Stopping, PhaseEnd::Signal | PhaseEnd::Spent) => Self::Ending,
            (Self::Ending, PhaseEnd::Spent)
            | (Self::Working | Self::Draining | Self::Stopping | Self::Ending, PhaseEnd::Idle) => {
                Self::Leaving
            }
            (Self::Leaving, PhaseEnd::Idle | PhaseEnd::Spent) => Self::Done,
            (phase, _) => phase,
        }
    }

    /// Whether running jobs were asked to stop, or will be.
    pub(super) fn is_stopping(self) -> bool {
        matches!(self, Self::Stopping | Self::Ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_of_the_phases_is_current() {
        use {Phase::*, PhaseEnd::*};
        let phases = [Working, Draining, Stopping, Ending, Leaving, Done];
        let mut diagram = String::from("stateDiagram-v2\n");
        for from in phases {
            for to in phases.into_iter().filter(|to| *to != from) {
                let causes = [Spent, Signal, Failure, Idle].into_iter();
                let causes: Vec<_> = causes
                    .filter(|cause| from.after(*cause) == to)
                    .map(|cause| format!("{cause:?}").to_lowercase())
                    .collect();
                if !causes.is_empty() {
                    diagram += &format!("    {from:?} --> {to:?}: {}\n", causes.join(", "));
                }
            }
        }
        assert!(
            include_str!("../../docs/internals/architecture.md").contains(&diagram),
            "{diagram}"
        );
    }
}
