//! Opens a connection: tries the hosts of a target, their addresses and the kinds of encryption
//! that `sslmode` allows, then checks the session. Each host has a time limit.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use rand::seq::SliceRandom;
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime;
use tokio_postgres::tls::TlsConnect;

use super::client::{AsyncClient, Client, ConnectionThread, SessionState};
use super::error::ConnectError;
use super::stream::{LimitedStream, Socket};
use super::target::{Server, SessionAttrs, Target};
use super::tls::{Encryption, SslMode};
use crate::text::duration;

/// A connection that a thread is opening.
pub(crate) struct PendingConnection(mpsc::Receiver<anyhow::Result<ConnectionThread>>);

impl PendingConnection {
    /// Returns the connection or the error, if there is one yet. The error names every host and
    /// why it failed. `Unavailable`: another host or time may help. `Configuration`: only a person
    /// can help.
    pub(crate) fn poll(&self) -> Option<anyhow::Result<ConnectionThread>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            result => Some(result.unwrap_or_else(|_| Err(no_thread()))),
        }
    }

    /// Waits for the result of `poll`.
    pub(crate) fn wait(self) -> anyhow::Result<ConnectionThread> {
        self.0.recv().unwrap_or_else(|_| Err(no_thread()))
    }
}

impl Target {
    /// Starts a thread that connects, and calls `finished` when `poll` has the result. Each host
    /// gets at most `connect_timeout`.
    pub(crate) fn connect(self, finished: impl FnOnce() + Send + 'static) -> PendingConnection {
        let (sender, receiver) = mpsc::channel();
        let publish = move |result| {
            // If the caller has left, the handle in `result` is dropped, and the thread ends.
            let _ = sender.send(result);
            finished();
        };
        let work = move || match self.open() {
            Ok(client) => ConnectionThread::serve(client, |thread| publish(Ok(thread))),
            Err(error) => publish(Err(error)),
        };
        // If the system starts no thread, the channel closes, which `poll` reports.
        let _ = thread::Builder::new().name("database".to_owned()).spawn(work);
        PendingConnection(receiver)
    }

    fn open(mut self) -> anyhow::Result<Client> {
        if self.shuffles_hosts {
            self.servers.shuffle(&mut rand::rng());
        }
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ConnectError::from(error).into_fault(":"))?;
        match runtime.block_on(self.open_first_fit()) {
            Ok(client) => Ok(Client { runtime, client }),
            Err(error) => {
                // A lookup of a host name may still run; a plain drop would wait for it.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Opens the first session that has the wanted attributes.
    async fn open_first_fit(&self) -> anyhow::Result<AsyncClient> {
        let (mut tls, mut second_choice, mut errors) = (None, None, Vec::new());
        let takes_second_choice = self.session_attrs == SessionAttrs::PreferStandby;
        for server in &self.servers {
            let encrypts = self.tls.mode != SslMode::Disable && !server.is_socket();
            if encrypts && tls.is_none() {
                tls = Some(self.tls.client_config()?);
            }
            let tls = tls.as_ref().filter(|_| encrypts);
            let attempt =
                HostAttempt { target: self, server, tls, address: None, limit: self.timeout };
            let opened = within(self.timeout, attempt.open()).await.unwrap_or_else(|limit| {
                let cause = format!("no answer within {}", duration::show(limit));
                Err(ConnectError::of_network(cause))
            });
            let error = match opened {
                Ok((client, None)) => {
                    if let Some(other) = second_choice {
                        let _ = within(self.timeout, AsyncClient::close(other)).await;
                    }
                    return Ok(client);
                }
                Ok((client, Some(_))) if takes_second_choice && second_choice.is_none() => {
                    second_choice = Some(client);
                    continue;
                }
                Ok((client, Some(mismatch))) => {
                    let _ = within(self.timeout, client.close()).await;
                    ConnectError::of_session(mismatch)
                }
                Err(error) => error,
            };
            let may_differ = error.may_differ_elsewhere();
            errors.push(error.at(server));
            if !may_differ {
                break;
            }
        }
        second_choice.ok_or_else(|| {
            let preposition = if errors.len() == 1 { " at" } else { ":" };
            let error = errors.into_iter().reduce(|one, other| one.and(other, ", "));
            error
                .unwrap_or_else(|| ConnectError::of_network("no host is set"))
                .into_fault(preposition)
        })
    }
}

fn no_thread() -> anyhow::Error {
    ConnectError::of_resources("its thread cannot start or has failed").into_fault(":")
}

/// Returns the limit if `work` takes longer.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Duration> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| limit),
        None => Ok(work.await),
    }
}

