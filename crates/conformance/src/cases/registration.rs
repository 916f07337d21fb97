//! How the driver registers with the kubelet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_protos::service_name;
use allot_protos::transport::MAX_SOCKET_PATH;

use crate::case::{Case, Observed, case, ensure, fail, skip, source};
use crate::fixture::{Fixture, POLL_INTERVAL};
use crate::process::Process;
use allot_kubelet::Version;

pub(crate) const CASES: &[Case] = &[
    case!(info, "registration-info", process: false, devices: 0,
        rule: "GetInfo names the driver by a DNS subdomain of at most 63 characters, and an absolute path of its service's socket.",
        source: source::REGISTRATION,
        hint: "fill in PluginInfo: type DRAPlugin, name as in the ResourceSlices, endpoint in the driver's own directory"),
    case!(versions, "registration-versions", process: false, devices: 0,
        rule: "Every service that GetInfo lists is a known one and is served.",
        source: "kubelet plugin registration, supportedVersions of DRA plugins",
        hint: "supported_versions are names such as v1.DRAPlugin; offer only what the server on the endpoint implements"),
    case!(again, "registration-kubelet-restart", process: false, devices: 1,
        rule: "After a kubelet restart, which discovers the socket again, GetInfo returns the same response and the driver works.",
        source: source::REGISTRATION,
        hint: "do not stop the registration server after the first GetInfo or NotifyRegistrationStatus"),
    case!(refused, "registration-refused", process: true, devices: 1,
        rule: "After a failed registration the driver continues or exits; the next registration succeeds.",
        source: "kubelet plugin registration, NotifyRegistrationStatus",
        hint: "respond to NotifyRegistrationStatus also for a failure, and continue to serve"),
    case!(late_kubelet, "registration-late-kubelet", process: true, devices: 1,
        rule: "A driver that is started before the kubelet waits for the kubelet and is registered later.",
        source: source::REGISTRATION,
        hint: "do not make startup depend on registration"),
    case!(restart, "registration-restart", process: true, devices: 1,
        rule: "After kill -9 the driver starts although its old sockets exist, and no stale registration socket is left.",
        source: "kubernetes/kubernetes#128696, #132660",
        hint: "remove the sockets of an earlier run before listening"),
    case!(terminate, "registration-terminate", process: true, devices: 1,
        rule: "On SIGTERM the driver exits within the grace period of 30 s and removes its registration socket, which deregisters it.",
        source: "KEP-4381, uninstalling a driver; kubelet plugin watcher",
        hint: "handle SIGTERM, which PID 1 of a container otherwise ignores, and remove the sockets at exit"),
    case!(second, "registration-second-instance", process: true, devices: 1,
        rule: "A second instance on the same node does not replace the sockets of the first one and leave the driver unreachable when it exits.",
        source: "KEP-4381, rolling updates; kubelet plugin registration",
        hint: "lock the state directory and fail to start if it is locked, or use the pod's UID in the names of the sockets"),
    case!(name, "registration-socket-name", process: false, devices: 0,
        rule: "The file name of the registration socket begins with the driver's name: drivers of one node share the directory.",
        source: source::WATCHER,
        hint: "name it <driver name>-reg.sock, or <driver name>-<UID of the pod>-reg.sock for rolling updates"),
    case!(deleted, "registration-socket-deleted", process: true, devices: 1,
        rule: "When the registration socket of a running driver is deleted, the driver makes it again, or exits and makes it when it is started again: a kubelet deregisters the driver with its socket, and no claim is prepared before there is one.",
        source: source::WATCHER,
        hint: "check regularly that the socket exists; when it does not, listen again, or exit with an error so that the container is restarted"),
    case!(rolling, "registration-rolling-update", process: true, devices: 2,
        rule: "While an instance replaces another one, both run: the newer one knows the claims that the older one prepared, and the end of the older one takes nothing away.",
        source: "KEP-4381, rolling updates; kubelet plugin registration",
        hint: "name both sockets by the pod's UID, share the state under a lock, and at exit remove only the own sockets"),
];

async fn info(w: &mut Fixture) -> Observed {
    let info = w.plugin()?.info;
    let labels = info.name.split('.');
    let good = |label: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    ensure!(
        info.name.len() <= 63 && labels.into_iter().all(good),
        "the name is {:?}",
        info.name
    );
    // An empty endpoint means the registration socket.
    let endpoint = Path::new(&info.endpoint);
    ensure!(
        info.endpoint.is_empty() || endpoint.is_absolute(),
        "the endpoint is {:?}",
        info.endpoint
    );
    ensure!(
        info.endpoint.is_empty() || endpoint.exists(),
        "the endpoint {:?} does not exist",
        info.endpoint
    );
    Ok(format!("{} at {}", info.name, info.endpoint))
}

