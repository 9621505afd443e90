//! Reads the files that libpq reads: the service file, the pass file, certificates and keys, and
//! the system's list of users.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use log::warn;

use crate::conninfo::{Pairs, unescape};

const MIB: u64 = 1024 * 1024;
/// The most bytes of a service file or a pass file.
const SETTINGS_LIMIT: u64 = MIB;
/// The most bytes of the list of the host's users.
const USERS_LIMIT: u64 = 64 * MIB;
/// The most bytes of a file of certificates or keys.
const CERTIFICATES_LIMIT: u64 = 16 * MIB;
/// Folders of descriptors of this process. For `<(COMMAND)`, a shell passes a pipe there, which has
/// a writer already.
const DESCRIPTORS: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];

/// Opens a file that a setting names: a plain file, or a descriptor of this process. Does not open
/// named pipes, which may never have a writer, and devices, which may never end.
pub(crate) fn open(path: &Path) -> Result<File, String> {
    let is_descriptor = DESCRIPTORS.iter().any(|folder| path.starts_with(folder));
    if !is_descriptor && !fs::metadata(path).map_err(|error| reason(&error))?.is_file() {
        return Err("it is not a plain file; move it, or name another one".to_owned());
    }
    File::open(path).map_err(|error| reason(&error))
}

/// Reads a file to its end. Fails if it has more than `limit` bytes.
fn read(file: File, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    if bytes.len() as u64 > limit {
        return Err(format!("it is longer than {} MiB; name another file", limit / MIB));
    }
    Ok(bytes)
}

/// Reads a file of text as `read` does. Replaces bytes that are not UTF-8: they are no error for
/// libpq.
fn read_text(file: File, limit: u64) -> Result<String, String> {
    read(file, limit).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether only the owner can read a key. As in libpq, a key of root may be readable by a
/// group.
pub(crate) fn is_private(seen: &Metadata) -> bool {
    seen.mode() & (if seen.uid() == 0 { 0o037 } else { 0o077 }) == 0
}

/// Returns the content of an open file of certificates or keys. As OpenSSL does, leaves out byte
/// order marks, which some editors write. In a joined file, each part may have one.
pub(crate) fn certificates(file: File) -> Result<Vec<u8>, String> {
    let content = read(file, CERTIFICATES_LIMIT)?;
    let lines = content.split_inclusive(|byte| *byte == b'\n');
    let unmarked = lines.map(|line| match line.strip_prefix("\u{feff}".as_bytes()) {
        // Leave out a mark only before a header: a key in DER form may contain its bytes by chance.
        Some(rest) if rest.starts_with(b"-----BEGIN ") => rest,
        _ => line,
    });
    Ok(unmarked.collect::<Vec<_>>().concat())
}

/// Returns the settings of a service; `None` if the service file lacks it.
pub(crate) fn service(path: &Path, name: &str) -> Result<Option<Pairs>, String> {
    let text = open(path)
        .and_then(|file| read_text(file, SETTINGS_LIMIT))
        .map_err(|cause| format!("{cause}; correct PGSERVICEFILE"))?;
    section(&text, name)
}

/// Returns the settings in one section of a service file; `None` if the section is missing.
fn section(text: &str, name: &str) -> Result<Option<Pairs>, String> {
    let is_setting = |line: &str| !line.is_empty() && !line.starts_with('#');
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| is_setting(line));
    let head = format!("[{name}]");
    if !lines.any(|(_, line)| line == head) {
        return Ok(None);
    }
    let pair = |(number, line): (u32, &str)| {
        let pair = line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        pair.ok_or_else(|| format!("line {number} is not key=value; correct it"))
    };
    let lines = lines.take_while(|(_, line)| !(line.starts_with('[') && line.ends_with(']')));
    lines.map(pair).collect::<Result<_, _>>().map(Some)
}

/// Returns why a file cannot be read, without the system's error number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the file does not exist".to_owned(),
        io::ErrorKind::Other => error.to_string(),
        kind => format!("the file cannot be read ({kind})"),
    }
}

