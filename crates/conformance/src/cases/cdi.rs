//! CDI files.

use std::path::Path;

use allot_cdi::{Mount, Registry, Spec, VERSIONS};

use crate::case::{Case, Observed, case, ensure, fail, source};
use crate::fixture::Fixture;

pub(crate) const CASES: &[Case] = &[
    case!(valid, "cdi-valid", process: false, devices: 1,
        rule: "Every CDI file is valid, and every CDI device of an answer is defined by one of them when the call returns.",
        source: source::CDI,
        hint: "write the file before answering; check it with the CDI library's validation"),
    case!(host_paths, "cdi-host-paths", process: false, devices: 1,
        rule: "When the call returns, the sources of bind mounts and the programs of hooks in the CDI devices of an answer exist on the host, by absolute paths.",
        source: "CDI specification, hostPath; OCI runtimes do not create the source of a mount",
        hint: "create what the container mounts before answering; a driver in a container names paths of the host"),
    case!(version, "cdi-version", process: false, devices: 1,
        rule: "The version of a CDI file is the lowest that its fields need, or at most 0.6.0, which every runtime with CDI support accepts.",
        source: "CDI specification, cdiVersion: a runtime refuses files of versions that it does not know",
        hint: "use the CDI library's function for the minimum required version"),
    case!(unique, "cdi-unique", process: false, devices: 2,
        rule: "No CDI device is defined twice: runtimes reject both definitions.",
        source: "CDI specification, conflicts between files of equal priority",
        hint: "put the claim's UID into the names of its devices and of its file"),
    case!(clean, "cdi-clean", process: false, devices: 1,
        rule: "After NodeUnprepareResources nothing of the claim is left in the CDI directory.",
        source: source::UNPREPARE,
        hint: "remove the claim's file"),
    case!(atomic, "cdi-atomic", process: false, devices: 1,
        rule: "CDI files are replaced atomically: a runtime that reads a partially written file ignores all of its devices.",
        source: "CDI specification: files are to be made under another name and renamed",
        hint: "write to a temporary name in the same directory that does not end in .json or .yaml, then rename"),
    case!(wiped, "cdi-wiped", process: false, devices: 2,
        rule: "After the CDI directory was emptied while the driver runs, the devices of the next claim resolve, including those that all claims share.",
        source: source::REBOOT,
        hint: "write shared CDI devices again for every claim, not only at startup"),
    case!(wiped_prepared, "cdi-wiped-prepared", process: false, devices: 1,
        rule: "After the CDI directory was emptied, preparing an already prepared claim restores its CDI devices.",
        source: source::REBOOT,
        hint: "write the CDI file also when the answer comes from a checkpoint"),
    case!(reboot, "cdi-reboot", process: true, devices: 1,
        rule: "After a reboot, with state on disk, an empty CDI directory and another boot ID, preparing a claim again restores its CDI devices.",
        source: "kubernetes/kubernetes#141433, ROCm/k8s-gpu-dra-driver#75",
        hint: "write the CDI file also when the answer comes from a checkpoint; make again what the boot before had, if the checkpoint is from there"),
    case!(restart, "cdi-restart", process: true, devices: 1,
        rule: "When the CDI directory was emptied while the driver was stopped, the driver writes the files of prepared claims at startup: their containers restart without another NodePrepareResources.",
        source: "kubelet: NodePrepareResources only with a new sandbox; kubernetes/kubernetes#141433",
        hint: "at startup, write the CDI files of all prepared claims again"),
];

async fn valid(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.resolves(&devices)?;
    let registry = Registry::load(&[&w.places.cdi]);
    let errors: Vec<String> = registry.errors().iter().map(ToString::to_string).collect();
    ensure!(errors.is_empty(), "{}", errors.join("; "));
    w.needs_cdi(&devices)?;
    Ok(format!("{} files", w.cdi_files().len()))
}