async fn versions(w: &mut Fixture) -> Observed {
    let plugin = w.plugin()?;
    let known = [
        service_name::DRA_V1,
        service_name::DRA_V1BETA1,
        service_name::HEALTH_V1,
        service_name::HEALTH_V1ALPHA1,
    ];
    for name in &plugin.info.supported_versions {
        ensure!(
            known.contains(&name.as_str()),
            "unknown service {name:?} is offered; known are {}",
            known.join(", ")
        );
    }
    for version in Version::offered(&plugin.info) {
        let answer = plugin.unprepare(version, &[], w.limit()).await;
        if let Err(error) = answer {
            return fail(format!("{version}.DRAPlugin is offered: {error}"));
        }
    }
    Ok(plugin.info.supported_versions.join(", "))
}

async fn again(w: &mut Fixture) -> Observed {
    let before = w.plugin()?;
    w.kubelet.stop().await;
    w.kubelet.start();
    let driver = w.driver().to_owned();
    let after = w.registered(Some(&driver), before.number).await?;
    ensure!(
        after.info == before.info,
        "GetInfo answered {:?}, now {:?}",
        before.info,
        after.info
    );
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    w.unprepare(&claim).await?;
    Ok(format!("registered again at {}", after.socket.display()))
}

async fn refused(w: &mut Fixture) -> Observed {
    let (refusals, registrations) = (w.kubelet.refusals(), w.kubelet.registrations());
    w.kubelet.stop().await;
    w.kubelet.refuse(true);
    w.kubelet.start();
    w.until("a registration to refuse", || async {
        (w.kubelet.refusals() > refusals).then_some(())
    })
    .await?;
    w.kubelet.refuse(false);
    let patience = w.options().quiet;
    let ended = match w.process() {
        Some(process) => process.wait(patience).await,
        None => None,
    };
    if ended.is_some() {
        w.start().await?;
    }
    let driver = w.driver().to_owned();
    w.registered(Some(&driver), registrations).await?;
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    Ok(match ended {
        Some(status) => {
            format!("the process ended ({status}) and was registered when started again")
        }
        None => "the process went on and was registered when asked again".to_owned(),
    })
}

async fn late_kubelet(w: &mut Fixture) -> Observed {
    w.kill().await;
    w.kubelet.stop().await;
    let before = w.kubelet.registrations();
    w.start().await?;
    let patience = w.options().quiet;
    if let Some(process) = w.process()
        && let Some(status) = process.wait(patience).await
    {
        return fail(format!("without a kubelet the driver ended: {status}"));
    }
    w.kubelet.start();
    let driver = w.driver().to_owned();
    w.registered(Some(&driver), before).await?;
    Ok(format!(
        "registered by a kubelet that started {patience:?} later"
    ))
}

async fn restart(w: &mut Fixture) -> Observed {
    for _ in 0..3 {
        w.restart().await?;
    }
    let alive = w.plugin()?.socket;
    let dead = |path: &PathBuf| std::os::unix::net::UnixStream::connect(path).is_err();
    let dead: Vec<String> = w
        .kubelet
        .sockets()
        .into_iter()
        .filter(dead)
        .map(|path| path.display().to_string())
        .collect();
    ensure!(dead.is_empty(), "nothing listens on {}", dead.join(" and "));
    let claim = w.claim(0).await?;
    w.prepare(&claim).await?;
    Ok(format!(
        "three times registered again at {}",
        alive.display()
    ))
}

async fn terminate(w: &mut Fixture) -> Observed {
    let start = tokio::time::Instant::now();
    w.terminate("the driver").await?;
    let took = start.elapsed();
    let left = w.kubelet.sockets();
    ensure!(left.is_empty(), "registration sockets are left: {left:?}");
    Ok(format!("ended after {took:.1?}"))
}

