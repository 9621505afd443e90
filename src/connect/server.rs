//! The hosts of a target: where each one listens and which password it gets.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::files::{self, Login};
use super::settings::Settings;

const DEFAULT_PORT: u16 = 5432;
/// Where the servers of most distributions, then PostgreSQL's own build, put their sockets.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) place: Place,
    pub(super) port: u16,
    pub(super) password: Option<Secret>,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The directory of a Unix socket.
    Socket(String),
    /// A host's name, and its address where that was given too.
    Tcp { name: String, address: Option<IpAddr> },
}

#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

/// The hosts in the order given, each with its port and password.
pub(super) fn all(settings: &Settings<'_>, database: &str, user: &str) -> anyhow::Result<Vec<Server>> {
    let mut servers = servers(settings)?;
    passwords(settings, &mut servers, database, user);
    Ok(servers)
}

fn servers(settings: &Settings<'_>) -> anyhow::Result<Vec<Server>> {
    let (hosts, addresses, ports) = (settings.list("host"), settings.list("hostaddr"), settings.list("port"));
    let count = hosts.len().max(addresses.len()).max(1);
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(settings.invalid("hostaddr", "has not as many items as `host`", "give one for each host"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(settings.invalid("port", "has not as many items as `host`", "give one, or one for each host"));
    }
    let at = |list: &[&str], index: usize| list.get(index).map(|item| (*item).to_owned()).filter(|i| !i.is_empty());
    (0..count)
        .map(|index| {
            let address = at(&addresses, index).map(|text| text.parse::<IpAddr>()).transpose().map_err(|_| {
                settings.invalid("hostaddr", "has an item that is no IP address", "use `host` for names")
            })?;
            // An address wins over a directory, as with libpq.
            let place = match (at(&hosts, index), address) {
                (Some(directory), None) if directory.starts_with('/') => Place::Socket(directory),
                (Some(name), address) if !name.starts_with('/') => Place::Tcp { name, address },
                (_, Some(address)) => Place::Tcp { name: address.to_string(), address: Some(address) },
                (_, None) => default_place(),
            };
            let port = match at(&ports, if ports.len() > 1 { index } else { 0 }) {
                None => DEFAULT_PORT,
                Some(text) => text
                    .parse()
                    .ok()
                    .filter(|port| *port != 0)
                    .ok_or_else(|| settings.invalid("port", "is no port", "write a number from 1 to 65535"))?,
            };
            Ok(Server { place, port, password: None })
        })
        .collect()
}

fn default_place() -> Place {
    match SOCKET_DIRECTORIES.into_iter().find(|directory| Path::new(directory).is_dir()) {
        Some(directory) => Place::Socket(directory.to_owned()),
        None => Place::Tcp { name: "localhost".to_owned(), address: None },
    }
}

/// The password that is set, for all; else the pass file's for each.
fn passwords(settings: &Settings<'_>, servers: &mut [Server], database: &str, user: &str) {
    if let Some(password) = settings.text("password") {
        for server in servers {
            server.password = Some(Secret(password.to_owned()));
        }
        return;
    }
    let file = settings.text("passfile").map(PathBuf::from).or_else(|| settings.in_home(".pgpass"));
    let Some(text) = file.and_then(|path| files::passwords(&path)) else { return };
    for server in servers {
        let host = match &server.place {
            Place::Socket(directory) if SOCKET_DIRECTORIES.contains(&directory.as_str()) => "localhost",
            Place::Socket(host) | Place::Tcp { name: host, .. } => host,
        };
        let login = Login { host, port: server.port, database, user };
        server.password = files::password(&text, login).map(Secret);
    }
}

impl Server {
    /// The name that the server's certificate must contain.
    pub(super) fn name(&self) -> &str {
        match &self.place {
            Place::Socket(name) | Place::Tcp { name, .. } => name,
        }
    }

    pub(super) fn is_on_this_host(&self) -> bool {
        match &self.place {
            Place::Socket(_) => true,
            Place::Tcp { address: Some(address), .. } => address.is_loopback(),
            Place::Tcp { name, address: None } => {
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// PostgreSQL encrypts nothing on a Unix socket.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.place, Place::Socket(_))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(hidden)")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { name, .. } if name.contains(':') => write!(formatter, "[{name}]:{}", self.port),
            _ => write!(formatter, "{}:{}", self.name(), self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::connect::Target;

    #[test]
    fn the_pass_file_serves_each_host_and_only_in_private() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join(".pgpass");
        fs::write(&path, "h1:*:*:me:s3cret1\nlocalhost:*:*:me:s3cret2\n").expect("written");
        let find = |mode, url| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let environment = |name: &str| (name == "HOME").then(|| home.path().display().to_string());
            let target = Target::resolve(Some(url), &environment).expect("a target");
            let password = |server: &Server| server.password.clone().map_or_else(String::new, |secret| secret.0);
            target.servers.iter().map(password).collect::<Vec<_>>().join(",")
        };
        assert_eq!(find(0o600, "user=me host=h1,h2,/tmp"), "s3cret1,,s3cret2");
        assert_eq!(find(0o600, "user=me host=h1 password=given"), "given");
        assert_eq!(find(0o640, "user=me host=h1"), "");
    }
}
