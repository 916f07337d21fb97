//! Changes one field of a ResourceClaim and leaves every byte of the rest.
//!
//! The API server stores opaque driver parameters as the bytes that were written: with spaces, in any order of keys,
//! `1.0` where `1` would do. Every patch of a claim makes the server serialise and parse the claim, and then the
//! parameters have other bytes. Where validation compares them (`spec` never changes, nor does an allocation, and
//! `status.devices` belongs to drivers), it rejects the patch as a change of a field that the patch does not mention.
//! Upstream's components never encounter this: they write whole objects in protobuf, in which parameters stay bytes.
//!
//! So a change is a patch as long as the server takes it, which is the cheapest for both sides; a claim for which it does
//! not is read in protobuf, changed in the one field, and put.

use allot_client::patch_params;
use allot_reflector::{Keep, PROTOBUF};
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Api, Error};
use serde_json::{Value, json};

mod wire;

/// Which claim is changed.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The name of the claim; its namespace is that of the [`Api`].
    pub name: &'a str,
    /// Its uid: another claim of the name is a conflict.
    pub uid: &'a str,
    /// The version that the change is based on: any other is a conflict. `None` for an unconditional change.
    pub version: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// This claim in this version.
    pub fn version_of(claim: &'a ResourceClaim) -> Self {
        Self {
            version: claim.metadata.resource_version.as_deref(),
            ..Self::any_of(claim)
        }
    }

    /// This claim in any version.
    pub fn any_of(claim: &'a ResourceClaim) -> Self {
        Self {
            name: claim.metadata.name.as_deref().unwrap_or_default(),
            uid: claim.metadata.uid.as_deref().unwrap_or_default(),
            version: None,
        }
    }
}

/// The field of a claim that is written, and its new value.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// All finalizers are these.
    Finalizers(&'a [String]),
    /// The value of an annotation; `None` removes it.
    Annotation(&'a str, Option<&'a str>),
    /// The new `status.reservedFor`.
    ReservedFor(&'a [ResourceClaimConsumerReference]),
}

impl Change<'_> {
    /// The subresource that is written.
    fn part(self) -> Option<&'static str> {
        matches!(self, Self::ReservedFor(_)).then_some("status")
    }

    fn patch(self, target: &Target<'_>) -> Value {
        let mut patch = json!({"metadata": {"uid": target.uid}});
        if let Some(version) = target.version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        match self {
            Self::Finalizers(all) => patch["metadata"]["finalizers"] = json!(all),
            Self::Annotation(key, value) => {
                patch["metadata"]["annotations"] = json!({ key: value });
            }
            Self::ReservedFor([]) => patch["status"] = json!({"reservedFor": null}),
            Self::ReservedFor(all) => patch["status"] = json!({"reservedFor": all}),
        }
        patch
    }

    fn edit(self, claim: &mut wire::Claim) -> Option<()> {
        match self {
            Self::Finalizers(all) => claim.set_finalizers(all),
            Self::Annotation(key, value) => claim.set_annotation(key, value),
            Self::ReservedFor(all) => claim.set_reserved_for(all),
        }
    }
}

/// Makes a change under the name of a field manager, and returns the changed claim, decoded with `keep`.
///
/// # Errors
/// Errors of the API server; a conflict also if the claim is not the [`Target`] any longer.
pub async fn change(
    api: &Api<ResourceClaim>,
    target: Target<'_>,
    change: Change<'_>,
    manager: Option<&str>,
    keep: Keep,
) -> Result<ResourceClaim, Error> {
    let params = PatchParams {
        field_manager: manager.map(str::to_owned),
        ..patch_params()
    };
    let patch = Patch::Merge(change.patch(&target));
    let request = Request::new(api.resource_url());
    let request = match change.part() {
        Some(part) => request.patch_subresource(part, target.name, &params, &patch),
        None => request.patch(target.name, &params, &patch),
    };
    let request = request.map_err(Error::BuildRequest)?;
    let client = api.clone().into_client();
    let invalid = match allot_reflector::request(&client, request, keep).await {
        Err(Error::Api(status)) if status.code == 422 => status,
        done => return done,
    };
    loop {
        match put(api, target, change, manager, keep).await {
            Ok(Some(written)) => return Ok(written),
            // A server without protobuf does not preserve bytes either: its error is final.
            Ok(None) => return Err(Error::Api(invalid)),
            // Another write in between; the version of the target does not matter.
            Err(Error::Api(status)) if status.code == 409 && target.version.is_none() => {
                let found = allot_reflector::get(api, target.name, keep).await?;
                if found.is_none_or(|c| c.metadata.uid.as_deref() != Some(target.uid)) {
                    return Err(Error::Api(status));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads the claim in protobuf and puts it with the change; `None` if it is not available in protobuf.
async fn put(
    api: &Api<ResourceClaim>,
    target: Target<'_>,
    change: Change<'_>,
    manager: Option<&str>,
    keep: Keep,
) -> Result<Option<ResourceClaim>, Error> {
    let client = api.clone().into_client();
    let url = api.resource_url();
    let get = http::Request::get(format!("{url}/{}", target.name)).header(ACCEPT, PROTOBUF);
    let get = get.body(Body::empty()).map_err(Error::HttpError)?;
    let answer = client.send(get).await?;
    if answer.status() == http::StatusCode::NOT_FOUND {
        let text = format!("claim {} is gone", target.name);
        return Err(refused(404, "NotFound", &text));
    }
    let body = answer.into_body().collect().await?.to_bytes();
    let Some(mut claim) = wire::Claim::read(&body) else {
        return Ok(None);
    };
    let version = target.version.unwrap_or_default().as_bytes();
    let changed = !version.is_empty() && version != claim.resource_version();
    if changed || claim.uid() != target.uid.as_bytes() {
        let text = format!("claim {} changed in the meantime", target.name);
        return Err(refused(409, "Conflict", &text));
    }
    let Some(edited) = change.edit(&mut claim).and_then(|()| claim.write()) else {
        return Ok(None);
    };
    let params = PostParams {
        field_manager: manager.map(str::to_owned),
        ..PostParams::default()
    };
    let request = Request::new(url);
    let request = match change.part() {
        Some(part) => request.replace_subresource(part, target.name, &params, edited),
        None => request.replace(target.name, &params, edited),
    };
    let mut request = request.map_err(Error::BuildRequest)?;
    let protobuf = http::HeaderValue::from_static(PROTOBUF);
    request.headers_mut().insert(CONTENT_TYPE, protobuf);
    let written = allot_reflector::request(&client, request, keep).await;
    written.map(Some)
}

/// An error as the server would have answered.
fn refused(code: u16, reason: &str, message: &str) -> Error {
    Error::Api(Box::new(Status::failure(message, reason).with_code(code)))
}

#[cfg(test)]
mod tests;
