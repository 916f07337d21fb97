//! Repository chores: `cargo xtask tidy`.

#![forbid(unsafe_code)]

mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(),
        _ => {
            eprintln!("usage: cargo xtask tidy    check the invariants of docs/ARCHITECTURE.md");
            ExitCode::FAILURE
        }
    }
}
