//! What a run executes: a command or an HTTP call. An enqueue reads it to refuse mistakes early. A
//! tick reads it again after the claim, because any program may have written the row. Pure, except
//! for `check_program`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;
use url::{ParseError, Url};

use crate::job::failure::Failure;
use crate::job::payload;
use crate::text::duration;
use crate::text::words::words;

words! {
    /// What a job executes. The built-in jobs have these names; their payload says what to execute.
    pub(crate) enum JobKind {
        Shell = "shell",
        Http = "http",
    }

    /// The methods of HTTP that a call can have.
    pub(crate) enum Method {
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
        Options = "OPTIONS",
    }
}

/// The least and the most timeout of an action or a run.
pub(crate) const TIMEOUT_RANGE: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(30 * 86400));
/// The timeout of a call if neither the call nor its run has one.
pub(crate) const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum of `max_attempts`.
pub(crate) const MOST_ATTEMPTS: i32 = 1000;
/// The most bytes of a command, and of a value of `env`. The kernel accepts at most 128 KiB.
const COMMAND_LIMIT: usize = 64 * 1024;
/// The maximum of `redirects`.
const REDIRECT_LIMIT: u32 = 5;

#[derive(Debug)]
pub(crate) enum Action {
    Shell(Shell),
    Http(Http),
}

/// A command, as in the payload of a `shell` run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shell {
    pub(crate) command: ShellCommand,
    /// The working directory; by default that of the tick.
    pub(crate) cwd: Option<String>,
    /// Variables to add to the tick's environment.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// The command's input: a string as it is, any other value as JSON.
    #[serde(default, deserialize_with = "stdin")]
    pub(crate) stdin: String,
    /// Exit statuses that make a run dead at once, instead of the usual ones.
    permanent_exit_codes: Option<Vec<i32>>,
    /// Exit statuses that ask for an attempt later, instead of 75.
    snooze_exit_codes: Option<Vec<i32>>,
    /// The command comes from a definition, not from the payload of a built-in job.
    #[serde(skip)]
    pub(crate) is_defined: bool,
}

/// A string is run by `sh -c`; a list is run without a shell.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`command` must be a string or a list of strings")]
pub(crate) enum ShellCommand {
    Script(String),
    Arguments(Vec<String>),
}

/// An HTTP call, as in the payload of an `http` run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    pub(crate) url: String,
    /// By default POST if the call has a body, else GET.
    pub(crate) method: Option<String>,
    /// `${NAME}` in a value is read from the tick's environment when the call is made.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body, sent as `application/json`. `null` is a body, too.
    #[serde(default, deserialize_with = "present")]
    pub(crate) json: Option<Box<RawValue>>,
    /// The body, sent as it is.
    pub(crate) body: Option<String>,
    #[serde(default, deserialize_with = "timeout")]
    pub(crate) timeout: Option<Duration>,
    /// The number of redirects to follow.
    #[serde(default)]
    pub(crate) redirects: u32,
    /// Statuses that are worth another attempt, instead of the usual ones.
    transient_statuses: Option<Vec<Statuses>>,
}

/// One HTTP status, or a class of them: `"5xx"`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Statuses(RangeInclusive<u16>);

impl TryFrom<Value> for Statuses {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let one = value.as_u64().and_then(|status| u16::try_from(status).ok());
        let class = value.as_str().and_then(|text| text.strip_suffix("xx")?.parse::<u8>().ok());
        let statuses = match (one, class.map(u16::from)) {
            (Some(status @ 300..600), _) => status..=status,
            (_, Some(class @ 3..=5)) => class * 100..=class * 100 + 99,
            _ => {
                return Err("`transient_statuses` must hold HTTP statuses from 300 to 599 \
                     or classes such as \"5xx\"");
            }
        };
        Ok(Self(statuses))
    }
}

/// Returns the base name of a program, which an error may show; `None` if the word may contain more
/// than a name, such as a password.
pub(crate) fn program_name(word: &str) -> Option<&str> {
    let name = word.rsplit('/').next()?;
    Some(name).filter(|name| (1..=63).contains(&name.len()) && is_plain_path(name))
}

/// Returns whether the word is only a program's name or path, and contains no password.
pub(crate) fn is_plain_path(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || "/._+-".contains(c))
}

