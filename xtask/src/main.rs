//! Repository chores: `cargo xtask test`, `check`, `tidy`, `instructions`, `image` and `dist`.

#![forbid(unsafe_code)]

mod check;
mod instructions;
mod package;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask COMMAND

  test [OPTIONS] [-- FILTER...]   builds and runs the tests; what fails runs again alone, once
                                  OPTIONS are those of `cargo test`: -p CRATE, --test NAME, --lib, --release
  check                           formatting, tidy, and lints and unit tests of the crates that differ from the main branch
  tidy                            the invariants of docs/ARCHITECTURE.md that a reader of text can check, and that the files,
                                  Rust paths and tests that documents name exist
  instructions [--record]         the instructions of each hot path beside tests/paths/instructions.txt, counted by valgrind;
                                  fails if one of them needs 5 % more than is recorded there
  image [OPTIONS]                 a container image as an OCI layout, with its bill of materials; no container engine
  dist [OPTIONS]                  a tarball and a Debian package, with manual pages, completions and systemd units";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        Some("test") => test::run(&arguments.collect::<Vec<_>>()),
        Some("check") => check::run(),
        Some("tidy") => Ok(tidy::run()),
        Some("instructions") => instructions::run(&arguments.collect::<Vec<_>>()),
        Some("image") => package::image(&arguments.collect::<Vec<_>>()),
        Some("dist") => package::dist(&arguments.collect::<Vec<_>>()),
        _ => {
            eprintln!(
                "{USAGE}\n                                  {}",
                package::OPTIONS
            );
            Ok(false)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The top of the repository.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// The cargo that runs this, from the top of the repository.
///
/// The variables that `cargo run` sets for xtask itself are removed: build scripts that depend on them, such as ring's,
/// would run again whenever `cargo xtask` and plain `cargo` take turns, and most of the workspace with them.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let of_xtask = name.to_str().is_some_and(is_set_for_one_package);
        if of_xtask {
            command.env_remove(name);
        }
    }
    command
}

/// Whether cargo sets a variable for the package that it runs, rather than reading it as configuration.
fn is_set_for_one_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}
