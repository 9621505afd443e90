//! What became of a call: the answer, kept in bounds, or why there is none, in words that may be
//! stored and shown. Must not know how a connection is made.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use ureq::http::header::{self, HeaderMap, HeaderName};
use ureq::http::{Response, StatusCode};
use ureq::{Body, Error};

use super::HEADER_LIMIT;
use super::dial::Refused;
use super::socket::Sent;
use crate::execute::output;
use crate::model::{Failure, Output, RetryAfter};

/// Bytes of an answer's body that are read; the rest stays with the server.
const BODY_LIMIT: u64 = 64 * 1024;

/// Reads the body as far as it is kept, and says what broke off the reading. A body that is longer
/// is no fault; its connection is closed with it.
pub(super) fn read(body: Body) -> (Output, Result<(), Error>) {
    let announced = body.content_length();
    let mut kept = Vec::new();
    let end = body.into_reader().take(BODY_LIMIT + 1).read_to_end(&mut kept);
    let read = kept.len() as u64;
    let truncated = read > BODY_LIMIT;
    kept.truncate(usize::try_from(BODY_LIMIT).unwrap_or(usize::MAX));
    let bytes = if truncated { announced.unwrap_or_default().max(read) } else { read };
    let output = Output { text: output::text(&kept), bytes, truncated };
    (output, end.map(drop).map_err(Error::from))
}

/// The failure that a status is; `None` for success.
pub(super) fn judge<T>(response: &Response<T>) -> Option<Failure> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let waits = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = if waits { retry_after(response.headers()) } else { None };
    Some(Failure::HttpStatus { status: status.as_u16(), retry_after })
}

/// Reads seconds or a date. A date is compared with the server's own `Date` if there is one,
/// because the two clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<RetryAfter> {
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none())?.to_str().ok().map(str::trim)
    };
    let wish = only(header::RETRY_AFTER)?;
    if !wish.is_empty() && wish.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a very long time.
        return Some(RetryAfter::In(Duration::from_secs(wish.parse().unwrap_or(u64::MAX))));
    }
    let until = date(wish)?;
    Some(match only(header::DATE).and_then(date) {
        Some(from) => RetryAfter::In((until - from).to_std().unwrap_or_default()),
        None => RetryAfter::At(until),
    })
}

/// Reads a date in one of the three formats of RFC 9110, section 5.6.7.
fn date(text: &str) -> Option<DateTime<Utc>> {
    let obsolete = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let read = |format: &&str| NaiveDateTime::parse_from_str(text, format).ok();
    let utc = || obsolete.iter().find_map(read).map(|date| date.and_utc());
    DateTime::parse_from_rfc2822(text).ok().map(Into::into).or_else(utc)
}

/// Why there is no complete answer. The text of ureq's errors may hold the URL, so it is not used.
pub(super) fn failure(error: Error, sent: Sent, total: Duration) -> Failure {
    let unknown = match sent {
        Sent::Something => "; outcome unknown",
        Sent::Nothing => "",
    };
    match error {
        Error::Timeout(_) => Failure::Timeout(total),
        Error::Other(other) => match other.downcast::<Refused>() {
            Ok(refused) => refused.0,
            Err(_) => Failure::Transport(format!("the call failed{unknown}")),
        },
        Error::LargeResponseHeader(..) => {
            Failure::Transport(format!("the answer has a header longer than {} KiB{unknown}", HEADER_LIMIT / 1024))
        }
        Error::Protocol(_) => match sent {
            Sent::Something => {
                let what = "the answer is not valid HTTP, or has more than 128 headers";
                Failure::Transport(format!("{what}{unknown}"))
            }
            Sent::Nothing => Failure::BadPayload("the call can't be written as an HTTP request".to_owned()),
        },
        Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => Failure::Tls(format!("{}{unknown}", tls_reason(tls))),
            None if error.kind() == ErrorKind::UnexpectedEof => match sent {
                Sent::Something => Failure::Transport(format!(
                    "the server closed the connection before its answer was complete{unknown}"
                )),
                // Only a handshake reads before anything is sent.
                Sent::Nothing => Failure::Tls("the server closed the connection during the TLS handshake".to_owned()),
            },
            None => Failure::Transport(format!("the connection failed: {error}{unknown}")),
        },
        Error::Rustls(tls) => Failure::Tls(format!("{}{unknown}", tls_reason(&tls))),
        Error::Tls(why) => Failure::Tls(format!("{why}{unknown}")),
        _ => Failure::Transport(format!("the call failed{unknown}")),
    }
}

