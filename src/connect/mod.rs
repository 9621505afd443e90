//! From the user's settings to an open connection: the address and libpq's other sources of
//! settings, TLS, several hosts, time limits. Only this module opens connections. It knows no table
//! and no command.
//!
//! It behaves like libpq, with these exceptions:
//! - It ignores parameters of other programs in the URL.
//! - `verify-ca` and `verify-full` without a root certificate use those that the system trusts.
//! - A certificate file that is set must exist.
//! - `prefer` never verifies, because its fallback has no encryption at all.
//! - `connect_timeout` is 10 s by default, and covers the login.

mod client;
mod conninfo;
mod error;
mod files;
mod keepalive;
mod keys;
mod open;
mod settings;
mod stream;
mod target;
mod tls;
mod verify;

use std::fmt::Display;

pub(crate) use self::client::{Client, ConnectionThread, Parameter};
pub(crate) use self::open::PendingConnection;
pub(crate) use self::stream::Rejection;
pub(crate) use self::target::Target;
use crate::exit::{Exit, Fault};

/// Returns the name of this process's user, if `/etc/passwd` has it.
pub(crate) fn account_name() -> Option<String> {
    files::account().map(|(name, _)| name)
}

/// An error about a setting; `cause` ends in its remedy.
fn setting_fault(origin: impl Display, cause: impl Display) -> anyhow::Error {
    Fault::new(Exit::Configuration, format!("cannot use {origin}: {cause}")).into()
}
