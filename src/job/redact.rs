//! Removes secrets from a built-in job's payload before it is shown. Secrets belong in the tick's
//! environment, but some payloads contain them. Pure.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use crate::job::action;

const REDACTED: &str = "[redacted]";

type Members = BTreeMap<String, Box<RawValue>>;

/// Redacts the values of headers (but not `${NAME}`), the values of the environment, and the query
/// of the URL. Shows the payload of a defined job and the body of a call, because they are data.
pub(crate) fn payload(job: &str, payload: &str) -> Box<RawValue> {
    if !action::is_built_in(job) {
        return RawValue::from_string(payload.to_owned()).unwrap_or_else(|_| redacted());
    }
    members(payload, |name, value| match name.to_ascii_lowercase().as_str() {
        "headers" | "env" => members(value.get(), |_, value| text(value, literals)),
        "url" => text(value, url),
        _ => value.to_owned(),
    })
}

fn redacted() -> Box<RawValue> {
    to_raw_value(REDACTED).expect("a string is JSON")
}

/// Replaces each value of an object by what `redact` returns for its name and value.
fn members(object: &str, redact: impl Fn(&str, &RawValue) -> Box<RawValue>) -> Box<RawValue> {
    let Ok(mut members) = serde_json::from_str::<Members>(object) else { return redacted() };
    members.iter_mut().for_each(|(name, value)| *value = redact(name, value));
    to_raw_value(&members).unwrap_or_else(|_| redacted())
}

/// Replaces a JSON string by what `redact` returns for its text.
fn text(value: &RawValue, redact: impl Fn(&str) -> String) -> Box<RawValue> {
    let text = serde_json::from_str::<String>(value.get()).ok();
    text.and_then(|text| to_raw_value(&redact(&text)).ok()).unwrap_or_else(redacted)
}

/// Redacts all but `${NAME}`.
fn literals(value: &str) -> String {
    let Ok(parts) = action::parts("", value) else { return REDACTED.to_owned() };
    let shown = parts.into_iter().map(|(text, variable)| {
        let text = if text.is_empty() { "" } else { REDACTED };
        variable.map_or_else(|| text.to_owned(), |name| format!("{text}${{{name}}}"))
    });
    shown.collect()
}

/// Redacts all but scheme, host and path.
fn url(url: &str) -> String {
    let (base, query) = match url.find(['?', '#']) {
        Some(at) => (&url[..at], format!("{}{REDACTED}", &url[at..=at])),
        None => (url, String::new()),
    };
    // jobctl refuses a URL with a user name, but a rejected payload may still contain a password.
    let base = match (base.find("://"), base.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}{REDACTED}{}", &base[..scheme + 3], &base[at..])
        }
        (None, Some(at)) => format!("{REDACTED}{}", &base[at..]),
        _ => base.to_owned(),
    };
    base + &query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shows(job: &str, stored: &str, shown: &str) {
        assert_eq!(payload(job, stored).get(), shown);
    }

    #[test]
    fn headers_keep_only_the_names_of_variables() {
        shows(
            "http",
            concat!(
                r#"{"url": "https://a/b", "headers": {"authorization": "Bearer s3cret", "#,
                r#""x": "Bearer ${TOKEN}", "y": "${A}${B}", "z": "${PGPASSWORD}"}}"#
            ),
            concat!(
                r#"{"headers":{"authorization":"[redacted]","x":"[redacted]${TOKEN}","#,
                r#""y":"${A}${B}","z":"[redacted]"},"url":"https://a/b"}"#
            ),
        );
        shows("http", r#"{"headers": {"a": ["s3cret"]}}"#, r#"{"headers":{"a":"[redacted]"}}"#);
        shows("http", r#"{"Headers": "authorization: s3cret"}"#, r#"{"Headers":"[redacted]"}"#);
    }

    #[test]
    fn a_url_keeps_host_and_path() {
        for (stored, shown) in [
            ("https://a.example/b?token=s3cret&x=1", "https://a.example/b?[redacted]"),
            ("https://a.example/b#s3cret", "https://a.example/b#[redacted]"),
            ("https://user:s3cret@a.example/b", "https://[redacted]@a.example/b"),
            ("user:s3cret@a.example", "[redacted]@a.example"),
            ("https://a.example/?q=ü", "https://a.example/?[redacted]"),
        ] {
            shows("http", &format!(r#"{{"url": "{stored}"}}"#), &format!(r#"{{"url":"{shown}"}}"#));
        }
        shows("http", r#"{"url": ["https://a?s3cret"]}"#, r#"{"url":"[redacted]"}"#);
    }

    #[test]
    fn bodies_and_payloads_of_defined_jobs_are_not_redacted() {
        let long = r#"{"json": {"n": 12345678901234567890123, "url": "x?y"}}"#;
        shows("http", long, r#"{"json":{"n": 12345678901234567890123, "url": "x?y"}}"#);
        shows("report", r#"{"headers": {"a": "b"}}"#, r#"{"headers": {"a": "b"}}"#);
        shows(
            "shell",
            r#"{"command": "x", "env": {"A": "s3cret"}}"#,
            r#"{"command":"x","env":{"A":"[redacted]"}}"#,
        );
        shows("shell", r#"["s3cret"]"#, r#""[redacted]""#);
    }
}
