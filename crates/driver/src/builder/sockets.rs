//! Sockets: their names, and the services on them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_protos::transport::{Incoming, MAX_SOCKET_PATH, Services};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often sockets are looked for.
const LOOK: Duration = Duration::from_secs(1);

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

/// Serves a socket until `stop`. When its file is deleted, it is made again: without that of the registration the kubelet
/// deregisters the driver, and registers it as soon as there is one. A file that another process put there stays.
pub(super) async fn serve_at(
    path: &Path,
    incoming: Incoming,
    services: &Services,
    stop: &CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let mut servers = JoinSet::new();
    let start = |servers: &mut JoinSet<_>, incoming| {
        let replaced = stop.child_token();
        let ended = replaced.clone().cancelled_owned();
        servers.spawn(services.clone().serve(incoming, ended));
        replaced
    };
    let mut current = start(&mut servers, incoming);
    loop {
        tokio::select! {
            incoming = made_again(path, stop) => {
                tracing::warn!(socket = %path.display(), "the socket was deleted and is made again");
                // Calls on the one before come to their end.
                std::mem::replace(&mut current, start(&mut servers, incoming)).cancel();
            }
            ended = servers.join_next() => match ended {
                Some(Ok(result)) => result?,
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                None => return Ok(()),
            },
        }
    }
}

/// A new socket, when the one before is gone.
async fn made_again(path: &Path, stop: &CancellationToken) -> Incoming {
    let mut is_told = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let found = std::fs::symlink_metadata(path);
        let is_gone = found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        // At the end the file is removed.
        if is_gone && !stop.is_cancelled() {
            match Incoming::bind(path) {
                Ok(incoming) => return incoming,
                // The directory may be missing until the kubelet is started.
                Err(error) if !std::mem::replace(&mut is_told, true) => {
                    tracing::error!(socket = %path.display(), %error, "the socket was deleted and cannot be made again");
                }
                Err(_) => {}
            }
        }
    }
}