async fn host_paths(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    let edits = w.edits(&devices)?;
    let bind = |mount: &&Mount| matches!(mount.kind.as_deref(), None | Some("" | "bind" | "none"));
    let mounts = edits.mounts.iter().filter(bind);
    let mounts = mounts.map(|mount| ("the mount of", &mount.host_path));
    let hooks = edits.hooks.iter().map(|hook| ("the hook", &hook.path));
    let mut count = 0;
    for (what, path) in mounts.chain(hooks) {
        ensure!(
            Path::new(path).is_absolute(),
            "{what} {path}: the path is not absolute"
        );
        ensure!(
            Path::new(path).exists(),
            "{what} {path}: there is no such file or directory"
        );
        count += 1;
    }
    Ok(format!("{count} paths"))
}

async fn version(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    let place = |version: &str| VERSIONS.iter().position(|known| *known == version);
    let mut seen = Vec::new();
    for path in w.cdi_files() {
        let spec = Spec::read(&path).or_else(|error| fail(error.to_string()))?;
        let needed = spec.minimum_version();
        let allowed = place(needed).max(place("0.6.0"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(
            place(&spec.cdi_version) <= allowed,
            "{name} has version {}, its fields need {needed}",
            spec.cdi_version
        );
        seen.push(spec.cdi_version);
    }
    seen.sort();
    seen.dedup();
    Ok(seen.join(", "))
}

async fn unique(w: &mut Fixture) -> Observed {
    let (first, second) = (w.claim(0).await?, w.claim(1).await?);
    let mut devices = w.prepare(&first).await?;
    devices.extend(w.prepare(&second).await?);
    w.needs_cdi(&devices)?;
    // Names that conflict do not resolve.
    w.resolves(&devices)?;
    let all: Vec<String> = w.cdi_devices().into_iter().collect();
    let registry = Registry::load(&[&w.places.cdi]);
    registry
        .resolve(&all)
        .or_else(|error| fail(error.to_string()))?;
    Ok(format!("{} devices", all.len()))
}

async fn clean(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    w.unprepare(&claim).await?;
    w.is_clean(&claim, &before)?;
    Ok("nothing is left".to_owned())
}

async fn atomic(w: &mut Fixture) -> Observed {
    const CYCLES: usize = 20;
    let directory = w.places.cdi.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let mut looks = 0_u64;
        while !stopped.is_cancelled() {
            looks += 1;
            for error in Registry::load(&[&directory]).errors() {
                // One that was removed between listing and reading is not half written.
                if matches!(error, allot_cdi::Error::Parse { .. }) {
                    return Err(error.to_string());
                }
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        Ok(looks)
    });
    let _stop = stop.clone().drop_guard();
    for _ in 0..CYCLES {
        let claim = w.claim(0).await?;
        let devices = w.prepare(&claim).await?;
        w.needs_cdi(&devices)?;
        w.unprepare(&claim).await?;
    }
    stop.cancel();
    match reader.await {
        Ok(Ok(looks)) => Ok(format!("{looks} reads during {CYCLES} claims")),
        Ok(Err(error)) => fail(error),
        Err(error) => fail(error.to_string()),
    }
}

async fn wiped(w: &mut Fixture) -> Observed {
    let first = w.claim(0).await?;
    let devices = w.prepare(&first).await?;
    w.needs_cdi(&devices)?;
    w.wipe_cdi(&devices);
    let second = w.claim(1).await?;
    let devices = w.prepare(&second).await?;
    w.resolves(&devices)?;
    w.unprepare(&first).await?;
    w.unprepare(&second).await?;
    Ok("the next claim's devices resolve".to_owned())
}

async fn wiped_prepared(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    w.wipe_cdi(&devices);
    let again = w.prepare(&claim).await?;
    w.resolves(&again)?;
    w.resolves(&devices)?;
    Ok("the devices resolve again".to_owned())
}

async fn reboot(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    let told = w.reboot(&devices).await?;
    w.start_again().await?;
    let again = w.prepare(&claim).await?;
    w.resolves(&again)?;
    w.unprepare(&claim).await?;
    Ok(format!("the devices resolve again; {told}"))
}

async fn restart(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    w.kill().await;
    w.wipe_cdi(&devices);
    w.start_again().await?;
    let deadline = tokio::time::Instant::now() + w.timeout();
    loop {
        match w.resolves(&devices) {
            Ok(()) => break,
            Err(stop) if tokio::time::Instant::now() >= deadline => return Err(stop),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
    Ok("the devices resolve again without another call".to_owned())
}
