//! Exact Kubernetes basics: quantities, selectors, names, field errors and Status.
//!
//! The rules of what the API accepts and the texts of its errors live here once: [`quantity::Quantity`], label and
//! field selectors ([`labels`], [`fields`]), name rules with upstream's texts ([`names`]), field errors ([`field`]),
//! [`status::Status`], sums of quantities ([`amounts`]), the group/version/kind names ([`gvk`]), well-known labels and taints
//! ([`well_known`]), families of addresses ([`IpFamily`]), cron schedules ([`cron`]), suggestions for mistyped names ([`suggest`])
//! and addresses that no component connects to on behalf of a user ([`metadata_service`]).
//!
//! Invariants: no I/O, no clock, no randomness; nothing here panics on input; texts equal those of Kubernetes 1.36. The
//! crate must not depend on any kind of object.
//!
//! ```
//! use allot_apimachinery::{labels::Selector, quantity::Quantity};
//!
//! let memory: Quantity = "1.5Gi".parse()?;
//! assert_eq!(memory.to_string(), "1536Mi");
//! assert!(memory > "1500M".parse()?);
//!
//! let selector = Selector::parse("tier in (a, b), !old")?;
//! let labels = [("tier".to_owned(), "a".to_owned())].into();
//! assert!(selector.matches(&labels));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod amounts;
pub mod conditions;
pub mod cron;
pub mod exposition;
pub mod field;
pub mod fields;
pub mod go_duration;
pub mod gvk;
pub mod interrupt;
pub mod ip_family;
pub mod labels;
pub mod lean;
pub mod metadata_service;
pub mod names;
pub mod pem;
pub mod quantity;
pub mod quote;
pub mod status;
pub mod strconv;
pub mod suggest;
pub mod truncate;
pub mod webhook;
pub mod well_known;

pub use go_duration::go_duration;
pub use ip_family::IpFamily;
pub use quantity::Quantity;
pub use status::Status;
pub use truncate::truncate;
