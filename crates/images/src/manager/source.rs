//! Where a manager's images are.

use std::collections::BTreeSet;

use super::Ready;
use crate::pull::{Puller, blocking, cancellable};
use crate::store::Image;
use crate::{Credential, Reference, Result, SecretSource};

/// An image that was pulled.
#[derive(Clone, Debug)]
pub struct Fetched<T> {
    /// What containers run from.
    pub ready: T,
    /// Its id, as [`Source::id`].
    pub id: String,
    /// Its size in bytes.
    pub size: u64,
    /// The secret that opened the registry; absent if none was used.
    pub secret: Option<SecretSource>,
}

/// Images and the way to get more: this crate's [`Puller`], or a container runtime that has images of its own.
pub trait Source: Send + Sync + 'static {
    /// An image that is present.
    type Image: Send;
    /// What containers run from.
    type Ready: Send + 'static;

    /// The id of an image, by which its pulls are recorded; the same for all its names.
    fn id(image: &Self::Image) -> String;

    /// The ids of all images that are present.
    fn ids(&self) -> impl Future<Output = Result<BTreeSet<String>>> + Send;

    /// The image of that name, if it is present.
    fn find(
        &self,
        reference: &Reference,
    ) -> impl Future<Output = Result<Option<Self::Image>>> + Send;

    /// Makes a present image ready for containers.
    fn prepare(&self, image: Self::Image) -> impl Future<Output = Result<Self::Ready>> + Send;

    /// Pulls an image, with each of the credentials in turn, or without any if there are none.
    ///
    /// An error for which [`crate::Error::is_undecided`] holds says nothing about whether the image is present now.
    fn pull(
        &self,
        reference: &Reference,
        credentials: &[Credential],
    ) -> impl Future<Output = Result<Fetched<Self::Ready>>> + Send;
}

impl Source for Puller {
    type Image = Image;
    type Ready = Ready;

    fn id(image: &Image) -> String {
        image.target.to_string()
    }

    async fn ids(&self) -> Result<BTreeSet<String>> {
        let store = self.store().clone();
        let images = blocking(move || store.list()).await?;
        Ok(images.iter().map(Self::id).collect())
    }

    async fn find(&self, reference: &Reference) -> Result<Option<Image>> {
        let (store, wanted) = (self.store().clone(), reference.clone());
        blocking(move || store.find(&wanted)).await
    }

    async fn prepare(&self, image: Image) -> Result<Ready> {
        let store = self.store().clone();
        let unpacked = image.clone();
        let rootfs = cancellable(move |cancel| store.unpack(&unpacked, cancel)).await?;
        Ok(Ready { image, rootfs })
    }

    async fn pull(
        &self,
        reference: &Reference,
        credentials: &[Credential],
    ) -> Result<Fetched<Ready>> {
        let pulled = Puller::pull(self, reference, credentials).await?;
        Ok(Fetched {
            id: Self::id(&pulled.image),
            size: pulled.image.size,
            secret: pulled.secret,
            ready: Ready {
                image: pulled.image,
                rootfs: pulled.rootfs,
            },
        })
    }
}
