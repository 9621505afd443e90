//! One host's turn: its addresses, the forms of encryption that the mode allows, the login and the
//! kind of session, all within one limit of time.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use postgres::config::SslMode as DriverMode;
use postgres::error::DbError;
use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{Failure, Remedy, is_refusal, tls_error};
use super::link::Link;
use super::server::{Place, Server};
use super::target::{Probes, Target, Wanted};
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
    mode: SslMode,
    /// `None` where nothing is to be encrypted.
    connector: Option<MakeRustlsConnect>,
    wanted: Wanted,
    timeout: Option<Duration>,
}

impl Turn {
    /// Starts to try `server`, and calls `answered` when something has come of it.
    pub(super) fn start(
        target: &Target,
        server: Server,
        connector: Option<MakeRustlsConnect>,
        answered: impl FnOnce() + Send + 'static,
    ) -> Self {
        let attempt = Attempt {
            config: config(target, &server),
            place: server.place.clone(),
            port: server.port,
            mode: target.tls.mode,
            connector,
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

fn config(target: &Target, server: &Server) -> Config {
    let mut config = Config::new();
    match &server.place {
        Place::Socket(directory) => config.host_path(directory),
        Place::Tcp { name, .. } => config.host(name),
    };
    config
        .port(server.port)
        .user(&target.user)
        .dbname(&target.database)
        .application_name(&target.application_name)
        .channel_binding(target.channel_binding)
        .ssl_negotiation(target.tls.negotiation)
        .notice_callback(|notice: DbError| debug!("database: {}: {}", notice.severity(), notice.message()));
    if let Some(password) = &server.password {
        config.password(&password.0);
    }
    if let Some(options) = &target.options {
        config.options(options);
    }
    let keepalive = &target.keepalive;
    config.keepalives(matches!(keepalive.probes, Probes::On));
    if let Some(idle) = keepalive.idle {
        config.keepalives_idle(idle);
    }
    if let Some(interval) = keepalive.interval {
        config.keepalives_interval(interval);
    }
    if let Some(count) = keepalive.count {
        config.keepalives_retries(count);
    }
    if let Some(timeout) = keepalive.user_timeout {
        config.tcp_user_timeout(timeout);
    }
    config
}

impl Attempt {
    fn run(self) -> Result<(Client, Welcome), Failure> {
        has_descriptors().map_err(|error| Failure::from(&error))?;
        let mut client = self.first_address_that_answers()?;
        match (session_state(&mut client, self.wanted)?, self.wanted) {
            (None, _) => Ok((client, Welcome::Fit)),
            (Some(_), Wanted::PreferStandby) => Ok((client, Welcome::SecondChoice)),
            (Some(why), _) => Err(Failure::new(why, Remedy::Fit)),
        }
    }

    fn first_address_that_answers(&self) -> Result<Client, Failure> {
        let addresses = match &self.place {
            Place::Socket(_) => return self.log_in(&self.config),
            Place::Tcp { address: Some(address), .. } => vec![*address],
            Place::Tcp { name, address: None } => resolve(name, self.port)?,
        };
        // An address that swallows packets must leave time for the one behind it.
        let share = self.timeout.map(|timeout| timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1));
        let mut failures: Vec<Failure> = Vec::new();
        for address in addresses {
            let mut config = self.config.clone();
            config.hostaddr(address);
            if let Some(share) = share {
                config.connect_timeout(share);
            }
            match self.log_in(&config) {
                Ok(client) => return Ok(client),
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
    fn log_in(&self, config: &Config) -> Result<Client, Failure> {
        let Some(connector) = &self.connector else {
            return plain(config).map_err(|error| Failure::from(&error));
        };
        let encrypted = |mode| config.clone().ssl_mode(mode).connect(connector.clone());
        let tried = match self.mode {
            SslMode::Disable => plain(config),
            SslMode::Allow => plain(config).or_else(|first| {
                if is_refusal(&first) {
                    encrypted(DriverMode::Require).map_err(|second| telling(first, second))
                } else {
                    Err(first)
                }
            }),
            SslMode::Prefer => encrypted(DriverMode::Prefer).or_else(|first| {
                if is_refusal(&first) || tls_error(&first).is_some() {
                    plain(config).map_err(|second| telling(first, second))
                } else {
                    Err(first)
                }
            }),
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => encrypted(DriverMode::Require),
        };
        tried.map_err(|error| Failure::from(&error))
    }
}

/// The driver opens three descriptors before it connects with a fourth, and panics where one of the three is refused:
/// so as many are opened here first.
fn has_descriptors() -> io::Result<()> {
    let _four = (UnixStream::pair()?, UnixStream::pair()?);
    Ok(())
}

fn plain(config: &Config) -> Result<Client, postgres::Error> {
    config.clone().ssl_mode(DriverMode::Disable).connect(NoTls)
}

/// Of two failures, the one to be shown: what the server says counts more than that it had no TLS.
fn telling(first: postgres::Error, second: postgres::Error) -> postgres::Error {
    if second.as_db_error().is_some() && !is_refusal(&second) { second } else { first }
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
fn session_state(client: &mut Client, wanted: Wanted) -> Result<Option<&'static str>, Failure> {
    if wanted == Wanted::Any {
        return Ok(None);
    }
    let rows = client
        .simple_query(include_str!("../../sql/queries/session_state.sql"))
        .map_err(|error| Failure::from(&error))?;
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let is = |column: &str| row.and_then(|row| row.get(column)) == Some("t");
    Ok(match wanted {
        Wanted::ReadWrite => is("read_only").then_some("its sessions are read-only"),
        Wanted::ReadOnly => (!is("read_only")).then_some("its sessions are not read-only"),
        Wanted::Primary => is("standby").then_some("it is a standby"),
        Wanted::Standby | Wanted::PreferStandby => (!is("standby")).then_some("it is not a standby"),
        Wanted::Any => None,
    })
}
