//! A web server that misbehaves on request: the path of a call names the behaviour, see `answer`.
//! The server keeps all requests for the test. It knows nothing of jobctl.
#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests")]

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The pause between two bytes of an answer that arrives byte by byte.
const DRIP: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) path: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct HttpServer {
    address: SocketAddr,
    scheme: &'static str,
    state: Arc<State>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    /// The number of failures of `/fail/N/ID`, by ID.
    failures: Mutex<HashMap<String, u32>>,
    closing: AtomicBool,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl HttpServer {
    pub(crate) fn start() -> Self {
        Self::listen("http", |socket| Ok(Box::new(socket)))
    }

    /// Starts a TLS server with this certificate, valid or not.
    pub(crate) fn tls(chain_pem: &str, key_pem: &str) -> Self {
        let chain =
            CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
        let config = Arc::new(config);
        Self::listen("https", move |socket| {
            let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            Ok(Box::new(StreamOwned::new(session, socket)))
        })
    }

    fn listen(
        scheme: &'static str,
        wrap: impl Fn(TcpStream) -> io::Result<Box<dyn Stream>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let (shared, wrap) = (Arc::clone(&state), Arc::new(wrap));
        let accept = move || {
            for socket in listener.incoming().flatten() {
                if shared.closing.load(Ordering::Acquire) {
                    return;
                }
                shared.connections.fetch_add(1, Ordering::AcqRel);
                let (state, wrap) = (Arc::clone(&shared), Arc::clone(&wrap));
                thread::spawn(move || {
                    let plain = socket.try_clone()?;
                    plain.set_nodelay(true)?;
                    state.serve(BufReader::new(wrap(socket)?), &plain)
                });
            }
        };
        Self { address, scheme, state, listener: Some(thread::spawn(accept)) }
    }

    /// Returns the URL of `path`, which starts with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// Returns the URL of a path that sends these bytes: `/raw`, `/early` or `/interim`.
    pub(crate) fn url_with(&self, path: &str, bytes: impl AsRef<[u8]>) -> String {
        let bytes = percent_encode(bytes.as_ref(), NON_ALPHANUMERIC);
        self.url(&format!("{path}?{bytes}"))
    }

    /// Returns every complete request, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns the number of accepted connections, with or without a request.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Acquire)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::Release);
        // Signals the listener; the connections' threads poll the flag.
        let _ = TcpStream::connect(self.address);
        let _ = self.listener.take().map(JoinHandle::join);
    }
}

/// An address where every attempt to connect waits: its queue is full, and no process accepts.
pub(crate) struct BlackHole {
    listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl BlackHole {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = std::iter::repeat_with(|| {
            TcpStream::connect_timeout(&address, Duration::from_millis(200))
        });
        let queue = attempts.map_while(Result::ok).collect();
        Self { listener, _queue: queue }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.listener.local_addr().unwrap())
    }
}

