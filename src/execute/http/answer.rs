//! The bounded answer to a call, and what its status means.

use std::io::Read;

use chrono::{DateTime, NaiveDateTime, Utc};
use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::{Response, StatusCode};
use ureq::{Body, Error};

use crate::execute::output;
use crate::job::attempt::JobOutput;
use crate::job::failure::{Failure, RetryAfter};

/// At most this many bytes of an answer's body are kept.
const BODY_LIMIT: usize = 64 * 1024;

/// Reads the beginning of the body, and returns it as output. Also returns the error that ended the
/// body early, if there was one. If the body is longer than the limit, the connection is closed
/// instead of kept for the next call.
pub(super) fn read(body: Body) -> (JobOutput, Result<(), Error>) {
    let announced = body.content_length();
    let mut start = Vec::new();
    // One byte more than the limit shows that the body is longer.
    let result = body.into_reader().take(BODY_LIMIT as u64 + 1).read_to_end(&mut start);
    let read = start.len() as u64;
    let truncated = start.len() > BODY_LIMIT;
    start.truncate(BODY_LIMIT);
    let bytes = if truncated { announced.unwrap_or_default().max(read) } else { read };
    let output = JobOutput { text: output::text(&start), bytes, truncated };
    (output, result.map(drop).map_err(Error::from))
}

/// Returns the failure that a status means, or `None` for success.
pub(super) fn judge<T>(response: &Response<T>) -> Option<Failure> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let retry_after = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            retry_after(response.headers())
        }
        _ => None,
    };
    Some(Failure::HttpStatus { status: status.as_u16(), retry_after })
}

/// Returns the value of a header; `None` if it is missing or has several different values.
pub(super) fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|first| values.all(|other| other == first))
}

/// Reads the header `Retry-After`, which has seconds or a date; `None` if it is missing or has
/// neither.
fn retry_after(headers: &HeaderMap) -> Option<RetryAfter> {
    let text = |name: HeaderName| only(headers, name)?.to_str().ok().map(str::trim);
    let wish = text(header::RETRY_AFTER)?;
    if let Some(wait) = RetryAfter::seconds(wish) {
        return Some(wait);
    }
    let until = date(wish)?;
    Some(match text(header::DATE).and_then(date) {
        // Compare with the server's own time, because its clock may differ from the one here.
        Some(now) => RetryAfter::In((until - now).to_std().unwrap_or_default()),
        None => RetryAfter::At(until),
    })
}

/// Reads a date in one of the three formats of RFC 9110, section 5.6.7. Like curl, it ignores the
/// name of the weekday, which may be wrong.
fn date(text: &str) -> Option<DateTime<Utc>> {
    let is_weekday = |word: &str| word.chars().all(|c| c.is_ascii_alphabetic() || c == ',');
    let date = match text.split_once(' ') {
        Some((day, rest)) if is_weekday(day) => rest,
        _ => text,
    };
    if let Ok(date) = DateTime::parse_from_rfc2822(date) {
        return Some(date.to_utc());
    }
    let obsolete = ["%d-%b-%y %H:%M:%S GMT", "%b %e %H:%M:%S %Y"];
    let read = |format: &&str| NaiveDateTime::parse_from_str(date, format).ok();
    obsolete.iter().find_map(read).map(|date| date.and_utc())
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
}
