//! The lines that jobctl writes to a crontab: paths and variables as cron reads them, between two
//! markers. Pure, except for the path of this program.

use anyhow::Context;

use crate::exit::{Exit, Fault};

/// Debian's cron cuts longer variables and commands.
const LONGEST: usize = 998;

/// Returns the path of this program.
pub(super) fn program() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find out where jobctl is")?;
    let program = program.to_str().filter(|path| !path.contains(char::is_control));
    program.map(str::to_owned).ok_or_else(|| {
        let why = "cannot write jobctl's path into a crontab: it is not plain text; move jobctl";
        Fault::new(Exit::CouldNot, why).into()
    })
}

/// Quotes a path for the shell, and escapes `%`: for cron, a bare `%` ends the command.
pub(super) fn word(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''")).replace('%', r"\%")
}

/// Returns the line that sets a variable. `%` has no special meaning in it.
pub(super) fn variable(name: &str, value: &str) -> anyhow::Result<String> {
    let line = format!("{name}={value}");
    let is_plain = !value.contains(char::is_control) && value == value.trim();
    if is_plain && !value.starts_with(['"', '\'']) && line.len() <= LONGEST {
        return Ok(line);
    }
    let why = format!(
        "cannot write {name} into a crontab: it is longer than {LONGEST} bytes, or has quotes or \
         control characters; shorten it"
    );
    Err(Fault::new(Exit::Configuration, why).into())
}

const BEGIN: &str = "# BEGIN jobctl: written by `jobctl init`, which replaces these lines";
const END: &str = "# END jobctl";

/// Returns the lines between their markers.
pub(super) fn block(lines: &str) -> String {
    format!("{BEGIN}\n{lines}{END}\n")
}

/// Returns the text with this block in the place of the old one, or at the end, where its variables
/// affect no other line. An empty block removes the old one. `None`: the end marker is missing.
pub(super) fn replaced(text: &str, block: &str) -> Option<String> {
    let (mut before, mut after, mut state) = (String::new(), String::new(), 0);
    for line in text.lines() {
        match (state, line) {
            (0, BEGIN) => state = 1,
            (1, END) => state = 2,
            (1, _) => {}
            (0, _) => before.extend([line, "\n"]),
            _ => after.extend([line, "\n"]),
        }
    }
    (state != 1).then(|| before + block + &after)
}

/// Returns the text with empty lines in the place of the block, so that line numbers stay the same.
pub(super) fn without_block(text: &str) -> Option<String> {
    let lines = text.lines().count() - replaced(text, "")?.lines().count();
    replaced(text, &"\n".repeat(lines))
}

/// Returns the lines that go, with `-`, and those that come, with `+`.
pub(super) fn difference(old: &str, new: &str) -> Vec<String> {
    let only = |sign: char, of: &str, other: &str| {
        let lines = of.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [only('-', old, new), only('+', new, old)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_lines_change() {
        let own = "MAILTO=ana\n0 4 * * * backup\n";
        let [first, second] = ["a\n", "b\nc\n"].map(block);
        let with = replaced(own, &first);
        assert_eq!(with, Some(format!("{own}{first}")));
        let later = format!("{own}{first}0 5 * * * later\n");
        assert_eq!(replaced(&later, &first).as_ref(), Some(&later));
        assert_eq!(replaced(&later, &second), Some(later.replace(&first, &second)));
        assert_eq!(replaced(&later, ""), Some(format!("{own}0 5 * * * later\n")));
        assert_eq!(replaced(&later.replace(END, ""), &second), None);
        assert_eq!(difference(&later, &later.replace(&first, &second)), ["- a", "+ b", "+ c"]);
    }

    #[test]
    fn a_path_survives_cron_and_the_shell() {
        assert_eq!(word("/usr/local/bin/jobctl"), "'/usr/local/bin/jobctl'");
        assert_eq!(word("/a b/100%'s/jobctl"), r"'/a b/100\%'\''s/jobctl'");
    }

    #[test]
    fn a_variable_that_cron_would_change_is_refused() {
        let line = |value: &str| variable("PATH", value).map_err(|error| error.to_string());
        assert_eq!(line("/usr/bin:/50%"), Ok("PATH=/usr/bin:/50%".to_owned()));
        for value in ["a\nb", " a", "\"a\"", &"a".repeat(LONGEST)] {
            assert!(line(value).is_err_and(|why| why.contains("shorten it")), "{value}");
        }
    }
}
