//! The images of the runtime.

use std::collections::BTreeSet;
use std::path::PathBuf;

use allot_images::{Credential, Error};
use allot_protos::cri_v1 as v1;

use super::Inner;
use super::calls::Failure;
use super::translate::annotation;
use crate::runtime::Image;

impl Inner {
    /// Looks up an image in the runtime's image store.
    pub(super) async fn image(&self, reference: &str) -> Result<Option<Image>, String> {
        let request = v1::ImageStatusRequest {
            image: Some(spec(reference)),
            verbose: false,
        };
        let answer = self.calls.image_status(request).await;
        let found = answer.map_err(|failure| failure.to_string())?.image;
        Ok(found.map(|image| Image {
            reference: reference.to_owned(),
            ..translate(image)
        }))
    }

    /// All images in the runtime's image store.
    pub(super) async fn images(&self) -> Result<Vec<Image>, String> {
        let request = v1::ListImagesRequest { filter: None };
        let listed = self.calls.list_images(request).await;
        let listed = listed.map_err(|failure| failure.to_string())?.images;
        Ok(listed.into_iter().map(translate).collect())
    }

    /// IDs of the images that containers use. All containers count: the runtime may have other users.
    pub(super) async fn images_in_use(&self) -> Result<BTreeSet<String>, String> {
        let text = |failure: Failure| failure.to_string();
        let request = v1::ListContainersRequest { filter: None };
        let containers = self.calls.list_containers(request).await;
        let containers = containers.map_err(text)?.containers;
        let request = v1::ListImagesRequest { filter: None };
        let images = self.calls.list_images(request).await.map_err(text)?.images;
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
    pub(super) async fn remove_image(&self, id: &str) -> Result<(), String> {
        let image = Some(spec(id));
        let request = v1::RemoveImageRequest { image };
        let removed = self.calls.remove_image(request).await;
        removed.map(drop).map_err(|failure| failure.to_string())
    }

    /// A directory on the file system that the images are on.
    pub(super) async fn image_directory(&self) -> Result<PathBuf, String> {
        let told = self.calls.image_fs_info(v1::ImageFsInfoRequest {}).await;
        let told = told.map_err(|failure| failure.to_string())?;
        let first = told.image_filesystems.into_iter().next();
        let first = first.and_then(|it| it.fs_id).map(|it| it.mountpoint);
        first
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .ok_or_else(|| "the runtime does not tell where its images are".to_owned())
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
        let found = self.image(&pulled.image_ref).await.map_err(undecided)?;
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
        size: image.size,
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
