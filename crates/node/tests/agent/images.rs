//! Containers that run from images.

use std::sync::OnceLock;
use std::time::Duration;

use allot_images::fixtures::registry::Server;
use allot_images::fixtures::{Built, Layer, gzip};
use allot_images::{Limits, Store, Timeouts};
use allot_node::{ImageMode, Images};
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, has_isolation, pod_path, status, with};
use super::programs;

const PAUSES: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(3600));

pub fn settings(mode: ImageMode) -> Images {
    Images {
        mode,
        pauses: PAUSES,
        ..Images::default()
    }
}

/// A layer with a shell and a few programs, as an archive.
pub fn shell_layer() -> Vec<u8> {
    static LAYER: OnceLock<Vec<u8>> = OnceLock::new();
    let layer = LAYER.get_or_init(|| {
        let mut layer = Layer::new();
        for file in programs::files(&["sh", "cat", "id", "pwd", "sleep"]) {
            let name = file
                .strip_prefix("/")
                .unwrap()
                .to_string_lossy()
                .into_owned();
            layer = layer.entry(b'0', &name, "", 0o755, &std::fs::read(&file).unwrap());
        }
        let passwd = "root:x:0:0::/root:/bin/sh\napp:x:1234:77::/srv/app:/bin/sh\n";
        layer.directory("srv/").file("etc/passwd", passwd).tar()
    });
    layer.clone()
}

/// An image with a shell.
pub fn image(run: Value) -> Built {
    Built::with_config(&[(shell_layer(), gzip)], run)
}

/// An image whose program prints a line and sleeps.
pub fn sleeping_image() -> Built {
    image(json!({"Cmd": ["sh", "-c", "echo from the image; exec sleep 1000"]}))
}

/// A container with an image and no other fields.
pub fn container(image: &str) -> Value {
    json!({"name": "c", "image": image})
}

/// A cluster and a registry; `None` if containers are not isolated here.
pub async fn with_registry(images: Images) -> Option<(Cluster, Server)> {
    let cluster = Cluster::with_images(images).await;
    if !has_isolation(&cluster).await {
        return None;
    }
    Some((cluster, Server::start().await))
}

/// Waits until the container `c` waits with this reason; returns the message.
pub async fn wait_for_waiting_reason(cluster: &Cluster, pod: &str, reason: &str) -> String {
    let waits = |pod: &Value| status(pod, "c")["state"]["waiting"]["reason"] == reason;
    let pod = cluster.wait_until(&pod_path(pod), reason, waits).await;
    let message = &status(&pod, "c")["state"]["waiting"]["message"];
    message.as_str().unwrap_or_default().to_owned()
}

