//! The meaning of the settings: which hosts to connect to, and how. Reads only the files that libpq
//! would read for the same settings, and opens no connection.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};

use super::settings::{Lookup, Settings};
use super::stream::ForbiddenMethods;
use super::tls::TlsSettings;
use super::{files, setting_fault};

const DEFAULT_PORT: u16 = 5432;
/// Seconds for one host.
const DEFAULT_TIMEOUT: u32 = 10;
/// The socket directories of most distributions, then of PostgreSQL's own build.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Where the database is and how to reach it. Implements no `Debug`, because it holds passwords.
#[derive(Clone)]
pub(crate) struct Target {
    pub(super) servers: Vec<Server>,
    /// The login, without the password of a host.
    pub(super) config: Config,
    /// The settings that name the database; empty if libpq's defaults do.
    pub(crate) origins: Vec<String>,
    pub(super) tls: TlsSettings,
    pub(super) forbidden_methods: ForbiddenMethods,
    pub(super) session_attrs: SessionAttrs,
    pub(super) shuffles_hosts: bool,
    /// The time limit for one host, from the first packet to the end of the login.
    pub(crate) timeout: Option<Duration>,
    pub(super) keepalive: Keepalive,
}

/// One host, and the password for it.
#[derive(Clone)]
pub(super) struct Server {
    /// The name that the certificate must contain, or the directory of a Unix socket.
    pub(super) name: String,
    /// The address of `hostaddr`; never set for a Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) password: Option<String>,
}

/// When a silent server counts as dead: libpq's keepalive settings. `None` is the system's default.
#[derive(Clone)]
pub(super) struct Keepalive {
    probes: bool,
    idle: Option<Duration>,
    interval: Option<Duration>,
    count: Option<u32>,
    user_timeout_ms: Option<u32>,
}

/// libpq's `target_session_attrs`.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum SessionAttrs {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

const SESSION_ATTRS: &[(&str, SessionAttrs)] = &[
    ("any", SessionAttrs::Any),
    ("read-write", SessionAttrs::ReadWrite),
    ("read-only", SessionAttrs::ReadOnly),
    ("primary", SessionAttrs::Primary),
    ("standby", SessionAttrs::Standby),
    ("prefer-standby", SessionAttrs::PreferStandby),
];

impl Target {
    /// Resolves `url`, or else `DATABASE_URL`. The service file and the `PG*` variables add the
    /// missing settings; the rest are libpq's defaults. `environment` looks up a variable. An error
    /// names the setting and its origin, never the value.
    pub(crate) fn resolve(url: Option<&str>, environment: Lookup<'_>) -> anyhow::Result<Self> {
        let settings = Settings::collect(url, environment)?;
        let user = user(&settings)?;
        let database = settings.text("dbname").unwrap_or(&user);
        let name = settings.text("application_name").or(settings.text("fallback_application_name"));
        let bindings = [
            ("disable", ChannelBinding::Disable),
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
        ];
        let binding = settings.choice("channel_binding", ChannelBinding::Prefer, &bindings)?;
        let mut config = Config::new();
        config
            .user(&user)
            .dbname(database)
            .application_name(name.unwrap_or("jobctl"))
            .channel_binding(binding)
            // jobctl does the TLS handshake itself and gives the driver the encrypted stream.
            // `Direct` keeps the driver from requesting TLS again.
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct);
        if let Some(options) = settings.text("options") {
            config.options(options);
        }
        let mut servers = servers(&settings)?;
        set_passwords(&settings, &mut servers, database, &user);
        let balancing = [("disable", false), ("random", true)];
        Ok(Self {
            servers,
            config,
            origins: settings.origins(),
            tls: TlsSettings::read(&settings)?,
            forbidden_methods: ForbiddenMethods::read(&settings)?,
            session_attrs: settings.choice(
                "target_session_attrs",
                SessionAttrs::Any,
                SESSION_ATTRS,
            )?,
            shuffles_hosts: settings.choice("load_balance_hosts", false, &balancing)?,
            timeout: settings.seconds("connect_timeout", DEFAULT_TIMEOUT)?,
            keepalive: Keepalive::read(&settings)?,
        })
    }

    /// Returns whether every host of the target is this host.
    pub(crate) fn is_local(&self) -> bool {
        self.servers.iter().all(Server::is_this_host)
    }

    /// Returns whether the server must prove its identity.
    pub(crate) fn verifies(&self) -> bool {
        self.tls.verifies()
    }
}

