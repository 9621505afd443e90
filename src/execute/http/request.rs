//! The request of a call, and those after its redirects: address, method, headers and body. Pure:
//! the caller passes in the variables that header values name.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode, utf8_percent_encode};
use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::{StatusCode, Uri};
use url::Url;

use super::{HEADER_LIMIT, answer};
use crate::job::action::{self, Http, Method};
use crate::job::attempt::AttemptIdentity;
use crate::job::failure::{Failure, is_redirect};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const RUN_ID: HeaderName = HeaderName::from_static("x-jobctl-run-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const ATTEMPT: HeaderName = HeaderName::from_static("x-jobctl-attempt");
/// The characters that are encoded in an idempotency key: all but visible ASCII. Also `%`, so that
/// different keys stay different. Bytes beyond ASCII are always encoded.
const ENCODED: &AsciiSet = &BLANK.add(b'%');
/// The characters that are encoded in a `Location`.
const BLANK: &AsciiSet = &CONTROLS.add(b' ');

/// Why a request can't be made, with a note for the history and the log, which viewers don't read.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Unsendable {
    pub(super) failure: Failure,
    pub(super) note: Option<String>,
}

impl From<Failure> for Unsendable {
    fn from(failure: Failure) -> Self {
        Self { failure, note: None }
    }
}

/// A request that can be sent.
#[derive(Clone, Debug)]
pub(super) struct HttpRequest<'a> {
    pub(super) endpoint: Endpoint,
    pub(super) method: Method,
    pub(super) body: Option<&'a str>,
    /// All headers. Those of the job are only for the origin of its URL.
    pub(super) headers: HeaderMap,
    /// jobctl's own headers, for every server.
    own_headers: HeaderMap,
}

impl<'a> HttpRequest<'a> {
    /// Returns the request of a call. `variable` looks up the variables that its headers name.
    /// Fails if the call is not valid, or can't be made on this host.
    pub(super) fn new(
        call: &'a Http,
        identity: &AttemptIdentity,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Unsendable> {
        let endpoint = Endpoint::parse(&call.url).map_err(Failure::BadPayload)?;
        let method = call.method().map_err(Failure::BadPayload)?;
        let mut body = call.json.as_ref().map(|json| json.get()).or(call.body.as_deref());
        if matches!(method, Method::Post | Method::Put | Method::Patch) {
            // Send an empty body with `Content-Length: 0`: without this header, many servers refuse
            // these methods.
            body = body.or(Some(""));
        }

        let encoded_key = utf8_percent_encode(&identity.idempotency_key, ENCODED).to_string();
        let key = HeaderValue::try_from(encoded_key);
        let key = key.expect("a percent-encoded key is visible ASCII");
        let mut own_headers = HeaderMap::from_iter([
            (IDEMPOTENCY_KEY, key),
            (RUN_ID, identity.run_id.into()),
            (ATTEMPT, identity.attempt.into()),
        ]);
        if let Some(traceparent) = &identity.traceparent
            && let Ok(value) = HeaderValue::try_from(traceparent)
        {
            own_headers.insert(TRACEPARENT, value);
        }
        if call.json.is_some() {
            own_headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }

        let mut headers = own_headers.clone();
        for (name, value) in &call.headers {
            let filled = fill(name, value, &variable)?;
            if name.len() + filled.len() > HEADER_LIMIT {
                let why = format!("header `{name}` is longer than {} KiB", HEADER_LIMIT / 1024);
                return Err(Failure::BadPayload(why).into());
            }
            let (name, mut value) = checked(name, &filled).map_err(|why| match filled {
                Cow::Borrowed(_) => Failure::BadPayload(why),
                // The value of a variable is wrong. It may change, so allow another attempt.
                Cow::Owned(_) => Failure::Spawn(why),
            })?;
            value.set_sensitive(true);
            // A job may replace jobctl's own headers, except these two.
            if ![RUN_ID, ATTEMPT].contains(&name) {
                headers.insert(name, value);
            }
        }
        Ok(Self { endpoint, method, body, headers, own_headers })
    }

    /// Whether the server may get the request twice, because that has the same effect as once (RFC
    /// 9110, section 9.2.2).
    pub(super) fn is_idempotent(&self) -> bool {
        !matches!(self.method, Method::Post | Method::Patch)
    }

    /// Returns the next request after a redirect, or why jobctl does not follow it.
    pub(super) fn redirected(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Self, &'static str> {
        if !is_redirect(status.as_u16()) {
            return Err("its status is not one of a redirect");
        }
        // Whether the next request has the same method. Otherwise it is a GET without a body.
        let keeps_method = match status.as_u16() {
            303 => matches!(self.method, Method::Get | Method::Head),
            // Browsers and curl change only POST to GET. With another method changed to GET, the
            // call would not do what it asks for.
            301 | 302 => self.method != Method::Post,
            _ => true,
        };
        let location =
            answer::only(headers, header::LOCATION).ok_or("it has no Location, or several")?;
        let endpoint = self.endpoint.follow(location.as_bytes())?;
        let mut next = Self { endpoint, ..self.clone() };
        if !next.endpoint.is_same_origin(&self.endpoint) {
            // Headers of the job may contain secrets for the first server only.
            next.headers.clone_from(&next.own_headers);
        }
        if !keeps_method {
            (next.method, next.body) = (Method::Get, None);
            use header::{CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPECT};
            for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, EXPECT] {
                next.own_headers.remove(&name);
                next.headers.remove(&name);
            }
        }
        Ok(next)
    }
}

