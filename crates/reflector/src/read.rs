//! Reading objects from their text, with one copy of the code per kind in the whole program.
//!
//! Decoding a typed object is generic over the format: the compiler instantiates it for text, for JSON trees and for
//! serde's buffers, and in every crate that calls it. For pods each copy is half a megabyte. Here it is instantiated
//! once, for text, and all code that decodes objects from the network calls it.

use allot_apimachinery::lean::{self, Keep};
use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, GetParams, ListParams};
use kube::core::{Object, Request};
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::follow::List;
use crate::wire;

mod lenient;

/// A kind that is read from text.
pub trait Readable: Sized {
    /// Whether the kind may also be read in protobuf, which drops fields that the type does not have. False for types
    /// that keep unknown fields.
    const PROTOBUF: bool = false;

    /// Decodes an object, without the fields that `keep` excludes.
    ///
    /// # Errors
    /// The text is not JSON, or does not match the type.
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self>;
}

macro_rules! readable {
    ($protobuf:literal: $($kind:ty),* $(,)?) => {
        $(impl Readable for $kind {
            const PROTOBUF: bool = $protobuf;

            #[inline(never)]
            fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
                parse(text, keep)
            }
        })*
    };
}

readable! {
    true: ClusterRole, ClusterTrustBundle, ConfigMap, ControllerRevision, CronJob, CSIDriver, CSINode, CSIStorageCapacity, DaemonSet,
    Deployment, DeviceClass, Endpoints, EndpointSlice, IPAddress, Job, Lease, Namespace, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodCertificateRequest, PodDisruptionBudget, ReplicaSet, ResourceClaim, ResourceClaimTemplate,
    ResourcePoolStatusRequest, ResourceQuota, ResourceSlice, Secret, Service, ServiceAccount, ServiceCIDR, StatefulSet,
    StorageClass, VolumeAttachment, VolumeAttributesClass,
}

readable! {
    false: CustomResourceDefinition, DynamicObject,
}

impl Readable for Value {
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
        parse(text, keep)
    }
}

impl<P, U> Readable for Object<P, U>
where
    P: DeserializeOwned + Clone,
    U: DeserializeOwned + Clone + Default,
{
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
        parse(text, keep)
    }
}

/// Reads any type from text; for implementations of [`Readable`] elsewhere. Values that servers accept and the types cannot
/// represent are replaced by the nearest ones, because one object must not end the watch of all objects.
///
/// # Errors
/// As [`Readable::read`].
pub fn parse<T: DeserializeOwned>(text: &str, keep: Keep) -> serde_json::Result<T> {
    exactly(text, keep).or_else(|error| match lenient::readable(text) {
        Some(other) => exactly(&other, keep),
        None => Err(error),
    })
}

fn exactly<T: DeserializeOwned>(text: &str, keep: Keep) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = lean::read(&mut deserializer, keep)?;
    deserializer.end()?;
    Ok(read)
}

/// Sends a request whose response is an object or a short list.
///
/// # Errors
/// The response of the server, or the error if it cannot be read, has more than 64 MiB, or does not end within five minutes.
pub async fn request<K: Readable>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    keep: Keep,
) -> Result<K, Error> {
    let binary = K::PROTOBUF.then_some(keep);
    let text = wire::exchange(client, request, binary, wire::LARGEST_OBJECT).await?;
    K::read(&text, keep).map_err(Error::SerdeError)
}

/// Gets one object; `None` if it does not exist.
///
/// # Errors
/// As [`request`].
pub async fn get<K>(api: &Api<K>, name: &str, keep: Keep) -> Result<Option<K>, Error>
where
    K: Readable + Resource + Clone,
{
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let request = request.map_err(Error::BuildRequest)?;
    match self::request(&api.clone().into_client(), request, keep).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists all objects that `params` select.
///
/// # Errors
/// As [`request`].
pub async fn list<K>(api: &Api<K>, params: &ListParams, keep: Keep) -> Result<Vec<K>, Error>
where
    K: Readable + Resource + Clone,
{
    let request = Request::new(api.resource_url()).list(params);
    let request = request.map_err(Error::BuildRequest)?;
    let (client, binary) = (api.clone().into_client(), K::PROTOBUF.then_some(keep));
    let text = wire::exchange(&client, request, binary, wire::LARGEST_LIST).await?;
    let list: List<'_> = serde_json::from_str(&text).map_err(Error::SerdeError)?;
    let items = list.items.iter().map(|item| K::read(item.get(), keep));
    items.collect::<Result<_, _>>().map_err(Error::SerdeError)
}
