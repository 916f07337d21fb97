//! The status of devices in their claims.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::{
    ClaimRequest, Fixture, OTHER_DEVICE, OTHER_DRIVER, OTHER_POOL, POLL_INTERVAL, path, text,
};
use allot_kubelet::ClaimRef;

pub(crate) const CASES: &[Case] = &[case!(devices, "status-devices", process: false, devices: 1,
    rule: "In status.devices of a claim the driver writes about its own devices of this claim only; what another driver wrote about its devices stays.",
    source: "KEP-4817, device status",
    hint: "use server-side apply with the driver's name as field manager, and the claim's UID in the request")];

async fn statuses(w: &Fixture, claim: &ClaimRef) -> Result<Vec<Value>, Stop> {
    let claim = w.api.get(&path(claim)).await;
    let claim = claim.or_else(|error| fail(error.to_string()))?;
    let devices = claim["status"]["devices"].as_array();
    Ok(devices.cloned().unwrap_or_default())
}

async fn devices(w: &mut Fixture) -> Observed {
    let wanted = w.devices()[0].clone();
    let claim = w
        .make(ClaimRequest {
            foreign: true,
            ..ClaimRequest::device(&wanted)
        })
        .await?;
    let foreign = json!({"driver": OTHER_DRIVER, "pool": OTHER_POOL, "device": OTHER_DEVICE, "data": {"link": "up"}});
    let status = json!({"status": {"devices": [foreign]}});
    let written = w
        .api
        .call(
            Method::PATCH,
            &format!("{}/status", path(&claim)),
            Some(&status),
        )
        .await;
    written.or_else(|error| fail(format!("cannot write a device status: {error}")))?;
    w.prepare(&claim).await?;
    // Drivers write it beside the call.
    let deadline = Instant::now() + w.timeout().max(w.options().quiet);
    loop {
        let own = check(w, &claim, &foreign, (&wanted.pool, &wanted.name)).await?;
        if own > 0 {
            break;
        }
        if Instant::now() >= deadline {
            w.unprepare(&claim).await?;
            return skip("the driver writes no device status");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    w.prepare(&claim).await?;
    w.unprepare(&claim).await?;
    check(w, &claim, &foreign, (&wanted.pool, &wanted.name)).await?;
    Ok("a status of its own device".to_owned())
}

/// Checks all statuses; returns how many are the driver's.
async fn check(
    w: &Fixture,
    claim: &ClaimRef,
    foreign: &Value,
    (pool, device): (&str, &str),
) -> Result<usize, Stop> {
    let all = statuses(w, claim).await?;
    let (own, others): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|it| it["driver"] == w.driver());
    for status in &own {
        ensure!(
            status["pool"] == pool && status["device"] == device,
            "it writes about device {} of pool {}, which the claim does not have",
            text(&status["device"]),
            text(&status["pool"])
        );
    }
    let [other] = others[..] else {
        return fail(format!(
            "there was one status of another driver, now there are {}",
            others.len()
        ));
    };
    ensure!(
        other["device"] == foreign["device"] && other["data"] == foreign["data"],
        "the status of another driver's device was {foreign}, now it is {other}"
    );
    Ok(own.len())
}