async fn second(w: &mut Fixture) -> Observed {
    let before = w.kubelet.registrations();
    let mut other = w.spawn_second()?;
    let patience = w.options().quiet;
    let started = tokio::time::Instant::now();
    let mut status = None;
    while started.elapsed() < w.timeout() && status.is_none() {
        status = other.wait(Duration::from_millis(50)).await;
        // As a rolling update: it is registered beside the first.
        if w.kubelet.registrations() > before && started.elapsed() > patience {
            break;
        }
    }
    other.kill().await;
    let claim = w.claim(0).await?;
    let deadline = tokio::time::Instant::now() + w.options().quiet;
    // The kubelet uses the remaining one when the second is gone.
    loop {
        match w.prepare(&claim).await {
            Ok(_) => break,
            Err(_) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(_) => {
                return fail(
                    "a second instance took the sockets; when it had ended, the first was alive and could not be reached",
                );
            }
        }
    }
    w.unprepare(&claim).await?;
    Ok(match status {
        Some(status) => format!("the second instance ended by itself ({status})"),
        None => "both instances were registered, and the first goes on".to_owned(),
    })
}

async fn name(w: &mut Fixture) -> Observed {
    let socket = w.plugin()?.socket;
    let file = socket.file_name().unwrap_or_default().to_string_lossy();
    let usual = socket.with_file_name(format!("{}-reg.sock", w.driver()));
    // With a longer path it needs another name.
    ensure!(
        file.starts_with(w.driver()) || usual.as_os_str().len() > MAX_SOCKET_PATH,
        "the socket is {file:?}"
    );
    Ok(file.into_owned())
}

async fn deleted(w: &mut Fixture) -> Observed {
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    let before = w.plugin()?;
    std::fs::remove_file(&before.socket)
        .or_else(|error| fail(format!("{}: {error}", before.socket.display())))?;
    let (driver, deadline) = (
        w.driver().to_owned(),
        tokio::time::Instant::now() + w.timeout(),
    );
    let ended = loop {
        let plugin = w.kubelet.plugin(Some(&driver));
        if plugin.is_some_and(|plugin| plugin.number > before.number) {
            break None;
        }
        if let Some(status) = w.process().and_then(Process::exited) {
            break Some(status);
        }
        ensure!(
            tokio::time::Instant::now() < deadline,
            "for {:?} the driver runs without a registration socket: the kubelet has deregistered it, and nothing tells the driver",
            w.timeout()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    if ended.is_some() {
        w.start_again().await?;
    }
    let again = w.prepare(&claim).await?;
    ensure!(
        again == devices,
        "the claim had {devices:?} before, and has {again:?} now"
    );
    w.unprepare(&claim).await?;
    Ok(match ended {
        Some(status) => {
            format!("the process ended ({status}) and was registered when started again")
        }
        None => "the socket was made again, and the driver registered".to_owned(),
    })
}

async fn rolling(w: &mut Fixture) -> Observed {
    let first = w.claim(0).await?;
    let devices = w.prepare(&first).await?;
    let is_exclusive = !w.devices()[0].shared && w.refuses(0).await?;
    let (older, before) = (w.plugin()?.socket, w.kubelet.registrations());
    let mut newer = w.spawn_second()?;
    let started = tokio::time::Instant::now();
    while w.kubelet.registrations() == before {
        if let Some(status) = newer.wait(Duration::from_millis(50)).await {
            return skip(format!(
                "a second instance ended ({status}): the driver is not for rolling updates"
            ));
        }
        if started.elapsed() > w.timeout() {
            return skip(
                "a second instance was not registered: the driver is not for rolling updates",
            );
        }
    }
    if w.plugin()?.socket == older || !w.kubelet.sockets().contains(&older) {
        return skip(
            "a second instance takes the socket of the first: the driver is not for rolling updates",
        );
    }
    let meanwhile = w.claim(1).await?;
    let others = w.prepare(&meanwhile).await?;
    w.terminate("the older instance").await?;
    w.adopt(newer).await;
    w.resolves(&devices)?;
    w.resolves(&others)?;
    ensure!(
        !is_exclusive || w.refuses(0).await?,
        "the newer instance does not know a claim of the older one: its device goes to another claim"
    );
    for (claim, answer) in [(&first, &devices), (&meanwhile, &others)] {
        let again = w.prepare(claim).await?;
        ensure!(
            again == *answer,
            "before the older instance ended {answer:?}, after it {again:?}"
        );
    }
    let published = w.published().await?;
    ensure!(
        published == w.devices(),
        "{} devices were published, now there are {}",
        w.devices().len(),
        published.len()
    );
    w.unprepare(&first).await?;
    w.unprepare(&meanwhile).await?;
    Ok("the newer instance goes on with the claims of the older one".to_owned())
}
