//! Whether jobctl was started without a stdout. By the time `main` is called Rust's start-up code has put
//! a null device there, which nobody can tell from one that the caller gave; so it is looked at before.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio;

static STDOUT: AtomicBool = AtomicBool::new(false);

#[cfg_attr(target_os = "linux", allow(unsafe_code, reason = "nothing else runs before Rust's start-up code"))]
// SAFETY: the C library calls what stands in this section, once and before `main`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[used]
static BEFORE_MAIN: extern "C" fn() = look;

/// Nothing of the standard library is ready yet: a system call and an atomic are all there may be.
extern "C" fn look() {
    STDOUT.store(fcntl_getfd(stdio::stdout()) == Err(Errno::BADF), Ordering::Relaxed);
}

pub(super) fn stdout() -> bool {
    STDOUT.load(Ordering::Relaxed)
}
