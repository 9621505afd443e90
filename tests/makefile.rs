//! `make test` and similar targets: missing programs are reported first, skipped tests at the end.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use crate::cron;
use crate::support::packages::is_installed;
use crate::support::{copy_jobctl, leave_out, temp_dir};

/// Runs `make TARGET` with this script instead of cargo.
fn make(target: &str, cargo: &Path) -> Output {
    make_with(&[target], cargo)
}

/// Runs `make` with these arguments and this script instead of cargo, without the variables that an
/// outer `make` has set.
fn make_with(arguments: &[&str], cargo: &Path) -> Output {
    let mut make = Command::new("make");
    make.current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .arg(format!("CARGO={}", cargo.display()));
    // The script's folder is also the build folder. The address keeps `make` from starting a
    // server.
    make.env("CARGO_TARGET_DIR", cargo.parent().unwrap())
        .env("JOBCTL_TEST_DATABASE_URL", "postgresql://nowhere");
    for name in
        ["ARGS", "JOBCTL_TEST_ALL", "JOBCTL_TEST_LEFT_OUT", "MAKEFLAGS", "MAKELEVEL", "SUDO_USER"]
    {
        make.env_remove(name);
    }
    make.output().unwrap()
}

/// Writes an executable script of `sh` and returns its path.
fn script(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn without_a_toolchain_nothing_is_installed_or_compiled() {
    let folder = temp_dir();
    // The old cargo logs each of its calls to `old-cargo.calls`.
    let old = script(
        folder.path(),
        "old-cargo",
        "echo 'cargo 1.63.0 (2022)'; echo called >>\"$0.calls\"",
    );
    let broken =
        script(folder.path(), "broken-cargo", "echo 'no default is configured' >&2; exit 1");
    let missing = folder.path().join("no-cargo");
    // A cargo that is missing, too old, or fails, and the error.
    for target in ["build", "demo", "test"] {
        for (cargo, cause) in [
            (&missing, format!("there is no `{}`; install Rust ", missing.display())),
            (&old, "Rust 1.63.0 is too old; install ".to_owned()),
            (&broken, "no default is configured".to_owned()),
        ] {
            let output = make(target, cargo);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && output.stdout.is_empty(), "{target}: {stderr}");
            assert!(
                stderr.starts_with(&format!("check-toolchain: cannot compile jobctl: {cause}")),
                "{stderr}"
            );
        }
    }
    // Each target asked the old cargo for its version, and called it for nothing else.
    assert_eq!(
        fs::read_to_string(folder.path().join("old-cargo.calls")).unwrap(),
        "called\n".repeat(3)
    );
}

#[test]
fn without_a_toolchain_of_root_the_error_asks_for_a_build_without_sudo() {
    let folder = temp_dir();
    let missing = folder.path().join("no-cargo");
    let mut as_root = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check-toolchain"));
    let output = as_root.arg(&missing).env("SUDO_USER", "user").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("root has no ") && stderr.contains("run `make build` without sudo"),
        "{stderr}"
    );
}

#[test]
fn without_the_library_of_c_nothing_is_compiled() {
    let folder = temp_dir();
    let said = "<stdin>:1:10: fatal error: string.h: No such file or directory";
    script(folder.path(), "cc", &format!("echo '{said}' >&2; exit 1"));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check-toolchain");
    let output = Command::new(check).arg("cargo").env("PATH", path).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let error = "cannot build an empty program: string.h: No such file or directory; install ";
    assert!(!output.status.success() && stderr.contains(error), "{stderr}");
}

#[test]
fn the_first_build_shows_its_progress() {
    let folder = temp_dir();
    let cargo = script(
        folder.path(),
        "cargo",
        r#"[ "$1" != --version ] || { echo 'cargo 99.0.0'; exit; }; echo "$*" >>"$0.calls""#,
    );
    for target in ["build", "test"] {
        assert!(make(target, &cargo).status.success(), "{target}");
    }
    // The demo ends after its build, because this server does not exist.
    let demo = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo"))
        .env("CARGO", &cargo)
        .env("CARGO_TARGET_DIR", folder.path())
        .env("JOBCTL_TEST_DATABASE_URL", "postgresql:///?host=/nowhere")
        .output()
        .unwrap();
    let stdout = String::from_utf8(demo.stdout).unwrap();
    assert!(stdout.starts_with("Compiling takes "), "{stdout}");
    let calls = fs::read_to_string(folder.path().join("cargo.calls")).unwrap();
    let quiet: Vec<_> = calls.lines().filter(|call| call.contains("quiet")).collect();
    assert!(calls.lines().count() >= 4 && quiet.is_empty(), "{calls}");
}

