//! Structured device allocation: snapshot, claims and node in; allocation or reasons out.

#![forbid(unsafe_code)]
