//! Access to `resource.k8s.io` in whichever version the API server serves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allot_client::api_message;
use allot_model::{Kind, Version, convert};
use allot_reflector::{Readable as _, everything};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, AllocationResult, ResourceSlice};
use kube::Client;
use serde_json::{Value, json};

use crate::allocated::Claim;
use crate::bounds::ANSWER_LIMIT;
use crate::claim::ClaimRef;

/// Newest first; v1alpha3 is that of 1.31. Older versions have no structured devices.
const VERSIONS: [Version; 4] = Version::ALL;

/// Why the API server did not give or take an object.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The request failed.
    #[error("{}", api_message(.0))]
    Kube(#[from] kube::Error),
    /// An answer that is not of the expected shape.
    #[error("unexpected answer of the API server: {0}")]
    Shape(#[from] serde_json::Error),
    /// A slice that cannot be brought into the API server's version, or back.
    #[error(transparent)]
    Convert(#[from] convert::Error),
    /// The request could not be built.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The claim is not ready to be prepared.
    #[error("{0}")]
    Claim(String),
    /// The API server did not answer, or its answer did not come to an end.
    #[error("no answer of the API server within {0:?}")]
    NoAnswer(Duration),
}

/// Waits for a request and its answer; an error if that takes longer than [`ANSWER_LIMIT`].
pub(crate) async fn answered<F: Future>(request: F) -> Result<F::Output, AccessError> {
    let answer = tokio::time::timeout(ANSWER_LIMIT, request).await;
    answer.map_err(|_| AccessError::NoAnswer(ANSWER_LIMIT))
}

/// A client that remembers which version works.
pub(crate) struct ResourceApi {
    client: Client,
    version: AtomicUsize,
}

impl ResourceApi {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            version: AtomicUsize::new(0),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The version that answered last.
    pub(crate) fn version(&self) -> Version {
        VERSIONS[self.version.load(Ordering::Relaxed) % VERSIONS.len()]
    }

    /// Sends `method path` below the group, trying older versions when the server does not know the newer ones.
    async fn request(
        &self,
        method: &str,
        path: &str,
        body: impl Fn(Version) -> Result<Value, AccessError>,
    ) -> Result<(Version, Value), AccessError> {
        let first = self.version.load(Ordering::Relaxed);
        let mut last = None;
        for step in 0..VERSIONS.len() {
            let index = (first + step) % VERSIONS.len();
            let version = VERSIONS[index];
            let body = body(version)?;
            let bytes = if body.is_null() {
                Vec::new()
            } else {
                serde_json::to_vec(&body)?
            };
            let request = http::Request::builder()
                .method(method)
                .uri(format!("/apis/resource.k8s.io/{version}/{path}"))
                .header("content-type", content_type(method))
                .body(bytes)?;
            let answer = allot_reflector::request(&self.client, request, everything);
            match answered(answer).await? {
                Ok(value) => {
                    self.version.store(index, Ordering::Relaxed);
                    return Ok((version, value));
                }
                Err(error) if unknown_version(&error) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        // The loop ran at least once and ends only with an error.
        Err(last.map_or_else(
            || AccessError::Claim("no API version".into()),
            AccessError::Kube,
        ))
    }

    /// The claim, allocated and with this very UID.
    pub(crate) async fn claim(&self, wanted: &ClaimRef) -> Result<Claim, AccessError> {
        let path = format!(
            "namespaces/{}/resourceclaims/{}",
            wanted.namespace, wanted.name
        );
        let (_, object) = self.request("GET", &path, |_| Ok(Value::Null)).await?;
        if object["metadata"]["uid"].as_str() != Some(&wanted.uid) {
            return Err(AccessError::Claim(format!("claim {wanted} got replaced")));
        }
        let allocation = &object["status"]["allocation"];
        if !allocation.is_object() {
            return Err(AccessError::Claim(format!("claim {wanted} not allocated")));
        }
        // status.allocation has the same shape in all versions.
        let allocation = AllocationResult::deserialize_value(allocation)?;
        Ok(Claim {
            reference: wanted.clone(),
            allocation,
            object,
            journal: None,
            read: Default::default(),
        })
    }

    /// Whether the API server reports that no claim with this name and UID exists.
    pub(crate) async fn is_gone(&self, claim: &ClaimRef) -> Result<bool, AccessError> {
        let path = format!(
            "namespaces/{}/resourceclaims/{}",
            claim.namespace, claim.name
        );
        match self.request("GET", &path, |_| Ok(Value::Null)).await {
            Ok((_, object)) => Ok(object["metadata"]["uid"].as_str() != Some(&claim.uid)),
            Err(AccessError::Kube(error)) if is_missing(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Server-side apply of `status.devices` by a field manager. With a resource version it is refused with a conflict if the
    /// claim has changed since.
    pub(crate) async fn apply_device_status(
        &self,
        claim: &ClaimRef,
        manager: &str,
        resource_version: Option<&str>,
        devices: Vec<AllocatedDeviceStatus>,
    ) -> Result<(), AccessError> {
        let devices = serde_json::to_value(devices)?;
        let path = format!(
            "namespaces/{}/resourceclaims/{}/status?fieldManager={}&force=true",
            claim.namespace,
            claim.name,
            query_value(manager)
        );
        // With the UID it is rejected for a later claim of the same name.
        let mut metadata =
            json!({"namespace": claim.namespace, "name": claim.name, "uid": claim.uid});
        if let Some(resource_version) = resource_version {
            metadata["resourceVersion"] = json!(resource_version);
        }
        let body = |version: Version| {
            Ok(json!({
                "apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceClaim",
                "metadata": metadata,
                "status": {"devices": devices},
            }))
        };
        self.request("PATCH", &path, body).await?;
        Ok(())
    }

    pub(crate) async fn list_slices(
        &self,
        selector: &str,
    ) -> Result<Vec<ResourceSlice>, AccessError> {
        let encoded: String = selector.replace('=', "%3D").replace(',', "%2C");
        let (version, list) = self
            .request(
                "GET",
                &format!("resourceslices?fieldSelector={encoded}"),
                |_| Ok(Value::Null),
            )
            .await?;
        let items = list["items"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        items
            .iter()
            .map(|item| from_wire(item.clone(), version))
            .collect()
    }

    pub(crate) async fn create_slice(
        &self,
        slice: &ResourceSlice,
    ) -> Result<ResourceSlice, AccessError> {
        let value = serde_json::to_value(slice)?;
        let (version, created) = self
            .request("POST", "resourceslices", |version| to_wire(&value, version))
            .await?;
        from_wire(created, version)
    }

    pub(crate) async fn update_slice(
        &self,
        slice: &ResourceSlice,
    ) -> Result<ResourceSlice, AccessError> {
        let value = serde_json::to_value(slice)?;
        let path = format!(
            "resourceslices/{}",
            slice.metadata.name.as_deref().unwrap_or_default()
        );
        let (version, updated) = self
            .request("PUT", &path, |version| to_wire(&value, version))
            .await?;
        from_wire(updated, version)
    }

    /// Deletes exactly the observed object; it need not exist any longer.
    pub(crate) async fn delete_slice(&self, slice: &ResourceSlice) -> Result<(), AccessError> {
        let metadata = &slice.metadata;
        let path = format!(
            "resourceslices/{}",
            metadata.name.as_deref().unwrap_or_default()
        );
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        });
        match self.request("DELETE", &path, |_| Ok(options.clone())).await {
            Ok(_) => Ok(()),
            Err(AccessError::Kube(kube::Error::Api(status))) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Bodies are JSON, which is valid YAML: the type that server-side apply requires.
fn content_type(method: &str) -> &'static str {
    match method {
        "PATCH" => "application/apply-patch+yaml",
        _ => "application/json",
    }
}

/// `serde_json::from_value` without giving up the original.
trait DeserializeValue: Sized {
    fn deserialize_value(value: &Value) -> Result<Self, serde_json::Error>;
}

impl<T: serde::de::DeserializeOwned> DeserializeValue for T {
    fn deserialize_value(value: &Value) -> Result<Self, serde_json::Error> {
        T::deserialize(value)
    }
}

/// The value of a parameter in a URL.
fn query_value(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The object is missing, and not the version.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404) && !unknown_version(error)
}

/// The server has the object's group but not its version; a missing object is another kind of 404.
fn unknown_version(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404
        && status.details.as_ref().is_none_or(|details| details.name.is_empty()))
}

/// A slice in `version`.
fn to_wire(slice: &Value, version: Version) -> Result<Value, AccessError> {
    let mut slice = convert::convert(Kind::ResourceSlice, Version::V1, version, slice.clone())?;
    slice["kind"] = json!("ResourceSlice");
    Ok(slice)
}

/// A slice of `version`.
fn from_wire(slice: Value, version: Version) -> Result<ResourceSlice, AccessError> {
    let mut slice = convert::convert(Kind::ResourceSlice, version, Version::V1, slice)?;
    slice["kind"] = json!("ResourceSlice");
    Ok(ResourceSlice::read(&slice.to_string(), everything)?)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// The attack: one slice that cannot be read, of whatever driver of the node, and the devices are published no more.
    #[tokio::test]
    async fn regression_slices_with_unreadable_parts_are_listed() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let slice = |owners: &str| {
                format!(
                    r#"{{"metadata": {{"name": "s", "managedFields": [{owners}]}}, "spec": {{"driver": "d", "nodeName": "n",
                    "pool": {{"name": "n", "generation": 1, "resourceSliceCount": 1}}}}}}"#
                )
            };
            let deep = format!(
                r#"{{"fieldsV1": {}1{}}}"#,
                r#"{"f:a":"#.repeat(500),
                "}".repeat(500)
            );
            let slices = [
                r#"{"time": "9999-12-31T23:59:59Z"}"#,
                r#"{"time": "-001-12-31T23:00:00Z"}"#,
                r#"{"manager": "\ud800"}"#,
                &deep,
            ];
            let list = format!(
                r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {{}}, "items": [{}]}}"#,
                slices.map(slice).join(",")
            );
            Ok::<_, Infallible>(Response::new(Body::from(list.into_bytes())))
        });
        let api = ResourceApi::new(Client::new(service, "default"));
        let slices = api.list_slices("spec.driver=d").await.expect("slices");
        assert_eq!(slices.len(), 4);
    }

    /// A request to an API server that never ends its answer stopped whatever waited for it: publishing, for example.
    #[tokio::test(start_paused = true)]
    async fn regression_an_answer_that_does_not_end_is_given_up() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let byte = |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, Infallible>(http_body::Frame::data(" ".into())), ()))
            };
            let bytes = http_body_util::StreamBody::new(futures::stream::unfold((), byte));
            Ok::<_, Infallible>(Response::new(bytes))
        });
        let api = ResourceApi::new(Client::new(service, "default"));
        let error = api.list_slices("spec.driver=d").await.unwrap_err();
        assert_eq!(error.to_string(), "no answer of the API server within 30s");
    }
}
