//! The words of a crontab's line: paths and variables as cron reads them. Pure, except for the path
//! of this program.

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

#[cfg(test)]
mod tests {
    use super::*;

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
