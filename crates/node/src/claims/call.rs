//! Calls of plugins, in the version that each of them has.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use allot_model::classic::objects::{AllocationResult, ResourceHandle, StructuredHandle};
use allot_protos::{dra_v1, dra_v1alpha1, dra_v1alpha2, dra_v1alpha3, dra_v1alpha4, dra_v1beta1};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::cache::Device;
use super::error::CallError;
use crate::events::shorten;
use crate::metrics::Metrics;
use crate::plugins::{Plugin, Service};

/// Bytes of an answer; a larger one fails the call. A device takes a few hundred at most, and a claim has 32 by the API.
const LARGEST: usize = 1 << 20;
/// Devices of an answer, with their CDI IDs and requests: what containers of the pod are searched for later.
pub(super) const MOST: usize = 16_384;

/// A driver gets this long for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// A claim as passed to a plugin.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClaimToPrepare {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The resource handle of a classic claim; a claim with several handles is passed several times.
    pub(crate) handle: Option<ResourceHandle>,
    /// The CDI IDs from its preparation, when it is unprepared.
    pub(crate) cdi_ids: Vec<String>,
}

/// UID, error if any, and the prepared devices.
pub(super) type Answer = (String, String, Vec<Device>);
pub(super) type Call =
    fn(Channel, Vec<ClaimToPrepare>) -> BoxFuture<'static, Result<Vec<Answer>, Status>>;

/// A version of the service.
pub(super) struct Version {
    /// Its gRPC name.
    name: &'static str,
    /// Its methods take several claims.
    batched: bool,
    prepare: Call,
    unprepare: Call,
}

/// A version that takes several claims at once.
macro_rules! batched {
    ($version:ident, $name:literal, $wire:ident :: $module:ident :: $client:ident, $claim:expr, $devices:expr) => {
        pub(super) static $version: Version = Version {
            name: $name,
            batched: true,
            prepare: |channel, wanted| {
                async move {
                    let client = $wire::$module::$client::new(channel);
                    let mut client = client.max_decoding_message_size(LARGEST);
                    let claims = wanted.into_iter().map($claim).collect();
                    let request = $wire::NodePrepareResourcesRequest { claims };
                    let answer = client.node_prepare_resources(request).await?;
                    let entries = answer.into_inner().claims.into_iter();
                    Ok(entries
                        .map(|(uid, entry)| (uid, entry.error.clone(), ($devices)(entry)))
                        .collect())
                }
                .boxed()
            },
            unprepare: |channel, wanted| {
                async move {
                    let client = $wire::$module::$client::new(channel);
                    let mut client = client.max_decoding_message_size(LARGEST);
                    let claims = wanted.into_iter().map($claim).collect();
                    let request = $wire::NodeUnprepareResourcesRequest { claims };
                    let answer = client.node_unprepare_resources(request).await?;
                    let entries = answer.into_inner().claims.into_iter();
                    Ok(entries
                        .map(|(uid, entry)| (uid, entry.error, Vec::new()))
                        .collect())
                }
                .boxed()
            },
        };
    };
}

/// A version that takes one claim at a time; the last argument is the handle or CDI IDs for unprepare.
macro_rules! single {
    ($version:ident, $name:literal, $wire:ident, $field:ident, $back:expr) => {
        pub(super) static $version: Version = Version {
            name: $name,
            batched: false,
            prepare: |channel, wanted| {
                async move {
                    let client = $wire::node_client::NodeClient::new(channel);
                    let mut client = client.max_decoding_message_size(LARGEST);
                    let mut answers = Vec::new();
                    for claim in wanted {
                        let request = $wire::NodePrepareResourceRequest {
                            namespace: claim.namespace,
                            claim_uid: claim.uid.clone(),
                            claim_name: claim.name,
                            resource_handle: claim.handle.unwrap_or_default().data,
                        };
                        let answer = client.node_prepare_resource(request).await?;
                        let devices = opaque(answer.into_inner().cdi_devices);
                        answers.push((claim.uid, String::new(), devices));
                    }
                    Ok(answers)
                }
                .boxed()
            },
            unprepare: |channel, wanted| {
                async move {
                    let client = $wire::node_client::NodeClient::new(channel);
                    let mut client = client.max_decoding_message_size(LARGEST);
                    let mut answers = Vec::new();
                    for claim in wanted {
                        let uid = claim.uid.clone();
                        let request = $wire::NodeUnprepareResourceRequest {
                            namespace: claim.namespace.clone(),
                            claim_uid: claim.uid.clone(),
                            claim_name: claim.name.clone(),
                            $field: ($back)(claim),
                        };
                        client.node_unprepare_resource(request).await?;
                        answers.push((uid, String::new(), Vec::new()));
                    }
                    Ok(answers)
                }
                .boxed()
            },
        };
    };
}

