//! Images: pulls as the kubelet makes them, and containers that run from them.

use std::sync::OnceLock;
use std::time::Duration;

use allot_images::fixtures::registry::{Fault, Server};
use allot_images::fixtures::{Built, Layer, gzip};
use allot_images::{Limits, Store, Timeouts};
use allot_node::{ImageMode, Images};
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{Cluster, isolated, pod_path, status, with};
use super::programs;

const PAUSES: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(3600));

fn settings(mode: ImageMode) -> Images {
    Images {
        mode,
        pauses: PAUSES,
        ..Images::default()
    }
}

/// A layer with a shell and a few programs, as an archive.
fn base() -> Vec<u8> {
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
fn image(run: Value) -> Built {
    Built::with_config(&[(base(), gzip)], run)
}

fn plain() -> Built {
    image(json!({"Cmd": ["sh", "-c", "echo from the image; exec sleep 1000"]}))
}

/// A container that says nothing but its image.
fn container(image: &str) -> Value {
    json!({"name": "c", "image": image})
}

async fn with_registry(images: Images) -> Option<(Cluster, Server)> {
    let cluster = Cluster::with_images(images).await;
    if !isolated(&cluster).await {
        return None;
    }
    Some((cluster, Server::start().await))
}

/// Waits for the reason of a container's waiting state; the message.
async fn until_waiting(cluster: &Cluster, pod: &str, reason: &str) -> String {
    let waits = |pod: &Value| status(pod, "c")["state"]["waiting"]["reason"] == reason;
    let pod = cluster.until(&pod_path(pod), reason, waits).await;
    let message = &status(&pod, "c")["state"]["waiting"]["message"];
    message.as_str().unwrap_or_default().to_owned()
}

/// Waits for an event of a pod whose message has a part.
async fn until_told(cluster: &Cluster, pod: &str, reason: &str, part: &str) {
    let path = "/api/v1/namespaces/default/events";
    let told = |events: &Value| {
        let items = events["items"].as_array().cloned().unwrap_or_default();
        items.iter().any(|event| {
            event["reason"] == reason
                && event["involvedObject"]["name"] == pod
                && event["message"].as_str().unwrap_or_default().contains(part)
        })
    };
    cluster
        .until(path, &format!("{reason}: {part}"), told)
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
        let ended = cluster.until_phase(pod, "Succeeded").await;
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
    until_told(
        &cluster,
        "tag",
        "Pulling",
        &format!("Pulling image \"{name}\""),
    )
    .await;
    until_told(&cluster, "tag", "Pulled", "Successfully pulled image").await;
    until_told(&cluster, "digest", "Pulled", "already present on machine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_waited_for_as_by_the_kubelet() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    registry.push(&plain(), "v1");
    let missing = format!("{}/some/app:later", registry.authority);
    cluster
        .pod("p", json!({"containers": [container(&missing)]}))
        .await;
    let failed = format!("{missing}: not found");
    assert_eq!(until_waiting(&cluster, "p", "ErrImagePull").await, failed);
    let back_off = format!("Back-off pulling image \"{missing}\"");
    let message = until_waiting(&cluster, "p", "ImagePullBackOff").await;
    assert_eq!(message, format!("{back_off}: ErrImagePull: {failed}"));
    until_told(
        &cluster,
        "p",
        "Failed",
        &format!("Failed to pull image \"{missing}\": {failed}"),
    )
    .await;
    until_told(&cluster, "p", "Failed", "Error: ErrImagePull").await;
    until_told(&cluster, "p", "BackOff", &back_off).await;
    until_told(&cluster, "p", "Failed", "Error: ImagePullBackOff").await;
    // After the pause the next attempt finds it.
    registry.push(&plain(), "later");
    cluster.until_phase("p", "Running").await;
    cluster.until_logged("p", &["c"]).await;

    let never = with(
        container(&format!("{missing}-2")),
        "c",
        json!({"imagePullPolicy": "Never"}),
    );
    cluster.pod("never", json!({"containers": [never]})).await;
    let expected =
        format!("Container image \"{missing}-2\" is not present with pull policy of Never");
    assert_eq!(
        until_waiting(&cluster, "never", "ErrImageNeverPull").await,
        expected
    );
    let present = with(
        container(&missing),
        "c",
        json!({"imagePullPolicy": "Never"}),
    );
    cluster
        .pod("present", json!({"containers": [present]}))
        .await;
    cluster.until_phase("present", "Running").await;

    cluster
        .pod("invalid", json!({"containers": [container("No/Image")]}))
        .await;
    let message = until_waiting(&cluster, "invalid", "InvalidImageName").await;
    let expected =
        "Failed to apply default image tag \"No/Image\": couldn't parse image name \"No/Image\"";
    assert!(message.starts_with(expected), "{message}");
    until_told(&cluster, "invalid", "InspectFailed", expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_is_opened_by_the_pods_secret() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let name = registry.push(&plain(), "v1");
    registry.state.lock().login = Some(("me".to_owned(), "word".to_owned()));
    let secrets = "/api/v1/namespaces/default/secrets";
    for (secret, password) in [("right", "word"), ("wrong", "guess")] {
        let config = json!({"auths": {registry.authority.clone(): {"username": "me", "password": password}}});
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config.to_string()}});
        cluster.post(secrets, body).await;
    }
    let pod = async |pod: &str, secrets: Value| {
        let spec = json!({"containers": [container(&name)], "imagePullSecrets": secrets});
        cluster.pod(pod, spec).await;
    };
    for (name, secrets) in [
        ("none", json!([])),
        ("wrong", json!([{"name": "wrong"}])),
        ("missing", json!([{"name": "missing"}])),
    ] {
        pod(name, secrets).await;
        let message = until_waiting(&cluster, name, "ErrImagePull").await;
        assert!(message.contains("authorization failed"), "{message}");
    }
    let text = "Unable to retrieve some image pull secrets (missing); attempting to pull the image may not succeed.";
    until_told(&cluster, "missing", "FailedToRetrieveImagePullSecret", text).await;
    pod("right", json!([{"name": "wrong"}, {"name": "right"}])).await;
    cluster.until_phase("right", "Running").await;
    // It is on the node now; that is no right to use it.
    pod("again", json!([])).await;
    let message = until_waiting(&cluster, "again", "ErrImagePull").await;
    assert!(message.contains("authorization failed"), "{message}");
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    let account = json!({"imagePullSecrets": [{"name": "right"}]});
    let patched = cluster.call(http::Method::PATCH, path, Some(account)).await;
    patched.expect("an account");
    pod("account", json!([])).await;
    cluster.until_phase("account", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_image_is_told_and_nothing_runs() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let outside = cluster.root().join("outside");
    let climbing = Layer::new()
        .symlink("up", "/")
        .file("up/../../outside", "content");
    let absolute = Layer::new()
        .symlink("link", outside.parent().unwrap().to_str().unwrap())
        .file("link/outside", "content");
    for (tag, layer) in [("climbing", climbing), ("absolute", absolute)] {
        let built = Built::with_config(
            &[(base(), gzip), (layer.tar(), gzip)],
            json!({"Cmd": ["sh", "-c", "true"]}),
        );
        let name = registry.push(&built, tag);
        let containers = [container(&name)];
        cluster
            .pod(
                tag,
                json!({"restartPolicy": "Never", "containers": containers}),
            )
            .await;
        // The one entry is refused; the other lands in a directory of the image.
        let decided = |pod: &Value| {
            pod["status"]["phase"] == "Succeeded"
                || status(pod, "c")["state"]["waiting"]["reason"] == "ErrImagePull"
        };
        cluster.until(&pod_path(tag), "decided", decided).await;
        assert!(!outside.exists());
    }
    let name = registry.push(&plain(), "corrupt");
    registry.state.lock().fault = Fault::Corrupt;
    cluster
        .pod("corrupt", json!({"containers": [container(&name)]}))
        .await;
    let message = until_waiting(&cluster, "corrupt", "ErrImagePull").await;
    assert!(message.starts_with("content of sha256:"), "{message}");
    registry.state.lock().fault = Fault::None;
    cluster.until_phase("corrupt", "Running").await;

    let empty = registry.push(&image(json!({})), "empty");
    cluster
        .pod("empty", json!({"containers": [container(&empty)]}))
        .await;
    let message = until_waiting(&cluster, "empty", "CreateContainerError").await;
    assert!(message.contains("no command specified"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_does_not_answer_holds_nobody_up() {
    let mut images = settings(ImageMode::Require);
    images.timeouts.response = Duration::from_millis(500);
    let Some((cluster, registry)) = with_registry(images).await else {
        return;
    };
    let name = registry.push(&plain(), "v1");
    registry.state.lock().fault = Fault::Silent;
    cluster
        .pod("p", json!({"containers": [container(&name)]}))
        .await;
    let message = until_waiting(&cluster, "p", "ErrImagePull").await;
    assert!(message.contains("timed out"), "{message}");
    registry.state.lock().fault = Fault::None;
    cluster.until_phase("p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_while_its_image_is_pulled() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let name = registry.push(&plain(), "v1");
    registry.state.lock().fault = Fault::Stall(100);
    cluster
        .pod("p", json!({"containers": [container(&name)]}))
        .await;
    until_true("the download has begun", || registry.count("/blobs/") > 0).await;
    cluster.delete(&pod_path("p")).await;
    cluster.until(&pod_path("p"), "gone", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_from_the_hosts_files_when_no_registry_answers() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Auto)).await else {
        return;
    };
    let gone = Server::start().await.authority.clone();
    let name = format!("{gone}/some/app:v1");
    let command = |image: &str| json!({"name": "c", "image": image, "command": ["sh", "-c", "test -d /usr/share && echo from the host"]});
    cluster
        .pod(
            "p",
            json!({"restartPolicy": "Never", "containers": [command(&name)]}),
        )
        .await;
    let pod = cluster.until_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "from the host\n");
    assert_eq!(status(&pod, "c")["imageID"], "");
    let text = format!(
        "The registry of image \"{name}\" cannot be reached: the command runs from the host's files"
    );
    until_told(&cluster, "p", "ImageNotPulled", &text).await;
    // Without a command nobody knows what to run.
    cluster
        .pod("q", json!({"containers": [container(&name)]}))
        .await;
    let message = until_waiting(&cluster, "q", "ErrImagePull").await;
    assert!(message.contains("is unavailable"), "{message}");
    // A registry that answers has the last word.
    let missing = format!("{}/some/app:missing", registry.authority);
    cluster
        .pod("r", json!({"containers": [command(&missing)]}))
        .await;
    let message = until_waiting(&cluster, "r", "ErrImagePull").await;
    assert!(message.contains("not found"), "{message}");
    // The host's files by name.
    cluster
        .pod(
            "h",
            json!({"restartPolicy": "Never", "containers": [command("host")]}),
        )
        .await;
    cluster.until_phase("h", "Succeeded").await;
    // An image that is there is used, although its registry is not.
    let name = registry.push(&plain(), "latest");
    cluster
        .pod("first", json!({"containers": [container(&name)]}))
        .await;
    cluster.until_phase("first", "Running").await;
    drop(registry);
    for (pod, container) in [
        ("second", container(&name)),
        (
            "third",
            with(
                container(&name),
                "c",
                json!({"command": ["sh", "-c", "echo from the image"]}),
            ),
        ),
    ] {
        cluster.pod(pod, json!({"containers": [container]})).await;
        cluster.until_logged(pod, &["c"]).await;
        assert_eq!(cluster.log(pod, "c", 0), "from the image\n");
        until_told(
            &cluster,
            pod,
            "ImageNotPulled",
            "the image is used as it is on this node",
        )
        .await;
    }
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
    let message = until_waiting(&cluster, "root", "CreateContainerConfigError").await;
    assert!(
        message.contains("container has runAsNonRoot and image will run as root"),
        "{message}"
    );
    pod("named", by("app")).await;
    let message = until_waiting(&cluster, "named", "CreateContainerConfigError").await;
    assert!(
        message.contains("image has non-numeric user (app), cannot verify user is non-root"),
        "{message}"
    );
    pod("number", by("1234:77")).await;
    cluster.until_phase("number", "Succeeded").await;
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
    let used = registry.push(&plain(), "used");
    let path = cluster.root().join("images");
    let store = Store::open(path, Limits::default(), Timeouts::default()).unwrap();
    let names = || {
        let names = store.list().unwrap().into_iter().map(|image| image.name);
        names.collect::<Vec<_>>()
    };
    cluster
        .pod("p", json!({"containers": [container(&used)]}))
        .await;
    let before = cluster.until_phase("p", "Running").await;
    let spec = json!({"restartPolicy": "Never", "containers": [container(&unused)]});
    cluster.pod("q", spec).await;
    cluster.until_phase("q", "Succeeded").await;
    assert!(
        names().contains(&unused),
        "a container that has ended counts"
    );
    cluster.delete(&pod_path("q")).await;
    until_true("the unused image is gone", || names() == [used.as_str()]).await;
    // A new agent knows what runs.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    let again = cluster.until_phase("p", "Running").await;
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
    cluster.until_phase("p", "Succeeded").await;
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
    cluster.until_logged("p", &["c"]).await;
    cluster.delete(&pod_path("p")).await;
    cluster.until(&pod_path("p"), "gone", Value::is_null).await;
    assert_eq!(
        std::fs::read_to_string(out.join("end")).unwrap(),
        "interrupted\n"
    );
}
