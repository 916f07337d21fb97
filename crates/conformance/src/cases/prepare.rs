//! Preparing claims.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::crash::quarters;
use crate::case::{Case, Observed, case, ensure, fail, skip, source};
use crate::fixture::{ClaimRequest, Fixture, OTHER_DEVICE, OTHER_POOL, prepared_device};
use allot_kubelet::{ClaimRef, Device, Version};

pub(crate) const CASES: &[Case] = &[
    case!(answers, "prepare-answers", process: false, devices: 1,
        rule: "The response contains the requested claim by UID, with the allocated devices and their pool and request names.",
        source: source::PROTO,
        hint: "take pool, device and request from the claim's allocation results of this driver"),
    case!(several_devices, "prepare-several-devices", process: false, devices: 2,
        rule: "The response for a claim with several devices of the driver contains each of them, for its own request.",
        source: source::PROTO,
        hint: "respond with one device for each allocation result of this driver"),
    case!(foreign, "prepare-other-driver", process: false, devices: 1,
        rule: "Devices of other drivers in the same claim are ignored.",
        source: source::PREPARE,
        hint: "filter status.allocation.devices.results by driver"),
    case!(alternative, "prepare-alternative", process: false, devices: 1,
        rule: "For a subrequest, `request/subrequest` in the allocation, the response names the request.",
        source: "KEP-4816, prioritized alternatives; dra/v1 api.proto Device.request_names",
        hint: "take the name before the slash: containers refer to the request"),
    case!(repeated, "prepare-repeated", process: false, devices: 1,
        rule: "Preparing a claim again returns the same response: a restarted kubelet repeats the call for every claim.",
        source: "KEP-4381: NodePrepareResources must be idempotent",
        hint: "persist the response"),
    case!(parallel, "prepare-parallel", process: false, devices: 2,
        rule: "Concurrent calls, for one claim and for different claims, all succeed with consistent responses.",
        source: source::PREPARE,
        hint: "serialize calls, or lock per claim"),
    case!(batch, "prepare-batch", process: false, devices: 2,
        rule: "The response to a call with several claims contains all of them.",
        source: source::PROTO,
        hint: "respond by UID with one entry for each claim; the kubelet treats a missing one as an error"),
    case!(batch_one_fails, "prepare-batch-one-fails", process: false, devices: 1,
        rule: "When one claim of a call cannot be prepared, the others are prepared by this call or the next one.",
        source: source::PREPARE,
        hint: "put errors into the claim's entry; leave nothing behind that blocks the retry"),
    case!(versions, "prepare-versions", process: false, devices: 1,
        rule: "v1 and v1beta1 return the same response, and each unprepares what the other prepared, as after a kubelet upgrade.",
        source: "kubelet DRA gRPC API, dra/v1 and dra/v1beta1",
        hint: "serve both versions from one implementation"),
    case!(wrong_uid, "prepare-wrong-uid", process: false, devices: 1,
        rule: "A claim with the requested name but a different UID is rejected: it is another claim.",
        source: "dra/v1 api.proto, Claim.uid",
        hint: "compare metadata.uid of the claim that was read with the UID of the call"),
    case!(missing, "prepare-missing-claim", process: false, devices: 0,
        rule: "A claim that does not exist is rejected.",
        source: source::PREPARE,
        hint: "return the API server's error instead of waiting for the claim to appear"),
    case!(unallocated, "prepare-unallocated", process: false, devices: 1,
        rule: "A claim without an allocation is rejected.",
        source: source::PREPARE,
        hint: "check status.allocation"),
    case!(unknown_device, "prepare-unknown-device", process: false, devices: 1,
        rule: "An allocated device that the driver does not have is rejected.",
        source: source::PREPARE,
        hint: "look the device up; the allocation may be older than the hardware"),
    case!(replaced, "prepare-replaced-claim", process: false, devices: 2,
        rule: "A claim that replaces a prepared one of the same name is prepared separately, and unpreparing the old claim does not affect it.",
        source: "kubelet claim info cache; dra/v1 api.proto, Claim.uid",
        hint: "key all state and files by UID, not by name"),
    case!(cancelled, "prepare-cancelled", process: false, devices: 1,
        rule: "After a call that the kubelet cancels, the next call succeeds.",
        source: "kubelet, deadline of plugin calls",
        hint: "complete or revert what a cancelled call began"),
    case!(long_names, "prepare-long-names", process: false, devices: 1,
        rule: "A claim with the longest name that the API allows is prepared.",
        source: "ResourceClaim metadata.name: a DNS subdomain of at most 253 characters; NAME_MAX of file systems is 255 bytes",
        hint: "do not build file names from namespace and name; use the UID"),
];

