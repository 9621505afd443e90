//! Cuts and wraps texts to a number of columns on a terminal. Pure.

use std::mem;

use unicode_width::UnicodeWidthChar;

/// Returns how many columns a text takes.
pub(super) fn width_of(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Returns how many columns a character takes: none for a combining one, two for a wide one.
fn columns(c: char) -> usize {
    c.width().unwrap_or_default()
}

/// Returns how many bytes the first characters have that fit into `width` columns.
fn fitting(chars: impl Iterator<Item = char>, width: usize) -> usize {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += columns(*c);
        taken <= width
    };
    chars.take_while(fits).map(char::len_utf8).sum()
}

/// Shortens a text to `width` columns, at its end.
pub(super) fn cut_end(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let end = fitting(text.chars(), width.saturating_sub(1));
    text[..end].trim_end().to_owned() + "…"
}

/// Shortens a text to `width` columns, in its middle: names often differ at their ends.
pub(super) fn cut_middle(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let rest = width.saturating_sub(1);
    let begin = fitting(text.chars(), rest - rest / 2);
    let end = fitting(text.chars().rev(), rest / 2);
    format!("{}…{}", &text[..begin], &text[text.len() - end..])
}

/// Removes the first line from a text, and returns it: as many words as fit, or a part of a word
/// that is too long.
pub(super) fn take_line(text: &mut String, width: usize) -> String {
    // Take at least one character, so that repeated calls come to the end.
    let first_character = text.chars().next().map_or(0, char::len_utf8);
    let end = fitting(text.chars(), width).max(first_character);
    let (fits, rest) = text.split_at(end);
    let end = match fits.rfind(' ') {
        Some(blank) if blank > 0 && !rest.is_empty() && !rest.starts_with(' ') => blank,
        _ => end,
    };
    let rest = text[end..].trim_start().to_owned();
    text.truncate(end);
    mem::replace(text, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_in_its_middle() {
        assert_eq!(cut_middle("nightly_backup_of_db", 20), "nightly_backup_of_db");
        assert_eq!(cut_middle("nightly_backup_of_db", 9), "nigh…f_db");
        assert_eq!(cut_middle("nightly_backup_of_db", 8), "nigh…_db");
        assert_eq!(cut_middle("äöü", 2), "ä…");
        assert_eq!(cut_middle("請求書を送る", 7), "請…る");
    }

    #[test]
    fn another_text_is_shortened_at_its_end() {
        assert_eq!(cut_end("exit status 1", 13), "exit status 1");
        assert_eq!(cut_end("exit status 1", 12), "exit status…");
        assert_eq!(cut_end("請求書", 4), "請…");
    }

    #[test]
    fn lines_break_between_words() {
        let lines = |text: &str, width| {
            let mut rest = text.to_owned();
            let mut lines = Vec::new();
            while !rest.is_empty() {
                lines.push(take_line(&mut rest, width));
            }
            lines.join("|")
        };
        assert_eq!(lines("run `jobctl retry 5`", 20), "run `jobctl retry 5`");
        assert_eq!(lines("run `jobctl retry 5`", 12), "run `jobctl|retry 5`");
        assert_eq!(lines("run `jobctl retry 5`", 11), "run `jobctl|retry 5`");
        assert_eq!(lines("exit-status-1", 5), "exit-|statu|s-1");
        assert_eq!(lines("請求", 1), "請|求");
    }
}
