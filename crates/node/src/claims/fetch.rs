//! Claims from the API server, in any served version.

use allot_model::classic::objects::{ResourceClaim as ClassicClaim, ResourceHandle};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::cache::Device;
use crate::error::api_message;
use crate::resource_api::ResourceApi;

/// Why a claim cannot be read. The text of most is the API server's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The API server does not answer, or has no such claim.
    #[error("{}", api_message(.0))]
    Api(#[from] Box<kube::Error>),
    /// The API server serves no version of `resource.k8s.io` that has claims.
    #[error("the server could not find the requested resource")]
    NotServed,
    /// The claim's name is not one.
    #[error(transparent)]
    Name(#[from] http::Error),
    /// The object is not a claim.
    #[error("unexpected claim: {0}")]
    Unexpected(#[from] serde_json::Error),
}

/// What matters of a claim here.
#[derive(Debug, Clone, Default)]
pub(crate) struct FetchedClaim {
    pub(crate) metadata: ObjectMeta,
    /// Class of a classic claim.
    pub(crate) class: Option<String>,
    /// Resource handles of a classic claim, at least one if it is allocated.
    pub(crate) handles: Vec<ResourceHandle>,
    /// Whose plugins have to prepare it, each once.
    pub(crate) drivers: Vec<String>,
    /// The devices that were allocated, by driver.
    pub(crate) results: Vec<(String, Device)>,
    pub(crate) allocated: bool,
    /// UIDs of the consumers in `status.reservedFor`.
    pub(crate) reserved_for: Vec<String>,
    /// Names of the groups whose pods may use it.
    pub(crate) reserved_for_groups: Vec<String>,
}

impl FetchedClaim {
    /// One of 1.30 or before.
    pub(crate) fn is_classic(&self) -> bool {
        self.class.is_some()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The claim was created for this pod, or for its PodGroup.
    pub(crate) fn is_owned_by(&self, uid: &str, group: Option<&str>) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| {
            let of_group = owner.kind == "PodGroup" && Some(owner.name.as_str()) == group;
            owner.controller == Some(true) && (owner.uid == uid || of_group)
        })
    }

    /// The claim is reserved for this pod, or for the group that it is in.
    pub(crate) fn is_reserved_for(&self, uid: &str, group: Option<&str>) -> bool {
        let mut groups = self.reserved_for_groups.iter();
        self.reserved_for.iter().any(|u| u == uid) || groups.any(|g| Some(g.as_str()) == group)
    }

    fn newer(metadata: ObjectMeta, status: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let results = list(&status["allocation"]["devices"]["results"]);
        let consumers = list(&status["reservedFor"]);
        let device = |result: &Value| Device {
            pool: text(&result["pool"]),
            device: text(&result["device"]),
            share_id: result["shareID"].as_str().map(str::to_owned),
            requests: vec![text(&result["request"])],
            cdi_ids: Vec::new(),
        };
        let groups = consumers.iter().filter(|c| c["resource"] == "podgroups");
        Self {
            metadata,
            drivers: unique(results.iter().map(|result| text(&result["driver"]))),
            results: results
                .iter()
                .map(|result| (text(&result["driver"]), device(result)))
                .collect(),
            allocated: status["allocation"].is_object(),
            reserved_for: consumers
                .iter()
                .map(|consumer| text(&consumer["uid"]))
                .collect(),
            reserved_for_groups: groups.map(|consumer| text(&consumer["name"])).collect(),
            ..Self::default()
        }
    }
}

impl From<ClassicClaim> for FetchedClaim {
    fn from(claim: ClassicClaim) -> Self {
        let status = claim.status;
        let allocated = status.allocation.is_some();
        let allocation = status.allocation.unwrap_or_default();
        let mut handles = allocation.resource_handles;
        if allocated && handles.is_empty() {
            // Of v1alpha1, or only marked as allocated.
            handles.push(ResourceHandle {
                data: allocation.resource_handle,
                ..ResourceHandle::default()
            });
        }
        for handle in &mut handles {
            if handle.driver_name.is_empty() {
                handle.driver_name.clone_from(&status.driver_name);
            }
        }
        Self {
            metadata: claim.metadata,
            results: Vec::new(),
            class: Some(claim.spec.resource_class_name),
            drivers: unique(handles.iter().map(|handle| handle.driver_name.clone())),
            handles,
            allocated,
            reserved_for: status
                .reserved_for
                .into_iter()
                .map(|consumer| consumer.uid)
                .collect(),
            reserved_for_groups: Vec::new(),
        }
    }
}

/// In the order of first appearance.
fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

impl ResourceApi {
    /// The claim of that name. The text of an error is the API server's.
    pub(crate) async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<FetchedClaim, FetchError> {
        let served = self.served().await.map_err(Box::new)?;
        // A server with both generations shows classic claims in the newer version too, with the original inside.
        let version = served
            .newer
            .or(served.classic)
            .ok_or(FetchError::NotServed)?;
        let path = format!(
            "/apis/{}/{version}/namespaces/{namespace}/resourceclaims/{name}",
            allot_model::GROUP
        );
        let request = http::Request::get(path).body(Vec::new())?;
        let object: Value = self.client().request(request).await.map_err(|error| {
            if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                // The version may no longer be served, while the claim exists.
                self.forget_served();
            }
            Box::new(error)
        })?;
        if served.newer.is_none() {
            let claim: ClassicClaim = serde_json::from_value(object)?;
            return Ok(claim.into());
        }
        let metadata = ObjectMeta::deserialize(&object["metadata"])?;
        Ok(match ClassicClaim::from_v1(&metadata) {
            Some(claim) => claim.into(),
            None => FetchedClaim::newer(metadata, &object["status"]),
        })
    }
}
