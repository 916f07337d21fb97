//! The Kubernetes API as one tower service.

#![forbid(unsafe_code)]
