//! The decrypted bytes of a connection. Limits and `require_auth` apply before the driver reads the
//! server's bytes, because the driver keeps whole messages and answers in memory.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

use crate::error::Error;
use crate::settings::Settings;

/// The most bytes of a login's answers, with all notices. They are few, because the server may be
/// any until the login ends.
const LARGEST_LOGIN: usize = MIB;
const MIB: usize = 1024 * 1024;
/// The memory that the driver needs for a message besides its bytes. It counts for the limits,
/// because an answer of tiny messages needs twenty times its size.
const MESSAGE_COST: usize = 128;
/// The most parameters, such as `server_version`, whose values a server may report. The driver
/// keeps the last value of each. PostgreSQL reports about 15.
const MOST_PARAMETERS: usize = 1000;
/// The most bytes of a parameter's name.
const PARAMETER_NAME: usize = 64;
/// The most bytes of a report of a parameter's value.
const PARAMETER_REPORT: usize = 64 * 1024;

/// How much a server may send, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The largest message, which is one row at most.
    pub(crate) message: usize,
    /// The largest answer to one request.
    pub(crate) answer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: usize::MAX, answer: usize::MAX }
    }
}

/// A socket, encrypted or not.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Why a client reads no more from a server: it sends more than the limits allow, or asks for a
/// forbidden authentication method. The connection is closed then.
///
/// For a statement, it is the inner error of the [`io::Error`] that is the source of the driver's
/// error.
#[derive(Debug, Eq, PartialEq)]
pub struct Rejection(Reason);

#[derive(Debug, Eq, PartialEq)]
enum Reason {
    /// A message is larger than this limit.
    Message(usize),
    /// An answer is larger than this limit.
    Answer(usize),
    /// The answers to a login are larger than `LARGEST_LOGIN`.
    Login,
    /// The server reports too many or too long parameters.
    Parameters,
    /// The server asks for this forbidden authentication method.
    AuthMethod(&'static str),
}

impl Rejection {
    /// Returns whether the server asked for a forbidden authentication method.
    pub(crate) fn is_of_auth_method(&self) -> bool {
        matches!(self.0, Reason::AuthMethod(_))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, limit) = match self.0 {
            Reason::Message(limit) => ("a row", limit),
            Reason::Answer(limit) => ("an answer", limit),
            Reason::Login => ("an answer to the login", LARGEST_LOGIN),
            Reason::Parameters => {
                return formatter.write_str("the database reports too many or too long parameters");
            }
            Reason::AuthMethod(method) => {
                let rule = "which require_auth forbids";
                return write!(formatter, "the server asks for authentication by {method}, {rule}");
            }
        };
        let (size, unit) = if limit % MIB == 0 { (limit / MIB, "MiB") } else { (limit, "bytes") };
        write!(formatter, "the database sends {data} of more than {size} {unit}")
    }
}

impl std::error::Error for Rejection {}

/// libpq's names of the authentication methods, with the protocol's code of each.
const AUTH_METHODS: [(&str, Option<u32>); 7] = [
    ("none", Some(0)),
    ("password", Some(3)),
    ("md5", Some(5)),
    ("gss", Some(7)),
    ("sspi", Some(9)),
    ("scram-sha-256", Some(10)),
    // No code: the driver does not support this method, and rejects a request for it.
    ("oauth", None),
];

