//! Prints a schedule in words and its next five times:
//!
//!     cargo run --example next -- '30 2 * * *' Europe/Berlin 2026-03-28T12:00:00Z

use chrono::{DateTime, Utc};
use cron_zone::Schedule;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [expression, zone, from] = arguments.as_slice() else {
        return Err("give an expression, a time zone and a time in RFC 3339".into());
    };
    let from: DateTime<Utc> = from.parse()?;
    let schedule = Schedule::parse(expression, zone)?;
    println!("{}", schedule.words());
    for fire in schedule.fires(from).take(5) {
        println!("{}  {}", fire.local, fire.mark.unwrap_or_default());
    }
    Ok(())
}
