//! Pulls: from a name to an image in the store, unpacked.

mod download;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use futures::stream::{self, TryStreamExt as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::keyring::{Credential, SecretSource};
use crate::manifest::{Descriptor, Document, Manifest, Platform, select};
use crate::registries::{Endpoint, Registries};
use crate::registry::Registry;
use crate::store::{Image, Lease, NewImage, RootFs, Store};
use crate::{Digest, Error, ImageConfig, Reference, Result};

/// Pulls images into a store. Pulls of the same image with the same credentials share their work, and so do downloads
/// of the same blob.
#[derive(Clone)]
pub struct Puller(Arc<Inner>);

struct Inner {
    store: Store,
    registries: Registries,
    downloads: Semaphore,
    running: Mutex<HashMap<String, Shared<BoxFuture<'static, Result<Pulled>>>>>,
    blobs: Mutex<HashMap<Digest, std::sync::Weak<tokio::sync::Mutex<()>>>>,
}

/// An image that was pulled.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The image, in the store under its name.
    pub image: Image,
    /// Its layers.
    pub rootfs: RootFs,
    /// The secret that opened the registry; absent if none was needed.
    pub secret: Option<SecretSource>,
}

/// Forgets a pull when it ends, however it ends.
struct Running(Puller, String);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.running.lock().remove(&self.1);
    }
}

impl Puller {
    /// A puller for a store.
    pub fn new(store: Store, registries: Registries) -> Self {
        let downloads = Semaphore::new(store.limits().parallel_downloads.max(1));
        Self(Arc::new(Inner {
            store,
            registries,
            downloads,
            running: Mutex::default(),
            blobs: Mutex::default(),
        }))
    }

    /// The store of the images.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Pulls an image. Mirrors are tried first, without credentials; then the registry itself with each of the
    /// credentials in turn, or without any if there are none. The pull continues if the caller is dropped, until its
    /// deadline; the next caller joins it.
    ///
    /// # Errors
    ///
    /// The last server's error. [`Error::Timeout`] after [`crate::Timeouts::pull`].
    pub async fn pull(&self, reference: &Reference, credentials: &[Credential]) -> Result<Pulled> {
        let reference = reference.clone().with_default_tag();
        // Others' credentials may open what one's own do not.
        let words: Vec<[&String; 2]> = credentials
            .iter()
            .map(|one| [&one.username, &one.password])
            .collect();
        let words = serde_json::to_vec(&words).unwrap_or_default();
        let key = format!("{} {}", reference.key(), Digest::of(&words));
        let pull = {
            let mut running = self.0.running.lock();
            match running.get(&key) {
                Some(pull) => pull.clone(),
                None => {
                    let pull = self.start(reference, credentials.to_vec(), key.clone());
                    running.insert(key, pull.clone());
                    pull
                }
            }
        };
        pull.await
    }

