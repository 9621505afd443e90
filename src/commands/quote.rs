//! Quotes texts for crontabs and units of systemd. Rejects a text that cron or systemd would read
//! as something else, such as one with a newline, which would add a line.

use std::path::Path;

use anyhow::Context;

use crate::exit::{Exit, Fault};
use crate::text::shell;

/// The most bytes of a variable or a command in a crontab: Debian's cron cuts longer ones.
const LONGEST: usize = 998;

/// Returns the path of this program.
pub(super) fn program() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find out where jobctl is")?;
    path("jobctl", &program)
}

/// Returns the path of a file as text; `what` is its name in an error.
pub(super) fn path(what: &str, path: &Path) -> anyhow::Result<String> {
    let text = std::path::absolute(path)?;
    let text = text.to_str().filter(|text| is_plain(text)).map(str::to_owned);
    text.ok_or_else(|| {
        let why = "it has backslashes, control characters or is not UTF-8; use another path";
        Fault::new(Exit::Configuration, format!("cannot write the path of {what}: {why}")).into()
    })
}

/// Fails if cron would change the value of a flag. Units have the same rule, so that a value which
/// is right in one form is right in the other.
pub(super) fn argument(flag: &str, value: &str) -> anyhow::Result<()> {
    if is_plain(value) {
        return Ok(());
    }
    let why = "it has backslashes or control characters; write a script, and name that";
    Err(Fault::new(Exit::Configuration, format!("cannot write the value of {flag}: {why}")).into())
}

/// Returns whether cron and systemd read the text as it is. Backslashes are excluded, because cron
/// removes a backslash before `%` and before another backslash.
fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || c == '\\')
}

/// Quotes a word for the shell that cron starts. Escapes `%`, at which cron ends the command.
pub(super) fn cron_word(word: &str) -> String {
    shell::quoted(word).replace('%', r"\%")
}

/// Returns the line of a crontab that starts a command.
pub(super) fn cron_entry(schedule: &str, command: &str) -> anyhow::Result<String> {
    if command.len() <= LONGEST {
        return Ok(format!("{schedule} {command}"));
    }
    let why = format!(
        "cannot write a command into a crontab: it is longer than {LONGEST} bytes; shorten its \
         words"
    );
    Err(Fault::new(Exit::Configuration, why).into())
}

/// Returns the line of a crontab that sets a variable, in which `%` has no special meaning.
pub(super) fn cron_variable(name: &str, value: &str) -> anyhow::Result<String> {
    let line = format!("{name}={value}");
    let is_plain = !value.contains(char::is_control) && value == value.trim();
    if is_plain && !value.starts_with(['"', '\'']) && line.len() <= LONGEST {
        return Ok(line);
    }
    let why = format!(
        "cannot write {name} into a crontab: it is longer than {LONGEST} bytes, or has quotes or \
         control characters; shorten it"
    );
    Err(Fault::new(Exit::Configuration, why).into())
}

/// Quotes an argument for a unit. Doubles `$`, which systemd expands in arguments.
pub(super) fn unit_word(text: &str) -> String {
    unit_quoted(text).replace('$', "$$")
}

/// Quotes a program or a variable for a unit. Doubles `%`, which systemd expands everywhere.
pub(super) fn unit_quoted(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}

/// Returns the line of a unit that sets a variable.
pub(super) fn unit_variable(name: &str, value: &str) -> anyhow::Result<String> {
    if value.contains(char::is_control) {
        let why =
            format!("cannot write {name} into a unit: it has control characters; remove them");
        return Err(Fault::new(Exit::Configuration, why).into());
    }
    Ok(format!("Environment={}", unit_quoted(&format!("{name}={value}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_cron_and_the_shell() {
        assert_eq!(cron_word("/usr/local/bin/jobctl"), "'/usr/local/bin/jobctl'");
        assert_eq!(cron_word("/a b/100%'s/jobctl"), r"'/a b/100\%'\''s/jobctl'");
    }

    #[test]
    fn a_text_that_cron_would_change_is_rejected() {
        let line = |value: &str| cron_variable("PATH", value).map_err(|error| error.to_string());
        assert_eq!(line("/usr/bin:/50%"), Ok("PATH=/usr/bin:/50%".to_owned()));
        for value in ["a\nb", " a", "\"a\"", &"a".repeat(LONGEST)] {
            assert!(line(value).is_err_and(|why| why.contains("shorten it")), "{value}");
        }
        for name in ["/a\n* * * * * x", "/a\r", "/a\\%b", "/a\u{7f}"] {
            assert!(path("x", Path::new(name)).is_err(), "{name}");
        }
        assert!(cron_entry("@daily", &"a".repeat(LONGEST)).is_ok());
        assert!(cron_entry("@daily", &"a".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn a_text_survives_systemd() {
        assert_eq!(unit_word("/a $b/50%"), "\"/a $$b/50%%\"");
        let line = |value: &str| unit_variable("A", value).map_err(|error| error.to_string());
        assert_eq!(line("a \"$b\" $$ \\"), Ok(r#"Environment="A=a \"$b\" $$ \\""#.to_owned()));
        assert!(line("a\nExecStart=x").is_err());
    }
}
