//! Reads a file of variables, for secrets that jobs need. In the crontab, cron would write them
//! into the header of each mail; of this file, the header has only the path. The user's own file,
//! `~/.config/jobctl/env`, names the database for commands in a new shell.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::connect;
use crate::exit::{Exit, Fault};
use crate::files::{self, SETTINGS_LIMIT};
use crate::job::action::is_variable;

/// The variable with the path of the file.
pub(super) const VARIABLE: &str = "JOBCTL_ENV_FILE";

/// The file that was read, and the names that it set.
static LOADED: OnceLock<(PathBuf, BTreeSet<String>)> = OnceLock::new();

/// Sets the variables of a file for this process and its jobs, except those that are set already.
/// `VARIABLE` names the file. Without it, reads the user's own file, unless a flag or a variable
/// names a database. Call it while the process has one thread.
pub(crate) fn load() -> anyhow::Result<()> {
    let given = env::var_os(VARIABLE).map(PathBuf::from);
    let given_by = if given.is_some() { format!("{VARIABLE} ") } else { String::new() };
    let names_database =
        || is_typed("--database-url") || is_set(super::VARIABLE) || connect::is_named(is_set);
    let own = || own_path().filter(|path| path.exists() && !names_database());
    let Some(path) = given.or_else(own) else { return Ok(()) };
    if is_blank(path.as_os_str()) {
        return Err(Fault::empty(VARIABLE).into());
    }
    let variables =
        read(&path).map_err(|cause| unusable(&format!("{given_by}{}", path.display()), &cause))?;
    let mut names = BTreeSet::new();
    for (name, value) in variables {
        // If the file sets a variable twice, the last value counts.
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
    let _ = LOADED.set((path, names));
    Ok(())
}

/// Returns whether the command line has a flag.
pub(super) fn is_typed(flag: &str) -> bool {
    let mut words = env::args_os().skip(1).take_while(|word| word != "--");
    words.any(|word| word.to_str().is_some_and(|word| word.split('=').next() == Some(flag)))
}

/// Returns whether a value is empty or has only blanks.
pub(super) fn is_blank(value: &OsStr) -> bool {
    value.as_encoded_bytes().trim_ascii().is_empty()
}

/// Returns whether a variable has a value. An empty one counts as unset, because a crontab can't
/// unset a variable.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// The error about a file that can't be used.
fn unusable(what: &str, cause: &str) -> Fault {
    Fault::new(Exit::Configuration, format!("cannot use {what}: {cause}"))
}

/// Returns the path of the user's own file; `None`: this user has no folder for settings.
pub(super) fn own_path() -> Option<PathBuf> {
    Some(files::config_folder()?.join("jobctl/env"))
}

/// Returns the path of the file that was read, if one was.
pub(super) fn path() -> Option<&'static Path> {
    LOADED.get().map(|(path, _)| path.as_path())
}

/// Returns whether the value of a variable is from the file.
pub(super) fn has_set(name: &str) -> bool {
    LOADED.get().is_some_and(|(_, names)| names.contains(name))
}

/// The user's own file, and its text with another address.
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    /// Whether the file has an address now.
    pub(super) has_address: bool,
    /// `None`: the file has the new address already.
    pub(super) new_text: Option<String>,
}

impl OwnFile {
    /// Makes the text in which these variables of an address replace those of the file. Does not
    /// write it.
    pub(super) fn with_address(address: &[(String, String)]) -> anyhow::Result<Self> {
        let no_folder = "cannot find your folder for settings: set HOME";
        let path = own_path().ok_or_else(|| Fault::new(Exit::Configuration, no_folder))?;
        if address.is_empty() {
            let no_address =
                "cannot write the address: no flag or variable names a database; set one";
            return Err(Fault::usage(no_address).into());
        }
        let cannot_use = |cause: String| unusable(&path.display().to_string(), &cause);
        let old = if path.exists() { text(&path).map_err(cannot_use)? } else { String::new() };
        let mut old_address = parse(&old).map_err(cannot_use)?;
        old_address.retain(|(name, _)| is_of_address(name));
        let is_kept = |line: &&str| !variable(line).is_ok_and(|(name, _)| is_of_address(&name));
        let kept = old.lines().filter(is_kept).map(str::to_owned);
        let added = address.iter().map(|(name, value)| {
            line(name, value).ok_or_else(|| {
                let why = "a file can't have its quotes or control characters; remove them";
                Fault::new(Exit::Configuration, format!("cannot write {name} into a file: {why}"))
            })
        });
        let lines = kept.map(Ok).chain(added).map(|line| Ok(line? + "\n"));
        let text = lines.collect::<Result<String, Fault>>()?;
        let has_address = !old_address.is_empty();
        let new_text = if old_address == address { None } else { Some(text) };
        Ok(Self { path, has_address, new_text })
    }
}

