//! What a tick does when the database is away, busy or refuses. Jobs go on meanwhile, until their
//! leases are about to end.

use std::time::{Duration, Instant};

use super::{Look, Phase, Tick, WhenIdle, lease, record};
use crate::connect::Connecting;
use crate::exit::Exit;
use crate::store::{self, Kind, Store};

/// Before something that the database refused is sent again.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two tries to connect anew.
const RECONNECT_PAUSE: Duration = Duration::from_secs(5);

impl Tick {
    /// What an error of the store means for the tick.
    pub(super) fn trouble(&mut self, error: store::Error) {
        if error.kind == Kind::Lost {
            return self.lost(error.into());
        }
        self.paused_until = Instant::now() + REFUSED_PAUSE;
        match error.kind {
            Kind::Busy if !self.is_free() => log::debug!("{error}"),
            // Somebody has migrated. What runs may end: leases and results are as they were.
            Kind::Fatal if error.exit == Exit::Schema && self.phase == Phase::Working => {
                log::warn!("{error}; {} running", self.held.len());
                self.failure.get_or_insert(error.into());
                self.phase = Phase::Draining;
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
        (self.store, self.connecting, self.asked) = (None, None, None);
        self.ended.append(&mut self.blocked);
        // A note in the history is not worth waiting for.
        self.lost.clear();
        self.may_claim = false;
        // One that lingers tries once; without a database there is nothing to wait for.
        let lingers = self.plan.when_idle == WhenIdle::Linger && self.connects == 0;
        if self.is_free() && !lingers {
            self.failure = Some(error);
            return;
        }
        if self.unreached.is_none() {
            log::warn!("{error:#}; {} running, connecting anew", self.held.len());
        }
        if self.connects > 0 {
            let pause = RECONNECT_PAUSE.min(Duration::from_millis(100) * (1 << self.connects.min(10)));
            self.paused_until = Instant::now() + pause.mul_f64(rand::random_range(0.5..1.0));
        }
        self.unreached = Some(error);
    }

    /// Connects, and goes on connecting, without waiting for it: signals and the ends of jobs must not.
    pub(super) fn connect(&mut self) {
        if Instant::now() < self.paused_until {
            return;
        }
        if self.connecting.is_none() {
            self.connects += 1;
            self.connecting = Some(self.target.clone().connect(self.bell()));
        }
        match self.connecting.as_mut().and_then(Connecting::poll) {
            None => {}
            Some(Err(error)) => self.lost(error),
            Some(Ok(link)) => {
                let mut store = Store::over(link);
                store.limit(self.timing.limits);
                (self.store, self.connecting) = (Some(store), None);
                self.next_beat = Instant::now();
                // Runs may have been given up meanwhile.
                self.look = Look::Now;
            }
        }
    }

    /// Without a connection: forgets results whose lease has been over for long. As long as nobody has recovered the
    /// runs, which takes the same database, they are still to be recorded; the fence decides.
    pub(super) fn give_up_expired(&mut self) {
        let now = Instant::now();
        let kept = self.timing.result_kept;
        self.unstarted.retain(|one| now < one.expires);
        let held = &mut self.held;
        self.ended.retain(|judged| {
            let run = &judged.attempt.run;
            let over = held.get(&run.id).is_none_or(|held| held.attempt != run.attempt || now >= held.expires + kept);
            if over {
                lease::give_up(held, run);
                log::warn!("{}: result not recorded, lease lost", record::subject(run));
            }
            !over
        });
    }
}
