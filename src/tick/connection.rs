//! What a tick does when the database is away, busy or refuses. Jobs go on meanwhile, until their
//! leases are about to end.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use super::{Look, Phase, Tick, WhenIdle};
use crate::connect::{Connecting, Target};
use crate::exit::Exit;
use crate::store::{self, Kind, Store};

/// Before something that the database refused is sent again.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_millis(200);
/// What is refused for so long is a matter for a person: a lock is held by mistake, or the disk is full.
const REFUSED_LONG: Duration = Duration::from_secs(5);
/// Longest pause between two tries to connect anew.
const RECONNECT_PAUSE: Duration = Duration::from_secs(5);

/// The way to the database.
pub(super) struct Connection {
    target: Target,
    /// `None` while the connection is lost.
    pub(super) store: Option<Store>,
    connecting: Option<Connecting>,
    /// Tries since the database last did what it was asked; a connection alone proves nothing.
    tries: u32,
    /// Why the connection was lost, until it serves again.
    pub(super) lost: Option<anyhow::Error>,
    /// Since when all is refused for now.
    refused_since: Option<Instant>,
    /// Before this the database is left alone.
    pub(super) paused_until: Instant,
}

impl Connection {
    pub(super) fn to(target: Target) -> Self {
        let paused_until = Instant::now();
        Self { target, store: None, connecting: None, tries: 0, lost: None, refused_since: None, paused_until }
    }

    pub(super) fn is_paused(&self) -> bool {
        Instant::now() < self.paused_until
    }

    /// It has done what it was asked.
    pub(super) fn serves(&mut self) {
        (self.tries, self.lost, self.refused_since) = (0, None, None);
    }

    /// Records that the database rejected a statement. Warns once: immediately for an unexpected
    /// error, later for a lock or a full disk that lasts.
    fn refuses(&mut self, error: &store::Error) {
        static SAID: Once = Once::new();
        self.refused_since.get_or_insert_with(Instant::now);
        if error.kind != Kind::Busy || self.refused_for() >= REFUSED_LONG {
            SAID.call_once(|| log::warn!("{}; jobctl keeps trying", error.for_log()));
        }
        log::debug!("{error}");
    }

    /// The time since the first rejection without any success.
    fn refused_for(&self) -> Duration {
        self.refused_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Without a connection: when there is something to do about that.
    pub(super) fn next(&self) -> Option<Instant> {
        self.connecting.as_ref().map_or(Some(self.paused_until), Connecting::until)
    }
}

impl Tick {
    /// Whether the tick stays although it holds nothing.
    fn lingers(&self) -> bool {
        self.plan.when_idle == WhenIdle::Linger && self.phase == Phase::Working
    }

    /// What an error of the store means for the tick.
    pub(super) fn trouble(&mut self, error: store::Error) {
        if error.kind == Kind::Lost {
            let (cause, was_lost) = (error.for_log(), self.connection.lost.is_some());
            self.lost(error.into());
            if !was_lost && self.connection.lost.is_some() {
                log::warn!("{cause}; {} running, reconnecting", self.pool.running());
            }
            return;
        }
        self.connection.paused_until = Instant::now() + REFUSED_PAUSE;
        match error.kind {
            Kind::Busy if self.lingers() || !self.is_free() => self.connection.refuses(&error),
            // Somebody has migrated, or no run can be claimed. What runs may end: leases and results are as they were.
            Kind::Fatal | Kind::Data
                if (error.exit == Exit::Schema || error.kind == Kind::Data)
                    && self.phase == Phase::Working
                    && !self.is_free() =>
            {
                log::warn!("{error}; {} running", self.pool.running());
                self.failure.get_or_insert(error.into());
                self.phase = Phase::Draining;
            }
            // The error may pass. Jobs continue as in an outage, until their leases are about to
            // end.
            Kind::Fatal | Kind::Data
                if !self.is_free()
                    && !matches!(self.phase, Phase::Ending(_))
                    && self.connection.refused_for() < self.timing.fence =>
            {
                self.connection.refuses(&error);
            }
            _ => {
                self.failure.get_or_insert(error.into());
                self.end_all();
            }
        }
    }

    /// The connection is gone, or could not be made. While something is held it is worth trying
    /// again: the jobs go on meanwhile, until their leases are about to end.
    pub(super) fn lost(&mut self, error: anyhow::Error) {
        let connection = &mut self.connection;
        // Only a session that answered its first transaction has sent a second one.
        let had_answer = connection.store.take().is_some_and(|store| store.transactions() > 1);
        (connection.connecting, self.asked, self.refused) = (None, None, None);
        self.results.connection_lost();
        self.may_claim = false;
        // A lingering tick reconnects after a working session. If that fails it exits, and cron
        // starts the next tick.
        if self.is_free() && !(had_answer && self.lingers()) {
            self.failure = Some(error);
            return;
        }
        let connection = &mut self.connection;
        if connection.tries > 0 {
            let pause = RECONNECT_PAUSE.min(Duration::from_millis(100) * (1 << connection.tries.min(10)));
            connection.paused_until = Instant::now() + pause.mul_f64(rand::random_range(0.5..1.0));
        }
        connection.lost = Some(error);
    }

    /// Connects, and goes on connecting, without waiting for it: signals and the ends of jobs must not.
    pub(super) fn connect(&mut self) {
        if self.connection.is_paused() {
            return;
        }
        let bell = self.bell();
        let Connection { target, connecting, tries, .. } = &mut self.connection;
        let connecting = connecting.get_or_insert_with(|| {
            *tries += 1;
            target.clone().connect(bell)
        });
        match connecting.poll() {
            None => {}
            Some(Err(error)) => self.lost(error),
            Some(Ok(link)) => {
                let mut store = Store::over(link);
                store.interrupted_by(Arc::clone(&self.interrupted));
                let is_brief = self.is_stopping() && self.leases.held() == 0;
                store.limit(if is_brief { self.timing.parting } else { self.timing.limits });
                (self.connection.store, self.connection.connecting) = (Some(store), None);
                self.next_beat = Instant::now();
                // Runs may have been given up meanwhile.
                self.look = Look::Now;
            }
        }
    }
}
