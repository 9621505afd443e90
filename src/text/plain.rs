//! Makes text safe to print: it cannot control the terminal. Pure.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a printed line. Of a longer one, the middle is left out: an error begins with what
/// failed, and ends with the remedy.
const FIRST: usize = 3000;
const LAST: usize = 500;

/// Returns a line that is safe to print, and not too long for a mail.
pub(crate) fn line(text: &str) -> String {
    plain(&cut(text))
}

/// Returns the text without its middle if it is too long for a mail.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    let first = text.char_indices().nth(FIRST).map(|(at, _)| at);
    let last = text.char_indices().rev().nth(LAST - 1).map(|(at, _)| at);
    match (first, last) {
        (Some(first), Some(last)) if first < last => {
            let out = last - first;
            format!("{} [{out} bytes left out] {}", &text[..first], &text[last..]).into()
        }
        _ => text.into(),
    }
}

/// Returns the text with control characters and direction marks escaped; it stays on one line.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if commands_terminals(c) {
            let _ = write!(plain, "{}", c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Returns whether a character changes the terminal instead of being shown: a control character or
/// a direction mark.
pub(crate) fn commands_terminals(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_its_beginning_and_its_end() {
        let most = "\u{e9}".repeat(FIRST + LAST);
        assert_eq!(line(&most), most);
        let long = format!("cannot x: {}; do y\n", "\u{e9}".repeat(1_000_000));
        let shown = line(&long);
        assert!(shown.starts_with("cannot x: \u{e9}") && shown.ends_with("; do y\\n"), "{shown}");
        assert!(shown.contains(" bytes left out] ") && shown.chars().count() < 3600, "{shown}");
    }
}
