//! The step that a tick repeats: it records results and claims due runs in one transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::claim::{Claim, ClaimFilter, ClaimResult, Claimed, Holder, Token, claim};
use super::row::column;
use super::runs::{Finish, Recorded, finish, locked};
use super::{Error, Kind, Pending, Store};
use crate::connect::Client;

#[derive(Debug)]
pub(crate) struct StepResult {
    pub(crate) recorded: Recorded,
    /// Runs whose results were not written because another session has locked them.
    pub(crate) locked: Vec<i64>,
    pub(crate) taken: ClaimResult,
    /// The duration of the claim alone.
    pub(crate) claiming: Duration,
}

pub(crate) struct PendingStep {
    pub(crate) answer: Pending<StepResult>,
    claims: Arc<Mutex<Vec<Token>>>,
}

/// The treatment of a result whose run another session has locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockedRuns {
    /// Waits, as long as for any lock.
    Wait,
    /// Skips the result; needs one more statement.
    Skip,
}

impl PendingStep {
    /// Returns the answer if it is there. With a lost connection come the claims that exist if the
    /// transaction was committed, which is unknown.
    pub(crate) fn poll(&self) -> Option<Result<StepResult, (Error, Vec<Token>)>> {
        let answer = self.answer.poll()?;
        // From now on, the connection's thread does not begin to commit.
        let claims = || self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(answer.map_err(|error| match error.kind {
            Kind::Lost => (error, claims()),
            _ => (error, Vec::new()),
        }))
    }
}

impl Store {
    /// Records results, then claims due runs: both or neither. Does not wait for the answer, but
    /// calls `answered` when it is there.
    pub(crate) fn finish_and_claim(
        &self,
        holder: &Holder,
        ended: Vec<Finish>,
        wanted: Option<(Claim, ClaimFilter)>,
        locked_runs: LockedRuns,
        answered: impl FnOnce() + Send + 'static,
    ) -> PendingStep {
        let holder = holder.clone();
        let doing = if ended.is_empty() { "claim runs" } else { "record results" };
        let claims = Arc::new(Mutex::default());
        let made = Arc::clone(&claims);
        let work = move |client: &mut Client| {
            let locked = match locked_runs {
                LockedRuns::Wait => Vec::new(),
                LockedRuns::Skip => locked(client, &column(&ended, |one| one.token.id))?,
            };
            let free: Vec<_> = ended.iter().filter(|one| !locked.contains(&one.token.id)).collect();
            let recorded = match free.as_slice() {
                [] => Recorded::new(),
                free => finish(client, &holder.worker, free)?,
            };
            let began = Instant::now();
            let taken = match &wanted {
                Some((asked, filter)) => claim(client, &holder, asked, filter)?,
                None => ClaimResult::default(),
            };
            *made.lock().unwrap_or_else(PoisonError::into_inner) =
                taken.claimed.iter().map(Claimed::token).collect();
            Ok(StepResult { recorded, locked, taken, claiming: began.elapsed() })
        };
        PendingStep { answer: self.send(self.limits, doing, work, answered), claims }
    }
}
