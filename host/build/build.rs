//! Has the crate compiled again when a file below `sdk/` or `wit/` is added or removed: the macro that embeds them sees
//! changes of their contents only.

fn main() {
    println!("cargo::rerun-if-changed=../../sdk");
    println!("cargo::rerun-if-changed=../../wit");
}
