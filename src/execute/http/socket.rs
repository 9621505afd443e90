//! The connection of a call. It waits in short slices, so that a call ends soon after it is stopped
//! or its time is up.

use std::cell::Cell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scoped_tls::scoped_thread_local;
use ureq::unversioned::transport::{Buffers, LazyBuffers, NextTimeout, Transport};
use ureq::{Error, Timeout};

use super::HEADER_LIMIT;
use crate::execute::stop::{SLICE, Stop};

/// The size of each buffer. It exceeds the largest allowed header, because ureq takes a full buffer
/// for the end of the stream.
pub(super) const BUFFER: usize = HEADER_LIMIT + 16 * 1024;

// The state of a call belongs to its thread, not to its connection: connections are pooled and
// move between threads.
scoped_thread_local!(static STOP: Stop);
scoped_thread_local!(static CALL_STATE: CallState);

#[derive(Debug)]
struct CallState {
    /// When the call, or the connection that it makes now, ends with which timeout.
    limit: Cell<(Instant, Timeout)>,
    sent: Cell<Sent>,
    /// The connection was kept after an earlier request.
    is_kept: Cell<bool>,
}

/// Whether any part of a request may have reached the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    Nothing,
    Something,
}

/// Runs `call`. Its connections give up when it is stopped or at `deadline`.
pub(super) fn within<T>(deadline: Instant, stop: &Stop, call: impl FnOnce() -> T) -> T {
    let state = CallState {
        limit: Cell::new((deadline, Timeout::Global)),
        sent: Cell::new(Sent::Nothing),
        is_kept: Cell::default(),
    };
    STOP.set(stop, || CALL_STATE.set(&state, call))
}

/// Returns the time that the call on this thread has left, or its connection if that is less.
pub(super) fn time_left() -> Duration {
    CALL_STATE.with(|state| state.limit.get().0.saturating_duration_since(Instant::now()))
}

/// Returns how much of its request the call on this thread has sent.
pub(super) fn sent() -> Sent {
    CALL_STATE.with(|state| state.sent.get())
}

/// Returns whether a kept connection carries the request of the call on this thread.
pub(super) fn is_kept() -> bool {
    CALL_STATE.with(|state| state.is_kept.get())
}

/// Records the start of a request. Until `connect_within` is called, it counts as using a kept
/// connection.
pub(super) fn begin() {
    CALL_STATE.with(|state| {
        state.sent.set(Sent::Nothing);
        state.is_kept.set(true);
    });
}

/// Opens a new connection with its own timeout. Only the handshake was sent so far.
pub(super) fn connect_within<T>(timeout: Duration, connect: impl FnOnce() -> T) -> T {
    CALL_STATE.with(|state| {
        let limit = state.limit.get();
        let own_limit = (Instant::now() + timeout, Timeout::Connect);
        state.limit.set(if own_limit.0 < limit.0 { own_limit } else { limit });
        let connected = connect();
        state.limit.set(limit);
        state.sent.set(Sent::Nothing);
        state.is_kept.set(false);
        connected
    })
}

/// Fails if the call on this thread was stopped, or its time is up.
pub(super) fn check_time() -> Result<(), Error> {
    if STOP.with(Stop::asked).is_some() {
        return Err(Error::Timeout(Timeout::Global));
    }
    let (until, timeout) = CALL_STATE.with(|state| state.limit.get());
    if Instant::now() < until { Ok(()) } else { Err(Error::Timeout(timeout)) }
}

pub(super) struct HttpSocket {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl HttpSocket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Self { stream, buffers: LazyBuffers::new(BUFFER, BUFFER) })
    }
}

/// Repeats `step` until it moves some bytes. Checks the time before every step, so that a server
/// can't extend a call by sending single bytes.
fn retry(mut step: impl FnMut() -> io::Result<usize>) -> Result<usize, Error> {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};

    loop {
        check_time()?;
        match step() {
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
            moved => return Ok(moved?),
        }
    }
}

impl Transport for HttpSocket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            let written = retry(|| (&self.stream).write(rest))?;
            CALL_STATE.with(|state| state.sent.set(Sent::Something));
            rest = &rest[written..];
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let free = self.buffers.input_append_buf();
        let read = retry(|| (&self.stream).read(free))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// An idle connection with something to read was closed, or got an unexpected answer.
    fn is_open(&mut self) -> bool {
        let mut idle = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut idle, Some(&Timespec::default())) == Ok(0)
    }
}

// Not derived: the buffers contain secrets, which no log may show.
impl fmt::Debug for HttpSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpSocket").finish_non_exhaustive()
    }
}
