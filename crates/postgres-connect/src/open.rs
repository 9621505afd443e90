//! Opens a connection. Tries the hosts of a target, their addresses, and the kinds of encryption
//! that `sslmode` allows, and checks the session. Each host has a time limit.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use rand::seq::SliceRandom;
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime;
use tokio_postgres::config::ChannelBinding;
use tokio_postgres::tls::TlsConnect;

use crate::client::{Client, Session, Wait};
use crate::error::Error;
use crate::stream::{LimitedStream, Socket};
use crate::target::{Server, SessionAttrs, Target};
use crate::tls::{Encryption, SslMode};

/// A [`Client`] whose connection a thread is opening. If it is dropped, the connection is closed.
#[derive(Debug)]
pub struct PendingClient {
    receiver: Receiver<Result<Client, Error>>,
    /// For errors: `db1:5432, db2:5432`.
    servers: String,
}

impl PendingClient {
    /// Returns the connection or the error; `None`: the thread is still connecting. Does not block.
    /// Returns the result only once.
    pub fn poll(&self) -> Option<Result<Client, Error>> {
        match self.receiver.try_recv() {
            Err(TryRecvError::Empty) => None,
            result => Some(result.unwrap_or_else(|_| Err(no_thread()))),
        }
    }

    /// Waits for the result of [`poll`](Self::poll).
    ///
    /// # Errors
    /// That of [`Target::connect`], or `wait` has ended before: then its kind is
    /// [`Timeout`](crate::ErrorKind::Timeout) or [`Interrupted`](crate::ErrorKind::Interrupted).
    pub fn wait(self, wait: &mut Wait<'_>) -> Result<Client, Error> {
        while let Some(slice) = wait.next_slice() {
            match self.receiver.recv_timeout(slice) {
                Err(RecvTimeoutError::Timeout) => {}
                result => return result.unwrap_or_else(|_| Err(no_thread())),
            }
        }
        Err(wait.error().at(self.servers).in_connection(" at"))
    }
}

impl Target {
    /// Connects, and blocks this thread until a host has accepted the login. Each host gets at most
    /// [`connect_timeout`](Self::connect_timeout), which its addresses share.
    ///
    /// A signal can't end this wait. It can end the wait of
    /// `target.connect_in_background(|| ()).wait(&mut wait)`.
    ///
    /// Call it only outside of asynchronous code: within a runtime of tokio, it panics.
    ///
    /// # Errors
    /// No host gave a connection. The error names every host and why it failed.
    pub fn connect(&self) -> Result<Client, Error> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::from(error).in_connection(":"))?;
        match runtime.block_on(self.open_first_fit()) {
            Ok(session) => Ok(Client::new(runtime, session, self.to_string())),
            Err(error) => {
                // Do not wait for a lookup of a host name that may still run, as a plain drop
                // would.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Connects in asynchronous code, and returns the driver's client. A task on the current
    /// runtime of tokio, which needs its I/O and time drivers, moves the data of the connection
    /// until the client is dropped. If a server violates the limits, the client is closed.
    ///
    /// ```no_run
    /// # async fn version() -> Result<String, Box<dyn std::error::Error>> {
    /// use postgres_connect::Target;
    ///
    /// let client = Target::from_env()?.connect_async().await?;
    /// let row = client.query_one("SHOW server_version", &[]).await?;
    /// # Ok(row.get(0)) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async(&self) -> Result<tokio_postgres::Client, Error> {
        self.open_first_fit().await.map(Session::into_client)
    }

    /// Starts a thread that [connects](Self::connect), and calls `finished` when
    /// [`poll`](PendingClient::poll) has the result: to wake an event loop, or `|| ()`.
    pub fn connect_in_background(self, finished: impl FnOnce() + Send + 'static) -> PendingClient {
        let (sender, receiver) = mpsc::channel();
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let work = move || {
            // If the caller has dropped the receiver, the connection is closed here.
            let _ = sender.send(self.connect());
            finished();
        };
        // Ignore an error here: if no thread starts, the channel closes, and `poll` reports that.
        let _ = thread::Builder::new().name("database".to_owned()).spawn(work);
        PendingClient { receiver, servers: servers.join(", ") }
    }

    /// Opens the first session that has the wanted attributes.
    async fn open_first_fit(&self) -> Result<Session, Error> {
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        if self.shuffles_hosts {
            servers.shuffle(&mut rand::rng());
        }
        let (mut tls, mut second_choice, mut errors) = (None, None, Vec::new());
        // With prefer-standby, a session at a primary is the second choice.
        let takes_second_choice = self.session_attrs == SessionAttrs::PreferStandby;
        for server in servers {
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
                Ok((_, Some(mismatch))) => Error::of_session(mismatch),
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
            error.expect("a target has a host").in_connection(preposition)
        })
    }

    /// Opens a session at the first address that gives one. Also returns why it does not match
    /// `target_session_attrs`, if it does not.
    async fn open_server(
        &self,
        server: &Server,
        tls: Option<&ClientConfig>,
    ) -> Result<(Session, Option<&'static str>), Error> {
        let addresses = if server.is_socket() || server.address.is_some() {
            vec![server.address]
        } else {
            let found = lookup_host((server.name.as_str(), server.port)).await;
            found.map(|found| found.map(|one| Some(one.ip())).collect()).unwrap_or_default()
        };
        // Divide the time among the addresses: one that drops packets must leave time for the next.
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let limit = self.timeout.map(|timeout| timeout / count.max(1));
        let mut errors: Vec<Error> = Vec::new();
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
        Err(error.unwrap_or_else(Error::of_unknown_host))
    }

    /// Returns why the session does not have the wanted attributes, if it does not.
    async fn mismatch(&self, session: &mut Session) -> Result<Option<&'static str>, Error> {
        use SessionAttrs::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
        if self.session_attrs == Any {
            return Ok(None);
        }
        let state = session.state().await?.ok_or_else(Error::not_postgresql)?;
        Ok(match self.session_attrs {
            ReadWrite | Primary if state.is_standby => Some("it is a standby"),
            ReadWrite if state.is_read_only => Some("default_transaction_read_only is on"),
            ReadOnly if !state.is_read_only => Some("its sessions can write"),
            Standby | PreferStandby if !state.is_standby => Some("it is not a standby"),
            Any | ReadWrite | Primary | ReadOnly | Standby | PreferStandby => None,
        })
    }
}

