//! The connection of a call: looks the host up, keeps the addresses that the policy allows,
//! connects to one of exactly these addresses, and adds TLS. It waits in short slices, so that a
//! call ends soon after it is stopped or its time is up.

use std::cell::Cell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use postgres_connect::certificates::{
    Checks, Problem, Trust, TrustError, Verifier, client_builder, server_name, system_roots,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ALL_VERSIONS, ClientConfig, ClientConnection, StreamOwned};
use scoped_tls::scoped_thread_local;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

use super::HEADER_LIMIT;
use super::failure::{SentPart, tls_words, worded};
use super::normalize::Normalized;
use super::policy::{HostPolicy, Reach, bare, is_public};
use crate::execute::is_exhaustion;
use crate::execute::stop::{SLICE, Stop};
use crate::job::failure::Failure;
use crate::text::duration;

/// The timeout of TCP and TLS together. The name lookup before them may take until the call's
/// timeout.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The size of each buffer. It must exceed the largest allowed header: if a buffer is full, ureq
/// believes that the stream has ended.
pub(super) const BUFFER: usize = HEADER_LIMIT + 16 * 1024;

// The state of a call belongs to its thread, not to its connection, because connections are pooled
// and move between threads.
scoped_thread_local!(static STOP: Stop);
scoped_thread_local!(static CALL_STATE: CallState);

/// The call that is made on this thread.
#[derive(Debug)]
struct CallState {
    /// When the present step of the call must end, and the timeout that ends it then: that of the
    /// whole call, or that of the step.
    limit: Cell<(Instant, Timeout)>,
    sent_part: Cell<SentPart>,
    /// Whether the connection served an earlier request.
    is_reused: Cell<bool>,
}

/// Runs `call`, and returns its result. Its connections give up when `stop` asks for it, or at
/// `deadline`.
pub(super) fn within<T>(deadline: Instant, stop: &Stop, call: impl FnOnce() -> T) -> T {
    let state = CallState {
        limit: Cell::new((deadline, Timeout::Global)),
        sent_part: Cell::new(SentPart::Nothing),
        is_reused: Cell::default(),
    };
    STOP.set(stop, || CALL_STATE.set(&state, call))
}

/// Returns how much of its request the call on this thread has sent.
pub(super) fn sent_part() -> SentPart {
    CALL_STATE.with(|state| state.sent_part.get())
}

/// Returns whether the request of the call on this thread goes over a connection that already
/// served another request.
pub(super) fn is_connection_reused() -> bool {
    CALL_STATE.with(|state| state.is_reused.get())
}

/// Begins a request on this thread.
pub(super) fn begin_request() {
    CALL_STATE.with(|state| {
        state.sent_part.set(SentPart::Nothing);
        // If ureq makes no connection, it uses an old one. `connect` sets this to false.
        state.is_reused.set(true);
    });
}

/// Fails if the call on this thread was stopped, or its time is up.
fn check_time() -> Result<(), Error> {
    if STOP.with(Stop::asked).is_some() {
        return Err(Error::Timeout(Timeout::Global));
    }
    let (until, timeout) = CALL_STATE.with(|state| state.limit.get());
    if Instant::now() < until { Ok(()) } else { Err(Error::Timeout(timeout)) }
}

/// Runs a step of the call that must end at its own limit, or at that of the call if it is earlier.
fn until_limit<T>(own_limit: (Instant, Timeout), step: impl FnOnce() -> T) -> T {
    CALL_STATE.with(|state| {
        let call_limit = state.limit.get();
        state.limit.set(if own_limit.0 < call_limit.0 { own_limit } else { call_limit });
        let result = step();
        state.limit.set(call_limit);
        result
    })
}

/// Looks up nothing, because the `Dialer` looks names up. ureq would ask a resolver before every
/// request, even if a pooled connection serves it.
#[derive(Debug)]
pub(super) struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}

