//! Words of a command line that a person pastes, or that a crontab has. Pure.

use std::borrow::Cow;

/// Returns the word in quotes, in which the shell changes nothing.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the word, in quotes if the shell would change it.
pub(crate) fn word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.into() } else { quoted(word).into() }
}

/// Returns the word as an argument of a command, after `--` if it begins like an option.
pub(crate) fn argument(value: &str) -> String {
    format!("{}{}", if value.starts_with('-') { "-- " } else { "" }, word(value))
}

/// Returns an option with its value, after `=` if the value begins like another option.
pub(crate) fn option(name: &str, value: &str) -> String {
    format!("--{name}{}{}", if value.starts_with('-') { '=' } else { ' ' }, word(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for plain in ["backup", "a-b.c_d", "/srv/50%", "tenant:7@x"] {
            assert_eq!(word(plain), plain);
        }
        for (changed, shown) in
            [("", "''"), ("a b", "'a b'"), ("$(x)", "'$(x)'"), ("it's", r"'it'\''s'"), ("é", "'é'")]
        {
            assert_eq!(word(changed), shown);
        }
    }

    #[test]
    fn no_value_is_taken_for_an_option() {
        assert_eq!([argument("web 1"), argument("--all")], ["'web 1'", "-- --all"]);
        assert_eq!(
            [option("worker", "web1"), option("worker", "--all")],
            ["--worker web1", "--worker=--all"]
        );
    }
}
