//! `jobctl completions`: completes the command line in a shell. The shell's script calls jobctl,
//! which answers with commands, flags, and names and ids from the database.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use super::{Cli, DatabaseFlags};
use crate::job::action::JobKind;
use crate::job::definition_keys;
use crate::job::status::Status;
use crate::print;
use crate::store::{RunFilter, RunList, Store};

/// The variable by which a shell's script asks for completions. Its value names the shell.
const ASKED_BY: &str = "_JOBCTL_COMPLETE";
/// The time limit of a completion: a person waits for it at the command line.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How many ids are offered, the newest ones: recent runs are completed most often.
const OFFERED_IDS: i64 = 50;

/// Print the completion script for a shell
///
/// Needs no database. Each shell reads its own file; create the folder if needed:
///
///   jobctl completions bash >~/.local/share/bash-completion/completions/jobctl
///   jobctl completions fish >~/.config/fish/completions/jobctl.fish
///   jobctl completions zsh >~/.zfunc/_jobctl
///
/// For zsh, ~/.zshrc then needs `fpath+=~/.zfunc` above its `compinit`.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "fish", "zsh"])]
    shell: String,
}

impl Arguments {
    pub(crate) fn run(self, _: &DatabaseFlags) -> anyhow::Result<()> {
        let mut script = Vec::new();
        Shells::builtins()
            .completer(&self.shell)
            .context("no such shell")?
            .write_registration(ASKED_BY, "jobctl", "jobctl", "jobctl", &mut script)
            .context("cannot write the script")?;
        if self.shell == "zsh" {
            // zsh loads this file at the first TAB, as the body of the function `_jobctl`, and runs
            // it for that TAB. So at the end, the body must also answer.
            let answer_first_tab =
                r#"[[ $funcstack[1] != _jobctl ]] || _clap_dynamic_completer_jobctl "$@""#;
            writeln!(script, "{answer_first_tab}").context("cannot write the script")?;
        }
        print::answer(&String::from_utf8_lossy(&script))
    }
}

/// Whether a shell asks for completions. It is kept here, because clap removes the variable before
/// the flags are built.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// Whether the word to complete begins with a hyphen. Otherwise flags are offered only if there is
/// nothing else.
static IS_FLAG: AtomicBool = AtomicBool::new(false);

/// Answers a shell if it asks for completions. Returns whether it did.
pub(crate) fn answer_shell() -> bool {
    if std::env::var_os(ASKED_BY).is_none() {
        return false;
    }
    IS_ASKED.store(true, Ordering::Relaxed);
    IS_FLAG.store(asked_word().starts_with('-'), Ordering::Relaxed);
    let folder = std::env::current_dir().ok();
    let answered = CompleteEnv::with_factory(|| without_flags(Cli::command())).var(ASKED_BY);
    // Errors are not shown: they would appear in the middle of a command line.
    let _ = answered.try_complete(std::env::args_os(), folder.as_deref());
    true
}

/// Returns the word to complete. The shell's script passes the command line after `--`, and the
/// place of the word if it is not the last one.
fn asked_word() -> String {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let place = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|place| place.parse().ok());
    let last = words.len().saturating_sub(1);
    let word = words.get(place.unwrap_or(last));
    word.map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Hides the flags, unless the word to complete is a flag. Disables `--help` and `--version`, which
/// clap adds later, so that they can't be hidden.
fn without_flags(command: Command) -> Command {
    if IS_FLAG.load(Ordering::Relaxed) {
        return command;
    }
    let hidden = command
        .mut_args(|argument| if argument.is_positional() { argument } else { argument.hide(true) });
    hidden.disable_help_flag(true).disable_version_flag(true)
}

/// Adds names and ids from the database to the completions.
pub(super) fn with_candidates(command: Command) -> Command {
    if !IS_ASKED.load(Ordering::Relaxed) {
        return command;
    }
    without_flags(command).mut_args(|argument| {
        let word = argument
            .get_value_names()
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str());
        let candidates: fn() -> Vec<CompletionCandidate> = match (word, argument.is_positional()) {
            ("JOB" | "J", _) => jobs,
            ("NAME", _) if ["name", "job"].contains(&argument.get_id().as_str()) => definitions,
            ("ID", true) => dead_runs,
            _ => return argument,
        };
        argument.add(ArgValueCandidates::new(candidates))
    })
}

/// Returns the names of definitions.
fn definitions() -> Vec<CompletionCandidate> {
    words(|store| {
        let names = store.list_schedules(None, 0)?.into_iter().map(|definition| definition.name);
        // Offer only valid names: a shell inserts a single candidate verbatim, so a forged name
        // could be a command.
        Ok(names.filter(|name| definition_keys::check_name(name).is_ok()).collect())
    })
}

/// Returns the names of definitions and of the built-in jobs.
fn jobs() -> Vec<CompletionCandidate> {
    definitions()
        .into_iter()
        .chain(JobKind::ALL.map(|kind| CompletionCandidate::new(kind.as_str())))
        .collect()
}

/// Returns the ids of dead runs that are not settled.
fn dead_runs() -> Vec<CompletionCandidate> {
    words(|store| {
        let statuses = vec![Status::Dead];
        let filter = RunFilter { statuses, unsettled: true, ..RunFilter::default() };
        let dead = store.list_runs(RunList::Dead, filter, OFFERED_IDS)?;
        Ok(dead.rows.iter().map(|run| run.value("id").to_string()).collect())
    })
}

/// Returns the words that `read` reads from the database; empty if it does not answer in time.
fn words(read: fn(&Store) -> anyhow::Result<Vec<String>>) -> Vec<CompletionCandidate> {
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let words = DatabaseFlags::default().open().and_then(|store| read(&store));
        // Sending fails after the time limit, when the receiver is gone.
        let _ = sender.send(words.unwrap_or_default());
    });
    let words = answer.recv_timeout(ANSWER_LIMIT).unwrap_or_default();
    words.into_iter().map(CompletionCandidate::new).collect()
}
