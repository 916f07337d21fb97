//! `serviceaccounts/token`: a bound token for a service account.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::{GroupKind, GroupResource};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::admission::{self, Operation};
use crate::auth::Bound;
use crate::body::Body;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Shape;
use crate::object::{meta, strings, text, timestamp};
use crate::rest::Call;

const API_VERSION: &str = "authentication.k8s.io/v1";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let mut request = call.object_of(&body, API_VERSION, "TokenRequest")?;
    let sent = meta(&request, "name");
    if !sent.is_empty() && sent != call.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    admission::admit_sent(&call, Operation::Create, &mut request).await?;
    let entry = call
        .core
        .backend
        .get("serviceaccounts", &call.key())
        .await?
        .ok_or_else(|| call.not_found())?;
    let account: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
    let seconds = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_SECONDS);
    validate(seconds)?;
    let signer = call.core.authenticator.signer()?;
    let mut audiences = strings(&request["spec"]["audiences"]);
    if audiences.is_empty() {
        audiences.push(signer.issuer().to_owned());
    }
    let mut bound = Bound {
        namespace: call.namespace().to_owned(),
        account: (call.name().to_owned(), meta(&account, "uid").to_owned()),
        audiences: audiences.clone(),
        id: uuid::Uuid::new_v4().to_string(),
        ..Bound::default()
    };
    bind(&call, &request["spec"]["boundObjectRef"], &mut bound).await?;
    let now = jiff::Timestamp::now();
    let token = signer
        .sign(&bound, now.as_second(), seconds)
        .map_err(|error| ApiError::from(Status::internal(&error.to_string())))?;
    let end = now + jiff::SignedDuration::from_secs(seconds);
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = seconds.into();
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["metadata"] = json!({
        "name": call.name(), "namespace": call.namespace(), "creationTimestamp": timestamp(now),
    });
    request["status"] = json!({"token": token, "expirationTimestamp": timestamp(end)});
    let media = crate::negotiate::Media {
        shape: Shape::Whole,
        ..call.media
    };
    Ok(value_response(201, &request, media))
}

fn validate(seconds: i64) -> Result<()> {
    let path = Path::new("spec").child("expirationSeconds");
    let mut errors = ErrorList::new();
    if seconds < MIN_SECONDS {
        errors.push(Error::invalid(
            &path,
            seconds,
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > MAX_SECONDS {
        errors.push(Error::invalid(
            &path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &GroupKind::new("authentication.k8s.io", "TokenRequest"),
        "",
        &errors,
    )
    .into())
}

/// Binds the token to a pod, node or secret that exists.
async fn bind(call: &Call<'_>, reference: &Value, bound: &mut Bound) -> Result<()> {
    if reference.is_null() {
        return Ok(());
    }
    let (kind, name, uid) = (
        text(reference, &["kind"]),
        text(reference, &["name"]),
        text(reference, &["uid"]),
    );
    let (plural, key) = match kind {
        "Pod" => ("pods", format!("{}/{name}", call.namespace())),
        "Secret" => ("secrets", format!("{}/{name}", call.namespace())),
        "Node" => ("nodes", name.to_owned()),
        other => {
            let message = format!(
                "cannot bind token for serviceaccount {:?} to object of type {other:?}",
                call.name()
            );
            return Err(ApiError::bad_request(message));
        }
    };
    let resource = GroupResource::new("", plural);
    let entry = call.core.backend.get(plural, &key).await?;
    let object: Value = entry
        .and_then(|entry| serde_json::from_slice(&entry.value).ok())
        .unwrap_or(Value::Null);
    if object.is_null() {
        return Err(Status::not_found(&resource, name).into());
    }
    let found = meta(&object, "uid");
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&resource, name, &why).into());
    }
    let target = Some((name.to_owned(), found.to_owned()));
    match kind {
        "Pod" => {
            if text(&object, &["spec", "serviceAccountName"]) != call.name() {
                let message = format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    call.name()
                );
                return Err(ApiError::bad_request(message));
            }
            let node = text(&object, &["spec", "nodeName"]);
            if !node.is_empty() {
                let entry = call.core.backend.get("nodes", node).await?;
                let found: Value = entry
                    .and_then(|entry| serde_json::from_slice(&entry.value).ok())
                    .unwrap_or(Value::Null);
                bound.node = Some((node.to_owned(), meta(&found, "uid").to_owned()));
            }
            bound.pod = target;
        }
        "Node" => bound.node = target,
        _ => bound.secret = target,
    }
    Ok(())
}
