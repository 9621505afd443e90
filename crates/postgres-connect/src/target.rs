//! Turns settings into a target: which hosts to connect to, and how. Reads only the files that
//! libpq would read for the same settings, and opens no connection.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};
use tokio_postgres::{AsyncMessage, Config};

use crate::client::OnMessage;
use crate::error::Error;
use crate::files;
use crate::settings::{Lookup, Settings};
use crate::stream::{ForbiddenMethods, Limits};
use crate::tls::TlsSettings;

const DEFAULT_PORT: u16 = 5432;
/// How many seconds a host has for the login, unless a setting says it.
const DEFAULT_TIMEOUT: u32 = 10;
/// The socket directories of most distributions, then of PostgreSQL's own build.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Where a database is and how to connect to it. [`Display`](fmt::Display) and `Debug` show the
/// user, the hosts and the database, never a password: `ana@db1:5432,db2:5432/shop`.
#[derive(Clone)]
pub struct Target {
    pub(crate) servers: Vec<Server>,
    /// The login, without the password of a host.
    pub(crate) config: Config,
    origins: Vec<String>,
    pub(crate) tls: TlsSettings,
    pub(crate) forbidden_methods: ForbiddenMethods,
    pub(crate) session_attrs: SessionAttrs,
    pub(crate) shuffles_hosts: bool,
    /// The time limit for one host, from the first packet to the end of the login.
    pub(crate) timeout: Option<Duration>,
    pub(crate) keepalive: Keepalive,
    pub(crate) limits: Limits,
    /// The name of the program in errors.
    pub(crate) program: String,
    pub(crate) oldest_server: Option<u32>,
    pub(crate) on_message: Option<OnMessage>,
}

/// Collects what decides about a [`Target`]. [`Target::builder`] returns it.
#[derive(Clone, Copy)]
#[must_use]
pub struct TargetBuilder<'a> {
    /// The address and its origin.
    address: Option<(&'a str, &'a str)>,
    /// `None`: the environment of this process.
    variables: Option<Lookup<'a>>,
    program: Option<&'a str>,
    oldest_server: Option<u32>,
    limits: Limits,
}

impl<'a> TargetBuilder<'a> {
    /// Sets the address: a `postgres://` URL, or `key=value` pairs. Its settings take precedence
    /// over the service file and the environment. Errors name its `origin`, such as a flag or a
    /// variable.
    pub fn address(self, address: &'a str, origin: &'a str) -> Self {
        Self { address: Some((address, origin)), ..self }
    }

    /// Looks variables up here instead of in the environment of this process. Then no variable of
    /// the process changes the result, except `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    pub fn variables(self, variables: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { variables: Some(variables), ..self }
    }

    /// Names the program: as `application_name` unless a setting names it, and in errors.
    pub fn program(self, name: &'a str) -> Self {
        Self { program: Some(name), ..self }
    }

    /// Rejects servers of an older major version of PostgreSQL, such as `14`.
    pub fn oldest_server(self, major: u32) -> Self {
        Self { oldest_server: Some(major), ..self }
    }

    /// Closes the connection if the server sends a message of more bytes, which is one row at most.
    /// Without it, a false server can fill the memory of this host.
    pub fn largest_message(self, bytes: usize) -> Self {
        Self { limits: Limits { message: bytes, ..self.limits }, ..self }
    }

    /// Closes the connection if the answer to one request has more bytes. Each message counts 128
    /// bytes more, which is what the driver needs for it.
    pub fn largest_answer(self, bytes: usize) -> Self {
        Self { limits: Limits { answer: bytes, ..self.limits }, ..self }
    }

    /// Reads the settings, in libpq's order: the address, the service file, the variables, and
    /// libpq's defaults. Reads the service file and the pass file, but neither certificates nor
    /// keys, and opens no connection.
    ///
    /// # Errors
    /// A setting can't be used: the error is of the kind [`Setting`](crate::ErrorKind::Setting),
    /// and names the setting and its origin, never the value.
    pub fn resolve(self) -> Result<Target, Error> {
        let of_process = |name: &str| std::env::var(name).ok();
        let variables = self.variables.unwrap_or(&of_process);
        let program = self.program.unwrap_or("this program");
        let settings = Settings::collect(self.address, variables, program)?;
        Target::read(&settings, self)
    }
}

impl fmt::Debug for TargetBuilder<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TargetBuilder").finish_non_exhaustive()
    }
}

/// One host, and the password for it.
#[derive(Clone)]
pub(crate) struct Server {
    /// The name that the certificate must contain, or the directory of a Unix socket.
    pub(crate) name: String,
    /// The address of `hostaddr`; never set for a Unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) password: Option<String>,
}

