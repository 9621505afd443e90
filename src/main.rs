//! The program `jobctl`; see lib.rs.

use std::process::ExitCode;

fn main() -> ExitCode {
    jobctl::main()
}
