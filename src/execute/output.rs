//! Keeps the beginning and the end of a job's output, as text that PostgreSQL can store.

use std::collections::VecDeque;

use crate::job::attempt::{JobOutput, STDERR_LINE};

/// At most this many bytes of a stream's beginning are stored, and as many of its end.
const PART_LIMIT: usize = 32 * 1024;

/// The first and the last `PART_LIMIT` bytes of a stream, and its length.
#[derive(Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The length of the whole stream.
    bytes: u64,
}

impl Capture {
    /// Adds output of the stream.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        let (head, rest) = chunk.split_at(chunk.len().min(PART_LIMIT - self.head.len()));
        self.head.extend_from_slice(head);
        push_bounded(&mut self.tail, rest, PART_LIMIT);
    }

    /// Returns the number of bytes between the beginning and the end that are stored.
    fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the stream as text. A line in the middle counts the bytes that are left out.
    fn text(mut self) -> String {
        let left_out = self.left_out();
        if left_out == 0 {
            self.head.extend(self.tail);
            return text(&self.head);
        }
        // The gap may have cut two characters: drop the parts of them, at the end of the head and
        // at the begin of the tail.
        let last_char = self.head.iter().rposition(|byte| is_char_start(*byte)).unwrap_or(0);
        if std::str::from_utf8(&self.head[last_char..]).is_err() {
            self.head.truncate(last_char);
        }
        let tail = from_char_start(self.tail.make_contiguous());
        format!("{}\n[{left_out} bytes left out]\n{}", text(&self.head), text(tail))
    }
}

/// Appends `chunk` to `tail`, and drops all but the last `limit` bytes of it.
pub(super) fn push_bounded(tail: &mut VecDeque<u8>, chunk: &[u8], limit: usize) {
    let chunk = &chunk[chunk.len().saturating_sub(limit)..];
    tail.drain(..(tail.len() + chunk.len()).saturating_sub(limit));
    tail.extend(chunk);
}

/// Joins both streams: stdout, a separator line, and stderr.
pub(super) fn join(stdout: Capture, stderr: Capture) -> JobOutput {
    let bytes = stdout.bytes + stderr.bytes;
    let truncated = stdout.left_out() + stderr.left_out() > 0;
    let mut text = stdout.text();
    if stderr.bytes > 0 {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(STDERR_LINE);
        text.push_str(&stderr.text());
    }
    JobOutput { text, bytes, truncated }
}

/// Returns bytes as valid UTF-8 without NUL: PostgreSQL rejects anything else, and the result of
/// the attempt with it.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

/// Returns the bytes without the rest of a character that was cut in two, at their start.
pub(super) fn from_char_start(bytes: &[u8]) -> &[u8] {
    // A character has at most four bytes. If none of the first four starts one, this is not UTF-8.
    let start = bytes.iter().take(4).position(|byte| is_char_start(*byte)).unwrap_or(0);
    &bytes[start..]
}

/// Whether a character of UTF-8 may start with this byte.
fn is_char_start(byte: u8) -> bool {
    // All later bytes of a character begin with the bits 10.
    byte & 0b1100_0000 != 0b1000_0000
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
    fn a_short_output_is_kept_whole() {
        let output = join(capture(&[b"one\n", b"two\n"]), Capture::default());
        assert_eq!(
            (output.text.as_str(), output.bytes, output.truncated),
            ("one\ntwo\n", 8, false)
        );
        let whole = vec![b'x'; 2 * PART_LIMIT];
        assert!(!join(capture(&[&whole]), Capture::default()).truncated);
    }

    #[test]
    fn both_ends_of_a_long_output_are_kept_and_all_bytes_counted() {
        let middle = vec![b'-'; 1_000_000];
        let flood = || capture(&[b"first ", &middle, b" last"]);
        assert!(flood().head.len() + flood().tail.len() <= 2 * PART_LIMIT);
        let output = join(flood(), flood());
        assert!(output.text.starts_with("first -") && output.text.ends_with("- last"));
        assert!(
            output.text.contains(&format!("\n[{} bytes left out]\n", 1_000_011 - 2 * PART_LIMIT))
        );
        assert_eq!((output.bytes, output.truncated), (2_000_022, true));
    }

    #[test]
    fn a_line_separates_the_two_streams() {
        assert_eq!(join(capture(&[b"a"]), capture(&[b"b"])).text, "a\n--- stderr ---\nb");
        assert_eq!(join(Capture::default(), capture(&[b"b"])).text, "--- stderr ---\nb");
    }

    #[test]
    fn bytes_that_postgresql_cannot_store_are_replaced() {
        assert_eq!(text(b"a\0b\xffc"), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let euros = "€".repeat(PART_LIMIT);
        let output = join(capture(&[euros.as_bytes()]), Capture::default());
        assert!(output.truncated && !output.text.contains('\u{fffd}'));
    }
}
