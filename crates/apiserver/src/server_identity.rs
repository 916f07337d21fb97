//! The name that identifies an API server among those of its cluster.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest as _, Sha256};

/// The component that the server takes the place of.
pub(crate) const COMPONENT: &str = "kube-apiserver";

/// The name of the server on a host, which other servers have to find without asking it.
pub(crate) fn of_host(host: &str) -> String {
    let mut hashed = Vec::new();
    for part in [host, COMPONENT] {
        // Names of hosts are at most 64 bytes.
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hashed.extend(length.to_be_bytes());
        hashed.extend(part.as_bytes());
    }
    let hash = BASE32_NOPAD.encode(&Sha256::digest(&hashed)[..16]);
    format!("apiserver-{}", hash.to_ascii_lowercase())
}
