//! Which hosts a tick may call, by `--http-allow`. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Host;

/// The hosts that may be called. Without an entry, every host may be.
#[derive(Debug)]
pub(crate) struct HostPolicy(Vec<Entry>);

#[derive(Debug, Eq, PartialEq)]
enum Entry {
    /// `*.example.com`, stored as `.example.com`; `*` is stored as the empty text.
    Below(String),
    Name(String),
    Address(IpAddr),
}

/// The addresses that a host may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    Everywhere,
    /// The owner of a name in an allowed domain must not direct jobctl to this host's network.
    Public,
}

impl HostPolicy {
    /// Fails with the entry that is neither a host name, an address, `*.DOMAIN` nor `*`.
    pub(crate) fn new(allowed: &[String]) -> Result<Self, String> {
        let entries = allowed.iter().map(|entry| {
            Entry::parse(entry).ok_or_else(|| {
                let remedy = match Host::parse(entry) {
                    Ok(Host::Ipv4(address)) => format!("write {address}"),
                    _ => "write a name or an address without scheme and port, *.DOMAIN or *".into(),
                };
                format!("`{}` is not a host; {remedy}", entry.escape_debug())
            })
        });
        entries.collect::<Result<_, _>>().map(Self)
    }

    /// Returns `None` if the host may not be called. The URL was normalized: a host written as
    /// `2130706433` or `0x7f.1` is `127.0.0.1` here.
    pub(super) fn reach(&self, host: &str) -> Option<Reach> {
        if self.0.is_empty() {
            return Some(Reach::Everywhere);
        }
        let host = Entry::exact(host);
        if self.0.contains(&host) {
            return Some(Reach::Everywhere);
        }
        let is_matched = |domain: &String| match &host {
            // RFC 6761: these names always mean this host.
            Entry::Name(name) if name == "localhost" || name.ends_with(".localhost") => false,
            Entry::Name(name) => name.len() > domain.len() && name.ends_with(domain),
            _ => domain.is_empty(),
        };
        let mut entries = self.0.iter();
        entries
            .any(|entry| matches!(entry, Entry::Below(domain) if is_matched(domain)))
            .then_some(Reach::Public)
    }
}

impl Entry {
    /// Reads an entry: `*`, `*.DOMAIN`, a name or an address.
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::Below(String::new()));
        }
        let (wild, name) = entry.strip_prefix("*.").map_or((false, entry), |domain| (true, domain));
        let is_label = |label: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            !label.is_empty() && label.chars().all(is_plain)
        };
        // Reject an address in another form, such as 127.1: in a URL, the same address has the
        // usual form.
        let is_name = |name: &str| matches!(Host::parse(name), Ok(Host::Domain(_)));
        match Self::exact(name) {
            Self::Name(name) if name.split('.').all(is_label) && is_name(&name) => {
                Some(if wild { Self::Below(format!(".{name}")) } else { Self::Name(name) })
            }
            Self::Address(address) if !wild => Some(Self::Address(address)),
            _ => None,
        }
    }

    /// Reads a name or an address, in one form for each.
    fn exact(host: &str) -> Self {
        let host = host.strip_suffix('.').unwrap_or(host);
        bare(host).parse().map_or_else(|_| Self::Name(host.to_ascii_lowercase()), Self::Address)
    }
}

/// A URL's host without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Returns whether an address belongs to the public Internet, by IANA's special-purpose registries.
/// For an IPv6 form of an IPv4 address, the IPv4 address decides.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether an IPv4 address is outside of the special-purpose networks.
fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        // Private networks and this host.
        [0 | 10 | 127, ..] | [100, 64..=127, ..] | [169, 254, ..] | [172, 16..=31, ..]
            | [192, 168, ..]
            // Protocol assignments, 6to4 relays, documentation, benchmarking.
            | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _]
            | [198, 18 | 19, ..]
            // Multicast, reserved, broadcast.
            | [224..=255, ..]
    )
}

/// Whether an IPv6 address is one of the public Internet, or stands for such an IPv4 address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let embedded =
        |high: u16, low: u16| is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (a, b) {
        // NAT64, and 6to4.
        (0x64, 0xff9b) => (c, d, e, f) == (0, 0, 0, 0) && embedded(high, low),
        (0x2002, high) => embedded(high, c),
        // Protocol assignments (Teredo among them), documentation.
        (0x2001, ..0x200 | 0xdb8) | (0x3fff, ..0x1000) => false,
        // Global unicast; outside of it lie loopback, link-local, ULA and multicast.
        (0x2000..0x4000, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str]) -> HostPolicy {
        HostPolicy::new(&allowed.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[track_caller]
    fn reaches(allowed: &[&str], host: &str, reach: Option<Reach>) {
        assert_eq!(policy(allowed).reach(host), reach, "{host}");
    }

    #[test]
    fn every_host_may_be_called_without_a_list() {
        for host in ["example.com", "127.0.0.1", "[::1]"] {
            reaches(&[], host, Some(Reach::Everywhere));
        }
    }

    #[test]
    fn an_exact_host_may_have_any_address() {
        reaches(&["Intern.Example."], "intern.example", Some(Reach::Everywhere));
        reaches(&["intern.example"], "INTERN.example.", Some(Reach::Everywhere));
        reaches(&["127.0.0.1"], "127.0.0.1", Some(Reach::Everywhere));
        reaches(&["::1"], "[0:0::1]", Some(Reach::Everywhere));
        reaches(&["[::1]"], "[::1]", Some(Reach::Everywhere));
        reaches(&["*", "localhost"], "localhost", Some(Reach::Everywhere));
    }

    #[test]
    fn a_wildcard_reaches_public_addresses_only() {
        reaches(&["*"], "127.0.0.1", Some(Reach::Public));
        reaches(&["*"], "localhost.example", Some(Reach::Public));
        reaches(&["*.example.com"], "a.b.EXAMPLE.com.", Some(Reach::Public));
    }

    #[test]
    fn every_other_host_is_rejected() {
        for host in [
            "example.com",
            "badexample.com",
            ".example.com",
            "example.com.evil",
            "a.example.org",
            "",
        ] {
            reaches(&["*.example.com"], host, None);
        }
        for host in ["localhost", "LOCALHOST.", "a.localhost"] {
            reaches(&["*", "*.localhost"], host, None);
        }
        for host in ["127.0.0.1.example", "[::ffff:127.0.0.1]"] {
            reaches(&["127.0.0.1"], host, None);
        }
    }

    #[test]
    fn an_entry_without_a_host_is_rejected() {
        for entry in [
            "",
            " ",
            "http://a",
            "a/b",
            "a b",
            "a:80",
            "[::1]:80",
            "*.",
            "*.*.a",
            "a*",
            "**",
            "a..b",
            ".",
            ".a",
            "u@a",
            "*.127.0.0.1",
            "é",
            "256.1.1.1",
            "1.2.3.4.5",
            "*.1",
        ] {
            let rejected = HostPolicy::new(&[entry.to_owned()]).unwrap_err();
            assert!(rejected.contains("is not a host"), "{entry}");
        }
        for entry in ["127.1", "0x7f.1", "2130706433", "017700000001", "127.0.0.01", "0x7F000001."]
        {
            let rejected = HostPolicy::new(&[entry.to_owned()]).unwrap_err();
            assert_eq!(rejected, format!("`{entry}` is not a host; write 127.0.0.1"));
        }
    }

    #[test]
    fn addresses_of_this_host_and_its_networks_are_not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.1.2.3",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "9.9.9.9",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
            "2002:808:808::",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
