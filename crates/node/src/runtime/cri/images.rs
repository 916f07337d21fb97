//! The images of the runtime.

use allot_images::{Credential, Error};
use allot_protos::cri_v1 as v1;

use super::Inner;
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
    let names = image.repo_tags.into_iter().chain(image.repo_digests);
    Image {
        user: match image.uid {
            Some(uid) => uid.value.to_string(),
            None => image.username,
        },
        reference: names.into_iter().next().unwrap_or_else(|| image.id.clone()),
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
