//! Keeps the beginning and the end of what a job prints, in bounded memory, and turns it into text
//! that PostgreSQL can store.

use std::collections::VecDeque;

use crate::model::Output;

/// Bytes kept from the beginning, and as many from the end, of each stream.
const KEPT: usize = 32 * 1024;

/// One stream: its first and last `KEPT` bytes, and how many there were.
#[derive(Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

impl Capture {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        let (head, rest) = chunk.split_at(chunk.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(KEPT)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(KEPT);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + self.tail.len()) as u64
    }

    fn text(mut self) -> String {
        let left_out = self.left_out();
        if left_out == 0 {
            self.head.extend(self.tail);
            return text(&self.head);
        }
        // A character that was cut in two would show as garbage on both sides of the gap.
        let whole = self.head.iter().rposition(|byte| is_char_start(*byte)).unwrap_or(0);
        if std::str::from_utf8(&self.head[whole..]).is_err() {
            self.head.truncate(whole);
        }
        let tail = self.tail.make_contiguous();
        let start = tail.iter().take(4).position(|byte| is_char_start(*byte)).unwrap_or(0);
        format!("{}\n[{left_out} bytes left out]\n{}", text(&self.head), text(&tail[start..]))
    }
}

/// Both streams as one output: what went to stdout, then, under a line that says so, what went to
/// stderr.
pub(super) fn join(stdout: Capture, stderr: Capture) -> Output {
    let bytes = stdout.bytes + stderr.bytes;
    let truncated = stdout.left_out() + stderr.left_out() > 0;
    let mut text = stdout.text();
    if stderr.bytes > 0 {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str("--- stderr ---\n");
        text.push_str(&stderr.text());
    }
    Output { text, bytes, truncated }
}

/// Valid UTF-8 without NUL, whatever the bytes are; PostgreSQL refuses anything else, and the
/// outcome would be lost with it.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

fn is_char_start(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(chunks: &[&[u8]]) -> Capture {
        let mut capture = Capture::default();
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let output = join(capture(&[b"one\n", b"two\n"]), Capture::default());
        assert_eq!((output.text.as_str(), output.bytes, output.truncated), ("one\ntwo\n", 8, false));
        let whole = vec![b'x'; 2 * KEPT];
        assert!(!join(capture(&[&whole]), Capture::default()).truncated);
    }

    #[test]
    fn of_a_flood_both_ends_are_kept_and_all_is_counted() {
        let middle = vec![b'-'; 1_000_000];
        let flood = || capture(&[b"first ", &middle, b" last"]);
        assert!(flood().head.len() + flood().tail.len() <= 2 * KEPT);
        let output = join(flood(), flood());
        assert!(output.text.starts_with("first -") && output.text.ends_with("- last"));
        assert!(output.text.contains(&format!("\n[{} bytes left out]\n", 1_000_011 - 2 * KEPT)));
        assert_eq!((output.bytes, output.truncated), (2_000_022, true));
    }

    #[test]
    fn the_two_streams_are_told_apart() {
        assert_eq!(join(capture(&[b"a"]), capture(&[b"b"])).text, "a\n--- stderr ---\nb");
        assert_eq!(join(Capture::default(), capture(&[b"b"])).text, "--- stderr ---\nb");
    }

    #[test]
    fn what_postgresql_can_not_store_is_replaced() {
        assert_eq!(text(b"a\0b\xffc"), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let euros = "€".repeat(KEPT);
        let output = join(capture(&[euros.as_bytes()]), Capture::default());
        assert!(output.truncated && !output.text.contains('\u{fffd}'));
    }
}
