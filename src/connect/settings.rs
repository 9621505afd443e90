//! Collects the settings of a connection in libpq's order of precedence: the address, the service
//! file, the environment. Knows the keys and reads values, but does not know their effect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use log::debug;

use super::conninfo::{self, Pairs};
use super::{files, setting_fault};
use crate::exit::Fault;
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

/// The keys whose values are paths.
pub(super) const PATHS: [&str; 7] =
    ["passfile", "servicefile", "sslcert", "sslcrl", "sslcrldir", "sslkey", "sslrootcert"];

/// The keys that name a database; libpq has defaults for those that are missing.
pub(super) const NAMES: [&str; 5] = ["service", "host", "hostaddr", "user", "dbname"];

/// The origin of an address that the caller gives.
pub(crate) const GIVEN: &str = "the database URL";

/// libpq's keys that change nothing for jobctl.
const WITHOUT_EFFECT: &str = "
    authtype client_encoding gssdelegation gsslib krbsrvname max_protocol_version
    min_protocol_version oauth_client_id oauth_issuer oauth_scope sslcompression sslkeylogfile tty";

/// libpq's keys that change nothing for jobctl, and whose values are secret.
const SECRET: &str = "oauth_client_secret scram_client_key scram_server_key sslpassword";

/// Keys of connection pools, frameworks and other drivers.
const FOREIGN: &str = "
    adapter charset checkout_timeout connection_limit currentSchema encoding max_conns
    max_connections pgbouncer pool pool_max_conns pool_min_conns pool_mode pool_size pool_timeout
    prepareThreshold prepared_statements schema serverVersion socket_timeout statement_cache_size
    statement_timeout supa uselibpqcompat workaround";

/// Looks up a variable of the environment.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where a value comes from, for errors.
type Origin = Cow<'static, str>;

/// Implements no `Debug`, because it holds the password.
pub(super) struct Settings<'a> {
    values: BTreeMap<&'static str, (String, Origin)>,
    environment: Lookup<'a>,
}

impl<'a> Settings<'a> {
    pub(super) fn collect(url: Option<&str>, environment: Lookup<'a>) -> anyhow::Result<Self> {
        let mut settings = Self { values: BTreeMap::new(), environment };
        let fallback = (settings.environment)("DATABASE_URL");
        let (address, origin) = match url {
            Some(url) => (Some(url), GIVEN),
            None => (fallback.as_deref(), "DATABASE_URL"),
        };
        if url.is_none() && address.is_some_and(|address| address.trim().is_empty()) {
            return Err(Fault::empty(origin).into());
        }
        if let Some(address) = address {
            let mut pairs =
                conninfo::parse(address).map_err(|cause| setting_fault(origin, cause))?;
            // If a key occurs twice, the last value counts. `add` keeps the first, so reverse them.
            pairs.reverse();
            settings.add(pairs, &origin.into())?;
        }
        settings.add_variables(|key| matches!(key, "service" | "servicefile"))?;
        if let Some(service) = settings.text("service").map(str::to_owned) {
            settings.add_service(&service)?;
        }
        settings.add_variables(|_| true)?;
        Ok(settings)
    }

