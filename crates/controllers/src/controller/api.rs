//! Writes that cannot lose fields: creates from JSON, patches, deletes with preconditions.

use allot_apimachinery::quote::go_json_bytes;
use allot_client::delete::by_uid;
use allot_reflector::{Readable, Writes};
use allot_resourceclaim::{Change, Target};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{Request, TypeMeta};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::informer::{Cached, Informer};
use super::meta;
use super::slim;
use crate::Error;

/// The manager name in managedFields.
const FIELD_MANAGER: &str = "allot-controllers";

/// The target of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object without its status.
    Main,
    /// The status subresource.
    Status,
}

/// Gets an object; `None` if there is none.
///
/// # Errors
/// What the API server answered.
pub async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    Ok(allot_reflector::get(api, name, slim::keep::<K>()).await?)
}

/// Sends a JSON merge patch and returns the new object.
///
/// # Errors
/// What the API server answered.
pub async fn patch<K>(api: &Api<K>, name: &str, part: Part, body: &Value) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    send_patch(api, name, part, &Patch::Merge(body)).await
}

/// Sends a strategic merge patch for an object of a built-in kind and returns the new object. Lists that have a key are
/// merged by it. The server needs less for it than for a merge patch, for which it prints the object and reads it again.
///
/// # Errors
/// What the API server answered.
pub async fn patch_strategic<K>(
    api: &Api<K>,
    name: &str,
    part: Part,
    body: &Value,
) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    send_patch(api, name, part, &Patch::Strategic(body)).await
}

/// Changes one field of a claim without touching opaque driver parameters, and returns the new claim.
///
/// # Errors
/// Errors of the API server; a conflict if the claim has another version.
pub async fn change(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    change: Change<'_>,
) -> Result<ResourceClaim, Error> {
    let (target, keep) = (Target::version_of(claim), slim::keep::<ResourceClaim>());
    Ok(allot_resourceclaim::change(api, target, change, Some(FIELD_MANAGER), keep).await?)
}

/// Applies a configuration with a separate field manager, forcing ownership, and returns the new object.
///
/// # Errors
/// What the API server answered.
pub async fn apply<K>(api: &Api<K>, name: &str, manager: &str, body: &Value) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    let params = PatchParams::apply(manager).force();
    let request = Request::new(api.resource_url()).patch(name, &params, &Patch::Apply(body));
    let request = request.map_err(kube::Error::BuildRequest)?;
    Ok(allot_reflector::request(&api.clone().into_client(), request, slim::keep::<K>()).await?)
}

async fn send_patch<K>(
    api: &Api<K>,
    name: &str,
    part: Part,
    patch: &Patch<&Value>,
) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..allot_client::patch_params()
    };
    let request = Request::new(api.resource_url());
    let request = match part {
        Part::Main => request.patch(name, &params, patch),
        Part::Status => request.patch_subresource("status", name, &params, patch),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    Ok(allot_reflector::request(&api.clone().into_client(), request, slim::keep::<K>()).await?)
}

/// The metadata of a patch that is refused when the object changed since it was read.
pub fn unchanged<K: Resource>(obj: &K) -> Value {
    json!({
        "uid": meta::uid(obj),
        "resourceVersion": obj.meta().resource_version,
    })
}

/// The metadata of a patch that is refused when the object is not the same one any longer.
pub fn same<K: Resource>(obj: &K) -> Value {
    json!({ "uid": meta::uid(obj) })
}

/// Creates an object from JSON, so that fields unknown to the types are kept.
///
/// # Errors
/// What the API server answered.
pub async fn create<K>(client: &Client, api: &Api<K>, body: &Value) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..Default::default()
    };
    // As Go writes it: opaque parameters are stored as sent, and must be unchanged when a patch makes the server
    // serialise them again.
    let request = Request::new(api.resource_url())
        .create(&params, go_json_bytes(body))
        .map_err(kube::Error::BuildRequest)?;
    Ok(allot_reflector::request(client, request, slim::keep::<K>()).await?)
}

/// As [`create`], for kinds with many objects: in protobuf where the server prefers it.
///
/// # Errors
/// What the API server answered.
pub async fn create_whole<K>(writes: &Writes, api: &Api<K>, body: &Value) -> Result<K, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    let url = format!("{}?fieldManager={FIELD_MANAGER}", api.resource_url());
    let keep = slim::keep::<K>();
    Ok(writes.send(http::Method::POST, &url, body, keep).await?)
}

/// The result of a deletion: the object is gone, or it waits for finalizers.
#[derive(Debug)]
pub enum Outcome<K> {
    /// The object does not exist (any longer).
    Gone,
    /// Deletion has begun; this is the object now.
    Marked(Box<K>),
}

/// Deletes an object if it still has that UID. An object that does not exist counts as success.
///
/// # Errors
/// What the API server answered, except not found. A different UID is a conflict.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    options: Delete,
) -> Result<Outcome<K>, Error>
where
    K: Resource + Readable + Clone + 'static,
{
    let mut params = by_uid(uid.to_owned());
    params.grace_period_seconds = options.grace;
    params.propagation_policy = options.propagation;
    if let Some(seen) = &mut params.preconditions {
        seen.resource_version = options.resource_version;
    }
    let request = Request::new(api.resource_url()).delete(name, &params);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let answer = api.clone().into_client().request_text(request).await;
    match answer.map_err(Error::from) {
        Ok(text) => Ok(match object::<K>(&text)? {
            Some(obj) if meta::deleting(&obj) && meta::uid(&obj) == uid => {
                Outcome::Marked(Box::new(obj))
            }
            _ => Outcome::Gone,
        }),
        Err(error) if error.is_not_found() => Ok(Outcome::Gone),
        Err(error) => Err(error),
    }
}

/// The object that a delete is answered with; `None` if it is a Status.
fn object<K: Readable + 'static>(text: &str) -> Result<Option<K>, Error> {
    let head: TypeMeta = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
    if head.kind == "Status" {
        return Ok(None);
    }
    let object = K::read(text, slim::keep::<K>()).map_err(kube::Error::SerdeError)?;
    Ok(Some(object))
}

/// Deletes a cached object and stores the result in the cache, so that the next read does not return the old state.
///
/// # Errors
/// Like [`delete`]; an object that was replaced by another of the same name counts as deleted.
pub async fn delete_cached<K: Cached>(
    cache: &Informer<K>,
    api: &Api<K>,
    obj: &K,
    options: Delete,
) -> Result<(), Error> {
    match delete(api, meta::name(obj), meta::uid(obj), options).await {
        Ok(Outcome::Gone) => cache.assume_gone(obj),
        Ok(Outcome::Marked(new)) => cache.assume(*new),
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The options of a deletion, a subset of `metav1.DeleteOptions`.
#[derive(Debug, Default, Clone)]
pub struct Delete {
    /// Seconds until the object is removed without waiting; the kind's default if not set.
    pub grace: Option<u32>,
    /// What happens to dependents; the kind's default if not set.
    pub propagation: Option<PropagationPolicy>,
    /// Delete only this state of the object.
    pub resource_version: Option<String>,
}
