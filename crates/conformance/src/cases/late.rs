//! Late answers of the API server.

use std::time::Duration;

use crate::case::{Case, Observed, Stop, case, fail, source};
use crate::fixture::Fixture;
use allot_kubelet::{Answers, ClaimRef, Device};

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

/// Begins to prepare a claim while no answer of the API server arrives, and cancels the call some time after the driver has
/// sent its request. Returns the driver's answer, if there is one.
async fn give_up(w: &Fixture, claim: &ClaimRef) -> Result<Option<Answers<Vec<Device>>>, Stop> {
    let (plugin, limit, claim) = (w.plugin()?, w.limit(), claim.clone());
    let before = w.api.claim_requests().await;
    let before = before.or_else(|error| fail(error.to_string()))?;
    w.api.hold();
    let mut call = Box::pin(async move {
        let version = plugin.version();
        plugin.prepare(version, &[claim], limit).await
    });
    let asked = async {
        // A driver that never asks is given up as well.
        let _ = w
            .until("a request for the claim", || async {
                let now = w.api.claim_requests().await.unwrap_or_default();
                (now > before).then_some(())
            })
            .await;
        tokio::time::sleep(GIVEN_UP).await;
    };
    tokio::select! {
        answer = &mut call => Ok(Some(answer)),
        () = asked => Ok(None),
    }
}

async fn late_prepare(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let plugin = w.plugin()?;
    let version = plugin.version();
    // The server has answered then, with the claim; the answer is under way.
    let first = give_up(w, &claim).await?;
    let prepared = |answers: &Answers<Vec<Device>>| {
        let answers = answers.as_ref().ok();
        answers.is_some_and(|answers| answers.get(&claim.uid).is_some_and(Result::is_ok))
    };
    if first.as_ref().is_some_and(prepared) {
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
    let said = give_up(w, &claim).await?;
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
        Some(Ok(_)) => "answered meanwhile".to_owned(),
        Some(Err(error)) => error,
        None => format!("no answer within {GIVEN_UP:?}"),
    })
}
