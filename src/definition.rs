//! The definitions file: TOML, one table a job. It is read as a whole, and what is wrong is said with
//! its line, job and key. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::action::{self, Action, MOST_ATTEMPTS, TIMEOUT_RANGE};
use crate::backoff::{self, Backoff};
use crate::schedule::{Clock, Schedule};
use crate::{duration, payload, spelling};

/// A job as the file defines it; the fields are named as the columns of `job_definitions` are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) action: Value,
    pub(crate) payload: Value,
    pub(crate) schedule: Option<String>,
    pub(crate) time_zone: String,
    /// `skip`, `one`, `all`, or `all:N`.
    pub(crate) catch_up: String,
    pub(crate) overlap: String,
    pub(crate) max_running: Option<i32>,
    pub(crate) max_attempts: i32,
    /// Seconds.
    pub(crate) timeout: Option<f64>,
    pub(crate) backoff: String,
    pub(crate) priority: i32,
    pub(crate) queue: String,
    /// Seconds.
    pub(crate) spread: f64,
    /// Roles that may enqueue; `None` for every enqueuer.
    pub(crate) enqueuers: Option<Vec<String>>,
    pub(crate) enqueue_may_set: Vec<String>,
    pub(crate) enabled: bool,
}

/// What is wrong with a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// The keys of a job that belong to the command of `shell`.
const SHELL_KEYS: &[&str] = &["cwd", "env", "permanent_exit_codes"];

/// Every key of a job.
const KEYS: &[&str] = &[
    "shell",
    "http",
    "cwd",
    "env",
    "permanent_exit_codes",
    "payload",
    "schedule",
    "time_zone",
    "catch_up",
    "overlap",
    "max_running",
    "max_attempts",
    "timeout",
    "backoff",
    "priority",
    "queue",
    "spread",
    "enqueuers",
    "enqueue_may_set",
    "enabled",
];

/// The limits that `enqueue_may_set` accepts.
const LIMITS: &[&str] = &["queue", "priority", "timeout", "max_attempts", "backoff"];

/// Every key of a job's `http` table; what is sent is the run's payload.
const HTTP_KEYS: &[&str] = &["url", "method", "headers", "timeout", "redirects", "transient_statuses"];

/// From one nominal time to the next: so many are looked at for the shortest.
const GAPS: usize = 100;

/// Nominal times that `catch_up = "all:N"` can ask for.
const CATCH_UP_LIMIT: usize = 1000;

/// Reads a file; `now` is what a schedule must fire after.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn read(text: &str, now: DateTime<Utc>) -> Result<Vec<Definition>, Problem> {
    let line_of = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let file = DeTable::parse(text).map_err(|error| {
        let what = error.message().replace('\n', " ");
        let span = error.span().unwrap_or_default();
        // The parser has no other way to say which error it is, and does not say which key.
        let key = text.get(span.clone()).filter(|_| what == "duplicate key");
        Problem { line: line_of(span.start), what: what + &key.map(|key| format!(" `{key}`")).unwrap_or_default() }
    })?;
    let mut definitions = Vec::new();
    for (key, value) in file.get_ref() {
        let here = |what: String| Problem { line: line_of(key.span().start), what };
        if key.get_ref() != "jobs" {
            let known = spelling::suggestion(key.get_ref(), ["jobs"]);
            return Err(here(format!("unknown key `{}`; a file holds [jobs.NAME] tables{known}", key.get_ref())));
        }
        let jobs = value.get_ref().as_table().ok_or_else(|| here("`jobs` holds [jobs.NAME] tables".to_owned()))?;
        for (name, job) in jobs {
            let definition = read_job(name.get_ref(), job, now).map_err(|(offset, why)| Problem {
                line: line_of(offset.unwrap_or(name.span().start)),
                what: format!("job `{}`: {why}", name.get_ref().escape_debug()),
            })?;
            definitions.push(definition);
        }
    }
    Ok(definitions)
}

/// What is wrong with a job, and where, if it is at one of its keys.
type Wrong = (Option<usize>, String);

