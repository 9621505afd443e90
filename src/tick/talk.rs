//! What a tick and the database say to each other, one thing at a time. The tick's thread does not wait for
//! the answers to what is asked over and over in the midst of work.

use std::time::Instant;

use super::exchange::Exchange;
use super::lease::Renewal;
use super::{BYTES_AT_REST, Event, Phase, Tick, pace};
use crate::store;

/// What the database was asked and has not answered yet. Signals and the ends of jobs are seen meanwhile.
pub(super) enum Asked {
    Exchange(Exchange),
    Renewal(Renewal),
}

impl Asked {
    /// Without an answer until then the server is taken for silent.
    pub(super) fn until(&self) -> Instant {
        match self {
            Self::Exchange(exchange) => exchange.asked.answer.until,
            Self::Renewal(renewal) => renewal.answer.until,
        }
    }

    /// Lowers the time at which the server counts as silent to `until`.
    pub(super) fn await_until(&mut self, until: Instant) {
        let awaited = match self {
            Self::Exchange(exchange) => &mut exchange.asked.answer.until,
            Self::Renewal(renewal) => &mut renewal.answer.until,
        };
        *awaited = until.min(*awaited);
    }
}

impl Tick {
    /// All that there is to say to the database now.
    pub(super) fn talk(&mut self) -> store::Result<()> {
        if !self.settle()? || self.connection.is_paused() || self.rests() {
            return Ok(());
        }
        self.take_back_waiting();
        self.asked = self.beat()?.map(Asked::Renewal);
        if self.asked.is_some() {
            return Ok(());
        }
        // An error of a release must not keep results from being recorded.
        let released = self.release();
        self.asked = self.exchange()?.map(Asked::Exchange);
        released?;
        if self.asked.is_some() {
            return Ok(());
        }
        self.search_refused()?;
        self.note_lost()
    }

    /// Does the next step of the search for unclaimable runs. Renewals, results and signals come
    /// first.
    fn search_refused(&mut self) -> store::Result<()> {
        let (Phase::Working, Some(search), Some(store)) = (self.phase, &mut self.refused, &self.connection.store)
        else {
            return Ok(());
        };
        let stepped = search.step(store, &self.holder.worker, &mut self.plan.wanted);
        self.refused.take_if(|search| search.is_done());
        stepped
    }

    /// Takes in the answer to what was asked. False: it is not there yet.
    fn settle(&mut self) -> store::Result<bool> {
        match self.asked.take() {
            None => return Ok(true),
            Some(Asked::Renewal(renewal)) => match renewal.answer.poll() {
                Some(answer) => self.renewed(&renewal, answer)?,
                None => self.asked = Some(Asked::Renewal(renewal)),
            },
            Some(Asked::Exchange(exchange)) => match exchange.asked.answer.poll() {
                Some(answer) => self.exchanged(exchange, answer)?,
                None => self.asked = Some(Asked::Exchange(exchange)),
            },
        }
        Ok(self.asked.is_none())
    }

    /// What wakes the tick's thread for an answer.
    pub(super) fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let sender = self.sender.clone();
        // Nobody listens any more when the tick has ended.
        move || drop(sender.send(Event::Answered))
    }

    /// Whether the next statement gives way to the jobs. Nobody waits for it: there is work for a while, no
    /// lease is to be renewed, and what is to be written takes little memory.
    pub(super) fn rests(&self) -> bool {
        let now = Instant::now();
        now < self.rested_until
            && now < self.next_beat
            && self.phase == Phase::Working
            && self.pool.waiting() > self.pace.few(self.pool.size())
            && self.results.ended.len() < pace::PLENTY
            && self.results.bytes() < BYTES_AT_REST
    }
}