/// A URL that can be called.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
    /// The address in the form that a request needs.
    pub(super) uri: Uri,
}

impl Endpoint {
    /// Reads a URL. The error names the defect of the URL, but no part of it, which may be secret.
    fn parse(text: &str) -> Result<Self, String> {
        let mut url = action::url(text)?;
        // A fragment is not sent to servers.
        url.set_fragment(None);
        let uri = url.as_str().parse().map_err(|error| format!("`url` is not valid: {error}"))?;
        Ok(Self { url, uri })
    }

    /// Whether the server is called over https.
    pub(super) fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns the URL that a `Location` in an answer from this one means, or why jobctl does not
    /// follow it.
    fn follow(&self, location: &[u8]) -> Result<Self, &'static str> {
        let invalid = "its Location is not valid, or has another scheme or a user name";
        if location.is_empty() || location.iter().any(u8::is_ascii_control) {
            return Err(invalid);
        }
        // Servers also send blanks and UTF-8, which a URL must not contain.
        let location = percent_encode(location, BLANK).to_string();
        let url = self.url.join(&location).map_err(|_| invalid)?;
        let next = Self::parse(url.as_str()).map_err(|_| invalid)?;
        if self.is_tls() && !next.is_tls() {
            return Err("it leads from https to http");
        }
        Ok(next)
    }

    /// Returns a note that names the server, for the history and the log. Errors do not name it,
    /// because viewers read them.
    pub(super) fn note(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        format!("the server is `{host}:{}`", self.url.port_or_known_default().unwrap_or_default())
    }

    /// Whether both URLs have the same scheme, host and port, so that they may get the same
    /// headers.
    fn is_same_origin(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
    }
}

/// Returns a header as ureq needs it. Fails if a call must not have it.
fn checked(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    action::check_header(name, value)?;
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
    Ok((name, HeaderValue::from_str(value).map_err(|error| error.to_string())?))
}

