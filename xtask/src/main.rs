//! Repository chores: `cargo xtask tidy`.

fn main() {}