/// The claim in the versions without handles.
macro_rules! by_name {
    ($wire:ident) => {
        |claim: ClaimToPrepare| $wire::Claim {
            namespace: claim.namespace,
            uid: claim.uid,
            name: claim.name,
        }
    };
}

/// The devices of an answer, for versions with requests and pools.
macro_rules! devices {
    ($wire:ident, $share:expr) => {
        |answer: $wire::NodePrepareResourceResponse| {
            let device = |device: $wire::Device| Device {
                share_id: ($share)(&device),
                pool: device.pool_name,
                device: device.device_name,
                requests: device.request_names,
                cdi_ids: device.cdi_device_ids,
            };
            answer.devices.into_iter().map(device).collect()
        }
    };
}

batched!(
    V1,
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    dra_v1::dra_plugin_client::DraPluginClient,
    by_name!(dra_v1),
    devices!(dra_v1, |device: &dra_v1::Device| device.share_id.clone())
);
batched!(
    V1BETA1,
    "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    dra_v1beta1::dra_plugin_client::DraPluginClient,
    by_name!(dra_v1beta1),
    devices!(dra_v1beta1, |_: &_| None)
);
batched!(
    V1ALPHA4,
    "v1alpha4.Node",
    dra_v1alpha4::node_client::NodeClient,
    by_name!(dra_v1alpha4),
    devices!(dra_v1alpha4, |_: &_| None)
);
batched!(
    V1ALPHA3,
    "v1alpha3.Node",
    dra_v1alpha3::node_client::NodeClient,
    with_handle,
    |answer: dra_v1alpha3::NodePrepareResourceResponse| opaque(answer.cdi_devices)
);
single!(
    V1ALPHA2,
    "v1alpha2.Node",
    dra_v1alpha2,
    resource_handle,
    |claim: ClaimToPrepare| { claim.handle.unwrap_or_default().data }
);
single!(
    V1ALPHA1,
    "v1alpha1.Node",
    dra_v1alpha1,
    cdi_devices,
    |claim: ClaimToPrepare| claim.cdi_ids
);

/// The calls of every version, to prepare and to unprepare: for the fuzz target.
pub(super) fn calls() -> Vec<Call> {
    let versions = [&V1, &V1BETA1, &V1ALPHA4, &V1ALPHA3, &V1ALPHA2, &V1ALPHA1];
    let both = |version: &&Version| [version.prepare, version.unprepare];
    versions.iter().flat_map(both).collect()
}

/// What a plugin without pools has prepared: for all requests, of no device in particular.
fn opaque(cdi_ids: Vec<String>) -> Vec<Device> {
    vec![Device {
        cdi_ids,
        ..Device::default()
    }]
}

fn with_handle(claim: ClaimToPrepare) -> dra_v1alpha3::Claim {
    let handle = claim.handle.unwrap_or_default();
    dra_v1alpha3::Claim {
        namespace: claim.namespace,
        uid: claim.uid,
        name: claim.name,
        resource_handle: handle.data,
        structured_resource_handle: handle.structured_data.map(structured).into_iter().collect(),
    }
}

fn structured(handle: StructuredHandle) -> dra_v1alpha3::StructuredResourceHandle {
    let raw = |value: Value| {
        let raw = (!value.is_null()).then(|| value.to_string().into_bytes());
        Some(dra_v1alpha3::RawExtension { raw })
    };
    let result = |result: AllocationResult| {
        let named = result.named_resources.unwrap_or_default();
        let named_resources =
            Some(dra_v1alpha3::NamedResourcesAllocationResult { name: named.name });
        dra_v1alpha3::DriverAllocationResult {
            vendor_request_parameters: raw(result.vendor_request_parameters),
            allocation_result_model: Some(dra_v1alpha3::AllocationResultModel { named_resources }),
        }
    };
    dra_v1alpha3::StructuredResourceHandle {
        vendor_class_parameters: raw(handle.vendor_class_parameters),
        vendor_claim_parameters: raw(handle.vendor_claim_parameters),
        node_name: handle.node_name,
        results: handle.results.into_iter().map(result).collect(),
    }
}