/// The authentication methods that `require_auth` forbids. Without it, a false server could ask for
/// the password in plain text.
#[derive(Clone, Default)]
pub(crate) struct ForbiddenMethods(Vec<&'static str>);

impl ForbiddenMethods {
    /// Reads a list of allowed methods, or of forbidden methods with a `!` each.
    pub(crate) fn read(settings: &Settings<'_>) -> Result<Self, Error> {
        let list = settings.list("require_auth");
        let invalid = |cause, remedy: &str| Err(settings.invalid("require_auth", cause, remedy));
        let forbidden: Vec<&str> = list.iter().filter_map(|item| item.strip_prefix('!')).collect();
        if list.is_empty() {
            return Ok(Self::default());
        }
        if !forbidden.is_empty() && forbidden.len() != list.len() {
            return invalid("mixes methods with and without `!`", "use one of the two forms");
        }
        let names = AUTH_METHODS.map(|(name, _)| name);
        let listed = if forbidden.is_empty() { &list } else { &forbidden };
        if listed.iter().any(|item| !names.contains(item)) {
            return invalid("has an unknown method", &format!("use {}", names.join(", ")));
        }
        // Without `!`, the list has the allowed methods, and all others are forbidden.
        let is_forbidden = |name: &&str| listed.contains(name) != forbidden.is_empty();
        Ok(Self(names.into_iter().filter(is_forbidden).collect()))
    }

    /// Fails if an authentication request with this code is for a forbidden method. Accepts unknown
    /// codes, which the driver rejects.
    fn check(&self, code: u32) -> Result<(), Reason> {
        match AUTH_METHODS.iter().find(|(_, known)| *known == Some(code)) {
            Some((name, _)) if self.0.contains(name) => Err(Reason::AuthMethod(name)),
            _ => Ok(()),
        }
    }
}

/// A stream with limits, so that a server can't fill this host's memory.
pub(crate) struct LimitedStream {
    socket: Box<dyn Socket>,
    /// The data for channel binding.
    binding: Option<Vec<u8>>,
    framing: Framing,
}

impl LimitedStream {
    pub(crate) fn new(
        socket: Box<dyn Socket>,
        binding: Option<Vec<u8>>,
        forbidden: ForbiddenMethods,
        limits: Limits,
    ) -> Self {
        Self { socket, binding, framing: Framing { forbidden, limits, ..Framing::default() } }
    }
}

/// The current position in the server's messages. A message starts with a type byte and a length of
/// four bytes.
#[derive(Default)]
struct Framing {
    limits: Limits,
    /// The received part of the message's head: its type, its length and, of some messages, the
    /// first bytes of the body.
    head: Vec<u8>,
    /// How many bytes of the message come after its head.
    rest: usize,
    /// Whether the server was ready for a statement.
    is_logged_in: bool,
    /// How many bytes came since the server was last ready for a statement, with `MESSAGE_COST`.
    answer: usize,
    /// The names of the reported parameters.
    parameters: BTreeSet<Vec<u8>>,
    /// Empty after the first authentication request, the only one that names a method.
    forbidden: ForbiddenMethods,
}

impl Framing {
    /// Checks the next bytes. After an error, this is not called again: the driver reads no more.
    fn scan(&mut self, mut bytes: &[u8]) -> Result<(), Reason> {
        loop {
            // Skip the rest of the message, and take the head of the next one byte by byte.
            let (skipped, next) = bytes.split_at(self.rest.min(bytes.len()));
            self.rest -= skipped.len();
            let Some((first, after)) = next.split_first() else { return Ok(()) };
            self.head.push(*first);
            bytes = after;
            self.scan_head()?;
        }
    }

    /// Checks a message as soon as its head is complete. Until then, does nothing.
    fn scan_head(&mut self) -> Result<(), Reason> {
        let [kind, a, b, c, d, body @ ..] = self.head.as_slice() else { return Ok(()) };
        let (kind, length) = (*kind, u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        if length > self.limits.message {
            return Err(Reason::Message(self.limits.message));
        }
        // `S` reports the value of a parameter. Its head ends with the parameter's name.
        if kind == b'S' {
            match body.iter().position(|byte| *byte == 0) {
                _ if length > PARAMETER_REPORT => return Err(Reason::Parameters),
                Some(end) => drop(self.parameters.insert(body[..end].to_vec())),
                None if body.len() < PARAMETER_NAME.min(length.saturating_sub(4)) => return Ok(()),
                None => return Err(Reason::Parameters),
            }
            if self.parameters.len() > MOST_PARAMETERS {
                return Err(Reason::Parameters);
            }
        }
        // `R` is an authentication request. The first one names the method, as a code of four
        // bytes. The driver rejects a later change of the method.
        if kind == b'R' {
            let &[a, b, c, d] = body else { return Ok(()) };
            std::mem::take(&mut self.forbidden).check(u32::from_be_bytes([a, b, c, d]))?;
        }
        self.rest = (length + 1).saturating_sub(self.head.len());
        self.head.clear();
        // `Z`: the server is ready for a statement.
        if kind == b'Z' {
            (self.answer, self.is_logged_in) = (0, true);
            return Ok(());
        }
        self.answer = self.answer.saturating_add(length + MESSAGE_COST);
        if !self.is_logged_in && self.answer > LARGEST_LOGIN {
            return Err(Reason::Login);
        }
        if self.is_logged_in && self.answer > self.limits.answer {
            return Err(Reason::Answer(self.limits.answer));
        }
        Ok(())
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let scanned = self.framing.scan(&buffer.filled()[before..]);
        Poll::Ready(scanned.map_err(|reason| io::Error::other(Rejection(reason))))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl TlsStream for LimitedStream {
    fn channel_binding(&self) -> ChannelBinding {
        self.binding.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: usize = 64 * MIB;
    const ANSWER: usize = 256 * MIB;

    fn logged_in() -> Framing {
        let limits = Limits { message: MESSAGE, answer: ANSWER };
        Framing { is_logged_in: true, limits, ..Framing::default() }
    }

    fn message(kind: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(u32::try_from(length).expect("a length").to_be_bytes());
        bytes
    }

    #[test]
    fn a_too_long_message_is_rejected_at_its_head() {
        for sizes in [1, 3, 5] {
            let mut framing = logged_in();
            let scan = |framing: &mut Framing, bytes: &[u8]| {
                bytes.chunks(sizes).try_for_each(|chunk| framing.scan(chunk))
            };
            let mut fits = message(b'D', 4 + 300);
            fits.extend([b'x'; 300]);
            assert_eq!(scan(&mut framing, &fits), Ok(()));
            assert_eq!(
                (framing.rest, framing.head.len(), framing.answer),
                (0, 0, 304 + MESSAGE_COST)
            );
            assert_eq!(
                scan(&mut framing, &message(b'D', MESSAGE + 1)),
                Err(Reason::Message(MESSAGE))
            );
        }
    }

    #[test]
    fn the_limit_of_an_answer_counts_all_its_rows() {
        let row = |framing: &mut Framing, kind| {
            framing.scan(&message(kind, MESSAGE))?;
            framing.rest = 0;
            Ok(())
        };
        let mut framing = logged_in();
        for _ in 0..20 {
            (0..3).try_for_each(|_| row(&mut framing, b'D')).expect("within the limit");
            framing.scan(b"Z\0\0\0\x05I").expect("the end of the answer");
        }
        assert_eq!((0..5).try_for_each(|_| row(&mut framing, b'D')), Err(Reason::Answer(ANSWER)));
    }

    #[test]
    fn before_the_end_of_the_login_a_server_may_say_little() {
        let mut framing = Framing::default();
        assert_eq!(framing.scan(&message(b'E', 2 * MIB)), Err(Reason::Login));
        let mut framing = Framing::default();
        let notice = [message(b'N', 5), b"\0".to_vec()].concat();
        let said = (0..1_000_000).take_while(|_| framing.scan(&notice).is_ok()).count();
        assert!(said < 10_000, "{said}");
    }

    #[test]
    fn a_server_may_report_a_parameter_often_but_not_many_parameters() {
        for sizes in [1, 3, 50] {
            let mut framing = logged_in();
            let mut report = |number: usize| {
                let body = format!("p{number:05}\0value\0");
                let report = [message(b'S', 4 + body.len()), body.into_bytes()].concat();
                let ready = b"Z\0\0\0\x05I".chunks(sizes);
                report.chunks(sizes).chain(ready).try_for_each(|chunk| framing.scan(chunk))
            };
            for number in 0..MOST_PARAMETERS {
                report(number).and_then(|()| report(number)).expect("few parameters");
            }
            assert_eq!(report(MOST_PARAMETERS), Err(Reason::Parameters));
        }
        for body in [&b"x"[..], &[b'x'; 100]] {
            let report = [message(b'S', 4 + body.len()), body.to_vec()].concat();
            assert_eq!(logged_in().scan(&report), Err(Reason::Parameters));
        }
    }

    #[test]
    fn a_rejection_names_the_limit() {
        let text = |reason| Rejection(reason).to_string();
        let row = "the database sends a row of more than";
        assert_eq!(text(Reason::Message(MESSAGE)), format!("{row} 64 MiB"));
        assert_eq!(text(Reason::Message(1000)), format!("{row} 1000 bytes"));
    }

    #[test]
    fn a_list_names_allowed_or_forbidden_methods() {
        let read = |list: &str| {
            let address = format!("require_auth={list}");
            let settings =
                Settings::collect(Some((&address, "the address")), &|_| None, "a program")
                    .expect("settings");
            ForbiddenMethods::read(&settings)
        };
        let allows = |list: &str| {
            let methods = read(list).expect("a list");
            [0, 3, 5, 7, 9, 10].map(|code| methods.check(code).is_ok())
        };
        assert_eq!(allows("scram-sha-256"), [false, false, false, false, false, true]);
        assert_eq!(allows("!password,!md5,!none"), [false, false, false, true, true, true]);
        assert_eq!(allows(""), [true; 6]);
        let md5 = read("md5").expect("a list");
        assert_eq!(md5.check(3), Err(Reason::AuthMethod("password")));
        assert!(read("md5,!none").is_err());
        assert!(read("scram").is_err());
    }
}