    fn start(
        &self,
        reference: Reference,
        credentials: Vec<Credential>,
        key: String,
    ) -> Shared<BoxFuture<'static, Result<Pulled>>> {
        let running = Running(self.clone(), key);
        let task = tokio::spawn(async move {
            let this = &running.0;
            let limit = this.0.store.timeouts().pull;
            let result =
                tokio::time::timeout(limit, this.all_endpoints(&reference, &credentials)).await;
            let result = result
                .unwrap_or_else(|_| Err(Error::Timeout(format!("pull of {reference}"), limit)));
            if result.as_ref().is_err_and(Error::is_final) {
                let store = this.0.store.clone();
                blocking(move || {
                    store.clear();
                    Ok(())
                })
                .await?;
            }
            result
        });
        let result = async move {
            let result = task.await;
            result.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
        };
        result.boxed().shared()
    }

    async fn all_endpoints(
        &self,
        reference: &Reference,
        credentials: &[Credential],
    ) -> Result<Pulled> {
        let mut last = None;
        for endpoint in self.0.registries.endpoints(reference.domain()) {
            let anonymous = endpoint.mirror || credentials.is_empty();
            let attempts: Vec<Option<&Credential>> = match anonymous {
                true => vec![None],
                false => credentials.iter().map(Some).collect(),
            };
            for credential in attempts {
                match self.one_endpoint(reference, &endpoint, credential).await {
                    Ok(pulled) => return Ok(pulled),
                    // Another server would not help.
                    Err(error)
                        if matches!(
                            error,
                            Error::Io(..) | Error::Internal(_) | Error::Cancelled
                        ) =>
                    {
                        return Err(error);
                    }
                    Err(error) => {
                        tracing::debug!(image = %reference, server = endpoint.authority, %error, "pull failed");
                        last = Some(error);
                    }
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::Config(format!(
                "no server is configured for {}",
                reference.domain()
            ))
        }))
    }

    async fn one_endpoint(
        &self,
        reference: &Reference,
        endpoint: &Endpoint,
        credential: Option<&Credential>,
    ) -> Result<Pulled> {
        let store = self.0.store.clone();
        let registry = Registry::new(
            endpoint.clone(),
            reference.domain(),
            credential.cloned(),
            store.limits().clone(),
            store.timeouts().clone(),
        )?;
        let lease = {
            let store = store.clone();
            blocking(move || store.lease()).await?
        };
        let (lease, target, manifest_digest, manifest) =
            self.manifests(&registry, reference, lease).await?;
        self.blob(&registry, reference.path(), &manifest.config)
            .await?;
        let config = store.read_blob(&manifest.config.digest, store.limits().config)?;
        let config = ImageConfig::parse(&config, store.limits())?;
        check_platform(&config)?;
        let lease = keep(lease, config.diff_ids, None).await?;
        let layers = manifest
            .layers
            .iter()
            .map(|layer| (layer.digest.clone(), layer.clone()));
        let distinct: HashMap<Digest, Descriptor> = layers.collect();
        let digests: Vec<Digest> = distinct.keys().cloned().collect();
        let (registry, repository) = (&registry, reference.path());
        let downloads = stream::iter(distinct.into_values().map(Ok::<Descriptor, Error>));
        let downloaded = downloads
            .try_for_each_concurrent(
                store.limits().parallel_downloads.max(1),
                |layer| async move { self.blob(registry, repository, &layer).await },
            )
            .await;
        if let Err(error) = downloaded {
            // One wrong layer: no attempt would go on with the others.
            if error.is_final() {
                let store = store.clone();
                blocking(move || {
                    store.discard(&digests);
                    Ok(())
                })
                .await?;
            }
            return Err(error);
        }
        let new = NewImage {
            name: reference.key(),
            repository: Some(reference.name()),
            target,
            manifest: manifest_digest,
        };
        let (image, rootfs) = {
            let store = store.clone();
            cancellable(move |cancel| {
                let image = store.inspect(&new)?;
                let rootfs = store.unpack(&image, cancel)?;
                let image = store.add(&new, Timestamp::now())?;
                drop(lease);
                Ok((image, rootfs))
            })
            .await?
        };
        let secret = credential.and_then(|credential| credential.source.clone());
        Ok(Pulled {
            image,
            rootfs,
            secret,
        })
    }

    /// Fetches the document of the name, and for an index the manifest for this machine.
    async fn manifests(
        &self,
        registry: &Registry,
        reference: &Reference,
        lease: Lease,
    ) -> Result<(Lease, Descriptor, Digest, Manifest)> {
        let store = &self.0.store;
        let first = registry
            .manifest(reference.path(), &reference.wanted())
            .await?;
        let target = Descriptor::of(&first.media_type, &first.content);
        let target = Descriptor {
            digest: first.digest.clone(),
            ..target
        };
        let mut lease = keep(
            lease,
            vec![first.digest.clone()],
            Some(first.content.clone()),
        )
        .await?;
        let (digest, manifest) = match Document::parse(&first.content, store.limits())? {
            Document::Image(manifest) => (first.digest, manifest),
            Document::Index(entries) => {
                let entry = select(&entries, &Platform::host())?;
                let second = registry
                    .manifest(reference.path(), entry.digest.as_str())
                    .await?;
                let Document::Image(manifest) = Document::parse(&second.content, store.limits())?
                else {
                    return Err(Error::InvalidImage("an index within an index".to_owned()));
                };
                lease = keep(
                    lease,
                    vec![second.digest.clone()],
                    Some(second.content.clone()),
                )
                .await?;
                (second.digest, manifest)
            }
        };
        let layers = manifest.layers.iter().map(|layer| layer.digest.clone());
        let parts = std::iter::once(manifest.config.digest.clone())
            .chain(layers)
            .collect();
        let lease = keep(lease, parts, None).await?;
        Ok((lease, target, digest, manifest))
    }
}

/// Keeps blobs; the first one may be passed to be stored.
async fn keep(
    mut lease: Lease,
    digests: Vec<Digest>,
    content: Option<bytes::Bytes>,
) -> Result<Lease> {
    blocking(move || {
        lease.extend(digests.iter().cloned())?;
        if let (Some(content), Some(digest)) = (content, digests.first()) {
            lease.store().put_blob_as(&content, digest)?;
        }
        Ok(lease)
    })
    .await
}

fn check_platform(config: &ImageConfig) -> Result<()> {
    let (host, image) = (Platform::host(), &config.platform);
    let differs = |a: &str, b: &str| !a.is_empty() && a != b;
    if differs(&image.architecture, &host.architecture) || differs(&image.os, &host.os) {
        return Err(Error::Platform(format!("{host}, the image is for {image}")));
    }
    Ok(())
}

/// Runs what blocks beside the tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
}

/// Runs blocking work; it is cancelled when no caller waits any longer.
pub(crate) async fn cancellable<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> Result<T> {
    struct Guard(Arc<AtomicBool>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let _guard = Guard(cancel.clone());
    blocking(move || work(&cancel)).await
}

#[cfg(test)]
mod tests;
