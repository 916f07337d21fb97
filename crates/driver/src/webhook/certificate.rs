//! The certificate, read again when its files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// Identifies the content of a file: device, inode, size, and time of the last change.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The files, and what was read from them.
#[derive(Debug)]
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    /// Of the last attempt, which may have failed.
    stamps: [Stamp; 2],
    tls: Arc<ServerConfig>,
}

impl Certificate {
    pub(super) fn load(chain: PathBuf, key: PathBuf) -> Result<Self, Error> {
        let stamps = stamps(&chain, &key);
        let tls = tls(&chain, &key)?;
        Ok(Self {
            chain,
            key,
            read: Mutex::new(Read { stamps, tls }),
        })
    }

    /// The configuration for the next connection. Called for each of them: a look at two files costs less than a
    /// handshake, and no notification is missed, however the files are replaced (Kubernetes swaps a symbolic link).
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        let mut read = self.read.lock();
        let stamps = stamps(&self.chain, &self.key);
        if stamps != read.stamps {
            read.stamps = stamps;
            match tls(&self.chain, &self.key) {
                Ok(tls) => {
                    tracing::info!(certificate = %self.chain.display(), "the certificate was renewed");
                    read.tls = tls;
                }
                // The two files are not replaced at the same instant: the next connection sees another stamp.
                Err(error) => {
                    tracing::warn!(%error, "the changed certificate cannot be used, the last one stays")
                }
            }
        }
        Arc::clone(&read.tls)
    }
}

fn stamps(chain: &Path, key: &Path) -> [Stamp; 2] {
    let stamp = |file: Metadata| {
        (
            file.dev(),
            file.ino(),
            file.size(),
            file.mtime(),
            file.mtime_nsec(),
        )
    };
    [chain, key].map(|path| std::fs::metadata(path).ok().map(stamp))
}

fn tls(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let error = |path: &Path, reason: &dyn std::fmt::Display| Error::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|reason| error(chain, &reason))?;
    if certificates.is_empty() {
        return Err(error(chain, &"no certificate in PEM"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|reason| error(key, &reason))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.and_then(|it| {
        it.with_no_client_auth()
            .with_single_cert(certificates, private)
    });
    let mut config = config.map_err(|reason| error(key, &reason))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