fn read_job(name: &str, job: &Spanned<DeValue<'_>>, now: DateTime<Utc>) -> Result<Definition, Wrong> {
    check_name(name).map_err(|why| (None, why))?;
    let job = job.get_ref().as_table().ok_or_else(|| (None, "must be a table, [jobs.NAME]".to_owned()))?;
    let mut definition = Definition {
        name: name.to_owned(),
        kind: "",
        action: Value::Null,
        payload: Value::Object(Map::new()),
        schedule: None,
        time_zone: "UTC".to_owned(),
        catch_up: "one".to_owned(),
        overlap: "skip".to_owned(),
        max_running: None,
        max_attempts: 10,
        timeout: None,
        backoff: backoff::DEFAULT.to_owned(),
        priority: 0,
        queue: "default".to_owned(),
        spread: 0.0,
        enqueuers: None,
        enqueue_may_set: Vec::new(),
        enabled: true,
    };
    let mut action = Map::new();
    for (key, value) in job {
        let at = |why: String| (Some(key.span().start), format!("`{}`: {why}", key.get_ref()));
        let json = json(value.get_ref()).map_err(at)?;
        set(&mut definition, &mut action, key.get_ref(), json).map_err(at)?;
    }
    let at = |key: &str| place(job, key);
    if definition.kind.is_empty() {
        return Err((None, "it has neither `shell` nor `http`, so there is nothing to run".to_owned()));
    }
    let payload = definition.payload.to_string();
    payload::check(payload.as_bytes())
        .map_err(|why| (at("payload"), format!("`payload`: {}", without_position(&why))))?;
    check_action(definition.kind, &action, &payload, job)?;
    definition.action = Value::Object(action);
    match &definition.schedule {
        Some(schedule) => {
            Clock::parse(&definition.time_zone).map_err(|why| (at("time_zone"), format!("`time_zone`: {why}")))?;
            let read = Schedule::parse(schedule, &definition.time_zone).and_then(|read| read.first(now));
            read.map_err(|why| (at("schedule"), format!("`schedule`: {why}")))?;
            if let Some(spread) = at("spread") {
                check_spread(schedule, &definition).map_err(|why| (Some(spread), why))?;
            }
        }
        None => {
            if let Some(key) = ["time_zone", "catch_up", "overlap", "spread"].into_iter().find(|key| at(key).is_some())
            {
                return Err((at(key), format!("`{key}` goes with `schedule`, which is missing")));
            }
        }
    }
    Ok(definition)
}

/// Where a key of a table stands.
fn place(table: &DeTable<'_>, key: &str) -> Option<usize> {
    table.keys().find(|found| found.get_ref() == key).map(|found| found.span().start)
}

/// Reads an action as it will be when a run is claimed, so that a wrong one never gets that far; each of its keys
/// alone first, to know which is wrong.
///
/// # Errors
/// What is wrong with it, and where in the `job`.
fn check_action(kind: &str, action: &Map<String, Value>, payload: &str, job: &DeTable<'_>) -> Result<(), Wrong> {
    let is_http = kind == "http";
    let call = job.iter().find(|(key, _)| key.get_ref() == "http").and_then(|(_, call)| call.get_ref().as_table());
    let wrong = |key: &str, why: &str| {
        let why = without_position(why);
        // As the file calls it.
        let (offset, name) = match call.filter(|_| is_http) {
            Some(call) => (place(call, key), format!("`http`: `{key}`")),
            None if key == "command" => (place(job, "shell"), "`shell`".to_owned()),
            None => (place(job, key), format!("`{key}`")),
        };
        match why.strip_prefix(&format!("`{key}` ")) {
            Some(why) => (offset, format!("{name} {why}")),
            None => (offset, format!("{name}: {why}")),
        }
    };
    if is_http && let Some(key) = SHELL_KEYS.iter().find(|key| action.contains_key(**key)) {
        return Err((place(job, key), format!("`{key}` goes with `shell`")));
    }
    if is_http && let Some(key) = action.keys().find(|key| !HTTP_KEYS.contains(&key.as_str())) {
        return Err((call.and_then(|call| place(call, key)), format!("`http`: {}", unknown_key(key, HTTP_KEYS))));
    }
    let needed = if is_http { ("url", "http://a") } else { ("command", "true") };
    for (key, value) in action {
        let mut alone = Map::from_iter([(needed.0.to_owned(), Value::from(needed.1))]);
        alone.insert(key.clone(), value.clone());
        Action::of_definition(kind, &Value::Object(alone).to_string(), payload).map_err(|why| wrong(key, &why))?;
    }
    let whole = Value::Object(action.clone()).to_string();
    Action::of_definition(kind, &whole, payload)
        .and_then(|action| action.check_program())
        .map_err(|why| (place(job, kind), format!("`{kind}`: {}", without_position(&why))))?;
    Ok(())
}

