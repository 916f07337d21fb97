//! The Kubernetes API as one tower service.
//!
//! What it is for: answer Kubernetes API requests over any [`allot_store::Backend`] so that real clients can not
//! tell it from kube-apiserver. [`Server`] is the whole of it; [`serve`] puts it behind TLS.
//!
//! A request passes, in this order: authentication, impersonation, authorization, the handler of its verb
//! (`rest`), and for writes decoding, defaults, admission, preparation, validation, storage. One place per step.
//!
//! Invariants:
//! - JSON in, JSON out: objects are never pressed into typed structs, so no field is lost;
//! - resources are data ([`registry`]); handlers know no resource by name, exceptions are in `strategy`;
//! - stored bytes are served as they are, and one encoding of a change serves all watchers;
//! - whatever goes wrong is a Kubernetes `Status`, never a panic.
//!
//! What it must not know: controllers, the scheduler, nodes. They are clients.
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
mod answers;
pub mod audit;
pub mod auth;
mod body;
mod bootstrap;
pub mod classic;
pub mod config;
mod connections;
mod custom;
pub mod discovery;
mod encode;
pub mod error;
mod flow;
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod health;
pub mod identity;
mod jobs;
mod kubelet;
mod large;
pub mod limits;
mod managed;
mod metrics;
pub mod negotiate;
pub mod object;
mod openapi;
mod ordered;
mod panics;
pub mod pki;
mod pods;
mod protobuf;
mod proxy;
mod raw;
mod references;
pub mod registry;
pub mod request;
mod rest;
mod reviews;
mod select;
pub mod serve;
mod server;
mod services;
mod strategy;
mod table;
mod upload;
pub mod validate;
mod versions;
mod warnings;
mod webhook;
mod yaml;

pub use body::Body;
pub use config::Config;
pub use error::ApiError;
pub use limits::{Limits, MAX_BODY};
pub use rest::{DeleteOptions, Preconditions, Propagation};
pub use server::{ClientService, Core, Incoming, Server, Warnings};