/// Returns the hint for a command without a shell whose first word sets a variable.
pub(crate) fn assignment(word: &str) -> Option<String> {
    let (name, _) = word.split_once('=').filter(|(name, _)| is_variable(name))?;
    Some(format!(
        "the first word sets the variable {name}, as only a shell does; begin with `env {name}=...`"
    ))
}

/// Refuses a command without a shell whose first word only a shell would understand: it sets a
/// variable, is a whole command line, or begins with `~`. Accepts any other missing program,
/// because another host may have it.
pub(crate) fn check_program(words: &[String]) -> Result<(), String> {
    let Some(first) = words.first().filter(|first| !Path::new(first).is_file()) else {
        return Ok(());
    };
    let why = if let Some(hint) = assignment(first) {
        hint
    } else if words.len() == 1 && first.contains(char::is_whitespace) {
        "the command is one word with blanks; pass its words separately, or use sh -c COMMAND"
            .to_owned()
    } else if first.starts_with('~') {
        "the first word begins with `~`, which only a shell replaces; write the whole path"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(format!("cannot find the program: {why}"))
}

/// Returns whether this job needs no definition, because its payload says what to execute.
pub(crate) fn is_built_in(job: &str) -> bool {
    JobKind::of(job).is_some()
}

impl Action {
    /// Reads the action of a built-in job; `None` for another job. An error shows no part of the
    /// payload but the names of its keys.
    pub(crate) fn parse(job: &str, payload: &str) -> Option<Result<Self, String>> {
        let kind = JobKind::of(job)?;
        let article = match kind {
            JobKind::Shell => "a",
            JobKind::Http => "an",
        };
        let wrong = |why| format!("the payload is not {article} {kind} job: {why}");
        Some(Self::read(kind, payload).map_err(wrong))
    }

    /// Reads the keys of an action, which are the same in a payload and in a definition.
    fn read(kind: JobKind, text: &str) -> Result<Self, String> {
        match kind {
            JobKind::Shell => Shell::parse(text).map(Self::Shell),
            JobKind::Http => Http::parse(text).map(Self::Http),
        }
    }

    /// Reads the action of a definition and adds the run's payload to it.
    pub(crate) fn of_definition(
        kind: JobKind,
        action: &str,
        payload: &str,
    ) -> Result<Self, String> {
        let mut action = Self::read(kind, action)?;
        match &mut action {
            Self::Shell(shell) => {
                shell.stdin = payload.to_owned();
                shell.is_defined = true;
            }
            Self::Http(http) => {
                // GET and HEAD have no body, so the payload is not sent. Without a method, the
                // payload makes the call a POST.
                let has_no_body =
                    http.method.is_some() && matches!(http.method()?, Method::Get | Method::Head);
                if !has_no_body {
                    let json = RawValue::from_string(payload.to_owned());
                    http.json = Some(json.map_err(|error| error.to_string())?);
                }
            }
        }
        Ok(action)
    }

    /// Refuses a command without a shell whose first word only a shell would understand.
    pub(crate) fn check_program(&self) -> Result<(), String> {
        match self {
            Self::Shell(Shell { command: ShellCommand::Arguments(words), .. }) => {
                check_program(words)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the failure asks for another attempt later: by an exit status, usually 75
    /// (`EX_TEMPFAIL` of sysexits.h), or by a `Retry-After` of the server.
    pub(crate) fn is_snooze(&self, failure: &Failure) -> bool {
        match (self, failure) {
            (Self::Shell(Shell { snooze_exit_codes, .. }), Failure::ExitCode(code)) => {
                snooze_exit_codes.as_deref().unwrap_or(&[75]).contains(code)
            }
            (Self::Http(_), Failure::HttpStatus { retry_after, .. }) => retry_after.is_some(),
            _ => false,
        }
    }

    /// Returns whether another attempt after this failure is pointless.
    pub(crate) fn is_permanent(&self, failure: &Failure) -> bool {
        match (self, failure) {
            (
                Self::Shell(Shell { permanent_exit_codes: Some(codes), .. }),
                Failure::ExitCode(code),
            ) => codes.contains(code),
            (
                Self::Http(Http { transient_statuses: Some(transient), .. }),
                Failure::HttpStatus { status, .. },
            ) => !transient.iter().any(|statuses| statuses.0.contains(status)),
            _ => failure.is_permanent(),
        }
    }
}

/// Fails with the first mistake that was made. `mistakes` has possible ones: whether each was made,
/// and its message.
fn refuse_mistakes<const N: usize>(mistakes: [(bool, &str); N]) -> Result<(), String> {
    match mistakes.into_iter().find(|(is_made, _)| *is_made) {
        Some((_, message)) => Err(message.to_owned()),
        None => Ok(()),
    }
}

impl Shell {
    fn parse(payload: &str) -> Result<Self, String> {
        let shell: Self = payload::read(payload.as_bytes())?;
        let words = match &shell.command {
            ShellCommand::Script(script) => std::slice::from_ref(script),
            ShellCommand::Arguments(words) => words.as_slice(),
        };
        let length: usize = words.iter().map(String::len).sum();
        let is_name = |name: &String| !name.is_empty() && !name.contains('=');
        let is_long = |value: &String| value.len() > COMMAND_LIMIT;
        let are_codes =
            |codes: &Option<Vec<i32>>| codes.iter().flatten().all(|code| (1..=255).contains(code));
        let is_permanent = |code: &i32| match &shell.permanent_exit_codes {
            Some(codes) => codes.contains(code),
            None => Failure::ExitCode(*code).is_permanent(),
        };
        refuse_mistakes([
            (words.first().is_none_or(|first| first.trim().is_empty()), "`command` is empty"),
            (length > COMMAND_LIMIT, "`command` is longer than 64 KiB"),
            (!shell.env.keys().all(is_name), "`env` has a name that is empty or contains `=`"),
            (shell.cwd.as_ref().is_some_and(String::is_empty), "`cwd` is empty"),
            (
                shell.cwd.as_ref().is_some_and(|cwd| cwd.starts_with('~')),
                "`cwd` begins with `~`, which only a shell replaces; write the whole path",
            ),
            (
                !are_codes(&shell.permanent_exit_codes),
                "`permanent_exit_codes` must hold exit statuses from 1 to 255",
            ),
            (
                !are_codes(&shell.snooze_exit_codes),
                "`snooze_exit_codes` must hold exit statuses from 1 to 255",
            ),
            (
                shell.snooze_exit_codes.iter().flatten().any(is_permanent),
                "`snooze_exit_codes` has a permanent exit status; give `permanent_exit_codes` \
                 without it",
            ),
            (shell.env.values().any(is_long), "`env` has a value longer than 64 KiB"),
        ])?;
        Ok(shell)
    }
}

impl Http {
    fn parse(payload: &str) -> Result<Self, String> {
        let http: Self = payload::read(payload.as_bytes())?;
        if http.url.contains("${") {
            return Err("`url` has a `${`, but only headers get variables; send the secret in a \
                        header, such as authorization"
                .to_owned());
        }
        url(&http.url)?;
        http.method()?;
        for (name, value) in &http.headers {
            check_header(name, value)?;
            parts(name, value)?;
        }
        refuse_mistakes([
            (http.json.is_some() && http.body.is_some(), "`json` and `body` exclude each other"),
            (http.redirects > REDIRECT_LIMIT, "`redirects` is out of range; allowed are 0 to 5"),
        ])?;
        Ok(http)
    }

    /// Returns the method of the call; without one, POST if the call has a body, else GET.
    pub(crate) fn method(&self) -> Result<Method, String> {
        let Some(name) = &self.method else {
            let has_body = self.json.is_some() || self.body.is_some();
            return Ok(if has_body { Method::Post } else { Method::Get });
        };
        name.to_ascii_uppercase().parse().map_err(|why| format!("`method` {why}"))
    }
}

/// Checks one header, by RFC 9110 5.5 and 5.6.2. An error names the header unless the name may
/// contain a value. It never shows the value.
pub(crate) fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err("`headers` has a name that HTTP does not allow".to_owned());
    }
    // These headers say where the request ends and begins. With one of its own, a payload could
    // smuggle a second request into the first.
    let reserved = ["content-length", "transfer-encoding", "connection", "host"];
    if reserved.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(format!("header `{name}` is set by jobctl itself"));
    }
    if !value.chars().all(|c| matches!(c, '\t' | ' '..='~')) {
        return Err(format!("header `{name}` has a character that HTTP does not allow"));
    }
    Ok(())
}

/// Splits a header's value into texts, each with the name of the variable `${NAME}` that follows
/// it; the last text has none. An error names the header, but shows no part of the value.
pub(crate) fn parts<'v>(
    header: &str,
    value: &'v str,
) -> Result<Vec<(&'v str, Option<&'v str>)>, String> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once("${") {
        let named = behind.split_once('}').filter(|(name, _)| is_variable(name));
        let (name, after) = named
            .ok_or_else(|| format!("header `{header}` has a `${{` that no `NAME}}` follows"))?;
        if name.starts_with("JOBCTL_") || name.starts_with("PG") || name == "DATABASE_URL" {
            let why =
                "names a database variable (JOBCTL_*, PG*, DATABASE_URL), and these are never sent";
            return Err(format!("header `{header}` {why}"));
        }
        parts.push((before, Some(name)));
        rest = after;
    }
    parts.push((rest, None));
    Ok(parts)
}

