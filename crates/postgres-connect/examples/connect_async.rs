//! Connects in asynchronous code, with a time limit for the whole attempt, and prints the server's
//! version:
//!
//!     cargo run --example connect_async -- postgres://ana@localhost/shop

use std::env;
use std::time::Duration;

use postgres_connect::{ErrorKind, Target};
use tokio::time::timeout;

#[allow(clippy::print_stdout)]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let target = match env::args().nth(1) {
        Some(address) => Target::from_address(&address)?,
        None => Target::from_env()?,
    };
    let client = match timeout(Duration::from_secs(30), target.connect_async()).await? {
        Err(error) if error.kind() == ErrorKind::UnknownDatabase => {
            println!("There is no such database yet: {target}");
            return Ok(());
        }
        client => client?,
    };
    let row = client.query_typed_one("SHOW server_version", &[]).await?;
    let version: &str = row.try_get(0)?;
    println!("{target} runs PostgreSQL {version}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}
