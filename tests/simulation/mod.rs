//! The simulation of ticks, hosts and a database.

mod database;
mod differential;
#[path = "../support/left_out.rs"]
mod left_out;
