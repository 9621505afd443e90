//! The only HTTP speaker: makes one call, follows its redirects, and says what it came to. Knows
//! neither PostgreSQL nor leases, attempts or retries.

mod answer;
mod dial;
mod policy;
mod redirect;
mod request;
mod socket;

use std::io::{self, ErrorKind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ureq::config::AutoHeaderValue;
use ureq::http::{self, Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

pub(crate) use policy::HostPolicy;

use self::dial::{Dialer, Later};
use self::redirect::Security;
use self::request::Request;
use self::socket::{Connection, Sent};
use super::Stop;
use crate::action::{Http, TIMEOUT_RANGE};
use crate::model::{Ended, Failure, Identity, Outcome};

/// For a call when neither it nor its run says anything.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer's status line and headers, and of one header that is sent.
const HEADER_LIMIT: usize = 64 * 1024;
/// Shorter than what servers commonly grant an idle connection (5 s and more), so that a request
/// seldom meets a connection that is being closed.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
/// As many as threads are likely to call one host at a time.
const IDLE_CONNECTIONS_PER_HOST: usize = 64;
const IDLE_CONNECTIONS: usize = 128;

/// Makes calls, from any number of threads, over connections they share.
#[derive(Debug)]
pub(super) struct Caller {
    policy: Arc<HostPolicy>,
    // Each is made at its first call: a tick without one pays nothing, and only https pays for the
    // certificates.
    plain: OnceLock<Agent>,
    secure: OnceLock<Result<Agent, String>>,
}

impl Caller {
    pub(super) fn new(policy: HostPolicy) -> Self {
        Self { policy: Arc::new(policy), plain: OnceLock::new(), secure: OnceLock::new() }
    }

    /// Makes the call on this thread. It ends at `timeout` (name lookup, connection, redirects and
    /// body included; the call's own, else 30 s, where `None`), or soon after it is stopped.
    pub(super) fn call(&self, call: &Http, identity: &Identity, timeout: Option<Duration>, stop: &Stop) -> Ended {
        let total = timeout.or(call.timeout).unwrap_or(DEFAULT_TIMEOUT).min(TIMEOUT_RANGE.1);
        let deadline = Instant::now() + total;
        let request = match Request::new(call, identity, |name| std::env::var(name).ok()) {
            Ok(request) => request,
            Err(failure) => return Ended::unstarted(failure),
        };
        let ended = socket::within(deadline, stop, || self.follow(request, call.redirects, total));
        match (&ended.outcome, stop.asked()) {
            // A call that is stopped breaks in one way or another; an answer is kept.
            (Outcome::Failed(failure), Some(why)) if !matches!(failure, Failure::HttpStatus { .. }) => {
                Ended { outcome: Outcome::Stopped(why), ..ended }
            }
            _ => ended,
        }
    }

    fn follow(&self, mut request: Request, mut redirects: u32, total: Duration) -> Ended {
        let mut has_begun = false;
        loop {
            let response = match self.send(&request, total) {
                Ok(response) => response,
                Err(Failure::Exhausted(why)) if has_begun => return Ended::unstarted(Failure::Transport(why)),
                Err(failure) => return Ended { note: Some(request.target.note()), ..Ended::unstarted(failure) },
            };
            has_begun = true;
            let next = request.redirected(response.status(), response.headers().get(header::LOCATION));
            match next.filter(|_| redirects > 0) {
                Some(next) => request = next,
                None => return ended(response, &request, total),
            }
            redirects -= 1;
        }
    }

    fn send(&self, request: &Request, total: Duration) -> Result<Response<Body>, Failure> {
        let agent = self.agent(request.target.security)?;
        let answer = match ask(agent, request, IDLE_LIMIT) {
            // A server may close a kept connection while the next request is on its way. There was
            // no answer, and the idempotency key makes a second request safe (RFC 9110, section
            // 9.2.2).
            Err(Error::Io(error)) if socket::connection() == Connection::Kept && is_closed(&error) => {
                ask(agent, request, Duration::ZERO)
            }
            answer => answer,
        };
        answer.map_err(|error| answer::failure(error, socket::sent(), total))
    }

    fn agent(&self, security: Security) -> Result<&Agent, Failure> {
        match security {
            Security::Plain => Ok(self.plain.get_or_init(|| agent(&self.policy, Vec::new()))),
            Security::Tls => {
                let made = self.secure.get_or_init(|| Ok(agent(&self.policy, roots()?)));
                made.as_ref().map_err(|why| Failure::Tls(why.clone()))
            }
        }
    }
}

/// Sends a request. Uses a kept connection if it has been idle for less than `idle`.
fn ask(agent: &Agent, request: &Request, idle: Duration) -> Result<Response<Body>, Error> {
    socket::begin(Connection::Kept);
    let mut head = http::Request::builder().method(&request.method).uri(&request.target.uri);
    if let Some(headers) = head.headers_mut() {
        *headers = request.headers();
    }
    match request.body {
        Some(body) => agent.run(agent.configure_request(head.body(body.as_bytes())?).max_idle_age(idle).build()),
        None => agent.run(agent.configure_request(head.body(())?).max_idle_age(idle).build()),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// The end of a call that was answered.
fn ended(response: Response<Body>, request: &Request, total: Duration) -> Ended {
    let status = response.status().as_u16();
    let judged = answer::judge(&response);
    let (output, read) = answer::read(response.into_body());
    let (outcome, note) = match (judged, read) {
        // A status that says no is answer enough, even if the body breaks off.
        (Some(failure), _) => (Outcome::Failed(failure), None),
        (None, Ok(())) => (Outcome::Succeeded, None),
        (None, Err(error)) => {
            (Outcome::Failed(answer::failure(error, Sent::Something, total)), Some(request.target.note()))
        }
    };
    Ended { outcome, exit_code: None, signal: None, http_status: Some(status), output, note }
}

fn agent(policy: &Arc<HostPolicy>, roots: Vec<Certificate<'static>>) -> Agent {
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::from(roots.into_iter()))
        .build();
    // No timeout of ureq's own: what bounds a call is set per call, and looked at by its socket.
    let config = Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("jobctl/", env!("CARGO_PKG_VERSION")))
        .accept_encoding(AutoHeaderValue::None)
        .max_response_header_size(HEADER_LIMIT)
        .input_buffer_size(socket::BUFFER)
        .output_buffer_size(socket::BUFFER)
        .max_idle_age(IDLE_LIMIT)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS_PER_HOST)
        .build();
    Agent::with_parts(config, Dialer::new(Arc::clone(policy)), Later)
}

fn roots() -> Result<Vec<Certificate<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err("this host has no root certificates to trust; install them or set SSL_CERT_FILE".to_owned());
    }
    Ok(found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
}
