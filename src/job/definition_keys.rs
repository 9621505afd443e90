//! The keys of a definitions file, and the rules for their values. Pure.

use std::time::Duration;

use cron_zone::Zone;
use serde_json::{Value, json};

use crate::job::action::{self, MOST_ATTEMPTS, TIMEOUT_RANGE};
use crate::job::backoff;
use crate::job::enqueue::AfterRule;
use crate::text::duration;
use crate::text::plain;
use crate::text::words::words;

words! {
    /// What a schedule does at its time while its last run is not finished; the first is the
    /// default.
    pub(crate) enum Overlap {
        Skip = "skip",
        Allow = "allow",
        Queue = "queue",
    }

    /// What an attempt that asks for a later one puts off; the first is the default.
    enum Snooze {
        Run = "run",
        Job = "job",
    }

    /// What runs print; the first is the default.
    enum ResultForm {
        Text = "text",
        Json = "json",
    }

    /// What an enqueue does while `max_waiting` runs wait; the first is the default.
    enum WhenFull {
        Refuse = "refuse",
        DropNew = "drop_new",
        DropOldest = "drop_oldest",
    }
}

/// A key of a job's table, and its column.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) check: Check,
    /// The key without which this one has no effect.
    pub(super) needs: Option<&'static str>,
    /// The value of the column if the file lacks the key.
    pub(super) default: fn() -> Value,
    /// Whether a viewer may read its values in the trail.
    pub(super) is_visible: bool,
}

/// The rule for a key's value.
#[derive(Clone, Copy)]
pub(super) enum Check {
    /// Any value, perhaps because it is checked later, together with other keys.
    Any,
    Text(fn(&str) -> Result<(), String>),
    Word(&'static [&'static str]),
    List(fn(&Value) -> Result<(), String>),
    /// The names of other jobs, at most `MOST_PREDECESSORS`.
    Jobs,
    /// A whole number from the first one to the second one.
    Number(i32, i32),
    /// A duration from the first one to the second one.
    TimeSpan(Duration, Duration),
    Boolean,
    /// A name, or a table with `name` and `most`.
    Lock,
    /// The name of another job, which a run enqueues when it ends.
    Hook,
}
use Check::{Any, Boolean, Hook, Jobs, List, Lock, Number, Text, TimeSpan, Word};

pub(super) const fn key(name: &'static str, check: Check) -> Key {
    Key { name, check, needs: None, default: || Value::Null, is_visible: true }
}

impl Key {
    const fn needs(self, key: &'static str) -> Self {
        Self { needs: Some(key), ..self }
    }

    /// Sets the value of the column if the file lacks the key.
    const fn with_default(self, default: fn() -> Value) -> Self {
        Self { default, ..self }
    }

    /// Hides the values from viewers, because commands, addresses and payloads may be secret.
    const fn hidden(self) -> Self {
        Self { is_visible: false, ..self }
    }

    pub(super) fn is_hook(&self) -> bool {
        matches!(self.check, Hook)
    }
}

