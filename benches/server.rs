//! An HTTP server that answers immediately and counts its calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Instant, SystemTime};

pub struct Server {
    pub url: String,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    calls: AtomicUsize,
    /// The server records the time of every `step`th call.
    step: usize,
    marks: Mutex<Vec<Instant>>,
    waits: Mutex<Vec<f64>>,
}

impl Server {
    /// Starts a server that records the time of every `step`th call.
    pub fn start(step: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/job", listener.local_addr().unwrap());
        let progress =
            Arc::new(Progress { calls: AtomicUsize::new(0), step, ..Progress::default() });
        let shared = Arc::clone(&progress);
        // Both threads end with the process.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let progress = Arc::clone(&shared);
                thread::spawn(move || serve(connection.unwrap(), &progress));
            }
        });
        Self { url, progress }
    }

    pub fn calls(&self) -> usize {
        self.progress.calls.load(Ordering::Relaxed)
    }

    /// Returns the time of every `step`th call.
    pub fn marks(&self) -> Vec<Instant> {
        self.progress.marks.lock().unwrap().clone()
    }

    /// Returns how long before its call each run was due, in milliseconds.
    pub fn waits(&self) -> Vec<f64> {
        self.progress.waits.lock().unwrap().clone()
    }
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

fn serve(connection: TcpStream, progress: &Progress) {
    connection.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut connection = connection;
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            // The first line of the request may have the time at which the run was due.
            if let Some((_, due)) = line.split_once("?due=") {
                let due: u64 = due.split(' ').next().unwrap().parse().unwrap();
                progress.waits.lock().unwrap().push((now() - due) as f64 / 1e3);
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let calls = progress.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if calls.is_multiple_of(progress.step) {
            progress.marks.lock().unwrap().push(Instant::now());
        }
        if connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}
