//! The order of statements that are due at the same time. Pure.
//!
//! If the database is slow, the next renewal or wake is due before the latest one is answered.
//! Without turns, no other statement would ever be sent. So a step goes between any two of them,
//! and renewals and wakes take turns. Then a result waits for one answer at most.

/// A kind of request that may be due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Duty {
    /// Renew leases.
    Renew,
    /// Get the claim right, and work for the runs of all workers.
    Wake,
    /// Record results, and claim runs.
    Step,
    /// Store the output of running jobs. It comes at once after a renewal, because it is short.
    Store,
    /// Release the claim right.
    Leave,
    /// Delete old runs.
    Prune,
}

/// The duties that take turns, the next one first. `Store` precedes all three, except an urgent
/// renewal; `Leave` and `Prune` follow them.
#[derive(Debug)]
pub(super) struct Turns(pub(super) [Duty; 3]);

impl Default for Turns {
    fn default() -> Self {
        Self([Duty::Renew, Duty::Wake, Duty::Step])
    }
}

impl Turns {
    /// Returns how many duties come before this one: all three for a duty that takes no turns.
    pub(super) fn before(&self, duty: Duty) -> usize {
        self.0.iter().position(|other| *other == duty).unwrap_or(self.0.len())
    }

    /// Moves a duty behind the others, because its request is sent. After a renewal or a wake, a
    /// step comes first.
    pub(super) fn had_turn(&mut self, duty: Duty) {
        match duty {
            Duty::Renew => self.0 = [Duty::Step, Duty::Wake, Duty::Renew],
            Duty::Wake => self.0 = [Duty::Step, Duty::Renew, Duty::Wake],
            // `true` sorts last, and the other two keep their order.
            Duty::Step => self.0.sort_by_key(|other| *other == Duty::Step),
            Duty::Store | Duty::Leave | Duty::Prune => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_goes_between_renewals_and_wakes_that_take_turns() {
        let mut turns = Turns::default();
        let mut sent = Vec::new();
        for _ in 0..8 {
            let next = turns.0[0];
            turns.had_turn(next);
            sent.push(next);
        }
        let round = [Duty::Renew, Duty::Step, Duty::Wake, Duty::Step];
        assert_eq!(sent, [round, round].concat());
        assert_eq!((turns.before(Duty::Step), turns.before(Duty::Leave)), (2, 3));
        // A step whose turn it is not, and a duty without a turn, change nothing.
        for duty in [Duty::Step, Duty::Store, Duty::Leave] {
            turns.had_turn(duty);
            assert_eq!(turns.0, [Duty::Renew, Duty::Wake, Duty::Step]);
        }
    }
}