/// The keys of a job. Those that need `shell` are stored in its action.
pub(super) const KEYS: &[Key] = &[
    key("shell", Any).hidden(),
    key("http", Any).hidden(),
    key("cwd", Any).needs("shell").hidden(),
    key("env", Any).needs("shell").hidden(),
    key("permanent_exit_codes", Any).needs("shell"),
    key("snooze_exit_codes", Any).needs("shell"),
    key("payload", Any).with_default(|| json!({})).hidden(),
    key("schedule", Text(|_| Ok(()))),
    key("time_zone", Text(|zone| Zone::parse(zone).map(drop).map_err(|why| why.to_string())))
        .needs("schedule")
        .with_default(|| json!("UTC")),
    key("catch_up", Text(check_catch_up)).with_default(|| json!("one")),
    key("each_worker", Boolean).with_default(|| json!(false)),
    key("workers", List(check_worker)),
    key("overlap", Word(&Overlap::WORDS)).with_default(|| json!(Overlap::default())),
    key("max_running", Number(1, 100_000)),
    key("rate", Text(check_rate)),
    key("burst", Number(1, 999_999)).needs("rate"),
    key("max_running_per_share", Number(1, 100_000)),
    key("rate_per_share", Text(check_rate)),
    key("lock", Lock),
    key("max_waiting", Number(1, 100_000)),
    key("when_full", Word(&WhenFull::WORDS))
        .needs("max_waiting")
        .with_default(|| json!(WhenFull::default())),
    key("snooze", Word(&Snooze::WORDS)).with_default(|| json!(Snooze::default())),
    key("pass_result", Boolean).with_default(|| json!(false)),
    key("result", Word(&ResultForm::WORDS)).with_default(|| json!(ResultForm::default())),
    key("max_attempts", Number(1, MOST_ATTEMPTS)).with_default(|| json!(10)),
    key("timeout", TimeSpan(TIMEOUT_RANGE.0, TIMEOUT_RANGE.1)),
    key("max_age", TimeSpan(duration::MINUTE, LONGEST_AGE)),
    key("max_lag", TimeSpan(duration::MINUTE, LONGEST_AGE)),
    key("alert_after", Number(0, 1000)).with_default(|| json!(3)),
    key("usual", Text(check_usual)),
    key("expires", TimeSpan(EXPIRES_RANGE.0, EXPIRES_RANGE.1)),
    key("keep", TimeSpan(Duration::ZERO, duration::CENTURY)),
    key("keep_dead", TimeSpan(Duration::ZERO, duration::CENTURY)),
    key("backoff", Text(|text| backoff::check(text).map(drop)))
        .with_default(|| json!(backoff::DEFAULT)),
    key("priority", Number(i32::MIN, i32::MAX)).with_default(|| json!(0)),
    key("queue", Text(|text| queue(text).map(drop))).with_default(|| json!("default")),
    key("spread", TimeSpan(Duration::ZERO, duration::DAY)).with_default(|| json!(0.0)),
    key("on_dead", Hook),
    key("on_success", Hook),
    key("on_end", Hook),
    key("after", Jobs),
    key("when", Word(&AfterRule::WORDS))
        .needs("after")
        .with_default(|| json!(AfterRule::default())),
    key("enqueuers", List(check_role)),
    key("enqueue_may_set", List(|word| check_word(MAY_SET, word))).with_default(|| json!([])),
    key("enabled", Boolean).with_default(|| json!(true)),
];
/// The keys that `[defaults]` can't have: what a job runs, and when.
pub(super) const OF_ONE_JOB: [&str; 4] = ["shell", "http", "schedule", "after"];
/// The keys that a job with `after` can't have.
pub(super) const NOT_WITH_AFTER: [&str; 3] = ["schedule", "each_worker", "workers"];
/// The keys of `[file]`.
pub(super) const FILE_KEYS: &[Key] = &[key("name", Text(|name| file(name).map(drop)))];
/// The keys of a job's `http` table; the body is the run's payload.
pub(super) const HTTP_KEYS: [&str; 6] =
    ["url", "method", "headers", "timeout", "redirects", "transient_statuses"];
/// The values of `enqueue_may_set`.
const MAY_SET: &[&str] = &["queue", "priority", "timeout", "max_attempts", "backoff"];
/// The maximum of `max_age` and `max_lag`.
const LONGEST_AGE: Duration = Duration::from_secs(366 * 86400);
/// The least and the most of `expires`, also for one run.
pub(crate) const EXPIRES_RANGE: (Duration, Duration) =
    (duration::SECOND, duration::YEAR.saturating_mul(10));
/// The maximum of N in `catch_up = "all:N"`.
const CATCH_UP_LIMIT: usize = 1000;

/// The most jobs in `after`.
const MOST_PREDECESSORS: usize = 100;

impl Check {
    /// Checks a value, and returns it in the form of its column.
    pub(super) fn read(self, value: Value) -> Result<Value, String> {
        match self {
            Any => {}
            Text(check) => check(text(&value)?)?,
            Word(words) => check_word(words, &value)?,
            List(check) => {
                let list = value.as_array().ok_or("must be a list of strings")?;
                list.iter().try_for_each(check)?;
            }
            Jobs => {
                let names = value.as_array().ok_or("must be a list of jobs")?;
                for (place, name) in names.iter().enumerate() {
                    check_name(text(name)?).map_err(|why| format!("{name} {why}"))?;
                    require(!names[..place].contains(name), || format!("{name} stands twice"))?;
                }
                require((1..=MOST_PREDECESSORS).contains(&names.len()), || {
                    format!("must name 1 to {MOST_PREDECESSORS} jobs")
                })?;
            }
            Number(least, most) => check_number(least, most, &value)?,
            Boolean => require(value.is_boolean(), || "must be true or false".to_owned())?,
            Lock => check_lock(&value)?,
            Hook => match text(&value)? {
                // The job has no hook, even if `[defaults]` has one.
                "" => return Ok(Value::Null),
                job => check_name(job)?,
            },
            TimeSpan(..) if value.is_number() => {
                return Err(format!("must be a string with a unit, such as \"{value}s\""));
            }
            TimeSpan(least, most) => {
                let length = duration::parse_within(text(&value)?, least, most)?;
                return Ok(length.as_secs_f64().into());
            }
        }
        Ok(value)
    }
}

/// Returns the text of a value, which must be a string.
fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "must be a string".to_owned())
}

