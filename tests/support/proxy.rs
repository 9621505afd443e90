//! A proxy between the binary and its database that fails on request. Knows nothing of jobctl.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use postgres::config::Host;

use super::TestDb;

/// Forwards to a test's database until it is dropped.
pub struct Proxy {
    port: u16,
    database: String,
    state: Arc<State>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Mode {
    Forward,
    /// All bytes are held back, also those of new connections; connections stay open.
    Freeze,
    /// All connections are closed, new ones at once.
    Cut,
}

struct State {
    server: postgres::Config,
    mode: Mutex<Mode>,
    changed: Condvar,
    /// The sockets to the client and to the server of every connection.
    ends: Mutex<Vec<Socket>>,
    /// The delay of each chunk, in each direction.
    delay: Mutex<Duration>,
    /// After a client has sent these texts in this order, the next answer is lost.
    lost_after: Mutex<Vec<&'static str>>,
    /// Whether all connections are closed from that loss on.
    cuts_at_loss: AtomicBool,
    /// After a client has sent this text, the mode becomes `Freeze`.
    frozen_after: Mutex<Option<&'static str>>,
    connections: AtomicUsize,
    closing: AtomicBool,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn duplicate(&self) -> Self {
        match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone().unwrap()),
            Self::Unix(socket) => Self::Unix(socket.try_clone().unwrap()),
        }
    }

    fn close(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.write_all(bytes),
            Self::Unix(socket) => socket.write_all(bytes),
        }
    }
}

impl Proxy {
    pub fn to(db: &TestDb) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server: db.url().parse().unwrap(),
            mode: Mutex::new(Mode::Forward),
            changed: Condvar::new(),
            ends: Mutex::default(),
            delay: Mutex::default(),
            lost_after: Mutex::default(),
            cuts_at_loss: AtomicBool::new(false),
            frozen_after: Mutex::default(),
            connections: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || shared.accept(&listener));
        Self { port, database: db.name().to_owned(), state }
    }

    /// Returns the database's address through this proxy, with a short connect timeout.
    pub fn url(&self) -> String {
        let user = self.state.server.get_user().unwrap_or("postgres");
        let password =
            self.state.server.get_password().map(String::from_utf8_lossy).unwrap_or_default();
        format!(
            "postgresql://{user}:{password}@127.0.0.1:{}/{}?connect_timeout=2",
            self.port, self.database
        )
    }

    /// Holds back all bytes from now on; connections stay open.
    pub fn freeze(&self) {
        self.state.set(Mode::Freeze);
    }

    /// Closes all connections, and new ones at once.
    pub fn cut(&self) {
        self.state.set(Mode::Cut);
        self.state.ends.lock().unwrap().drain(..).for_each(|end| end.close());
    }

    /// Forwards again; the bytes that were held back arrive now.
    pub fn restore(&self) {
        self.state.set(Mode::Forward);
    }

    /// Delays all bytes by this time, from the client to the server and back.
    pub fn delay(&self, each_way: Duration) {
        *self.state.delay.lock().unwrap() = each_way;
    }

    /// After a client has sent these texts in this order, the server gets them, but its answer is
    /// lost with the connection. Happens once.
    pub fn lose_answer_to(&self, texts: &[&'static str]) {
        *self.state.lost_after.lock().unwrap() = texts.to_vec();
    }

    /// Does the same, and from then on closes all connections at once, as `cut` does. If a test
    /// called `cut` after the loss, the client could connect in between.
    pub fn lose_answer_and_cut(&self, texts: &[&'static str]) {
        self.state.cuts_at_loss.store(true, Ordering::Relaxed);
        self.lose_answer_to(texts);
    }

    /// After a client has sent this text, the server gets it, but no other byte passes. Happens
    /// once.
    pub fn freeze_after(&self, text: &'static str) {
        *self.state.frozen_after.lock().unwrap() = Some(text);
    }

    pub fn is_frozen(&self) -> bool {
        *self.state.mode.lock().unwrap() == Mode::Freeze
    }

    /// Returns whether the requested loss has happened.
    pub fn has_lost(&self) -> bool {
        self.state.lost_after.lock().unwrap().is_empty()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::Relaxed);
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            self.connections.fetch_add(1, Ordering::Relaxed);
            let Ok(client) = client else { continue };
            let _ = client.set_nodelay(true);
            if *self.mode.lock().unwrap() != Mode::Cut {
                let (state, client) = (Arc::clone(&self), Socket::Tcp(client));
                thread::spawn(move || state.join(client));
            }
        }
    }

    /// Connects a client to the server, and copies bytes in both directions.
    fn join(self: Arc<Self>, client: Socket) {
        let port = self.server.get_ports().first().copied().unwrap_or(5432);
        let server = match &self.server.get_hosts()[0] {
            Host::Unix(folder) => {
                UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).map(Socket::Unix)
            }
            Host::Tcp(name) => TcpStream::connect((name.as_str(), port)).map(Socket::Tcp),
        };
        let Ok(server) = server else { return client.close() };
        self.ends.lock().unwrap().extend([client.duplicate(), server.duplicate()]);
        // Set when the next answer must be lost.
        let is_lost = Arc::new(AtomicBool::new(false));
        let (state, from, to, loses) =
            (Arc::clone(&self), server.duplicate(), client.duplicate(), Arc::clone(&is_lost));
        thread::spawn(move || state.pump(from, to, |_| !loses.load(Ordering::Relaxed)));
        // What the client has sent since the last text that was found.
        let mut seen = Vec::new();
        self.pump(client, server, |chunk| {
            let mut frozen_after = self.frozen_after.lock().unwrap();
            if frozen_after.is_some_and(|text| find(chunk, text.as_bytes()).is_some()) {
                *frozen_after = None;
                self.set(Mode::Freeze);
            }
            let mut lost_after = self.lost_after.lock().unwrap();
            seen.extend_from_slice(chunk);
            while let Some(at) = lost_after.first().and_then(|text| find(&seen, text.as_bytes())) {
                seen.drain(..at + lost_after[0].len());
                lost_after.remove(0);
                if lost_after.is_empty() {
                    is_lost.store(true, Ordering::Relaxed);
                    if self.cuts_at_loss.load(Ordering::Relaxed) {
                        self.set(Mode::Cut);
                    }
                }
            }
            if lost_after.is_empty() {
                seen.clear();
            }
            true
        });
    }

    /// Copies bytes one way while `passes` returns true, then closes both ends.
    fn pump(&self, mut from: Socket, mut to: Socket, mut passes: impl FnMut(&[u8]) -> bool) {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut chunk) {
            let delay = *self.delay.lock().unwrap();
            thread::sleep(delay);
            let mode = self
                .changed
                .wait_while(self.mode.lock().unwrap(), |mode| *mode == Mode::Freeze)
                .unwrap();
            let cut = *mode == Mode::Cut;
            drop(mode);
            if read == 0 || cut || !passes(&chunk[..read]) || to.write_all(&chunk[..read]).is_err()
            {
                break;
            }
        }
        from.close();
        to.close();
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
