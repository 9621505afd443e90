//! `crontab.example`, the lines of `init` and a line for `check`, under the real cron daemon.
//! tests/docs.rs runs the README beside the same daemon.

use std::fs::{self, Permissions};
use std::iter;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::import_crontab::{INPUTS, not_imported};
use crate::support::{TestDb, copy_jobctl, leave_out, temp_dir, wait_until, wait_until_within};

/// Prepares a machine on which cron is alone, with one crontab. $1 is the crontab of root, $2 an
/// empty file in place of the lock of another daemon, and $3 a folder in place of /usr/sbin, with
/// the program that sends mail.
///
/// Mounts of its own keep it from the crontabs of the machine and from the lock of a daemon that
/// runs already. Processes of its own end with it, whatever becomes of this test.
const CRON: &str = r#"
for folder in /etc/cron.d /var/spool/cron/crontabs; do mount -t tmpfs tmpfs $folder; done
mount --bind /dev/null /etc/crontab
until mount --bind "$2" /run/crond.pid 2>/dev/null; do : >>/run/crond.pid; done
install -m 600 "$1" /var/spool/cron/crontabs/root
cp /usr/sbin/cron "$3/cron"
mount --bind "$3" /usr/sbin
"#;
/// The arguments of `unshare`.
const ISOLATE: [&str; 5] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

const LOCK: &str = "/run/crond.pid";

struct Cron(Child);

impl Drop for Cron {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // Removes the empty lock file that the mount needed; a daemon's own contains its pid.
        if fs::metadata(LOCK).is_ok_and(|file| file.len() == 0) {
            let _ = fs::remove_file(LOCK);
        }
    }
}

/// Returns a script that runs a command beside a cron daemon whose only crontab is empty.
pub(crate) fn beside(command: &str, folder: &Path) -> String {
    fs::create_dir(folder.join(".sbin")).unwrap();
    for name in [".crontab", ".lock"] {
        fs::write(folder.join(name), "").unwrap();
    }
    // Cron misses a crontab that changes in the second of its start.
    let script = format!("{CRON}/usr/sbin/cron\nsleep 1.1\n{command}\n");
    fs::write(folder.join(".cron"), script).unwrap();
    let isolate = ISOLATE.join(" ");
    let remove_lock = format!("test -s {LOCK} || rm -f {LOCK}");
    format!("unshare {isolate} sh -eu .cron .crontab .lock \"$PWD/.sbin\"; {remove_lock}")
}

/// Returns whether this command succeeds.
fn is_possible(program: &str, arguments: &[&str]) -> bool {
    let tried =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Returns whether tests can give programs mounts and processes of their own. Without
/// CAP_SYS_ADMIN, as in a container, or without a mount point at `/`, they can't.
pub(crate) fn can_isolate() -> bool {
    is_possible("unshare", &[&ISOLATE[..], &["true"]].concat())
}

/// Returns why the daemon can't be tested here, or `None` if it can.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("cron needs root");
    }
    if !is_possible(
        "sh",
        &["-c", "command -v cron && test -d /var/spool/cron/crontabs && test -e /etc/crontab"],
    ) {
        return Some("Debian's cron is not installed");
    }
    if !can_isolate() {
        return Some("cron can't be kept apart from the machine: unshare is missing or forbidden");
    }
    None
}

/// `crontab.example` with the reader's values: the folder of jobctl, the address, and mail.
fn lines_of_example(url: &str) -> String {
    const VALUES: [&str; 3] = ["PATH", "DATABASE_URL", "MAILTO"];
    let lines = file_of_repository("crontab.example");
    let bin = Path::new(env!("CARGO_BIN_EXE_jobctl")).parent().unwrap().display();
    let mut own = String::new();
    let mut found = Vec::new();
    for line in lines.lines() {
        let name = line.split_once('=').map(|(name, _)| name).unwrap_or_default();
        own += &match name {
            "PATH" => line.replacen('=', &format!("={bin}:"), 1),
            "DATABASE_URL" => format!("{name}={url}"),
            // No mail is sent.
            "MAILTO" => format!("{name}=\"\""),
            _ => line.to_owned(),
        };
        own.push('\n');
        found.extend(VALUES.into_iter().filter(|variable| *variable == name));
    }
    assert_eq!(found, VALUES, "{lines}");
    own
}

