//! `log`, `exec`, `attach`, `portforward`, `proxy`: passed on to the kubelet of the node, or to the workload.

use allot_apimachinery::Status;
use allot_model::features::Feature;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::admission::{self, Attributes, Operation};
use crate::auth::{AuthorizerAttributes, Selectors, authorizer_attributes};
use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::registry::{Connect, Subresource};
use crate::rest::socket::Socket;
use crate::{kubelet, proxy};

pub(super) async fn answer(
    call: Call<'_>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>> {
    let attributes = Attributes {
        operation: Operation::Connect,
        resource: &call.resource,
        subresource: &subresource.name,
        namespace: call.namespace(),
        name: call.name(),
        user: &call.request.user,
        old: None,
        dry_run: false,
        asked: None,
    };
    if !call.core.dynamic.is_empty() {
        // Changes of the options by webhooks are ignored: the kubelet gets the client's options.
        let mut options = options(&call, subresource);
        call.admit_sent(Operation::Connect, &mut options).await?;
    }
    admission::validate(
        call.core,
        &attributes,
        &serde_json::Value::Null,
        &call.request.warnings,
    )
    .await?;
    match (call.resource.rules.connect, subresource.name.as_str()) {
        (Some(Connect::Pod), "log") => log(&call).await,
        (Some(Connect::Pod), "exec" | "attach" | "portforward") => {
            require_create(&call).await?;
            kubelet::stream(&call, &subresource.name).await
        }
        (Some(Connect::Pod), "proxy") => proxy::pod(&call, body).await,
        (Some(Connect::Service), "proxy") => proxy::service(&call, body).await,
        (Some(Connect::Node), "proxy") => kubelet::proxy(&call, body).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// The log of a container, as the body of the answer or over a WebSocket, which counts as a stream of its user.
async fn log(call: &Call<'_>) -> Result<Response<Body>> {
    let stall = call.core.config.limits.stall_timeout;
    let Some(socket) = Socket::of(call.request, stall) else {
        return kubelet::log(call).await;
    };
    let stream = call.core.streams.of(call.request)?;
    let mut answer = kubelet::log(call).await?;
    answer.body_mut().hold(Box::new(stream));
    Ok(socket.carry_log(answer))
}

/// A stream into a pod requires the permission to create it, also if it begins with the `GET` of a WebSocket. The
/// message is upstream's: only the authorizer's reason.
async fn require_create(call: &Call<'_>) -> Result<()> {
    let gate = Feature::AuthorizePodWebsocketUpgradeCreatePermission;
    if call.request.info.verb == "create" || !call.core.config.features.enabled(gate) {
        return Ok(());
    }
    let none = Selectors::default();
    let create = AuthorizerAttributes {
        verb: "create",
        ..authorizer_attributes(call.request, &none)
    };
    let decision = call.core.authorizer.decide(call.core, &create).await?;
    if decision.allowed() {
        return Ok(());
    }
    let resource = call.resource.group_resource();
    Err(Status::forbidden(&resource, call.name(), decision.reason()).into())
}

/// The client's options of the stream, as an object.
fn options(call: &Call<'_>, subresource: &Subresource) -> Value {
    let mut options =
        json!({"kind": subresource.kind, "apiVersion": call.resource.api_version(&call.version)});
    for (key, value) in call.request.query.pairs() {
        match key.as_str() {
            "command" => push(&mut options[key], value.as_str().into()),
            "ports" => {
                let ports = value.split(',').filter_map(|port| port.parse::<i64>().ok());
                ports.for_each(|port| push(&mut options[key], port.into()));
            }
            // Go omits false.
            "stdin"
            | "stdout"
            | "stderr"
            | "tty"
            | "follow"
            | "previous"
            | "timestamps"
            | "insecureSkipTLSVerifyBackend"
                if call.request.query.flag(key) =>
            {
                options[key] = true.into();
            }
            "tailLines" | "limitBytes" | "sinceSeconds" => {
                if let Ok(number) = value.parse::<i64>() {
                    options[key] = number.into();
                }
            }
            "container" | "path" | "sinceTime" | "stream" => options[key] = value.as_str().into(),
            _ => {}
        }
    }
    options
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
}
