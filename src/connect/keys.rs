//! The keys of a connection: libpq's own with their environment variables, and those that other
//! programs put into the same URL. Pure. An unknown key is refused, because what is ignored may be
//! a misspelt demand for security.

use crate::spelling;

/// What becomes of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Use {
    Read,
    /// It changes nothing for jobctl.
    Ignored,
    /// It demands what jobctl can't keep; ignoring it would be a broken promise.
    Refused,
}

/// A key of libpq, its environment variable (empty where it has none) and what becomes of it.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) variable: &'static str,
    pub(super) use_: Use,
}

const fn read(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, use_: Use::Read }
}

const fn ignored(name: &'static str) -> Key {
    Key { name, variable: "", use_: Use::Ignored }
}

const fn refused(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, use_: Use::Refused }
}

pub(super) const KEYS: &[Key] = &[
    read("application_name", "PGAPPNAME"),
    read("channel_binding", "PGCHANNELBINDING"),
    read("connect_timeout", "PGCONNECT_TIMEOUT"),
    read("dbname", "PGDATABASE"),
    read("fallback_application_name", ""),
    read("host", "PGHOST"),
    read("hostaddr", "PGHOSTADDR"),
    read("keepalives", ""),
    read("keepalives_count", ""),
    read("keepalives_idle", ""),
    read("keepalives_interval", ""),
    read("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    read("options", "PGOPTIONS"),
    read("passfile", "PGPASSFILE"),
    read("password", "PGPASSWORD"),
    read("port", "PGPORT"),
    read("require_auth", "PGREQUIREAUTH"),
    read("service", "PGSERVICE"),
    read("servicefile", "PGSERVICEFILE"),
    read("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    read("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    read("sslcert", "PGSSLCERT"),
    read("sslcertmode", "PGSSLCERTMODE"),
    read("sslcrl", "PGSSLCRL"),
    read("sslkey", "PGSSLKEY"),
    read("sslmode", "PGSSLMODE"),
    read("sslnegotiation", "PGSSLNEGOTIATION"),
    read("sslrootcert", "PGSSLROOTCERT"),
    read("sslsni", "PGSSLSNI"),
    read("target_session_attrs", "PGTARGETSESSIONATTRS"),
    read("tcp_user_timeout", ""),
    read("user", "PGUSER"),
    ignored("authtype"),
    ignored("client_encoding"),
    ignored("gssdelegation"),
    ignored("gsslib"),
    ignored("krbsrvname"),
    ignored("max_protocol_version"),
    ignored("min_protocol_version"),
    ignored("oauth_client_id"),
    ignored("oauth_client_secret"),
    ignored("oauth_issuer"),
    ignored("oauth_scope"),
    ignored("scram_client_key"),
    ignored("scram_server_key"),
    ignored("sslcompression"),
    ignored("sslkeylogfile"),
    ignored("sslpassword"),
    ignored("tty"),
    refused("gssencmode", "PGGSSENCMODE"),
    refused("replication", ""),
    refused("requirepeer", "PGREQUIREPEER"),
    refused("sslcrldir", "PGSSLCRLDIR"),
];

/// What pools, frameworks and drivers add for themselves.
const FOREIGN: &[&str] = &[
    "adapter",
    "charset",
    "checkout_timeout",
    "connection_limit",
    "currentSchema",
    "encoding",
    "max_conns",
    "max_connections",
    "pgbouncer",
    "pool",
    "pool_max_conns",
    "pool_min_conns",
    "pool_mode",
    "pool_size",
    "pool_timeout",
    "prepareThreshold",
    "prepared_statements",
    "schema",
    "serverVersion",
    "socket_timeout",
    "statement_cache_size",
    "statement_timeout",
    "supa",
    "uselibpqcompat",
    "workaround",
];

/// The key of that name; `None` for one that belongs to another program.
///
/// # Errors
/// Nobody's key. It is named only where it looks like one: behind a mistake in quoting it may be a
/// part of the password.
pub(super) fn find(name: &str) -> Result<Option<&'static Key>, String> {
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        return Ok(Some(key));
    }
    if FOREIGN.contains(&name) {
        return Ok(None);
    }
    let near = spelling::nearest(name, KEYS.iter().map(|key| key.name));
    let looks_like_one = name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphabetic() || "_-.".contains(c));
    Err(match near {
        Some(near) => format!("it has no parameter `{name}`; did you mean `{near}`?"),
        _ if looks_like_one => format!("it has no parameter `{name}`; remove it"),
        _ => "it has a parameter that nobody knows; remove it, or quote the value before it".to_owned(),
    })
}

/// Whether a refused key asks for nothing after all.
pub(super) fn asks_for_nothing(key: &Key, value: &str) -> bool {
    match key.name {
        "gssencmode" => value != "require",
        "replication" => matches!(value, "" | "0" | "off" | "false" | "no"),
        _ => value.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(name: &str, why: &str) {
        assert_eq!(find(name).err().as_deref(), Some(why));
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_nearest_one() {
        refuses("sslmod", "it has no parameter `sslmod`; did you mean `sslmode`?");
        refuses("sslMode", "it has no parameter `sslMode`; did you mean `sslmode`?");
        refuses("passwd", "it has no parameter `passwd`; did you mean `password`?");
        refuses("frobnicate", "it has no parameter `frobnicate`; remove it");
    }

    #[test]
    fn what_may_be_a_part_of_a_password_is_not_named() {
        refuses("s3cret", "it has a parameter that nobody knows; remove it, or quote the value before it");
    }

    #[test]
    fn keys_of_libpq_and_of_other_programs_are_told_apart() {
        assert_eq!(find("krbsrvname").map(|key| key.map(|key| key.use_)), Ok(Some(Use::Ignored)));
        assert!(matches!(find("connection_limit"), Ok(None)));
        assert!(KEYS.iter().all(|key| !FOREIGN.contains(&key.name)));
    }
}
