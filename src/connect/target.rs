//! What the gathered settings amount to: the hosts, the login and how to behave towards them. Reads
//! no file but those that libpq would read for the same settings, and opens no connection.

use std::fmt;
use std::time::Duration;

use tokio_postgres::config::ChannelBinding;

use super::auth::Methods;
use super::files;
use super::server::{self, Server};
use super::settings::{Environment, Settings};
use super::tls::TlsSettings;
use super::unusable;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the database is and how to reach it, fully resolved. Neither `Debug` nor `Display` shows
/// a password.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(super) servers: Vec<Server>,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) application_name: String,
    pub(super) options: Option<String>,
    pub(super) tls: TlsSettings,
    pub(super) channel_binding: ChannelBinding,
    pub(super) methods: Methods,
    pub(super) wanted: Wanted,
    pub(super) order: Order,
    /// For one host, from the first packet to the end of the login; `None` waits for ever.
    pub(super) timeout: Option<Duration>,
    pub(super) keepalive: Keepalive,
}

/// What a session must be like to be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Given,
    Random,
}

/// How soon a silent peer counts as dead. `None` leaves it to the system.
#[derive(Clone, Debug)]
pub(super) struct Keepalive {
    pub(super) probes: Probes,
    pub(super) idle: Option<Duration>,
    pub(super) interval: Option<Duration>,
    pub(super) count: Option<u32>,
    pub(super) user_timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Probes {
    On,
    Off,
}

impl Target {
    /// Where the database is: `url`, else `DATABASE_URL`; what those leave open, the service file
    /// and the `PG*` variables fill in, with libpq's defaults for the rest. `environment` looks a
    /// variable up.
    ///
    /// # Errors
    /// A `Fault` of the configuration that says which setting from where; never a value.
    pub(crate) fn resolve(url: Option<&str>, environment: Environment<'_>) -> anyhow::Result<Self> {
        let settings = Settings::gather(url, environment)?;
        let user = user(&settings)?;
        let database = settings.text("dbname").unwrap_or(&user).to_owned();
        let name = settings.text("application_name").or(settings.text("fallback_application_name"));
        let servers = server::all(&settings, &database, &user)?;
        let tls = TlsSettings::read(&settings, &servers)?;
        Ok(Self {
            servers,
            user,
            database,
            application_name: name.unwrap_or("jobctl").to_owned(),
            options: settings.text("options").map(str::to_owned),
            tls,
            channel_binding: settings.choice("channel_binding", CHANNEL_BINDINGS)?.unwrap_or(ChannelBinding::Prefer),
            methods: match settings.list("require_auth") {
                list if list.is_empty() => Methods::any(),
                list => Methods::read(&list).map_err(|(why, remedy)| settings.invalid("require_auth", why, &remedy))?,
            },
            wanted: settings.choice("target_session_attrs", WANTED)?.unwrap_or(Wanted::Any),
            order: settings
                .choice("load_balance_hosts", &[("disable", Order::Given), ("random", Order::Random)])?
                .unwrap_or(Order::Given),
            timeout: match settings.number::<i32>("connect_timeout")? {
                None => Some(DEFAULT_TIMEOUT),
                Some(seconds) => u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs),
            },
            keepalive: Keepalive::read(&settings)?,
        })
    }

    /// Returns whether every host of the target is this host.
    pub(crate) fn is_local(&self) -> bool {
        self.servers.iter().all(Server::is_on_this_host)
    }

    /// Returns whether the server must prove its identity.
    pub(crate) fn verifies(&self) -> bool {
        self.tls.verifies()
    }

