//! The address of a call, and where a redirect leads from there. Pure.

use ureq::http::Uri;
use url::Url;

use crate::job::action;

/// A URL that can be called.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
    /// The address in the form that a request needs.
    pub(super) uri: Uri,
}

impl Endpoint {
    /// The error names the defect of the URL, but no part of it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut url = action::url(text)?;
        url.set_fragment(None);
        let uri = url.as_str().parse().map_err(|error| format!("`url` is not valid: {error}"))?;
        Ok(Self { url, uri })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Resolves a `Location`. Returns `None` if jobctl does not follow it: to another scheme, with
    /// a user name, or from HTTPS to HTTP.
    pub(super) fn follow(&self, location: &str) -> Option<Self> {
        if location.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let next = Self::parse(self.url.join(location).ok()?.as_str()).ok()?;
        (next.is_tls() || !self.is_tls()).then_some(next)
    }

    /// Names the server for the history and the log. Errors do not name it, because viewers read
    /// them.
    pub(super) fn note(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        format!("the server is `{host}:{}`", self.url.port_or_known_default().unwrap_or_default())
    }

    /// Whether both may receive the same headers.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn follows(url: &str, location: &str, to: Option<&str>) {
        let next = Endpoint::parse(url).unwrap().follow(location);
        assert_eq!(next.map(|next| next.uri.to_string()).as_deref(), to, "{location}");
    }

    #[track_caller]
    fn rejects(url: &str, why: &str) {
        let rejected = Endpoint::parse(url).unwrap_err();
        assert!(rejected.contains(why), "{url}: {rejected}");
    }

    #[test]
    fn an_endpoint_has_a_host_a_port_and_maybe_tls() {
        #[track_caller]
        fn case(url: &str, server: &str, is_tls: bool) {
            let endpoint = Endpoint::parse(url).unwrap();
            let note = format!("the server is `{server}`");
            assert_eq!((endpoint.note(), endpoint.is_tls()), (note, is_tls));
        }
        case("http://A.example", "a.example:80", false);
        case("HTTPS://a.example:/x", "a.example:443", true);
        case("http://[::1]:8080/?a@b", "[::1]:8080", false);
    }

    #[test]
    fn a_non_ascii_host_and_path_are_encoded() {
        let endpoint = Endpoint::parse("http://Bücher.example/straße?q=ü#ü").unwrap();
        assert_eq!(endpoint.uri, "http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC");
        follows("http://a/", "/ü", Some("http://a/%C3%BC"));
    }

    #[test]
    fn a_url_that_cannot_be_called_is_rejected() {
        rejects("ftp://a/", "http://");
        rejects("/a", "http://");
        rejects("http://u:p@a/", "user name");
        rejects("http://a:0/", "port");
        for port in ["65536", "99999", "-1", "x"] {
            assert!(Endpoint::parse(&format!("http://a:{port}/")).is_err(), "{port}");
        }
    }

    #[test]
    fn a_location_is_resolved_by_rfc_3986() {
        let base = "http://a/b/c/d?q";
        for (location, to) in [
            ("http://x/y", "http://x/y"),
            ("//x/y", "http://x/y"),
            ("/x?y", "http://a/x?y"),
            ("x", "http://a/b/c/x"),
            ("./x", "http://a/b/c/x"),
            ("../x", "http://a/b/x"),
            ("../../../x", "http://a/x"),
            ("..", "http://a/b/"),
            (".", "http://a/b/c/"),
            ("x/../y", "http://a/b/c/y"),
            ("?y", "http://a/b/c/d?y"),
            ("x#f", "http://a/b/c/x"),
            ("#f", "http://a/b/c/d?q"),
            ("", "http://a/b/c/d?q"),
            ("/x?u=http://y/..", "http://a/x?u=http://y/.."),
            ("https://a/", "https://a/"),
            ("x?y:z", "http://a/b/c/x?y:z"),
        ] {
            follows(base, location, Some(to));
        }
        follows("http://a", "x", Some("http://a/x"));
    }

    #[test]
    fn unsafe_and_malformed_locations_are_not_followed() {
        for location in [
            "ftp://x/",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "http://u@x/",
            "http://x:0/",
            "/a b",
            "\n",
        ] {
            follows("http://a/", location, None);
        }
        follows("https://a/", "http://a/", None);
        follows("https://a/", "//b/", Some("https://b/"));
    }

    #[test]
    fn an_origin_is_host_port_and_security() {
        let same = |one: &str, other: &str| {
            Endpoint::parse(one).unwrap().is_same_origin(&Endpoint::parse(other).unwrap())
        };
        assert!(same("http://a/x", "http://A:80/y"));
        assert!(!same("http://a/", "https://a/"));
        assert!(!same("http://a/", "http://a:8080/"));
        assert!(!same("http://a/", "http://b/"));
    }
}
