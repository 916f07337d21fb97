//! Names of sockets.

use std::path::{Path, PathBuf};

use allot_protos::transport::MAX_SOCKET_PATH;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The registration socket of one of several instances: with the whole UID if the path is short enough, else with a
/// hash, as upstream's helper names it since 1.37.
pub(super) fn rolling_socket(directory: &Path, driver: &str, uid: &str) -> PathBuf {
    let hash = |text: String, bytes: usize| {
        BASE64_URL_SAFE_NO_PAD.encode(&Sha256::digest(text.as_bytes())[..bytes])
    };
    let names = [
        format!("{driver}-{uid}-reg.sock"),
        format!("{driver}-{}-reg.sock", hash(uid.to_owned(), 8)),
        format!("dra-{}-reg.sock", hash(format!("{driver}\0{uid}"), 16)),
    ];
    let mut paths = names.into_iter().map(|name| directory.join(name));
    let short = |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH;
    let last = paths.next_back();
    let found = paths.find(short).or(last);
    // There are three names.
    found.unwrap_or_else(|| directory.to_owned())
}
