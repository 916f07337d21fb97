//! `serviceaccounts/token`: a bound token for a service account.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::{GroupKind, GroupResource};
use allot_model::features::Release;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::auth::{Bound, LONGEST_SECONDS, Life};
use crate::body::Body;
use crate::context::Call;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Shape;
use crate::object::{meta, metadata_mut, split_api_version, strings, text, timestamp};

const GROUP: &str = "authentication.k8s.io";
const API_VERSION: &str = "authentication.k8s.io/v1";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
/// The life by which admission marks the tokens that it mounts into pods, and how long these live.
const MOUNTED_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let mut request = call.object_of(&body, API_VERSION, KIND)?;
    call.check_namespace(&mut request)?;
    // The default is the client's, too.
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    crate::managed::own_answered(API_VERSION, KIND, "token", &call.manager, &mut request);
    // A node may not find out by this which accounts there are.
    call.admit_sent(Operation::Create, &mut request).await?;
    let sent = meta(&request, "name");
    if !sent.is_empty() && sent != call.name() {
        let path = Path::new("metadata").child("name");
        let text = "must match the service account name if specified";
        let error = Error::invalid(&path, sent, text);
        return Err(Status::invalid(&kind(), call.name(), &[error].into()).into());
    }
    let account = call
        .core
        .stored("serviceaccounts", &call.key()?)
        .await?
        .ok_or_else(|| call.not_found())?;
    let account_uid = meta(&account, "uid");
    check_uid(&call, meta(&request, "uid"), account_uid)?;
    let seconds = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_SECONDS);
    validate(seconds)?;
    let signer = call.core.authenticator.signer()?;
    let (options, mut audiences) = (signer.options(), strings(&request["spec"]["audiences"]));
    if audiences.is_empty() {
        audiences = options.audiences().to_vec();
    }
    let mut bound = Bound {
        namespace: call.namespace().to_owned(),
        account: (call.name().to_owned(), account_uid.to_owned()),
        audiences: audiences.clone(),
        id: uuid::Uuid::new_v4().to_string(),
        ..Bound::default()
    };
    bind(&call, &request["spec"]["boundObjectRef"], &mut bound).await?;
    let seconds = match options.max_seconds {
        Some(most) if most < seconds => {
            call.request.warnings.add(format!(
                "requested expiration of {seconds} seconds shortened to {most} seconds"
            ));
            most
        }
        _ => seconds,
    };
    let mut life = Life {
        seconds,
        noted_after: None,
    };
    // Programs in pods that read their token only once go on working.
    let for_here = || audiences.iter().all(|it| options.audiences().contains(it));
    if options.is_extended && bound.pod.is_some() && seconds == MOUNTED_SECONDS && for_here() {
        life = Life {
            seconds: EXTENDED_SECONDS,
            noted_after: Some(seconds),
        };
    }
    let now = jiff::Timestamp::now();
    let token = signer
        .sign(&bound, now.as_second(), life)
        .map_err(|error| ApiError::from(Status::internal(&error.to_string())))?;
    let end = now + jiff::SignedDuration::from_secs(seconds);
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = seconds.into();
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    let metadata = metadata_mut(&mut request);
    metadata.retain(|_, value| !value.is_null());
    let known = [
        ("name", call.name().to_owned()),
        ("namespace", call.namespace().to_owned()),
        ("creationTimestamp", timestamp(now)),
    ];
    for (key, value) in known {
        metadata.insert(key.to_owned(), value.into());
    }
    // One that is not the account's has been warned of.
    let uid = metadata.entry("uid").or_insert_with(|| "".into());
    if *uid == "" {
        *uid = account_uid.into();
    }
    request["status"] = json!({"token": token, "expirationTimestamp": timestamp(end)});
    let request = match call.media.shape {
        shape if shape.is_metadata() => crate::view::metadata_only(request, shape),
        _ => request,
    };
    let media = crate::negotiate::MediaType {
        shape: Shape::Whole,
        ..call.media
    };
    Ok(value_response(201, &request, media))
}

fn kind() -> GroupKind {
    GroupKind::new(GROUP, KIND)
}

/// A token request for an account that was deleted and recreated does not refer to the new one.
fn check_uid(call: &Call<'_>, sent: &str, found: &str) -> Result<()> {
    if sent.is_empty() || sent == found {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({sent}) does not match the UID of the service account ({found})"
    );
    // TokenRequestServiceAccountUIDValidation.
    if call.core.config.features.release() >= Release::new(34) {
        return Err(Status::conflict(&GroupResource::new(GROUP, KIND), call.name(), &why).into());
    }
    call.request.warnings.add(format!(
        "{why} but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict \
         error"
    ));
    Ok(())
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
    if seconds > LONGEST_SECONDS {
        errors.push(Error::invalid(
            &path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&kind(), "", &errors).into())
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
    let api_version = text(reference, &["apiVersion"]);
    // Two slashes are no valid version: then Go has neither group nor version.
    let (group, version) = match api_version.matches('/').count() {
        0 | 1 => split_api_version(api_version),
        _ => ("", ""),
    };
    let (plural, key) = match kind {
        "Pod" if group.is_empty() => ("pods", format!("{}/{name}", call.namespace())),
        "Secret" if group.is_empty() => ("secrets", format!("{}/{name}", call.namespace())),
        "Node" if group.is_empty() => ("nodes", name.to_owned()),
        other => {
            let message =
                format!("cannot bind token to object of type {group}/{version}, Kind={other}");
            return Err(ApiError::bad_request(message));
        }
    };
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    if let Some(why) = allot_apimachinery::names::path_segment_name(name).first() {
        return Err(ApiError::bad_request(format!(
            "Name parameter invalid: {name:?}: {why}"
        )));
    }
    let Some(object) = call.core.stored(plural, &key).await? else {
        return Err(Status::not_found(&GroupResource::new("", plural), name).into());
    };
    if kind == "Pod" && text(&object, &["spec", "serviceAccountName"]) != call.name() {
        let message = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            call.name()
        );
        return Err(ApiError::bad_request(message));
    }
    let found = meta(&object, "uid");
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&GroupResource::new("", kind), name, &why).into());
    }
    let target = Some((name.to_owned(), found.to_owned()));
    match kind {
        "Pod" => {
            let node = text(&object, &["spec", "nodeName"]);
            if !node.is_empty() {
                let found = call.core.stored("nodes", node).await?.unwrap_or_default();
                bound.node = Some((node.to_owned(), meta(&found, "uid").to_owned()));
            }
            bound.pod = target;
        }
        "Node" => bound.node = target,
        _ => bound.secret = target,
    }
    Ok(())
}
