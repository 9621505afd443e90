//! The web server of the demo. `/busy/N` answers 503 to the first N calls, then 200. `/gone`
//! answers 404. It prints its address, and exits when its stdin closes.
//!
//! Like a good API, it counts calls by their `Idempotency-Key`: a repeated call gets an answer
//! without a second effect.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "http://{}", listener.local_addr()?)?;
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    let mut calls = HashMap::new();
    for connection in listener.incoming() {
        // A client that hangs up must not stop the server.
        let _ = connection.and_then(|connection| serve(connection, &mut calls));
    }
    Ok(())
}

fn serve(mut connection: TcpStream, calls: &mut HashMap<String, u32>) -> io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { continue };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => value.clone_into(&mut key),
            "content-length" => length = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;

    let call = calls.entry(key.clone()).or_default();
    *call += 1;
    let busy = path.strip_prefix("/busy/").and_then(|times| times.parse::<u32>().ok());
    let (status, body) = match busy {
        Some(times) if *call <= times => {
            ("503 Service Unavailable", format!("too busy for call {call}\n"))
        }
        Some(_) => ("200 OK", format!("done at call {call} with key {key}\n")),
        None => ("404 Not Found", "nothing here\n".to_owned()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
