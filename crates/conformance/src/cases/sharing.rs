//! One device and several claims.

use crate::case::{Case, Observed, case, ensure};
use crate::fixture::{ClaimRequest, Fixture};

pub(crate) const CASES: &[Case] = &[
    case!(two_claims, "share-refused", process: false, devices: 1,
        rule: "A device that is prepared for one claim is not prepared for another one at the same time: the driver is the last check against a double allocation.",
        source: "kubernetes/kubernetes#141471",
        hint: "record which claim uses a device; reject other claims unless the allocation has a share ID or admin access"),
    case!(after_forced_deletion, "share-after-forced-deletion", process: false, devices: 1,
        rule: "When the claim that used a device was deleted from the API, the next claim is prepared; unpreparing the old one later does not affect it.",
        source: "kubernetes/kubernetes#141471",
        hint: "check in the API whether the other claim still exists, and unprepare it before preparing the device for the next one"),
    case!(admin, "share-admin-access", process: false, devices: 1,
        rule: "A claim with admin access is prepared with a device that is in use, and both claims are unprepared independently.",
        source: "KEP-5018, admin access",
        hint: "do not count results with adminAccess as users of a device"),
];

async fn two_claims(w: &mut Fixture) -> Observed {
    if w.devices()[0].shared {
        return crate::case::skip("every device can be shared");
    }
    let (first, second) = (w.claim(0).await?, w.claim(0).await?);
    let devices = w.prepare(&first).await?;
    let said = w.refused(&second).await?;
    // A kubelet unprepares the claim after a failure.
    w.unprepare(&second).await?;
    w.resolves(&devices)?;
    w.unprepare(&first).await?;
    let third = w.claim(0).await?;
    w.prepare(&third).await?;
    Ok(said)
}

async fn after_forced_deletion(w: &mut Fixture) -> Observed {
    let (first, second) = (w.claim(0).await?, w.claim(0).await?);
    w.prepare(&first).await?;
    w.delete_claim(&first).await?;
    let devices = w.prepare(&second).await?;
    w.unprepare(&first).await?;
    w.resolves(&devices)?;
    let again = w.prepare(&second).await?;
    w.resolves(&again)?;
    ensure!(
        again.len() == devices.len(),
        "the second claim lost devices when the first was unprepared"
    );
    Ok("the device of a deleted claim was prepared for the next one".to_owned())
}

async fn admin(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let user = w.claim(0).await?;
    let before = w.prepare(&user).await?;
    let admin = w
        .make(ClaimRequest {
            admin: true,
            ..ClaimRequest::device(&device)
        })
        .await?;
    let devices = w.prepare(&admin).await?;
    w.resolves(&devices)?;
    w.unprepare(&admin).await?;
    w.resolves(&before)?;
    let admin = w
        .make(ClaimRequest {
            admin: true,
            ..ClaimRequest::device(&device)
        })
        .await?;
    let devices = w.prepare(&admin).await?;
    w.unprepare(&user).await?;
    w.resolves(&devices)?;
    let next = w.claim(0).await?;
    w.prepare(&next).await?;
    Ok("a claim with admin access was prepared and unprepared beside a user's claim".to_owned())
}
