//! The Kubernetes version that this server implements.

/// The version as reported by `/version`.
pub const VERSION: &str = "v1.36.2+allot";