/// Returns the text of the pass file, if there is one that only its owner can read, as libpq
/// demands. Warns of a file that can't be used.
pub(crate) fn pass_file(path: &Path) -> Option<String> {
    let read = |file: File| match file.metadata() {
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            Err("other users can read it; run `chmod 600`".to_owned())
        }
        _ => read_text(file, SETTINGS_LIMIT),
    };
    // A missing file needs no warning.
    fs::metadata(path).ok()?;
    let text = open(path).and_then(read);
    text.inspect_err(|cause| warn!("the pass file {} is ignored: {cause}", path.display())).ok()
}

/// Returns the password of the first line whose fields match the login: host, port, database, user.
/// As libpq does, ignores fields after the password, and lines after the first that matches.
pub(crate) fn password(text: &str, login: [&str; 4]) -> Option<String> {
    let found = text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line.trim_end_matches('\r');
        for wanted in login {
            let (field, after) = unescape(rest, |c| c == ':');
            // `*` matches every value, and an escaped `\*` only itself.
            if field != wanted && !rest.starts_with("*:") {
                return None;
            }
            rest = &after?[1..];
        }
        Some(unescape(rest, |c| c == ':').0)
    });
    found.filter(|password| !password.is_empty())
}

/// Returns the name and the home of this process's user, if `/etc/passwd` has them.
pub(crate) fn account() -> Option<(String, PathBuf)> {
    let users = open(Path::new("/etc/passwd")).ok()?;
    entry(&read_text(users, USERS_LIMIT).ok()?, rustix::process::geteuid().as_raw())
}

/// Returns the name and the home of a user in the text of `/etc/passwd`.
fn entry(text: &str, uid: u32) -> Option<(String, PathBuf)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        if id.parse() == Ok(uid) { Some((name.to_owned(), PathBuf::from(home))) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: [&str; 4] = ["db:1", "5433", "app", r"a\b"];

    #[track_caller]
    fn matches(line: &str, expected: Option<&str>) {
        assert_eq!(password(line, LOGIN).as_deref(), expected, "{line}");
    }

    #[test]
    fn a_line_of_the_pass_file_must_match_in_every_field() {
        matches(r"db\:1:5433:app:a\\b:pw", Some("pw"));
        matches("*:*:*:*:pw", Some("pw"));
        // As in libpq, a further field is not a part of the password.
        matches(r"*:5433:*:a\\b:p\:w\\\x:y", Some(r"p:w\x"));
        matches("*:*:*:*:pw:", Some("pw"));
        matches("*:*:*:*:pw\r", Some("pw"));
        matches("*:*:*:*::pw", None);
        matches(r"db\:1:5432:app:a\\b:pw", None);
        matches(r"\*:*:*:*:pw", None);
        matches("db*:*:*:*:pw", None);
        matches("#*:*:*:*:pw", None);
        matches("*:*:*:*:", None);
        matches("*:*:*", None);
        matches("", None);
    }

    #[test]
    fn the_first_line_that_matches_wins() {
        matches("other:*:*:*:no\r\n*:*:*:*:first\n*:*:*:*:second\n", Some("first"));
        matches("*:*:*:*:\n*:*:*:*:second\n", None);
    }

    #[test]
    fn a_service_ends_where_the_next_begins() {
        let text = "# all\n[a]\nhost=h\n\n[b]\n port=5433 \ndbname=x=y\n[c]\nno setting\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(section(text, "a"), Ok(Some(vec![pair("host", "h")])));
        assert_eq!(section(text, "b"), Ok(Some(vec![pair("port", "5433"), pair("dbname", "x=y")])));
        assert_eq!(section(text, "z"), Ok(None));
        assert_eq!(section(text, "c").unwrap_err(), "line 9 is not key=value; correct it");
    }

    #[test]
    fn an_account_is_found_by_its_number() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\nme:x:1000:1000:,,,:/home/me:/bin/sh\n";
        assert_eq!(entry(text, 1000), Some(("me".to_owned(), PathBuf::from("/home/me"))));
        assert_eq!(entry(text, 7), None);
    }
}
