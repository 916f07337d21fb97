//! Kubernetes CEL: parse, check, cost, compile and evaluate.
//!
//! Two layers. The language core ([`env`], [`program`], [`value`], [`types`]) implements CEL with the libraries, limits
//! and cost rules of Kubernetes 1.36: an [`env::Env`] declares variables with their types, compiling gives a
//! [`program::Program`], and that is evaluated on values that borrow from their sources. On top of it, [`device`] is
//! the environment of DRA device selectors and [`named_resources`] that of their predecessor in 1.30. Validation rules
//! of CRDs use the core with their own variables.
//!
//! Invariants: texts of errors and numbers of costs equal those of cel-go 0.26 as Kubernetes 1.36 configures it;
//! nothing here panics on input; the same expression on the same input gives the same result and cost. No I/O, no
//! clock. The core must not depend on devices.
//!
//! ```
//! use allot_cel::device::{Device, Options, compile};
//!
//! let selector = compile(
//!     r#"device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory >= quantity("40Gi")"#,
//!     &Options::default(),
//! );
//! assert!(selector.unwrap_err().to_string().contains("found no matching overload for '_>=_'"));
//!
//! let text = r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#;
//! let selector = compile(text, &Options::default())?;
//! let device = Device::builder("gpu.example.com").capacity("memory", "80Gi".parse()?).build();
//! assert!(selector.matches(&device)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod ast;
pub mod authorization;
mod checker;
pub mod cost;
mod decl_type;
pub mod device;
pub mod env;
mod library;
pub mod named_resources;
mod parser;
pub mod program;
pub mod semver;
mod size;
mod source;
pub mod types;
mod url;
mod validate;
pub mod value;

pub use library::regex::{PatternError, Regex};
