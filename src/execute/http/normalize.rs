//! Adapts answers to ureq's parser, which differs from other clients in three ways:
//!
//! - It rejects a header that a server folds over several lines. RFC 9112, section 5.2, asks a
//!   client to replace each fold by spaces.
//! - It takes the headers of an interim answer, such as 100 or 103, for those of the final answer.
//! - It takes a reset of the connection for the end of a body without a length.

use std::fmt;

use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};
use ureq::{Error, Timeout};

use super::failure::{INCOMPLETE, is_closed, worded};
use crate::job::failure::Failure;

/// A connection whose answers have no folded headers, and whose interim answers have no headers at
/// all.
pub(super) struct Normalized<T> {
    inner: T,
    /// The headers of the present answer are still incomplete.
    is_header: bool,
    /// ureq has looked only for an interim answer in this input. It asks for more input before it
    /// reads the final answer, but the server may have sent all of it.
    is_unread: bool,
}

impl<T> Normalized<T> {
    /// Adapts the answers of a connection.
    pub(super) fn new(inner: T) -> Self {
        Self { inner, is_header: true, is_unread: false }
    }
}

impl<T: Transport> Transport for Normalized<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // After a request, the next input is the headers of its answer.
        (self.is_header, self.is_unread) = (true, false);
        self.inner.transmit_output(amount, timeout)
    }

    /// Waits for more input, and adapts it to ureq's parser. Returns whether there is more.
    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if std::mem::take(&mut self.is_unread) && !self.inner.buffers().input().is_empty() {
            // Let ureq read this input as the final answer before more input comes.
            return Ok(true);
        }
        self.is_unread = timeout.reason == Timeout::Await100;
        // In a body, ureq leaves nothing unread but a line between chunks that has no CR LF yet. If
        // that line ends in LF alone, CR LF may never come.
        if !self.is_header && self.inner.buffers().input().contains(&b'\n') {
            return Err(Error::BodyStalled);
        }
        let has_more = match self.inner.await_input(timeout) {
            Ok(has_more) => has_more,
            Err(Error::Io(error)) if !self.is_header && is_closed(&error) => {
                return Err(worded(Failure::Transport(INCOMPLETE.to_owned())));
            }
            Err(other) => return Err(other),
        };
        if self.is_header {
            // ureq consumes no header before all are complete, so the input begins with the first.
            let buffers = self.inner.buffers();
            let mut input = buffers.input().to_vec();
            self.is_header = !normalize(&mut input);
            if input != buffers.input() {
                // Unconsumed input can't be changed in place: consume it, and append the new text.
                buffers.input_consume(buffers.input().len());
                buffers.input_append_buf()[..input.len()].copy_from_slice(&input);
                buffers.input_appended(input.len());
                // Tell the buffer that ureq has not made use of this input yet.
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
impl<T> fmt::Debug for Normalized<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Normalized").finish_non_exhaustive()
    }
}

/// Replaces the line break of each folded header by spaces, and removes the headers of interim
/// answers. Returns whether the headers of the final answer end in this input.
fn normalize(input: &mut Vec<u8>) -> bool {
    // Where the headers of the present answer begin; `None` before the end of its status line.
    let mut headers = None;
    // Where the present line begins.
    let mut start = 0;
    let mut is_interim = false;
    while let Some(length) = input[start..].iter().position(|byte| *byte == b'\n') {
        let end = start + length;
        let is_empty_line = matches!(input[start..end], [] | [b'\r']);
        match headers {
            None => {
                is_interim = is_interim_status(&input[start..end]);
                (headers, start) = (Some(end + 1), end + 1);
            }
            // The end of an interim answer: keep its status line and the empty line.
            Some(first) if is_empty_line && is_interim => {
                input.drain(first..start);
                (headers, start) = (None, first + length + 1);
            }
            Some(_) if is_empty_line => return true,
            // The next line continues this header.
            Some(_) if matches!(input.get(end + 1), Some(b' ' | b'\t')) => {
                input[end] = b' ';
                if input[end - 1] == b'\r' {
                    input[end - 1] = b' ';
                }
            }
            Some(_) => start = end + 1,
        }
    }
    false
}

/// Returns whether this is the status line of an interim answer, after which another answer
/// follows: 1xx, except 101, which ends HTTP on this connection.
fn is_interim_status(line: &[u8]) -> bool {
    let after_version = line.get("HTTP/1.1".len()..).unwrap_or_default();
    after_version.starts_with(b" 1") && !after_version.starts_with(b" 101")
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[track_caller]
    fn becomes(answer: &str, expected: &str, is_complete: bool) {
        let mut input = answer.as_bytes().to_vec();
        assert_eq!(normalize(&mut input), is_complete);
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
        // An empty line before the status line does not end the headers.
        becomes(
            "\r\nHTTP/1.1 200 OK\r\nA:\r\n b\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\nA:   b\r\n\r\n",
            true,
        );
    }

    #[test]
    fn an_interim_answer_loses_its_headers() {
        let last = "HTTP/1.1 200 OK\r\nA:   b\r\n\r\nbody";
        let folded = last.replace("   b", "\r\n b");
        for interim in ["100", "102", "103", "199"] {
            let status = format!("HTTP/1.1 {interim} x\r\n");
            becomes(
                &format!("{status}B: c\r\n d\r\n\r\n{folded}"),
                &format!("{status}\r\n{last}"),
                true,
            );
            becomes(&format!("{status}\r\n{folded}"), &format!("{status}\r\n{last}"), true);
            becomes(&format!("{status}B: c\r\n"), &format!("{status}B: c\r\n"), false);
        }
        let last = "HTTP/1.1 101 x\r\nB: c\r\n\r\nHTTP/1.1 103 x\r\nB: c\r\n\r\n";
        becomes(last, last, true);
    }
}
