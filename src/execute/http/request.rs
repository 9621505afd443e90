//! What a call sends: its method, headers and body, first where it is made and then where redirects
//! lead. Pure but for the variables that header values name, which a caller passes in; must not
//! know how anything is sent.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::{Method, StatusCode};

use super::HEADER_LIMIT;
use super::redirect::{self, Body, Target};
use crate::action::{self, Http, Part};
use crate::model::{Failure, Identity};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const RUN_ID: HeaderName = HeaderName::from_static("x-jobctl-run-id");
const ATTEMPT: HeaderName = HeaderName::from_static("x-jobctl-attempt");
/// Encodes everything but visible ASCII, and also `%`, so that different keys stay different. Bytes
/// beyond ASCII are always encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) target: Target,
    pub(super) method: Method,
    pub(super) body: Option<&'a str>,
    /// jobctl's own, for whoever is called.
    own: HeaderMap,
    /// The call's, for the origin it names and for nobody else.
    given: HeaderMap,
}

impl<'a> Request<'a> {
    /// # Errors
    /// The call can't be made as it stands, or on this host.
    pub(super) fn new(
        call: &'a Http,
        identity: &Identity,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let target = Target::parse(&call.url).map_err(Failure::BadPayload)?;
        let method = call.method().map_err(Failure::BadPayload)?;
        let mut body = call.json.as_ref().map(|json| json.get()).or(call.body.as_deref());
        if matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            // Sent with a length of zero; many servers refuse these methods without any length.
            body = body.or(Some(""));
        }

        let mut own = HeaderMap::new();
        let key = utf8_percent_encode(&identity.idempotency_key, ENCODED).to_string();
        let key = HeaderValue::try_from(key).expect("a percent-encoded key is visible ASCII");
        own.insert(IDEMPOTENCY_KEY, key);
        own.insert(RUN_ID, identity.run_id.into());
        own.insert(ATTEMPT, identity.attempt.into());
        if call.json.is_some() {
            own.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }

