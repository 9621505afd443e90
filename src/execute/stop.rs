//! The one way to end an execution from outside. Whoever supervises asks; the thread that executes
//! looks, or sleeps on the descriptor. An execution also ends by itself when nobody has prolonged
//! it in time, so that a supervisor that is stuck can't keep it alive.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::model::Why;

/// Asked to end, and until when the execution may go on unasked.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: AtomicU8,
    /// Milliseconds after `epoch`.
    until: AtomicU64,
    epoch: Instant,
    lost_grace: Duration,
    /// Only for who sleeps on it: runs by the thousand may wait for their execution.
    bell: OnceLock<OwnedFd>,
}

const CANCELLED: u8 = 1;
const INTERRUPTED: u8 = 2;
const LEASE_LOST: u8 = 3;
/// Added to one of the above: no time to end politely.
const NOW: u8 = 8;

impl Stop {
    /// An execution that may go on until then, and has `lost_grace` to end politely when it is not
    /// prolonged.
    pub(crate) fn new(until: Instant, lost_grace: Duration) -> Self {
        let stop = Self {
            asked: AtomicU8::new(0),
            until: AtomicU64::new(0),
            epoch: Instant::now(),
            lost_grace,
            bell: OnceLock::new(),
        };
        stop.prolong(until);
        stop
    }

    /// Lets the execution go on until then, unless it is asked to end.
    pub(crate) fn prolong(&self, until: Instant) {
        let milliseconds = until.saturating_duration_since(self.epoch).as_millis();
        self.until.store(u64::try_from(milliseconds).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Asks it to end; the first reason stays.
    pub(crate) fn ask(&self, why: Why) {
        let code = match why {
            Why::Cancelled => CANCELLED,
            Why::Interrupted => INTERRUPTED,
            Why::LeaseLost => LEASE_LOST,
        };
        if self.asked.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.ring();
        }
    }

    /// Asks an execution that was asked before to end without any further patience.
    pub(crate) fn hurry(&self) {
        self.asked.fetch_or(NOW, Ordering::AcqRel);
        self.ring();
    }

    /// Why it has to end, if it has to.
    pub(crate) fn asked(&self) -> Option<Why> {
        match self.asked.load(Ordering::Acquire) & !NOW {
            CANCELLED => Some(Why::Cancelled),
            INTERRUPTED => Some(Why::Interrupted),
            LEASE_LOST => Some(Why::LeaseLost),
            _ => (self.remaining() == Duration::ZERO).then_some(Why::LeaseLost),
        }
    }

    /// How long it may take to end politely, at most `usual`.
    pub(crate) fn grace(&self, usual: Duration) -> Duration {
        // Another worker may be about to start the same, whatever it was asked for first.
        let lost = self.asked() == Some(Why::LeaseLost) || self.remaining() == Duration::ZERO;
        if lost { usual.min(self.lost_grace) } else { usual }
    }

    /// Whether even the polite end takes too long.
    pub(crate) fn hurried(&self) -> bool {
        self.asked.load(Ordering::Acquire) & NOW != 0
    }

    /// How long the execution may go on if nobody asks and nobody prolongs it.
    pub(crate) fn remaining(&self) -> Duration {
        let until = self.epoch + Duration::from_millis(self.until.load(Ordering::Acquire));
        until.saturating_duration_since(Instant::now())
    }

    /// Becomes readable when somebody asks; never read, so it stays so.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub(crate) fn bell(&self) -> io::Result<BorrowedFd<'_>> {
        let new = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = self.bell.get_or_init(|| new);
        // Who asked before found no bell to ring. The fences see to it that one of both sees the other.
        fence(Ordering::SeqCst);
        if self.asked.load(Ordering::Acquire) != 0 {
            self.ring();
        }
        Ok(bell.as_fd())
    }

    fn ring(&self) {
        fence(Ordering::SeqCst);
        if let Some(bell) = self.bell.get() {
            // An eventfd refuses a write only when its counter is full, and then it is readable anyway.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}
