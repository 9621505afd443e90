//! The decrypted bytes of a connection. Limits and `require_auth` apply before the driver reads the
//! server's bytes, because the driver keeps whole messages and answers in memory.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

use super::auth::Methods;

/// The largest message, which is one row at most. The longest row that jobctl reads is a payload of
/// at most 16 MiB as text.
const MESSAGE_LIMIT: usize = 64 * 1024 * 1024;
/// The largest answer to one statement: some hundred thousand listed runs.
const ANSWER_LIMIT: usize = 256 * 1024 * 1024;

/// A socket, encrypted or not.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Why the connection reads no more from a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Message,
    Answer,
    /// The server asks for this forbidden authentication method.
    Login(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: usize| bytes / 1024 / 1024;
        match self {
            Self::Message => {
                write!(formatter, "the database sends a row of more than {} MiB", mebibytes(MESSAGE_LIMIT))
            }
            Self::Answer => {
                write!(formatter, "the database sends an answer of more than {} MiB", mebibytes(ANSWER_LIMIT))
            }
            Self::Login(method) => {
                write!(formatter, "the server asks for authentication by {method}, which require_auth forbids")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// A stream from a server that is not trusted with this host's memory.
pub(super) struct Guarded {
    socket: Box<dyn Socket>,
    /// The data for channel binding.
    binding: Option<Vec<u8>>,
    framing: Framing,
}

impl Guarded {
    pub(super) fn new(socket: Box<dyn Socket>, binding: Option<Vec<u8>>, methods: Methods) -> Self {
        Self { socket, binding, framing: Framing { methods: Some(methods), ..Framing::default() } }
    }
}

/// The current position in the server's messages. A message starts with a type byte and a length of
/// four bytes.
#[derive(Default)]
struct Framing {
    /// The received part of the message's head.
    head: Vec<u8>,
    /// Bytes of the message still to come after its head.
    rest: usize,
    /// Bytes since the server was last ready for a statement.
    answer: usize,
    /// Bytes that the driver keeps for good: the server's parameters and notifications.
    kept: usize,
    /// The allowed authentication methods; `None` after the first request.
    methods: Option<Methods>,
    refused: Option<Refused>,
}

impl Framing {
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        loop {
            let (skipped, behind) = bytes.split_at(self.rest.min(bytes.len()));
            self.rest -= skipped.len();
            let Some((first, behind)) = behind.split_first() else { return Ok(()) };
            self.head.push(*first);
            bytes = behind;
            self.read_head().inspect_err(|refused| self.refused = Some(refused.clone()))?;
        }
    }

    /// Checks a message as soon as its head is complete.
    fn read_head(&mut self) -> Result<(), Refused> {
        let [kind, a, b, c, d, body @ ..] = self.head.as_slice() else { return Ok(()) };
        let (kind, length) = (*kind, u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        if length > MESSAGE_LIMIT {
            return Err(Refused::Message);
        }
        // The first authentication request names the method. The driver rejects a later change of
        // method.
        if let (b'R', Some(methods)) = (kind, &self.methods) {
            let &[a, b, c, d] = body else { return Ok(()) };
            methods.allow(u32::from_be_bytes([a, b, c, d])).map_err(Refused::Login)?;
            self.methods = None;
        }
        self.rest = (length + 1).saturating_sub(self.head.len());
        self.head.clear();
        match kind {
            b'Z' => self.answer = 0,
            b'A' | b'S' => self.kept += length,
            _ => self.answer += length,
        }
        if self.answer.max(self.kept) > ANSWER_LIMIT { Err(Refused::Answer) } else { Ok(()) }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        Poll::Ready(self.framing.follow(&buffer.filled()[before..]).map_err(io::Error::other))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl TlsStream for Guarded {
    fn channel_binding(&self) -> ChannelBinding {
        self.binding.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(u32::try_from(length).expect("a length").to_be_bytes());
        bytes
    }

    #[test]
    fn a_too_long_message_is_rejected_at_its_head() {
        for sizes in [1, 3, 5] {
            let mut framing = Framing::default();
            let follow =
                |framing: &mut Framing, bytes: &[u8]| bytes.chunks(sizes).try_for_each(|chunk| framing.follow(chunk));
            let mut fits = message(b'D', 4 + 300);
            fits.extend([b'x'; 300]);
            assert_eq!(follow(&mut framing, &fits), Ok(()));
            assert_eq!((framing.rest, framing.head.len(), framing.answer), (0, 0, 304));
            assert_eq!(follow(&mut framing, &message(b'D', MESSAGE_LIMIT + 1)), Err(Refused::Message));
            assert_eq!(follow(&mut framing, &message(b'Z', 5)), Err(Refused::Message), "for good");
        }
    }

    #[test]
    fn the_limit_of_an_answer_counts_all_its_rows() {
        let row = |framing: &mut Framing, kind| {
            framing.follow(&message(kind, MESSAGE_LIMIT))?;
            framing.rest = 0;
            Ok(())
        };
        let mut framing = Framing::default();
        for _ in 0..20 {
            (0..3).try_for_each(|_| row(&mut framing, b'D')).expect("within the limit");
            framing.follow(b"Z\0\0\0\x05I").expect("the end of the answer");
        }
        assert_eq!((0..5).try_for_each(|_| row(&mut framing, b'D')), Err(Refused::Answer));
        // Data that the driver keeps for good counts for good.
        let mut framing = Framing::default();
        let kept = (0..5).try_for_each(|_| {
            framing.follow(b"Z\0\0\0\x05I")?;
            row(&mut framing, b'S')
        });
        assert_eq!(kept, Err(Refused::Answer));
    }
}
