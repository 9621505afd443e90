//! The only HTTP client: makes one call, follows its redirects, and returns the result.

mod answer;
mod dialer;
mod failure;
mod normalize;
mod policy;
mod request;

use std::time::{Duration, Instant};

use ureq::config::AutoHeaderValue;
use ureq::http::{self, Response, StatusCode, header};
use ureq::{Agent, AsSendBody, Body, Error};

pub(crate) use policy::HostPolicy;

use self::dialer::{Dialer, NoResolver};
use self::failure::SentPart;
use self::request::{HttpRequest, Unsendable};
use super::Stop;
use crate::job::action::{HTTP_TIMEOUT, Http, Method, TIMEOUT_RANGE};
use crate::job::attempt::{AttemptIdentity, AttemptResult, Outcome};
use crate::job::failure::{Failure, is_redirect};

/// The maximum of bytes of an answer's status line and headers, and of one sent header.
const HEADER_LIMIT: usize = 64 * 1024;
/// How long an idle connection can serve the next request. Servers commonly keep one for 5 s or
/// more. With a shorter limit, a request rarely meets a connection that is being closed.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
/// The maximum of idle connections to all hosts.
const IDLE_CONNECTIONS: usize = 128;
/// The maximum of idle connections to one host: about as many threads call it at the same time.
const IDLE_CONNECTIONS_PER_HOST: usize = 64;

/// Makes calls from any number of threads over shared connections.
#[derive(Debug)]
pub(super) struct Caller {
    agent: Agent,
}

impl Caller {
    /// Returns a client that calls only the hosts that the policy allows.
    pub(super) fn new(policy: HostPolicy) -> Self {
        Self { agent: agent(policy) }
    }

    /// Makes a call on this thread, and returns the result. The call ends soon after it is stopped,
    /// or when its time is up: `timeout`, else that of the call, else 30 s. This time includes the
    /// name lookup, redirects and the body.
    pub(super) fn call(
        &self,
        call: &Http,
        identity: &AttemptIdentity,
        timeout: Option<Duration>,
        stop: &Stop,
    ) -> AttemptResult {
        let total = timeout.or(call.timeout).unwrap_or(HTTP_TIMEOUT).min(TIMEOUT_RANGE.1);
        let deadline = Instant::now() + total;
        let request = match HttpRequest::new(call, identity, |name| std::env::var(name).ok()) {
            Ok(request) => request,
            Err(Unsendable { failure, note }) => {
                return AttemptResult { note, ..AttemptResult::unstarted(failure) };
            }
        };
        let result = dialer::within(deadline, stop, || self.follow(request, call.redirects, total));
        match (&result.outcome, stop.asked()) {
            // The server has answered, and that counts.
            (Outcome::Failed(Failure::HttpStatus { .. }), _) => result,
            // A stop can make a call fail with any other error.
            (Outcome::Failed(_), Some(why)) => {
                AttemptResult { outcome: Outcome::Stopped(why), ..result }
            }
            _ => result,
        }
    }

    /// Sends a request, and then the requests of at most `redirects` redirects. Returns the result
    /// of the last one. `total` is the timeout of the call.
    fn follow(&self, mut request: HttpRequest, redirects: u32, total: Duration) -> AttemptResult {
        let (mut redirects_left, first_method) = (redirects, request.method);
        loop {
            let response = match self.send(&request, total) {
                Ok(response) => response,
                // `Exhausted` would mean that nothing was sent. But the request before the redirect
                // was sent, so the attempt must count.
                Err(Unsendable { failure: Failure::Exhausted(why), .. })
                    if redirects_left < redirects =>
                {
                    return AttemptResult::unstarted(Failure::Transport(why));
                }
                Err(Unsendable { failure, note }) => {
                    return AttemptResult { note, ..AttemptResult::unstarted(failure) };
                }
            };
            // RFC 9110, section 10.1.1, asks for a second request without the expectation.
            if response.status() == StatusCode::EXPECTATION_FAILED
                && request.headers.remove(header::EXPECT).is_some()
            {
                continue;
            }
            let unfollowed = match request.redirected(response.status(), response.headers()) {
                Ok(next) if redirects_left > 0 => {
                    (request, redirects_left) = (next, redirects_left - 1);
                    continue;
                }
                Ok(_) => format!("`redirects` is {redirects}"),
                Err(why) => why.to_owned(),
            };
            return result(response, &request, (first_method, unfollowed), total);
        }
    }

