//! Opens a connection: tries the hosts of a target, their addresses and the kinds of encryption
//! that `sslmode` allows, then checks the session. Each host has a time limit.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use rand::seq::SliceRandom;
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime;
use tokio_postgres::config::ChannelBinding;
use tokio_postgres::tls::TlsConnect;

use super::client::{Client, Session, Wait};
use super::error::{ConnectError, OLDEST_SERVER};
use super::stream::{LimitedStream, Socket};
use super::target::{Server, SessionAttrs, Target};
use super::tls::{Encryption, SslMode};
use crate::text::duration::CENTURY;

/// The longest wait for the server after an interruption.
pub(crate) const INTERRUPTED_LIMIT: Duration = Duration::from_secs(1);
/// A connection that a thread is opening.
pub(crate) struct PendingConnection(Receiver<anyhow::Result<Client>>);

impl PendingConnection {
    /// Returns the connection or the error, if there is one yet. The error names every host and
    /// why it failed. `Unavailable`: another host or time may help. `Configuration`: only a person
    /// can help.
    pub(crate) fn poll(&self) -> Option<anyhow::Result<Client>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            result => Some(result.unwrap_or_else(|_| Err(no_thread()))),
        }
    }

    /// Waits for the result of `poll`; after an interruption, for a second at most.
    pub(crate) fn wait(self, interrupted: &AtomicBool) -> anyhow::Result<Client> {
        let mut wait = Wait::new(CENTURY, interrupted, INTERRUPTED_LIMIT);
        while let Some(part) = wait.part() {
            match self.0.recv_timeout(part) {
                Err(RecvTimeoutError::Timeout) => {}
                result => return result.unwrap_or_else(|_| Err(no_thread())),
            }
        }
        Err(ConnectError::of_silence(INTERRUPTED_LIMIT).into_fault(":"))
    }
}

impl Target {
    /// Starts a thread that connects, and calls `finished` when `poll` has the result. Each host
    /// gets at most `connect_timeout`.
    pub(crate) fn connect(self, finished: impl FnOnce() + Send + 'static) -> PendingConnection {
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            // If the caller has left, this closes the connection.
            let _ = sender.send(self.open());
            finished();
        };
        // If the system starts no thread, the channel closes, which `poll` reports.
        let _ = thread::Builder::new().name("database".to_owned()).spawn(work);
        PendingConnection(receiver)
    }

    fn open(mut self) -> anyhow::Result<Client> {
        let target = self.to_string();
        if self.shuffles_hosts {
            self.servers.shuffle(&mut rand::rng());
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ConnectError::from(error).into_fault(":"))?;
        match runtime.block_on(self.open_first_fit()) {
            Ok(session) => Ok(Client::new(runtime, session, target)),
            Err(error) => {
                // A lookup of a host name may still run; a plain drop would wait for it.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Opens the first session that has the wanted attributes.
    async fn open_first_fit(&self) -> anyhow::Result<Session> {
        let (mut tls, mut second_choice, mut errors) = (None, None, Vec::new());
        let takes_second_choice = self.session_attrs == SessionAttrs::PreferStandby;
        for server in &self.servers {
            let encrypts = self.tls.mode != SslMode::Disable && !server.is_socket();
            if encrypts && tls.is_none() {
                tls = Some(self.tls.client_config()?);
            }
            let tls = tls.as_ref().filter(|_| encrypts);
            let error = match within(self.timeout, self.open_server(server, tls)).await {
                Ok((session, None)) => return Ok(session),
                Ok((session, Some(_))) if takes_second_choice && second_choice.is_none() => {
                    second_choice = Some(session);
                    continue;
                }
                Ok((_, Some(mismatch))) => ConnectError::of_session(mismatch),
                Err(error) => error,
            };
            let error = if self.origins.is_empty() { error.of_defaults() } else { error };
            let may_differ = error.may_differ_elsewhere();
            errors.push(error.at(server));
            if !may_differ {
                break;
            }
        }
        second_choice.ok_or_else(|| {
            let preposition = if errors.len() == 1 { " at" } else { ":" };
            let error = errors.into_iter().reduce(|one, other| one.and(other, ", "));
            error.expect("a target has a host").into_fault(preposition)
        })
    }

    /// Opens a session at the first address that gives one. Also returns why it does not match
    /// `target_session_attrs`, if it does not.
    async fn open_server(
        &self,
        server: &Server,
        tls: Option<&ClientConfig>,
    ) -> Result<(Session, Option<&'static str>), ConnectError> {
        let addresses = if server.is_socket() || server.address.is_some() {
            vec![server.address]
        } else {
            let found = lookup_host((server.name.as_str(), server.port)).await;
            found.map(|found| found.map(|one| Some(one.ip())).collect()).unwrap_or_default()
        };
        // Divide the time, so that an address that drops packets leaves time for the next one.
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let limit = self.timeout.map(|timeout| timeout / count.max(1));
        let mut errors: Vec<ConnectError> = Vec::new();
        for address in addresses {
            match (Login { target: self, server, tls, address, limit }).log_in().await {
                Ok(mut session) => {
                    let mismatch = self.mismatch(&mut session).await?;
                    return Ok((session, mismatch));
                }
                Err(error) if error.may_differ_elsewhere() => errors.push(error),
                Err(error) => return Err(error),
            }
        }
        errors.dedup_by(|one, other| one.cause == other.cause);
        let error = errors.into_iter().reduce(|one, other| one.and(other, ", then "));
        Err(error.unwrap_or_else(ConnectError::of_unknown_host))
    }

    /// Returns why the session does not have the wanted attributes, if it does not.
    async fn mismatch(&self, session: &mut Session) -> Result<Option<&'static str>, ConnectError> {
        use SessionAttrs::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        if self.session_attrs == Any {
            return Ok(None);
        }
        let state = session.state().await?.ok_or_else(ConnectError::not_postgresql)?;
        Ok(match self.session_attrs {
            ReadWrite | Primary if state.standby => Some("it is a standby"),
            ReadWrite if state.read_only => Some("default_transaction_read_only is on"),
            ReadOnly if !state.read_only => Some("its sessions can write"),
            Standby | PreferStandby if !state.standby => Some("it is not a standby"),
            Any | ReadWrite | Primary | ReadOnly | Standby | PreferStandby => None,
        })
    }
}

/// Returns whether jobctl's statements need a newer server.
fn is_old(version: &str) -> bool {
    let major = version.split(|c: char| !c.is_ascii_digit()).next();
    major.and_then(|major| major.parse().ok()).is_some_and(|major: u32| major < OLDEST_SERVER)
}

fn no_thread() -> anyhow::Error {
    ConnectError::of_resources("its thread cannot start or has failed").into_fault(":")
}

/// Fails if `work` takes longer than `limit`.
async fn within<T, E>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ConnectError>
where
    ConnectError: From<E>,
{
    let Some(limit) = limit else { return Ok(work.await?) };
    let done = tokio::time::timeout(limit, work).await;
    done.map_or_else(|_| Err(ConnectError::of_silence(limit)), |result| Ok(result?))
}

/// A login at one address of a host.
struct Login<'a> {
    target: &'a Target,
    server: &'a Server,
    /// `None`: nothing is encrypted.
    tls: Option<&'a ClientConfig>,
    /// `None` for a Unix socket.
    address: Option<IpAddr>,
    /// The time limit for opening the socket.
    limit: Option<Duration>,
}

