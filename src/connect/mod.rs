//! From what the user gave to an open `postgres::Client`: the address and libpq's other sources of
//! settings, TLS, several hosts, a limit of time. The only place that opens a connection. Knows no
//! table and no command.
//!
//! What libpq does counts, with these exceptions. Other programs' parameters in the URL are ignored.
//! `verify-ca` and `verify-full` without a root certificate use those that the system trusts. A
//! certificate that is named must be there. `prefer` never verifies, because what it falls back to
//! is no encryption at all. `connect_timeout` is 10 s where nothing is set, and covers the login.

mod attempt;
mod conninfo;
mod failure;
mod files;
mod keys;
mod server;
mod settings;
mod target;
mod tls;
mod verify;

use std::fmt::Display;

use postgres::Client;
use rand::seq::SliceRandom;

use self::attempt::Opened;
use self::failure::{Failure, Remedy};
use self::server::Server;
use self::target::Order;
pub(crate) use self::target::Target;
use self::tls::SslMode;
use crate::exit::{Exit, Fault};

impl Target {
    /// Tries the hosts in turn and returns the first fit session. Blocks, each host for at most
    /// `connect_timeout`.
    ///
    /// # Errors
    /// A `Fault` with one line that names every host tried and why it was not taken: `Unavailable`
    /// where another host or another time may do, `Configuration` where only a person can help.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        if matches!(self.order, Order::Random) {
            servers.shuffle(&mut rand::rng());
        }
        let mut connector = None;
        let mut second_choice = None;
        let mut failures = Vec::new();
        for server in servers {
            let encrypts = self.tls.mode != SslMode::Disable && !server.is_local();
            if encrypts && connector.is_none() {
                connector = Some(self.tls.connector()?);
            }
            match attempt::open(self, server, connector.clone().filter(|_| encrypts)) {
                Ok(Opened::Fit(client)) => return Ok(client),
                Ok(Opened::SecondChoice(client)) => {
                    second_choice.get_or_insert(client);
                }
                Err(failure) => {
                    let others_may_do = failure.is_the_hosts_own();
                    failures.push((server, failure));
                    if !others_may_do {
                        break;
                    }
                }
            }
        }
        second_choice.ok_or_else(|| refusal(&failures))
    }
}

/// One line for all hosts.
fn refusal(failures: &[(&Server, Failure)]) -> anyhow::Error {
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
