//! The file of variables, for secrets that jobs need: cron writes all variables of a crontab into
//! the header of each mail, but this file only names itself there.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::environment::is_blank;
use crate::exit::{Exit, Fault};
use crate::files::{self, SETTINGS_LIMIT};
use crate::job::action::is_variable;

/// The variable with the path of the file.
pub(super) const VARIABLE: &str = "JOBCTL_ENV_FILE";

/// The names that the file set.
static HAS_SET: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Sets the variables of the file for this process and its jobs, except those that are set already.
/// Call it while the process has one thread.
pub(crate) fn load() -> anyhow::Result<()> {
    let Some(path) = path() else { return Ok(()) };
    if is_blank(path.as_os_str()) {
        return Err(Fault::empty(VARIABLE).into());
    }
    let variables = read(&path).map_err(|cause| {
        let line = format!("cannot use {VARIABLE} {}: {cause}", path.display());
        Fault::new(Exit::Configuration, line)
    })?;
    // An empty variable counts as unset, because a crontab cannot unset one.
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut names = BTreeSet::new();
    for (name, value) in variables {
        if !is_set(&name) || names.contains(&name) {
            #[allow(unsafe_code, reason = "std offers no other way to set a variable")]
            // SAFETY: no other thread runs that could read the environment.
            unsafe {
                env::set_var(&name, value);
            }
            names.insert(name);
        }
    }
    // Fails if it was set before; the file is loaded once.
    let _ = HAS_SET.set(names);
    Ok(())
}

/// Returns the path of the file, if there is one.
pub(super) fn path() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// Returns whether the value of a variable is from the file.
pub(super) fn has_set(name: &str) -> bool {
    HAS_SET.get().is_some_and(|names| names.contains(name))
}

/// Returns whether a file sets a variable; `false` if it can't be read.
pub(super) fn sets(path: &str, name: &str) -> bool {
    read(Path::new(path)).is_ok_and(|variables| variables.iter().any(|(set, _)| set == name))
}

fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = files::open_private(path)
        .and_then(|file| files::read_text(file, SETTINGS_LIMIT))
        .map_err(|error| error.to_string())?;
    parse(&text)
}

/// Reads lines `NAME=VALUE`. Quotes around a value are dropped, as in cron, systemd and shells. A
/// value that these read in different ways is a mistake.
fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1_u32..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let variable = |line: &str| {
        let given = line.strip_prefix("export ").unwrap_or(line).split_once('=');
        let (name, value) = given
            .filter(|(name, value)| is_variable(name) && !value.contains('\0'))
            .ok_or("is not NAME=VALUE; correct it")?;
        Ok((name.to_owned(), unquoted(value)?.to_owned()))
    };
    // The error does not show the line, which may be a secret.
    let mistake = |number, why: &str| format!("line {number} {why}");
    lines.map(|(number, line)| variable(line).map_err(|why| mistake(number, why))).collect()
}

fn unquoted(value: &str) -> Result<&str, &'static str> {
    let Some(quote) = value.chars().next().filter(|first| ['"', '\''].contains(first)) else {
        const MISTAKE: &str = "has a `#` or ends with a backslash; put its value into single \
                               quotes, and comments into lines of their own";
        let is_mistake = value.contains(" #") || value.contains("\t#") || value.ends_with('\\');
        return if is_mistake { Err(MISTAKE) } else { Ok(value) };
    };
    match value[1..].split_once(quote) {
        Some((inner, "")) if quote == '\'' || !inner.contains('\\') => Ok(inner),
        Some((_, "")) => Err("has a backslash in double quotes; use single quotes"),
        _ => Err("has text behind its closing quote, or no closing quote; put the whole value \
                  into one pair of quotes, and comments into lines of their own"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_a_value() {
        let text = "# secrets\n\nA=1\nexport B_2=\"x y\"\n C='=\"' \r\nD=\n";
        let read: Vec<_> = parse(text).expect("variables");
        let read: Vec<_> = read.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(read, ["A:1", "B_2:x y", "C:=\"", "D:"]);
        for wrong in ["s3cret", "=a", "A B=1", "1A=1", "A =1", "A=\0"] {
            let why = parse(&format!("X=1\n{wrong}\n")).expect_err("a mistake");
            assert_eq!(why, "line 2 is not NAME=VALUE; correct it", "{wrong}");
        }
    }

    #[test]
    fn a_value_has_one_reading() {
        for (line, value) in [
            ("\u{feff}A=1", "1"),
            ("A='a\"\\ #b'", "a\"\\ #b"),
            ("A=\"it's # one\"", "it's # one"),
            ("A=a#b c#d", "a#b c#d"),
            ("A=a\\b c", "a\\b c"),
            ("A=it's", "it's"),
            ("A=''", ""),
        ] {
            assert_eq!(parse(line), Ok(vec![("A".to_owned(), value.to_owned())]), "{line}");
        }
        for (line, why) in [
            ("A=1 # one", "has a `#`"),
            ("A=1\t# one", "has a `#`"),
            ("A=1 \\", "ends with a backslash"),
            ("A=\"1\" # one", "has text behind its closing quote"),
            ("A='1'2", "has text behind its closing quote"),
            ("A='it''s'", "has text behind its closing quote"),
            ("A=\"1", "no closing quote"),
            ("A='", "no closing quote"),
            ("A=\"a\\\"b\"", "has text behind its closing quote"),
            ("A=\"a\\nb\"", "has a backslash in double quotes"),
        ] {
            let mistake = parse(line).expect_err(line);
            assert!(mistake.starts_with("line 1 ") && mistake.contains(why), "{line}: {mistake}");
        }
    }
}
