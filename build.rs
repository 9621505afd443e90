//! How the program is linked.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target =
        ["OS", "ENV"].map(|part| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default());
    if target != ["linux", "gnu"] {
        return;
    }
    // The library that unwinds asks the processor what it can do when it is loaded, with an
    // instruction that takes long in a virtual machine: a fortieth of an empty tick. Its static
    // form does not.
    if has_static_unwinder() {
        println!("cargo::rustc-link-arg-bins=-Wl,--whole-archive,-lgcc_eh,--no-whole-archive");
    }
}

/// Whether the compiler that links knows where it is; it prints the mere name of what it does not
/// find.
fn has_static_unwinder() -> bool {
    let linker = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let found = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute())
}
