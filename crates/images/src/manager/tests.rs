use std::collections::BTreeSet;

use super::*;
use crate::fixtures::registry::{Fault, Server};
use crate::fixtures::{Built, store};
use crate::keyring::SecretSource;
use crate::{Registries, Result};

struct Node {
    _directory: tempfile::TempDir,
    manager: Manager,
    server: Server,
}

impl Node {
    async fn new(backoff: Backoff) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let puller = Puller::new(store(directory.path()), Registries::default());
        Self {
            _directory: directory,
            manager: Manager::with_backoff(puller, backoff),
            server: Server::start().await,
        }
    }

    /// The events and the result, one line each.
    async fn ensure(&self, image: &str, policy: Policy, credentials: &[Credential]) -> Vec<String> {
        let mut told = Vec::new();
        let request = Request {
            pod_uid: "pod",
            image,
            policy,
            credentials,
        };
        let mut tell = |event: Event| {
            let kind = if event.warning { "Warning" } else { "Normal" };
            told.push(format!("{kind} {} {}", event.reason, event.message));
        };
        let end = match self.manager.ensure(&request, &mut tell).await {
            Ok(ready) => format!("ready {}", ready.image.name),
            Err(waiting) => format!("{}: {}", waiting.reason, waiting.message),
        };
        told.push(end);
        told.iter()
            .map(|line| line.replace(&self.server.authority, "HOST"))
            .collect()
    }
}

