//! When a silent server counts as dead.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

use super::settings::Settings;

/// libpq's keepalive settings. `None` is the system's default.
#[derive(Clone)]
pub(super) struct Keepalive {
    probes: bool,
    idle: Option<Duration>,
    interval: Option<Duration>,
    count: Option<u32>,
    user_timeout_ms: Option<u32>,
}

impl Keepalive {
    /// The defaults detect a dead server well within a lease; the system's take two hours.
    pub(super) fn read(settings: &Settings<'_>) -> anyhow::Result<Self> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(Self {
            probes: settings.number("keepalives")? != Some(0),
            idle: settings.positive("keepalives_idle", 10)?.map(seconds),
            interval: settings.positive("keepalives_interval", 5)?.map(seconds),
            count: settings.positive("keepalives_count", 3)?,
            user_timeout_ms: settings.positive("tcp_user_timeout", 10_000)?,
        })
    }

    pub(super) fn apply(&self, socket: &TcpStream) -> io::Result<()> {
        self.user_timeout_ms.map(|ms| sockopt::set_tcp_user_timeout(socket, ms)).transpose()?;
        if !self.probes {
            return Ok(());
        }
        sockopt::set_socket_keepalive(socket, true)?;
        self.idle.map(|idle| sockopt::set_tcp_keepidle(socket, idle)).transpose()?;
        self.interval.map(|interval| sockopt::set_tcp_keepintvl(socket, interval)).transpose()?;
        self.count.map(|count| sockopt::set_tcp_keepcnt(socket, count)).transpose()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
