//! The Kubernetes version that this server implements.

use allot_model::features::Release;

/// The version that documents name.
pub const VERSION: &str = "v1.36.2+allot";

/// The version as reported by `/version`: releases before the default are emulated by it, as upstream's programs do.
pub fn of(release: Release) -> &'static str {
    if release > Release::DEFAULT {
        "v1.37.2+allot"
    } else {
        VERSION
    }
}