/// Returns the value of a header in which each `${NAME}` is replaced by what `variable` returns for
/// the name. Does so once: the value of a variable is not searched for further names. Returns
/// `Cow::Borrowed` if the value names no variable.
fn fill<'v>(
    header: &str,
    value: &'v str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Cow<'v, str>, Unsendable> {
    let parts = action::parts(header, value).map_err(Failure::BadPayload)?;
    if let [(plain, None)] = parts[..] {
        return Ok(plain.into());
    }
    let mut filled = String::new();
    for (text, name) in parts {
        filled.push_str(text);
        let Some(name) = name else { continue };
        match variable(name) {
            Some(set) if !set.is_empty() => filled.push_str(&set),
            _ => {
                let why = format!("header `{header}` names a variable that is unset or empty");
                let note = Some(format!("the variable is `{name}`"));
                return Err(Unsendable { failure: Failure::Spawn(why), note });
            }
        }
    }
    Ok(filled.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::action::Action;

    fn http(payload: &str) -> Http {
        match Action::parse("http", payload) {
            Some(Ok(Action::Http(http))) => http,
            other => panic!("{other:?}"),
        }
    }

    fn identity() -> AttemptIdentity {
        AttemptIdentity {
            run_id: 42,
            job: "http".to_owned(),
            attempt: 3,
            max_attempts: 10,
            idempotency_key: "weekly é\n1".to_owned(),
            scheduled_for: None,
            after: None,
            traceparent: None,
        }
    }

    fn variable(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("s3cret".to_owned()),
            "NESTED" => Some("${TOKEN}".to_owned()),
            "BROKEN" => Some("a\r\nX-Smuggled: b".to_owned()),
            _ => None,
        }
    }

    fn shown(request: &HttpRequest) -> Vec<String> {
        let mut lines: Vec<String> = request
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    }

    #[track_caller]
    fn fills(value: &str, filled: &str) {
        assert_eq!(fill("X", value, variable).unwrap(), filled);
    }

    #[track_caller]
    fn rejects(value: &str, failure: Failure, note: Option<&str>) {
        let note = note.map(str::to_owned);
        assert_eq!(fill("X", value, variable), Err(Unsendable { failure, note }));
    }

    #[test]
    fn variables_are_replaced_by_their_values() {
        fills("plain $TOKEN {TOKEN} $", "plain $TOKEN {TOKEN} $");
        fills("Bearer ${TOKEN}", "Bearer s3cret");
        fills("${TOKEN}${TOKEN}}", "s3crets3cret}");
        fills("${NESTED}", "${TOKEN}");
    }

    #[test]
    fn a_missing_variable_is_a_transient_failure() {
        rejects(
            "${ABSENT}",
            Failure::Spawn("header `X` names a variable that is unset or empty".to_owned()),
            Some("the variable is `ABSENT`"),
        );
    }

    #[test]
    fn a_variable_cannot_smuggle_in_a_header() {
        let call = http(r#"{"url": "http://a/", "headers": {"X": "${BROKEN}"}}"#);
        let rejected = HttpRequest::new(&call, &identity(), variable).unwrap_err();
        assert_eq!(
            rejected.failure,
            Failure::Spawn("header `X` has a character that HTTP does not allow".to_owned())
        );
    }

    #[test]
    fn different_idempotency_keys_are_sent_differently() {
        let sent = |key: &str| {
            let identity = AttemptIdentity { idempotency_key: key.to_owned(), ..identity() };
            let call = http(r#"{"url": "http://a/"}"#);
            let request = HttpRequest::new(&call, &identity, variable).unwrap();
            request.headers[IDEMPOTENCY_KEY].to_str().unwrap().to_owned()
        };
        assert_eq!(
            ["pay 1", "pay%201", "pay%25201"].map(sent),
            ["pay%201", "pay%25201", "pay%2525201"]
        );
        assert_eq!(["é", "%C3%A9", "a-b_c:1"].map(sent), ["%C3%A9", "%25C3%25A9", "a-b_c:1"]);
    }

    #[test]
    fn a_call_names_its_run_and_attempt() {
        let call =
            http(r#"{"url": "http://a/", "json": [1], "headers": {"X-Jobctl-Attempt": "9"}}"#);
        let request = HttpRequest::new(&call, &identity(), variable).unwrap();
        assert_eq!(
            shown(&request),
            [
                "content-type: application/json",
                "idempotency-key: weekly%20%C3%A9%0A1",
                "x-jobctl-attempt: 3",
                "x-jobctl-run-id: 42"
            ]
        );
        assert_eq!((request.method, request.body), (Method::Post, Some("[1]")));
    }

    #[test]
    fn a_call_may_set_its_own_type_and_key() {
        let call = http(
            r#"{"url": "http://a/", "json": 1,
                "headers": {"Content-Type": "application/x", "idempotency-KEY": "k"}}"#,
        );
        let request = HttpRequest::new(&call, &identity(), variable).unwrap();
        assert_eq!(shown(&request)[..2], ["content-type: application/x", "idempotency-key: k"]);
    }

    #[test]
    fn methods_that_need_a_body_send_an_empty_one() {
        let body = |payload: &str| {
            HttpRequest::new(&http(payload), &identity(), variable).unwrap().body.map(str::len)
        };
        assert_eq!(body(r#"{"url": "http://a/", "method": "POST"}"#), Some(0));
        assert_eq!(body(r#"{"url": "http://a/"}"#), None);
        assert_eq!(body(r#"{"url": "http://a/", "method": "DELETE"}"#), None);
    }

    #[test]
    fn a_redirect_to_another_origin_drops_the_jobs_headers() {
        let call = http(
            r#"{"url": "http://a/", "json": 1,
                "headers": {"Authorization": "Bearer ${TOKEN}", "X-Api-Key": "k"}}"#,
        );
        let request = HttpRequest::new(&call, &identity(), variable).unwrap();
        let to = |status: u16, location: &'static str| {
            request
                .redirected(StatusCode::from_u16(status).unwrap(), &locations([location]))
                .unwrap()
        };
        assert_eq!(shown(&to(307, "/b")), shown(&request));
        assert_eq!(shown(&to(302, "/b")).len(), 5);
        for location in ["http://b/", "http://a:81/", "https://a/"] {
            let next = to(308, location);
            assert_eq!((next.method.as_str(), next.body), ("POST", Some("1")));
            assert!(
                shown(&next)
                    .iter()
                    .all(|line| !line.contains("s3cret") && !line.contains("x-api-key"))
            );
            // A redirect back to the first server does not restore the job's headers and body.
            let back = next.redirected(StatusCode::FOUND, &locations(["https://a/"]));
            assert!(back.is_ok_and(|back| back.headers == back.own_headers && back.body.is_none()));
        }
    }

    #[test]
    fn a_redirect_keeps_the_method_or_changes_it_to_get() {
        #[track_caller]
        fn case(status: u16, from: &str, next: Option<(&str, Option<&str>)>) {
            let call = http(&format!(r#"{{"url": "http://a/", "method": "{from}", "body": "b"}}"#));
            let request = HttpRequest::new(&call, &identity(), variable).unwrap();
            let to = request.redirected(StatusCode::from_u16(status).unwrap(), &locations(["/b"]));
            let to = to.as_ref().map(|to| (to.method.as_str(), to.body));
            assert_eq!(to.ok(), next, "{status}");
        }
        for status in [301, 302, 303, 307, 308] {
            for method in Method::ALL.map(Method::as_str) {
                let is_get = match status {
                    301 | 302 => method == "POST",
                    303 => !["GET", "HEAD"].contains(&method),
                    _ => false,
                };
                let repeated = (method, Some("b"));
                case(status, method, Some(if is_get { ("GET", None) } else { repeated }));
            }
        }
        for status in [200, 300, 304, 305, 306] {
            case(status, "GET", None);
        }
    }

    /// The headers of an answer with these locations.
    fn locations<const N: usize>(values: [&'static str; N]) -> HeaderMap {
        let values = values.map(HeaderValue::from_static);
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::LOCATION, value);
        }
        headers
    }

    #[test]
    fn several_different_locations_are_not_followed() {
        let call = http(r#"{"url": "http://a/"}"#);
        let request = HttpRequest::new(&call, &identity(), variable).unwrap();
        let is_followed =
            |headers: HeaderMap| request.redirected(StatusCode::FOUND, &headers).is_ok();
        assert!(is_followed(locations(["/b", "/b"])));
        assert!(!is_followed(locations(["/b", "/c"])));
        assert!(!is_followed(locations([])));
    }

    #[track_caller]
    fn follows(url: &str, location: impl AsRef<[u8]>, to: Option<&str>) {
        let next = Endpoint::parse(url).unwrap().follow(location.as_ref()).ok();
        let next = next.map(|next| next.uri.to_string());
        assert_eq!(next.as_deref(), to, "{}", location.as_ref().escape_ascii());
    }

    #[track_caller]
    fn rejects_url(url: &str, why: &str) {
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
        for (location, to) in [
            ("/ü", "http://a/%C3%BC"),
            ("/%C3%BC/100%", "http://a/%C3%BC/100%"),
            ("/a b?c d#e f", "http://a/a%20b?c%20d"),
            ("http://Bücher.example/ß", "http://xn--bcher-kva.example/%C3%9F"),
        ] {
            follows("http://a/", location, Some(to));
        }
        follows("http://a/", b"/\xfc", Some("http://a/%FC"));
    }

    #[test]
    fn a_url_that_cannot_be_called_is_rejected() {
        rejects_url("ftp://a/", "http://");
        rejects_url("/a", "http://");
        rejects_url("http://u:p@a/", "user name");
        rejects_url("http://a:0/", "port");
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
            "http://a b/",
            "/a\tb",
            "\n",
            "",
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
