//! The certificate of a server, read again when its files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::Error;

#[cfg(test)]
mod tests;

/// Identifies the content of a file: device, inode, size, and time of the last change.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// A certificate chain with its key, for servers of HTTP/1.1 without client certificates. One of files is read again when they
/// change: a renewed certificate applies from the next connection on.
#[derive(Debug)]
pub struct Certificate {
    files: Option<Files>,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Files {
    chain: PathBuf,
    key: PathBuf,
}

#[derive(Debug)]
struct Read {
    /// Of the files that `tls` was read from.
    stamps: [Stamp; 2],
    /// Of files that cannot be used, which is logged once.
    refused: Option<[Stamp; 2]>,
    tls: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads PEM files with the chain and its key.
    ///
    /// # Errors
    /// A file cannot be read, or they do not fit together.
    pub fn load(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, Error> {
        let files = Files {
            chain: chain.into(),
            key: key.into(),
        };
        let (stamps, tls) = (files.stamps(), files.tls()?);
        Ok(Self::with(Some(files), stamps, tls))
    }

    /// Uses a chain and its key that are in memory.
    ///
    /// # Errors
    /// The key is not that of the certificate.
    pub fn fixed(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::with(None, [None; 2], tls(chain, key)?))
    }

    fn with(files: Option<Files>, stamps: [Stamp; 2], tls: Arc<ServerConfig>) -> Self {
        let read = Read {
            stamps,
            refused: None,
            tls,
        };
        Self {
            files,
            read: Mutex::new(read),
        }
    }

    /// The handshake with a client, with the present certificate. `None` if it fails: the client does not speak TLS, or does
    /// not trust the certificate. The caller limits the time.
    pub async fn accept<S>(self: &Arc<Self>, stream: S) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let this = Arc::clone(self);
        let tls = tokio::task::spawn_blocking(move || this.current()).await;
        TlsAcceptor::from(tls.ok()?).accept(stream).await.ok()
    }

    /// The configuration for the next connection. Called for each of them: a look at two files costs less than a
    /// handshake, and no notification is missed, however the files are replaced (Kubernetes swaps a symbolic link).
    fn current(&self) -> Arc<ServerConfig> {
        let mut read = self.read.lock();
        let Some(files) = &self.files else {
            return Arc::clone(&read.tls);
        };
        let stamps = files.stamps();
        if stamps != read.stamps {
            // Files that cannot be used are read for every connection: the stamp of one that was read while it was written
            // may be the stamp of the complete file.
            match files.tls() {
                Ok(tls) => {
                    tracing::info!(certificate = %files.chain.display(), "the certificate was renewed");
                    *read = Read {
                        stamps,
                        refused: None,
                        tls,
                    };
                }
                Err(error) if read.refused != Some(stamps) => {
                    tracing::warn!(%error, "the changed certificate cannot be used, the last one stays");
                    read.refused = Some(stamps);
                }
                Err(_) => {}
            }
        }
        Arc::clone(&read.tls)
    }
}

impl Files {
    fn stamps(&self) -> [Stamp; 2] {
        let stamp = |file: Metadata| {
            (
                file.dev(),
                file.ino(),
                file.size(),
                file.mtime(),
                file.mtime_nsec(),
            )
        };
        [&self.chain, &self.key].map(|path| std::fs::metadata(path).ok().map(stamp))
    }

    fn tls(&self) -> Result<Arc<ServerConfig>, Error> {
        let error = |path: &Path, reason: &dyn std::fmt::Display| Error::Certificate {
            path: path.to_owned(),
            reason: reason.to_string(),
        };
        let chain = CertificateDer::pem_file_iter(&self.chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|reason| error(&self.chain, &reason))?;
        if chain.is_empty() {
            return Err(error(&self.chain, &"no certificate in PEM"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|reason| error(&self.key, &reason))?;
        tls(chain, key).map_err(|reason| error(&self.key, &reason))
    }
}

fn tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
