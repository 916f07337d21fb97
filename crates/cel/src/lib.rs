//! Kubernetes CEL: parse, check, cost, compile and evaluate.

#![forbid(unsafe_code)]

pub mod device;
pub mod semver;
