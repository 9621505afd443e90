//! Connects, and prints the server's version:
//!
//!     cargo run --example connect -- postgres://ana@localhost/shop
//!
//! Without an address, the `PG*` variables and libpq's defaults decide.

use std::env;
use std::time::Duration;

use postgres_connect::{Target, Wait};

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = match env::args().nth(1) {
        Some(address) => Target::from_address(&address)?,
        None => Target::from_env()?,
    };
    let mut client = target.connect()?;
    let mut wait = Wait::new(Duration::from_secs(5));
    let row = client.request(&mut wait, async |client| {
        client.query_typed_one("SHOW server_version", &[]).await
    })?;
    let version: &str = row.try_get(0)?;
    println!("{target} runs PostgreSQL {version}");
    Ok(())
}
