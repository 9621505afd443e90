//! What of a built-in job's payload is fit to be shown: secrets belong into the tick's environment,
//! and not everybody puts them there. Pure.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use crate::action::{self, Part};

const REDACTED: &str = "[redacted]";

/// The payload without what is secret in it: values of headers (`${NAME}` stays), the query of the
/// URL, values of the environment. A defined job's payload is data and stays as it is, like the body
/// of a call.
pub(crate) fn payload(job: &str, payload: &str) -> Box<RawValue> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
    if !action::is_built_in(job) {
        return raw(payload).unwrap_or_else(redacted);
    }
    let Ok(mut members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(payload) else { return redacted() };
    for (name, value) in &mut members {
        *value = match name.to_ascii_lowercase().as_str() {
            "headers" | "env" => each(value),
            "url" => text(value, url),
            _ => continue,
        };
    }
    to_raw_value(&members).unwrap_or_else(|_| redacted())
}

fn redacted() -> Box<RawValue> {
    to_raw_value(REDACTED).expect("a string is JSON")
}

/// Every value of an object.
fn each(object: &RawValue) -> Box<RawValue> {
    let Ok(mut values) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(object.get()) else {
        return redacted();
    };
    for value in values.values_mut() {
        *value = text(value, literals);
    }
    to_raw_value(&values).unwrap_or_else(|_| redacted())
}

fn text(value: &RawValue, redact: impl Fn(&str) -> String) -> Box<RawValue> {
    let text = serde_json::from_str::<String>(value.get()).ok();
    text.and_then(|text| to_raw_value(&redact(&text)).ok()).unwrap_or_else(redacted)
}

/// All but `${NAME}`.
fn literals(value: &str) -> String {
    let Ok(parts) = action::parts("", value) else { return REDACTED.to_owned() };
    parts
        .into_iter()
        .map(|part| match part {
            Part::Text("") => String::new(),
            Part::Text(_) => REDACTED.to_owned(),
            Part::Variable(name) => format!("${{{name}}}"),
        })
        .collect()
}

/// Scheme, host and path.
fn url(url: &str) -> String {
    let (base, query) = match url.find(['?', '#']) {
        Some(at) => (&url[..at], format!("{}{REDACTED}", &url[at..=at])),
        None => (url, String::new()),
    };
    // Such a URL is refused, but whoever wrote it did so with a password.
    let base = match (base.find("://"), base.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}{REDACTED}{}", &base[..scheme + 3], &base[at..]),
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
            r#"{"url": "https://a/b", "headers": {"authorization": "Bearer s3cret", "x": "Bearer ${TOKEN}", "y": "${A}${B}", "z": "${PGPASSWORD}"}}"#,
            r#"{"headers":{"authorization":"[redacted]","x":"[redacted]${TOKEN}","y":"${A}${B}","z":"[redacted]"},"url":"https://a/b"}"#,
        );
        shows("http", r#"{"headers": {"a": ["s3cret"]}}"#, r#"{"headers":{"a":"[redacted]"}}"#);
        shows("http", r#"{"Headers": "authorization: s3cret"}"#, r#"{"Headers":"[redacted]"}"#);
    }

    #[test]
    fn a_url_keeps_its_host_and_its_path() {
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
    fn what_is_sent_and_what_a_defined_job_gets_stays_as_it_is() {
        let long = r#"{"json": {"n": 12345678901234567890123, "url": "x?y"}}"#;
        shows("http", long, r#"{"json":{"n": 12345678901234567890123, "url": "x?y"}}"#);
        shows("report", r#"{"headers": {"a": "b"}}"#, r#"{"headers": {"a": "b"}}"#);
        shows("shell", r#"{"command": "x", "env": {"A": "s3cret"}}"#, r#"{"command":"x","env":{"A":"[redacted]"}}"#);
        shows("shell", r#"["s3cret"]"#, r#""[redacted]""#);
    }
}