fn file_of_repository(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Two lines with `check`: the first finds a problem and is mailed, the second writes to `fine`.
fn lines_with_check(folder: &Path) -> String {
    let fine = folder.join("fine");
    format!(
        "MAILTO=ops@example.com\n\
         * * * * * jobctl check\n\
         * * * * * jobctl check --max-dead 1 >'{0}.new' 2>&1 && mv '{0}.new' '{0}'\n",
        fine.display()
    )
}

/// A program in place of a mail server. It writes each mail into a file.
const SENDMAIL: &str = r#"#!/bin/sh
cat >"$0.$$.new" && mv "$0.$$.new" "$0.$$.mail"
"#;

/// Returns the texts of the mails in this folder.
fn mails(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension() == Some("mail".as_ref()))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// What `init` prints for a binary at an awkward place, in a crontab with another PATH. Its check
/// runs each minute instead of each fifth one.
fn lines_of_init(url: &str, home: &Path) -> String {
    let folder = home.join("50% of Bob's");
    fs::create_dir(&folder).unwrap();
    copy_jobctl(&folder);
    let mut init = Command::new(folder.join("jobctl"));
    init.arg("init").env_clear().env("DATABASE_URL", url);
    let printed = init.env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let lines = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(lines.matches("\n*/5 * * * * ").count(), 1, "{lines}");
    let lines = lines.replace("\n*/5 ", "\n* ");
    format!("HOME={}\nPATH=/nowhere\nMAILTO=ana@example.com\n{lines}", home.display())
}

/// One test tries all lines beside one daemon, because cron wakes only once a minute.
#[test]
fn cron_runs_every_documented_line_and_mails_findings() {
    if let Some(why) = obstacle() {
        return leave_out("the lines for crontabs under cron", why);
    }
    let [db, of_init] = [(); 2].map(|()| TestDb::new());
    // The end of the daemon ends the ticks that it has started, so they may leave running runs.
    db.allow_running_runs_at_end();
    of_init.allow_running_runs_at_end();
    let folder = temp_dir();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    // The second check writes this file. The first one mails the dead run.
    let fine = folder.path().join("fine");
    let dead = db.enqueue_script("exit 64");
    db.jobctl(["tick", "--quiet"]).run().success();
    // A job that can never work is mailed at its first failure.
    of_init.apply("[jobs.sync]\nshell = 'no_such_program'\n");
    of_init.enqueue(["sync"]);
    // A run in each database that prints its environment.
    let dbs = [&db, &of_init];
    let ids = dbs.map(|db| db.enqueue_script("env"));
    let inputs: Vec<_> = (0..)
        .zip(INPUTS)
        .map(|(number, (line, expected))| {
            let out = folder.path().join(format!("out.{number}"));
            (line.replace("OUT", out.to_str().unwrap()), out, expected)
        })
        .collect();
    // A variable holds for the lines below it.
    let lines = [
        lines_of_example(&db.url()),
        lines_with_check(folder.path()),
        "MAILTO=\"\"\n".to_owned(),
        inputs.iter().map(|(line, ..)| format!("* * * * * {line}\n")).collect(),
        lines_of_init(&of_init.url(), folder.path()),
    ]
    .concat();
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
            .args(["sh", "-euc", &format!("{CRON}exec /usr/sbin/cron -f"), "cron"])
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
    wait_until_within(Duration::from_secs(90), "cron to wake jobctl", || {
        iter::zip(dbs, ids).all(|(db, id)| db.status(id) == "succeeded")
    });
    let is_of_init = |mail: &String| mail.contains("\nTo: ana@example.com\n");
    wait_until("both checks", || fine.exists() && !mails(&programs).iter().all(is_of_init));
    wait_until_within(Duration::from_secs(130), "the check of init to mail", || {
        let says = "sync fails: 1 failed attempt without a success, since 20";
        mails(&programs).iter().any(|mail| is_of_init(mail) && mail.contains(says))
    });
    for (line, out, expected) in &inputs {
        let written = || fs::read_to_string(out).is_ok_and(|text| text == *expected);
        wait_until(&format!("the input of `{line}`"), written);
    }
    drop(cron);

    for (db, id) in iter::zip(dbs, ids) {
        let environment = db.of_attempt(id, 1, "output");
        for variable in [format!("DATABASE_URL={}", db.url()), format!("JOBCTL_RUN_ID={id}")] {
            assert!(
                environment.lines().any(|line| line == variable),
                "{variable} in\n{environment}"
            );
        }
    }

    // The second check found no problem, and the mail of the first one names the dead run.
    assert_eq!(fs::read_to_string(fine).unwrap(), "");
    let newest = format!(" (the newest is run {dead}: exit status 64); `jobctl list-dead --job ");
    for mail in mails(&programs).iter().filter(|mail| !is_of_init(mail)) {
        let (header, body) = mail.split_once("\n\n").unwrap();
        assert!(
            header.contains("\nTo: ops@example.com\n") && header.contains("> jobctl check\n"),
            "{header}"
        );
        let [line] = body.lines().collect::<Vec<_>>()[..] else { panic!("{body}") };
        let dead = "1 dead run of shell, since 20";
        assert!(line.starts_with(dead) && line.contains(&newest), "{line}");
    }
}

#[test]
fn crontab_accepts_the_lines_that_only_jobctl_leaves_out() {
    if let Some(why) = obstacle() {
        return leave_out("the lines that crontab refuses", why);
    }
    let folder = temp_dir();
    for (number, (line, _)) in not_imported().iter().enumerate() {
        fs::write(folder.path().join(format!("{number:03}")), format!("{line}\n")).unwrap();
    }
    // Each file has one line. A tmpfs keeps the machine's crontabs from being replaced.
    let steps = "mount -t tmpfs tmpfs /var/spool/cron/crontabs
                 for file in *; do crontab \"$file\" 2>/dev/null && echo true || echo false; done";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-euc", steps]).current_dir(folder.path());
    let done = unshare.output().unwrap();
    let accepted = String::from_utf8(done.stdout).unwrap();
    assert_eq!(accepted.lines().count(), not_imported().len(), "{accepted}");
    for ((line, is_accepted), found) in not_imported().iter().zip(accepted.lines()) {
        assert_eq!(found, is_accepted.to_string(), "{line}");
    }
}

/// Runs the three commands of the Debian package's cron file in their order, and then again. These
/// paths replace those in the file.
fn run_package_lines(paths: &[(&str, &Path)]) -> Vec<Output> {
    let mut file = file_of_repository("packaging/debian/jobctl.cron");
    for (path, own) in paths {
        file = file.replace(path, own.to_str().unwrap());
    }
    let commands: Vec<_> = file.lines().filter_map(|line| line.split_once(" www-data  ")).collect();
    assert_eq!(commands.len(), 3, "{file}");
    let variables = file.lines().filter(|line| !line.starts_with('#'));
    let variables: Vec<_> = variables.filter_map(|line| line.split_once('=')).collect();
    let run = |command: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command.trim()]).env_clear().envs(variables.iter().copied());
        shell.env("HOME", "/dev/null").output().unwrap()
    };
    [&commands[..], &commands].concat().iter().map(|(_, command)| run(command)).collect()
}

