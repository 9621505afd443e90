//! What a run asks for: a command or an HTTP call, read from its payload. Read once when it is
//! enqueued, to refuse early, and once when it is claimed, because any program may have written the
//! row. Pure, but for `Action::check_program`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;
use ureq::http::{HeaderName, HeaderValue, Method};
use url::{ParseError, Url};

use crate::model::Failure;
use crate::{duration, payload};

/// Bytes of a command and of one argument; the kernel takes no argument longer than 128 KiB.
const COMMAND_LIMIT: usize = 64 * 1024;
/// Followed at most, where a call asks for it.
const REDIRECT_LIMIT: u32 = 5;
/// An action's own timeout, and a run's.
pub(crate) const TIMEOUT_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 86400));
/// Attempts that a run or a definition can ask for.
pub(crate) const MOST_ATTEMPTS: i32 = 1000;

#[derive(Debug)]
pub(crate) enum Action {
    Shell(Shell),
    Http(Http),
}

/// The place that an action was read from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Source {
    /// The payload of a built-in job.
    #[default]
    Payload,
    Definition,
}

/// A command, as the payload of a `shell` run holds it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shell {
    pub(crate) command: Command,
    /// Working directory; the tick's own where none is given.
    pub(crate) cwd: Option<String>,
    /// Added to the tick's environment.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Given to the command: a string as it is, anything else as JSON. Nothing where absent.
    #[serde(default, deserialize_with = "stdin")]
    pub(crate) stdin: String,
    /// Exit statuses after which another attempt is pointless, instead of the usual ones.
    permanent_exit_codes: Option<Vec<i32>>,
    #[serde(skip)]
    pub(crate) source: Source,
}

/// A string goes to `sh -c`; a list is run as it is, with no shell in between.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`command` must be a string or a list of strings")]
pub(crate) enum Command {
    Script(String),
    Arguments(Vec<String>),
}

/// An HTTP call, as the payload of an `http` run holds it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    pub(crate) url: String,
    /// GET where there is nothing to send, else POST.
    pub(crate) method: Option<String>,
    /// `${NAME}` in a value is read from the tick's environment when the call is made.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Sent as `application/json`; `null` is sent too.
    #[serde(default, deserialize_with = "present")]
    pub(crate) json: Option<Box<RawValue>>,
    /// Sent as it is.
    pub(crate) body: Option<String>,
    #[serde(default, deserialize_with = "timeout")]
    pub(crate) timeout: Option<Duration>,
    /// How many redirects are followed; none by default.
    #[serde(default)]
    pub(crate) redirects: u32,
    /// Statuses that are worth another attempt, instead of the usual ones.
    transient_statuses: Option<Vec<Statuses>>,
}

/// One HTTP status, or a hundred of them: `"5xx"`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(try_from = "Value")]
enum Statuses {
    One(u16),
    Class(u16),
}

impl TryFrom<Value> for Statuses {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let class = |text: &str| {
            text.strip_suffix("xx").and_then(|digit| digit.parse().ok()).filter(|class| (3..=5).contains(class))
        };
        let one =
            value.as_u64().and_then(|status| u16::try_from(status).ok()).filter(|status| (300..600).contains(status));
        let statuses = one.map(Self::One).or_else(|| value.as_str().and_then(class).map(Self::Class));
        let what = "`transient_statuses` has what is no HTTP status from 300 to 599, and no class like \"5xx\"";
        statuses.ok_or_else(|| what.to_owned())
    }
}

impl Statuses {
    fn contains(self, status: u16) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::Class(class) => class == status / 100,
        }
    }
}

/// Returns the base name of a program as an error may show it: ` NAME`. Returns nothing if the word
/// may hold more than a name, such as a password.
pub(crate) fn program(word: &str) -> String {
    let name = word.rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    if (1..=63).contains(&name.len()) && name.chars().all(is_plain) { format!(" `{name}`") } else { String::new() }
}

/// The jobs whose payload says what to execute, and no definition does.
pub(crate) const BUILT_IN: [&str; 2] = ["shell", "http"];

pub(crate) fn is_built_in(job: &str) -> bool {
    BUILT_IN.contains(&job)
}

impl Action {
    /// Reads the action of a built-in job; `None` when `job` isn't one.
    ///
    /// # Errors
    /// What is wrong and where, fit to be shown: no part of the payload but the names of its keys.
    pub(crate) fn parse(job: &str, payload: &str) -> Option<Result<Self, String>> {
        let read = Self::read(job, payload)?;
        Some(read.map_err(|why| format!("payload is no {job} job: {why}")))
    }

    fn read(kind: &str, text: &str) -> Option<Result<Self, String>> {
        match kind {
            "shell" => Some(Shell::parse(text).map(Self::Shell)),
            "http" => Some(Http::parse(text).map(Self::Http)),
            _ => None,
        }
    }