fn tls_reason(error: &rustls::Error) -> String {
    use rustls::CertificateError as Certificate;

    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            Certificate::Expired | Certificate::ExpiredContext { .. } => "certificate has expired".to_owned(),
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "certificate is not valid yet".to_owned()
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "certificate is for another host".to_owned()
            }
            Certificate::UnknownIssuer => "certificate is from an issuer that this host does not trust".to_owned(),
            Certificate::BadSignature => "certificate has a wrong signature".to_owned(),
            Certificate::Other(other) => format!("certificate is not valid: {}", other.0),
            // The name of the variant says enough; its fields may be long.
            other => {
                let debug = format!("{other:?}");
                format!("certificate is not valid: {}", debug.split([' ', '(']).next().unwrap_or_default())
            }
        },
        other => format!("TLS failed: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test clock: 07:28 on 21 October 2015.
    #[track_caller]
    fn waits(status: u16, headers: &[(&str, &str)], seconds: Option<u64>) {
        let now = date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        match judge(&response.body(()).unwrap()) {
            Some(Failure::HttpStatus { retry_after, .. }) => {
                assert_eq!(retry_after.map(|wish| wish.wait(now).as_secs()), seconds, "{headers:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_whole_of_2xx_is_success() {
        for (status, succeeds) in [(199, false), (200, true), (204, true), (299, true), (300, false), (404, false)] {
            assert_eq!(judge(&Response::builder().status(status).body(()).unwrap()).is_none(), succeeds, "{status}");
        }
    }

    #[test]
    fn only_429_and_503_may_ask_for_a_wait() {
        for (status, seconds) in [(429, Some(5)), (503, Some(5)), (500, None), (502, None), (302, None), (404, None)] {
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
        waits(503, &[("retry-after", "5"), ("retry-after", "5")], None);
    }

    #[test]
    fn a_date_is_measured_from_the_servers_own_clock() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        waits(503, &[date, ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT")], Some(90));
        waits(503, &[date, ("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")], Some(0));
        waits(503, &[date, ("retry-after", "Fri, 21 Oct 2033 07:28:00 GMT")], Some(86400));
        waits(503, &[date, ("retry-after", "tomorrow")], None);
    }

    #[test]
    fn a_date_without_the_servers_clock_is_compared_with_ours() {
        for (value, seconds) in [
            ("Wed, 21 Oct 2015 07:29:30 GMT", Some(90)),
            ("Wednesday, 21-Oct-15 07:29:30 GMT", Some(90)),
            ("Wed Oct 21 07:29:30 2015", Some(90)),
            ("Wed, 21 Oct 2015 07:00:00 GMT", Some(0)),
            ("Fri, 21 Oct 2033 07:28:00 GMT", Some(86400)),
            ("Wed, 21 Oct 2015", None),
        ] {
            waits(503, &[("retry-after", value)], seconds);
            waits(503, &[("date", "now"), ("retry-after", value)], seconds);
        }
    }

    #[test]
    fn a_failure_never_holds_the_url() {
        let says = |error: Error, sent: Sent| failure(error, sent, Duration::from_secs(30)).to_string();
        let reset = || Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(says(reset(), Sent::Nothing), "the connection failed: connection reset");
        assert_eq!(says(reset(), Sent::Something), "the connection failed: connection reset; outcome unknown");
        let uri = || Error::BadUri("http://a:81/secret?token=s3cret".to_owned());
        assert_eq!(says(uri(), Sent::Something), "the call failed; outcome unknown");
        assert_eq!(says(Error::Timeout(ureq::Timeout::Global), Sent::Something), "timed out after 30s");
    }
}
