//! Sends requests to the database, one at a time. For renewals and claims the tick's thread does
//! not wait: signals and ended jobs are seen meanwhile.

use std::time::Instant;

use super::finish_and_claim::FinishAndClaim;
use super::lease::Renewal;
use super::{BATCH_BYTES, Event, Phase, Tick, prefetch};
use crate::store;

pub(super) enum InFlight {
    FinishAndClaim(FinishAndClaim),
    Renewal(Renewal),
}

impl InFlight {
    /// Returns when the server counts as silent.
    pub(super) fn until(&self) -> Instant {
        match self {
            Self::FinishAndClaim(request) => request.asked.answer.until,
            Self::Renewal(renewal) => renewal.answer.until,
        }
    }

    pub(super) fn until_mut(&mut self) -> &mut Instant {
        match self {
            Self::FinishAndClaim(request) => &mut request.asked.answer.until,
            Self::Renewal(renewal) => &mut renewal.answer.until,
        }
    }
}

impl Tick {
    /// Sends the next requests, in the order of urgency, unless an answer is still missing.
    pub(super) fn request(&mut self) -> store::Result<()> {
        if !self.take_answer()? || self.connection.is_paused() || self.is_batching() {
            return Ok(());
        }
        self.release_waiting();
        self.in_flight = self.send_renewal()?.map(InFlight::Renewal);
        if self.in_flight.is_some() {
            return Ok(());
        }
        // An error of a release must not keep results from being recorded.
        let released = self.release();
        self.in_flight = self.finish_and_claim()?.map(InFlight::FinishAndClaim);
        released?;
        if self.in_flight.is_some() {
            return Ok(());
        }
        self.search_unclaimable()?;
        self.note_lost()
    }

    /// Does the next step of the search for unclaimable runs. Renewals, results and signals come
    /// first.
    fn search_unclaimable(&mut self) -> store::Result<()> {
        let (Phase::Working, Some(search), Some(store)) =
            (self.phase, &mut self.search, &self.connection.store)
        else {
            return Ok(());
        };
        let stepped = search.step(store, &self.holder.worker, &mut self.plan.wanted);
        self.search.take_if(|search| search.suspects.is_done());
        stepped
    }

    /// Takes the answer of the request in flight. Returns false if it has not come yet.
    fn take_answer(&mut self) -> store::Result<bool> {
        match self.in_flight.take() {
            None => {}
            Some(InFlight::Renewal(renewal)) => match renewal.answer.poll() {
                Some(answer) => self.renewed(&renewal, answer)?,
                None => self.in_flight = Some(InFlight::Renewal(renewal)),
            },
            Some(InFlight::FinishAndClaim(request)) => match request.asked.answer.poll() {
                Some(answer) => self.finished_and_claimed(request, answer)?,
                None => self.in_flight = Some(InFlight::FinishAndClaim(request)),
            },
        }
        Ok(self.in_flight.is_none())
    }

    /// Returns a function that wakes the tick's thread for an answer.
    pub(super) fn wake_up(&self) -> impl Fn() + Send + Sync + 'static {
        let sender = self.sender.clone();
        // Sending fails only if the tick has ended; then no wake-up is needed.
        move || drop(sender.send(Event::Wake))
    }

    /// Whether to delay the next request, for a larger batch: all threads have work, no lease needs
    /// to be renewed, and the results take little memory.
    pub(super) fn is_batching(&self) -> bool {
        let now = Instant::now();
        now < self.batching_until
            && now < self.next_heartbeat
            && self.phase == Phase::Working
            && self.pool.waiting() > self.prefetch.refill_at(self.pool.size)
            && self.results.ended.len() < prefetch::FULL_BATCH
            && self.results.bytes() < BATCH_BYTES
    }
}
