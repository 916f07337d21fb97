//! The resource.k8s.io kinds: versions, conversion, defaults, validation and table columns.

#![forbid(unsafe_code)]
