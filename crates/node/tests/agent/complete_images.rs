//! Images of a container runtime: which pods may use them, and when they are removed.

use allot_protos::cri_v1 as v1;
use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::complete::{app, start};
use super::harness::{pod_path, status};
use super::runtime::FakeRuntime;

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_with_the_secrets_of_the_pod() {
    let (fake, cluster, _directory) = start().await;
    let config = r#"{"auths": {"registry.example.com": {"username": "u", "password": "right"}}}"#;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    cluster
        .post("/api/v1/namespaces/default/secrets", secret)
        .await;
    let container = app(json!({"image": "registry.example.com/private"}));
    cluster
        .pod("without", json!({"containers": [container.clone()]}))
        .await;
    let message = cluster.wait_for_event("without", "Failed").await;
    assert!(
        message.contains("401 Unauthorized") || message.contains("ErrImagePull"),
        "{message}"
    );
    let with = json!({"containers": [container], "imagePullSecrets": [{"name": "s"}]});
    cluster.pod("with", with).await;
    cluster.wait_for_phase("with", "Running").await;
    let passwords = fake.state.lock().expect("a state").passwords.clone();
    assert!(passwords.contains(&"right".to_owned()), "{passwords:?}");
}

/// The attack: a pod names a private image that a pod of another tenant has brought to the node, without its secret.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_private_image_on_the_node_is_for_pods_that_could_pull_it() {
    let (fake, mut cluster, _directory) = start().await;
    let config = r#"{"auths": {"registry.example.com": {"username": "u", "password": "right"}}}"#;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.post(secrets, secret).await;
    let container = |name: &str, policy: &str| {
        app(
            json!({"name": name, "image": "registry.example.com/private:1", "imagePullPolicy": policy}),
        )
    };
    let owner = json!({"containers": [container("c", "IfNotPresent")], "imagePullSecrets": [{"name": "s"}]});
    cluster.pod("owner", owner).await;
    cluster.wait_for_phase("owner", "Running").await;
    // The records outlive the agent.
    for attempt in ["before", "after"] {
        for (policy, reason) in [
            ("IfNotPresent", "ErrImagePull"),
            ("Never", "ErrImageNeverPull"),
        ] {
            let name = format!("thief-{attempt}-{}", policy.to_lowercase());
            let spec = json!({"containers": [container("d", policy)]});
            cluster.pod(&name, spec).await;
            cluster
                .wait_until(&pod_path(&name), "refused", |pod| {
                    assert_ne!(pod["status"]["phase"], "Running");
                    status(pod, "d")["state"]["waiting"]["reason"] == reason
                })
                .await;
            assert!(fake.running("d").is_none());
            cluster.delete(&pod_path(&name)).await;
        }
        let pulls = fake.state.lock().expect("a state").passwords.len();
        let name = format!("friend-{attempt}");
        let spec = json!({"containers": [container("e", "IfNotPresent")], "imagePullSecrets": [{"name": "s"}]});
        cluster.pod(&name, spec).await;
        cluster.wait_for_phase(&name, "Running").await;
        let after = fake.state.lock().expect("a state").passwords.len();
        assert_eq!(pulls, after, "a pod with the secret needs no pull");
        let force = format!("{}?gracePeriodSeconds=0", pod_path(&name));
        cluster.delete(&force).await;
        cluster.wait_until_gone(&name).await;
        cluster.stop_agent().await;
        cluster.start_agent().await;
    }
}

/// Adds an image to a runtime.
fn add_image(fake: &FakeRuntime, name: &str, id: &str) {
    let image = v1::Image {
        id: id.into(),
        size: 7,
        ..Default::default()
    };
    let mut state = fake.state.lock().expect("a state");
    state.images.insert(name.to_owned(), image);
}

/// A pod with an image as a volume.
fn with_data() -> Value {
    let mounts = json!([{"name": "v", "mountPath": "/data", "subPath": "sub"}]);
    let image = json!({"reference": "data:1", "pullPolicy": "IfNotPresent"});
    json!({"containers": [app(json!({"volumeMounts": mounts}))], "volumes": [{"name": "v", "image": image}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_can_be_a_volume_of_the_runtime() {
    let (fake, cluster, _directory) = start().await;
    cluster.pod("p", with_data()).await;
    // It is pulled first, as that of a container.
    let message = cluster.wait_for_event("p", "Pulling").await;
    assert_eq!(message, "Pulling image \"data:1\"");
    add_image(&fake, "docker.io/library/data:1", "sha256:data");
    cluster.wait_for_phase("p", "Running").await;
    let id = fake.running("c").expect("a container");
    let state = fake.state.lock().expect("a state");
    let mounts = &state.containers[&id].config.mounts;
    let mount = mounts.iter().find(|it| it.container_path == "/data");
    let mount = mount.expect("a mount of the volume");
    let image = mount.image.as_ref().expect("an image");
    assert_eq!(image.image, "sha256:data");
    assert_eq!((&*mount.image_sub_path, &*mount.host_path), ("sub", ""));
    assert!(mount.readonly);
    let others = mounts.iter().filter(|it| it.container_path != "/data");
    assert_eq!(others.filter(|it| it.image.is_some()).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_nobody_uses_are_removed_when_the_disk_is_full() {
    let (fake, mut cluster, directory) = start().await;
    add_image(&fake, "docker.io/library/data:1", "sha256:data");
    cluster.pod("p", with_data()).await;
    cluster.wait_for_phase("p", "Running").await;
    {
        let mut state = fake.state.lock().expect("a state");
        let image = |id: &str, pinned| v1::Image {
            id: id.into(),
            size: 7,
            pinned,
            ..Default::default()
        };
        let images = [
            ("pause:1".to_owned(), image("sha256:pause", true)),
            ("old:1".to_owned(), image("sha256:old", false)),
        ];
        state.images.extend(images);
        state.filesystem = Some(v1::FilesystemUsage {
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: directory.path().to_string_lossy().into_owned(),
            }),
            ..Default::default()
        });
    }
    cluster.stop_agent().await;
    cluster.images.collection = allot_images::collect::Policy {
        high_threshold_percent: 0,
        low_threshold_percent: 0,
        min_age: std::time::Duration::ZERO,
        ..Default::default()
    };
    cluster.images.collection_period = std::time::Duration::from_millis(100);
    cluster.start_agent().await;
    until_true("what nobody uses is removed", || {
        let state = fake.state.lock().expect("a state");
        !state.images.values().any(|image| image.id == "sha256:old")
    })
    .await;
    let state = fake.state.lock().expect("a state");
    let kept: Vec<&str> = state.images.values().map(|it| it.id.as_str()).collect();
    assert_eq!(kept, ["sha256:app", "sha256:data", "sha256:pause"]);
}
