//! What is known about the types of API objects, and everything that follows from it.
//!
//! - [`types`]: the facts about built-in types, from one embedded file;
//! - [`decode`]: JSON to the stored form, with the errors and warnings of upstream's decoder;
//! - [`defaults`]: what built-in objects leave open;
//! - [`strategic`] and [`apply`]: strategic merge patch, server-side apply with field ownership
//!   ([`fields`] are the sets of owned paths, [`merge`] the operations on values);
//! - [`structural`], [`rules`] and [`definition`]: custom resources and their definitions;
//! - [`protobuf`]: objects in Kubernetes' protobuf, to and from JSON;
//! - [`openapi`]: the published schemas.
//!
//! Invariants: built-in types and custom schemas merge by the same code (a [`Node`] is a place in either); decoding, pruning and
//! defaulting are idempotent; texts that reach a client are upstream's. The crate is pure: objects and the time come in as values.
//!
//! It must not depend on requests, storage, identities, or the meaning of the kinds of `resource.k8s.io` (that
//! is the `model` crate).
//!
//! ```
//! use allot_schema::{decode, defaults, types};
//!
//! let schema = types::lookup("", "v1", "ConfigMap").unwrap();
//! let decoded = decode::decode_json(br#"{"metadata":{"name":"a","shade":"x"},"data":{}}"#, Some(schema)).unwrap();
//! assert_eq!(decoded.strict, [r#"unknown field "metadata.shade""#]);
//! let (mut object, _) = decoded.apply(decode::Mode::Warn).unwrap();
//! defaults::apply("", "v1", "ConfigMap", &mut object);
//! assert_eq!(object, serde_json::json!({"metadata":{"name":"a"}}));
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod apply;
pub mod decode;
pub mod defaults;
pub mod definition;
pub mod fields;
pub mod json_patch;
pub mod merge;
mod node;
pub mod openapi;
pub mod protobuf;
pub mod rules;
pub mod strategic;
pub mod structural;
pub mod types;

pub use node::Node;
