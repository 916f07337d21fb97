//! Exact Kubernetes basics: quantities, selectors, names, metadata and Status errors.

#![forbid(unsafe_code)]
