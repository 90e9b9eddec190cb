//! Has the linker make the command smaller by a quarter: it folds functions that came out the same (types that share a
//! layout leave many), and gives the code a fixed address, which saves a table of relocations.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let target = |key: &str| var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    // Only where the toolchain links with its own LLD, which knows the option, and nobody chose another linker.
    let lld = target("ARCH") == "x86_64" && target("OS") == "linux" && target("ENV") == "gnu";
    let chosen =
        var("RUSTC_LINKER").is_ok() || var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if lld && !chosen && var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