impl State {
    fn serve(&self, mut stream: BufReader<Box<dyn Stream>>, plain: &TcpStream) -> io::Result<()> {
        for earlier in 0.. {
            if let Some(request) = peek_reset(plain, &stream)? {
                self.requests.lock().unwrap().push(request);
                // Unread input would turn the close into a reset.
                return Ok(());
            }
            let Some(mut request) = read_head(&mut stream)? else { return Ok(()) };
            let expects = request.headers.contains_key("expect");
            let begins = |paths: &[&str]| paths.iter().any(|it| request.path.starts_with(it));
            let is_early = expects && begins(&["/early?", "/early-kept?"]);
            if is_early || expects && begins(&["/interim?"]) {
                write(stream.get_mut(), &raw(&request))?;
            }
            if !is_early {
                read_body(&mut stream, &mut request)?;
            }
            self.requests.lock().unwrap().push(request.clone());
            if earlier > 0 && request.path.starts_with("/close-kept") {
                return Ok(());
            }
            if request.path == "/cut-body" {
                write(stream.get_mut(), b"HTTP/1.1 200 OK\r\n\r\nabc")?;
                // A reset, which also drops what the peer has not read yet.
                thread::sleep(5 * DRIP);
                rustix::net::sockopt::set_socket_linger(plain, Some(Duration::ZERO))?;
                return Ok(());
            }
            if self.answer(&request, stream.get_mut())?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// `None` ends the connection.
    fn answer(&self, request: &Request, out: &mut dyn Stream) -> io::Result<Option<()>> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let words: Vec<&str> = path.split('/').skip(1).collect();
        match words.as_slice() {
            // Each pair of the query becomes a header.
            ["status", status] => reply(out, request, status, &pairs(query), b""),
            // Fails N times per ID.
            ["fail", times, id] => {
                let mut failures = self.failures.lock().unwrap();
                let failed = failures.entry((*id).to_owned()).or_default();
                *failed += 1;
                let status = if *failed <= times.parse().unwrap() { "500" } else { "200" };
                reply(out, request, status, &[], b"")
            }
            // `?to=URL&status=302`
            ["redirect"] => {
                let pairs: BTreeMap<String, String> = pairs(query).into_iter().collect();
                let status = pairs.get("status").map_or("302", String::as_str);
                reply(out, request, status, &[("location".to_owned(), pairs["to"].clone())], b"")
            }
            // The addresses of documentation.
            ["jobs", ..] => reply(out, request, "200", &[], b"ok"),
            ["echo"] => reply(out, request, "200", &[], &request.body),
            // Sends the query as it is, and closes the connection.
            ["raw"] => write(out, &raw(request)).map(|()| None),
            ["raw-kept"] => write(out, &raw(request)).map(Some),
            // Sends the query to a request with `Expect`, instead of reading its body or before.
            // The connection stays open after `early-kept`.
            ["early"] if request.headers.contains_key("expect") => Ok(None),
            ["early-kept"] if request.headers.contains_key("expect") => Ok(Some(())),
            ["early" | "early-kept" | "interim"] => reply(out, request, "200", &[], &request.body),
            ["bytes", number] => {
                reply(out, request, "200", &[], &vec![b'x'; number.parse().unwrap()])
            }
            ["binary"] => reply(out, request, "200", &[], &(0..=255).collect::<Vec<u8>>()),
            ["gzip"] => {
                // Claims to be compressed but is not: a client that inflates it fails.
                let encoding = ("content-encoding".to_owned(), "gzip".to_owned());
                reply(out, request, "200", &[encoding], b"\x1f\x8b\x08\0\0\0\0\0\0\x03not inflated")
            }
            ["big-header"] => {
                reply(out, request, "200", &[("x-big".to_owned(), "b".repeat(200_000))], b"")
            }
            ["slow", milliseconds] => {
                thread::sleep(Duration::from_millis(milliseconds.parse().unwrap()));
                reply(out, request, "200", &[], b"slow")
            }
            ["silent"] => self.endlessly(DRIP, || Ok(())),
            ["drip-header"] => {
                out.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ")?;
                self.endlessly(DRIP, || write(out, b"d"))
            }
            // `/drip-body/404` drips with that status.
            ["drip-body", status @ ..] => {
                let status = status.first().unwrap_or(&"200");
                write(
                    out,
                    format!("HTTP/1.1 {status} Drip\r\nContent-Length: 1000000\r\n\r\n").as_bytes(),
                )?;
                self.endlessly(DRIP, || write(out, b"d"))
            }
            ["endless"] => {
                write(out, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                self.endlessly(Duration::ZERO, || write(out, &[b'e'; 16 * 1024]))
            }
            ["truncated"] => {
                write(out, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc").map(|()| None)
            }
            ["folded"] => {
                write(out, b"HTTP/1.1 503 Busy\r\nRetry-After:\r\n")?;
                write(out, b" 7200\r\nContent-Length: 2\r\nX-Odd: a\r\n\tb\r\n\r\nno")
                    .map(|()| None)
            }
            ["garbage"] => write(out, b"220 smtp.example ESMTP\r\n\r\n").map(|()| None),
            ["close"] => Ok(None),
            // `/close-kept/TEXT` answers only the first request of a connection, with that text.
            ["close-kept", text @ ..] => reply(out, request, "200", &[], text.concat().as_bytes()),
            ["headers", number] => {
                let headers: Vec<_> = (0..number.parse().unwrap())
                    .map(|n| (format!("x-{n}"), "1".to_owned()))
                    .collect();
                reply(out, request, "200", &headers, b"")
            }
            _ => reply(out, request, "404", &[], b"no such behaviour"),
        }
    }

    /// Repeats `step` until a write fails because the peer has gone, or until the test is over.
    fn endlessly(
        &self,
        pause: Duration,
        mut step: impl FnMut() -> io::Result<()>,
    ) -> io::Result<Option<()>> {
        while !self.closing.load(Ordering::Acquire) {
            step()?;
            thread::sleep(pause);
        }
        Ok(None)
    }
}

fn write(out: &mut dyn Stream, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

fn reply(
    out: &mut dyn Stream,
    request: &Request,
    status: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<Option<()>> {
    let mut answer = format!("HTTP/1.1 {status} As asked\r\n");
    if status != "204" && status != "304" {
        answer += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        answer += &format!("{name}: {value}\r\n");
    }
    let mut answer = (answer + "\r\n").into_bytes();
    if request.method != "HEAD" {
        answer.extend_from_slice(body);
    }
    write(out, &answer).map(Some)
}

/// Returns the bytes that a request asks for in its query.
fn raw(request: &Request) -> Vec<u8> {
    percent_decode_str(request.path.split_once('?').unwrap().1).collect()
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), decode(value)))
        .collect()
}

/// Returns a request for `/reset` without reading it from the socket; `None` for any other request.
fn peek_reset(
    plain: &TcpStream,
    stream: &BufReader<Box<dyn Stream>>,
) -> io::Result<Option<Request>> {
    let mut seen = [0; 4096];
    while stream.buffer().is_empty() {
        let length = plain.peek(&mut seen)?;
        let head = seen[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
        if length == 0 || !head.windows(7).any(|word| word == b" /reset") {
            break;
        }
        // The rest of the request may still arrive.
        match read_request(&mut &seen[..length]) {
            Ok(Some(request)) => return Ok(Some(request)),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(None)
}

fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(mut request) = read_head(stream)? else { return Ok(None) };
    read_body(stream, &mut request)?;
    Ok(Some(request))
}

/// `None` where the peer has closed the connection.
fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Some(Request { method, path, headers, body: Vec::new() }))
}

fn read_body(stream: &mut impl BufRead, request: &mut Request) -> io::Result<()> {
    let length = request.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    request.body.resize(length, 0);
    stream.read_exact(&mut request.body)
}
