//! A stored definition in the words of the file, without its secrets. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::action::HTTP_TIMEOUT;
use super::definition_keys::{Check, HTTP_KEYS, KEYS, Key, key};
use super::redact;
use crate::text::duration;

/// A key with its old and its new value as TOML.
pub(crate) type Difference = (String, Option<String>, Option<String>);

/// Returns the keys of a job, and `file`, which names its definitions file.
fn all_keys() -> impl Iterator<Item = Key> {
    KEYS.iter().copied().chain([key("file", Check::Any)])
}

/// Returns the keys to show, with their values, in the order of the reference. `stored` is the
/// result of `jobctl.definition_keys`.
pub(crate) fn shown(stored: &Value) -> Vec<(&'static str, Value)> {
    all_keys().filter_map(|key| Some((key.name, shown_value(stored, key)?))).collect()
}

/// Returns the keys that differ. Calls are compared key by key, as `http.url`.
pub(crate) fn differing(old: &Value, new: &Value) -> Vec<Difference> {
    let are_calls = old["http"].is_object() && new["http"].is_object();
    let mut differences = Vec::new();
    for key in all_keys() {
        // The parts of the key to compare; `None` is the whole value.
        let parts = match key.name {
            "http" if are_calls => HTTP_KEYS.map(Some).to_vec(),
            _ => vec![None],
        };
        for part in parts {
            if part_of(&old[key.name], part) == part_of(&new[key.name], part) {
                continue;
            }
            let shown = |stored: &Value| {
                let value = shown_value(stored, key)?;
                Some(part_of(&value, part)).filter(|value| !value.is_null()).map(toml)
            };
            let name = match part {
                Some(part) => format!("{}.{part}", key.name),
                None => key.name.to_owned(),
            };
            differences.push((name, shown(old), shown(new)));
        }
    }
    differences
}

/// Returns the event of a change for the trail: its action, and the keys with their old and new
/// values. `None`: no key differs.
pub(crate) fn event(
    before: Option<&Value>,
    after: &Value,
) -> Option<(&'static str, Option<String>)> {
    let Some(before) = before else { return Some(("add", None)) };
    let in_words = |(name, old, new): Difference| {
        // Of other keys, viewers of the trail may read only the name.
        if !all_keys().any(|key| key.is_visible && key.name == name) {
            return name;
        }
        let [old, new] = [old, new].map(|value| value.unwrap_or_else(|| "none".to_owned()));
        format!("{name} {old} -> {new}")
    };
    let keys: Vec<_> = differing(before, after).into_iter().map(in_words).collect();
    let action = match (before["enabled"] == true, after["enabled"] == true) {
        _ if keys.is_empty() => return None,
        (false, true) => "enable",
        (true, false) => "disable",
        _ => "change",
    };
    Some((action, Some(keys.join(", "))))
}

/// Returns the time limit of an attempt, if it has one: that of the definition, or else that of its
/// call.
pub(crate) fn timeout(stored: &Value) -> Option<Duration> {
    let seconds = stored["timeout"].as_f64();
    let of_definition = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let of_call = stored["http"].as_object().map(|call| {
        let given = call.get("timeout").and_then(Value::as_str);
        given.and_then(|given| duration::parse(given).ok()).unwrap_or(HTTP_TIMEOUT)
    });
    of_definition.or(of_call)
}

/// Returns this part of a value, or the whole value.
fn part_of<'a>(value: &'a Value, part: Option<&str>) -> &'a Value {
    part.map_or(value, |part| &value[part])
}

/// Returns what the definition runs: its command, or the method and the address of its call.
pub(crate) fn summary(stored: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (&stored["shell"], &stored["http"]) {
        (Value::Array(words), _) => words.iter().map(plain).collect::<Vec<_>>().join(" "),
        (Value::Null, Value::Null) => String::new(),
        (Value::Null, call) => {
            let call = redacted("http", call);
            let parts = [&call["method"], &call["url"]].into_iter().filter(|part| !part.is_null());
            parts.map(plain).collect::<Vec<_>>().join(" ")
        }
        (command, _) => plain(command),
    }
}