    /// Returns a variable unless it is empty.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// Returns the path of a file below the user's home.
    pub(super) fn in_home(&self, name: &str) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from);
        Some(home.or_else(|| files::account().map(|(_, home)| home))?.join(name))
    }

    /// Returns a value unless it is empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns what names the database; empty if libpq's defaults do.
    pub(super) fn origins(&self) -> Vec<String> {
        let mut origins = Vec::new();
        for name in NAMES.into_iter().filter(|name| self.text(name).is_some()) {
            let origin = self.values[name].1.to_string();
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        origins
    }

    /// Returns the items of a list. Empty items stay: those of `host` and `port` belong together by
    /// their position.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name).map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> anyhow::Result<Option<i32>> {
        self.text(name)
            .map(|text| text.trim().parse())
            .transpose()
            .map_err(|_| self.invalid(name, "is not a number, or too large", "write it in digits"))
    }

    /// Returns `None` for zero and less: in libpq, they mean no limit, or the system's default.
    pub(super) fn positive(&self, name: &str, default: u32) -> anyhow::Result<Option<u32>> {
        let number = self.number(name)?;
        Ok(number.map_or(Some(default), |n| u32::try_from(n).ok().filter(|n| *n > 0)))
    }

    pub(super) fn seconds(&self, name: &str, default: u32) -> anyhow::Result<Option<Duration>> {
        Ok(self.positive(name, default)?.map(|seconds| Duration::from_secs(seconds.into())))
    }

    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> anyhow::Result<T> {
        let Some(text) = self.text(name) else { return Ok(default) };
        if let Some((_, chosen)) = choices.iter().find(|(choice, _)| *choice == text) {
            return Ok(*chosen);
        }
        let allowed = choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
        Err(self.invalid(name, "has an unknown value", &format!("use {allowed}")))
    }

    /// Returns an error that names the key and its origin, not the value, which may be a secret.
    pub(super) fn invalid(&self, name: &str, cause: &str, remedy: &str) -> anyhow::Error {
        let origin = self.values.get(name).map_or("the database settings", |(_, origin)| origin);
        setting_fault(origin, format!("`{name}` {cause}; {remedy}"))
    }

    fn add(&mut self, pairs: Pairs, origin: &Origin) -> anyhow::Result<()> {
        for (name, value) in pairs {
            match find_key(&name, &value).map_err(|cause| setting_fault(origin, cause))? {
                None => debug!("`{name}` in {origin} has no effect"),
                Some(key) => {
                    self.values.entry(key).or_insert_with(|| (value, origin.clone()));
                }
            }
        }
        Ok(())
    }

    /// Adds the variables of the keys that have no value yet.
    fn add_variables(&mut self, includes: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        for &(key, variable) in KEYS {
            if includes(key)
                && !variable.is_empty()
                && let Some(value) = self.variable(variable)
            {
                self.add(vec![(key.to_owned(), value)], &variable.into())?;
            }
        }
        Ok(())
    }

    /// Reads the user's service file, and the system's if the user's lacks the service.
    fn add_service(&mut self, service: &str) -> anyhow::Result<()> {
        let own = self
            .text("servicefile")
            .map(PathBuf::from)
            .or_else(|| self.in_home(".pg_service.conf").filter(|path| path.exists()));
        let system = self.variable("PGSYSCONFDIR");
        let system = PathBuf::from(system.as_deref().unwrap_or("/etc/postgresql-common"));
        let system = Some(system.join("pg_service.conf")).filter(|path| path.exists());
        for path in own.into_iter().chain(system) {
            let origin = Origin::from(format!("service file {}", path.display()));
            let pairs =
                files::service(&path, service).map_err(|cause| setting_fault(&origin, cause))?;
            let Some(pairs) = pairs else { continue };
            if pairs.iter().any(|(name, _)| name == "service") {
                let cause = "a service cannot name another service; remove `service`";
                return Err(setting_fault(&origin, cause));
            }
            return self.add(pairs, &origin);
        }
        // The service's name is not a secret: other users may read its file.
        let cause = format!("is `{service}`, but no service file has this service");
        Err(self.invalid("service", &cause, "correct it, or set PGSERVICEFILE"))
    }
}

/// Returns whether the value of a key may be written into a file: it is known and not secret.
pub(super) fn is_public(name: &str) -> bool {
    let is_read = name != "password" && KEYS.iter().any(|(key, _)| *key == name);
    is_read || lists(WITHOUT_EFFECT, name) || lists(FOREIGN, name)
}

fn lists(keys: &str, name: &str) -> bool {
    keys.split_whitespace().any(|key| key == name)
}