#[test]
fn an_installation_without_rights_fails_before_the_build() {
    let folder = temp_dir();
    let missing = folder.path().join("no-cargo");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    let prefix = |parent: &Path| format!("PREFIX={}/new", parent.display());
    let install = format!("make install CARGO={} {}", missing.display(), prefix(&closed));
    // Root may write everywhere, except on a file system that is mounted to be read.
    let mount = format!("mount -t tmpfs -o ro tmpfs {} && {install}", closed.display());
    let command = match (rustix::process::geteuid().is_root(), cron::can_isolate()) {
        (true, false) => {
            leave_out("an installation without rights", "root may not mount a folder here");
            None
        }
        (true, true) => Some(["unshare", "--mount", "sh", "-c", &mount]),
        (false, _) => Some(["env", "--", "sh", "-c", &install]),
    };
    let without_rights = command.map(|words| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(env!("CARGO_MANIFEST_DIR"));
        (command.env("CARGO_TARGET_DIR", folder.path()).output().unwrap(), &*closed)
    });
    // A file can't be a folder of an installation, also for root.
    let a_file = make_with(&["install", &prefix(Path::new("/dev/null"))], &missing);
    for (output, parent) in without_rights.into_iter().chain([(a_file, Path::new("/dev/null"))]) {
        let stderr = String::from_utf8(output.stderr).unwrap();
        let error = format!("cannot install: cannot write to {}; run ", parent.display());
        assert!(!output.status.success() && stderr.starts_with(&error), "{stderr}");
    }
}

/// Installs into empty folders, then asks each shell as a new user over ssh would.
const INSTALL: &str = r#"
mount -t tmpfs tmpfs /usr/local
mount -t tmpfs tmpfs /etc/fish
make --silent install
mkdir /usr/local/home
exec env -i HOME=/usr/local/home PATH=/usr/local/bin:/usr/bin:/bin sh -c "$1"
"#;

#[test]
fn shells_and_man_find_the_installed_files() {
    if !cron::can_isolate() || !Path::new("/etc/fish").exists() {
        return leave_out("an installation", "it needs root, unshare and fish");
    }
    let folder = temp_dir();
    let release = folder.path().join("release");
    fs::create_dir(&release).unwrap();
    copy_jobctl(&release);
    // The program, a script that asks it about jobctl, and the beginning of a line of its answer.
    for (program, script, expected) in [
        ("fish", "fish -c 'complete -C \"jobctl li\"'", "list"),
        ("zsh", "zsh -c 'autoload -Uz compinit; compinit -u; print $_comps[jobctl]'", "_jobctl"),
        ("man", "man -w jobctl-tick", "/usr/local/share/man/man1/jobctl-tick.1"),
    ] {
        if !is_installed(program) {
            leave_out("an installation", &format!("{program} is not installed"));
            continue;
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-euc", INSTALL, "sh", script]);
        unshare.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", folder.path());
        for name in ["MAKEFLAGS", "MAKELEVEL", "PREFIX", "DESTDIR"] {
            unshare.env_remove(name);
        }
        let output = unshare.output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stdout.lines().any(|line| line.starts_with(expected)),
            "{program}: {stdout}{stderr}"
        );
    }
}

#[test]
fn make_uninstall_removes_what_make_install_wrote_and_nothing_else() {
    let folder = temp_dir();
    let release = folder.path().join("release");
    fs::create_dir(&release).unwrap();
    copy_jobctl(&release);
    for prefix in ["/usr/local", "/usr", "/opt/a b"] {
        let root = folder.path().join("root");
        let run = |target: &str| {
            let mut make = Command::new("make");
            make.args(["--silent", target, &format!("PREFIX={prefix}")]);
            make.arg(format!("DESTDIR={}", root.display()));
            make.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", folder.path());
            for name in ["MAKEFLAGS", "MAKELEVEL"] {
                make.env_remove(name);
            }
            let output = make.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        let files = || {
            let find = Command::new("find").arg(&root).args(["-type", "f"]).output().unwrap();
            String::from_utf8(find.stdout).unwrap()
        };
        run("install");
        let installed = files();
        let man = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/man")).unwrap().count();
        assert_eq!(installed.lines().count(), man + 4, "{installed}");
        // A file of another program stays.
        let other = Path::new(installed.lines().find(|file| file.ends_with(".1")).unwrap());
        let other = other.with_file_name("jobctl.5");
        fs::write(&other, "").unwrap();
        run("uninstall");
        assert_eq!(files(), format!("{}\n", other.display()));
        // A second removal finds nothing, and succeeds.
        run("uninstall");
        fs::remove_dir_all(&root).unwrap();
    }
}

/// A script instead of cargo. Its tests skip three parts, two of them different, and end with the
/// exit status `TESTS_EXIT`.
const CARGO: &str = r#"
case $* in
    --version) echo 'cargo 99.0.0' ;;
    *--no-run*) ;;
    *)
        printf '%s\n' 'b: not there' 'a: not there' 'b: not there' >>"$JOBCTL_TEST_LEFT_OUT"
        exit "$TESTS_EXIT"
        ;;
esac
"#;

