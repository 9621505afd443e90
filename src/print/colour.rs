//! Decides whether colours are printed.

use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;

/// When colours are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set; elsewhere if CLICOLOR_FORCE is.
    Auto,
    Always,
    Never,
}

static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Sets the value of --color.
pub(crate) fn set_colour(colour: Colour) {
    // Fails only if it was set before; the command line is parsed once.
    let _ = COLOUR.set(colour);
}

/// Returns whether colours are printed to this stream, by --color, <https://no-color.org> and
/// <https://bixense.com/clicolors>.
pub(super) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match COLOUR.get() {
        Some(Colour::Always) => true,
        Some(Colour::Never) => false,
        Some(Colour::Auto) | None => {
            variable("NO_COLOR").is_none()
                && (variable("CLICOLOR_FORCE").is_some_and(|value| value != "0")
                    || stream.is_terminal() && variable("TERM").is_some_and(|term| term != "dumb"))
        }
    }
}
