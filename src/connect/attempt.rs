//! One host's turn: its addresses, the forms of encryption that the mode allows, the login and the
//! kind of session, all within one limit of time.

use std::future::ready;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode as DriverMode, SslNegotiation};
use tokio_postgres::tls::TlsConnect;

use super::auth::Methods;
use super::client::{Client, Connection};
use super::failure::{Failure, NOT_POSTGRESQL, Remedy};
use super::handshake::{Encryption, Handshake};
use super::link::Link;
use super::server::{Place, Server};
use super::stream::{Guarded, Socket};
use super::target::{Keepalive, Probes, Target, Wanted};
use super::tls::SslMode;
use crate::duration;

/// How welcome a session is that was opened.
pub(super) enum Welcome {
    Fit,
    /// To be used if no host has a fit one.
    SecondChoice,
}

/// One host that is tried on a thread of its own, which becomes the connection's. The driver's own
/// timeout ends with the TCP handshake, and a server that accepts and says nothing would hold us for
/// ever; so the thread is left behind when the time is over. Should it still succeed, it finds nobody
/// to take its link and closes the connection.
pub(super) struct Turn {
    pub(super) server: Server,
    opened: mpsc::Receiver<Result<(Link, Welcome), Failure>>,
    started: Instant,
    timeout: Option<Duration>,
}

/// Everything that one host's thread needs.
struct Attempt {
    config: Config,
    place: Place,
    port: u16,
    keepalive: Keepalive,
    mode: SslMode,
    /// `None` where nothing is to be encrypted.
    handshake: Option<Handshake>,
    methods: Methods,
    wanted: Wanted,
    timeout: Option<Duration>,
}

impl Turn {
    /// Starts to try `server`, and calls `answered` when something has come of it.
    pub(super) fn start(
        target: &Target,
        server: Server,
        certificates: Option<Arc<ClientConfig>>,
        answered: impl FnOnce() + Send + 'static,
    ) -> Self {
        let attempt = Attempt {
            config: config(target, &server),
            place: server.place.clone(),
            port: server.port,
            keepalive: target.keepalive.clone(),
            mode: target.tls.mode,
            handshake: certificates.map(|certificates| Handshake {
                certificates,
                server: server.name().to_owned(),
                negotiation: target.tls.negotiation,
                own_certificate: target.tls.own_certificate,
            }),
            methods: target.methods.clone(),
            wanted: target.wanted,
            timeout: target.timeout,
        };
        let (sender, opened) = mpsc::channel();
        let tell = move |outcome| {
            // Nobody listens any more when the time is over.
            let _ = sender.send(outcome);
            answered();
        };
        // Without a thread nobody sends anything.
        let _ = thread::Builder::new().name("database".to_owned()).spawn(move || match attempt.run() {
            Ok((client, welcome)) => Link::serve(client, |link| tell(Ok((link, welcome)))),
            Err(failure) => tell(Err(failure)),
        });
        Self { server, opened, started: Instant::now(), timeout: target.timeout }
    }

    /// When it is over at the latest.
    pub(super) fn until(&self) -> Option<Instant> {
        self.timeout.map(|timeout| self.started + timeout)
    }

    /// What has come of it; waits for that, for `patience` at most.
    pub(super) fn outcome(&self, patience: Duration) -> Option<Result<(Link, Welcome), Failure>> {
        let left = self.timeout.map_or(patience, |timeout| timeout.saturating_sub(self.started.elapsed()));
        match self.opened.recv_timeout(patience.min(left)) {
            Ok(opened) => Some(opened),
            Err(RecvTimeoutError::Timeout) => {
                self.timeout.filter(|timeout| self.started.elapsed() >= *timeout).map(|timeout| Err(no_answer(timeout)))
            }
            Err(RecvTimeoutError::Disconnected) => Some(Err(Failure::new("no thread for it", Remedy::Wait))),
        }
    }
}

fn no_answer(timeout: Duration) -> Failure {
    Failure::new(format!("no answer within {}", duration::show(timeout)), Remedy::Reach)
}

