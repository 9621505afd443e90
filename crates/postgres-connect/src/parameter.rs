//! The names of libpq's parameters, and of parameters of other programs that occur beside them.
//! Knows no values.

/// A parameter of libpq that is read from an address, a service file or a variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parameter {
    key: &'static str,
    /// Empty if the parameter has no variable.
    variable: &'static str,
}

impl Parameter {
    /// Returns all parameters that are read. Other parameters of libpq have no effect.
    pub fn all() -> impl Iterator<Item = Self> {
        KEYS.iter().map(|&(key, variable)| Self { key, variable })
    }

    /// Returns the parameter's name in an address, such as `dbname`.
    pub fn key(self) -> &'static str {
        self.key
    }

    /// Returns the parameter's environment variable, such as `PGDATABASE`, if it has one.
    pub fn variable(self) -> Option<&'static str> {
        Some(self.variable).filter(|variable| !variable.is_empty())
    }

    /// Returns whether the parameter's value is the path of a file or a directory. That of
    /// `sslrootcert` may also be `system`. Does not count `host`, although its value may be the
    /// directory of a socket.
    pub fn is_path(self) -> bool {
        PATHS.contains(&self.key)
    }
}

/// Returns whether the value of a key in an address may be a secret: a password, or the value of an
/// unknown key, which may be a part of a password that was not quoted.
pub fn may_be_secret(key: &str) -> bool {
    let is_read = key != "password" && KEYS.iter().any(|(known, _)| *known == key);
    !is_read && !lists(WITHOUT_EFFECT, key) && !lists(FOREIGN, key)
}

/// The keys of libpq that are read, each with its environment variable; empty if it has none.
const KEYS: &[(&str, &str)] = &[
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

/// The keys whose values are paths.
const PATHS: [&str; 7] =
    ["passfile", "servicefile", "sslcert", "sslcrl", "sslcrldir", "sslkey", "sslrootcert"];

/// libpq's keys that have no effect.
const WITHOUT_EFFECT: &str = "
    authtype client_encoding gssdelegation gsslib krbsrvname max_protocol_version
    min_protocol_version oauth_client_id oauth_issuer oauth_scope sslcompression sslkeylogfile tty";

/// libpq's keys that have no effect, and whose values are secret.
const SECRET: &str = "oauth_client_secret scram_client_key scram_server_key sslpassword";

/// Keys of connection pools, frameworks and other drivers.
const FOREIGN: &str = "
    adapter charset checkout_timeout connection_limit currentSchema encoding max_conns
    max_connections pgbouncer pool pool_max_conns pool_min_conns pool_mode pool_size pool_timeout
    prepareThreshold prepared_statements schema serverVersion socket_timeout statement_cache_size
    statement_timeout supa uselibpqcompat workaround";

/// Returns whether a list of keys has this one.
fn lists(keys: &str, name: &str) -> bool {
    keys.split_whitespace().any(|key| key == name)
}

/// Returns the key if it is read; `None`: it has no effect. Fails if the key is unknown, or if
/// `program` can't do what the value demands, because that may be a demand for security.
pub(crate) fn find_key(
    name: &str,
    value: &str,
    program: &str,
) -> Result<Option<&'static str>, String> {
    if let Some((key, _)) = KEYS.iter().find(|(key, _)| *key == name) {
        // These keys are not supported. They are accepted with values that change nothing in libpq.
        let has_effect_in_libpq = match name {
            "gssencmode" => value == "require",
            "replication" => !matches!(value, "" | "0" | "off" | "false" | "no"),
            "requirepeer" | "sslcrldir" => !value.is_empty(),
            _ => return Ok(Some(key)),
        };
        let unsupported = || format!("{program} does not support `{name}`; remove it");
        return if has_effect_in_libpq { Err(unsupported()) } else { Ok(None) };
    }
    if [WITHOUT_EFFECT, FOREIGN, SECRET].iter().any(|keys| lists(keys, name)) {
        return Ok(None);
    }
    if let Some(libpq_key) = of_other_drivers(name) {
        let is_off = ["false", "0", "no", "off", "disable"].contains(&value);
        let turns_tls_off = libpq_key == "sslmode=require" && is_off;
        let counterpart = if turns_tls_off { "sslmode=disable" } else { libpq_key };
        return Err(format!("unknown parameter `{name}`; write `{counterpart}` instead"));
    }
    if let Some(near) = nearest(name) {
        return Err(format!("unknown parameter `{name}`; did you mean `{near}`?"));
    }
    // Show only a plain name: if a quote is missing, the name may be a part of the password.
    let is_plain =
        name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphabetic() || "_-.".contains(c));
    Err(if is_plain {
        format!("unknown parameter `{name}`; remove it")
    } else {
        "unknown parameter; remove it, or quote the value before it".to_owned()
    })
}