/// Returns the value of a key in the words of the file, without values that may be secret. `None`:
/// the key has no value, no effect, or a default that says nothing.
fn shown_value(stored: &Value, key: Key) -> Option<Value> {
    let value = stored.get(key.name).filter(|value| !value.is_null())?;
    match key.name {
        // Hide the defaults of these keys, which say nothing about the job.
        "payload" | "each_worker" | "snooze" | "pass_result" | "result" | "alert_after"
            if *value == (key.default)() =>
        {
            None
        }
        // Hide the defaults of these keys without a schedule, because they have no effect.
        "catch_up" | "overlap" if *value == (key.default)() && stored["schedule"].is_null() => None,
        "spread" if value.as_f64() == Some(0.0) => None,
        // Hide a key that has no effect without another one, such as `time_zone` without
        // `schedule`.
        _ if key.needs.is_some_and(|needed| stored[needed].is_null()) => None,
        _ if matches!(key.check, Check::TimeSpan(..)) => {
            let seconds = Duration::try_from_secs_f64(value.as_f64()?).ok()?;
            Some(duration::show(seconds).into())
        }
        "env" => redacted("shell", &json!({"env": value})).get("env").cloned(),
        "http" => Some(redacted("http", value)),
        _ => Some(value.clone()),
    }
}

/// Returns an action without the values that may be secret.
fn redacted(kind: &str, action: &Value) -> Value {
    let shown = redact::payload(kind, &action.to_string());
    serde_json::from_str(shown.get()).unwrap_or_default()
}

/// Returns a text in the syntax of TOML. This is that of JSON, except that TOML also requires an
/// escape for U+007F.
pub(crate) fn toml_text(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns a value in the syntax of TOML.
pub(crate) fn toml(value: &Value) -> String {
    let is_bare = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| {
                let name = if is_bare(key) { key.clone() } else { toml_text(key) };
                format!("{name} = {}", toml(value))
            });
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => toml_text(text),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_file(stored: &Value) -> String {
        let keys = shown(stored).into_iter();
        keys.map(|(key, value)| format!("{key} = {}\n", toml(&value))).collect()
    }

    #[test]
    fn values_are_toml_without_secrets() {
        let stored = json!({
            "shell": ["a", "b \"c\""], "env": {"A": "s3cret", "B C": "s3cret"}, "payload": {},
            "schedule": null, "overlap": "skip", "timeout": 90.0, "max_attempts": 3,
            "enqueuers": null, "enabled": true,
        });
        assert_eq!(
            as_file(&stored),
            "shell = [\"a\", \"b \\\"c\\\"\"]\n\
             env = { A = \"[redacted]\", \"B C\" = \"[redacted]\" }\n\
             max_attempts = 3\ntimeout = \"1m 30s\"\nenabled = true\n"
        );
        assert_eq!(summary(&stored), "a b \"c\"");
    }

    #[test]
    fn a_difference_names_the_keys_of_the_file() {
        let call = |url: &str| json!({"url": url, "method": "GET"});
        let old = json!({"http": call("http://a/?s3cret"), "priority": 1, "timeout": 60.0});
        let new = json!({"http": call("http://b/"), "priority": 1, "timeout": null});
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            differing(&old, &new),
            [
                ("http.url".to_owned(), text("\"http://a/?[redacted]\""), text("\"http://b/\"")),
                ("timeout".to_owned(), text("\"1m\""), None),
            ]
        );
        assert_eq!(summary(&old), "GET http://a/?[redacted]");
    }
    #[test]
    fn an_event_hides_what_a_viewer_may_not_read() {
        let job = |shell: &str, timeout: f64, enabled: bool| {
            json!({"shell": shell, "env": {"A": shell}, "payload": {"a": shell}, "timeout": timeout,
                "enabled": enabled})
        };
        let is = |before: Option<Value>, after: Value| {
            event(before.as_ref(), &after)
                .map(|(action, detail)| (action, detail.unwrap_or_default()))
        };
        let old = || Some(job("s3cret", 60.0, true));
        assert_eq!(is(None, job("a", 1.0, true)), Some(("add", String::new())));
        assert_eq!(is(old(), job("s3cret", 60.0, true)), None);
        assert_eq!(
            is(old(), job("b", 90.0, true)),
            Some(("change", "shell, env, payload, timeout \"1m\" -> \"1m 30s\"".to_owned()))
        );
        assert_eq!(
            is(old(), job("s3cret", 60.0, false)),
            Some(("disable", "enabled true -> false".to_owned()))
        );
        let disabled = Some(job("s3cret", 60.0, false));
        assert_eq!(is(disabled, job("s3cret", 60.0, true)).unwrap().0, "enable");
        let hidden = all_keys().filter(|key| !key.is_visible).map(|key| key.name);
        assert_eq!(hidden.collect::<Vec<_>>(), ["shell", "http", "cwd", "env", "payload"]);
    }
}