impl Keepalive {
    /// The defaults detect a dead server well within a lease; the system's take two hours.
    fn read(settings: &Settings<'_>) -> anyhow::Result<Self> {
        Ok(Self {
            probes: settings.number("keepalives")? != Some(0),
            idle: settings.seconds("keepalives_idle", 10)?,
            interval: settings.seconds("keepalives_interval", 5)?,
            count: settings.positive("keepalives_count", 3)?,
            user_timeout_ms: settings.positive("tcp_user_timeout", 10_000)?,
        })
    }

    pub(super) fn apply(&self, socket: &TcpStream) -> io::Result<()> {
        self.user_timeout_ms.map(|ms| sockopt::set_tcp_user_timeout(socket, ms)).transpose()?;
        if self.probes {
            sockopt::set_socket_keepalive(socket, true)?;
            self.idle.map(|idle| sockopt::set_tcp_keepidle(socket, idle)).transpose()?;
            self.interval.map(|every| sockopt::set_tcp_keepintvl(socket, every)).transpose()?;
            self.count.map(|count| sockopt::set_tcp_keepcnt(socket, count)).transpose()?;
        }
        Ok(())
    }
}

fn user(settings: &Settings<'_>) -> anyhow::Result<String> {
    settings
        .text("user")
        .map(str::to_owned)
        .or_else(|| files::account().map(|(name, _)| name))
        .or_else(|| settings.variable("USER"))
        .or_else(|| settings.variable("LOGNAME"))
        .ok_or_else(|| setting_fault("the database settings", "the user is not known; set PGUSER"))
}

/// Returns the hosts in the order of the settings, without passwords.
fn servers(settings: &Settings<'_>) -> anyhow::Result<Vec<Server>> {
    let [hosts, addresses, ports] = ["host", "hostaddr", "port"].map(|name| settings.list(name));
    let count = hosts.len().max(addresses.len()).max(1);
    let other_length = "has another number of items than `host`";
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(settings.invalid("hostaddr", other_length, "give one for each host"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(settings.invalid("port", other_length, "give one, or one for each host"));
    }
    let item = |list: &[&str], index: usize| {
        list.get(index).filter(|item| !item.is_empty()).map(|item| (*item).to_owned())
    };
    let server = |index| {
        let address = item(&addresses, index).map(|text| text.parse::<IpAddr>()).transpose();
        let address = address.map_err(|_| {
            let cause = "has an item that is not an IP address";
            settings.invalid("hostaddr", cause, "use `host` for names")
        })?;
        // As in libpq, an address takes precedence over a directory.
        let name = match (item(&hosts, index), address) {
            (Some(name), None) => name,
            (Some(name), Some(_)) if !name.starts_with('/') => name,
            (_, Some(address)) => address.to_string(),
            (None, None) => default_host(),
        };
        let port = match item(&ports, if ports.len() > 1 { index } else { 0 }) {
            None => DEFAULT_PORT,
            Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                settings.invalid("port", "is not a port number", "use 1 to 65535")
            })?,
        };
        Ok(Server { name, address, port, password: None })
    };
    (0..count).map(server).collect()
}

fn default_host() -> String {
    let directory = SOCKET_DIRECTORIES.into_iter().find(|directory| Path::new(directory).is_dir());
    directory.unwrap_or("localhost").to_owned()
}

/// Sets the password of the settings for every host, or else that of the pass file for each.
fn set_passwords(settings: &Settings<'_>, servers: &mut [Server], database: &str, user: &str) {
    let given = settings.text("password");
    let path = settings.text("passfile").map(PathBuf::from).or_else(|| settings.in_home(".pgpass"));
    let text = path.filter(|_| given.is_none()).and_then(|path| files::pass_file(&path));
    for server in servers {
        let is_default = SOCKET_DIRECTORIES.contains(&&*server.name);
        let host = if is_default { "localhost" } else { &server.name };
        let found = text.as_ref().and_then(|text| {
            files::password(text, [host, &server.port.to_string(), database, user])
        });
        server.password = given.map(str::to_owned).or(found);
    }
}

