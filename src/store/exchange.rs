//! What a tick with work to do does over and over: results in, due runs out, in one transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::claim::{Claim, Claimed, Holder, Taken, Token, claim};
use super::runs::{Finish, Recorded, finish, locked};
use super::{Pending, Result, Store};
use crate::connect::Client;

/// What came of an exchange.
pub(crate) struct Exchanged {
    /// The results that are recorded, with the status the run has now. Of one that is missing nothing was
    /// written: its lease is lost.
    pub(crate) recorded: Recorded,
    /// Runs whose results were not written because somebody has them locked.
    pub(crate) locked: Vec<i64>,
    pub(crate) taken: Taken,
    /// How long the claim alone took.
    pub(crate) claiming: Duration,
}

/// An exchange that is under way.
pub(crate) struct Exchanging {
    pub(crate) answer: Pending<Exchanged>,
    claims: Arc<Mutex<Vec<Token>>>,
}

impl Exchanging {
    /// Claims that stand if the transaction was committed, where nobody knows whether it was.
    pub(crate) fn abandon(self) -> Vec<Token> {
        // From here on it is not committed any more.
        drop(self.answer);
        std::mem::take(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is done about a result whose run somebody has locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OfLocked {
    Wait,
    PassOver,
}

impl Store {
    /// Writes what attempts came to, then takes due runs: both or neither. Does not wait for the answer, but
    /// calls `answered` when it is there. A run that somebody has locked is waited for, as long as for any lock, or
    /// passed over, which takes a statement more.
    pub(crate) fn exchange(
        &self,
        holder: &Holder,
        ended: Vec<Finish>,
        wanted: Option<Claim>,
        of_locked: OfLocked,
        answered: impl FnOnce() + Send + 'static,
    ) -> Exchanging {
        let holder = holder.clone();
        let doing = if ended.is_empty() { "claim runs" } else { "record results" };
        let claims = Arc::new(Mutex::default());
        let made = Arc::clone(&claims);
        let work = move |client: &mut Client| {
            let locked = match of_locked {
                OfLocked::Wait => Vec::new(),
                OfLocked::PassOver => locked(client, &ended.iter().map(|one| one.token.id).collect::<Vec<_>>())?,
            };
            let free: Vec<_> = ended.iter().filter(|one| !locked.contains(&one.token.id)).collect();
            let recorded = match free.as_slice() {
                [] => Recorded::new(),
                free => finish(client, &holder.worker, free)?,
            };
            let began = Instant::now();
            let taken = match &wanted {
                Some(wanted) => claim(client, &holder, wanted)?,
                None => Taken::default(),
            };
            *made.lock().unwrap_or_else(PoisonError::into_inner) = taken.claimed.iter().map(Claimed::token).collect();
            Ok(Exchanged { recorded, locked, taken, claiming: began.elapsed() })
        };
        Exchanging { answer: self.send(doing, work, answered), claims }
    }

    /// Writes what attempts came to; answers as an exchange does.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn record(&self, worker: &str, ended: Vec<Finish>) -> Result<Recorded> {
        let worker = worker.to_owned();
        self.transact("record results", move |client| finish(client, &worker, &ended.iter().collect::<Vec<_>>()))
    }
}
