//! Unpreparing claims.

use crate::case::{Case, Observed, case, ensure, fail, source};
use crate::fixture::Fixture;
use allot_kubelet::ClaimRef;

pub(crate) const CASES: &[Case] = &[
    case!(repeated, "unprepare-repeated", process: false, devices: 1,
        rule: "Unpreparing a claim twice succeeds.",
        source: "KEP-4381: NodeUnprepareResources must be idempotent",
        hint: "return success if there is nothing to revert"),
    case!(unknown, "unprepare-unknown", process: false, devices: 0,
        rule: "Unpreparing a claim that was never prepared, and does not exist, succeeds: a pod stays Terminating otherwise.",
        source: source::UNPREPARE,
        hint: "do not get the claim from the API; return success if there is nothing to revert"),
    case!(claim_gone, "unprepare-claim-gone", process: false, devices: 1,
        rule: "A prepared claim that was deleted from the API is unprepared.",
        source: "KEP-4381: the claim may be gone after a forced deletion of the pod",
        hint: "persist what unpreparing needs; the kubelet sends only namespace, name and UID"),
    case!(empty, "unprepare-nothing", process: false, devices: 0,
        rule: "A prepare or unprepare call without claims returns a response without claims.",
        source: source::PROTO,
        hint: "an empty list is not an error"),
    case!(prepare_again, "unprepare-prepare-again", process: false, devices: 1,
        rule: "An unprepared claim can be prepared again, as for the next pod that uses it, and so can its device by another claim.",
        source: source::UNPREPARE,
        hint: "remove all state of the claim"),
    case!(of_failed, "unprepare-failed-prepare", process: false, devices: 1,
        rule: "A claim whose preparation failed is unprepared without an error.",
        source: "kubelet: unprepares every claim that it began to prepare",
        hint: "return success if there is nothing to revert"),
];

async fn repeated(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    for _ in 0..3 {
        w.unprepare(&claim).await?;
    }
    Ok("three times".to_owned())
}

async fn unknown(w: &mut Fixture) -> Observed {
    let claim = ClaimRef {
        namespace: "no-such-namespace".to_owned(),
        name: "no-such-claim".to_owned(),
        uid: uuid::Uuid::new_v4().to_string(),
    };
    w.unprepare(&claim).await?;
    Ok("succeeded".to_owned())
}

async fn claim_gone(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    w.delete_claim(&claim).await?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok("unprepared".to_owned())
}

async fn empty(w: &mut Fixture) -> Observed {
    let plugin = w.plugin()?;
    let prepared = plugin.prepare(plugin.version(), &[], w.limit()).await;
    let unprepared = plugin.unprepare(plugin.version(), &[], w.limit()).await;
    match (prepared, unprepared) {
        (Ok(prepared), Ok(unprepared)) => {
            ensure!(
                prepared.is_empty() && unprepared.is_empty(),
                "the answer has claims"
            );
            Ok("no claims".to_owned())
        }
        (Err(error), _) => fail(format!("NodePrepareResources: {error}")),
        (_, Err(error)) => fail(format!("NodeUnprepareResources: {error}")),
    }
}

async fn prepare_again(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let first = w.prepare(&claim).await?;
    w.unprepare(&claim).await?;
    for _ in 0..3 {
        let devices = w.prepare(&claim).await?;
        ensure!(
            devices.len() == first.len(),
            "the claim had {} devices the first time, and has {} now",
            first.len(),
            devices.len()
        );
        w.resolves(&devices)?;
        w.unprepare(&claim).await?;
    }
    let next = w.claim(0).await?;
    let devices = w.prepare(&next).await?;
    w.resolves(&devices)?;
    Ok("four times, then another claim".to_owned())
}

async fn of_failed(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let before = w.cdi_devices();
    w.delete_claim(&claim).await?;
    let said = w.refused(&claim).await?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok(said)
}