impl Server {
    /// Returns whether it is a Unix socket. PostgreSQL encrypts nothing there.
    pub(super) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    fn is_this_host(&self) -> bool {
        let address = self.address.or_else(|| self.name.parse().ok());
        self.is_socket() || address.map_or(self.name == "localhost", |ip| ip.is_loopback())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port, .. } = self;
        if name.contains(':') && !self.is_socket() {
            write!(formatter, "[{name}]:{port}")
        } else {
            write!(formatter, "{name}:{port}")
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(Server::to_string).collect();
        let [user, database] = [self.config.get_user(), self.config.get_dbname()];
        let (user, database) = (user.unwrap_or_default(), database.unwrap_or_default());
        write!(formatter, "{user}@{}/{database}", servers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::exit::{Exit, Fault};

    fn resolve(url: &str, variables: &[(&str, &str)]) -> anyhow::Result<Target> {
        let find = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        Target::resolve(Some(url), &find)
    }

    #[track_caller]
    fn shows(url: &str, variables: &[(&str, &str)], expected: &str) {
        let target = resolve(url, variables).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(target.to_string(), expected);
    }

    #[track_caller]
    fn refuses(url: &str, why: &str) {
        let refused = resolve(url, &[("HOME", "/nowhere")]).err().expect("a refusal");
        assert_eq!(
            refused.downcast_ref::<Fault>().map(|fault| fault.exit),
            Some(Exit::Configuration)
        );
        assert_eq!(refused.to_string(), format!("cannot use the database URL: {why}"));
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        shows("postgres://me:s3cret@h:5433/app", &[], "me@h:5433/app");
        shows("user=me", &[("PGPASSWORD", "s3cret"), ("PGHOST", "::1")], "me@[::1]:5432/me");
        shows("postgres://me@h1:1,h2,h3:3/a", &[], "me@h1:1,h2:5432,h3:3/a");
        shows("user=me host=h1,h2 port=6000", &[], "me@h1:6000,h2:6000/me");
        shows("user=me host=/run/x hostaddr=", &[], "me@/run/x:5432/me");
        shows("user=me hostaddr=10.0.0.1", &[], "me@10.0.0.1:5432/me");
        shows("user=me hostaddr=10.0.0.1", &[("PGHOST", "/run/x")], "me@10.0.0.1:5432/me");
    }

    #[test]
    fn an_error_names_the_setting_and_its_origin() {
        refuses("port=0", "`port` is not a port number; use 1 to 65535");
        refuses(
            "sslmode=on",
            "`sslmode` has an unknown value; use disable, allow, prefer, require, verify-ca, \
             verify-full",
        );
        refuses(
            "host=a,b port=1,2,3",
            "`port` has another number of items than `host`; give one, or one for each host",
        );
        refuses(
            "hostaddr=h",
            "`hostaddr` has an item that is not an IP address; use `host` for names",
        );
        refuses(
            "connect_timeout=5s",
            "`connect_timeout` is not a number, or too large; write it in digits",
        );
    }

    #[test]
    fn connect_timeout_is_in_seconds_and_zero_means_no_limit() {
        let timeout = |url: &str| resolve(url, &[]).expect("a target").timeout;
        assert_eq!(timeout("user=me"), Some(Duration::from_secs(10)));
        assert_eq!(timeout("connect_timeout=3"), Some(Duration::from_secs(3)));
        assert_eq!(timeout("connect_timeout=0"), None);
    }

    #[test]
    fn keepalive_units_and_zero_follow_libpq() {
        let read = |text: &str| {
            let settings = Settings::collect(Some(text), &|_| None).expect("settings");
            let keepalive = Keepalive::read(&settings).expect("numbers");
            (keepalive.idle, keepalive.user_timeout_ms)
        };
        assert_eq!(read("user=me"), (Some(Duration::from_secs(10)), Some(10_000)));
        assert_eq!(read("tcp_user_timeout=2500 keepalives_idle=0"), (None, Some(2500)));
    }

    #[test]
    fn the_pass_file_is_read_for_each_host_only_if_it_is_private() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join(".pgpass");
        let text = b"h1:*:*:me:s3cret1\nlocalhost:*:*:me:s3cret2\n";
        crate::files::replace(&path, text).expect("written");
        let find = |mode, url| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let environment =
                |name: &str| (name == "HOME").then(|| home.path().display().to_string());
            let target = Target::resolve(Some(url), &environment).expect("a target");
            let password = |server: &Server| server.password.clone().unwrap_or_default();
            target.servers.iter().map(password).collect::<Vec<_>>().join(",")
        };
        assert_eq!(find(0o600, "user=me host=h1,h2,/tmp"), "s3cret1,,s3cret2");
        assert_eq!(find(0o600, "user=me host=h1 password=given"), "given");
        assert_eq!(find(0o640, "user=me host=h1"), "");
    }
}
