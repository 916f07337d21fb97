//! One module per subcommand; each has `Args` and `run`.

pub mod access;
pub mod allocate;
pub mod bench;
pub mod cel;
pub mod completion;
pub mod conformance;
pub mod controllers;
pub mod convert;
pub mod dashboard;
pub mod demo;
pub mod devices;
pub mod down;
pub mod drain_driver;
pub mod driver;
pub mod explain;
pub mod hardware;
pub mod image;
pub mod lint;
pub mod logs;
pub mod manifests;
pub mod manual;
pub mod node;
pub mod output;
pub mod scheduler;
pub mod simulate;
pub mod snapshot;
pub mod status;
pub mod store;
pub mod up;

pub(crate) use crate::{apiserver, bounds, component};

/// So many of something, in words.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// How many names of a long list are shown.
const SHOWN: usize = 5;

/// The first of many names, and how many more there are.
fn some<S: std::borrow::Borrow<str>>(names: &[S]) -> String {
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    match more.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