async fn answers(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let device = w.devices()[0].clone();
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    let Some(found) = prepared_device(&answer, &device) else {
        return fail(format!(
            "device {} of pool {} is not in the response {answer:?}",
            device.name, device.pool
        ));
    };
    let named = found.requests.is_empty() || found.requests == ["r0"];
    ensure!(
        named,
        "the device is for the requests {:?} instead of r0",
        found.requests
    );
    let ids: BTreeSet<&String> = found.cdi.iter().collect();
    ensure!(
        ids.len() == found.cdi.len(),
        "CDI devices are named twice: {:?}",
        found.cdi
    );
    for id in &found.cdi {
        let parsed: Result<allot_cdi::QualifiedName, _> = id.parse();
        ensure!(parsed.is_ok(), "{id:?} is not a CDI name");
    }
    Ok(format!("{} with {:?}", device.name, found.cdi))
}

async fn several_devices(w: &mut Fixture) -> Observed {
    let wanted = w.devices()[..2].to_vec();
    let claim = w
        .make(ClaimRequest {
            devices: wanted.clone(),
            ..ClaimRequest::default()
        })
        .await?;
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    for (index, device) in wanted.iter().enumerate() {
        let Some(found) = prepared_device(&answer, device) else {
            return fail(format!(
                "device {} of request r{index} is not in the response",
                device.name
            ));
        };
        let named = found.requests.is_empty() || found.requests == [format!("r{index}")];
        ensure!(
            named,
            "device {} is for the requests {:?} instead of r{index}",
            device.name,
            found.requests
        );
    }
    Ok(format!("{} and {}", wanted[0].name, wanted[1].name))
}

async fn foreign(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let claim = w
        .make(ClaimRequest {
            foreign: true,
            ..ClaimRequest::device(&device)
        })
        .await?;
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    ensure!(
        prepared_device(&answer, &device).is_some(),
        "the driver's own device is missing"
    );
    let other = answer
        .iter()
        .find(|answer| answer.pool == OTHER_POOL && answer.device == OTHER_DEVICE);
    ensure!(
        other.is_none(),
        "the device of another driver is in the response"
    );
    Ok("only its own device".to_owned())
}

async fn alternative(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let claim = w
        .make(ClaimRequest {
            alternative: true,
            ..ClaimRequest::device(&device)
        })
        .await?;
    let answer = w.prepare(&claim).await?;
    w.names_devices(&claim, &answer).await?;
    let Some(found) = prepared_device(&answer, &device) else {
        return fail("the device is not in the response");
    };
    let named = found.requests.is_empty() || found.requests == ["r0"];
    ensure!(
        named,
        "the device is for the requests {:?}; containers ask for r0",
        found.requests
    );
    Ok(format!("requests {:?}", found.requests))
}

async fn repeated(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let first = sorted(w.prepare(&claim).await?);
    for _ in 0..3 {
        let next = sorted(w.prepare(&claim).await?);
        ensure!(first == next, "first {first:?}, then {next:?}");
    }
    w.resolves(&first)?;
    Ok("four calls, one response".to_owned())
}

fn sorted(mut devices: Vec<Device>) -> Vec<Device> {
    devices.sort();
    devices
}

async fn parallel(w: &mut Fixture) -> Observed {
    let claims = [w.claim(0).await?, w.claim(1).await?];
    let order: Vec<&ClaimRef> = claims.iter().cycle().take(8).collect();
    let fixture = &*w;
    let results = join_all(order.iter().map(|claim| fixture.prepare(claim))).await;
    let mut answers = Vec::new();
    for (result, claim) in results.into_iter().zip(order) {
        answers.push((claim.uid.clone(), sorted(result?)));
    }
    for (uid, answer) in &answers {
        let same = answers
            .iter()
            .filter(|(other, _)| other == uid)
            .all(|(_, other)| other == answer);
        ensure!(same, "calls for one claim returned different responses");
        w.resolves(answer)?;
    }
    let fixture = &*w;
    for result in join_all(claims.iter().map(|claim| fixture.unprepare(claim))).await {
        result?;
    }
    Ok("eight calls for two claims at the same time".to_owned())
}

async fn batch(w: &mut Fixture) -> Observed {
    let claims = [w.claim(0).await?, w.claim(1).await?];
    let answers = w
        .prepare_all(&claims)
        .await?
        .or_else(|error| fail(format!("NodePrepareResources: {error}")))?;
    for claim in &claims {
        match answers.get(&claim.uid) {
            Some(Ok(devices)) => w.resolves(devices)?,
            Some(Err(error)) => return fail(format!("NodePrepareResources: {error}")),
            None => return fail("a claim of the call is not in the response"),
        }
    }
    let plugin = w.plugin()?;
    let answers = plugin.unprepare(plugin.version(), &claims, w.limit()).await;
    let answers = answers.or_else(|error| fail(format!("NodeUnprepareResources: {error}")))?;
    for claim in &claims {
        ensure!(
            answers.get(&claim.uid) == Some(&Ok(())),
            "NodeUnprepareResources: {:?}",
            answers.get(&claim.uid)
        );
    }
    Ok("two claims in one call".to_owned())
}