/// Returns whether a header's value has a variable as in a shell: `$NAME`.
pub(crate) fn has_shell_variable(value: &str) -> bool {
    let mut names = value.split('$').skip(1);
    names.any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// Returns whether a text is the name of a shell variable.
pub(crate) fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Reads the address of a call. An error shows no part of the address.
pub(crate) fn url(text: &str) -> Result<Url, String> {
    // Refuse these characters: the parser would silently drop some of them.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("`url` has white space or a control character".to_owned());
    }
    // Check this here: in `http:///a`, the parser would take `a` for the host.
    let has_host = text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.contains(['/', ':', '\\']) && !rest.starts_with(['/', '\\'])
    });
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && !has_host => {
            return Err("`url` has no host; write http://HOST/PATH".to_owned());
        }
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(_) | Err(ParseError::RelativeUrlWithoutBase) => {
            return Err("`url` must start with http:// or https://".to_owned());
        }
        Err(error) => return Err(format!("`url` is not valid: {error}")),
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    refuse_mistakes([
        (has_user, "`url` holds a user name; send an authorization header instead"),
        (url.port() == Some(0), "`url` has port 0"),
    ])?;
    Ok(url)
}

/// Reads `json`, so that `null` differs from a missing value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Reads `stdin`: a string as it is, any other value as JSON.
fn stdin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    if raw.get().starts_with('"') {
        return serde_json::from_str(raw.get()).map_err(de::Error::custom);
    }
    Ok(raw.get().to_owned())
}