/// Has claims of one generation prepared; devices by UID of the claim.
pub(super) async fn prepare(
    plugin: &Plugin,
    wanted: &[ClaimToPrepare],
    metrics: &Metrics,
) -> Result<BTreeMap<String, Vec<Device>>, CallError> {
    let answers = try_versions("Prepare", plugin, wanted, metrics, |v| v.prepare).await?;
    let mut devices: BTreeMap<String, Vec<Device>> = BTreeMap::new();
    for (uid, prepared) in answers {
        devices.entry(uid).or_default().extend(prepared);
    }
    Ok(devices)
}

/// Unprepares claims of one generation.
pub(super) async fn unprepare(
    plugin: &Plugin,
    wanted: &[ClaimToPrepare],
    metrics: &Metrics,
) -> Result<(), CallError> {
    let answers = try_versions("Unprepare", plugin, wanted, metrics, |v| v.unprepare).await;
    answers.map(drop)
}

async fn try_versions(
    what: &str,
    plugin: &Plugin,
    wanted: &[ClaimToPrepare],
    metrics: &Metrics,
    call: impl Fn(&Version) -> Call,
) -> Result<Vec<(String, Vec<Device>)>, CallError> {
    let classic = wanted.iter().any(|claim| claim.handle.is_some());
    let versions: &[&Version] = match (plugin.service, classic) {
        (Service::V1, false) => &[&V1],
        (Service::V1beta1, false) => &[&V1BETA1],
        (Service::Classic, false) => &[&V1ALPHA4],
        (Service::Classic, true) => &[&V1ALPHA3, &V1ALPHA2, &V1ALPHA1],
        (_, true) => {
            return Err(CallError::NotClassic(plugin.driver.clone()));
        }
    };
    let name = format!("Node{what}Resources");
    let mut first = if classic { plugin.version() } else { 0 };
    loop {
        let version = versions[first.min(versions.len() - 1)];
        let start = Instant::now();
        let result = timed(call(version)(plugin.channel.clone(), wanted.to_vec())).await;
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        let (service, last) = (version.name, if version.batched { "s" } else { "" });
        let method = format!("/{service}/Node{what}Resource{last}");
        metrics.call(&plugin.driver, method, code, start.elapsed());
        match result {
            // Versions can only be told apart by trying; the result is remembered.
            Err(status) if status.code() == Code::Unimplemented && first + 1 < versions.len() => {
                first += 1;
            }
            Err(status) => {
                return Err(CallError::Rpc {
                    call: name,
                    status: Box::new(status),
                    classic,
                });
            }
            Ok(answers) => {
                if classic {
                    plugin.set_version(first);
                }
                return check_answers(&name, wanted, answers);
            }
        }
    }
}

async fn timed<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let result = tokio::time::timeout(CALL_TIMEOUT, call).await;
    result.unwrap_or_else(|_| {
        Err(Status::new(
            Code::DeadlineExceeded,
            "context deadline exceeded",
        ))
    })
}

/// The answer must contain exactly the requested claims, without errors.
pub(super) fn check_answers(
    call: &str,
    wanted: &[ClaimToPrepare],
    answers: Vec<Answer>,
) -> Result<Vec<(String, Vec<Device>)>, CallError> {
    let mut missing: Vec<&str> = wanted.iter().map(|claim| claim.uid.as_str()).collect();
    missing.sort_unstable();
    missing.dedup();
    let mut results = Vec::new();
    let mut parts = 0;
    for (uid, error, value) in answers {
        let Some(claim) = wanted.iter().find(|claim| claim.uid == uid) else {
            return Err(CallError::UnknownClaim {
                call: call.to_owned(),
                uid: shorten(uid),
            });
        };
        let sizes = value
            .iter()
            .map(|it| 1 + it.requests.len() + it.cdi_ids.len());
        parts += sizes.sum::<usize>();
        if parts > MOST {
            return Err(CallError::TooMany {
                call: call.to_owned(),
                claim: claim.name.clone(),
                most: MOST,
            });
        }
        if !error.is_empty() {
            return Err(CallError::Claim {
                call: call.to_owned(),
                namespace: claim.namespace.clone(),
                claim: claim.name.clone(),
                reason: shorten(error),
                classic: claim.handle.is_some(),
            });
        }
        missing.retain(|other| *other != uid);
        results.push((uid, value));
    }
    if missing.is_empty() {
        return Ok(results);
    }
    Err(CallError::Missing {
        call: call.to_owned(),
        count: missing.len(),
        classic: wanted.first().is_some_and(|claim| claim.handle.is_some()),
    })
}
