//! Makes connections: looks a host up, keeps the addresses that the policy allows, connects to one of
//! exactly these, and wraps it in TLS. Nothing else connects. Must not know what HTTP is.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, RustlsConnector, time};
use ureq::{Error, Timeout};

use super::policy::{HostPolicy, Reach, bare, is_public};
use super::socket::{self, Connection, SLICE, Socket, go_on};
use crate::duration;
use crate::execute::is_exhaustion;
use crate::model::Failure;

/// For TCP and TLS together; names are looked up before it, within the time of the call.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A failure that has its words already, on its way through ureq.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Failure);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl StdError for Refused {}

fn refused(failure: Failure) -> Error {
    Error::Other(Box::new(Refused(failure)))
}

/// Leaves looking up names to `Dialer`: ureq asks its resolver before every request, even when a
/// pooled connection serves it.
#[derive(Debug)]
pub(super) struct Later;

impl Resolver for Later {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}

/// Makes new connections.
#[derive(Debug)]
pub(super) struct Dialer {
    policy: Arc<HostPolicy>,
    tls: RustlsConnector,
}

impl Dialer {
    pub(super) fn new(policy: Arc<HostPolicy>) -> Self {
        Self { policy, tls: RustlsConnector::default() }
    }

    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let reach = self.policy.reach(host).ok_or_else(|| {
            refused(Failure::NotAllowed("--http-allow does not allow the server on this host".to_owned()))
        })?;
        let mut found = resolve(host, port)?;
        if reach == Reach::Public {
            found.retain(|address| is_public(address.ip()));
        }
        if found.is_empty() {
            let why = "the server has no public address; --http-allow must name it exactly";
            return Err(refused(Failure::NotAllowed(why.to_owned())));
        }
        Ok(found)
    }
}

impl Connector for Dialer {
    type Out = <RustlsConnector as Connector<Socket>>::Out;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        let host = details.uri.host().unwrap_or_default();
        let port = details.uri.port_u16().unwrap_or(if details.needs_tls() { 443 } else { 80 });
        let addresses = self.addresses(host, port)?;

        let started = Instant::now();
        let socket = connect(&addresses).map_err(|error| match error {
            Error::Io(error) => refused(unconnected(&error)),
            other => other,
        })?;
        let left = CONNECT_LIMIT.saturating_sub(started.elapsed());
        let secured = self.tls.connect(
            &ConnectionDetails {
                uri: details.uri,
                addrs: details.resolver.empty(),
                config: details.config,
                request_level: details.request_level,
                resolver: details.resolver,
                now: time::Instant::now(),
                timeout: NextTimeout { after: left.into(), reason: Timeout::Connect, ..NextTimeout::default() },
                current_time: details.current_time.clone(),
                run_connector: details.run_connector.clone(),
                register_shutdown: details.register_shutdown.clone(),
            },
            Some(socket),
        );
        // What was sent so far was the handshake.
        socket::begin(Connection::New);
        secured.map_err(|error| match error {
            Error::Timeout(Timeout::Connect) => refused(unconnected(&ErrorKind::TimedOut.into())),
            other => other,
        })
    }
}

fn unconnected(error: &io::Error) -> Failure {
    if is_exhaustion(error) {
        return Failure::Exhausted(error.to_string());
    }
    Failure::Transport(match error.kind() {
        ErrorKind::TimedOut => format!("no connection to the server within {}", duration::show(CONNECT_LIMIT)),
        _ => format!("cannot connect to the server: {error}"),
    })
}

/// The lookup can't be interrupted, so a thread of its own makes it and may outlive the call.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let name = bare(host).to_owned();
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let look_up = move || {
        // Nobody listens any more when the call was given up.
        let _ = sender.send((name.as_str(), port).to_socket_addrs());
    };
    let thread = thread::Builder::new().name("resolve".to_owned());
    thread.spawn(look_up).map_err(|error| refused(unconnected(&error)))?;
    let found = loop {
        match receiver.recv_timeout(SLICE) {
            Err(RecvTimeoutError::Timeout) => go_on()?,
            Err(RecvTimeoutError::Disconnected) => break Err(ErrorKind::BrokenPipe.into()),
            Ok(found) => break found,
        }
    };
    found
        .map(Iterator::collect)
        .map_err(|error| refused(Failure::Transport(format!("cannot look up the server: {error}"))))
}

/// Tries one address after the other; each gets its share of the time that is left, so that a
/// silent first one doesn't hide a second one that answers.
fn connect(addresses: &[SocketAddr]) -> Result<Socket, Error> {
    let started = Instant::now();
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for (behind, address) in (1..=addresses.len()).rev().zip(addresses) {
        go_on()?;
        let left = CONNECT_LIMIT.saturating_sub(started.elapsed()).min(socket::time_left());
        let share = left / u32::try_from(behind).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(Socket::new(stream)?),
            Err(error) => last = error,
        }
    }
    go_on()?;
    Err(Error::Io(last))
}
