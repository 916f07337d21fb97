//! kill -9 at every point.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::case::{Case, Observed, case, ensure, source};
use crate::fixture::Fixture;
use allot_kubelet::Device;

pub(crate) const CASES: &[Case] = &[
    case!(prepared, "crash-prepared", process: true, devices: 1,
        rule: "After kill -9 and a restart, the response for a prepared claim is unchanged, and its CDI devices resolve.",
        source: "KEP-4381: NodePrepareResources must be idempotent, also over restarts",
        hint: "persist what was prepared before responding"),
    case!(unprepare, "crash-unprepare", process: true, devices: 1,
        rule: "After kill -9 and a restart, a prepared claim can be unprepared, and no file of it is left.",
        source: source::UNPREPARE,
        hint: "find the claim's files by its UID, or in a checkpoint"),
    case!(during_prepare, "crash-during-prepare", process: true, devices: 1,
        rule: "After kill -9 during NodePrepareResources and a restart, the claim can be prepared, and then unprepared without leaving files.",
        source: source::PREPARE,
        hint: "persist the intent first, replace files atomically, and let a second attempt start over"),
    case!(during_unprepare, "crash-during-unprepare", process: true, devices: 1,
        rule: "After kill -9 during NodeUnprepareResources and a restart, the call succeeds without leaving files, and the claim can be prepared again.",
        source: source::UNPREPARE,
        hint: "mark the claim as no longer prepared before reverting anything"),
    case!(several, "crash-several-claims", process: true, devices: 3,
        rule: "Three claims are prepared before kill -9; after it, one is unprepared, one is prepared again and one is not touched: each keeps its own devices.",
        source: source::KEP,
        hint: "keep claims apart in the state"),
    case!(terminated, "crash-orderly-stop", process: true, devices: 1,
        rule: "A graceful shutdown does not unprepare claims: pods use their devices while the driver is updated.",
        source: "KEP-4381, updating a driver; CDI files are read at every start of a container",
        hint: "do not unprepare claims or remove CDI files at shutdown"),
    case!(start, "crash-during-start", process: true, devices: 1,
        rule: "The driver starts after it was repeatedly killed with kill -9 during startup.",
        source: source::KEP,
        hint: "start with any combination of files on disk"),
];

/// How long after a call began the driver is killed, in microseconds.
const DELAYS: [u64; 6] = [0, 1000, 4000, 15_000, 60_000, 200_000];

/// The moments at which the driver is killed: those of [`DELAYS`], `scale` times as late, and three in the middle of what
/// took `whole` when nothing disturbed it. A slow driver, or one on a busy machine, has not begun its work at the former.
fn moments(scale: u32, whole: Duration) -> Vec<Duration> {
    let soon = DELAYS.map(|micros| Duration::from_micros(micros) * scale);
    soon.into_iter().chain(quarters(whole)).collect()
}

/// A quarter, a half, and three quarters.
pub(super) fn quarters(whole: Duration) -> [Duration; 3] {
    [1, 2, 3].map(|part| whole * part / 4)
}

fn killed(times: usize) -> String {
    format!("killed {times} times")
}

fn set(devices: &[Device]) -> BTreeSet<Device> {
    devices.iter().cloned().collect()
}

async fn prepared(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let before = w.prepare(&claim).await?;
    w.restart().await?;
    let after = w.prepare(&claim).await?;
    ensure!(
        set(&before) == set(&after),
        "before {before:?}, after {after:?}"
    );
    w.resolves(&after)?;
    Ok("the same response after a restart".to_owned())
}

async fn unprepare(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    w.restart().await?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    let next = w.claim(0).await?;
    w.prepare(&next).await?;
    Ok("unprepared by the next process".to_owned())
}

async fn during_prepare(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let begun = Instant::now();
    w.prepare(&claim).await?;
    let whole = begun.elapsed();
    w.unprepare(&claim).await?;
    let moments = moments(1, whole);
    for delay in &moments {
        let claim = w.claim(0).await?;
        w.kill_during_prepare(&claim, *delay).await?;
        let devices = w.prepare(&claim).await?;
        w.resolves(&devices)?;
        w.unprepare(&claim).await?;
        w.is_clean(&claim, &before)?;
    }
    Ok(killed(moments.len()))
}

async fn during_unprepare(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    let begun = Instant::now();
    w.unprepare(&claim).await?;
    let moments = moments(1, begun.elapsed());
    for delay in &moments {
        let claim = w.claim(0).await?;
        w.prepare(&claim).await?;
        w.kill_during_unprepare(&claim, *delay).await?;
        w.unprepare(&claim).await?;
        w.is_clean(&claim, &before)?;
        let devices = w.prepare(&claim).await?;
        w.resolves(&devices)?;
        w.unprepare(&claim).await?;
    }
    Ok(killed(moments.len()))
}

async fn several(w: &mut Fixture) -> Observed {
    let claims = [w.claim(0).await?, w.claim(1).await?, w.claim(2).await?];
    let mut answers = Vec::new();
    for claim in &claims {
        answers.push(w.prepare(claim).await?);
    }
    w.restart().await?;
    w.unprepare(&claims[0]).await?;
    let again = w.prepare(&claims[1]).await?;
    ensure!(
        set(&again) == set(&answers[1]),
        "before {:?}, after {again:?}",
        answers[1]
    );
    w.resolves(&answers[1])?;
    w.resolves(&answers[2])?;
    for claim in &claims {
        w.unprepare(claim).await?;
    }
    Ok("each claim kept its own devices".to_owned())
}

async fn terminated(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    let patience = w.timeout();
    if let Some(process) = w.process() {
        process.terminate(patience).await;
    }
    w.kill().await;
    w.resolves(&devices)?;
    w.start_again().await?;
    w.resolves(&devices)?;
    w.unprepare(&claim).await?;
    Ok("the claim's CDI devices are left".to_owned())
}

async fn start(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    w.kill().await;
    let begun = Instant::now();
    w.start_again().await?;
    let moments = moments(4, begun.elapsed());
    for delay in &moments {
        w.kill().await;
        w.start().await?;
        tokio::time::sleep(*delay).await;
    }
    w.restart().await?;
    let devices = w.prepare(&claim).await?;
    w.resolves(&devices)?;
    w.unprepare(&claim).await?;
    Ok(killed(moments.len()))
}
