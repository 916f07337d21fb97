//! One blob from a registry to the store.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Puller, blocking};
use crate::manifest::Descriptor;
use crate::registry::{Body, Registry};
use crate::store::BlobWriter;
use crate::{Digest, Error, Result};

/// How often a download is resumed after the connection broke.
const ATTEMPTS: u32 = 4;
/// Pieces between the connection and the disk.
const QUEUE: usize = 8;

impl Puller {
    /// Downloads a blob unless it is present. If another pull downloads it, waits for that; a broken connection is
    /// re-established, and the download resumed.
    pub(super) async fn blob(
        &self,
        registry: &Registry,
        repository: &str,
        blob: &Descriptor,
    ) -> Result<()> {
        let one = self.one_at_a_time(&blob.digest);
        let _one = one.lock().await;
        if self.0.store.has_blob(&blob.digest) {
            return Ok(());
        }
        let permit = self.0.downloads.acquire().await;
        let _permit = permit.map_err(|error| Error::Internal(error.to_string()))?;
        let (store, digest, size) = (self.0.store.clone(), blob.digest.clone(), blob.size);
        let mut writer = blocking(move || store.begin(&digest, size)).await?;
        let mut attempt = 1;
        loop {
            if writer.written() == blob.size {
                return blocking(move || writer.commit()).await;
            }
            let before = writer.written();
            let (offset, body) = registry.blob(repository, blob, before).await?;
            if offset == 0 && before > 0 {
                writer.restart()?;
            }
            let (back, result) = receive(writer, body).await?;
            writer = back;
            match result {
                Ok(()) => return blocking(move || writer.commit()).await,
                Err(error @ (Error::Unreachable(..) | Error::Timeout(..)))
                    if attempt < ATTEMPTS && writer.written() > before =>
                {
                    tracing::debug!(blob = %blob.digest, at = writer.written(), %error, "resuming the download");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn one_at_a_time(&self, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut blobs = self.0.blobs.lock();
        if let Some(known) = blobs.get(digest).and_then(std::sync::Weak::upgrade) {
            return known;
        }
        blobs.retain(|_, known| known.strong_count() > 0);
        let new = Arc::default();
        blobs.insert(digest.clone(), Arc::downgrade(&new));
        new
    }
}

/// Writes a body beside the tasks, with a few pieces in between. Returns the writer with how it went.
async fn receive(mut writer: BlobWriter, mut body: Body) -> Result<(BlobWriter, Result<()>)> {
    let (sender, mut receiver) = mpsc::channel::<bytes::Bytes>(QUEUE);
    let disk = tokio::task::spawn_blocking(move || {
        while let Some(piece) = receiver.blocking_recv() {
            if let Err(error) = writer.write(&piece) {
                return (writer, Err(error));
            }
        }
        (writer, Ok(()))
    });
    let mut network = Ok(());
    loop {
        match body.next().await {
            Ok(Some(piece)) => {
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                network = Err(error);
                break;
            }
        }
    }
    drop(sender);
    let (writer, written) = disk
        .await
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok((writer, written.and(network)))
}
