//! Why a call has no complete answer, in words that may be stored and shown.

use std::io::{self, ErrorKind};
use std::time::Duration;

use postgres_connect::certificates::{Problem, Remedy};
use ureq::Error;

use super::HEADER_LIMIT;
use crate::job::failure::Failure;

/// The text of the failure if an answer ends too early.
pub(super) const INCOMPLETE: &str =
    "the server closed the connection before its answer was complete; outcome unknown";

/// Whether any part of a request may have reached the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SentPart {
    Nothing,
    Something,
}

/// Wraps a failure in an error of ureq, so that ureq returns it unchanged.
pub(super) fn worded(failure: Failure) -> Error {
    Error::Other(Box::new(failure))
}

/// Whether the server has closed the connection.
pub(super) fn is_closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Returns the failure of a call that has no complete answer because of this error. `sent` is the
/// part of the request that was sent, and `total` the timeout of the call. The text of ureq's
/// errors may contain the URL, so it is not used.
pub(super) fn of_error(error: Error, sent: SentPart, total: Duration) -> Failure {
    let unknown = if sent == SentPart::Something { "; outcome unknown" } else { "" };
    let transport = |why: &str| Failure::Transport(format!("{why}{unknown}"));
    let tls = |why: &str| Failure::Tls(format!("{why}{unknown}"));
    match error {
        Error::Timeout(_) => Failure::Timeout(total),
        Error::Other(other) => match other.downcast() {
            // An error of `worded`.
            Ok(failure) => *failure,
            Err(_) => transport("the call failed"),
        },
        Error::LargeResponseHeader(..) => {
            let limit = HEADER_LIMIT / 1024;
            transport(&format!("the answer has a header longer than {limit} KiB"))
        }
        Error::Protocol(_) if sent == SentPart::Nothing => {
            Failure::BadPayload("the call can't be written as an HTTP request".to_owned())
        }
        Error::Protocol(_) | Error::BodyStalled => {
            transport("the answer is not valid HTTP, or has more than 128 headers")
        }
        Error::Io(error) => {
            if let Some(problem) = tls_problem(&error) {
                tls(&tls_words(&problem))
            } else if error.kind() != ErrorKind::UnexpectedEof {
                transport(&format!("the connection failed: {error}"))
            } else if sent == SentPart::Something {
                Failure::Transport(INCOMPLETE.to_owned())
            } else {
                // Only a TLS handshake reads from the server before the request is sent.
                tls("the server closed the connection during the TLS handshake")
            }
        }
        _ => transport("the call failed"),
    }
}

/// Returns the problem with TLS that an error of the connection wraps, if any.
fn tls_problem(error: &io::Error) -> Option<Problem> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(Problem::from(error))
}

/// Returns the names in the certificate of a server, if the error is that the server has another
/// name.
pub(super) fn certificate_names(error: &Error) -> Option<String> {
    let Error::Io(error) = error else { return None };
    let problem = tls_problem(error)?;
    let names = problem.names();
    if names.is_empty() { None } else { Some(names.join(", ")) }
}

/// Returns words for a problem and its remedy, without the names of servers, because viewers read
/// them.
pub(super) fn tls_words(problem: &Problem) -> String {
    let remedy = match problem.remedy() {
        Remedy::Do(remedy) => remedy,
        Remedy::Trust => {
            "add its authority's certificate or this one to those that this host trusts"
        }
        Remedy::Name => "use a name of the certificate in the URL",
        Remedy::ClientCertificate => {
            "http jobs have no client certificate; use a command, such as `curl --cert`"
        }
        _ => "check the TLS settings of the server",
    };
    format!("{}; {remedy}", problem.cause())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_contains_the_url() {
        let says = |error: Error, sent: SentPart| {
            of_error(error, sent, Duration::from_secs(30)).to_string()
        };
        let reset = || Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(says(reset(), SentPart::Nothing), "the connection failed: connection reset");
        assert_eq!(
            says(reset(), SentPart::Something),
            "the connection failed: connection reset; outcome unknown"
        );
        let uri = || Error::BadUri("http://a:81/secret?token=s3cret".to_owned());
        assert_eq!(says(uri(), SentPart::Something), "the call failed; outcome unknown");
        assert_eq!(
            says(Error::Timeout(ureq::Timeout::Global), SentPart::Something),
            "timed out after 30s"
        );
    }
}