        let mut given = HeaderMap::new();
        for (name, value) in &call.headers {
            let filled = fill(name, value, &variable)?;
            if name.len() + filled.len() > HEADER_LIMIT {
                let why = format!("header `{name}` is longer than {} KiB", HEADER_LIMIT / 1024);
                return Err(Failure::BadPayload(why));
            }
            let (name, mut value) = action::header(name, &filled).map_err(|why| match filled {
                Cow::Borrowed(_) => Failure::BadPayload(why),
                // The variable's value is at fault, and may be another one next time.
                Cow::Owned(_) => Failure::Spawn(why),
            })?;
            value.set_sensitive(true);
            given.insert(name, value);
        }
        Ok(Self { target, method, body, own, given })
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = self.own.clone();
        for (name, value) in &self.given {
            if ![RUN_ID, ATTEMPT].contains(name) {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    /// The request that a redirect asks for; `None` if it is none, or one that is not followed.
    pub(super) fn redirected(&self, status: StatusCode, location: Option<&HeaderValue>) -> Option<Self> {
        let (method, body) = redirect::method(status, &self.method)?;
        let target = self.target.follow(location?.to_str().ok()?)?;
        let mut next = Self {
            method,
            body: self.body,
            own: self.own.clone(),
            given: if target.is_same_origin(&self.target) { self.given.clone() } else { HeaderMap::new() },
            target,
        };
        if body == Body::Dropped {
            next.body = None;
            for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::EXPECT] {
                next.own.remove(&name);
                next.given.remove(&name);
            }
        }
        Some(next)
    }
}

/// Puts the values of variables where a header names them as `${NAME}`; a value is not looked
/// through for further names.
fn fill<'v>(header: &str, value: &'v str, variable: impl Fn(&str) -> Option<String>) -> Result<Cow<'v, str>, Failure> {
    let parts = action::parts(header, value).map_err(Failure::BadPayload)?;
    if let [Part::Text(plain)] = parts[..] {
        return Ok(plain.into());
    }
    let mut filled = String::new();
    for part in parts {
        match part {
            Part::Text(text) => filled.push_str(text),
            Part::Variable(name) => {
                let absent = || Failure::Spawn(format!("header `{header}` names a variable that is not set"));
                filled.push_str(&variable(name).ok_or_else(absent)?);
            }
        }
    }
    Ok(filled.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;

    fn http(payload: &str) -> Http {
        match Action::parse("http", payload) {
            Some(Ok(Action::Http(http))) => http,
            other => panic!("{other:?}"),
        }
    }

    fn identity() -> Identity {
        Identity {
            run_id: 42,
            job: "http".to_owned(),
            attempt: 3,
            max_attempts: 10,
            idempotency_key: "weekly é\n1".to_owned(),
            scheduled_for: None,
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

    fn shown(request: &Request) -> Vec<String> {
        let headers = request.headers();
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[track_caller]
    fn fills(value: &str, filled: &str) {
        assert_eq!(fill("X", value, variable).unwrap(), filled);
    }

    #[track_caller]
    fn refuses(value: &str, failure: Failure) {
        assert_eq!(fill("X", value, variable), Err(failure));
    }

    #[test]
    fn variables_are_filled_in() {
        fills("plain $TOKEN {TOKEN} $", "plain $TOKEN {TOKEN} $");
        fills("Bearer ${TOKEN}", "Bearer s3cret");
        fills("${TOKEN}${TOKEN}}", "s3crets3cret}");
        fills("${NESTED}", "${TOKEN}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_a_failure_that_may_pass() {
        refuses("${ABSENT}", Failure::Spawn("header `X` names a variable that is not set".to_owned()));
    }

    #[test]
    fn a_filled_in_value_can_not_smuggle_a_header() {
        let call = http(r#"{"url": "http://a/", "headers": {"X": "${BROKEN}"}}"#);
        let refused = Request::new(&call, &identity(), variable).unwrap_err();
        assert_eq!(refused, Failure::Spawn("header `X` has a character that HTTP does not allow".to_owned()));
    }

    #[test]
    fn different_idempotency_keys_are_sent_differently() {
        let sent = |key: &str| {
            let identity = Identity { idempotency_key: key.to_owned(), ..identity() };
            let call = http(r#"{"url": "http://a/"}"#);
            let request = Request::new(&call, &identity, variable).unwrap();
            request.headers()[IDEMPOTENCY_KEY].to_str().unwrap().to_owned()
        };
        assert_eq!(["pay 1", "pay%201", "pay%25201"].map(sent), ["pay%201", "pay%25201", "pay%2525201"]);
        assert_eq!(["é", "%C3%A9", "a-b_c:1"].map(sent), ["%C3%A9", "%25C3%25A9", "a-b_c:1"]);
    }

    #[test]
    fn a_call_says_which_attempt_of_which_run_it_is() {
        let call = http(r#"{"url": "http://a/", "json": [1], "headers": {"X-Jobctl-Attempt": "9"}}"#);
        let request = Request::new(&call, &identity(), variable).unwrap();
        assert_eq!(
            shown(&request),
            [
                "content-type: application/json",
                "idempotency-key: weekly%20%C3%A9%0A1",
                "x-jobctl-attempt: 3",
                "x-jobctl-run-id: 42"
            ]
        );
        assert_eq!((request.method, request.body), (Method::POST, Some("[1]")));
    }

    #[test]
    fn a_call_may_set_its_own_type_and_key() {
        let call = http(
            r#"{"url": "http://a/", "json": 1, "headers": {"Content-Type": "application/x", "idempotency-KEY": "k"}}"#,
        );
        let request = Request::new(&call, &identity(), variable).unwrap();
        assert_eq!(shown(&request)[..2], ["content-type: application/x", "idempotency-key: k"]);
    }

    #[test]
    fn methods_that_need_a_body_send_an_empty_one() {
        let body = |payload: &str| Request::new(&http(payload), &identity(), variable).unwrap().body.map(str::len);
        assert_eq!(body(r#"{"url": "http://a/", "method": "POST"}"#), Some(0));
        assert_eq!(body(r#"{"url": "http://a/"}"#), None);
        assert_eq!(body(r#"{"url": "http://a/", "method": "DELETE"}"#), None);
    }

    #[test]
    fn a_redirect_to_another_origin_learns_nothing_from_the_headers() {
        let call = http(
            r#"{"url": "http://a/", "json": 1, "headers": {"Authorization": "Bearer ${TOKEN}", "X-Api-Key": "k"}}"#,
        );
        let request = Request::new(&call, &identity(), variable).unwrap();
        let to = |status: u16, location: &'static str| {
            let location = HeaderValue::from_static(location);
            request.redirected(StatusCode::from_u16(status).unwrap(), Some(&location)).unwrap()
        };
        assert_eq!(shown(&to(307, "/b")), shown(&request));
        assert_eq!(shown(&to(302, "/b")).len(), 5);
        for location in ["http://b/", "http://a:81/", "https://a/"] {
            let next = to(308, location);
            assert_eq!((next.method.as_str(), next.body), ("POST", Some("1")));
            assert!(shown(&next).iter().all(|line| !line.contains("s3cret") && !line.contains("x-api-key")));
            // Coming back gives nothing back.
            let back = next.redirected(StatusCode::FOUND, Some(&HeaderValue::from_static("https://a/")));
            assert!(back.is_none_or(|back| back.given.is_empty() && back.body.is_none()));
        }
    }
}