async fn batch_one_fails(w: &mut Fixture) -> Observed {
    let good = w.claim(0).await?;
    let bad = ClaimRef {
        name: "no-such-claim".to_owned(),
        uid: uuid::Uuid::new_v4().to_string(),
        ..good.clone()
    };
    let answers = w.prepare_all(&[good.clone(), bad.clone()]).await?;
    let said = match &answers {
        Ok(answers) => match answers.get(&bad.uid) {
            Some(Ok(_)) => return fail("a claim that does not exist was prepared"),
            Some(Err(error)) => error.clone(),
            None => "missing from the response".to_owned(),
        },
        Err(error) => error.clone(),
    };
    let devices = w.prepare(&good).await?;
    w.resolves(&devices)?;
    w.unprepare(&good).await?;
    Ok(said)
}

async fn versions(w: &mut Fixture) -> Observed {
    let offered = Version::offered(&w.plugin()?.info);
    if !(offered.contains(&Version::V1) && offered.contains(&Version::V1beta1)) {
        return skip("only one version is offered");
    }
    let claim = w.claim(0).await?;
    let old = sorted(w.prepare_by(Version::V1beta1, &claim).await?);
    let new = sorted(w.prepare_by(Version::V1, &claim).await?);
    ensure!(old == new, "v1beta1 {old:?}, v1 {new:?}");
    w.unprepare_by(Version::V1beta1, &claim).await?;
    w.prepare_by(Version::V1, &claim).await?;
    w.unprepare_by(Version::V1, &claim).await?;
    Ok("both versions return the same response".to_owned())
}

async fn wrong_uid(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let other = ClaimRef {
        uid: uuid::Uuid::new_v4().to_string(),
        ..claim.clone()
    };
    w.refused(&other).await?;
    w.prepare(&claim).await?;
    // Also while the right one is prepared.
    w.refused(&other).await
}

async fn missing(w: &mut Fixture) -> Observed {
    let claim = ClaimRef {
        namespace: "default".to_owned(),
        name: "no-such-claim".to_owned(),
        uid: uuid::Uuid::new_v4().to_string(),
    };
    w.refused(&claim).await
}

async fn unallocated(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let claim = w
        .make(ClaimRequest {
            unallocated: true,
            ..ClaimRequest::device(&device)
        })
        .await?;
    w.refused(&claim).await
}

async fn unknown_device(w: &mut Fixture) -> Observed {
    let mut device = w.devices()[0].clone();
    device.name = "made-up-by-the-kit".to_owned();
    let claim = w.make(ClaimRequest::device(&device)).await?;
    let said = w.refused(&claim).await?;
    w.unprepare(&claim).await?;
    Ok(said)
}

async fn replaced(w: &mut Fixture) -> Observed {
    let devices = w.devices().to_vec();
    let old = w.claim(0).await?;
    let answer = w.prepare(&old).await?;
    w.names_devices(&old, &answer).await?;
    w.delete_claim(&old).await?;
    let new = w
        .make(ClaimRequest {
            name: Some(old.name.clone()),
            ..ClaimRequest::device(&devices[1])
        })
        .await?;
    let answer = w.prepare(&new).await?;
    ensure!(
        prepared_device(&answer, &devices[1]).is_some(),
        "the new claim got the devices of the old one: {answer:?}"
    );
    w.unprepare(&old).await?;
    w.resolves(&answer)?;
    let again = w.prepare(&new).await?;
    ensure!(
        sorted(again) == sorted(answer),
        "after the old claim was unprepared, the response for the new one changed"
    );
    Ok("two claims of one name are kept apart".to_owned())
}

async fn cancelled(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let begun = Instant::now();
    w.prepare(&claim).await?;
    // A slow driver, or one on a busy machine, is in the middle of its work later than after the fixed times.
    let middle = quarters(begun.elapsed());
    w.unprepare(&claim).await?;
    let claim = w.claim(0).await?;
    let plugin = w.plugin()?;
    let soon = [1, 100, 500, 2000, 5000, 20000].map(Duration::from_micros);
    for limit in soon.into_iter().chain(middle) {
        // Whether it is answered in time does not matter.
        let _ = plugin
            .prepare(plugin.version(), std::slice::from_ref(&claim), limit)
            .await;
    }
    let devices = w.prepare(&claim).await?;
    w.resolves(&devices)?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok("nine calls cancelled, then one that succeeded".to_owned())
}

async fn long_names(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let name = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61),
    ]
    .join(".");
    let length = name.len();
    let before = w.cdi_devices();
    let claim = w
        .make(ClaimRequest {
            name: Some(name),
            ..ClaimRequest::device(&device)
        })
        .await?;
    let devices = w.prepare(&claim).await?;
    w.resolves(&devices)?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok(format!("a name of {length} characters"))
}