/// Returns the broken `rule` as an error unless a value fulfils it.
pub(super) fn require(is_fulfilled: bool, rule: impl FnOnce() -> String) -> Result<(), String> {
    if is_fulfilled { Ok(()) } else { Err(rule()) }
}

/// Checks the length of a role's name.
fn check_role(name: &Value) -> Result<(), String> {
    let fits = (1..=63).contains(&text(name)?.len());
    require(fits, || "a role's name has 1 to 63 bytes".to_owned())
}

/// Checks that a value is one of `words`.
fn check_word(words: &[&str], value: &Value) -> Result<(), String> {
    require(words.contains(&text(value)?), || format!("must be one of {}", words.join(", ")))
}

/// Checks that a value is a whole number within these limits.
fn check_number(least: i32, most: i32, value: &Value) -> Result<(), String> {
    let number = value.as_i64();
    let fits = number.is_some_and(|number| (least.into()..=most.into()).contains(&number));
    require(fits, || format!("must be a whole number from {least} to {most}"))
}

/// Checks the name of a lock, or a table with `name` and `most`.
fn check_lock(value: &Value) -> Result<(), String> {
    let name = match value {
        Value::Object(lock) => {
            let known = lock.keys().all(|key| ["name", "most"].contains(&key.as_str()));
            require(known && lock.len() == 2, || "a table has `name` and `most`".to_owned())?;
            check_number(1, 999_999, &lock["most"]).map_err(|why| format!("`most`: {why}"))?;
            &lock["name"]
        }
        name => name,
    };
    plain::short("lock's name", text(name)?).map(drop)
}

/// Checks the name of a worker, in which `*` stands for any characters.
fn check_worker(name: &Value) -> Result<(), String> {
    plain::short("worker's name", text(name)?).map(drop)
}

/// Checks a rate: a number of starts and a time with one unit, as in `60/1m`.
fn check_rate(text: &str) -> Result<(), String> {
    // The number of starts has the rule of the number before a unit.
    let is_rate = text.split_once('/').is_some_and(|(starts, time)| {
        is_plain_length(time) && is_plain_length(&format!("{starts}s"))
    });
    let rule = "must be a number and a time with one of the units s, m, h and d, as in 60/1m";
    require(is_rate, || rule.to_owned())
}

/// Checks a usual run time: `off`, or a range as in `10m..2h`.
fn check_usual(text: &str) -> Result<(), String> {
    let length = |text: &str| duration::parse(text).ok().filter(|_| is_plain_length(text));
    let range = text.split_once("..").map(|(least, most)| (length(least), length(most)));
    let is_range = matches!(range, Some((Some(least), Some(most))) if least < most);
    let rule = "must be off, or the least and the most run time, each a number with one of the \
                units s, m, h and d, as in 10m..2h";
    require(text == "off" || is_range, || rule.to_owned())
}

/// Returns whether a text is a whole number and one unit, as 10m. PostgreSQL splits it into these
/// two.
fn is_plain_length(text: &str) -> bool {
    text.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(|number| {
        (1..=6).contains(&number.len())
            && !number.starts_with('0')
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Checks which missed times fire: `skip`, `one`, `all` or `all:N`.
fn check_catch_up(text: &str) -> Result<(), String> {
    // Compare N with the text, because the CHECK of the table allows no sign and no leading zero.
    let limit = text.strip_prefix("all:").and_then(|digits| digits.parse::<usize>().ok());
    let is_limit = limit.is_some_and(|limit| {
        (1..=CATCH_UP_LIMIT).contains(&limit) && text == format!("all:{limit}")
    });
    require(is_limit || ["skip", "one", "all"].contains(&text), || {
        format!("must be skip, one, all or all:N with N from 1 to {CATCH_UP_LIMIT}")
    })
}

/// Checks the name of a definition, which must not be that of a built-in job.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if action::is_built_in(name) {
        return Err("is the name of a built-in job".to_owned());
    }
    let rule = "a name has 1 to 63 letters, digits or _ . : -, and starts with none of . : -";
    require(is_plain(name), || rule.to_owned())
}

/// Checks the name of a queue and returns it.
pub(crate) fn queue(name: &str) -> Result<String, String> {
    plain_name("queue", name)
}

/// Checks the name of a file and returns it.
pub(crate) fn file(name: &str) -> Result<String, String> {
    plain_name("file", name)
}

fn plain_name(what: &str, name: &str) -> Result<String, String> {
    require(is_plain(name), || format!("a {what}'s name has 1 to 63 letters, digits or _ . : -"))?;
    Ok(name.to_owned())
}

/// Returns whether a name has only letters, digits and `_.:-`, and begins with none of `.:-`. The
/// CHECK constraints of the tables have the same rule.
fn is_plain(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= 63
        && name.starts_with(is_word)
        && name.chars().all(|c| is_word(c) || ".:-".contains(c))
}
