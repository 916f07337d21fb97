//! Damage to the driver's state on disk.

use std::path::{Path, PathBuf};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::Fixture;
use allot_kubelet::{ClaimRef, Device};

const SOURCE: &str = "power loss in the middle of a write; NVIDIA/k8s-dra-driver-gpu#840, #1278";

pub(crate) const CASES: &[Case] = &[
    case!(empty, "state-empty", process: true, devices: 1,
        rule: "With empty state files the driver continues, or exits with an error that names the file.",
        source: SOURCE,
        hint: "rename the damaged file, log that, and start with empty state"),
    case!(truncated, "state-truncated", process: true, devices: 1,
        rule: "With truncated state files the driver continues, or exits with an error that names the file.",
        source: SOURCE,
        hint: "rename the damaged file, log that, and start with empty state"),
    case!(garbage, "state-garbage", process: true, devices: 1,
        rule: "With corrupt state files the driver continues, or exits with an error that names the file.",
        source: SOURCE,
        hint: "verify the checksum and structure of the file; rename a damaged one"),
    case!(deleted, "state-deleted", process: true, devices: 1,
        rule: "With its state files deleted the driver starts, and unpreparing an earlier claim removes its remaining files.",
        source: "KEP-4381: NodeUnprepareResources for a claim that the driver does not know",
        hint: "also clean up by UID for claims that are not in the state"),
    case!(earlier, "state-earlier-release", process: true, devices: 2,
        rule: "After an upgrade the driver knows the claims that its earlier release prepared: the same answer, no other claim gets their devices, and NodeUnprepareResources cleans up.",
        source: "kubernetes/enhancements KEP-4381: drivers are upgraded while pods use their devices",
        hint: "version the state, and read every version that a supported upgrade may find"),
];

type Damage = fn(&Path) -> std::io::Result<()>;

async fn empty(w: &mut Fixture) -> Observed {
    damaged(w, |path| std::fs::write(path, "")).await
}

async fn truncated(w: &mut Fixture) -> Observed {
    damaged(w, |path| {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(file.metadata()?.len() / 2)
    })
    .await
}

async fn garbage(w: &mut Fixture) -> Observed {
    damaged(w, |path| {
        std::fs::write(path, "\u{0}\u{1}garbage{\n".repeat(100))
    })
    .await
}

/// What there was before the damage.
struct Damaged {
    claim: ClaimRef,
    devices: Vec<Device>,
    files: Vec<PathBuf>,
}

/// A claim is prepared, the driver ends, and its files are damaged.
async fn prepare_and_damage(w: &mut Fixture, damage: Damage) -> Result<Damaged, Stop> {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.kill().await;
    let files = w.state_files();
    if files.is_empty() {
        return skip("the driver keeps no files");
    }
    for path in &files {
        damage(path).or_else(|error| fail(format!("{}: {error}", path.display())))?;
    }
    Ok(Damaged {
        claim,
        devices,
        files,
    })
}

async fn damaged(w: &mut Fixture, damage: Damage) -> Observed {
    let before = w.cdi_devices();
    let Damaged { claim, files, .. } = prepare_and_damage(w, damage).await?;
    let position = w.position();
    if let Err(stop) = w.start_again().await {
        let ended = w
            .process()
            .is_some_and(|process| process.exited().is_some_and(|status| !status.success()));
        let said = w.output_since(position);
        // A short name may be a part of any word.
        let names = files
            .iter()
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.len() > 5);
        let named = names.into_iter().find(|name| said.contains(name.as_str()));
        return match (ended, named) {
            (true, Some(name)) => Ok(format!("it ends with an error that names {name}")),
            (true, None) => fail("it ends, and its output names none of the damaged files"),
            (false, _) => Err(stop),
        };
    }
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    let next = w.claim(0).await?;
    let devices = w.prepare(&next).await?;
    w.resolves(&devices)?;
    w.unprepare(&next).await?;
    Ok(format!("it continues with {} damaged files", files.len()))
}

async fn deleted(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let old = prepare_and_damage(w, |path| std::fs::remove_file(path)).await?;
    let claim = old.claim;
    w.start_again().await?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    let next = w.claim(0).await?;
    let devices = w.prepare(&next).await?;
    ensure!(
        devices.len() == old.devices.len(),
        "a claim had {} devices, and the next one has {}",
        old.devices.len(),
        devices.len()
    );
    w.resolves(&devices)?;
    Ok(format!("it continues without {} files", old.files.len()))
}

async fn earlier(w: &mut Fixture) -> Observed {
    w.start_earlier().await?;
    let before = w.cdi_devices();
    let (first, second) = (w.claim(0).await?, w.claim(1).await?);
    let devices = w.prepare(&first).await?;
    w.prepare(&second).await?;
    let is_exclusive = !w.devices()[1].shared && w.refuses(1).await?;
    w.kill().await;
    w.start_again().await?;
    ensure!(
        !is_exclusive || w.refuses(1).await?,
        "a claim that the earlier release prepared is forgotten: its device goes to another claim"
    );
    let again = w.prepare(&first).await?;
    ensure!(
        again == devices,
        "the earlier release answered {devices:?}, this one {again:?}"
    );
    w.resolves(&again)?;
    for claim in [&first, &second] {
        w.unprepare(claim).await?;
    }
    w.is_clean(&first, &before)?;
    w.is_clean(&second, &before)?;
    Ok(format!("{} devices are known", devices.len()))
}