/// Waits for an event of a pod with this reason, whose message contains a text.
pub async fn wait_for_event_with(cluster: &Cluster, pod: &str, reason: &str, part: &str) {
    let path = "/api/v1/namespaces/default/events";
    let recorded = |events: &Value| {
        let items = events["items"].as_array().cloned().unwrap_or_default();
        items.iter().any(|event| {
            event["reason"] == reason
                && event["involvedObject"]["name"] == pod
                && event["message"].as_str().unwrap_or_default().contains(part)
        })
    };
    cluster
        .wait_until(path, &format!("{reason}: {part}"), recorded)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_what_its_image_says() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let script = "echo $WORD $EXTRA $0 $1; pwd; id -u; id -g; cat /etc/hosts";
    let built = image(json!({
        "Entrypoint": ["sh", "-c", script, "zero"], "Cmd": ["default"],
        "Env": ["WORD=hello", "EXTRA=no", "PATH=/usr/bin:/bin"], "User": "app", "WorkingDir": "srv",
    }));
    let name = registry.push(&built, "v1");
    let digest = format!("{}/some/app@{}", registry.authority, built.digest());
    for (pod, image) in [("tag", name.as_str()), ("digest", digest.as_str())] {
        let more = json!({"args": ["own"], "env": [{"name": "EXTRA", "value": "yes"}]});
        let containers = [with(container(image), "c", more)];
        let init = [container(image)].map(|it| with(it, "i", json!({})));
        let aliases = json!([{"ip": "10.1.2.3", "hostnames": ["alias"]}]);
        let spec = json!({"restartPolicy": "Never", "initContainers": init, "containers": containers, "hostAliases": aliases});
        cluster.pod(pod, spec).await;
        let ended = cluster.wait_for_phase(pod, "Succeeded").await;
        let log = cluster.log(pod, "c", 0);
        let expected = "hello yes zero own\n/srv\n1234\n77\n";
        assert!(log.starts_with(expected), "{log}");
        assert!(log.contains("10.1.2.3\talias\n"), "{log}");
        assert!(
            cluster
                .log(pod, "i", 0)
                .starts_with("hello no zero default\n/srv\n")
        );
        for container in ["c", "i"] {
            let status = status(&ended, container);
            assert_eq!(status["imageID"], digest, "{status}");
        }
    }
    wait_for_event_with(
        &cluster,
        "tag",
        "Pulling",
        &format!("Pulling image \"{name}\""),
    )
    .await;
    wait_for_event_with(&cluster, "tag", "Pulled", "Successfully pulled image").await;
    wait_for_event_with(&cluster, "digest", "Pulled", "already present on machine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_refused_by_what_the_image_says() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let script = json!(["sh", "-c", "id -u"]);
    let by = |user: &str| {
        registry.push(
            &image(json!({"Cmd": script, "User": user})),
            &format!("u{}", user.len()),
        )
    };
    let pod = async |name: &str, image: String| {
        let context = json!({"securityContext": {"runAsNonRoot": true}});
        let containers = [with(container(&image), "c", context)];
        cluster
            .pod(
                name,
                json!({"restartPolicy": "Never", "containers": containers}),
            )
            .await;
    };
    pod("root", by("")).await;
    let message = wait_for_waiting_reason(&cluster, "root", "CreateContainerConfigError").await;
    assert!(
        message.contains("container has runAsNonRoot and image will run as root"),
        "{message}"
    );
    pod("named", by("app")).await;
    let message = wait_for_waiting_reason(&cluster, "named", "CreateContainerConfigError").await;
    assert!(
        message.contains("image has non-numeric user (app), cannot verify user is non-root"),
        "{message}"
    );
    pod("number", by("1234:77")).await;
    cluster.wait_for_phase("number", "Succeeded").await;
    assert_eq!(cluster.log("number", "c", 0), "1234\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_kept_while_they_are_used_and_collected_afterwards() {
    let mut images = settings(ImageMode::Require);
    images.collection.high_threshold_percent = 0;
    images.collection.low_threshold_percent = 0;
    // Longer than it takes from a pull to the start.
    images.collection.min_age = Duration::from_secs(5);
    images.collection_period = Duration::from_millis(100);
    let Some((mut cluster, registry)) = with_registry(images).await else {
        return;
    };
    let unused = registry.push(&image(json!({"Cmd": ["sh", "-c", "true"]})), "unused");
    let used = registry.push(&sleeping_image(), "used");
    let path = cluster.root().join("images");
    let store = Store::open(path, Limits::default(), Timeouts::default()).unwrap();
    let names = || {
        let names = store.list().unwrap().into_iter().map(|image| image.name);
        names.collect::<Vec<_>>()
    };
    cluster
        .pod("p", json!({"containers": [container(&used)]}))
        .await;
    let before = cluster.wait_for_phase("p", "Running").await;
    let spec = json!({"restartPolicy": "Never", "containers": [container(&unused)]});
    cluster.pod("q", spec).await;
    cluster.wait_for_phase("q", "Succeeded").await;
    assert!(
        names().contains(&unused),
        "a container that has ended counts"
    );
    cluster.delete(&pod_path("q")).await;
    until_true("the unused image is gone", || names() == [used.as_str()]).await;
    // A new agent knows what runs.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let again = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(
        status(&again, "c")["imageID"],
        status(&before, "c")["imageID"]
    );
    assert_eq!(
        status(&again, "c")["containerID"],
        status(&before, "c")["containerID"]
    );
    assert_eq!(store.held().unwrap().len(), 1);
    cluster.delete(&pod_path("p")).await;
    until_true("everything is gone", || {
        names().is_empty() && store.held().unwrap().is_empty()
    })
    .await;
    until_true("the layers as well", || {
        std::fs::read_dir(store.root().join("layers"))
            .unwrap()
            .count()
            == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_can_be_a_volume() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Auto)).await else {
        return;
    };
    let layers = [("a", "one"), ("b", "two")].map(|(name, text)| {
        (
            Layer::new()
                .directory("d/")
                .file(&format!("d/{name}"), text)
                .tar(),
            gzip as _,
        )
    });
    let name = registry.push(&Built::with_config(&layers, json!({})), "v1");
    let mount = json!({"name": "v", "mountPath": "/mnt/v"});
    let script = "cat /mnt/v/d/a /mnt/v/d/b; (echo x > /mnt/v/x) 2> /dev/null || echo read-only";
    let container = json!({"name": "c", "image": "host", "command": ["sh", "-c", script], "volumeMounts": [mount]});
    let volume = json!({"name": "v", "image": {"reference": name}});
    let spec = json!({"restartPolicy": "Never", "containers": [container], "volumes": [volume]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "onetworead-only\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_asked_to_end_by_the_images_signal() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let out = cluster.root().join("out");
    std::fs::create_dir(&out).unwrap();
    let script =
        "trap 'echo interrupted > /out/end; exit 0' INT; echo ready; while :; do sleep 0.1; done";
    let built = image(json!({"Cmd": ["sh", "-c", script], "StopSignal": "SIGINT"}));
    let name = registry.push(&built, "v1");
    let mounts = json!({"volumeMounts": [{"name": "out", "mountPath": "/out"}]});
    let volumes = json!([{"name": "out", "hostPath": {"path": out}}]);
    let containers = [with(container(&name), "c", mounts)];
    cluster
        .pod("p", json!({"containers": containers, "volumes": volumes}))
        .await;
    cluster.wait_for_logs("p", &["c"]).await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(
        std::fs::read_to_string(out.join("end")).unwrap(),
        "interrupted\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_reports_its_images() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let built = sleeping_image();
    let name = registry.push(&built, "v1");
    let digest = format!("{}/some/app@{}", registry.authority, built.digest());
    cluster
        .pod("p", json!({"containers": [container(&name)]}))
        .await;
    let reported = |node: &Value| {
        let images = node["status"]["images"].as_array().into_iter().flatten();
        let mut images = images.filter(|image| image["names"] == json!([digest, name]));
        images.any(|image| image["sizeBytes"].as_u64() > Some(0))
    };
    cluster
        .wait_until("/api/v1/nodes/n1", "with the image", reported)
        .await;
}
