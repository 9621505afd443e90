//! The keys of a connection: libpq's own with their environment variables, and those that other
//! programs put into the same URL. Pure. An unknown key is an error: ignoring it could drop a
//! misspelt demand for security.

use crate::text::did_you_mean;

/// libpq's keys, each with its environment variable; empty if it has none.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("dbname", "PGDATABASE"),
    ("fallback_application_name", ""),
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("keepalives", ""),
    ("keepalives_count", ""),
    ("keepalives_idle", ""),
    ("keepalives_interval", ""),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    ("options", "PGOPTIONS"),
    ("passfile", "PGPASSFILE"),
    ("password", "PGPASSWORD"),
    ("port", "PGPORT"),
    ("require_auth", "PGREQUIREAUTH"),
    ("service", "PGSERVICE"),
    ("servicefile", "PGSERVICEFILE"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("sslcert", "PGSSLCERT"),
    ("sslcertmode", "PGSSLCERTMODE"),
    ("sslcrl", "PGSSLCRL"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslsni", "PGSSLSNI"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("tcp_user_timeout", ""),
    ("user", "PGUSER"),
    ("gssencmode", "PGGSSENCMODE"),
    ("replication", ""),
    ("requirepeer", "PGREQUIREPEER"),
    ("sslcrldir", "PGSSLCRLDIR"),
];

/// libpq's keys that change nothing for jobctl.
const WITHOUT_EFFECT: &str = "
    authtype client_encoding gssdelegation gsslib krbsrvname max_protocol_version
    min_protocol_version oauth_client_id oauth_client_secret oauth_issuer oauth_scope
    scram_client_key scram_server_key sslcompression sslkeylogfile sslpassword tty";

/// Keys of connection pools, frameworks and other drivers.
const FOREIGN: &str = "
    adapter charset checkout_timeout connection_limit currentSchema encoding max_conns
    max_connections pgbouncer pool pool_max_conns pool_min_conns pool_mode pool_size pool_timeout
    prepareThreshold prepared_statements schema serverVersion socket_timeout statement_cache_size
    statement_timeout supa uselibpqcompat workaround";

/// Returns the key if jobctl reads it, and `None` if it has no effect. A key that jobctl does not
/// know, or cannot obey, is an error.
pub(super) fn find(name: &str, value: &str) -> Result<Option<&'static str>, String> {
    if let Some((key, _)) = KEYS.iter().find(|(key, _)| *key == name) {
        let demands = match name {
            "gssencmode" => value == "require",
            "replication" => !matches!(value, "" | "0" | "off" | "false" | "no"),
            "requirepeer" | "sslcrldir" => !value.is_empty(),
            _ => return Ok(Some(key)),
        };
        let unsupported = || format!("jobctl does not support `{name}`; remove it");
        return if demands { Err(unsupported()) } else { Ok(None) };
    }
    if WITHOUT_EFFECT.split_whitespace().chain(FOREIGN.split_whitespace()).any(|key| key == name) {
        return Ok(None);
    }
    if let Some(near) = did_you_mean::nearest(name, KEYS.iter().map(|(key, _)| *key)) {
        return Err(format!("unknown parameter `{name}`; did you mean `{near}`?"));
    }
    // If a quote is missing, the name may be a part of the password, so do not show it.
    let is_plain =
        name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphabetic() || "_-.".contains(c));
    Err(if is_plain {
        format!("unknown parameter `{name}`; remove it")
    } else {
        "unknown parameter; remove it, or quote the value before it".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(name: &str, value: &str, why: &str) {
        assert_eq!(find(name, value).err().as_deref(), Some(why));
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_nearest_one() {
        refuses("sslmod", "", "unknown parameter `sslmod`; did you mean `sslmode`?");
        refuses("sslMode", "", "unknown parameter `sslMode`; did you mean `sslmode`?");
        refuses("passwd", "", "unknown parameter `passwd`; did you mean `password`?");
        refuses("frobnicate", "", "unknown parameter `frobnicate`; remove it");
    }

    #[test]
    fn a_possible_part_of_a_password_is_not_named() {
        refuses("s3cret", "", "unknown parameter; remove it, or quote the value before it");
    }

    #[test]
    fn keys_without_effect_and_keys_of_other_programs_are_ignored() {
        for (name, value) in
            [("krbsrvname", "x"), ("connection_limit", "1"), ("gssencmode", "prefer")]
        {
            assert_eq!(find(name, value), Ok(None), "{name}");
        }
        refuses("gssencmode", "require", "jobctl does not support `gssencmode`; remove it");
        refuses("sslcrldir", "/x", "jobctl does not support `sslcrldir`; remove it");
        assert_eq!(find("host", ""), Ok(Some("host")));
    }

    #[test]
    fn each_key_is_in_one_list() {
        let keys = KEYS.iter().map(|(key, _)| *key);
        let mut all: Vec<&str> = keys
            .chain(WITHOUT_EFFECT.split_whitespace())
            .chain(FOREIGN.split_whitespace())
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
