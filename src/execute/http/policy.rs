//! Which hosts a tick may call, by `--http-allow`. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Host;

/// The hosts that may be called. Without an entry, every host may be.
#[derive(Debug)]
pub(crate) struct HostPolicy(Vec<Entry>);

/// An entry of `--http-allow`.
#[derive(Debug, Eq, PartialEq)]
enum Entry {
    /// A pattern: `*.example.com` is stored as `.example.com`, and `*` as the empty text.
    Below(String),
    Name(String),
    Address(IpAddr),
}

/// The addresses to which the name of a host may lead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    /// Any address.
    Everywhere,
    /// Only addresses of the public Internet. The owner of a name in an allowed domain must not
    /// direct jobctl to this host's network.
    Public,
}

impl HostPolicy {
    /// Returns the policy with these entries. Fails with an entry that is neither a host name, an
    /// address, `*.DOMAIN` nor `*`.
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

    /// Returns whether a host may be called, and at which addresses:
    ///
    /// - If there are no entries, or if an entry is exactly this host: at any address.
    /// - If only a pattern (`*.DOMAIN` or `*`) matches the host: at public addresses.
    /// - Otherwise `None`: the host may not be called.
    ///
    /// `host` comes from a normalized URL, which has `127.0.0.1` instead of `2130706433` or
    /// `0x7f.1`.
    pub(super) fn reach(&self, host: &str) -> Option<Reach> {
        let Self(entries) = self;
        if entries.is_empty() {
            return Some(Reach::Everywhere);
        }
        let host = Entry::exact(host);
        if entries.contains(&host) {
            return Some(Reach::Everywhere);
        }
        let is_matched = entries.iter().any(|entry| entry.is_pattern_of(&host));
        if is_matched { Some(Reach::Public) } else { None }
    }
}

impl Entry {
    /// Reads an entry: `*`, `*.DOMAIN`, a name or an address. Returns `None` for anything else.
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::Below(String::new()));
        }
        let (is_pattern, name) = match entry.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, entry),
        };
        let is_label = |label: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            !label.is_empty() && label.chars().all(is_plain)
        };
        // Reject an address in another form, such as 127.1. It would match no host, because a
        // normalized URL has this address in the usual form.
        let is_name = |name: &str| matches!(Host::parse(name), Ok(Host::Domain(_)));
        match Self::exact(name) {
            Self::Name(name) if name.split('.').all(is_label) && is_name(&name) => {
                Some(if is_pattern { Self::Below(format!(".{name}")) } else { Self::Name(name) })
            }
            Self::Address(address) if !is_pattern => Some(Self::Address(address)),
            _ => None,
        }
    }

    /// Reads a name or an address. Names that mean the same become equal: in lower case, and
    /// without a dot at the end.
    fn exact(host: &str) -> Self {
        let host = host.strip_suffix('.').unwrap_or(host);
        match bare(host).parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(host.to_ascii_lowercase()),
        }
    }

    /// Whether this is a pattern that matches a host.
    fn is_pattern_of(&self, host: &Self) -> bool {
        let Self::Below(domain) = self else { return false };
        match host {
            // RFC 6761: these names always mean this host, so only an exact entry allows them.
            Self::Name(name) if name == "localhost" || name.ends_with(".localhost") => false,
            // `*.example.com` does not match `.example.com`, and `*` not the empty name.
            Self::Name(name) => name.len() > domain.len() && name.ends_with(domain.as_str()),
            // Of all patterns, only `*` matches an address.
            Self::Address(_) | Self::Below(_) => domain.is_empty(),
        }
    }
}

/// Returns a URL's host without the brackets of an IPv6 address.
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
    let [a, b, c, d, e, f, g, h] = address.segments();
    let is_public_embedded =
        |high: u16, low: u16| is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (a, b) {
        // NAT64 has the IPv4 address at its end, and 6to4 behind its prefix.
        (0x64, 0xff9b) => (c, d, e, f) == (0, 0, 0, 0) && is_public_embedded(g, h),
        (0x2002, _) => is_public_embedded(b, c),
        // Protocol assignments (Teredo among them), documentation.
        (0x2001, ..0x200 | 0xdb8) | (0x3fff, ..0x1000) => false,
        // Global unicast. Loopback, link-local, ULA and multicast are outside of it.
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