/// Returns libpq's parameter for a parameter of another driver, if there is one.
fn of_other_drivers(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().replace(['_', '-', ' '], "").as_str() {
        "ssl" | "tls" | "usessl" | "requiressl" | "sslaccept" | "encrypt" => "sslmode=require",
        "trustservercertificate" => "sslmode",
        "sslca" | "sslcafile" | "cafile" | "sslrootcertificate" | "tlscafile" => "sslrootcert",
        "sslclientcert" | "sslidentity" | "tlscertfile" => "sslcert",
        "sslclientkey" | "tlskeyfile" => "sslkey",
        "database" | "databasename" | "db" => "dbname",
        "username" | "uid" | "login" => "user",
        "pass" | "pwd" | "passwd" => "password",
        "server" | "servername" | "hostname" => "host",
        "timeout" | "connectiontimeout" | "logintimeout" => "connect_timeout",
        "appname" => "application_name",
        "targetservertype" => "target_session_attrs",
        _ => return None,
    })
}

/// Returns the key that was probably meant: a third of its letters may differ, or two letters of a
/// short one.
fn nearest(name: &str) -> Option<&'static str> {
    // To compare a name that is as long as an address would take long.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    let keys = KEYS.iter().map(|&(key, _)| (strsim::osa_distance(&name, key), key));
    let near =
        keys.filter(|(distance, key)| *distance <= (key.len() / 3).max(2) && *distance < key.len());
    near.min().map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses_key(name: &str, value: &str, why: &str) {
        assert_eq!(find_key(name, value, "psql").err().as_deref(), Some(why));
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_nearest_one() {
        refuses_key("sslmod", "", "unknown parameter `sslmod`; did you mean `sslmode`?");
        refuses_key("sslMode", "", "unknown parameter `sslMode`; did you mean `sslmode`?");
        refuses_key("ssl", "require", "unknown parameter `ssl`; write `sslmode=require` instead");
        refuses_key("ssl", "false", "unknown parameter `ssl`; write `sslmode=disable` instead");
        refuses_key("pwd", "", "unknown parameter `pwd`; write `password` instead");
        refuses_key("DataBase", "", "unknown parameter `DataBase`; write `dbname` instead");
        let why = "unknown parameter `connection_timeout`; write `connect_timeout` instead";
        refuses_key("connection_timeout", "", why);
        refuses_key("frobnicate", "", "unknown parameter `frobnicate`; remove it");
    }

    #[test]
    fn a_possible_part_of_a_password_is_not_named() {
        refuses_key("s3cret", "", "unknown parameter; remove it, or quote the value before it");
    }

    #[test]
    fn keys_without_effect_and_keys_of_other_programs_are_ignored() {
        for (name, value) in
            [("krbsrvname", "x"), ("connection_limit", "1"), ("gssencmode", "prefer")]
        {
            assert_eq!(find_key(name, value, "psql"), Ok(None), "{name}");
        }
        refuses_key("gssencmode", "require", "psql does not support `gssencmode`; remove it");
        refuses_key("sslcrldir", "/x", "psql does not support `sslcrldir`; remove it");
        assert_eq!(find_key("host", "", "psql"), Ok(Some("host")));
    }

    #[test]
    fn a_password_and_an_unknown_key_may_be_secret() {
        for key in ["password", "sslpassword", "frobnicate", "scram_client_key"] {
            assert!(may_be_secret(key), "{key}");
        }
        for key in ["host", "sslkey", "connection_limit", "client_encoding"] {
            assert!(!may_be_secret(key), "{key}");
        }
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
