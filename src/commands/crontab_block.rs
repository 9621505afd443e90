//! The lines that jobctl writes to a crontab, between two markers. Pure.

use crate::text::plain::plain;

const BEGIN: &str = "# BEGIN jobctl: written by `jobctl init`, which replaces these lines";
const END: &str = "# END jobctl";

/// Where a line of a crontab is in relation to the block.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Before,
    Inside,
    After,
}

/// Returns the lines between their markers.
pub(super) fn block(lines: &str) -> String {
    format!("{BEGIN}\n{lines}{END}\n")
}

/// Returns the text with this block in the place of the old one. Without an old one, the block
/// comes last, because its variables affect all lines below it. An empty block removes the old one.
/// `None`: the end marker of the old block is missing.
pub(super) fn replaced(text: &str, block: &str) -> Option<String> {
    let (mut before, mut after, mut place) = (String::new(), String::new(), Place::Before);
    for line in text.lines() {
        match (place, line) {
            (Place::Before, BEGIN) => place = Place::Inside,
            (Place::Inside, END) => place = Place::After,
            (Place::Inside, _) => {}
            (Place::Before, _) => before.extend([line, "\n"]),
            (Place::After, _) => after.extend([line, "\n"]),
        }
    }
    if place == Place::Inside { None } else { Some(before + block + &after) }
}

/// Returns the lines above the block, whose variables apply in it; without a block, all lines.
pub(super) fn before_block(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| *line != BEGIN)
}

/// Returns the lines of the block, with its first marker.
pub(super) fn in_block(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| *line != BEGIN).take_while(|line| *line != END)
}

/// Returns the text with empty lines in the place of the block, so that line numbers stay the same.
/// `None`: the end marker is missing.
pub(super) fn without_block(text: &str) -> Option<String> {
    let lines = text.lines().count() - replaced(text, "")?.lines().count();
    replaced(text, &"\n".repeat(lines))
}

/// Returns the removed lines, with `-`, and the added lines, with `+`, as a terminal shows them.
pub(super) fn difference(old: &str, new: &str) -> Vec<String> {
    let only_in = |text: &str, other: &str, sign: char| {
        let lines = text.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.map(|line| plain(&format!("{sign} {line}"))).collect::<Vec<_>>()
    };
    [only_in(old, new, '-'), only_in(new, old, '+')].concat()
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
