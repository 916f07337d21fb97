//! The health service.

use std::collections::BTreeSet;

use allot_protos::dra_health_v1alpha1::NodeWatchResourcesResponse;

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip, source};
use crate::fixture::Fixture;
use crate::kubelet::health_messages;

pub(crate) const CASES: &[Case] = &[
    case!(stream, "health-stream", process: false, devices: 0,
        rule: "The first message of the stream has the health of all watched devices, and each of them is published.",
        source: source::HEALTH,
        hint: "send the complete list first and after every change; use the device names of the ResourceSlices"),
    case!(resume, "health-resume", process: false, devices: 0,
        rule: "A kubelet that reopens the stream gets the complete list again, also while another stream is open.",
        source: source::HEALTH,
        hint: "do not share one channel of changes between streams"),
    case!(restart, "health-restart", process: true, devices: 0,
        rule: "After a restart of the driver, the stream is served again with the same devices.",
        source: source::HEALTH,
        hint: "start the health service with the DRA service, on the same socket"),
];

type Message = NodeWatchResourcesResponse;

fn names(message: &Message) -> BTreeSet<(String, String)> {
    let device = |device: &allot_protos::dra_health_v1alpha1::DeviceHealth| {
        let device = device.device.clone().unwrap_or_default();
        (device.pool_name, device.device_name)
    };
    message.devices.iter().map(device).collect()
}

async fn open(w: &Fixture) -> Result<(tonic::Streaming<Message>, Message), Stop> {
    let plugin = w.plugin()?;
    if plugin.health().is_none() {
        return skip("no health service is offered");
    }
    health_messages(&plugin, w.limit())
        .await
        .or_else(|error| fail(format!("NodeWatchResources: {error}")))
}

async fn stream(w: &mut Fixture) -> Observed {
    let (_stream, message) = open(w).await?;
    for (pool, name) in names(&message) {
        let known = w
            .devices()
            .iter()
            .any(|device| device.pool == pool && device.name == name);
        ensure!(known, "device {name:?} of pool {pool:?} is not published");
    }
    ensure!(
        !message.devices.is_empty() || w.devices().is_empty(),
        "the first message has no devices"
    );
    Ok(format!("{} devices", message.devices.len()))
}

async fn resume(w: &mut Fixture) -> Observed {
    let (first, before) = open(w).await?;
    let (second, beside) = open(w).await?;
    drop((first, second));
    let (_stream, after) = open(w).await?;
    let (before, beside, after) = (names(&before), names(&beside), names(&after));
    ensure!(
        before == beside && before == after,
        "{} devices, then {}, then {}",
        before.len(),
        beside.len(),
        after.len()
    );
    Ok(format!("{} devices each time", before.len()))
}

async fn restart(w: &mut Fixture) -> Observed {
    let (stream, before) = open(w).await?;
    drop(stream);
    w.restart().await?;
    let (_stream, after) = open(w).await?;
    ensure!(
        names(&before) == names(&after),
        "{} devices, then {}",
        before.devices.len(),
        after.devices.len()
    );
    Ok(format!("{} devices again", after.devices.len()))
}
