//! Requests to the database that outlast a short outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{DatabaseFlags, exit_of};
use crate::exit::Exit;
use crate::print;
use crate::store::Store;

/// How long the database may be away before a script gets an error.
pub(super) const OUTAGE_LIMIT: Duration = Duration::from_secs(60);

/// A session that connects again after an outage.
pub(super) struct LastingSession<'a> {
    database: &'a DatabaseFlags,
    /// How long the database may be away.
    limit: Duration,
    store: Option<Store>,
    away_since: Option<Instant>,
    /// While it is set, each wait for the server ends early.
    interrupted: Arc<AtomicBool>,
}

impl<'a> LastingSession<'a> {
    pub(super) fn new(database: &'a DatabaseFlags, limit: Duration, store: Store) -> Self {
        Self { store: Some(store), ..Self::unopened(database, limit, Arc::default()) }
    }

    /// A session without a connection. While `interrupted` is set, each wait for the server ends
    /// early.
    pub(super) fn unopened(
        database: &'a DatabaseFlags,
        limit: Duration,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self { database, limit, store: None, away_since: None, interrupted }
    }

    /// Makes a request, on a new connection if there is none, and returns its answer. Returns
    /// `None` while the database is away, and prints that once for an outage. Fails if the database
    /// is away for longer than the limit.
    pub(super) fn try_once<T>(
        &mut self,
        request: impl FnOnce(&Store) -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let opened = match self.store.take() {
            Some(store) => Ok(store),
            None => self.database.open_until(&self.interrupted),
        };
        let error = match opened.and_then(|store| Ok((request(&store)?, store))) {
            Ok((answer, store)) => {
                (self.store, self.away_since) = (Some(store), None);
                return Ok(Some(answer));
            }
            Err(error) if exit_of(&error) != Exit::Unavailable => return Err(error),
            Err(error) => error,
        };
        if self.interrupted.load(Ordering::Relaxed) {
            // A signal came, so the caller ends the command: print nothing.
            return Ok(None);
        }
        let since = *self.away_since.get_or_insert_with(|| {
            print::complain(&format!("waiting for the database: {error:#}"));
            Instant::now()
        });
        if since.elapsed() > self.limit { Err(error) } else { Ok(None) }
    }

    /// Repeats a request until the database answers, with this pause in between. Fails if the
    /// database is away for longer than the limit.
    pub(super) fn insist<T>(
        &mut self,
        pause: Duration,
        request: impl Fn(&Store) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            if let Some(answer) = self.try_once(&request)? {
                return Ok(answer);
            }
            thread::sleep(pause);
        }
    }
}