/// Returns whether a variable is a part of the database's address.
fn is_of_address(name: &str) -> bool {
    name == super::VARIABLE || connect::is_of_address(name)
}

/// Returns whether a file sets a variable; `false` if it can't be read.
pub(super) fn sets(path: &str, name: &str) -> bool {
    read(Path::new(path)).is_ok_and(|variables| variables.iter().any(|(set, _)| set == name))
}

fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    parse(&text(path)?)
}

/// Reads a file that only its owner may change.
fn text(path: &Path) -> Result<String, String> {
    files::open_private(path)
        .and_then(|file| files::read_text(file, SETTINGS_LIMIT))
        .map_err(|error| error.to_string())
}

/// Reads lines `NAME=VALUE`. Drops quotes around a value, as cron, systemd and shells do. Fails if
/// they would read a value in different ways.
fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    // Some editors write a byte order mark at the beginning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1_u32..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // The error does not show the line, which may be a secret.
    let mistake = |number, why: &str| format!("line {number} {why}");
    lines.map(|(number, line)| variable(line).map_err(|why| mistake(number, why))).collect()
}

/// Reads a line `NAME=VALUE`.
fn variable(line: &str) -> Result<(String, String), &'static str> {
    let line = line.trim();
    let given = line.strip_prefix("export ").unwrap_or(line).split_once('=');
    let (name, value) = given
        .filter(|(name, value)| is_variable(name) && !value.contains('\0'))
        .ok_or("is not NAME=VALUE; correct it")?;
    Ok((name.to_owned(), unquoted(value)?.to_owned()))
}

/// Returns the line that sets a variable, in quotes that shells and systemd read alike; `None` if
/// no quotes fit.
fn line(name: &str, value: &str) -> Option<String> {
    let quoted = [format!("'{value}'"), format!("\"{value}\""), value.to_owned()];
    let mut lines = quoted.into_iter().map(|value| format!("{name}={value}"));
    let is_read = |line: &String| {
        !value.contains(char::is_control) && variable(line).is_ok_and(|(_, read)| read == value)
    };
    lines.find(is_read)
}

/// Returns a value without its quotes. Fails if cron, systemd and shells would read it in different
/// ways.
fn unquoted(value: &str) -> Result<&str, &'static str> {
    let Some(quote) = value.chars().next().filter(|first| ['"', '\''].contains(first)) else {
        const MISTAKE: &str = "has a backslash, a quote, a `#` after a blank, or a blank after its \
                               `=`; put its value into single quotes, and comments into lines of \
                               their own";
        let is_mistake = value.starts_with([' ', '\t'])
            || value.contains(['\\', '"', '\''])
            || value.contains(" #")
            || value.contains("\t#");
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
            ("A='a\\b c'", "a\\b c"),
            ("A=a$b c", "a$b c"),
            ("A=''", ""),
        ] {
            assert_eq!(parse(line), Ok(vec![("A".to_owned(), value.to_owned())]), "{line}");
        }
        for (line, why) in [
            ("A=1 # one", "has a backslash, a quote, a `#` after a blank"),
            ("A=1\t# one", "has a backslash, a quote, a `#` after a blank"),
            ("A=1 \\", "has a backslash"),
            ("A=pa\\ss", "has a backslash"),
            ("A=it's", "has a backslash, a quote"),
            ("A=a\"b\"", "has a backslash, a quote"),
            ("A=  a", "or a blank after its `=`"),
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
