//! Devices that several claims have at the same time, each with a share of the capacity.

use std::collections::BTreeSet;

use allot_protos::dra_v1::dra_plugin_client::DraPluginClient;
use allot_protos::dra_v1::{Claim, NodePrepareResourcesRequest};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::{ClaimRequest, DeviceRef, Fixture, path, text};
use allot_kubelet::{ClaimRef, Version};

const SOURCE: &str = "KEP-5075, consumable capacity";

pub(crate) const CASES: &[Case] = &[
    case!(parallel, "share-parallel", process: false, devices: 1,
        rule: "A device with allowMultipleAllocations is prepared for several claims at the same time, and unprepared for each of them alone.",
        source: SOURCE,
        hint: "do not count a result with a shareID as the holder of a device; name files and CDI devices by claim and share"),
    case!(restart, "share-restart", process: true, devices: 1,
        rule: "Shares of a device are found again after kill -9, each as it was.",
        source: SOURCE,
        hint: "the key of a prepared device is pool, device and shareID, also in the state on disk"),
    case!(one_claim, "share-one-claim", process: false, devices: 1,
        rule: "A claim that has two shares of one device, for two of its requests, is prepared with both.",
        source: SOURCE,
        hint: "the device's name is not unique in a claim: add the shareID to the names of CDI devices"),
    case!(share_id, "share-id", process: false, devices: 1,
        rule: "The answer names the share of every device that was allocated with a shareID: a kubelet tells the shares of a device apart by it.",
        source: "kubelet DRA gRPC API, dra/v1 api.proto Device.share_id",
        hint: "copy shareID from the result into the answer"),
    case!(amounts, "capacity-amounts", process: false, devices: 1,
        rule: "A share is prepared with every amount of capacity that the device's request policy allows, in any spelling of a quantity.",
        source: SOURCE,
        hint: "parse consumedCapacity with the library for quantities: 1Gi, 1e9 and 500m are all numbers"),
];

/// A device that can be shared.
fn shared(w: &Fixture) -> Result<DeviceRef, Stop> {
    let found = w.devices().iter().find(|device| device.shared);
    let found = found.cloned();
    found.map_or_else(|| skip("no device allows multiple allocations"), Ok)
}

/// A device into which two shares fit, as the scheduler would allocate them.
fn divided(w: &Fixture) -> Result<DeviceRef, Stop> {
    shared(w)?;
    let mut devices = w.devices().iter();
    let found = devices.find(|device| device.shared && device.shares.two_fit);
    let found = found.cloned();
    found.map_or_else(|| skip("no device has capacity for two shares"), Ok)
}

async fn parallel(w: &mut Fixture) -> Observed {
    let device = divided(w)?;
    let before = w.cdi_devices();
    let (first, second) = (
        w.make(ClaimRequest::device(&device)).await?,
        w.make(ClaimRequest::device(&device)).await?,
    );
    let one = w.prepare(&first).await?;
    let two = w.prepare(&second).await?;
    w.resolves(&one)?;
    w.unprepare(&first).await?;
    w.resolves(&two)?;
    let again = w.prepare(&second).await?;
    ensure!(
        again == two,
        "the second claim changed when the first was unprepared: {two:?}, now {again:?}"
    );
    let third = w.make(ClaimRequest::device(&device)).await?;
    let three = w.prepare(&third).await?;
    w.unprepare(&second).await?;
    w.resolves(&three)?;
    w.unprepare(&third).await?;
    w.is_clean(&third, &before)?;
    Ok(format!(
        "{} was shared by two claims at a time",
        device.name
    ))
}

async fn restart(w: &mut Fixture) -> Observed {
    let device = divided(w)?;
    let claims = [
        w.make(ClaimRequest::device(&device)).await?,
        w.make(ClaimRequest::device(&device)).await?,
    ];
    let mut answers = Vec::new();
    for claim in &claims {
        answers.push(w.prepare(claim).await?);
    }
    w.restart().await?;
    for (claim, answer) in claims.iter().zip(&answers) {
        let again = w.prepare(claim).await?;
        ensure!(again == *answer, "before {answer:?}, after {again:?}");
        w.resolves(&again)?;
    }
    for claim in &claims {
        w.unprepare(claim).await?;
    }
    Ok("both shares are as before".to_owned())
}

async fn one_claim(w: &mut Fixture) -> Observed {
    let device = divided(w)?;
    let devices = vec![device.clone(), device];
    let claim = w
        .make(ClaimRequest {
            devices,
            ..ClaimRequest::default()
        })
        .await?;
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    w.resolves(&answer)?;
    let requests: BTreeSet<&String> = answer.iter().flat_map(|device| &device.requests).collect();
    ensure!(
        requests.len() == 2,
        "the answer is about {} of the two requests",
        requests.len()
    );
    w.unprepare(&claim).await?;
    Ok("both shares were prepared".to_owned())
}

async fn share_id(w: &mut Fixture) -> Observed {
    let device = divided(w)?;
    let offered = Version::offered(&w.plugin()?.info);
    if !offered.contains(&Version::V1) {
        return skip("v1beta1 of the service has no share IDs");
    }
    let devices = vec![device.clone(), device];
    let claim = w
        .make(ClaimRequest {
            devices,
            ..ClaimRequest::default()
        })
        .await?;
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    let object = w.api.get(&path(&claim)).await;
    let object = object.or_else(|error| fail(error.to_string()))?;
    let results = &object["status"]["allocation"]["devices"]["results"];
    let results = results.as_array().into_iter().flatten();
    let wanted: BTreeSet<String> = results.map(|it| text(&it["shareID"]).to_owned()).collect();
    let said = answered(w, &claim).await?;
    ensure!(said == wanted, "allocated {wanted:?}, answered {said:?}");
    w.unprepare(&claim).await?;
    Ok(format!("{} share IDs", said.len()))
}

/// The share IDs of an answer.
async fn answered(w: &Fixture, claim: &ClaimRef) -> Result<BTreeSet<String>, Stop> {
    let mut client = DraPluginClient::new(w.plugin()?.channel);
    let request = NodePrepareResourcesRequest {
        claims: vec![Claim {
            namespace: claim.namespace.clone(),
            uid: claim.uid.clone(),
            name: claim.name.clone(),
        }],
    };
    let call = client.node_prepare_resources(request);
    let limit = w.limit();
    let answer = match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return fail(format!("NodePrepareResources: {status}")),
        Err(_) => return fail(format!("NodePrepareResources: no answer within {limit:?}")),
    };
    let claims = answer.claims.into_values();
    let devices = claims.flat_map(|claim| claim.devices);
    Ok(devices.filter_map(|device| device.share_id).collect())
}

async fn amounts(w: &mut Fixture) -> Observed {
    let device = shared(w)?;
    if device.shares.usual.is_empty() {
        return skip("the shared device has no capacity");
    }
    for amount in &device.shares.all {
        let mut share = device.clone();
        share.shares.usual = amount.clone();
        let claim = w.make(ClaimRequest::device(&share)).await?;
        let answer = match w.try_prepare(&claim).await? {
            Ok(answer) => answer,
            Err(error) => return fail(format!("with {amount:?}: {error}")),
        };
        w.resolves(&answer)?;
        w.unprepare(&claim).await?;
    }
    Ok(format!("{} different shares", device.shares.all.len()))
}
