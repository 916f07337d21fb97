//! Wall-clock time as a value that tests can control.

pub use allot_election::clock::*;
