//! The images of the runtime.

use std::collections::BTreeSet;
use std::path::PathBuf;

use allot_images::{Credential, Error};
use allot_protos::cri_v1 as v1;

use super::Inner;
use super::translate::annotation;
use crate::runtime::{Disks, Image, RuntimeError};

impl Inner {
    /// Looks up an image in the runtime's image store.
    pub(super) async fn image(&self, reference: &str) -> Result<Option<Image>, RuntimeError> {
        let request = v1::ImageStatusRequest {
            image: Some(spec(reference)),
            verbose: false,
        };
        let found = self.calls.image_status(request).await?.image;
        Ok(found.map(|image| Image {
            reference: reference.to_owned(),
            ..translate(image)
        }))
    }

    /// All images in the runtime's image store.
    pub(super) async fn images(&self) -> Result<Vec<Image>, RuntimeError> {
        let request = v1::ListImagesRequest { filter: None };
        let listed = self.calls.list_images(request).await?.images;
        Ok(listed.into_iter().map(translate).collect())
    }

    /// IDs of the images that containers use. All containers count: the runtime may have other users.
    pub(super) async fn images_in_use(&self) -> Result<BTreeSet<String>, RuntimeError> {
        let request = v1::ListContainersRequest { filter: None };
        let containers = self.calls.list_containers(request).await?.containers;
        let request = v1::ListImagesRequest { filter: None };
        let images = self.calls.list_images(request).await?.images;
        // Runtimes differ in how a container names its image.
        let names = containers.into_iter().flat_map(|container| {
            let spec = container.image.unwrap_or_default();
            let volumes = container.annotations.get(annotation::IMAGES);
            let mut names = vec![container.image_id, container.image_ref, spec.image];
            names.extend(
                volumes
                    .into_iter()
                    .flat_map(|ids| ids.split(','))
                    .map(str::to_owned),
            );
            names
        });
        let names: BTreeSet<String> = names.collect();
        let used = images.into_iter().filter(|image| {
            let mut own = [&image.id]
                .into_iter()
                .chain(&image.repo_tags)
                .chain(&image.repo_digests);
            own.any(|name| names.contains(name))
        });
        Ok(used.map(|image| image.id).collect())
    }

    /// Removes an image with all its names.
    pub(super) async fn remove_image(&self, id: &str) -> Result<(), RuntimeError> {
        let image = Some(spec(id));
        let request = v1::RemoveImageRequest { image };
        self.calls.remove_image(request).await?;
        Ok(())
    }

    /// Directories on the file systems of the images and of what containers write.
    pub(super) async fn disks(&self) -> Result<Disks, RuntimeError> {
        let request = v1::ImageFsInfoRequest {};
        let response = self.calls.image_fs_info(request).await?;
        let first = |all: Vec<v1::FilesystemUsage>| {
            let first = all.into_iter().next().and_then(|it| it.fs_id);
            let path = first.map(|it| it.mountpoint);
            path.filter(|path| !path.is_empty()).map(PathBuf::from)
        };
        Ok(Disks {
            images: first(response.image_filesystems).ok_or(RuntimeError::NoImageDirectory)?,
            containers: first(response.container_filesystems),
        })
    }

    /// Pulls an image from its registry.
    pub(super) async fn pull(
        &self,
        reference: &str,
        credential: Option<&Credential>,
    ) -> Result<Image, Error> {
        let auth = credential.map(|credential| v1::AuthConfig {
            username: credential.username.clone(),
            password: credential.password.clone(),
            ..v1::AuthConfig::default()
        });
        let request = v1::PullImageRequest {
            image: Some(spec(reference)),
            auth,
            sandbox_config: None,
        };
        let pulled = self.calls.pull_image(request).await;
        let pulled = pulled.map_err(|failure| Error::Runtime {
            unanswered: failure.is_away(),
            message: failure.to_string(),
        })?;
        // The image is there, whether or not it can be looked at.
        let undecided = |message| Error::Runtime {
            message,
            unanswered: true,
        };
        let found = self.image(&pulled.image_ref).await;
        let found = found.map_err(|error| undecided(error.to_string()))?;
        let found = found.ok_or_else(|| undecided(format!("image {reference:?} is gone again")))?;
        Ok(Image {
            reference: reference.to_owned(),
            ..found
        })
    }
}

fn translate(image: v1::Image) -> Image {
    let mut names = image.repo_tags.into_iter().chain(image.repo_digests);
    Image {
        user: match image.uid {
            Some(uid) => uid.value.to_string(),
            None => image.username,
        },
        reference: names.next().unwrap_or_else(|| image.id.clone()),
        id: image.id,
        // In the API it has a sign.
        size: image.size.min(i64::MAX.cast_unsigned()),
        pinned: image.pinned,
    }
}

fn spec(reference: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: reference.to_owned(),
        user_specified_image: reference.to_owned(),
        ..v1::ImageSpec::default()
    }
}
