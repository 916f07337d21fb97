//! What tests of several crates share.
//!
//! - [`recordings`] reads `tests/conformance`: what a real Kubernetes 1.36.2 answered.
//! - [`replay`] plays the recorded HTTP conversations among them.
//! - [`outcome`] judges a suite of such cases, with the failures that are expected by name.
//! - [`fuzz`] changes seeds at random places and asserts that an entry point survives.
//! - `wait` (feature `wait`) waits for a condition, with one deadline for all tests.
//!
//! Only a dev-dependency: no part of the program.
//!
//! ```
//! let cases = allot_testing::recordings::read("cel");
//! assert!(cases.iter().any(|case| case.name == "all-list_true"));
//! ```

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod outcome;
pub mod recordings;
pub mod replay;
#[cfg(feature = "wait")]
pub mod wait;
