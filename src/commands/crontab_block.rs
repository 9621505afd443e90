//! The lines that jobctl writes to a crontab, between two markers. Pure.

use crate::text::plain::plain;

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

/// Returns the lines before the block, or all if there is none: their variables hold in the block.
pub(super) fn before_block(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| *line != BEGIN)
}

/// Returns the lines of the block.
pub(super) fn in_block(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| *line != BEGIN).take_while(|line| *line != END)
}

/// Returns the text with empty lines in the place of the block, so that line numbers stay the same.
pub(super) fn without_block(text: &str) -> Option<String> {
    let lines = text.lines().count() - replaced(text, "")?.lines().count();
    replaced(text, &"\n".repeat(lines))
}

/// Returns the lines that go, with `-`, and those that come, with `+`, as a terminal shows them.
pub(super) fn difference(old: &str, new: &str) -> Vec<String> {
    let only = |sign: char, of: &str, other: &str| {
        let lines = of.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.map(|line| plain(&format!("{sign} {line}"))).collect::<Vec<_>>()
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
        assert_eq!(difference("a\u{1b}[2J", ""), ["- a\\u{1b}[2J"]);
    }
}