    /// Reads the action of a definition, and gives it the run's payload.
    ///
    /// # Errors
    /// What is wrong with the action, as `parse`.
    pub(crate) fn of_definition(kind: &str, action: &str, payload: &str) -> Result<Self, String> {
        let payload = || RawValue::from_string(payload.to_owned()).map_err(|error| error.to_string());
        match Self::read(kind, action).unwrap_or_else(|| Err(format!("kind `{kind}` is not known")))? {
            Self::Shell(shell) => {
                let stdin = payload()?.get().to_owned();
                Ok(Self::Shell(Shell { stdin, source: Source::Definition, ..shell }))
            }
            Self::Http(http) if http.method.is_some() && matches!(http.method()?, Method::GET | Method::HEAD) => {
                Ok(Self::Http(http))
            }
            Self::Http(http) => Ok(Self::Http(Http { json: Some(payload()?), ..http })),
        }
    }

    /// Rejects a whole command line in one word: no host has a program of that name.
    ///
    /// # Errors
    /// Says what to write instead.
    pub(crate) fn check_program(&self) -> Result<(), String> {
        let Self::Shell(Shell { command: Command::Arguments(words), .. }) = self else { return Ok(()) };
        match words.as_slice() {
            [word] if word.contains(char::is_whitespace) && !Path::new(word).is_file() => {
                let why = "cannot find the program: the command is one word with blanks";
                Err(format!("{why}; pass its words separately, or use sh -c COMMAND"))
            }
            _ => Ok(()),
        }
    }

    /// Whether another attempt after this failure is pointless.
    pub(crate) fn is_permanent(&self, failure: &Failure) -> bool {
        match (self, failure) {
            (Self::Shell(Shell { permanent_exit_codes: Some(codes), .. }), Failure::ExitCode(code)) => {
                codes.contains(code)
            }
            (Self::Http(Http { transient_statuses: Some(transient), .. }), Failure::HttpStatus { status, .. }) => {
                !transient.iter().any(|statuses| statuses.contains(*status))
            }
            _ => failure.is_permanent(),
        }
    }
}

impl Shell {
    fn parse(payload: &str) -> Result<Self, String> {
        payload::check_stored(payload.as_bytes())?;
        let shell: Self = payload::read(payload)?;
        let words = match &shell.command {
            Command::Script(script) => std::slice::from_ref(script),
            Command::Arguments(words) => words.as_slice(),
        };
        if words.first().is_none_or(|first| first.trim().is_empty()) {
            return Err("`command` is empty".to_owned());
        }
        if words.iter().map(String::len).sum::<usize>() > COMMAND_LIMIT {
            return Err(format!("`command` is longer than {} KiB", COMMAND_LIMIT / 1024));
        }
        if shell.env.keys().any(|name| name.is_empty() || name.contains('=')) {
            return Err("`env` has a name that is empty or contains `=`".to_owned());
        }
        if shell.cwd.as_ref().is_some_and(String::is_empty) {
            return Err("`cwd` is empty".to_owned());
        }
        if shell.permanent_exit_codes.iter().flatten().any(|code| !(1..=255).contains(code)) {
            return Err("`permanent_exit_codes` has what is no exit status from 1 to 255".to_owned());
        }
        if shell.env.values().any(|value| value.len() > COMMAND_LIMIT) {
            return Err(format!("`env` has a value longer than {} KiB", COMMAND_LIMIT / 1024));
        }
        Ok(shell)
    }
}

impl Http {
    fn parse(payload: &str) -> Result<Self, String> {
        payload::check_stored(payload.as_bytes())?;
        let http: Self = payload::read(payload)?;
        url(&http.url)?;
        http.method()?;
        for (name, value) in &http.headers {
            header(name, value)?;
            parts(name, value)?;
        }
        if http.json.is_some() && http.body.is_some() {
            return Err("`json` and `body` exclude each other".to_owned());
        }
        if http.redirects > REDIRECT_LIMIT {
            return Err(format!("`redirects` is out of range; allowed are 0 to {REDIRECT_LIMIT}"));
        }
        Ok(http)
    }

    /// # Errors
    /// The method is none that HTTP knows.
    pub(crate) fn method(&self) -> Result<Method, String> {
        let sends = self.json.is_some() || self.body.is_some();
        let Some(name) = &self.method else { return Ok(if sends { Method::POST } else { Method::GET }) };
        match name.to_ascii_uppercase().as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => {
                Method::from_bytes(known.as_bytes()).map_err(|error| error.to_string())
            }
            _ => Err("`method` is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".to_owned()),
        }
    }
}