/// When a silent server counts as dead: libpq's keepalive settings. `None` is the system's default.
#[derive(Clone)]
pub(crate) struct Keepalive {
    probes: bool,
    idle: Option<Duration>,
    interval: Option<Duration>,
    count: Option<u32>,
    user_timeout_ms: Option<u32>,
}

/// libpq's `target_session_attrs`.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum SessionAttrs {
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
    /// Begins a target of which the program decides more than the address.
    ///
    /// ```no_run
    /// use postgres_connect::Target;
    ///
    /// let url = std::env::var("SHOP_DATABASE")?;
    /// let target = Target::builder()
    ///     .address(&url, "SHOP_DATABASE")
    ///     .program("shop")
    ///     .oldest_server(14)
    ///     .resolve()?;
    /// let client = target.connect()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder<'a>() -> TargetBuilder<'a> {
        TargetBuilder {
            address: None,
            variables: None,
            program: None,
            oldest_server: None,
            limits: Limits::default(),
        }
    }

    /// Reads the settings from the environment of this process: the `PG*` variables, the service
    /// file, the pass file, and libpq's defaults.
    ///
    /// # Errors
    /// As [`TargetBuilder::resolve`].
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().resolve()
    }

    /// Reads the settings from a `postgres://` URL or `key=value` pairs. As in libpq, the
    /// environment and the files add what the address lacks.
    ///
    /// ```
    /// use postgres_connect::Target;
    ///
    /// let target = Target::from_address("postgres://ana:s3cret@db1,db2:5433/shop")?;
    /// assert_eq!(target.to_string(), "ana@db1:5432,db2:5433/shop");
    ///
    /// let error = Target::from_address("postgres://db/shop?sslmod=require").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "cannot use the database URL: unknown parameter `sslmod`; did you mean `sslmode`?"
    /// );
    /// # Ok::<(), postgres_connect::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TargetBuilder::resolve`].
    pub fn from_address(address: &str) -> Result<Self, Error> {
        Self::builder().address(address, "the database URL").resolve()
    }

    /// Returns the target of the collected settings.
    fn read(settings: &Settings<'_>, builder: TargetBuilder<'_>) -> Result<Self, Error> {
        let user = user(settings)?;
        let database = settings.text("dbname").unwrap_or(&user);
        let name = settings.text("application_name").or(settings.text("fallback_application_name"));
        let name = name.or(builder.program);
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
            .channel_binding(binding)
            // The driver gets a stream that is encrypted already, if the settings demand that.
            // `Direct` keeps the driver from requesting TLS again.
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct);
        if let Some(name) = name {
            config.application_name(name);
        }
        if let Some(options) = settings.text("options") {
            config.options(options);
        }
        let mut servers = servers(settings)?;
        set_passwords(settings, &mut servers, database, &user);
        Ok(Self {
            servers,
            config,
            origins: settings.origins(),
            tls: TlsSettings::read(settings)?,
            forbidden_methods: ForbiddenMethods::read(settings)?,
            session_attrs: settings.choice(
                "target_session_attrs",
                SessionAttrs::Any,
                SESSION_ATTRS,
            )?,
            shuffles_hosts: settings.word("load_balance_hosts", ["disable", "random"])? == "random",
            timeout: settings.seconds("connect_timeout", DEFAULT_TIMEOUT)?,
            keepalive: Keepalive::read(settings)?,
            limits: builder.limits,
            program: builder.program.unwrap_or("this program").to_owned(),
            oldest_server: builder.oldest_server,
            on_message: None,
        })
    }

    /// Calls `on_message` with each message of a server that does not answer a request: notices,
    /// and notifications after `LISTEN`. It runs between the answers, so it must not block. Without
    /// it, notices go to the log, at the level debug, and notifications are dropped.
    ///
    /// A blocking [`Client`](crate::Client) reads messages only while it waits for an answer.
    #[must_use]
    pub fn on_message(self, on_message: impl Fn(&AsyncMessage) + Send + Sync + 'static) -> Self {
        Self { on_message: Some(Arc::new(on_message)), ..self }
    }

    /// Returns the origins of the settings that name the database: of the user, the hosts, the
    /// database and the service. Empty if all these are libpq's defaults.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// Returns the time limit of one host, from the first packet to the end of the login:
    /// `connect_timeout`. `None`: there is no limit.
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns whether every host is this one: a Unix socket, `localhost` or a loopback address.
    pub fn is_local(&self) -> bool {
        self.servers.iter().all(Server::is_this_host)
    }

    /// Returns whether a server must prove its identity by a certificate. A certificate from a
    /// public authority proves nothing unless its name is checked.
    pub fn verifies_servers(&self) -> bool {
        self.tls.verifies()
    }
}

