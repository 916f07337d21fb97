//! Unpreparing claims.

use tokio::time::Instant;

use crate::case::{Case, Observed, Stop, case, ensure, fail, source};
use crate::fixture::{Fixture, POLL_INTERVAL};
use crate::process::Usage;
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
    case!(churn, "churn", process: true, devices: 1,
        rule: "Preparing and unpreparing hundreds of claims leaks no file descriptors, memory, processes or files.",
        source: "kubelet DRA gRPC API: a driver runs for months",
        hint: "close what each claim opens; remove state and files of unprepared claims"),
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

/// More memory than this is a leak, not a cache that fills up.
const MEMORY: u64 = 48 << 20;
/// A connection pool or a log file may be opened meanwhile.
const DESCRIPTORS: usize = 12;

async fn churn(w: &mut Fixture) -> Observed {
    let cycles = w.options().cycles;
    let warm = cycles / 4;
    let mut before = None;
    for cycle in 0..cycles {
        if cycle == warm {
            before = Some((w.usage(), w.state_files().len(), w.cdi_files().len()));
        }
        let claim = w.claim(0).await?;
        w.prepare(&claim).await?;
        w.unprepare(&claim).await?;
        w.delete_claim(&claim).await?;
    }
    let Some((used, state, cdi)) = before else {
        return fail("no cycles");
    };
    // Work under way, such as a scan for devices, holds descriptors for a while, and a garbage collector closes some
    // later; a leak stays.
    let deadline = Instant::now() + w.options().quiet * 5;
    let (descriptors, memory) = loop {
        match growth(used, w.usage(), cycles - warm) {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL_INTERVAL).await,
            growth => break growth?,
        }
    };
    let (state_now, cdi_now) = (w.state_files().len(), w.cdi_files().len());
    ensure!(
        cdi_now <= cdi,
        "{cdi_now} CDI files after {} claims, {cdi} before",
        cycles - warm
    );
    ensure!(
        state_now <= state + 2,
        "{state_now} files of state after {} claims, {state} before",
        cycles - warm
    );
    Ok(format!(
        "{cycles} claims: {descriptors} more descriptors, {} KiB more memory",
        memory >> 10
    ))
}

/// How many more descriptors and bytes of memory the driver's processes use; fails if that is a leak.
fn growth(before: Usage, now: Usage, claims: u32) -> Result<(usize, u64), Stop> {
    let descriptors = now.descriptors.saturating_sub(before.descriptors);
    ensure!(
        descriptors <= DESCRIPTORS,
        "{descriptors} more open descriptors after {claims} claims"
    );
    let memory = now.memory.saturating_sub(before.memory);
    ensure!(
        memory <= MEMORY,
        "{} MiB more memory after {claims} claims",
        memory >> 20
    );
    ensure!(
        now.processes <= before.processes,
        "{} processes, {} before",
        now.processes,
        before.processes
    );
    Ok((descriptors, memory))
}
