//! A server that accepts every login by the protocol of PostgreSQL. The test chooses its answers,
//! valid or not.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Runs until the process ends.
pub struct FakeServer {
    port: u16,
}

impl FakeServer {
    /// Starts a server. `answer` gets each statement, and the stream for the whole answer.
    pub fn start(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with_login(
            |client| client.write_all(&[message(b'R', &[0; 4]), ready()].concat()),
            answer,
        )
    }

    /// Starts a server whose `login` answers the client's first message.
    pub fn start_with_login(
        login: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new((login, answer));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let answers = Arc::clone(&answers);
                thread::spawn(move || serve(client, &answers.0, &answers.1));
            }
        });
        Self { port }
    }

    pub fn url(&self) -> String {
        format!("postgresql://u@127.0.0.1:{}/d?connect_timeout=2", self.port)
    }
}

fn serve(
    mut client: TcpStream,
    login: &dyn Fn(&mut TcpStream) -> io::Result<()>,
    answer: &dyn Fn(&str, &mut TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    // The client may ask for TLS first: `N` means no.
    const TLS_REQUEST: [u8; 4] = [4, 210, 22, 47];
    while read_body(&mut client)? == TLS_REQUEST {
        client.write_all(b"N")?;
    }
    login(&mut client)?;
    let mut statement = String::new();
    loop {
        let mut kind = [0];
        client.read_exact(&mut kind)?;
        let body = read_body(&mut client)?;
        let text = || {
            body.split(|byte| *byte == 0).find(|text| !text.is_empty()).map(String::from_utf8_lossy)
        };
        match kind[0] {
            // A simple query.
            b'Q' => answer(&text().unwrap_or_default(), &mut client)?,
            // Parse, and later Sync, of an extended query.
            b'P' => statement = text().unwrap_or_default().into_owned(),
            b'S' => answer(&statement, &mut client)?,
            // Terminate.
            b'X' => return Ok(()),
            _ => {}
        }
    }
}

/// Reads a message without its kind: the length, and the bytes that follow.
fn read_body(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap().saturating_sub(4)];
    client.read_exact(&mut body)?;
    Ok(body)
}

/// Returns a message of the server.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&head(kind, body.len()), body].concat()
}

/// Returns the head of a message with a body of this many bytes.
pub fn head(kind: u8, bytes: usize) -> Vec<u8> {
    [&[kind][..], &u32::try_from(bytes + 4).unwrap().to_be_bytes()].concat()
}

/// Returns the message at the end of an answer.
pub fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// Returns the message that describes the columns of an answer; all columns are text.
pub fn columns(names: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for name in names {
        body.extend(name.as_bytes());
        // No table; type 25 (text) of any length.
        body.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0]);
    }
    message(b'T', &body)
}

/// Returns the message with a row of an answer.
pub fn row(values: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    message(b'D', &body)
}

/// Returns the messages at the end of a successful statement and of its answer.
pub fn complete() -> Vec<u8> {
    [message(b'C', b"SELECT 1\0"), ready()].concat()
}
