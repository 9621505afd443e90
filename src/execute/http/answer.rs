//! The result of a call: the bounded answer, or why there is none, in words that may be stored and
//! shown.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::{Response, StatusCode};
use ureq::{Body, Error};

use super::HEADER_LIMIT;
use super::connection::Sent;
use crate::execute::output;
use crate::job::attempt::JobOutput;
use crate::job::failure::{Failure, RetryAfter};
use crate::tls::{Remedy, TlsProblem};

/// The failure of a call whose answer ends too early.
pub(super) const INCOMPLETE: &str =
    "the server closed the connection before its answer was complete; outcome unknown";

/// The maximum of bytes that are read from an answer's body.
const BODY_LIMIT: usize = 64 * 1024;

/// Reads the beginning of the body. If the body is longer than the limit, the connection is closed
/// instead of kept for the next call.
pub(super) fn read(body: Body) -> (JobOutput, Result<(), Error>) {
    let announced = body.content_length();
    let mut kept = Vec::new();
    let end = body.into_reader().take(BODY_LIMIT as u64 + 1).read_to_end(&mut kept);
    let read = kept.len() as u64;
    let truncated = kept.len() > BODY_LIMIT;
    kept.truncate(BODY_LIMIT);
    let bytes = if truncated { announced.unwrap_or_default().max(read) } else { read };
    let output = JobOutput { text: output::text(&kept), bytes, truncated };
    (output, end.map(drop).map_err(Error::from))
}

/// Returns the failure that a status means, or `None` for success.
pub(super) fn judge<T>(response: &Response<T>) -> Option<Failure> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let may_wait =
        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = if may_wait { retry_after(response.headers()) } else { None };
    Some(Failure::HttpStatus { status: status.as_u16(), retry_after })
}

/// Returns the value of a header, unless it has several different ones.
pub(super) fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|first| values.all(|other| other == first))
}

/// Reads seconds or a date. A date is compared with the server's own `Date` if there is one,
/// because the two clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<RetryAfter> {
    let text = |name: HeaderName| only(headers, name)?.to_str().ok().map(str::trim);
    let wish = text(header::RETRY_AFTER)?;
    if let Some(asked) = RetryAfter::seconds(wish) {
        return Some(asked);
    }
    let until = date(wish)?;
    Some(match text(header::DATE).and_then(date) {
        Some(from) => RetryAfter::In((until - from).to_std().unwrap_or_default()),
        None => RetryAfter::At(until),
    })
}

/// Reads a date in one of the three formats of RFC 9110, section 5.6.7. Like curl, it ignores the
/// name of the weekday, which may be wrong.
fn date(text: &str) -> Option<DateTime<Utc>> {
    let is_weekday = |text: &str| text.chars().all(|c| c.is_ascii_alphabetic() || c == ',');
    let (_, text) = text.split_once(' ').filter(|(day, _)| is_weekday(day)).unwrap_or(("", text));
    let obsolete = ["%d-%b-%y %H:%M:%S GMT", "%b %e %H:%M:%S %Y"];
    let read = |format: &&str| NaiveDateTime::parse_from_str(text, format).ok();
    let utc = || obsolete.iter().find_map(read).map(|date| date.and_utc());
    DateTime::parse_from_rfc2822(text).ok().map(Into::into).or_else(utc)
}

/// Describes the error of a call without a complete answer. The text of ureq's errors may contain
/// the URL, so it is not used.
pub(super) fn failure(error: Error, sent: Sent, total: Duration) -> Failure {
    let unknown = if sent == Sent::Something { "; outcome unknown" } else { "" };
    let transport = |why: &str| Failure::Transport(format!("{why}{unknown}"));
    let tls = |why: &str| Failure::Tls(format!("{why}{unknown}"));
    match error {
        Error::Timeout(_) => Failure::Timeout(total),
        Error::Other(other) => {
            other.downcast().map_or_else(|_| transport("the call failed"), |worded| *worded)
        }
        Error::LargeResponseHeader(..) => {
            let limit = HEADER_LIMIT / 1024;
            transport(&format!("the answer has a header longer than {limit} KiB"))
        }
        Error::Protocol(_) if sent == Sent::Nothing => {
            Failure::BadPayload("the call can't be written as an HTTP request".to_owned())
        }
        Error::Protocol(_) | Error::BodyStalled => {
            transport("the answer is not valid HTTP, or has more than 128 headers")
        }
        Error::Io(error) => {
            match (tls_problem(&error), error.kind(), sent) {
                (Some(problem), ..) => tls(&tls_words(&problem)),
                (None, ErrorKind::UnexpectedEof, Sent::Something) => {
                    Failure::Transport(INCOMPLETE.to_owned())
                }
                // Only a TLS handshake reads from the server before the request is sent.
                (None, ErrorKind::UnexpectedEof, Sent::Nothing) => {
                    tls("the server closed the connection during the TLS handshake")
                }
                (None, ..) => transport(&format!("the connection failed: {error}")),
            }
        }
        _ => transport("the call failed"),
    }
}