/// The driver's settings for the login. The handshake is done before the driver gets the stream, so
/// the driver is told that TLS comes first (direct negotiation).
fn config(target: &Target, server: &Server) -> Config {
    let mut config = Config::new();
    config
        .user(&target.user)
        .dbname(&target.database)
        .application_name(&target.application_name)
        .channel_binding(target.channel_binding)
        .ssl_mode(DriverMode::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    if let Some(password) = &server.password {
        config.password(&password.0);
    }
    if let Some(options) = &target.options {
        config.options(options);
    }
    config
}

/// The driver's TLS step: does nothing, because the handshake is already done.
struct Prepared;

impl TlsConnect<Guarded> for Prepared {
    type Stream = Guarded;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Guarded>>;

    fn connect(self, stream: Guarded) -> Self::Future {
        ready(Ok(stream))
    }
}

type Opened = (tokio_postgres::Client, Connection);

impl Attempt {
    fn run(self) -> Result<(Client, Welcome), Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::from(&error))?;
        let (client, connection) = runtime.block_on(self.first_address_that_answers())?;
        let mut client = Client { runtime, client, connection };
        match (unfit(&mut client, self.wanted)?, self.wanted) {
            (None, _) => Ok((client, Welcome::Fit)),
            (Some(_), Wanted::PreferStandby) => Ok((client, Welcome::SecondChoice)),
            (Some(why), _) => Err(Failure::new(why, Remedy::Fit)),
        }
    }

    async fn first_address_that_answers(&self) -> Result<Opened, Failure> {
        let addresses = match &self.place {
            Place::Socket(_) => return self.log_in(None, self.timeout).await,
            Place::Tcp { address: Some(address), .. } => vec![*address],
            Place::Tcp { name, address: None } => resolve(name, self.port)?,
        };
        // An address that swallows packets must leave time for the one behind it.
        let share = self.timeout.map(|timeout| timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1));
        let mut failures: Vec<Failure> = Vec::new();
        for address in addresses {
            match self.log_in(Some(address), share).await {
                Ok(opened) => return Ok(opened),
                Err(failure) if failure.is_the_hosts_own() => failures.push(failure),
                Err(failure) => return Err(failure),
            }
        }
        failures.dedup_by(|one, other| one.why == other.why);
        let why = failures.iter().map(|failure| failure.why.as_str()).collect::<Vec<_>>().join(", then ");
        let remedy = failures.iter().map(|failure| failure.remedy).max().unwrap_or(Remedy::Reach);
        Err(Failure::new(why, remedy))
    }

    /// Logs in with the encryption that the mode asks for, and as libpq does with the other one
    /// where it leaves the choice.
    async fn log_in(&self, address: Option<IpAddr>, share: Option<Duration>) -> Result<Opened, Failure> {
        let with = async |encryption| self.log_in_with(address, share, encryption).await;
        match self.mode {
            _ if self.handshake.is_none() => with(Encryption::Off).await,
            SslMode::Disable => with(Encryption::Off).await,
            SslMode::Allow => match with(Encryption::Off).await {
                Err(first) if first.is_refusal() => {
                    with(Encryption::Demanded).await.map_err(|second| telling(first, second))
                }
                tried => tried,
            },
            SslMode::Prefer => match with(Encryption::Preferred).await {
                Err(first) if first.is_refusal() || first.is_of_tls() => {
                    with(Encryption::Off).await.map_err(|second| telling(first, second))
                }
                tried => tried,
            },
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => with(Encryption::Demanded).await,
        }
    }

    async fn log_in_with(
        &self,
        address: Option<IpAddr>,
        share: Option<Duration>,
        encryption: Encryption,
    ) -> Result<Opened, Failure> {
        let socket = within(share, self.open(address)).await.map_err(|error| Failure::from(&error))?;
        let (socket, binding) = match &self.handshake {
            Some(handshake) => handshake.shake(socket, encryption).await?,
            None => (socket, None),
        };
        let stream = Guarded::new(socket, binding, self.methods.clone());
        self.config.connect_raw(stream, Prepared).await.map_err(|error| Failure::from(&error))
    }

    async fn open(&self, address: Option<IpAddr>) -> io::Result<Box<dyn Socket>> {
        match (&self.place, address) {
            (Place::Socket(directory), _) => {
                let path = Path::new(directory).join(format!(".s.PGSQL.{}", self.port));
                Ok(Box::new(UnixStream::connect(path).await?))
            }
            (Place::Tcp { .. }, None) => Err(io::ErrorKind::AddrNotAvailable.into()),
            (Place::Tcp { .. }, Some(address)) => {
                let socket = TcpStream::connect((address, self.port)).await?;
                socket.set_nodelay(true)?;
                keep_alive(&socket, &self.keepalive)?;
                Ok(Box::new(socket))
            }
        }
    }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        None => work.await,
    }
}

fn keep_alive(socket: &TcpStream, keepalive: &Keepalive) -> io::Result<()> {
    if let Some(timeout) = keepalive.user_timeout {
        sockopt::set_tcp_user_timeout(socket, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX))?;
    }
    if matches!(keepalive.probes, Probes::Off) {
        return Ok(());
    }
    sockopt::set_socket_keepalive(socket, true)?;
    if let Some(idle) = keepalive.idle {
        sockopt::set_tcp_keepidle(socket, idle)?;
    }
    if let Some(interval) = keepalive.interval {
        sockopt::set_tcp_keepintvl(socket, interval)?;
    }
    if let Some(count) = keepalive.count {
        sockopt::set_tcp_keepcnt(socket, count)?;
    }
    Ok(())
}

/// Of two failures, the one to be shown: what the server says counts more than that it had no TLS.
fn telling(first: Failure, second: Failure) -> Failure {
    if second.is_of_the_server() { second } else { first }
}

fn resolve(name: &str, port: u16) -> Result<Vec<IpAddr>, Failure> {
    let addresses = (name, port).to_socket_addrs();
    let addresses: Vec<IpAddr> = addresses.map(|found| found.map(|found| found.ip()).collect()).unwrap_or_default();
    if addresses.is_empty() {
        return Err(Failure::new("the host name can't be resolved", Remedy::Reach));
    }
    Ok(addresses)
}

/// Why a session is not the kind that is wanted; `None` where it is.
fn unfit(client: &mut Client, wanted: Wanted) -> Result<Option<&'static str>, Failure> {
    if wanted == Wanted::Any {
        return Ok(None);
    }
    let state = client.session_state().map_err(|error| Failure::from(&error))?;
    let state = state.ok_or_else(|| Failure::new(NOT_POSTGRESQL, Remedy::Reach))?;
    Ok(match wanted {
        Wanted::ReadWrite | Wanted::Primary if state.standby => Some("it is a standby"),
        Wanted::ReadWrite => state.read_only.then_some("default_transaction_read_only is on"),
        Wanted::ReadOnly => (!state.read_only).then_some("its sessions are not read-only"),
        Wanted::Standby | Wanted::PreferStandby => (!state.standby).then_some("it is not a standby"),
        Wanted::Any | Wanted::Primary => None,
    })
}