fn long() -> Backoff {
    Backoff::new(Duration::from_secs(3600), Duration::from_secs(3600))
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_those_of_the_kubelet() {
    let node = Node::new(long()).await;
    let name = node.server.push(&Built::simple(), "v1");
    let missing = format!("{}/some/app:none", node.server.authority);
    let told = node.ensure(&name, Policy::Never, &[]).await;
    assert_eq!(
        told,
        [
            "Warning ErrImageNeverPull Container image \"HOST/some/app:v1\" is not present with pull policy of Never",
            "Warning Failed Error: ErrImageNeverPull",
            "ErrImageNeverPull: Container image \"HOST/some/app:v1\" is not present with pull policy of Never",
        ]
    );
    let told = node.ensure(&name, Policy::IfNotPresent, &[]).await;
    assert_eq!(told[0], "Normal Pulling Pulling image \"HOST/some/app:v1\"");
    let start = "Normal Pulled Successfully pulled image \"HOST/some/app:v1\" in ";
    assert!(
        told[1].starts_with(start) && told[1].ends_with(" bytes."),
        "{told:?}"
    );
    assert!(
        told[1].contains(" including waiting). Image size: "),
        "{told:?}"
    );
    assert_eq!(told[2], "ready HOST/some/app:v1");
    for policy in [Policy::IfNotPresent, Policy::Never] {
        let told = node.ensure(&name, policy, &[]).await;
        let present = "Normal Pulled Container image \"HOST/some/app:v1\" already present on machine and can be accessed by the pod";
        assert_eq!(told, [present, "ready HOST/some/app:v1"]);
    }
    let told = node.ensure(&name, Policy::Always, &[]).await;
    assert_eq!(told[0], "Normal Pulling Pulling image \"HOST/some/app:v1\"");
    let told = node.ensure(&missing, Policy::IfNotPresent, &[]).await;
    assert_eq!(
        told,
        [
            "Normal Pulling Pulling image \"HOST/some/app:none\"",
            "Warning Failed Failed to pull image \"HOST/some/app:none\": HOST/some/app:none: not found",
            "Warning Failed Error: ErrImagePull",
            "ErrImagePull: HOST/some/app:none: not found",
        ]
    );
    let told = node.ensure(&missing, Policy::IfNotPresent, &[]).await;
    assert_eq!(
        told,
        [
            "Normal BackOff Back-off pulling image \"HOST/some/app:none\"",
            "Warning Failed Error: ImagePullBackOff",
            "ImagePullBackOff: Back-off pulling image \"HOST/some/app:none\": ErrImagePull: HOST/some/app:none: not found",
        ]
    );
    let told = node.ensure("Not/Valid", Policy::IfNotPresent, &[]).await;
    let message = "Failed to apply default image tag \"Not/Valid\": couldn't parse image name \"Not/Valid\": invalid reference format: repository name (Valid) must be lowercase";
    assert_eq!(told[0], format!("Warning InspectFailed {message}"));
    assert_eq!(told[2], format!("InvalidImageName: {message}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_pause_the_next_attempt_is_made() {
    let node = Node::new(Backoff::new(Duration::ZERO, Duration::ZERO)).await;
    let name = node.server.push(&Built::simple(), "v1");
    node.server.state.lock().fault = Fault::Corrupt;
    let told = node.ensure(&name, Policy::IfNotPresent, &[]).await;
    assert!(
        told[3].starts_with("ErrImagePull: content of sha256:"),
        "{told:?}"
    );
    node.server.state.lock().fault = Fault::None;
    let told = node.ensure(&name, Policy::IfNotPresent, &[]).await;
    assert_eq!(told[2], "ready HOST/some/app:v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_private_registry_is_for_those_who_can_pull_it() {
    let node = Node::new(long()).await;
    let name = node.server.push(&Built::simple(), "v1");
    node.server.state.lock().login = Some(("me".to_owned(), "word".to_owned()));
    let credential = |password: &str, uid: &str| Credential {
        username: "me".to_owned(),
        password: password.to_owned(),
        source: Some(SecretSource {
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: "pull".to_owned(),
            hash: password.to_owned(),
        }),
    };
    let own = [credential("word", "1")];
    let told = node.ensure(&name, Policy::IfNotPresent, &own).await;
    assert_eq!(told.last().unwrap(), "ready HOST/some/app:v1");
    // The same secret, or another one with the same content.
    for credentials in [&own, &[credential("word", "2")]] {
        let told = node.ensure(&name, Policy::Never, credentials).await;
        assert_eq!(told.len(), 2, "{told:?}");
    }
    let told = node.ensure(&name, Policy::Never, &[]).await;
    assert!(told[2].starts_with("ErrImageNeverPull: "), "{told:?}");
    let told = node.ensure(&name, Policy::IfNotPresent, &[]).await;
    assert!(told[3].starts_with("ErrImagePull: "), "{told:?}");
    // An image that was imported from a file is for all.
    let image = node.manager.source().store().list().unwrap().remove(0);
    let reference = Reference::parse(&name).unwrap();
    let file = |name: &str| node.manager.source().store().root().join(name);
    std::fs::remove_file(file("pulled.json")).unwrap();
    assert!(node.manager.may_use(&image, &reference, &[]).await);
    // With damaged records no pod may use it.
    std::fs::write(file("pulled.json"), "{").unwrap();
    assert!(!node.manager.may_use(&image, &reference, &[]).await);
}

/// A process that ended between a pull and its record leaves an image without a record.
#[tokio::test(flavor = "multi_thread")]
async fn regression_an_interrupted_pull_does_not_make_an_image_public() {
    let node = Node::new(Backoff::new(Duration::ZERO, Duration::ZERO)).await;
    let name = node.server.push(&Built::simple(), "v1");
    let login = ("me".to_owned(), "word".to_owned());
    node.server.state.lock().login = Some(login);
    let own = [Credential {
        username: "me".to_owned(),
        password: "word".to_owned(),
        source: Some(SecretSource {
            uid: "1".to_owned(),
            namespace: "ns".to_owned(),
            name: "pull".to_owned(),
            hash: "word".to_owned(),
        }),
    }];
    let reference = Reference::parse(&name).unwrap();
    let find = |_| async { unreachable!("there is room") };
    node.manager.records.begin(&reference, find).await.unwrap();
    node.manager.source().pull(&reference, &own).await.unwrap();
    let root = node.manager.source().store().root().to_owned();
    let puller = node.manager.source().clone();
    let node = Node {
        manager: Manager::of(puller, &root, Backoff::new(Duration::ZERO, Duration::ZERO)),
        ..node
    };
    // A pull that fails does not make it so either.
    for _ in 0..2 {
        let told = node.ensure(&name, Policy::IfNotPresent, &[]).await;
        let last = told.last().unwrap();
        assert!(last.starts_with("ErrImagePull: "), "{told:?}");
    }
    let told = node.ensure(&name, Policy::IfNotPresent, &own).await;
    assert_eq!(told.last().unwrap(), "ready HOST/some/app:v1");
    let told = node.ensure(&name, Policy::Never, &own).await;
    assert_eq!(told.len(), 2, "{told:?}");
    let told = node.ensure(&name, Policy::Never, &[]).await;
    assert!(told[2].starts_with("ErrImageNeverPull: "), "{told:?}");
}

/// Ten thousand pulls without a known end made the node refuse every other one, for good.
#[tokio::test(start_paused = true)]
async fn regression_notes_of_pulls_that_are_over_make_room() {
    use super::records::{End, Records};
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| Reference::parse(name).unwrap().with_default_tag();
    let notes: Vec<String> = (0..10_000)
        .map(|number| of(&format!("host/app{number:05}")).key())
        .collect();
    let path = directory.path().join("pulling.json");
    std::fs::write(&path, serde_json::to_vec(&notes).unwrap()).unwrap();
    let records = Records::new(directory.path());
    // The second image is present: it is not for all, whichever pod began its pull.
    let find = |reference: Reference| async move {
        let present = reference == of("host/app00001");
        Ok(present.then(|| "id".to_owned()))
    };
    let begin = async |name: &str| records.begin(&of(name), find).await;
    let full = begin("host/new").await.unwrap_err().to_string();
    assert!(
        full.contains("10000 pulls whose end is not known"),
        "{full}"
    );
    begin("host/app00002").await.expect("it is noted already");
    tokio::time::advance(Duration::from_secs(3 * 3600)).await;
    begin("host/new").await.expect("there is room");
    let noted =
        || -> BTreeSet<String> { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
    let mut left = noted();
    assert_eq!(left.len(), 9001);
    assert!(
        left.contains(&of("host/app00002").key()),
        "it is being pulled"
    );
    let is_open = async |id: &str| records.may_use(id, &of("host/app00001"), &[]).await;
    assert!(!is_open("id").await);
    assert!(is_open("imported").await);
    // What ended just now may go on at its source.
    records.end(&of("host/app00002"), End::Undecided).await;
    left.extend((0..999).map(|number| of(&format!("host/more{number}")).key()));
    std::fs::write(&path, serde_json::to_vec(&left).unwrap()).unwrap();
    begin("host/last").await.expect("there is room");
    let left = noted();
    assert_eq!(left.len(), 9001);
    assert!(left.contains(&of("host/app00002").key()), "it may go on");
}

#[test]
fn the_policy_of_latest_is_always() -> Result<()> {
    for (field, image, expected) in [
        (None, "app", Policy::Always),
        (None, "app:latest", Policy::Always),
        (None, "app:1", Policy::IfNotPresent),
        (Some("Never"), "app", Policy::Never),
        (Some("IfNotPresent"), "app", Policy::IfNotPresent),
        (Some("Always"), "app:1", Policy::Always),
    ] {
        assert_eq!(Policy::of(field, image), expected, "{field:?} {image}");
    }
    Ok(())
}

#[test]
fn durations_are_written_as_in_go() {
    for (millis, expected) in [
        (0, "0s"),
        (7, "7ms"),
        (1000, "1s"),
        (1230, "1.23s"),
        (61_005, "1m1.005s"),
        (3_600_000, "1h0m0s"),
    ] {
        assert_eq!(duration(Duration::from_millis(millis)), expected);
    }
}
