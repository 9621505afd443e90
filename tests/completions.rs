//! `jobctl completions` in bash, fish and zsh.

use std::process::Command;

use crate::cli::Untouched;
use crate::support::packages::is_installed;
use crate::support::{Invocation, TestDb, leave_out, temp_dir};

/// Completes `$line` in bash as its Tab key does, and prints the offered words.
const BASH: &str = r#"
exec bash --norc -uc '
PATH=${jobctl%/*}:$PATH
source <(jobctl completions bash)
read -ra COMP_WORDS <<<"$1"
[[ $1 != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_TYPE=9
_clap_complete_jobctl jobctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
echo "${COMPREPLY[@]}"' bash "$line""#;

/// Returns bash's completions of a line. If the line ends in a space, they complete the next word.
fn complete_in(invocation: Invocation, line: &str) -> String {
    // Without a terminal, bash warns on stderr.
    invocation.env("line", line).run().success().stdout.replace(" \n", "\n")
}

/// The same without a database.
fn complete(line: &str) -> String {
    complete_in(
        Invocation::script(BASH, None).env("JOBCTL_DATABASE_URL", "postgres://127.0.0.1:1/app"),
        line,
    )
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(complete("jobctl li"), "list list-dead\n");
    assert_eq!(complete("jobctl help li"), "list list-dead\n");
    assert_eq!(complete("jobctl --database-url postgres://db/app li"), "list list-dead\n");
    assert_eq!(complete("jobctl tick --max"), "--max-time\n");
    // Flags are offered once a hyphen is typed, or if there is nothing else.
    assert!(complete("jobctl ").starts_with("init apply enqueue"));
    assert!(!complete("jobctl ").contains("--"));
    assert!(complete("jobctl enqueue -").contains("--priority"));
    assert!(complete("jobctl enqueue --priority 1 -").contains("--queue"));
    assert!(complete("jobctl tick ").contains("--quiet"));
    // Values of flags and arguments.
    assert_eq!(complete("jobctl tick --shell "), "any defined off\n");
    assert_eq!(complete("jobctl grants --as "), "enqueuer effects worker operator viewer\n");
    assert_eq!(
        complete("jobctl list --status "),
        "blocked queued running succeeded failed dead cancelled\n"
    );
    assert_eq!(complete("jobctl retry --error-type t"), "timeout transport tls\n");
    assert_eq!(complete("jobctl completions z"), "zsh\n");
    assert_eq!(complete("jobctl frob"), "\n");
}

#[test]
fn bash_completes_names_and_ids_from_the_database_and_files() {
    let db = TestDb::new();
    db.apply("[jobs.backup]\nshell = 'true'\nschedule = '@daily'\n[jobs.report]\nshell = 'true'\n");
    let dead = db.enqueue(["shell", "--max-attempts", "1", "--", "false"]);
    db.enqueue(["backup", "--in", "1h"]);
    db.jobctl(["tick", "--quiet"]).run().success();
    let complete = |line: &str| complete_in(db.script(BASH), line);
    assert_eq!(complete("jobctl enqueue "), "backup report shell http\n");
    assert_eq!(complete("jobctl enqueue ba"), "backup\n");
    assert_eq!(complete("jobctl list --job re"), "report\n");
    assert_eq!(complete("jobctl pause "), "backup report\n");
    assert_eq!(complete("jobctl pause --job "), "backup report\n");
    assert_eq!(complete("jobctl failures ba"), "backup\n");
    // These commands get the ids of dead runs.
    for command in ["retry", "edit", "settle", "show", "prune"] {
        assert_eq!(complete(&format!("jobctl {command} ")), format!("{dead}\n"));
    }
    let folder = temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), "").unwrap();
    let files = db.script(BASH).current_dir(folder.path());
    assert_eq!(complete_in(files, "jobctl apply j"), "jobs.toml\n");
}

#[test]
fn zsh_completes_at_the_first_tab_with_a_script_in_fpath() {
    if !is_installed("zsh") {
        return leave_out("completions in zsh", "zsh is not installed");
    }
    let folder = temp_dir();
    let script = Untouched::new().jobctl(["completions", "zsh"]).run().success().stdout;
    std::fs::write(folder.path().join("_jobctl"), &script).unwrap();
    // The functions replace zsh's completion system, which needs a terminal.
    const ZSH: &str = r#"
exec zsh -fuc '
PATH=${jobctl:h}:$PATH fpath=($PWD)
compdef() { print -r - "$@" }
_describe() { print -r - ${(P)${@[-1]}%%:*} }
words=(jobctl li) CURRENT=2
autoload -Uz _jobctl
_jobctl
source ./_jobctl'"#;
    let offered =
        Invocation::script(ZSH, None).current_dir(folder.path()).run().success().stderr("");
    let registered = "_clap_dynamic_completer_jobctl jobctl\n";
    offered.stdout(&format!("{registered}list list-dead\n{registered}"));
}

#[test]
fn completions_leave_out_names_with_shell_syntax() {
    let db = TestDb::new();
    db.apply("[jobs.backup]\nshell = 'true'\nschedule = '@daily'\n");
    // The database allows no such name, but a changed database might.
    db.execute(
        "ALTER TABLE jobctl.job_definitions DROP CONSTRAINT name_is_short_and_plain;
         INSERT INTO jobctl.job_definitions (name, kind, action, schedule) VALUES ('x$(id)', \
         'shell', '{}', '@daily')",
    );
    assert_eq!(complete_in(db.script(BASH), "jobctl pause x"), "\n");
    assert_eq!(complete_in(db.script(BASH), "jobctl pause b"), "backup\n");
}

#[test]
fn every_script_is_valid_for_its_shell_and_needs_no_database() {
    let folder = temp_dir();
    for shell in ["bash", "fish", "zsh"] {
        let printed = Untouched::new()
            .jobctl(["completions", shell])
            .run()
            .success()
            .stderr("")
            .stdout_has("jobctl");
        let script = folder.path().join(shell);
        std::fs::write(&script, &printed.stdout).unwrap();
        if !is_installed(shell) {
            leave_out(&format!("completions for {shell}"), &format!("{shell} is not installed"));
            continue;
        }
        // With -n, a shell only checks the syntax.
        let checked = Command::new(shell).arg("-n").arg(&script).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{shell}: {checked:?}");
    }
}

#[test]
fn the_error_for_an_unknown_shell_lists_the_known_shells() {
    Untouched::new()
        .jobctl(["completions", "tcsh"])
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("bash, fish, zsh");
    Untouched::new().jobctl(["completions"]).run().exits(2).stdout("").stderr_has("<SHELL>");
}
