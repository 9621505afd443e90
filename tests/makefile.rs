//! `make test` and similar targets: missing programs are reported first, skipped tests at the end.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use crate::support::temp_dir;

/// Runs `make` with this script instead of cargo, without the variables of an outer run.
fn make(target: &str, cargo: &Path) -> Output {
    make_with(&[target], cargo)
}

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

fn script(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn without_a_toolchain_nothing_is_installed_or_compiled() {
    let folder = temp_dir();
    let old = script(
        folder.path(),
        "old-cargo",
        "echo 'cargo 1.63.0 (2022)'; echo called >>\"$0.calls\"",
    );
    let broken =
        script(folder.path(), "broken-cargo", "echo 'no default is configured' >&2; exit 1");
    let missing = folder.path().join("no-cargo");
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
    assert_eq!(
        fs::read_to_string(folder.path().join("old-cargo.calls")).unwrap(),
        "called\n".repeat(3)
    );
    let mut as_root = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check-toolchain"));
    let output = as_root.arg(&missing).env("SUDO_USER", "user").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("root has no ") && stderr.contains("run `make build` without sudo"),
        "{stderr}"
    );
}

/// Passes, and lists skipped tests: three lines, two of them different.
const CARGO: &str = r#"
case $* in
    --version) echo 'cargo 99.0.0' ;;
    *--no-run*) ;;
    *) printf '%s\n' 'b: not there' 'a: not there' 'b: not there' >>"$JOBCTL_TEST_LEFT_OUT" ;;
esac
"#;

#[test]
fn make_test_lists_skipped_tests_at_its_end() {
    let folder = temp_dir();
    let cargo = script(folder.path(), "cargo", CARGO);
    // Lines of an earlier run do not count.
    for _ in 0..2 {
        let output = make("test", &cargo);
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            stdout.ends_with("\nleft out on this machine: 2\n  a: not there\n  b: not there\n"),
            "{stdout}"
        );
    }
}

/// Runs one test of this suite on a machine without fish and zsh.
fn completions(demand: &str, list: &Path) -> Output {
    let folder = temp_dir();
    for program in ["bash", "sh"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), folder.path().join(program)).unwrap();
    }
    let test = "completions::every_script_is_valid_for_its_shell_and_needs_no_database";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env("PATH", folder.path()).env("JOBCTL_TEST_LEFT_OUT", list);
    command.env_remove("JOBCTL_TEST_ALL");
    if !demand.is_empty() {
        command.env("JOBCTL_TEST_ALL", demand);
    }
    command.output().unwrap()
}

#[test]
fn a_skipped_test_is_listed_and_fails_with_jobctl_test_all() {
    let folder = temp_dir();
    let list = folder.path().join("list");
    let output = completions("", &list);
    assert!(output.status.success(), "{output:?}");
    let lines =
        "completions for fish: fish is not installed\ncompletions for zsh: zsh is not installed\n";
    assert_eq!(fs::read_to_string(&list).unwrap(), lines);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("left out: completions for fish: fish is not installed\n"), "{stderr}");

    let output = completions("1", &list);
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
