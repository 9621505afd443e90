//! From what the user gave to an open connection: the address and libpq's other sources of
//! settings, TLS, several hosts, a limit of time. The only place that opens a connection. Knows no
//! table and no command.
//!
//! What libpq does counts, with these exceptions. Other programs' parameters in the URL are ignored.
//! `verify-ca` and `verify-full` without a root certificate use those that the system trusts. A
//! certificate that is named must be there. `prefer` never verifies, because what it falls back to
//! is no encryption at all. `connect_timeout` is 10 s where nothing is set, and covers the login.

mod attempt;
mod auth;
mod client;
mod conninfo;
mod failure;
mod files;
mod handshake;
mod keys;
mod link;
mod server;
mod settings;
mod stream;
mod target;
mod tls;
mod verify;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use rand::seq::SliceRandom;
use rustls::ClientConfig;

use self::attempt::{Turn, Welcome};
pub(crate) use self::client::{Client, Parameter};
use self::failure::{Failure, Remedy};
pub(crate) use self::link::Link;
use self::server::Server;
pub(crate) use self::stream::Refused;
use self::target::Order;
pub(crate) use self::target::Target;
use self::tls::SslMode;
use crate::exit::{Exit, Fault};

/// The hosts of a target that are tried in turn, until one has a fit session.
pub(crate) struct Connecting {
    target: Target,
    /// Those that were not tried yet.
    servers: vec::IntoIter<Server>,
    certificates: Option<Arc<ClientConfig>>,
    turn: Option<Turn>,
    second_choice: Option<Link>,
    failures: Vec<(Server, Failure)>,
    answered: Arc<dyn Fn() + Send + Sync>,
}

impl Target {
    /// Gets ready to connect; each time `answered` is called, or the time is over, it is to be asked
    /// what came of it. Each host gets at most `connect_timeout`.
    pub(crate) fn connect(self, answered: impl Fn() + Send + Sync + 'static) -> Connecting {
        let mut servers = self.servers.clone();
        if matches!(self.order, Order::Random) {
            servers.shuffle(&mut rand::rng());
        }
        Connecting {
            target: self,
            servers: servers.into_iter(),
            certificates: None,
            turn: None,
            second_choice: None,
            failures: Vec::new(),
            answered: Arc::new(answered),
        }
    }
}

impl Connecting {
    /// When it is to be asked at the latest, `None` where there is no limit of time.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.turn.as_ref().and_then(Turn::until)
    }

    /// The connection; waits for it.
    ///
    /// # Errors
    /// A `Fault` with one line that names every host tried and why it was not taken: `Unavailable`
    /// where another host or another time may do, `Configuration` where only a person can help.
    pub(crate) fn wait(mut self) -> anyhow::Result<Link> {
        loop {
            if let Some(outcome) = self.outcome(Duration::MAX) {
                return outcome;
            }
        }
    }

    /// What came of it so far, if that is known; the error is that of `wait`.
    pub(crate) fn poll(&mut self) -> Option<anyhow::Result<Link>> {
        self.outcome(Duration::ZERO)
    }

    /// What came of it, if that is known after `patience`, which each host gets.
    fn outcome(&mut self, patience: Duration) -> Option<anyhow::Result<Link>> {
        loop {
            if let Some(turn) = self.turn.take() {
                match turn.outcome(patience) {
                    None => {
                        self.turn = Some(turn);
                        return None;
                    }
                    Some(Ok((link, Welcome::Fit))) => return Some(Ok(link)),
                    Some(Ok((link, Welcome::SecondChoice))) => drop(self.second_choice.get_or_insert(link)),
                    Some(Err(failure)) => {
                        if !failure.is_the_hosts_own() {
                            self.servers = Vec::new().into_iter();
                        }
                        self.failures.push((turn.server, failure));
                    }
                }
            }
            let Some(server) = self.servers.next() else {
                return Some(self.second_choice.take().ok_or_else(|| refusal(&self.failures)));
            };
            self.turn = match self.start(server) {
                Ok(turn) => Some(turn),
                Err(error) => return Some(Err(error)),
            };
        }
    }

    fn start(&mut self, server: Server) -> anyhow::Result<Turn> {
        let encrypts = self.target.tls.mode != SslMode::Disable && !server.is_local();
        if encrypts && self.certificates.is_none() {
            self.certificates = Some(Arc::new(self.target.tls.certificates()?));
        }
        let answered = Arc::clone(&self.answered);
        let certificates = self.certificates.clone().filter(|_| encrypts);
        Ok(Turn::start(&self.target, server, certificates, move || answered()))
    }
}

/// One line for all hosts.
fn refusal(failures: &[(Server, Failure)]) -> anyhow::Error {
    let remedy = failures.iter().map(|(_, failure)| failure.remedy).max().unwrap_or(Remedy::Reach);
    let causes = match failures {
        [(server, failure)] => format!(" at {server}: {}", failure.why),
        _ => {
            let causes = failures.iter().map(|(server, failure)| format!("{server}: {}", failure.why));
            format!(": {}", causes.collect::<Vec<_>>().join(", "))
        }
    };
    Fault::new(remedy.exit(), format!("cannot connect to the database{causes}; {}", remedy.text())).into()
}

/// A setting that can't be used; `cause` ends in its remedy.
fn unusable(origin: &dyn Display, cause: &str) -> anyhow::Error {
    Fault::new(Exit::Configuration, format!("cannot use {origin}: {cause}")).into()
}
