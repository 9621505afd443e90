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
mod open;
mod settings;
mod stream;
mod target;
mod tls;

use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::geteuid;

pub(crate) use self::client::{Client, Parameter, Wait};
pub(crate) use self::open::{INTERRUPTED_LIMIT, PendingConnection};
pub(crate) use self::settings::GIVEN;
pub(crate) use self::stream::Rejection;
pub(crate) use self::target::Target;
use crate::exit::{Exit, Fault};
pub(crate) use error::{BEHIND_POOLER, is_behind_pooler};

const WITH_PASSWORD: &str = "its password would be written into a file that others may read, or a \
                             mail; put it into ~/.pgpass instead, or add --env-file";

const WITH_SECRET: &str = "it has a parameter that may be secret, and would be written into a file \
                           that others may read; remove sslpassword, scram_client_key, \
                           scram_server_key, oauth_client_secret and unknown parameters";

/// Returns the name of this process's user, if `/etc/passwd` has it.
pub(crate) fn account_name() -> Option<String> {
    files::account().map(|(name, _)| name)
}

/// Returns the user of this process: its name, or else its number.
pub(crate) fn system_user() -> &'static str {
    static USER: OnceLock<String> = OnceLock::new();
    USER.get_or_init(|| account_name().unwrap_or_else(|| geteuid().as_raw().to_string()))
}

/// Returns whether one of the variables that libpq reads, or `DATABASE_URL`, names a server or a
/// database. A user alone does not.
pub(crate) fn is_named(is_set: impl Fn(&str) -> bool) -> bool {
    let names = |(key, _): &&(&str, &str)| settings::NAMES.contains(key) && *key != "user";
    let mut variables = settings::KEYS.iter().filter(names);
    is_set("DATABASE_URL") || variables.any(|(_, variable)| is_set(variable))
}

/// Returns whether a variable can be a part of an address.
pub(crate) fn is_of_address(name: &str) -> bool {
    name == "DATABASE_URL" || settings::KEYS.iter().any(|(_, variable)| *variable == name)
}

/// Returns the variables that lead another process to the same database: `name` with `url`, or else
/// `DATABASE_URL`, then the `PG*` variables. Unless they stay private, a password in them is an
/// error, because they go into files and mails. Errors about `url` name its `origin`.
pub(crate) fn variables(
    name: &str,
    origin: &str,
    url: Option<&str>,
    environment: settings::Lookup<'_>,
    is_private: bool,
) -> anyhow::Result<Vec<(String, String)>> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    let address = match url {
        Some(url) => Some((name, origin, url.to_owned())),
        None => variable("DATABASE_URL").map(|url| ("DATABASE_URL", "DATABASE_URL", url)),
    };
    let mut found = Vec::new();
    if let Some((name, origin, address)) = address {
        let pairs = conninfo::parse(&address).map_err(|cause| setting_fault(origin, cause))?;
        match pairs.iter().find(|(key, _)| !is_private && !settings::is_public(key)) {
            Some((key, _)) if key == "password" => {
                return Err(setting_fault(origin, WITH_PASSWORD));
            }
            Some(_) => return Err(setting_fault(origin, WITH_SECRET)),
            None => {}
        }
        let mut complete = address;
        for (key, value) in &pairs {
            if let Some(path) = absolute(key, value)? {
                complete = conninfo::with(&complete, key, &path);
            }
        }
        found.push((name.to_owned(), complete));
    }
    for (key, name) in settings::KEYS.iter().filter(|(_, name)| !name.is_empty()) {
        if let Some(value) = variable(name) {
            let value = absolute(key, &value)?.unwrap_or(value);
            found.push(((*name).to_owned(), value));
        }
    }
    if !is_private && found.iter().any(|(name, _)| name == "PGPASSWORD") {
        return Err(setting_fault("PGPASSWORD", WITH_PASSWORD));
    }
    Ok(found)
}

/// Returns the absolute path of a setting that is a relative one: the other process may start in
/// another folder.
fn absolute(key: &str, value: &str) -> anyhow::Result<Option<String>> {
    let is_path = settings::PATHS.contains(&key) && !value.is_empty();
    if !is_path || Path::new(value).is_absolute() || (key, value) == ("sslrootcert", "system") {
        return Ok(None);
    }
    let path = std::path::absolute(value)?.into_os_string().into_string();
    path.map(Some).map_err(|_| setting_fault(key, "its folder is not UTF-8; use another folder"))
}

/// An error about a setting; `cause` ends in its remedy.
fn setting_fault(origin: impl Display, cause: impl Display) -> anyhow::Error {
    Fault::new(Exit::Configuration, format!("cannot use {origin}: {cause}")).into()
}
