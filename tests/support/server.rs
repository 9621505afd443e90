//! The PostgreSQL of a whole test run: the server that a variable names, or a private one.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use postgres::{Client, NoTls};

/// A private server. It stops when this process ends, for any reason, because then a pipe closes.
pub struct Server {
    pub url: String,
    /// The folder of its programs.
    programs: PathBuf,
    /// `tests/with-postgres`, which stops the server at the end of its stdin.
    _keeper: Child,
}

impl Server {
    /// Returns the value of a setting.
    pub fn show(&self, setting: &str) -> String {
        let mut client = Client::connect(&self.url, NoTls).expect("the test server answers");
        client.query_one(&format!("SHOW {setting}"), &[]).unwrap().get(0)
    }

    /// Crashes the server, whose files are in this folder, and starts it again with its settings.
    pub fn restart_immediately(&self, data_directory: &str) {
        let owner = std::fs::metadata(data_directory).unwrap();
        let mut restart = Command::new(self.programs.join("pg_ctl"));
        restart.args(["restart", "-w", "-s", "-m", "immediate", "-D", data_directory, "-l"]);
        restart.arg(format!("{data_directory}/log")).current_dir("/").stdin(Stdio::null());
        // PostgreSQL refuses to run as root.
        restart.uid(owner.uid()).gid(owner.gid());
        let restarted = restart.stdout(Stdio::null()).status().unwrap();
        assert!(restarted.success(), "PostgreSQL does not start again: {restarted}");
    }
}

/// Returns the address of the server, for a role that may create databases.
pub fn url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    static SERVER: OnceLock<Server> = OnceLock::new();
    URL.get_or_init(|| {
        std::env::var("JOBCTL_TEST_DATABASE_URL")
            .unwrap_or_else(|_| SERVER.get_or_init(|| start("")).url.clone())
    })
}

/// Returns the server's major version.
pub fn major() -> u32 {
    static MAJOR: OnceLock<u32> = OnceLock::new();
    *MAJOR.get_or_init(|| {
        let mut client = Client::connect(url(), NoTls).expect("the test server answers");
        let number = client.query_one("SHOW server_version_num", &[]).unwrap().get::<_, String>(0);
        number.parse::<u32>().unwrap() / 10_000
    })
}

/// Returns the option of `CREATE DATABASE` for the fastest copy of a template. Before version 15,
/// there is no option, and each copy is made in that way.
pub fn copy_strategy() -> &'static str {
    if major() < 15 { "" } else { "STRATEGY file_copy" }
}

/// Starts a server of the newest version that jobctl supports, or returns why that fails.
pub fn start_newest() -> Result<Server, String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../postgres");
    let mut install = Command::new(tests.join("install-postgres"));
    let output = install.arg("18").arg(folder).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap().to_owned());
    }
    Ok(start_with("", Some(String::from_utf8_lossy(&output.stdout).trim())))
}

/// Starts a server that also listens on this address, unless the address is empty.
pub fn start(address: &str) -> Server {
    start_with(address, None)
}

fn start_with(address: &str, programs: Option<&str>) -> Server {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with-postgres");
    let mut keeper = Command::new(script)
        .envs(programs.map(|folder| ("PG_BIN", folder)))
        .args([
            "sh",
            "-c",
            "echo \"$JOBCTL_TEST_DATABASE_URL\"; echo \"$PG_BIN\"; exec cat >/dev/null",
        ])
        .env_remove("JOBCTL_TEST_DATABASE_URL")
        .env("WITH_POSTGRES_LISTEN", address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("tests/with-postgres starts");
    let (mut url, mut programs) = (String::new(), String::new());
    let mut answer = BufReader::new(keeper.stdout.take().unwrap());
    answer.read_line(&mut url).unwrap();
    answer.read_line(&mut programs).unwrap();
    assert!(
        !url.is_empty(),
        "tests/with-postgres could not start PostgreSQL; see above, or set JOBCTL_TEST_DATABASE_URL"
    );
    Server { url: url.trim().to_owned(), programs: programs.trim().into(), _keeper: keeper }
}
