//! What a tick holds, and how it keeps it: one statement renews all leases. Each is counted here from before that
//! statement was sent, so that what it protects is told to end before another worker may have it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::{Tick, bisect};
use crate::execute::Stop;
use crate::model::Why;
use crate::store::{self, Claimed, Held, Kind, Pending, Renewed, Token};

/// An attempt whose lease this tick has, or had.
struct HeldRun {
    stop: Arc<Stop>,
    /// The database does not let its lease be renewed.
    is_refused: bool,
    /// When the lease is over, counted from before its last renewal was sent.
    expires: Instant,
}

/// What a tick holds.
#[derive(Default)]
pub(super) struct Leases {
    /// After a lost lease, the same run may be held again under another claim.
    held: BTreeMap<Token, HeldRun>,
    /// Claims that go back, because they were not started, and when their leases are over.
    unstarted: Vec<(Token, Instant)>,
}

impl Leases {
    /// How many runs are held that are executed, wait for a thread, or have ended and are not recorded.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.unstarted.is_empty()
    }

    /// All runs, also those that go back.
    pub(super) fn runs(&self) -> impl Iterator<Item = i64> {
        self.held.keys().map(|claim| claim.id).chain(self.unstarted.iter().map(|(claim, _)| claim.id))
    }

    /// Asks executions of earlier claims of the same run to stop: their leases are lost.
    pub(super) fn hold(&mut self, run: &Claimed, stop: Arc<Stop>, expires: Instant) {
        let first = Token { id: run.id, attempt: 0, claimed_at: DateTime::<Utc>::MIN_UTC };
        let others = self.held.range(first..).take_while(|(claim, _)| claim.id == run.id);
        others.for_each(|(_, held)| held.stop.ask(Why::LeaseLost));
        self.held.insert(run.token(), HeldRun { stop, is_refused: false, expires });
    }

    /// Returns when the lease of this claim ends.
    pub(super) fn expiry(&self, run: &Claimed) -> Option<Instant> {
        self.held.get(&run.token()).map(|held| held.expires)
    }

    /// Releases this claim and returns when its lease ends.
    pub(super) fn let_go(&mut self, run: &Claimed) -> Option<Instant> {
        self.held.remove(&run.token()).map(|held| held.expires)
    }

    /// Has claims given back that were not started.
    pub(super) fn give_back(&mut self, claims: impl IntoIterator<Item = Token>, expires: Instant) {
        self.unstarted.extend(claims.into_iter().map(|claim| (claim, expires)));
    }

    /// Forgets what was to be given back and whose lease has been over for so long. As long as nobody has recovered
    /// it, which takes the same database that is away, it still can be; the fence decides.
    pub(super) fn forget_expired(&mut self, kept: Duration) {
        let now = Instant::now();
        self.unstarted.retain(|(claim, expires)| {
            let is_kept = now < *expires + kept;
            if !is_kept {
                log::warn!("run {}: claim not given back, lease lost", claim.id);
            }
            is_kept
        });
    }

    /// What is to be given back.
    pub(super) fn unstarted(&self) -> Vec<Token> {
        self.unstarted.iter().map(|(claim, _)| *claim).collect()
    }

    pub(super) fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }

    /// What was to be given back is, but for these runs.
    pub(super) fn given_back(&mut self, but_for: &[i64]) {
        self.unstarted.retain(|(claim, _)| but_for.contains(&claim.id));
    }

    /// When the first result or claim, which are kept for so long behind their leases, is given up.
    pub(super) fn first_given_up(&self, kept: Duration) -> Option<Instant> {
        let held = self.held.values().map(|held| held.expires);
        held.chain(self.unstarted.iter().map(|(_, expires)| *expires)).min().map(|expires| expires + kept)
    }

    /// Says something to all executions.
    pub(super) fn tell(&self, what: impl Fn(&Stop)) {
        self.held.values().for_each(|held| what(&held.stop));
    }
}

/// A renewal that is under way.
pub(super) struct Renewal {
    pub(super) answer: Pending<Vec<Renewed>>,
    held: Vec<Token>,
    sent: Instant,
}

impl Tick {
    /// Renews all leases and the claim right, when it is time to.
    pub(super) fn beat(&mut self) -> store::Result<Option<Renewal>> {
        let Some(store) = self.connection.store.as_ref().filter(|_| Instant::now() >= self.next_beat) else {
            return Ok(None);
        };
        let sent = Instant::now();
        // Nothing is to be renewed that was claimed just now; of short runs there may be thousands.
        let fresh = sent + self.timing.lease - self.timing.heartbeat / 5;
        let stale = self.leases.held.iter().filter(|(_, run)| run.expires < fresh && !run.is_refused);
        let held: Vec<_> = stale.map(|(claim, _)| *claim).collect();
        if held.is_empty() {
            return self.beaten(sent).map(|()| None);
        }
        let answer = store.heartbeat(&self.holder.worker, &held, self.timing.lease, self.bell());
        Ok(Some(Renewal { answer, held, sent }))
    }

    /// Takes in the answer to a renewal.
    pub(super) fn renewed(&mut self, renewal: &Renewal, answer: store::Result<Vec<Renewed>>) -> store::Result<()> {
        let renewed = match answer {
            // One run must not cost the others their leases.
            Err(error) if error.may_be_about_rows() => self.renew_others(&renewal.held),
            answer => answer.map(|answers| self.prolong(answers, renewal.sent)),
        };
        if renewed.is_err() {
            // Between two retries, results are recorded.
            self.next_beat = Instant::now() + self.timing.heartbeat / 5;
            return renewed;
        }
        self.beaten(renewal.sent)
    }

    /// Renews leases of which the database rejects some. Leases that a trigger or a constraint
    /// rejects are not renewed again.
    ///
    /// # Errors
    /// The database's, also an unexpected error about some of the runs.
    fn renew_others(&mut self, held: &[Token]) -> store::Result<()> {
        let refused = bisect::refused(held.to_vec(), |part| {
            let Some(store) = &self.connection.store else { return Ok(()) };
            let sent = Instant::now();
            let answers = store.renew(&self.holder.worker, part, self.timing.lease)?;
            self.prolong(answers, sent);
            Ok(())
        })?;
        let mut unexpected = Ok(());
        for (claim, why) in refused {
            if why.kind != Kind::Data {
                unexpected = Err(why);
                continue;
            }
            log::error!("run {}: {why}; its lease will run out", claim.id);
            if let Some(run) = self.leases.held.get_mut(&claim) {
                run.is_refused = true;
            }
        }
        unexpected
    }

    /// Takes in what became of the leases that were to be renewed at `sent`.
    fn prolong(&mut self, answers: Vec<Renewed>, sent: Instant) {
        for (claim, answer) in answers {
            let Some(run) = self.leases.held.get_mut(&claim) else { continue };
            match answer {
                Held::Renewed | Held::CancelAsked => {
                    run.stop.prolong(sent + self.timing.fence);
                    run.expires = sent + self.timing.lease;
                    if answer == Held::CancelAsked {
                        run.stop.ask(Why::Cancelled);
                    }
                }
                Held::Busy => {}
                Held::Lost => run.stop.ask(Why::LeaseLost),
            }
        }
    }

    fn beaten(&mut self, sent: Instant) -> store::Result<()> {
        self.next_beat = sent + self.timing.heartbeat;
        match self.may_claim {
            // The database has just answered, so the jobs are stopped before their leases end.
            true if self.is_stopping() => self.give_right_back(),
            true => self.wake(),
            false => Ok(()),
        }
    }
}
