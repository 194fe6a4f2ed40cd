//! Sets the linker options of the binary.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every process of a large binary would read megabytes of relocations when it starts; packed ones take a hundredth.
    // The target system must support them, as glibc does since 2.36.
    if env::var("HOST") == env::var("TARGET") && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this system's C library, if it is glibc.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
