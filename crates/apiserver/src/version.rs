//! The version of Kubernetes that this server speaks.

/// As `/version` names it.
pub const VERSION: &str = "v1.36.2+allot";
