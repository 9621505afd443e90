//! Connects to a server: looks its host up, keeps the addresses that the policy allows, connects to
//! one of exactly these, and adds TLS.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, RustlsConnector};
use ureq::{Error, Timeout};

use super::policy::{HostPolicy, Reach, bare, is_public};
use super::socket::{self, HttpSocket, check_time};
use crate::execute::is_exhaustion;
use crate::execute::stop::SLICE;
use crate::job::failure::Failure;
use crate::text::duration;

/// The timeout of TCP and TLS together. The name lookup before them may take until the call's
/// timeout.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Wraps a failure in an error of ureq, so that ureq returns it unchanged.
fn worded(failure: Failure) -> Error {
    Error::Other(Box::new(failure))
}

/// Looks up nothing: ureq asks its resolver before every request, even if a pooled connection
/// serves it. The `Dialer` looks names up.
#[derive(Debug)]
pub(super) struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}

#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) policy: Arc<HostPolicy>,
    pub(super) tls: RustlsConnector,
}

impl Dialer {
    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let not_allowed = |why: &str| worded(Failure::NotAllowed(why.to_owned()));
        let reach = self
            .policy
            .reach(host)
            .ok_or_else(|| not_allowed("--http-allow does not allow the server on this host"))?;
        let mut found = resolve(host, port)?;
        if reach == Reach::Public {
            found.retain(|address| is_public(address.ip()));
        }
        if found.is_empty() {
            let why = "the server has no public address; --http-allow must name it exactly";
            return Err(not_allowed(why));
        }
        Ok(found)
    }
}

impl Connector for Dialer {
    type Out = <RustlsConnector as Connector<HttpSocket>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let host = details.uri.host().unwrap_or_default();
        let port = details.uri.port_u16().unwrap_or(if details.needs_tls() { 443 } else { 80 });
        let addresses = self.addresses(host, port)?;
        let connected = socket::connect_within(CONNECT_LIMIT, || {
            self.tls.connect(details, Some(connect(&addresses)?))
        });
        connected.map_err(|error| match error {
            Error::Timeout(Timeout::Connect) => unconnected(&ErrorKind::TimedOut.into()),
            other => other,
        })
    }
}

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

/// Looks a host up in a thread of its own, because the lookup can't be interrupted. The thread may
/// outlive the call.
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
        .map_err(|error| worded(Failure::Transport(format!("cannot look up the server: {error}"))))
}

/// Tries one address after the other. Each gets its share of the remaining time, so that a silent
/// address does not take the time of the next.
fn connect(addresses: &[SocketAddr]) -> Result<HttpSocket, Error> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for (untried, address) in (1..=addresses.len()).rev().zip(addresses) {
        check_time()?;
        let share = socket::time_left() / u32::try_from(untried).unwrap_or(u32::MAX);
        let stream = TcpStream::connect_timeout(address, share.max(Duration::from_millis(1)));
        match stream {
            Ok(stream) => return HttpSocket::new(stream).map_err(|error| unconnected(&error)),
            Err(error) => last = error,
        }
    }
    check_time()?;
    Err(unconnected(&last))
}
