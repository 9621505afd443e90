//! A connection whose waits are cut into slices, so that a call ends soon after it is stopped or its
//! time is up. Moves bytes; must not know where a connection leads, nor what HTTP is.

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
use crate::execute::Stop;

/// How long a thread waits before it looks whether it may go on.
pub(super) const SLICE: Duration = Duration::from_millis(100);
/// Each way. Holds the largest header that is accepted, or sent, with room to spare: ureq takes a
/// full buffer for the end of the stream.
pub(super) const BUFFER: usize = HEADER_LIMIT + 16 * 1024;

// Connections are pooled and wander from thread to thread, so what bounds a call can't live in them.
scoped_thread_local!(static STOP: Stop);
scoped_thread_local!(static BUDGET: Budget);

#[derive(Debug)]
struct Budget {
    deadline: Instant,
    sent: Cell<Sent>,
    connection: Cell<Connection>,
}

/// The connection that carries a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Connection {
    /// Made for an earlier request and kept.
    Kept,
    New,
}

/// Whether any part of a request may have reached the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    Nothing,
    Something,
}

/// Runs `call`, whose connections give up when it is stopped or `deadline` has come.
pub(super) fn within<T>(deadline: Instant, stop: &Stop, call: impl FnOnce() -> T) -> T {
    let budget = Budget { deadline, sent: Cell::new(Sent::Nothing), connection: Cell::new(Connection::New) };
    STOP.set(stop, || BUDGET.set(&budget, call))
}

/// What the call on this thread has left.
pub(super) fn time_left() -> Duration {
    BUDGET.with(|budget| budget.deadline.saturating_duration_since(Instant::now()))
}

/// How much of its request the call on this thread has sent.
pub(super) fn sent() -> Sent {
    BUDGET.with(|budget| budget.sent.get())
}

/// Returns which connection carries the request of the call on this thread.
pub(super) fn connection() -> Connection {
    BUDGET.with(|budget| budget.connection.get())
}

/// Records that a request begins on `connection` and that nothing of it has been sent.
pub(super) fn begin(connection: Connection) {
    BUDGET.with(|budget| {
        budget.sent.set(Sent::Nothing);
        budget.connection.set(connection);
    });
}

/// # Errors
/// The call on this thread was stopped, or its time is up.
pub(super) fn go_on() -> Result<(), Error> {
    if time_left().is_zero() || STOP.with(Stop::asked).is_some() {
        Err(Error::Timeout(Timeout::Global))
    } else {
        Ok(())
    }
}

/// A connection whose waits are cut into slices.
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Self { stream, buffers: LazyBuffers::new(BUFFER, BUFFER) })
    }
}

/// Runs `step` until it moves something. The time of the call is looked at before every step and
/// not only after a slice without any byte, so that a server that drips gains nothing.
fn patiently(timeout: NextTimeout, mut step: impl FnMut() -> io::Result<usize>) -> Result<usize, Error> {
    let started = Instant::now();
    loop {
        go_on()?;
        if started.elapsed() >= *timeout.after {
            return Err(Error::Timeout(timeout.reason));
        }
        match step() {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            moved => return Ok(moved?),
        }
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            let written = patiently(timeout, || (&self.stream).write(rest))?;
            BUDGET.with(|budget| budget.sent.set(Sent::Something));
            rest = &rest[written..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let free = self.buffers.input_append_buf();
        let read = patiently(timeout, || (&self.stream).read(free))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// An idle connection with something to read was closed, or speaks out of turn.
    fn is_open(&mut self) -> bool {
        let mut idle = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut idle, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }
}

// Not derived: the buffers hold what no log may show.
impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Socket").finish_non_exhaustive()
    }
}
