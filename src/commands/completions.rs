//! `jobctl completions`: what a shell needs to complete the command line.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_complete::{Generator, generate};

use super::{Cli, Database};
use crate::exit::Exit;
use crate::print;

/// Print the completion script for a shell
///
/// Needs no database. Where each shell looks for it; the folder may be missing:
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
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

impl Arguments {
    pub(crate) fn run(self, _: &Database) -> anyhow::Result<Exit> {
        let script = match self.shell {
            Shell::Bash => script(Bash),
            Shell::Fish => script(Fish),
            Shell::Zsh => script(Zsh),
        };
        print::answer(&script)?;
        Ok(Exit::Done)
    }
}

fn script(shell: impl Generator) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "jobctl", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
