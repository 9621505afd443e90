//! Joins header lines that a server folds over several lines: RFC 9112, section 5.2, asks a client
//! to replace each fold by spaces, and ureq's parser rejects them.

use std::fmt;

use ureq::Error;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

/// A connection whose answers have no folded headers.
pub(super) struct Unfolding<T> {
    inner: T,
    /// The headers of the present answer are still incomplete.
    is_header: bool,
}

impl<T> Unfolding<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, is_header: true }
    }
}

impl<T: Transport> Transport for Unfolding<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.is_header = true;
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let has_more = self.inner.await_input(timeout)?;
        if self.is_header {
            // ureq consumes the headers only when they are complete.
            let buffers = self.inner.buffers();
            let mut input = buffers.input().to_vec();
            self.is_header = !unfold(&mut input);
            if input != buffers.input() {
                // The buffer's unconsumed part can't be written.
                buffers.input_consume(input.len());
                buffers.input_append_buf()[..input.len()].copy_from_slice(&input);
                buffers.input_appended(input.len());
                // Tells that ureq has not made use of this input yet.
                buffers.input_consume(0);
            }
        }
        Ok(has_more)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

// Not derived: the buffers contain secrets, which no log may show.
impl<T> fmt::Debug for Unfolding<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Unfolding").finish_non_exhaustive()
    }
}

/// Replaces the line break of each folded header by spaces. Returns whether the headers end in this
/// input.
fn unfold(input: &mut [u8]) -> bool {
    let mut start = 0;
    let mut is_status_line = true;
    while let Some(length) = input[start..].iter().position(|byte| *byte == b'\n') {
        let end = start + length;
        if matches!(input[start..end], [] | [b'\r']) {
            return true;
        }
        if !is_status_line && matches!(input.get(end + 1), Some(b' ' | b'\t')) {
            input[end] = b' ';
            if input[end - 1] == b'\r' {
                input[end - 1] = b' ';
            }
        } else {
            (start, is_status_line) = (end + 1, false);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::unfold;

    #[track_caller]
    fn becomes(answer: &str, expected: &str, is_complete: bool) {
        let mut input = answer.as_bytes().to_vec();
        assert_eq!(unfold(&mut input), is_complete);
        assert_eq!(String::from_utf8(input).unwrap(), expected);
    }

    #[test]
    fn a_folded_header_becomes_one_line_and_the_body_stays() {
        becomes(
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\td\r\nE: f\r\n\r\nbody\r\n more",
            "HTTP/1.1 200 OK\r\nA: b   c  \td\r\nE: f\r\n\r\nbody\r\n more",
            true,
        );
        becomes("HTTP/1.1 200 OK\nA:\n b\n\n", "HTTP/1.1 200 OK\nA:  b\n\n", true);
        // A line of blanks does not end the headers.
        becomes("HTTP/1.1 200 OK\r\nA: b\r\n \r\n", "HTTP/1.1 200 OK\r\nA: b   \r\n", false);
        becomes("HTTP/1.1 200 OK\r\nA: b\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n", false);
        // There is no header to continue.
        becomes("HTTP/1.1 200 OK\r\n A: b\r\n", "HTTP/1.1 200 OK\r\n A: b\r\n", false);
        becomes("", "", false);
    }
}