/// Makes the connections of all calls.
#[derive(Debug)]
pub(super) struct Dialer {
    policy: HostPolicy,
    /// The settings of TLS, or why there are none. They are made at the first call over https, so
    /// that a tick without such a call does not read the root certificates.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// Makes the settings of TLS: connections trust the authorities that this host trusts.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    let roots = system_roots().map_err(|error| error.to_string())?;
    let trust = Trust { roots, revoked: Vec::new() };
    let verifier = Verifier::new(Checks::AuthorityAndName, trust).map_err(|error| match error {
        TrustError::NoRoot => "the root certificates of this host are damaged; correct them".into(),
        other => other.to_string(),
    })?;
    let builder = client_builder(verifier, ALL_VERSIONS).map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_no_client_auth()))
}

impl Dialer {
    /// Returns a dialer that connects only to the hosts that the policy allows.
    pub(super) fn new(policy: HostPolicy) -> Self {
        Self { policy, tls: OnceLock::new() }
    }

    /// Returns the settings of TLS. The first call makes them.
    fn tls(&self) -> Result<Arc<ClientConfig>, Error> {
        let config = self.tls.get_or_init(tls_config).clone();
        config.map_err(|why| worded(Failure::Tls(why)))
    }

    /// Returns the addresses of a host that the policy allows. Fails if it allows none.
    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let not_allowed = |why: &str| worded(Failure::NotAllowed(why.to_owned()));
        let Some(reach) = self.policy.reach(host) else {
            return Err(not_allowed("--http-allow does not allow the server on this host"));
        };
        let mut found = resolve(host, port)?;
        if reach == Reach::Public {
            found.retain(|address| is_public(address.ip()));
        }
        if found.is_empty() {
            let why =
                "the server has no public address; --http-allow must name its host without a `*`";
            return Err(not_allowed(why));
        }
        Ok(found)
    }
}

impl Connector for Dialer {
    type Out = Normalized<HttpSocket>;

    /// Makes a connection to the server of a request, if the policy allows it.
    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let host = details.uri.host().unwrap_or_default();
        let port = details.uri.port_u16().unwrap_or(if details.needs_tls() { 443 } else { 80 });
        let addresses = self.addresses(host, port)?;
        let tls = if details.needs_tls() { Some(self.tls()?) } else { None };
        let connected = until_limit((Instant::now() + CONNECT_LIMIT, Timeout::Connect), || {
            let stream = connect(&addresses)?;
            match tls {
                Some(config) => encrypted(stream, config, host),
                None => Ok(HttpSocket::new(HttpStream::Plain(stream))),
            }
        });
        CALL_STATE.with(|state| {
            // Bytes of the handshake do not belong to the request.
            state.sent_part.set(SentPart::Nothing);
            state.is_reused.set(false);
        });
        match connected {
            Ok(socket) => Ok(Some(Normalized::new(socket))),
            Err(Error::Timeout(Timeout::Connect)) => Err(unconnected(&ErrorKind::TimedOut.into())),
            Err(other) => Err(other),
        }
    }
}

/// Returns the error for a connection that could not be made.
fn unconnected(error: &io::Error) -> Error {
    worded(if is_exhaustion(error) {
        Failure::Exhausted(error.to_string())
    } else if error.kind() == ErrorKind::TimedOut {
        let limit = duration::show(CONNECT_LIMIT);
        Failure::Transport(format!("no connection to the server within {limit}"))
    } else {
        Failure::Transport(format!("cannot connect to the server: {error}"))
    })
}

/// Returns the addresses of a host. Looks it up in a thread of its own, which may outlive the call,
/// because the lookup can't be interrupted.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let name = bare(host).to_owned();
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let look_up = move || {
        // Sending fails only if the call has ended; then no answer is needed.
        let _ = sender.send((name.as_str(), port).to_socket_addrs());
    };
    let thread = thread::Builder::new().name("resolve".to_owned());
    thread.spawn(look_up).map_err(|error| unconnected(&error))?;
    let found = loop {
        match receiver.recv_timeout(SLICE) {
            Err(RecvTimeoutError::Timeout) => check_time()?,
            Err(RecvTimeoutError::Disconnected) => break Err(ErrorKind::BrokenPipe.into()),
            Ok(found) => break found,
        }
    };
    found
        .map(Iterator::collect)
        .map_err(|error| worded(Failure::Transport(unresolved(&error.to_string()))))
}