/// What is wrong with a value, without where it is in the JSON that it was turned into.
fn without_position(why: &str) -> &str {
    why.rsplit_once(" at line 1 column ").map_or(why, |(why, _)| why)
}

/// # Errors
/// The spread would leave out times: a run that waits for its share holds up the next one.
fn check_spread(schedule: &str, definition: &Definition) -> Result<(), String> {
    // By a clock that is never changed and from one day for all: the same file is never refused later.
    let times: Vec<_> = Schedule::parse(schedule, "UTC")?.fires(DateTime::UNIX_EPOCH).take(GAPS + 1).collect();
    let gaps = times.windows(2).filter_map(|pair| (pair[1].at - pair[0].at).to_std().ok());
    let longer = |gap: &Duration| gap.as_secs_f64() < definition.spread;
    match gaps.min().filter(longer) {
        Some(gap) if definition.overlap == "skip" => {
            let gap = duration::show(gap);
            Err(format!("`spread` is longer than the {gap} to the next time, which overlap = \"skip\" would leave out"))
        }
        _ => Ok(()),
    }
}

fn set(definition: &mut Definition, action: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), String> {
    match key {
        "shell" | "http" => {
            if !definition.kind.is_empty() {
                return Err(format!("a job is either `{}` or `{key}`", definition.kind));
            }
            definition.kind = if key == "shell" { "shell" } else { "http" };
            match value {
                Value::Object(call) if key == "http" => action.extend(call),
                command if key == "shell" => {
                    action.insert("command".to_owned(), command);
                }
                _ => return Err("must be a table: { url = \"https://...\" }".to_owned()),
            }
        }
        key if SHELL_KEYS.contains(&key) => {
            action.insert(key.to_owned(), value);
        }
        "payload" => definition.payload = value,
        "schedule" => definition.schedule = Some(text(value)?),
        "time_zone" => definition.time_zone = text(value)?,
        "catch_up" => definition.catch_up = text(value).and_then(catch_up)?,
        "overlap" => definition.overlap = one_of(text(value)?, &["skip", "allow", "queue"])?,
        "max_running" => definition.max_running = Some(number(&value, 1, 100_000)?),
        "max_attempts" => definition.max_attempts = number(&value, 1, MOST_ATTEMPTS)?,
        "timeout" => definition.timeout = Some(seconds(value, TIMEOUT_RANGE.0, TIMEOUT_RANGE.1)?),
        "backoff" => {
            definition.backoff = text(value)?;
            Backoff::parse(&definition.backoff)?;
        }
        "priority" => definition.priority = number(&value, i32::MIN, i32::MAX)?,
        "queue" => definition.queue = queue(&text(value)?)?,
        "spread" => definition.spread = seconds(value, Duration::ZERO, Duration::from_secs(86400))?,
        "enqueuers" => definition.enqueuers = Some(list(value, role)?),
        "enqueue_may_set" => definition.enqueue_may_set = list(value, |limit| one_of(limit, LIMITS))?,
        "enabled" => definition.enabled = value.as_bool().ok_or("must be true or false")?,
        _ => return Err(unknown_key(key, KEYS)),
    }
    Ok(())
}