impl Login<'_> {
    /// Logs in with the encryption that `sslmode` prefers, then with the other kind if `sslmode`
    /// allows it.
    async fn log_in(&self) -> Result<Session, ConnectError> {
        let (first, fallback) = match self.target.tls.mode {
            _ if self.tls.is_none() => (Encryption::Off, None),
            SslMode::Allow => (Encryption::Off, Some(Encryption::Required)),
            SslMode::Prefer => (Encryption::Preferred, Some(Encryption::Off)),
            _ => (Encryption::Required, None),
        };
        match (self.log_in_with(first).await, fallback) {
            (Err(error), Some(fallback)) if error.may_depend_on_encryption() => {
                // Return the second error only if the server's rules allowed the login before it
                // failed. Otherwise the first error is more helpful.
                let result = self.log_in_with(fallback).await;
                result.map_err(|second| if second.is_past_the_rules() { second } else { error })
            }
            (result, _) => result,
        }
    }

    async fn log_in_with(&self, encryption: Encryption) -> Result<Session, ConnectError> {
        let Target { config, tls, forbidden_methods, .. } = self.target;
        let mut socket = within(self.limit, self.open_socket()).await?;
        let mut binding = None;
        if let Some(certificates) = self.tls {
            let name = &self.server.name;
            (socket, binding) = tls.handshake(certificates, socket, name, encryption).await?;
        }
        let requires_binding = config.get_channel_binding() == ChannelBinding::Require;
        if let Some(Err(algorithm)) = binding.as_ref().filter(|_| requires_binding) {
            return Err(ConnectError::of_binding(algorithm));
        }
        let binding = binding.and_then(Result::ok);
        let stream = LimitedStream::new(socket, binding, forbidden_methods.clone());
        let mut config = config.clone();
        if let Some(password) = &self.server.password {
            config.password(password);
        }
        let (client, connection) = config.connect_raw(stream, HandshakeDone).await?;
        match connection.parameter("server_version") {
            Some(version) if version.ends_with("/bouncer") => Err(ConnectError::of_console()),
            Some(version) if is_old(version) => Err(ConnectError::of_version(version)),
            _ => Ok(Session::new(client, connection)),
        }
    }

    async fn open_socket(&self) -> io::Result<Box<dyn Socket>> {
        let port = self.server.port;
        let Some(address) = self.address else {
            let path = Path::new(&self.server.name).join(format!(".s.PGSQL.{port}"));
            return Ok(Box::new(UnixStream::connect(path).await?));
        };
        let socket = TcpStream::connect((address, port)).await?;
        socket.set_nodelay(true)?;
        self.target.keepalive.apply(&socket)?;
        Ok(Box::new(socket))
    }
}

/// The driver's TLS step, which does nothing: the handshake is already done.
struct HandshakeDone;

impl TlsConnect<LimitedStream> for HandshakeDone {
    type Stream = LimitedStream;
    type Error = io::Error;
    type Future = Ready<io::Result<LimitedStream>>;

    fn connect(self, stream: LimitedStream) -> Self::Future {
        ready(Ok(stream))
    }
}
