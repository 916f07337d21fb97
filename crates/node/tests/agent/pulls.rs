//! Pulls by the kubelet's rules, from a registry that may be slow, closed or an attacker's.

use std::time::Duration;

use allot_images::fixtures::registry::Fault;
use allot_images::fixtures::{Built, Layer, gzip};
use allot_node::ImageMode;
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::harness::{pod_path, status, with};
use super::images::{
    container, image, settings, shell_layer, sleeping_image, wait_for_event_with,
    wait_for_waiting_reason, with_registry,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_waited_for_as_by_the_kubelet() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    registry.push(&sleeping_image(), "v1");
    let missing = format!("{}/some/app:later", registry.authority);
    cluster
        .pod("p", json!({"containers": [container(&missing)]}))
        .await;
    let failed = format!("{missing}: not found");
    assert_eq!(
        wait_for_waiting_reason(&cluster, "p", "ErrImagePull").await,
        failed
    );
    let back_off = format!("Back-off pulling image \"{missing}\"");
    let message = wait_for_waiting_reason(&cluster, "p", "ImagePullBackOff").await;
    assert_eq!(message, format!("{back_off}: ErrImagePull: {failed}"));
    wait_for_event_with(
        &cluster,
        "p",
        "Failed",
        &format!("Failed to pull image \"{missing}\": {failed}"),
    )
    .await;
    wait_for_event_with(&cluster, "p", "Failed", "Error: ErrImagePull").await;
    wait_for_event_with(&cluster, "p", "BackOff", &back_off).await;
    wait_for_event_with(&cluster, "p", "Failed", "Error: ImagePullBackOff").await;
    // After the pause the next attempt finds it.
    registry.push(&sleeping_image(), "later");
    cluster.wait_for_phase("p", "Running").await;
    cluster.wait_for_logs("p", &["c"]).await;

    let never = with(
        container(&format!("{missing}-2")),
        "c",
        json!({"imagePullPolicy": "Never"}),
    );
    cluster.pod("never", json!({"containers": [never]})).await;
    let expected =
        format!("Container image \"{missing}-2\" is not present with pull policy of Never");
    assert_eq!(
        wait_for_waiting_reason(&cluster, "never", "ErrImageNeverPull").await,
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
    cluster.wait_for_phase("present", "Running").await;

    cluster
        .pod("invalid", json!({"containers": [container("No/Image")]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "invalid", "InvalidImageName").await;
    let expected =
        "Failed to apply default image tag \"No/Image\": couldn't parse image name \"No/Image\"";
    assert!(message.starts_with(expected), "{message}");
    wait_for_event_with(&cluster, "invalid", "InspectFailed", expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_is_opened_by_the_pods_secret() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let name = registry.push(&sleeping_image(), "v1");
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
        let message = wait_for_waiting_reason(&cluster, name, "ErrImagePull").await;
        assert!(message.contains("authorization failed"), "{message}");
    }
    let text = "Unable to retrieve some image pull secrets (missing); attempting to pull the image may not succeed.";
    wait_for_event_with(&cluster, "missing", "FailedToRetrieveImagePullSecret", text).await;
    pod("right", json!([{"name": "wrong"}, {"name": "right"}])).await;
    cluster.wait_for_phase("right", "Running").await;
    // It is on the node now; that is no right to use it.
    pod("again", json!([])).await;
    let message = wait_for_waiting_reason(&cluster, "again", "ErrImagePull").await;
    assert!(message.contains("authorization failed"), "{message}");
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    let account = json!({"imagePullSecrets": [{"name": "right"}]});
    let patched = cluster.call(http::Method::PATCH, path, Some(account)).await;
    patched.expect("an account");
    pod("account", json!([])).await;
    cluster.wait_for_phase("account", "Running").await;
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
            &[(shell_layer(), gzip), (layer.tar(), gzip)],
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
        cluster.wait_until(&pod_path(tag), "decided", decided).await;
        assert!(!outside.exists());
    }
    let name = registry.push(&sleeping_image(), "corrupt");
    registry.state.lock().fault = Fault::Corrupt;
    cluster
        .pod("corrupt", json!({"containers": [container(&name)]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "corrupt", "ErrImagePull").await;
    assert!(message.starts_with("content of sha256:"), "{message}");
    registry.state.lock().fault = Fault::None;
    cluster.wait_for_phase("corrupt", "Running").await;

    let empty = registry.push(&image(json!({})), "empty");
    cluster
        .pod("empty", json!({"containers": [container(&empty)]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "empty", "CreateContainerError").await;
    assert!(message.contains("no command specified"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_does_not_answer_delays_no_pod() {
    let mut images = settings(ImageMode::Require);
    images.timeouts.response = Duration::from_millis(500);
    let Some((cluster, registry)) = with_registry(images).await else {
        return;
    };
    let name = registry.push(&sleeping_image(), "v1");
    registry.state.lock().fault = Fault::Silent;
    cluster
        .pod("p", json!({"containers": [container(&name)]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "p", "ErrImagePull").await;
    assert!(message.contains("timed out"), "{message}");
    registry.state.lock().fault = Fault::None;
    cluster.wait_for_phase("p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_while_its_image_is_pulled() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Require)).await else {
        return;
    };
    let name = registry.push(&sleeping_image(), "v1");
    registry.state.lock().fault = Fault::Stall(100);
    cluster
        .pod("p", json!({"containers": [container(&name)]}))
        .await;
    until_true("the download has begun", || registry.count("/blobs/") > 0).await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_from_the_hosts_files_when_no_registry_answers() {
    let Some((cluster, registry)) = with_registry(settings(ImageMode::Auto)).await else {
        return;
    };
    // Bound, so that no other registry gets the port, and not listened on.
    let gone = tokio::net::TcpSocket::new_v4().unwrap();
    gone.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let name = format!("{}/some/app:v1", gone.local_addr().unwrap());
    let command = |image: &str| json!({"name": "c", "image": image, "command": ["sh", "-c", "test -d /usr/share && echo from the host"]});
    cluster
        .pod(
            "p",
            json!({"restartPolicy": "Never", "containers": [command(&name)]}),
        )
        .await;
    let pod = cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "from the host\n");
    assert_eq!(status(&pod, "c")["imageID"], "");
    let text = format!(
        "The registry of image \"{name}\" cannot be reached: the command runs from the host's files"
    );
    wait_for_event_with(&cluster, "p", "ImageNotPulled", &text).await;
    // Without a command there is no program to run.
    cluster
        .pod("q", json!({"containers": [container(&name)]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "q", "ErrImagePull").await;
    assert!(message.contains("is unavailable"), "{message}");
    // A registry that answers has the last word.
    let missing = format!("{}/some/app:missing", registry.authority);
    cluster
        .pod("r", json!({"containers": [command(&missing)]}))
        .await;
    let message = wait_for_waiting_reason(&cluster, "r", "ErrImagePull").await;
    assert!(message.contains("not found"), "{message}");
    // The host's files by name.
    cluster
        .pod(
            "h",
            json!({"restartPolicy": "Never", "containers": [command("host")]}),
        )
        .await;
    cluster.wait_for_phase("h", "Succeeded").await;
    // An image that is there is used, although its registry is not.
    let name = registry.push(&sleeping_image(), "latest");
    cluster
        .pod("first", json!({"containers": [container(&name)]}))
        .await;
    cluster.wait_for_phase("first", "Running").await;
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
        cluster.wait_for_logs(pod, &["c"]).await;
        assert_eq!(cluster.log(pod, "c", 0), "from the image\n");
        wait_for_event_with(
            &cluster,
            pod,
            "ImageNotPulled",
            "the image is used as it is on this node",
        )
        .await;
    }
}
