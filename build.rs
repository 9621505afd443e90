//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = ["OS", "ENV"].map(|part| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default());
    // The time zones are tables full of addresses. In a position-independent program the loader would
    // write all 36,000 of them at each start, for cron's every minute: a tenth of the time of an empty
    // tick. Libraries, heap and stack still are where nobody can know.
    if target == ["linux", "gnu"] {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