/// Returns the key if jobctl reads it, and `None` if it has no effect. A key that jobctl does not
/// know, or cannot obey, is an error: ignoring it could drop a misspelt demand for security.
fn find_key(name: &str, value: &str) -> Result<Option<&'static str>, String> {
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
    if [WITHOUT_EFFECT, FOREIGN, SECRET].iter().any(|keys| lists(keys, name)) {
        return Ok(None);
    }
    if let Some(own) = of_other_drivers(name) {
        let is_off = ["false", "0", "no", "off", "disable"].contains(&value);
        let own = if own == "sslmode=require" && is_off { "sslmode=disable" } else { own };
        return Err(format!("unknown parameter `{name}`; write `{own}` instead"));
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

/// Returns libpq's parameter for the one of another driver.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn collects(url: Option<&str>, variables: &[(&str, &str)], expected: &[(&str, Option<&str>)]) {
        let environment = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        let settings =
            Settings::collect(url, &environment).unwrap_or_else(|error| panic!("{error:#}"));
        for (name, value) in expected {
            assert_eq!(settings.text(name), *value, "{name}");
        }
    }

    #[track_caller]
    fn refuses(url: &str, variables: &[(&str, &str)], why: &str) {
        let environment = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        let refused =
            Settings::collect(Some(url), &environment).err().map(|error| format!("{error:#}"));
        assert_eq!(refused.as_deref(), Some(why));
    }

    #[test]
    fn an_address_takes_precedence_over_the_environment() {
        let environment = [
            ("PGHOST", "e"),
            ("PGPORT", "1"),
            ("PGPASSWORD", "p"),
            ("DATABASE_URL", "host=d port=2"),
        ];
        collects(
            Some("host=g"),
            &environment,
            &[("host", Some("g")), ("port", Some("1")), ("password", Some("p"))],
        );
        collects(None, &environment, &[("host", Some("d")), ("port", Some("2"))]);
        collects(None, &environment[..2], &[("host", Some("e")), ("user", None)]);
    }

    #[test]
    fn an_empty_value_hides_the_environment() {
        collects(
            Some("host='' dbname=a dbname=b"),
            &[("PGHOST", "e")],
            &[("host", None), ("dbname", Some("b"))],
        );
        collects(None, &[("PGHOST", "")], &[("host", None)]);
    }

    #[test]
    fn a_service_ranks_between_the_address_and_the_environment() {
        let home = tempfile::tempdir().expect("a directory");
        let text = b"[s]\nhost=s\nport=3\nuser=s\n";
        crate::files::replace(&home.path().join(".pg_service.conf"), text).expect("written");
        let environment =
            [("HOME", home.path().to_str().expect("UTF-8")), ("PGPORT", "1"), ("PGDATABASE", "e")];
        let expected =
            [("host", Some("s")), ("port", Some("3")), ("user", Some("g")), ("dbname", Some("e"))];
        collects(Some("service=s user=g"), &environment, &expected);
        let find = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let origins = |url| Settings::collect(url, &find).ok().map(|it| it.origins());
        let file = format!("service file {}/.pg_service.conf", home.path().display());
        let named = [GIVEN.to_owned(), file, "PGDATABASE".to_owned()];
        assert_eq!(origins(Some("service=s user=g")), Some(named.to_vec()));
        assert_eq!(origins(Some("sslmode=disable dbname=''")), Some(Vec::new()));
        collects(Some("user=g"), &[&environment[..], &[("PGSERVICE", "s")]].concat(), &expected);
        let why = |origin: &str| {
            let cause = "`service` is `t`, but no service file has this service";
            format!("cannot use {origin}: {cause}; correct it, or set PGSERVICEFILE")
        };
        refuses("service=t", &environment, &why("the database URL"));
        refuses("user=g", &[&environment[..], &[("PGSERVICE", "t")]].concat(), &why("PGSERVICE"));
    }

    #[test]
    fn an_unsupported_or_unknown_key_is_refused() {
        collects(
            Some("gssencmode=prefer sslcompression=1 pgbouncer=true"),
            &[],
            &[("gssencmode", None)],
        );
        let why = "cannot use PGREQUIREPEER: jobctl does not support `requirepeer`; remove it";
        refuses("host=h", &[("PGREQUIREPEER", "postgres")], why);
        let why =
            "cannot use the database URL: unknown parameter `sslmod`; did you mean `sslmode`?";
        refuses("postgres://h/?sslmod=require", &[], why);
    }

    #[track_caller]
    fn refuses_key(name: &str, value: &str, why: &str) {
        assert_eq!(find_key(name, value).err().as_deref(), Some(why));
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
            assert_eq!(find_key(name, value), Ok(None), "{name}");
        }
        refuses_key("gssencmode", "require", "jobctl does not support `gssencmode`; remove it");
        refuses_key("sslcrldir", "/x", "jobctl does not support `sslcrldir`; remove it");
        assert_eq!(find_key("host", ""), Ok(Some("host")));
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
