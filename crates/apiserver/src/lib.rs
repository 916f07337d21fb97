//! The Kubernetes API as one tower service.
//!
//! Purpose: answer Kubernetes API requests over any [`allot_store::Backend`] so that real clients cannot
//! tell it from kube-apiserver. [`Server`] is the whole of it; [`serve`] puts it behind TLS.
//!
//! A request passes, in this order: authentication, impersonation, flow control, authorization, the handler of its verb
//! (`rest`), and for writes decoding, defaults, admission, preparation, validation, storage. One place per step.
//!
//! The modules form acyclic layers, shown in docs/ARCHITECTURE.md: requests and encodings; the registry of
//! resources; stored objects and how they appear; the rules of kinds; [`ServerState`]; the steps of the chain; [`Core`];
//! handlers; the server.
//!
//! Invariants:
//! - JSON in, JSON out: objects are never pressed into typed structs, so no field is lost;
//! - resources are data ([`registry`]); handlers know no resource by name, exceptions are in `strategy`;
//! - stored bytes are served as they are, and one encoding of a change serves all watchers;
//! - every error is a Kubernetes `Status`, never a panic.
//!
//! It must not depend on controllers, the scheduler or nodes. They are clients.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use allot_apiserver::{Server, identity::User};
//! use http_body_util::{BodyExt, Empty};
//!
//! let server = Server::in_memory().await.unwrap();
//! let request = http::Request::get("/api/v1/namespaces/default").body(Empty::<bytes::Bytes>::new()).unwrap();
//! let response = server.handle(request, Some(User::admin())).await;
//! assert_eq!(response.status(), 200);
//! # });
//! ```

#![forbid(unsafe_code)]

pub mod admission;
mod aggregator;
mod answers;
mod apiextensions;
mod apiservices;
pub mod audit;
pub mod auth;
mod body;
mod bootstrap;
#[cfg(test)]
mod classic_tests;
pub mod config;
mod connections;
mod context;
mod conversion;
mod debug_flags;
mod dial;
pub mod discovery;
mod encode;
mod endpoints;
mod extensions;
mod flow;
#[doc(hidden)]
pub mod fuzzing;
mod health;
pub mod keys;
mod kubelet;
mod large;
pub mod limits;
mod metrics;
pub mod mount;
mod numbers;
mod openapi;
mod own_objects;
mod panics;
pub mod pki;
mod policy_status;
mod proxy;
mod registered;
mod reloads;
mod remote;
pub mod request;
mod rest;
mod reviews;
pub mod serve;
mod server;
mod server_identity;
mod services;
mod shares;
mod state;
mod unread;
mod upload;
mod version;
mod webhook;
mod yaml;
mod zpages;

pub use allot_kinds::{builtin, classic, error, identity, negotiate, object, registry, validate};
use allot_kinds::{
    custom, empties, expression, flow_defaults, header, managed, ordered, protobuf, raw,
    references, scale, select, storage, strategy, table, versions, view, warnings,
};
pub use body::Body;
pub use config::Config;
pub use context::Core;
pub use dial::source_to;
pub use error::ApiError;
pub use limits::{Limits, MAX_BODY};
pub use metrics::process_metrics;
pub use request::{DeleteOptions, Incoming, Preconditions, Propagation, Warnings};
pub use server::{ClientService, ReloadError, ReloadableConfig, RemoteService, Server};
pub use state::ServerState;