    /// Sends one request, and returns the answer, of which the body is not read yet. Sends the
    /// request once more if the server closed an old connection at the same moment.
    fn send(&self, request: &HttpRequest, total: Duration) -> Result<Response<Body>, Unsendable> {
        let answer = match send_over(&self.agent, request, IDLE_LIMIT) {
            // A server may close an old connection while the next request is on its way. But it may
            // also have done what the request asks for. So send the request again only if that does
            // no harm (RFC 9110, section 9.2.2).
            Err(Error::Io(error))
                if dialer::is_connection_reused()
                    && failure::is_closed(&error)
                    && (request.is_idempotent() || dialer::sent_part() == SentPart::Nothing) =>
            {
                send_over(&self.agent, request, Duration::ZERO)
            }
            answer => answer,
        };
        answer.map_err(|error| {
            let mut note = request.endpoint.note();
            if let Some(names) = failure::certificate_names(&error) {
                note += &format!("; its certificate is for {names}");
            }
            let failure = failure::of_error(error, dialer::sent_part(), total);
            Unsendable { failure, note: Some(note) }
        })
    }
}

/// Sends a request: over an open connection if one has been idle for less than `idle`, else over a
/// new one.
fn send_over(
    agent: &Agent,
    request: &HttpRequest,
    idle: Duration,
) -> Result<Response<Body>, Error> {
    dialer::begin_request();
    let mut head =
        http::Request::builder().method(request.method.as_str()).uri(&request.endpoint.uri);
    if let Some(headers) = head.headers_mut() {
        headers.clone_from(&request.headers);
    }
    // `()` is ureq's request without a body.
    let (mut text, mut nothing) = (request.body, ());
    let body = match &mut text {
        Some(text) => text.as_body(),
        None => nothing.as_body(),
    };
    agent.run(agent.configure_request(head.body(body)?).max_idle_age(idle).build())
}

/// Returns the result of a call that was answered.
///
/// - `request`: the last request, whose answer is `response`.
/// - `first_method`: the method of the call before redirects.
/// - `unfollowed`: why the last answer is not followed, if it is a redirect.
/// - `total`: the timeout of the call.
fn result(
    response: Response<Body>,
    request: &HttpRequest,
    (first_method, unfollowed): (Method, String),
    total: Duration,
) -> AttemptResult {
    let status = response.status().as_u16();
    let judged = answer::judge(&response);
    let (output, read) = answer::read(response.into_body());
    let (outcome, note) = if let Some(failure) = judged {
        // An error status counts, even if the connection broke during the body.
        let note = if is_redirect(status) { Some(unfollowed) } else { None };
        (Outcome::Failed(failure), note)
    } else if let Err(error) = read {
        let failure = failure::of_error(error, SentPart::Something, total);
        (Outcome::Failed(failure), Some(request.endpoint.note()))
    } else if request.method != first_method {
        (Outcome::Succeeded, Some(format!("a redirect changed {first_method} to GET")))
    } else {
        (Outcome::Succeeded, None)
    };
    let (exit_code, signal, http_status) = (None, None, Some(status));
    AttemptResult { outcome, exit_code, signal, http_status, output, note }
}

/// Returns ureq's client without its own redirects and timeouts.
fn agent(policy: HostPolicy) -> Agent {
    // Set no timeout in ureq: each call has its own, and the socket checks it.
    let config = Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("jobctl/", env!("CARGO_PKG_VERSION")))
        .accept_encoding(AutoHeaderValue::None)
        .max_response_header_size(HEADER_LIMIT)
        .input_buffer_size(dialer::BUFFER)
        .output_buffer_size(dialer::BUFFER)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS_PER_HOST)
        .build();
    Agent::with_parts(config, Dialer::new(policy), NoResolver)
}
