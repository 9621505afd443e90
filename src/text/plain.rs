//! Makes text safe to print: then it can't control the terminal or hide characters. Pure.

use std::borrow::Cow;
use std::fmt::Write;

/// How many of the first characters of a long line are printed. Its middle is left out, because an
/// error begins with what failed, and ends with the remedy.
const FIRST: usize = 3000;
/// How many of the last characters of a long line are printed.
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
            let left_out = last - first;
            format!("{} [{left_out} bytes left out] {}", &text[..first], &text[last..]).into()
        }
        _ => text.into(),
    }
}

/// Returns the text with control or invisible characters escaped; it stays on one line.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            let _ = write!(plain, "{}", c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Returns whether a text has neither control nor invisible characters.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(is_invisible)
}

/// Checks a name that a person chooses, such as a key or a share, as the constraints of
/// `jobctl.job_runs` do. It must not begin with `-`, because a script would pass it as an option.
pub(crate) fn short(what: &str, text: &str) -> Result<String, String> {
    let is_blank = text.trim_matches(' ').is_empty();
    let fits = !is_blank && !text.starts_with('-') && is_plain(text) && text.len() <= 255;
    let rule = "must have 1 to 255 bytes, not all blanks, without control or invisible \
                characters, and must not begin with -";
    if fits { Ok(text.to_owned()) } else { Err(format!("a {what} {rule}")) }
}

/// Returns whether a character is not shown: a control character, which may change the terminal, a
/// direction mark, or a character without width, with which two different texts look alike. The
/// constraints of `jobctl.job_runs` reject the same characters.
pub(crate) fn is_invisible(c: char) -> bool {
    let has_no_width = matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    c.is_control() || has_no_width
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
