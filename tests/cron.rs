//! `crontab.example`, what `doctor --crontab` prints, and a line for `check`, under the real cron daemon.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{TestDb, leave_out, temp_dir, wait_until, wait_until_within};

/// Cron as if it were alone on the machine, with one crontab: $1 is put in root's place, and $3 in that of
/// the program that sends mail.
///
/// Mounts of its own keep it from the crontabs of the machine and from the lock of a daemon that runs
/// already. Processes of its own end with it, whatever becomes of this test.
const CRON: &str = r#"
for folder in /etc/cron.d /var/spool/cron/crontabs; do mount -t tmpfs tmpfs $folder; done
mount --bind /dev/null /etc/crontab
[ -e /run/crond.pid ] || : >/run/crond.pid
mount --bind "$2" /run/crond.pid
install -m 600 "$1" /var/spool/cron/crontabs/root
cp /usr/sbin/cron "$3/cron"
mount --bind "$3" /usr/sbin
exec /usr/sbin/cron -f
"#;
const ISOLATE: [&str; 5] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

const LOCK: &str = "/run/crond.pid";

struct Cron(Child);

impl Drop for Cron {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // Something had to be there to be covered; a daemon's own has its process id in it.
        if fs::metadata(LOCK).is_ok_and(|file| file.len() == 0) {
            let _ = fs::remove_file(LOCK);
        }
    }
}

fn is_possible(program: &str, arguments: &[&str]) -> bool {
    let tried = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Why the daemon can't be tested here.
fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("cron needs root");
    }
    if !is_possible("sh", &["-c", "command -v cron && test -d /var/spool/cron/crontabs && test -e /etc/crontab"]) {
        return Some("Debian's cron is not installed");
    }
    if !is_possible("unshare", &[&ISOLATE[..], &["true"]].concat()) {
        return Some("cron can't be kept apart from the machine: unshare is missing or forbidden");
    }
    None
}

/// The example with nothing but the reader's own values put in: address, mail, and where jobctl is.
fn crontab(url: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_jobctl")).parent().unwrap().display();
    let example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("crontab.example")).unwrap();
    let mut filled_in = 0;
    let mut lines = String::new();
    for line in example.lines() {
        let name = line.split_once('=').map(|(name, _)| name).unwrap_or_default();
        let own = match name {
            "PATH" => line.replacen('=', &format!("={bin}:"), 1),
            "JOBCTL_DATABASE_URL" => format!("{name}={url}"),
            // Mail goes nowhere.
            "MAILTO" => format!("{name}=\"\""),
            _ => line.to_owned(),
        };
        filled_in += usize::from(own != line);
        lines += &(own + "\n");
    }
    assert_eq!(filled_in, 3, "PATH, JOBCTL_DATABASE_URL and MAILTO stand in crontab.example");
    assert!(lines.lines().any(|line| line.starts_with("* * * * * jobctl tick")));
    lines
}

/// Checks that go wrong and well; the former's words are mailed, the latter's would stand in `fine`.
fn checks(folder: &Path) -> String {
    let fine = folder.join("fine");
    format!(
        "MAILTO=ops@example.com\n\
         * * * * * jobctl check\n\
         * * * * * jobctl check --max-dead 1 >'{0}.new' 2>&1 && mv '{0}.new' '{0}'\n",
        fine.display()
    )
}

/// In place of a mail server: a file a mail.
const SENDMAIL: &str = r#"#!/bin/sh
cat >"$0.$$.new" && mv "$0.$$.new" "$0.$$.mail"
"#;

fn mails(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension() == Some("mail".as_ref()))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// What `doctor --crontab` prints for a binary at an awkward place, behind what it tells the reader to
/// add: the address.
fn printed(url: &str, home: &Path) -> String {
    let folder = home.join("50% of Bob's");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("jobctl");
    fs::copy(env!("CARGO_BIN_EXE_jobctl"), &program).unwrap();
    let printed = Command::new(program).args(["doctor", "--crontab"]).env_clear().output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let lines = String::from_utf8(printed.stdout).unwrap();
    format!("JOBCTL_DATABASE_URL={url}\nHOME={}\nPATH=/nowhere\n{lines}", home.display())
}

/// One daemon for all: it wakes once a minute.
#[test]
fn cron_runs_jobs_with_the_lines_for_crontabs_and_mails_what_check_says() {
    if let Some(why) = obstacle() {
        return leave_out("the lines for crontabs under cron", why);
    }
    let db = TestDb::new();
    let of_doctor = TestDb::new();
    let folder = temp_dir();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (done, fine) = (folder.path().join("done"), folder.path().join("fine"));
    let dead = db.enqueue_script("exit 64");
    db.jobctl(["tick", "--quiet"]).run().success();
    let id = db.enqueue_script(&format!("env >'{0}.new' && mv '{0}.new' '{0}'", done.display()));
    let other = of_doctor.enqueue(["shell", "--", "true"]);
    // A variable holds for the lines below it.
    let lines = crontab(&db.url()) + &checks(folder.path()) + &printed(&of_doctor.url(), folder.path());
    let (lock, log) = (file("crond.pid", ""), file("cron.log", ""));
    let programs = folder.path().join("sbin");
    fs::create_dir(&programs).unwrap();
    let sendmail = file("sbin/sendmail", SENDMAIL);
    for path in [folder.path(), &sendmail] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    let log = fs::File::create(log).unwrap();
    let cron = Cron(
        Command::new("unshare")
            .args(ISOLATE)
            .args(["sh", "-euc", CRON, "cron"])
            .args([file("crontab", &lines), lock, programs.clone()])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap(),
    );
    // Cron wakes at the full minute.
    wait_until_within(Duration::from_secs(90), "cron to wake jobctl", || done.exists());
    db.wait_for_status(id, "succeeded");
    wait_until("both checks", || fine.exists() && !mails(&programs).is_empty());
    of_doctor.wait_for_status(other, "succeeded");
    drop(cron);
    let log = fs::read_to_string(folder.path().join("jobctl.log")).unwrap();
    assert!(log.contains(&format!("run {other} shell attempt 1/10: succeeded")), "{log}");

    let environment = fs::read_to_string(done).unwrap();
    assert!(!environment.contains("JOBCTL_DATABASE_URL"), "a job sees the database's address:\n{environment}");
    assert!(environment.contains(&format!("JOBCTL_RUN_ID={id}\n")), "{environment}");

    assert_eq!(fs::read_to_string(fine).unwrap(), "");
    let [mail] = &mails(&programs)[..] else { panic!("{:?}", mails(&programs)) };
    let (header, body) = mail.split_once("\n\n").unwrap();
    assert!(header.contains("\nTo: ops@example.com\n") && header.contains("> jobctl check\n"), "{header}");
    assert_eq!(body, format!("1 dead run ({dead} shell: exit status 64), see `jobctl list-dead`\n"));
}