fn unknown_key(key: &str, known: &[&'static str]) -> String {
    let meant = spelling::suggestion(key, known.iter().copied());
    if meant.is_empty() {
        format!("unknown key `{key}`; known are {}", known.join(", "))
    } else {
        format!("unknown key{meant}")
    }
}

fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err("must be a string".to_owned()),
    }
}

fn list(value: Value, read: impl Fn(String) -> Result<String, String>) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.into_iter().map(|item| text(item).and_then(&read)).collect(),
        _ => Err("must be a list of strings".to_owned()),
    }
}

fn role(name: String) -> Result<String, String> {
    if (1..=63).contains(&name.len()) { Ok(name) } else { Err("a role's name has 1 to 63 bytes".to_owned()) }
}

fn one_of(text: String, words: &[&str]) -> Result<String, String> {
    if words.contains(&text.as_str()) { Ok(text) } else { Err(format!("must be one of {}", words.join(", "))) }
}

fn number(value: &Value, least: i32, most: i32) -> Result<i32, String> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("must be a whole number from {least} to {most}"))
}

fn seconds(value: Value, least: Duration, most: Duration) -> Result<f64, String> {
    duration::parse_within(&text(value)?, least, most).map(|duration| duration.as_secs_f64())
}

fn catch_up(text: String) -> Result<String, String> {
    // As the CHECK of the table has it: no sign, no zero in front.
    let written = |digits: &str| digits.parse().ok().filter(|number: &usize| number.to_string() == digits);
    let limit = text.strip_prefix("all:").map(written);
    match (text.as_str(), limit) {
        ("skip" | "one" | "all", None) => Ok(text),
        (_, Some(Some(1..=CATCH_UP_LIMIT))) => Ok(text),
        _ => Err(format!("must be skip, one, all or all:N with N from 1 to {CATCH_UP_LIMIT}")),
    }
}

/// # Errors
/// Says which names a job may have.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if action::is_built_in(name) {
        return Err("is the name of a built-in job".to_owned());
    }
    if is_plain(name) {
        Ok(())
    } else {
        Err("a name has 1 to 63 letters, digits or _ . : -, and starts with none of . : -".to_owned())
    }
}

/// A queue's name.
///
/// # Errors
/// Says which there may be.
pub(crate) fn queue(name: &str) -> Result<String, String> {
    if is_plain(name) {
        Ok(name.to_owned())
    } else {
        Err("a queue's name has 1 to 63 letters, digits or _ . : -".to_owned())
    }
}

/// Whether a job or a queue may have that name; the CHECK constraints of the tables say the same.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= 63 && name.starts_with(plain) && name.chars().all(|c| plain(c) || ".:-".contains(c))
}

fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) if text.contains('\0') => return Err("has a NUL, which can't be stored".to_owned()),
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            let digits = i64::from_str_radix(number.as_str(), number.radix());
            Value::from(digits.map_err(|_| format!("{number} is too large"))?)
        }
        DeValue::Float(number) => {
            let float = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            Value::Number(float.ok_or_else(|| format!("{number} is no number that JSON has"))?)
        }
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>()?,
        DeValue::Table(table) => {
            let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &toml::de::DeString<'_> = key.get_ref();
                Ok((key.to_string(), json(value.get_ref())?))
            };
            Value::Object(table.iter().map(member).collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn one(text: &str) -> Definition {
        let mut definitions = read(text, DateTime::UNIX_EPOCH).unwrap();
        assert_eq!(definitions.len(), 1);
        definitions.remove(0)
    }

    #[track_caller]
    fn refuses(text: &str, line: usize, what: &str) {
        let problem = read(text, DateTime::UNIX_EPOCH).unwrap_err();
        assert_eq!(problem.line, line, "{problem:?}");
        assert!(problem.what.contains(what), "{problem:?}");
    }

    #[test]
    fn a_shell_job_has_its_command_in_its_action() {
        let job =
            one("[jobs.cleanup]\nshell = 'bin/cleanup --all'\ncwd = '/srv'\nenv = { LANG = 'C' }\ntimeout = '10m'\n");
        assert_eq!((job.kind, job.timeout), ("shell", Some(600.0)));
        assert_eq!(
            job.action,
            serde_json::json!({"command": "bin/cleanup --all", "cwd": "/srv", "env": {"LANG": "C"}})
        );
        assert_eq!(one("[jobs.a]\nshell = ['ls', '-l']\n").action, serde_json::json!({"command": ["ls", "-l"]}));
    }

    #[test]
    fn an_http_job_has_its_call_in_its_action() {
        let job = one("[jobs.a.http]\nurl = 'https://a'\nmethod = 'PUT'\nheaders = { X = '${T}' }\n");
        assert_eq!(job.kind, "http");
        assert_eq!(job.action, serde_json::json!({"url": "https://a", "method": "PUT", "headers": {"X": "${T}"}}));
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let job = one("[jobs.a]\nshell = 'x'\n");
        assert_eq!(
            (job.max_attempts, job.backoff.as_str(), job.queue.as_str()),
            (10, "exponential:1m..30m", "default")
        );
        assert_eq!((job.overlap.as_str(), job.catch_up.as_str(), job.enabled), ("skip", "one", true));
        assert_eq!(job.payload, serde_json::json!({}));
        assert_eq!((job.enqueuers, job.enqueue_may_set), (None, vec![]));
    }

    #[test]
    fn enqueuers_are_roles_and_enqueue_may_set_names_limits() {
        let job = one("[jobs.a]\nshell = 'x'\nenqueuers = ['shop', 'a b']\nenqueue_may_set = ['queue', 'timeout']\n");
        assert_eq!(job.enqueuers.unwrap(), ["shop", "a b"]);
        assert_eq!(job.enqueue_may_set, ["queue", "timeout"]);
        assert_eq!(one("[jobs.a]\nshell = 'x'\nenqueuers = []\n").enqueuers, Some(vec![]));
        for (key, why) in [
            ("enqueuers = 'shop'", "`enqueuers`: must be a list of strings"),
            ("enqueuers = [1]", "`enqueuers`: must be a string"),
            ("enqueuers = ['']", "`enqueuers`: a role's name has 1 to 63 bytes"),
            ("enqueue_may_set = ['run_at']", "`enqueue_may_set`: must be one of queue, priority, timeout"),
        ] {
            refuses(&format!("[jobs.a]\nshell = 'x'\n{key}\n"), 3, why);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_job_and_key() {
        refuses(
            "[jobs.a]\nshell = 'x'\nshedule = '@daily'\n",
            3,
            "job `a`: `shedule`: unknown key; did you mean `schedule`?",
        );
        refuses(
            "[job.a]\nshell = 'x'\n",
            1,
            "unknown key `job`; a file holds [jobs.NAME] tables; did you mean `jobs`?",
        );
        refuses("[jobs.a]\nshell = 'x'\n\n[jobs.b]\nqueue = 'x'\n", 4, "job `b`: it has neither `shell` nor `http`");
        refuses("[jobs.a]\nshell = 'x'\nhttp = { url = 'http://a' }\n", 2, "a job is either `http` or `shell`");
        refuses("[jobs.a]\nhttp = { ulr = 'http://a' }\n", 2, "did you mean `url`?");
        refuses("[jobs.a]\nhttp = { url = 'ftp://a' }\n", 2, "must start with http://");
        refuses("[jobs.a]\nshell = 'x'\nenv = { 'A=B' = 'c' }\n", 3, "`env` has a name that is empty or contains `=`");
        refuses("[jobs.a]\nshell = 'x'\ntimeout = 5\n", 3, "`timeout`: must be a string");
        refuses("[jobs.a]\nshell = 'x'\ntimeout = '5'\n", 3, "is not a duration");
        refuses("[jobs.a]\nshell = 'x'\nmax_attempts = 0\n", 3, "from 1 to 1000");
        refuses("[jobs.a]\nshell = 'x'\nbackoff = 'often'\n", 3, "is not a backoff");
        refuses("[jobs.a]\nshell = 'x'\noverlap = 'never'\n", 3, "one of skip, allow, queue");
        refuses("[jobs.a]\nshell = 'x'\ncatch_up = 'all:0'\n", 3, "all:N");
        refuses("[jobs.a]\nshell = 'x'\ntime_zone = 'Europe/Berlin'\n", 3, "goes with `schedule`");
        let spread = |keys: &str| format!("[jobs.a]\nshell = 'x'\nschedule = '*/5 9-17 * * *'\nspread = '6m'\n{keys}");
        refuses(&spread(""), 4, "`spread` is longer than the 5m to the next time");
        one(&spread("overlap = 'queue'\n"));
        one(&spread("").replace("6m", "5m"));
        refuses("[jobs.'a b']\nshell = 'x'\n", 1, "a name has 1 to 63");
        refuses("[jobs.shell]\nshell = 'x'\n", 1, "name of a built-in job");
        refuses("[jobs.a]\nshell = 'x'\nshell = 'y'\n", 3, "duplicate key `shell`");
        refuses("[jobs.a\n", 1, "");
    }

    #[test]
    fn what_is_wrong_is_said_where_it_stands_and_in_the_words_of_the_file() {
        #[track_caller]
        fn says(text: &str, line: usize, what: &str) {
            let what = format!("job `a`: {what}");
            assert_eq!(read(text, DateTime::UNIX_EPOCH).unwrap_err(), Problem { line, what });
        }
        let shell = |keys: &str| format!("[jobs.a]\nshell = 'x'\n{keys}\n");
        says(&shell("env = { A = 1 }"), 3, "`env`: expected a string");
        says(&shell("permanent_exit_codes = '1'"), 3, "`permanent_exit_codes`: expected a sequence");
        says(
            &shell("permanent_exit_codes = [0, 300]"),
            3,
            "`permanent_exit_codes` has what is no exit status from 1 to 255",
        );
        says(&shell("cwd = ''"), 3, "`cwd` is empty");
        says(
            &shell("schedule = '@daily'\ntime_zone = 'Mars'"),
            4,
            "`time_zone`: there is no time zone `Mars`; write a name such as Europe/Berlin, or UTC",
        );
        says(
            &shell("time_zone = 'UTC'\nschedule = '@dayly'").replace("@dayly", "0 0 30 2 *"),
            4,
            "`schedule`: `0 0 30 2 *` never fires: no time within 41 years of 1970-01-01 matches",
        );
        says(&shell("payload = { a = [\"\\u0000\"] }"), 3, "`payload`: has a NUL, which can't be stored");
        says("[jobs.a]\nqueue = 'q'\nshell = \"a\\u0000\"\n", 3, "`shell`: has a NUL, which can't be stored");
        says("[jobs.a]\nqueue = 'q'\nshell = ' '\n", 3, "`shell` is empty");
        says("[jobs.a]\nqueue = 'q'\nshell = 5\n", 3, "`shell` must be a string or a list of strings");
        says("[jobs.a]\ncwd = '/'\nhttp = { url = 'http://a' }\n", 2, "`cwd` goes with `shell`");
        let http = |key: &str| format!("[jobs.a.http]\nmethod = 'PUT'\nurl = 'http://a'\n{key}\n");
        says(&http("redirects = 'x'"), 4, "`http`: `redirects`: expected u32");
        says(&http("headers = { X = 1 }"), 4, "`http`: `headers`: expected a string");
        says(&http("timout = '5s'"), 4, "`http`: unknown key; did you mean `timeout`?");
        says(
            "[jobs.a.http]\nmethod = 'PUT'\nurl = 'ftp://a'\n",
            3,
            "`http`: `url` must start with http:// or https://",
        );
        says("[jobs.a]\nhttp = {}\n", 2, "`http`: missing field `url`");
    }
}
