//! What the tests share: a server for the whole run, a database for each test, the binary.

mod db;
pub mod fake_server;
mod gate;
pub mod http_server;
mod jobctl;
mod left_out;
pub mod packages;
mod preload;
pub mod process;
mod proxy;
mod role;
pub mod server;
mod wait;

pub use db::TestDb;
pub use db::json_string;
pub use gate::Gate;
pub use jobctl::{Finished, Invocation, Running, copy_jobctl, jobctl, without_seconds};
pub(crate) use left_out::leave_out;
pub use preload::Preload;
pub use proxy::Proxy;
pub use role::Role;
pub use wait::{temp_dir, wait_until, wait_until_within};