/// Returns the major version of a server; `None`: the text is not a version of PostgreSQL.
fn major(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The error if the thread of a background connection sends no result.
fn no_thread() -> Error {
    Error::of_resources("its thread cannot start or has failed").in_connection(":")
}

/// Fails if `work` takes longer than `limit`.
async fn within<T, E>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Error>
where
    Error: From<E>,
{
    let Some(limit) = limit else { return Ok(work.await?) };
    let done = tokio::time::timeout(limit, work).await;
    done.map_or_else(|_| Err(Error::of_silence(limit)), |result| Ok(result?))
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
    async fn log_in(&self) -> Result<Session, Error> {
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

    /// Opens the socket, encrypts it as asked, logs in, and checks the server's version.
    async fn log_in_with(&self, encryption: Encryption) -> Result<Session, Error> {
        let Target { config, tls, forbidden_methods, limits, program, .. } = self.target;
        let mut socket = within(self.limit, self.open_socket()).await?;
        let mut binding = None;
        if let Some(certificates) = self.tls {
            let name = &self.server.name;
            (socket, binding) = tls.handshake(certificates, socket, name, encryption).await?;
        }
        let requires_binding = config.get_channel_binding() == ChannelBinding::Require;
        if let Some(Err(algorithm)) = binding.as_ref().filter(|_| requires_binding) {
            return Err(Error::of_binding(algorithm, program));
        }
        let binding = binding.and_then(Result::ok);
        let stream = LimitedStream::new(socket, binding, forbidden_methods.clone(), *limits);
        let mut config = config.clone();
        if let Some(password) = &self.server.password {
            config.password(password);
        }
        let (client, connection) = config.connect_raw(stream, HandshakeDone).await?;
        if let Some(version) = connection.parameter("server_version") {
            if version.ends_with("/bouncer") {
                return Err(Error::of_console());
            }
            let oldest = self.target.oldest_server;
            if let (Some(oldest), Some(major)) = (oldest, major(version))
                && major < oldest
            {
                return Err(Error::of_version(version, program, oldest));
            }
        }
        Ok(Session::new(client, connection, self.target.on_message.clone()))
    }

    /// Opens the Unix socket or the TCP connection.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_can_be_opened_in_a_task_of_any_thread() {
        fn assert_send(_: impl Send) {}
        let target = Target::builder().address("user=ana", "the URL").variables(&|_| None);
        assert_send(target.resolve().expect("a target").connect_async());
    }

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major("14.5 (Debian 14.5-1)"), Some(14));
        assert_eq!(major("19devel"), Some(19));
        assert_eq!(major("odd"), None);
    }
}