fn tls_problem(error: &io::Error) -> Option<TlsProblem> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(TlsProblem::from(error))
}

/// Returns the names in the certificate of a server that has another name.
pub(super) fn certificate_names(error: &Error) -> Option<String> {
    let Error::Io(error) = error else { return None };
    let names = tls_problem(error)?.names;
    (!names.is_empty()).then(|| names.join(", "))
}

/// Words a problem without the names of servers, because viewers read it.
pub(super) fn tls_words(problem: &TlsProblem) -> String {
    let remedy = match problem.remedy {
        Remedy::Do(remedy) => remedy,
        Remedy::Trust => {
            "add its authority's certificate or this one to those that this host trusts"
        }
        Remedy::Name => "use a name of the certificate in the URL",
        Remedy::ClientCertificate => {
            "http jobs have no client certificate; use a command, such as `curl --cert`"
        }
        Remedy::RevocationList | Remedy::Versions => "check the TLS settings of the server",
    };
    format!("{}; {remedy}", problem.cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how long an answer makes the run wait. The clock shows 07:28 on 21 October 2015.
    #[track_caller]
    fn waits(status: u16, headers: &[(&str, &str)], seconds: Option<u64>) {
        let now = date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        match judge(&response.body(()).unwrap()) {
            Some(Failure::HttpStatus { retry_after, .. }) => {
                assert_eq!(
                    retry_after.map(|wish| wish.wait(now).as_secs()),
                    seconds,
                    "{headers:?}"
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_2xx_status_is_success() {
        for (status, succeeds) in
            [(199, false), (200, true), (204, true), (299, true), (300, false), (404, false)]
        {
            assert_eq!(
                judge(&Response::builder().status(status).body(()).unwrap()).is_none(),
                succeeds,
                "{status}"
            );
        }
    }

    #[test]
    fn only_429_and_503_may_ask_for_a_wait() {
        for (status, seconds) in
            [(429, Some(5)), (503, Some(5)), (500, None), (502, None), (302, None), (404, None)]
        {
            waits(status, &[("retry-after", "5")], seconds);
        }
    }

    #[test]
    fn a_wait_is_seconds_within_a_day() {
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("86401", Some(86400)),
            ("99999999999999999999999", Some(86400)),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("abc", None),
            ("", None),
        ] {
            waits(503, &[("retry-after", value)], seconds);
        }
        waits(503, &[], None);
        waits(503, &[("retry-after", "5"), ("retry-after", "5")], Some(5));
        waits(503, &[("retry-after", "5"), ("retry-after", "7")], None);
    }

    #[test]
    fn a_date_is_compared_with_the_servers_clock() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        waits(503, &[date, ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT")], Some(90));
        waits(503, &[date, ("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")], Some(0));
        waits(503, &[date, ("retry-after", "Fri, 21 Oct 2033 07:28:00 GMT")], Some(86400));
        waits(503, &[date, ("retry-after", "tomorrow")], None);
    }

    #[test]
    fn a_date_without_the_servers_clock_is_compared_with_this_hosts() {
        for (value, seconds) in [
            ("Wed, 21 Oct 2015 07:29:30 GMT", Some(90)),
            ("Wednesday, 21-Oct-15 07:29:30 GMT", Some(90)),
            ("Wed Oct 21 07:29:30 2015", Some(90)),
            ("21 Oct 2015 07:29:30 GMT", Some(90)),
            // Another weekday.
            ("Mon, 21 Oct 2015 07:29:30 GMT", Some(90)),
            ("Monday, 21-Oct-15 07:29:30 GMT", Some(90)),
            ("Mon Oct 21 07:29:30 2015", Some(90)),
            ("Wed, 21 Oct 2015 07:00:00 GMT", Some(0)),
            ("Fri, 21 Oct 2033 07:28:00 GMT", Some(86400)),
            ("Wed, 21 Oct 2015", None),
        ] {
            waits(503, &[("retry-after", value)], seconds);
            waits(503, &[("date", "now"), ("retry-after", value)], seconds);
        }
    }

    #[test]
    fn a_failure_never_contains_the_url() {
        let says =
            |error: Error, sent: Sent| failure(error, sent, Duration::from_secs(30)).to_string();
        let reset = || Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(says(reset(), Sent::Nothing), "the connection failed: connection reset");
        assert_eq!(
            says(reset(), Sent::Something),
            "the connection failed: connection reset; outcome unknown"
        );
        let uri = || Error::BadUri("http://a:81/secret?token=s3cret".to_owned());
        assert_eq!(says(uri(), Sent::Something), "the call failed; outcome unknown");
        assert_eq!(
            says(Error::Timeout(ureq::Timeout::Global), Sent::Something),
            "timed out after 30s"
        );
    }
}
