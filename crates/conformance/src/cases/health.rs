//! The health service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use allot_protos::dra_health_v1alpha1::{DeviceHealth, NodeWatchResourcesResponse};
use tokio::time::Instant;

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip, source};
use crate::fixture::Fixture;
use allot_kubelet::health_messages;

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
    case!(repeated, "health-repeated", process: false, devices: 0,
        rule: "The health of a device is reported again within its health_check_timeout_seconds, or 30 s: a kubelet shows it as Unknown otherwise.",
        source: "kubelet, health of DRA devices: DefaultHealthTimeout; KEP-4680",
        hint: "send the complete list again at a third of the shortest time, also when nothing changed"),
];

type Message = NodeWatchResourcesResponse;

/// What a kubelet takes when a device names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Pool and name of a device.
type Name = (String, String);

fn name(device: &DeviceHealth) -> Name {
    let device = device.device.clone().unwrap_or_default();
    (device.pool_name, device.device_name)
}

fn names(message: &Message) -> BTreeSet<Name> {
    message.devices.iter().map(name).collect()
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

/// When a kubelet no longer believes what a message says, by device.
fn deadlines(message: &Message, now: Instant) -> BTreeMap<Name, Instant> {
    let deadline = |device: &DeviceHealth| {
        let seconds = u64::try_from(device.health_check_timeout_seconds).unwrap_or(0);
        let time = match seconds {
            0 => DEFAULT_TIMEOUT,
            seconds => Duration::from_secs(seconds),
        };
        Some((name(device), now.checked_add(time)?))
    };
    message.devices.iter().filter_map(deadline).collect()
}

async fn repeated(w: &mut Fixture) -> Observed {
    let (mut stream, first) = open(w).await?;
    let start = Instant::now();
    let most = start + w.timeout();
    // What is believed for longer than the kit waits cannot be tried.
    let mut waiting = deadlines(&first, start);
    waiting.retain(|_, deadline| *deadline <= most);
    if waiting.is_empty() {
        return skip("no device has to be reported again within --timeout");
    }
    let count = waiting.len();
    while let Some(deadline) = waiting.values().min().copied() {
        let message = match tokio::time::timeout_at(deadline, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return fail("the stream ended"),
            Ok(Err(status)) => return fail(format!("NodeWatchResources: {status}")),
            Err(_) => {
                return fail(format!(
                    "{} of {count} devices were not reported again within {:.1?}",
                    waiting.len(),
                    start.elapsed()
                ));
            }
        };
        for device in names(&message) {
            waiting.remove(&device);
        }
    }
    Ok(format!(
        "{count} devices were reported again within {:.1?}",
        start.elapsed()
    ))
}