/// One header, checked.
///
/// # Errors
/// The message names the header unless the name may contain a value. It never shows the value.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| "`headers` has a name that HTTP does not allow")?;
    // These frame the request; a wrong one would let a payload smuggle a second request.
    if matches!(parsed.as_str(), "content-length" | "transfer-encoding" | "connection" | "host") {
        return Err(format!("header `{name}` is set by jobctl itself"));
    }
    let value = HeaderValue::from_str(value)
        .map_err(|_| format!("header `{name}` has a character that HTTP does not allow"))?;
    Ok((parsed, value))
}

/// A piece of a header's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part<'v> {
    Text(&'v str),
    /// Named as `${NAME}`.
    Variable(&'v str),
}

/// Takes a header's value apart where it names variables.
///
/// # Errors
/// A name is missing, or one that may not be sent; names the header, and nothing of its value else.
pub(crate) fn parts<'v>(header: &str, value: &'v str) -> Result<Vec<Part<'v>>, String> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once("${") {
        let named = behind.split_once('}').filter(|(name, _)| is_variable(name));
        let (name, after) = named.ok_or_else(|| format!("header `{header}` has a `${{` that no `NAME}}` follows"))?;
        if name.starts_with("JOBCTL_") || name.starts_with("PG") || name == "DATABASE_URL" {
            let why = "names a database variable (JOBCTL_*, PG*, DATABASE_URL), and these are never sent";
            return Err(format!("header `{header}` {why}"));
        }
        parts.extend([Part::Text(before), Part::Variable(name)]);
        rest = after;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Reads the address of a call.
///
/// # Errors
/// The message shows no part of the address.
pub(crate) fn url(text: &str) -> Result<Url, String> {
    // The parser would silently drop some of these characters.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("`url` has white space or a control character".to_owned());
    }
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(_) | Err(ParseError::RelativeUrlWithoutBase) => {
            return Err("`url` must start with http:// or https://".to_owned());
        }
        Err(error) => return Err(format!("`url` is not valid: {error}")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`url` holds a user name; send an authorization header instead".to_owned());
    }
    if url.port() == Some(0) {
        return Err("`url` has port 0".to_owned());
    }
    Ok(url)
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

fn stdin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    if raw.get().starts_with('"') {
        return serde_json::from_str(raw.get()).map_err(de::Error::custom);
    }
    Ok(raw.get().to_owned())
}

fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let (least, most) = TIMEOUT_RANGE;
    duration::parse_within(&text, least, most).map(Some).map_err(|_| {
        let (least, most) = (duration::show(least), duration::show(most));
        de::Error::custom(format_args!("`timeout` is no duration, as in 30s or 5m; allowed are {least} to {most}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(job: &str, payload: &str, why: &str) {
        let refused = Action::parse(job, payload).expect("a built-in job").unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }

    #[track_caller]
    fn http(payload: &str) -> Http {
        match Action::parse("http", payload) {
            Some(Ok(Action::Http(http))) => http,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_that_is_not_built_in_has_no_action_here() {
        assert!(Action::parse("send_weekly_report", "{}").is_none());
    }

    #[test]
    fn a_shell_job_says_what_is_wrong_with_it() {
        refuses("shell", "{}", "missing field `command`");
        refuses("shell", r#"{"comand": "x"}"#, "unknown field `comand`");
        refuses("shell", r#"{"command": 5}"#, "must be a string or a list of strings");
        refuses("shell", r#"{"command": []}"#, "`command` is empty");
        refuses("shell", r#"{"command": " "}"#, "`command` is empty");
        refuses("shell", r#"{"command": "x", "cwd": ""}"#, "`cwd` is empty");
        for codes in ["[0]", "[1, 256]", "[-1]"] {
            let payload = format!(r#"{{"command": "x", "permanent_exit_codes": {codes}}}"#);
            refuses("shell", &payload, "`permanent_exit_codes` has what is no exit status from 1 to 255");
        }
        let long = "x".repeat(COMMAND_LIMIT + 1);
        refuses("shell", &format!(r#"{{"command": "{long}"}}"#), "longer than 64 KiB");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_values() {
        let secrets = [
            ("http", r#"{"url": "http://a", "headers": "S3CRET"}"#),
            ("http", r#"{"url": "http://a", "headers": {"X": ["S3CRET, expected nothing"]}}"#),
            ("http", r#"{"url": "http://a", "timeout": "S3CRET"}"#),
            ("http", r#"{"url": "http://a", "redirects": "S3CRET"}"#),
            ("http", r#"{"url": "http://a", "redirects": -77}"#),
            ("http", r#"{"url": "http://a", "transient_statuses": ["S3CRET"]}"#),
            ("shell", r#""S3CRET""#),
            ("shell", r#"["S3CRET", null, {}, null, null]"#),
            ("shell", r#"{"command": "x", "env": "S3CRET, expected nothing"}"#),
            ("shell", r#"{"command": "x", "env": {"TOKEN=S3CRET": ""}}"#),
            ("http", r#"{"url": "http://a", "headers": {"Authorization: S3CRET": ""}}"#),
            ("shell", r#"{"command": "x", "permanent_exit_codes": "S3CRET"}"#),
        ];
        for (job, payload) in secrets {
            let why = Action::parse(job, payload).expect("a built-in job").unwrap_err();
            assert!(!why.contains("S3CRET") && !why.contains("77") && !why.contains("nothing"), "{why}");
        }
        refuses("http", r#"{"url": "http://a", "headers": "S3CRET"}"#, "expected a map at line 1 column");
        refuses("shell", r#"["x", null, {}, null, null]"#, "must be an object");
    }

    #[test]
    fn a_method_is_the_same_in_any_case() {
        for method in ["GET", "get", "Get", "HEAD", "hEAD"] {
            let action = format!(r#"{{"url": "http://a", "method": "{method}"}}"#);
            let call = Action::of_definition("http", &action, r#"{"a": 1}"#);
            assert!(matches!(call, Ok(Action::Http(Http { json: None, .. }))), "{method}");
        }
    }

    #[test]
    fn an_error_names_a_program_by_its_base_name_only() {
        for (word, shown) in [
            ("mysql", " `mysql`"),
            ("/opt/acme-4711/bin/python3.13", " `python3.13`"),
            ("mysql -pS3CRET", ""),
            ("mysql\t-pS3CRET", ""),
            ("PGPASSWORD=S3CRET", ""),
            ("https://u:S3CRET@a", ""),
            ("dir/", ""),
            ("\u{202e}x", ""),
            (&*"x".repeat(64), ""),
        ] {
            assert_eq!(program(word), shown);
        }
    }

    #[test]
    fn standard_input_is_a_string_as_it_is_and_the_rest_as_json() {
        let stdin = |payload: &str| match Action::parse("shell", payload) {
            Some(Ok(Action::Shell(shell))) => shell.stdin,
            other => panic!("{other:?}"),
        };
        assert_eq!(stdin(r#"{"command": "x"}"#), "");
        assert_eq!(stdin(r#"{"command": "x", "stdin": "a\nb"}"#), "a\nb");
        assert_eq!(
            stdin(r#"{"command": "x", "stdin": {"id": 12345678901234567890123}}"#),
            r#"{"id": 12345678901234567890123}"#
        );
    }

    #[test]
    fn a_call_that_sends_something_is_a_post() {
        assert_eq!(http(r#"{"url": "http://a"}"#).method(), Ok(Method::GET));
        assert_eq!(http(r#"{"url": "http://a", "json": null}"#).method(), Ok(Method::POST));
        assert_eq!(http(r#"{"url": "http://a", "body": "", "method": "put"}"#).method(), Ok(Method::PUT));
    }

    #[test]
    fn an_http_job_says_what_is_wrong_with_it() {
        for url in [
            "ftp://a/",
            "file:///etc/passwd",
            "a/b",
            "HTTP:",
            "http://",
            "http://u:p@a/",
            "http://a/\\r\\nX: y",
            "http://a b/",
            "http://a:0/",
            "http://a:65536/",
        ] {
            refuses("http", &format!(r#"{{"url": "{url}"}}"#), "`url`");
        }
        refuses("http", r#"{"url": "http://a", "method": "BREW"}"#, "`method`");
        refuses(
            "http",
            r#"{"url": "http://a", "headers": {"A B": "x"}}"#,
            "`headers` has a name that HTTP does not allow",
        );
        refuses("http", r#"{"url": "http://a", "headers": {"X": "secret\r\nY: z"}}"#, "header `X` has a character");
        refuses("http", r#"{"url": "http://a", "headers": {"Content-Length": "3"}}"#, "set by jobctl itself");
        for value in ["${", "${}", "${A", "${A B}", "${1A}", "${${TOKEN}}"] {
            let payload = format!(r#"{{"url": "http://a", "headers": {{"X": "{value}"}}}}"#);
            refuses("http", &payload, "header `X` has a `${` that no `NAME}` follows");
        }
        for name in ["JOBCTL_DATABASE_URL", "JOBCTL_X", "PGPASSWORD", "DATABASE_URL"] {
            let payload = format!(r#"{{"url": "http://a", "headers": {{"X": "Bearer ${{{name}}}"}}}}"#);
            refuses("http", &payload, "header `X` names a database variable");
        }
        refuses("http", r#"{"url": "http://a", "json": 1, "body": "x"}"#, "exclude each other");
        refuses("http", r#"{"url": "http://a", "timeout": "5"}"#, "`timeout`");
        refuses("http", r#"{"url": "http://a", "timeout": "0s"}"#, "allowed are 1s to 30d");
        refuses("http", r#"{"url": "http://a", "redirects": 6}"#, "allowed are 0 to 5");
    }
}
