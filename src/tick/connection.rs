//! What a tick does when the database is away, busy, or rejects statements. Jobs continue
//! meanwhile, until their leases are about to end.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use super::{ClaimWhen, Phase, Tick};
use crate::connect::{PendingConnection, Target};
use crate::exit::Exit;
use crate::store::{self, Kind, Store};

/// The pause before a rejected statement is sent again.
pub(super) const REJECTED_PAUSE: Duration = Duration::from_millis(200);
/// A lock or a full disk that lasts this long needs a person.
const WARN_AFTER: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Connection {
    target: Target,
    /// `None` while the connection is lost.
    pub(super) store: Option<Store>,
    connecting: Option<PendingConnection>,
    /// Attempts to connect since the last successful request.
    tries: u32,
    /// Why the connection was lost, until a request succeeds again.
    pub(super) lost: Option<anyhow::Error>,
    /// Since when the database has rejected everything.
    rejected_since: Option<Instant>,
    /// Until this time the tick sends nothing.
    pub(super) paused_until: Instant,
}

impl Connection {
    pub(super) fn to(target: Target) -> Self {
        Self {
            target,
            store: None,
            connecting: None,
            tries: 0,
            lost: None,
            rejected_since: None,
            paused_until: Instant::now(),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        Instant::now() < self.paused_until
    }

    pub(super) fn succeeded(&mut self) {
        (self.tries, self.lost, self.rejected_since) = (0, None, None);
    }

    /// Records that the database rejected a statement. Warns once: immediately for an unexpected
    /// error, later for a lock or a full disk that lasts.
    fn rejected(&mut self, error: &store::Error) {
        static WARNED: Once = Once::new();
        self.rejected_since.get_or_insert_with(Instant::now);
        if error.kind != Kind::Busy || self.rejected_for() >= WARN_AFTER {
            WARNED.call_once(|| log::warn!("{}; jobctl keeps trying", error.for_log()));
        }
        log::debug!("{error}");
    }

    /// Returns the time since the first rejection without any success.
    fn rejected_for(&self) -> Duration {
        self.rejected_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns when to try to connect again; `None` while an attempt is running.
    pub(super) fn next(&self) -> Option<Instant> {
        self.connecting.is_none().then_some(self.paused_until)
    }
}

impl Tick {
    /// Whether the tick stays although it holds nothing.
    fn lingers(&self) -> bool {
        self.plan.linger && self.phase == Phase::Working
    }

    /// Decides after an error of the store whether to retry, to drain, or to end.
    pub(super) fn on_error(&mut self, error: store::Error) {
        if error.kind == Kind::Lost {
            let (cause, was_lost) = (error.for_log(), self.connection.lost.is_some());
            self.on_lost(error.into());
            if !was_lost && self.connection.lost.is_some() {
                log::warn!("{cause}; {} running, reconnecting", self.pool.running());
            }
            return;
        }
        self.connection.paused_until = Instant::now() + REJECTED_PAUSE;
        match error.kind {
            Kind::Busy if self.lingers() || !self.is_free() => self.connection.rejected(&error),
            // The schema was migrated, or no run can be claimed. Running jobs may finish: their
            // leases and results are not affected.
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
                    && self.connection.rejected_for() < self.timing.fence =>
            {
                self.connection.rejected(&error);
            }
            _ => {
                self.failure.get_or_insert(error.into());
                self.end_all();
            }
        }
    }

    /// Reacts to a lost or refused connection. The tick reconnects while it holds something; its
    /// jobs continue until their leases are about to end.
    fn on_lost(&mut self, error: anyhow::Error) {
        let connection = &mut self.connection;
        // Only a session that answered its first transaction has sent a second one.
        let had_answer = connection.store.take().is_some_and(|store| store.transactions() > 1);
        (connection.connecting, self.in_flight, self.search) = (None, None, None);
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
            let pause =
                RECONNECT_PAUSE.min(Duration::from_millis(100) * (1 << connection.tries.min(10)));
            connection.paused_until = Instant::now() + pause.mul_f64(rand::random_range(0.5..1.0));
        }
        connection.lost = Some(error);
    }

    /// Starts or continues to connect if there is no connection. It does not wait, because signals
    /// and ended jobs must not wait.
    pub(super) fn connect(&mut self) {
        if self.connection.store.is_some() || self.connection.is_paused() {
            return;
        }
        let wake_up = self.wake_up();
        let Connection { target, connecting, tries, .. } = &mut self.connection;
        let connecting = connecting.get_or_insert_with(|| {
            *tries += 1;
            target.clone().connect(wake_up)
        });
        match connecting.poll() {
            None => {}
            Some(Err(error)) => self.on_lost(error),
            Some(Ok(thread)) => {
                let mut store = Store::over(thread, Arc::clone(&self.interrupted));
                let is_last = self.is_stopping() && self.leases.held() == 0;
                store.limit(if is_last { self.timing.last_limits } else { self.timing.limits });
                (self.connection.store, self.connection.connecting) = (Some(store), None);
                self.next_heartbeat = Instant::now();
                // Runs may have been released meanwhile.
                self.claim_when = ClaimWhen::Now;
            }
        }
    }
}