#[test]
fn make_test_lists_skipped_tests_at_its_end() {
    let folder = temp_dir();
    let cargo = script(folder.path(), "cargo", CARGO);
    // Lines of an earlier run do not count.
    for status in ["0", "0", "101"] {
        let output = make_with(&["test", &format!("TESTS_EXIT={status}")], &cargo);
        assert_eq!(output.status.success(), status == "0", "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            stdout.ends_with("most of them need\n  a: not there\n  b: not there\n")
                && stdout
                    .contains("\nleft out on this machine: 2; on Debian and Ubuntu, `make tools`"),
            "{stdout}"
        );
    }
}

/// Runs the test of completions as on a machine without fish and zsh. `test_all` is the value of
/// JOBCTL_TEST_ALL; empty: it is not set. The skipped parts are appended to `list`.
fn test_completions_without_shells(test_all: &str, list: &Path) -> Output {
    let folder = temp_dir();
    for program in ["bash", "sh"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), folder.path().join(program)).unwrap();
    }
    let test = "completions::every_script_is_valid_for_its_shell_and_needs_no_database";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env("PATH", folder.path()).env("JOBCTL_TEST_LEFT_OUT", list);
    command.env_remove("JOBCTL_TEST_ALL");
    if !test_all.is_empty() {
        command.env("JOBCTL_TEST_ALL", test_all);
    }
    command.output().unwrap()
}

#[test]
fn a_skipped_test_is_listed_and_fails_with_jobctl_test_all() {
    let folder = temp_dir();
    let list = folder.path().join("list");
    let output = test_completions_without_shells("", &list);
    assert!(output.status.success(), "{output:?}");
    let lines =
        "completions for fish: fish is not installed\ncompletions for zsh: zsh is not installed\n";
    assert_eq!(fs::read_to_string(&list).unwrap(), lines);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("left out: completions for fish: fish is not installed\n"), "{stderr}");

    // With JOBCTL_TEST_ALL, the test fails, and adds nothing to the list.
    let output = test_completions_without_shells("1", &list);
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("completions for fish is left out: fish is not installed"), "{said}");
    assert_eq!(fs::read_to_string(&list).unwrap(), lines);
}

#[test]
fn root_tests_the_files_that_another_user_built() {
    let folder = temp_dir();
    let cargo = folder.path().join("no-cargo");
    for target in ["test-deb", "test-image"] {
        // The age of the built files in seconds, and whether they are built again: if they are
        // missing, or older than the sources.
        for (age, builds) in [(None, true), (Some(0), false), (Some(1_000_000_000), true)] {
            let dist = folder.path().join("dist");
            fs::create_dir_all(&dist).unwrap();
            fs::remove_file(dist.join("SHA256SUMS")).ok();
            if let Some(age) = age {
                let built = SystemTime::now() - Duration::from_secs(age);
                let sums = fs::File::create(dist.join("SHA256SUMS")).unwrap();
                sums.set_modified(built).unwrap();
            }
            // Even a dry run executes the lines that contain $(MAKE).
            let output = make_with(&["--dry-run", target], &cargo);
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert!(stdout.contains(&format!("packaging/{target} ")), "{stdout}");
            assert_eq!(stdout.contains("packaging/dist "), builds, "{target}, {age:?}: {stdout}");
        }
    }
}

fn file_of_repository(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn every_step_of_a_workflow_is_a_target_of_the_makefile() {
    let makefile = file_of_repository("Makefile");
    for name in ["ci", "nightly", "release"] {
        let workflow = file_of_repository(&format!(".github/workflows/{name}.yml"));
        let commands: Vec<_> =
            workflow.lines().filter_map(|line| line.split_once("run: ")).map(|it| it.1).collect();
        assert!(!commands.is_empty(), "{name}");
        for command in commands {
            let target = command.split(' ').nth(1).unwrap();
            let is_target = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            assert!(command.starts_with("make ") && is_target, "{name}: {command}");
        }
    }
}

#[test]
fn the_notes_of_a_release_are_its_section_of_the_changelog() {
    let folder = temp_dir();
    fs::create_dir(folder.path().join(".ci")).unwrap();
    let script = script(folder.path(), ".ci/notes", &file_of_repository(".ci/notes"));
    // Returns what the script prints for a release of this version, if Cargo.toml has 0.1.0.
    let notes = |version: &str, changelog: &str| {
        fs::write(folder.path().join("Cargo.toml"), "version = \"0.1.0\"\n").unwrap();
        fs::write(folder.path().join("CHANGELOG.md"), changelog).unwrap();
        let output = Command::new(&script).arg(version).output().unwrap();
        assert_eq!(output.status.success(), output.stderr.is_empty(), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let changelog = "# Changelog\n\n## [Unreleased]\n\n- c\n\n## [0.1.0] - 2026-12-01\n\n\
                     ### Added\n\n- b\n\n## [0.0.1] - 2026-11-01\n\n- a\n";
    assert_eq!(notes("0.1.0", changelog), "### Added\n\n- b\n\n");
    assert!(notes("0.0.1", changelog).contains("Cargo.toml has another version"));
    let unreleased = notes("0.1.0", "## [Unreleased]\n\n- b\n");
    assert!(unreleased.contains("no line `## [0.1.0] - YYYY-MM-DD`"), "{unreleased}");
}