/// Returns words for the system's error about a lookup.
fn unresolved(error: &str) -> String {
    // musl calls a temporary failure `Try again`, which reads as advice.
    let error = error.replace("Try again", "temporary failure of name resolution");
    format!("cannot look up the server: {error}")
}

/// Connects to the first address that answers. Each address gets its share of the remaining time,
/// so that a silent one does not take the time of the next.
fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut last_error = io::Error::from(ErrorKind::AddrNotAvailable);
    for (tried, address) in addresses.iter().enumerate() {
        check_time()?;
        let until = CALL_STATE.with(|state| state.limit.get().0);
        let time_left = until.saturating_duration_since(Instant::now());
        let share = time_left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        // A timeout of zero would be an error.
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => {
                let set = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(SLICE)))
                    .and_then(|()| stream.set_write_timeout(Some(SLICE)));
                return set.map(|()| stream).map_err(|error| unconnected(&error));
            }
            Err(error) => last_error = error,
        }
    }
    check_time()?;
    Err(unconnected(&last_error))
}

/// Makes the TLS handshake, and returns the encrypted connection.
fn encrypted(
    mut stream: TcpStream,
    config: Arc<ClientConfig>,
    host: &str,
) -> Result<HttpSocket, Error> {
    let failed = |problem| worded(Failure::Tls(tls_words(&problem)));
    let name = server_name(bare(host)).map_err(failed)?;
    let session = ClientConnection::new(config, name);
    let mut session = session.map_err(|error| failed(Problem::from(&error)))?;
    retry(|| session.complete_io(&mut stream).map(|(read, _)| read))?;
    Ok(HttpSocket::new(HttpStream::Encrypted(Box::new(StreamOwned::new(session, stream)))))
}

/// An open connection, with or without TLS.
enum HttpStream {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl HttpStream {
    /// Returns the connection without TLS.
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(stream) => &stream.sock,
        }
    }
}

impl Read for HttpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for HttpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}

/// A connection for ureq. It checks the time of the call before each step.
pub(super) struct HttpSocket {
    stream: HttpStream,
    buffers: LazyBuffers,
}

impl HttpSocket {
    fn new(stream: HttpStream) -> Self {
        Self { stream, buffers: LazyBuffers::new(BUFFER, BUFFER) }
    }
}

/// Repeats `step` until it has not only waited, and returns how many bytes it has moved. Checks the
/// time before every step, so that a server can't extend a call by sending single bytes.
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

    /// Sends the first `amount` bytes of the output buffer.
    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            let written = retry(|| self.stream.write(rest))?;
            CALL_STATE.with(|state| state.sent_part.set(SentPart::Something));
            rest = &rest[written..];
        }
        retry(|| self.stream.flush().map(|()| 0)).map(drop)
    }

    /// Waits for more input, and reads it into the input buffer. Returns whether there is more.
    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let free = self.buffers.input_append_buf();
        let mut read = || retry(|| self.stream.read(free));
        let length = match timeout.reason {
            // Other waits end only at the limit of the call. This one needs its own: if the server
            // ignores `Expect: 100-continue`, ureq sends the body after the wait.
            Timeout::Await100 => {
                until_limit((Instant::now() + *timeout.after, timeout.reason), read)
            }
            _ => read(),
        }?;
        self.buffers.input_appended(length);
        Ok(length > 0)
    }

    /// Returns whether an idle connection can serve another request.
    fn is_open(&mut self) -> bool {
        // If there is something to read, the server has closed the connection, or has sent an
        // answer that no request asked for.
        let mut idle = [PollFd::new(self.stream.tcp(), PollFlags::IN)];
        poll(&mut idle, Some(&Timespec::default())) == Ok(0)
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, HttpStream::Encrypted(_))
    }
}

// Not derived: the buffers contain secrets, which no log may show.
impl fmt::Debug for HttpSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpSocket").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_error_code_does_not_read_as_advice() {
        let words = super::unresolved("failed to lookup address information: Try again");
        assert!(words.ends_with(": temporary failure of name resolution"), "{words}");
    }
}
