//! Where a URL leads and where a redirect leads from there. Pure: it must not know what is sent
//! there.

use ureq::http::{Method, StatusCode, Uri};
use url::Url;

use crate::action;

/// A URL that can be called.
#[derive(Clone, Debug)]
pub(super) struct Target {
    url: Url,
    /// The address in the form that a request needs.
    pub(super) uri: Uri,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Security {
    Plain,
    Tls,
}

impl Target {
    /// # Errors
    /// What is wrong with the URL, without any part of it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        action::url(text).and_then(Self::new)
    }

    fn new(mut url: Url) -> Result<Self, String> {
        url.set_fragment(None);
        let uri = url.as_str().parse().map_err(|error| format!("`url` is not valid: {error}"))?;
        let (security, usual) = if url.scheme() == "https" { (Security::Tls, 443) } else { (Security::Plain, 80) };
        let host = url.host_str().unwrap_or_default().to_owned();
        Ok(Self { host, port: url.port().unwrap_or(usual), security, uri, url })
    }

    /// Where a `Location` leads; `None` where that is nothing jobctl follows: another scheme, user
    /// names, a step back to plain HTTP.
    pub(super) fn follow(&self, location: &str) -> Option<Self> {
        if location.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let next = Self::parse(self.url.join(location).ok()?.as_str()).ok()?;
        (self.security == Security::Plain || next.security == Security::Tls).then_some(next)
    }

    /// Names the server for the history and the log. Errors do not name it, because viewers read
    /// them.
    pub(super) fn note(&self) -> String {
        format!("the server is `{}:{}`", self.host, self.port)
    }

    /// Whether what is meant for one may be told to the other.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        (self.security, &self.host, self.port) == (other.security, &other.host, other.port)
    }
}

/// What happens to the body on the way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Body {
    Repeated,
    Dropped,
}

/// The method of the next request; `None` where the status sends nobody anywhere.
pub(super) fn method(status: StatusCode, method: &Method) -> Option<(Method, Body)> {
    match (status.as_u16(), method) {
        (301..=303, &Method::GET | &Method::HEAD) | (307 | 308, _) => Some((method.clone(), Body::Repeated)),
        (301..=303, _) => Some((Method::GET, Body::Dropped)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn leads(url: &str, location: &str, to: Option<&str>) {
        let target = Target::parse(url).unwrap().follow(location);
        assert_eq!(target.map(|target| target.uri.to_string()).as_deref(), to, "{location}");
    }

    #[track_caller]
    fn refuses(url: &str, why: &str) {
        let refused = Target::parse(url).unwrap_err();
        assert!(refused.contains(why), "{url}: {refused}");
    }

    #[test]
    fn a_target_knows_host_port_and_security() {
        let target = |url: &str| {
            let target = Target::parse(url).unwrap();
            (target.host, target.port, target.security)
        };
        assert_eq!(target("http://A.example"), ("a.example".to_owned(), 80, Security::Plain));
        assert_eq!(target("HTTPS://a.example:/x"), ("a.example".to_owned(), 443, Security::Tls));
        assert_eq!(target("http://[::1]:8080/?a@b"), ("[::1]".to_owned(), 8080, Security::Plain));
    }

    #[test]
    fn a_host_and_a_path_beyond_ascii_are_encoded() {
        let target = Target::parse("http://Bücher.example/straße?q=ü#ü").unwrap();
        assert_eq!(target.host, "xn--bcher-kva.example");
        assert_eq!(target.uri, "http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC");
        leads("http://a/", "/ü", Some("http://a/%C3%BC"));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        refuses("ftp://a/", "http://");
        refuses("/a", "http://");
        refuses("http://u:p@a/", "user name");
        refuses("http://a:0/", "port");
        for port in ["65536", "99999", "-1", "x"] {
            assert!(Target::parse(&format!("http://a:{port}/")).is_err(), "{port}");
        }
    }

    #[test]
    fn a_location_is_resolved_as_rfc_3986_says() {
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
            leads(base, location, Some(to));
        }
        leads("http://a", "x", Some("http://a/x"));
    }

    #[test]
    fn some_locations_are_not_followed() {
        for location in
            ["ftp://x/", "javascript:alert(1)", "file:///etc/passwd", "http://u@x/", "http://x:0/", "/a b", "\n"]
        {
            leads("http://a/", location, None);
        }
        leads("https://a/", "http://a/", None);
        leads("https://a/", "//b/", Some("https://b/"));
    }

    #[test]
    fn an_origin_is_host_port_and_security() {
        let same = |one: &str, other: &str| Target::parse(one).unwrap().is_same_origin(&Target::parse(other).unwrap());
        assert!(same("http://a/x", "http://A:80/y"));
        assert!(!same("http://a/", "https://a/"));
        assert!(!same("http://a/", "http://a:8080/"));
        assert!(!same("http://a/", "http://b/"));
    }

    #[test]
    fn a_redirect_keeps_the_method_or_makes_it_a_get() {
        #[track_caller]
        fn case(status: u16, from: Method, next: Option<(Method, Body)>) {
            assert_eq!(method(StatusCode::from_u16(status).unwrap(), &from), next, "{status}");
        }
        for status in [301, 302, 303] {
            case(status, Method::POST, Some((Method::GET, Body::Dropped)));
            case(status, Method::DELETE, Some((Method::GET, Body::Dropped)));
            case(status, Method::GET, Some((Method::GET, Body::Repeated)));
            case(status, Method::HEAD, Some((Method::HEAD, Body::Repeated)));
        }
        for status in [307, 308] {
            case(status, Method::POST, Some((Method::POST, Body::Repeated)));
        }
        for status in [200, 300, 304, 305, 306] {
            case(status, Method::GET, None);
        }
    }
}