/// An attempt to connect to one host, or to one of its addresses.
#[derive(Clone, Copy)]
struct HostAttempt<'a> {
    target: &'a Target,
    server: &'a Server,
    /// `None`: nothing is encrypted.
    tls: Option<&'a ClientConfig>,
    /// `None` for a Unix socket.
    address: Option<IpAddr>,
    /// The time limit for opening the socket.
    limit: Option<Duration>,
}

impl HostAttempt<'_> {
    /// Opens a session. Also returns why it does not match `target_session_attrs`, if it does not.
    async fn open(&self) -> Result<(AsyncClient, Option<&'static str>), ConnectError> {
        let mut client = self.open_first_address().await?;
        let wanted = self.target.session_attrs;
        if wanted == SessionAttrs::Any {
            return Ok((client, None));
        }
        let state = client.session_state().await?;
        let state = state.ok_or_else(ConnectError::not_postgresql)?;
        Ok((client, mismatch(wanted, state)))
    }

    async fn open_first_address(&self) -> Result<AsyncClient, ConnectError> {
        let Server { name, address, port, .. } = self.server;
        let addresses = if self.server.is_socket() || address.is_some() {
            vec![*address]
        } else {
            let found = lookup_host((name.as_str(), *port)).await;
            found.map(|found| found.map(|one| Some(one.ip())).collect()).unwrap_or_default()
        };
        // Divide the time, so that an address that drops packets leaves time for the next one.
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let limit = self.target.timeout.map(|timeout| timeout / count.max(1));
        let mut errors: Vec<ConnectError> = Vec::new();
        for address in addresses {
            match (Self { address, limit, ..*self }).log_in().await {
                Err(error) if error.may_differ_elsewhere() => errors.push(error),
                result => return result,
            }
        }
        errors.dedup_by(|one, other| one.cause == other.cause);
        let error = errors.into_iter().reduce(|one, other| one.and(other, ", then "));
        Err(error.unwrap_or_else(|| ConnectError::of_network("cannot resolve the host name")))
    }

    /// Logs in with the encryption that `sslmode` prefers, then with the other kind if `sslmode`
    /// allows it.
    async fn log_in(&self) -> Result<AsyncClient, ConnectError> {
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

    async fn log_in_with(&self, encryption: Encryption) -> Result<AsyncClient, ConnectError> {
        let Target { config, tls, forbidden_methods, .. } = self.target;
        let socket = within(self.limit, self.open_socket()).await;
        let mut socket = socket.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let mut binding = None;
        if let Some(certificates) = self.tls {
            let name = &self.server.name;
            (socket, binding) = tls.handshake(certificates, socket, name, encryption).await?;
        }
        let stream = LimitedStream::new(socket, binding, forbidden_methods.clone());
        let mut config = config.clone();
        if let Some(password) = &self.server.password {
            config.password(password);
        }
        let (client, connection) = config.connect_raw(stream, HandshakeDone).await?;
        Ok(AsyncClient { client, connection })
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

/// Returns why a session does not have the wanted attributes.
fn mismatch(wanted: SessionAttrs, state: SessionState) -> Option<&'static str> {
    use SessionAttrs::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
    match wanted {
        ReadWrite | Primary if state.standby => Some("it is a standby"),
        ReadWrite if state.read_only => Some("default_transaction_read_only is on"),
        ReadOnly if !state.read_only => Some("its sessions can write"),
        Standby | PreferStandby if !state.standby => Some("it is not a standby"),
        Any | ReadWrite | Primary | ReadOnly | Standby | PreferStandby => None,
    }
}
