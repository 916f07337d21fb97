//! What the API server knows of kinds before it serves them: the registry of resources, conversion between versions,
//! storage form, defaults, strategies, validation, warnings and table columns.
//!
//! Invariants:
//! - functions of the objects alone: no server state, no authorization, no network;
//! - objects are JSON, never typed structs, so that no field is lost.
//!
//! It must not know the server (`allot_apiserver`), which re-exports these modules under the same names.

#![forbid(unsafe_code)]

pub mod builtin;
pub mod classic;
pub mod custom;
pub mod empties;
pub mod error;
pub mod expression;
pub mod flow_defaults;
pub mod header;
pub mod identity;
pub mod managed;
pub mod negotiate;
pub mod object;
pub mod ordered;
pub mod pods;
pub mod protobuf;
pub mod raw;
pub mod references;
pub mod registry;
pub mod request;
pub mod scale;
pub mod select;
pub mod storage;
pub mod strategy;
pub mod table;
pub mod validate;
pub mod versions;
pub mod view;
pub mod warnings;
