//! Late answers of the API server.

use std::time::Duration;

use crate::case::{Case, Observed, case, source};
use crate::fixture::Fixture;

pub(crate) const CASES: &[Case] = &[
    case!(late_prepare, "late-prepare", process: true, devices: 1,
        rule: "A claim that was unprepared and deleted after its prepare call timed out is not prepared when a delayed response of the API server arrives.",
        source: "NVIDIA/k8s-dra-driver-gpu#1162",
        hint: "read the claim while holding the lock that unprepare takes too, or end the call when the kubelet has cancelled it"),
    case!(slow_api, "late-api", process: true, devices: 1,
        rule: "While the API server does not respond, preparing may fail without side effects; it succeeds afterwards.",
        source: source::PREPARE,
        hint: "set a timeout on requests to the API server, and retry them"),
];

/// How long a call is waited for that gets no answer.
const GIVEN_UP: Duration = Duration::from_secs(1);

async fn late_prepare(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let plugin = w.plugin()?;
    let version = plugin.version();
    w.api.hold();
    // The server answers now, with the claim; the answer is under way.
    let first = plugin
        .prepare(version, std::slice::from_ref(&claim), GIVEN_UP)
        .await;
    if first.is_ok_and(|answers| answers.get(&claim.uid).is_some_and(Result::is_ok)) {
        w.api.release();
        return crate::case::skip("the driver prepares without asking the API server");
    }
    let limit = w.limit();
    let unprepare = {
        let (plugin, claim) = (plugin.clone(), claim.clone());
        tokio::spawn(async move { plugin.unprepare(version, &[claim], limit).await })
    };
    // It may be waiting for the first call to end.
    tokio::time::sleep(GIVEN_UP).await;
    w.delete_claim(&claim).await?;
    w.api.release();
    match unprepare.await {
        Ok(Ok(answers)) => {
            if let Some(Err(error)) = answers.get(&claim.uid) {
                return crate::case::fail(format!("NodeUnprepareResources: {error}"));
            }
        }
        Ok(Err(error)) => return crate::case::fail(format!("NodeUnprepareResources: {error}")),
        Err(error) => return crate::case::fail(error.to_string()),
    }
    let quiet = w.options().quiet;
    tokio::time::sleep(quiet).await;
    w.is_clean(&claim, &before)?;
    let next = w.claim(0).await?;
    let devices = w.prepare(&next).await?;
    w.resolves(&devices)?;
    w.unprepare(&next).await?;
    w.is_clean(&claim, &before)?;
    Ok("no file of the deleted claim is left".to_owned())
}

async fn slow_api(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let plugin = w.plugin()?;
    w.api.hold();
    let said = plugin
        .prepare(plugin.version(), std::slice::from_ref(&claim), GIVEN_UP)
        .await;
    w.api.release();
    // Connections may have to be re-established first.
    let mut devices = w.try_prepare(&claim).await?;
    let deadline = tokio::time::Instant::now() + w.timeout();
    while devices.is_err() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        devices = w.try_prepare(&claim).await?;
    }
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => return crate::case::fail(format!("after the API server was back: {error}")),
    };
    w.resolves(&devices)?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok(match said {
        Ok(_) => "answered meanwhile".to_owned(),
        Err(error) => error,
    })
}