#[test]
fn the_lines_of_a_removed_package_do_nothing() {
    let folder = temp_dir();
    let program = folder.path().join("jobctl");
    for output in run_package_lines(&[("/usr/bin/jobctl", &program)]) {
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn the_lines_of_the_package_mail_a_finding_once() {
    let (db, folder) = (TestDb::new(), temp_dir());
    // One run dies, and the other one prints the folder in which the tick runs.
    db.enqueue_script("exit 64");
    let program = Path::new(env!("CARGO_BIN_EXE_jobctl"));
    let address = folder.path().join("jobctl.env");
    fs::write(&address, format!("JOBCTL_DATABASE_URL='{}'\n", db.url())).unwrap();
    let id = db.enqueue_script("pwd");
    let outputs = run_package_lines(&[
        ("/usr/bin/jobctl", program),
        ("/usr/local/sbin", program.parent().unwrap()),
        ("/etc/jobctl/jobctl.env", &address),
        ("/var/lib/jobctl", folder.path()),
    ]);
    // The second command is the check.
    let [_, first, _, _, second, _] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(first.stdout.starts_with(b"new: 1 dead run of shell"), "{first:?}");
    assert_eq!(db.of_attempt(id, 1, "output"), format!("{}\n", folder.path().display()));
    assert!(first.stderr.is_empty(), "{first:?}");
    assert!(second.stdout.is_empty() && second.stderr.is_empty(), "{second:?}");
}

/// The exit status of a pipe is that of its last command, so it would hide that `pg_dump` failed.
#[test]
fn no_example_pipes_the_output_of_pg_dump_into_another_command() {
    for name in ["README.md", "crontab.example", "examples/jobs.toml", "man/jobctl-enqueue.1"] {
        let text = file_of_repository(name);
        let piped = text
            .lines()
            .find(|line| line.split("pg_dump ").skip(1).any(|rest| rest.contains(" | ")));
        assert_eq!(piped, None, "{name}");
    }
}
