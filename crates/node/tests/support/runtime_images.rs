//! The image service of the fake runtime.

use allot_protos::cri_v1 as v1;
use tonic::{Request, Response, Status};
use v1::image_service_server::ImageService;

use super::{Answer, Server};

#[tonic::async_trait]
impl ImageService for Server {
    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Answer<v1::ListImagesResponse> {
        let (images, garbage) = {
            let state = self.state();
            (state.images.clone(), state.sends_garbage)
        };
        let images = images.into_iter().map(|(name, image)| v1::Image {
            repo_tags: vec![name],
            size: if garbage { u64::MAX } else { image.size },
            ..image
        });
        Ok(Response::new(v1::ListImagesResponse {
            images: images.collect(),
        }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        let wanted = request.into_inner().image.unwrap_or_default().image;
        self.state().images.retain(|_, image| image.id != wanted);
        Ok(Response::new(Default::default()))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> Answer<v1::ImageFsInfoResponse> {
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: self.state().filesystem.clone().into_iter().collect(),
            container_filesystems: Vec::new(),
        }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        let wanted = request.into_inner().image.unwrap_or_default().image;
        let state = self.state();
        let mut all = state.images.iter();
        let found = all.find(|(name, image)| **name == wanted || image.id == wanted);
        Ok(Response::new(v1::ImageStatusResponse {
            image: found.map(|(_, image)| image.clone()),
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Answer<v1::PullImageResponse> {
        let request = request.into_inner();
        let wanted = request.image.unwrap_or_default().image;
        let password = request.auth.unwrap_or_default().password;
        let mut state = self.state();
        state.passwords.push(password.clone());
        if password != "right" {
            return Err(Status::unknown("401 Unauthorized"));
        }
        let id = format!("sha256:{wanted}");
        let image = v1::Image {
            id: id.clone(),
            ..Default::default()
        };
        state.images.insert(wanted, image);
        Ok(Response::new(v1::PullImageResponse { image_ref: id }))
    }
}
