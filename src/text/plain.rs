//! Makes text safe to print: it cannot control the terminal. Pure.

use std::fmt::Write;

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