    /// The time limit for the connection and the login to one host; `None`: no limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

const CHANNEL_BINDINGS: &[(&str, ChannelBinding)] =
    &[("disable", ChannelBinding::Disable), ("prefer", ChannelBinding::Prefer), ("require", ChannelBinding::Require)];

const WANTED: &[(&str, Wanted)] = &[
    ("any", Wanted::Any),
    ("read-write", Wanted::ReadWrite),
    ("read-only", Wanted::ReadOnly),
    ("primary", Wanted::Primary),
    ("standby", Wanted::Standby),
    ("prefer-standby", Wanted::PreferStandby),
];

impl Keepalive {
    /// The defaults notice a dead peer well within a lease; the system's own take two hours.
    fn read(settings: &Settings<'_>) -> anyhow::Result<Self> {
        // Zero and less mean the system's default, as in libpq.
        let number = |name: &str, default: u32| {
            let number = settings.number::<i32>(name)?;
            anyhow::Ok(number.map_or(Some(default), |n| u32::try_from(n).ok().filter(|n| *n > 0)))
        };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(Self {
            probes: match settings.number::<i32>("keepalives")? {
                Some(0) => Probes::Off,
                _ => Probes::On,
            },
            idle: number("keepalives_idle", 10)?.map(seconds),
            interval: number("keepalives_interval", 5)?.map(seconds),
            count: number("keepalives_count", 3)?,
            user_timeout: number("tcp_user_timeout", 10_000)?.map(|n| Duration::from_millis(n.into())),
        })
    }
}

fn user(settings: &Settings<'_>) -> anyhow::Result<String> {
    if let Some(user) = settings.text("user") {
        return Ok(user.to_owned());
    }
    let account = files::account(rustix::process::geteuid().as_raw()).map(|(name, _)| name);
    account
        .or_else(|| settings.variable("USER"))
        .or_else(|| settings.variable("LOGNAME"))
        .ok_or_else(|| unusable(&"the database settings", "there is no user; set PGUSER"))
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(Server::to_string).collect();
        write!(formatter, "{}@{}/{}", self.user, servers.join(","), self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Exit, Fault};

    fn resolve(url: &str, variables: &[(&str, &str)]) -> anyhow::Result<Target> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Target::resolve(Some(url), &find)
    }

    #[track_caller]
    fn shows(url: &str, variables: &[(&str, &str)], expected: &str) {
        let target = resolve(url, variables).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(target.to_string(), expected);
        assert!(!format!("{target:?}").contains("s3cret"), "{target:?}");
    }

    #[track_caller]
    fn refuses(url: &str, why: &str) {
        let refused = resolve(url, &[("HOME", "/nowhere")]).expect_err("a refusal");
        assert_eq!(refused.downcast_ref::<Fault>().map(|fault| fault.exit), Some(Exit::Configuration));
        assert_eq!(refused.to_string(), why);
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
    fn a_setting_that_can_not_be_used_is_named_with_its_origin() {
        refuses("port=0", "cannot use the database URL: `port` is no port; write a number from 1 to 65535");
        refuses(
            "sslmode=on",
            "cannot use the database URL: `sslmode` has an unknown value; allowed are disable, allow, prefer, require, verify-ca, verify-full",
        );
        refuses(
            "host=a,b port=1,2,3",
            "cannot use the database URL: `port` has not as many items as `host`; give one, or one for each host",
        );
        refuses(
            "hostaddr=h",
            "cannot use the database URL: `hostaddr` has an item that is no IP address; use `host` for names",
        );
        refuses(
            "connect_timeout=5s",
            "cannot use the database URL: `connect_timeout` is no number, or too large; write it in digits",
        );
    }

    #[test]
    fn units_and_zero_are_those_of_libpq() {
        let target = resolve("user=me", &[]).expect("a target");
        assert_eq!(target.timeout, Some(Duration::from_secs(10)));
        assert_eq!(target.keepalive.user_timeout, Some(Duration::from_secs(10)));
        let target = resolve("connect_timeout=0 tcp_user_timeout=2500 keepalives_idle=0", &[]).expect("a target");
        assert_eq!((target.timeout, target.keepalive.idle), (None, None));
        assert_eq!(target.keepalive.user_timeout, Some(Duration::from_millis(2500)));
    }
}