/// Reads `timeout`, which must be a text with a unit.
fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    // A number becomes an empty text, which is refused: it has no unit.
    let value = Value::deserialize(deserializer)?;
    let text = value.as_str().unwrap_or_default();
    let (least, most) = TIMEOUT_RANGE;
    duration::parse_within(text, least, most).map(Some).map_err(|_| {
        let (least, most) = (duration::show(least), duration::show(most));
        de::Error::custom(format_args!(
            "`timeout` must be a duration from {least} to {most}, such as 30s or 5m"
        ))
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
    fn only_built_in_jobs_have_their_action_in_the_payload() {
        assert!(Action::parse("send_weekly_report", "{}").is_none());
    }

    #[test]
    fn an_error_names_the_mistake_of_a_shell_job() {
        refuses("shell", "{}", "missing field `command`");
        refuses("shell", r#"{"comand": "x"}"#, "; did you mean `command`?");
        refuses("shell", r#"{"command": 5}"#, "must be a string or a list of strings");
        refuses("shell", r#"{"command": []}"#, "`command` is empty");
        refuses("shell", r#"{"command": " "}"#, "`command` is empty");
        refuses("shell", r#"{"command": "x", "cwd": ""}"#, "`cwd` is empty");
        for cwd in ["~", "~/x", "~ana/x"] {
            let payload = format!(r#"{{"command": "x", "cwd": "{cwd}"}}"#);
            refuses("shell", &payload, "`cwd` begins with `~`, which only a shell replaces");
        }
        for codes in [
            r#""snooze_exit_codes": [75, 78]"#,
            r#""snooze_exit_codes": [3],
            "permanent_exit_codes": [2, 3]"#,
        ] {
            let payload = format!(r#"{{"command": "x", {codes}}}"#);
            refuses("shell", &payload, "`snooze_exit_codes` has a permanent exit status");
        }
        let home = check_program(&["~/bin/backup".to_owned()]).expect_err("no shell");
        assert!(home.ends_with("only a shell replaces; write the whole path"), "{home}");
        for codes in ["[0]", "[1, 256]", "[-1]"] {
            let payload = format!(r#"{{"command": "x", "permanent_exit_codes": {codes}}}"#);
            refuses(
                "shell",
                &payload,
                "`permanent_exit_codes` must hold exit statuses from 1 to 255",
            );
        }
        let long = "x".repeat(COMMAND_LIMIT + 1);
        refuses("shell", &format!(r#"{{"command": "{long}"}}"#), "longer than 64 KiB");
        refuses("shell", &format!(r#"{{"command": "x", "{long}": 1}}"#), "bytes left out] ");
    }

    #[test]
    fn an_error_shows_no_values() {
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
            assert!(
                !why.contains("S3CRET") && !why.contains("77") && !why.contains("nothing"),
                "{why}"
            );
        }
        refuses(
            "http",
            r#"{"url": "http://a", "headers": "S3CRET"}"#,
            "expected a map, at line 1 column",
        );
        refuses("shell", r#"["x", null, {}, null, null]"#, "must be an object");
    }

    #[test]
    fn a_method_is_the_same_in_any_case() {
        for method in ["GET", "get", "Get", "HEAD", "hEAD"] {
            let action = format!(r#"{{"url": "http://a", "method": "{method}"}}"#);
            let call = Action::of_definition(JobKind::Http, &action, r#"{"a": 1}"#);
            assert!(matches!(call, Ok(Action::Http(Http { json: None, .. }))), "{method}");
        }
    }

    #[test]
    fn an_error_names_a_program_by_its_base_name_only() {
        for (word, shown) in [
            ("mysql", Some("mysql")),
            ("/opt/acme-4711/bin/python3.13", Some("python3.13")),
            ("mysql -pS3CRET", None),
            ("mysql\t-pS3CRET", None),
            ("PGPASSWORD=S3CRET", None),
            ("https://u:S3CRET@a", None),
            ("dir/", None),
            ("\u{202e}x", None),
            (&*"x".repeat(64), None),
        ] {
            assert_eq!(program_name(word), shown);
        }
    }

    #[test]
    fn a_string_is_stdin_unchanged_and_other_values_are_json() {
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
    fn a_call_with_a_body_is_a_post() {
        assert_eq!(http(r#"{"url": "http://a"}"#).method(), Ok(Method::Get));
        assert_eq!(http(r#"{"url": "http://a", "json": null}"#).method(), Ok(Method::Post));
        assert_eq!(
            http(r#"{"url": "http://a", "body": "", "method": "put"}"#).method(),
            Ok(Method::Put)
        );
    }

    #[test]
    fn an_error_names_the_mistake_of_an_http_job() {
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
            "http:///a",
            "http:/a",
            "https:a",
            "http://\\\\a",
            "http:/a://b",
        ] {
            refuses("http", &format!(r#"{{"url": "{url}"}}"#), "`url`");
        }
        refuses("http", r#"{"url": "http://a", "method": "BREW"}"#, "`method`");
        refuses(
            "http",
            r#"{"url": "http://a", "headers": {"A B": "x"}}"#,
            "`headers` has a name that HTTP does not allow",
        );
        refuses(
            "http",
            r#"{"url": "http://a", "headers": {"X": "secret\r\nY: z"}}"#,
            "header `X` has a character",
        );
        refuses(
            "http",
            r#"{"url": "http://a", "headers": {"Content-Length": "3"}}"#,
            "set by jobctl itself",
        );
        refuses("http", r#"{"url": "http://a/?t=${TOKEN}"}"#, "only headers get variables");
        for value in ["${", "${}", "${A", "${A B}", "${1A}", "${${TOKEN}}"] {
            let payload = format!(r#"{{"url": "http://a", "headers": {{"X": "{value}"}}}}"#);
            refuses("http", &payload, "header `X` has a `${` that no `NAME}` follows");
        }
        for name in ["JOBCTL_DATABASE_URL", "JOBCTL_X", "PGPASSWORD", "DATABASE_URL"] {
            let payload =
                format!(r#"{{"url": "http://a", "headers": {{"X": "Bearer ${{{name}}}"}}}}"#);
            refuses("http", &payload, "header `X` names a database variable");
        }
        refuses("http", r#"{"url": "http://a", "json": 1, "body": "x"}"#, "exclude each other");
        for timeout in ["60", "\"5\"", "\"400d\""] {
            let why = "`timeout` must be a duration from 1s to 30d, such as 30s or 5m";
            refuses("http", &format!(r#"{{"url": "http://a", "timeout": {timeout}}}"#), why);
        }
        refuses("http", r#"{"url": "http://a", "timeout": "0s"}"#, "a duration from 1s to 30d");
        refuses("http", r#"{"url": "http://a", "redirects": 6}"#, "allowed are 0 to 5");
    }
}