impl Keepalive {
    /// Reads the settings. With the defaults here, a dead server is detected within half a minute;
    /// with those of the system, it takes two hours.
    fn read(settings: &Settings<'_>) -> Result<Self, Error> {
        Ok(Self {
            probes: settings.number("keepalives")? != Some(0),
            idle: settings.seconds("keepalives_idle", 10)?,
            interval: settings.seconds("keepalives_interval", 5)?,
            count: settings.positive("keepalives_count", 3)?,
            user_timeout_ms: settings.positive("tcp_user_timeout", 10_000)?,
        })
    }

    /// Sets these options of a socket.
    pub(crate) fn apply(&self, socket: &TcpStream) -> io::Result<()> {
        if let Some(ms) = self.user_timeout_ms {
            sockopt::set_tcp_user_timeout(socket, ms)?;
        }
        if !self.probes {
            return Ok(());
        }
        sockopt::set_socket_keepalive(socket, true)?;
        if let Some(idle) = self.idle {
            sockopt::set_tcp_keepidle(socket, idle)?;
        }
        if let Some(interval) = self.interval {
            sockopt::set_tcp_keepintvl(socket, interval)?;
        }
        if let Some(count) = self.count {
            sockopt::set_tcp_keepcnt(socket, count)?;
        }
        Ok(())
    }
}

/// Returns the user of the settings, or else the name of this process's user.
fn user(settings: &Settings<'_>) -> Result<String, Error> {
    settings
        .text("user")
        .map(str::to_owned)
        .or_else(|| files::account().map(|(name, _)| name))
        .or_else(|| settings.variable("USER"))
        .or_else(|| settings.variable("LOGNAME"))
        .ok_or_else(|| {
            Error::of_setting("the database settings", "the user is not known; set PGUSER")
        })
}

/// Returns the hosts in the order of the settings, without passwords.
fn servers(settings: &Settings<'_>) -> Result<Vec<Server>, Error> {
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
        // As in libpq, an address takes precedence over the directory of a socket.
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

/// Returns the first socket directory that exists, or else `localhost`.
fn default_host() -> String {
    let directory = SOCKET_DIRECTORIES.into_iter().find(|directory| Path::new(directory).is_dir());
    directory.unwrap_or("localhost").to_owned()
}

/// Sets the password of every host: that of the settings, or else that of the host in the pass
/// file.
fn set_passwords(settings: &Settings<'_>, servers: &mut [Server], database: &str, user: &str) {
    let given = settings.text("password");
    let path = settings.text("passfile").map(PathBuf::from).or_else(|| settings.in_home(".pgpass"));
    let text = path.filter(|_| given.is_none()).and_then(|path| files::pass_file(&path));
    for server in servers {
        // As in libpq, a default socket directory is `localhost` in the pass file.
        let is_default = SOCKET_DIRECTORIES.contains(&&*server.name);
        let host = if is_default { "localhost" } else { &server.name };
        let found = text.as_ref().and_then(|text| {
            files::password(text, [host, &server.port.to_string(), database, user])
        });
        server.password = given.map(str::to_owned).or(found);
    }
}

impl Server {
    /// Returns whether the server is at a Unix socket, where PostgreSQL encrypts nothing.
    pub(crate) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    /// Returns whether the server is on this host.
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

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::ErrorKind;

    fn resolve(url: &str, variables: &[(&str, &str)]) -> Result<Target, Error> {
        let find = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        Target::builder().address(url, "the database URL").variables(&find).resolve()
    }

    #[track_caller]
    fn shows(url: &str, variables: &[(&str, &str)], expected: &str) {
        let target = resolve(url, variables).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(target.to_string(), expected);
        assert_eq!(format!("{target:?}"), format!("Target({expected})"));
    }

    #[track_caller]
    fn refuses(url: &str, why: &str) {
        let refused = resolve(url, &[("HOME", "/nowhere")]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Setting);
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
            let settings =
                Settings::collect(Some((text, "the URL")), &|_| None, "psql").expect("settings");
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
        fs::write(&path, text).expect("written");
        let find = |mode, url| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let environment =
                |name: &str| (name == "HOME").then(|| home.path().display().to_string());
            let target = Target::builder().address(url, "the URL").variables(&environment);
            let target = target.resolve().expect("a target");
            let password = |server: &Server| server.password.clone().unwrap_or_default();
            target.servers.iter().map(password).collect::<Vec<_>>().join(",")
        };
        assert_eq!(find(0o600, "user=me host=h1,h2,/tmp"), "s3cret1,,s3cret2");
        assert_eq!(find(0o600, "user=me host=h1 password=given"), "given");
        assert_eq!(find(0o640, "user=me host=h1"), "");
    }
}
