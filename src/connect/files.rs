//! The two files that libpq keeps about connections, the service file and the pass file, and the
//! password database of the system, which knows the user's name and home.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use log::warn;

use super::conninfo::Pairs;

/// Reads a service file.
///
/// # Errors
/// It can't be read or holds a line that is no setting. `None` where it is well but has no such
/// service.
pub(super) fn service(path: &Path, name: &str) -> Result<Option<Pairs>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}; correct PGSERVICEFILE", reason(&error)))?;
    section(&text, name)
}

fn section(text: &str, name: &str) -> Result<Option<Pairs>, String> {
    let mut found: Option<Pairs> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if found.is_some() {
                break;
            }
            found = (section == name).then(Pairs::new);
        } else if let Some(pairs) = &mut found {
            let (key, value) = line.split_once('=').ok_or(format!("line {number} is no key=value; correct it"))?;
            pairs.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok(found)
}

/// Why a file can't be read, without the system's number for it.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        kind => format!("it can't be read ({kind})"),
    }
}

/// What a line of the pass file must match.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    /// `localhost` for the default socket directory too.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The text of the pass file; `None` where there is none to be used. One that others can read is
/// not, as with libpq.
pub(super) fn passwords(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() {
        warn!("pass file {} is not a plain file; it is ignored", path.display());
        return None;
    }
    if metadata.mode() & 0o077 != 0 {
        warn!("pass file {} can be read by others; it is ignored until `chmod 600`", path.display());
        return None;
    }
    fs::read_to_string(path)
        .inspect_err(|error| warn!("pass file {} is ignored: {}", path.display(), reason(error)))
        .ok()
}

/// The password of the first line that matches.
pub(super) fn password(text: &str, login: Login<'_>) -> Option<String> {
    let port = login.port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line;
        for wanted in [login.host, &port, login.database, login.user] {
            let (field, after) = field(rest)?;
            if field != "*" && unescape(field) != wanted {
                return None;
            }
            rest = after;
        }
        Some(unescape(rest)).filter(|password| !password.is_empty())
    })
}

/// Up to the first colon that no backslash precedes, and what follows it.
fn field(line: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            ':' if !escaped => return Some((&line[..at], &line[at + 1..])),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

fn unescape(field: &str) -> String {
    let mut plain = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

/// Name and home of a user of this system, as far as the local password database knows.
pub(super) fn account(uid: u32) -> Option<(String, PathBuf)> {
    fs::read_to_string("/etc/passwd").ok().and_then(|text| entry(&text, uid))
}

fn entry(text: &str, uid: u32) -> Option<(String, PathBuf)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        (id.parse() == Ok(uid)).then(|| (name.to_owned(), PathBuf::from(home)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: Login<'_> = Login { host: "db:1", port: 5433, database: "app", user: r"a\b" };

    #[track_caller]
    fn matches(line: &str, expected: Option<&str>) {
        assert_eq!(password(line, LOGIN).as_deref(), expected, "{line}");
    }

    #[test]
    fn a_line_of_the_pass_file_matches_whole_fields() {
        matches(r"db\:1:5433:app:a\\b:pw", Some("pw"));
        matches("*:*:*:*:pw", Some("pw"));
        matches(r"*:5433:*:a\\b:p\:w\\\x:y", Some(r"p:w\x:y"));
        matches(r"db\:1:5432:app:a\\b:pw", None);
        matches(r"\*:*:*:*:pw", Some("pw").filter(|_| false));
        matches("db*:*:*:*:pw", None);
        matches("#*:*:*:*:pw", None);
        matches("*:*:*:*:", None);
        matches("*:*:*", None);
        matches("", None);
    }

    #[test]
    fn the_first_line_that_matches_wins() {
        matches("other:*:*:*:no\r\n*:*:*:*:first\n*:*:*:*:second\n", Some("first"));
    }

    #[test]
    fn a_service_ends_where_the_next_begins() {
        let text = "# all\n[a]\nhost=h\n\n[b]\n port=5433 \ndbname=x=y\n[c]\nno setting\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(section(text, "a"), Ok(Some(vec![pair("host", "h")])));
        assert_eq!(section(text, "b"), Ok(Some(vec![pair("port", "5433"), pair("dbname", "x=y")])));
        assert_eq!(section(text, "z"), Ok(None));
        assert_eq!(section(text, "c").unwrap_err(), "line 9 is no key=value; correct it");
    }

    #[test]
    fn an_account_is_found_by_its_number() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\nme:x:1000:1000:,,,:/home/me:/bin/sh\n";
        assert_eq!(entry(text, 1000), Some(("me".to_owned(), PathBuf::from("/home/me"))));
        assert_eq!(entry(text, 7), None);
    }
}
