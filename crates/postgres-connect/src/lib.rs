//! Connects to PostgreSQL as libpq does: its settings, several hosts, time limits and TLS, over
//! [`tokio_postgres`].
//!
//! ```no_run
//! use std::time::Duration;
//! use postgres_connect::{Target, Wait};
//!
//! let target = Target::from_address("postgres://ana@db1,db2/shop?target_session_attrs=primary")?;
//! let mut client = target.connect()?;
//! let mut wait = Wait::new(Duration::from_secs(5));
//! let row = client.request(&mut wait, async |client| {
//!     client.query_typed_one("SHOW server_version", &[]).await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Target`] says where the database is. [`Target::from_env`], [`Target::from_address`] and
//! [`Target::builder`] make one, as libpq would from the same settings: the address, the service
//! file, the `PG*` variables, the pass file, and defaults. There are three ways to connect:
//!
//! - [`Target::connect`] blocks, and returns a [`Client`] whose calls end at the latest after a
//!   [`Wait`], which a signal can shorten.
//! - [`Target::connect_async`] is for asynchronous code, and returns the client of the driver.
//! - [`Target::connect_in_background`] is for an event loop of threads.
//!
//! # Errors
//!
//! An [`Error`] is a sentence for a person, with a remedy. Its [`ErrorKind`] says what failed, and
//! whether trying again may help:
//!
//! ```
//! use postgres_connect::{ErrorKind, Target};
//!
//! let target = Target::from_address("host=127.0.0.1 port=1 user=ana connect_timeout=2")?;
//! let error = target.connect().unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Network);
//! assert!(error.kind().is_temporary());
//! assert_eq!(
//!     error.to_string(),
//!     "cannot connect to the database at 127.0.0.1:1: connection refused; is PostgreSQL running \
//!      there? correct the URL or the PG* variables"
//! );
//! # Ok::<(), postgres_connect::Error>(())
//! ```
//!
//! Retry only a few times, or with growing pauses: a misspelt host counts as temporary, too.
//!
//! Errors of statements are those of the driver: `as_db_error()` has what the server said.
//!
//! # Log
//!
//! Warnings go to the crate `log`, such as one about a pass file that is ignored because other
//! users can read it.
//!
//! # Hosts
//!
//! The hosts are tried in turn, and of each host its addresses. The next host is tried only if the
//! error [is temporary](ErrorKind::is_temporary): a rejected password is not sent to more hosts.
//!
//! # TLS
//!
//! `sslmode` is `prefer` by default, which encrypts but verifies nothing. Use `verify-full` for a
//! server on another host. The README lists what differs from libpq. [`certificates`] has the
//! checks for other connections.

#![deny(missing_docs)]

pub mod certificates;
mod client;
pub mod conninfo;
mod error;
mod files;
mod open;
mod parameter;
mod settings;
mod stream;
mod target;
mod tls;

pub use client::{Client, SessionState, Wait};
pub use error::{Error, ErrorKind, is_behind_pooler};
pub use open::PendingClient;
pub use stream::Rejection;
pub use target::{Target, TargetBuilder};
pub use {rustls, tokio_postgres};

/// Returns the name of this process's user, which is libpq's default for `user`; `None` if
/// `/etc/passwd` lacks it.
pub fn os_user() -> Option<String> {
    files::account().map(|(name, _)| name)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
