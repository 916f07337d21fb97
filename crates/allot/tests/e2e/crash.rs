//! The process is killed at any moment: nothing that was acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;

use super::harness::{ALLOT, PATIENCE, Up, directory, example};

const KILLS: u64 = 20;

/// Writes that are acknowledged before each kill.
const WRITES: usize = 8;

/// Pods that run all the time; each holds a GPU.
const PODS: usize = 4;

const PLAIN_POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers":
    [{"name": "main", "image": "busybox", "command": ["sleep", "1000"]}]}}"#;

/// Writes until the server has stopped; records acknowledged writes.
async fn write(client: Client, acknowledged: Arc<Mutex<BTreeSet<String>>>, next: Arc<AtomicUsize>) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    loop {
        let name = format!("map-{}", next.fetch_add(1, Ordering::Relaxed));
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.clone());
        map.data = Some(BTreeMap::from([("name".to_owned(), name.clone())]));
        if maps.create(&PostParams::default(), &map).await.is_err() {
            return;
        }
        acknowledged.lock().insert(name);
    }
}

/// Every device is in at most one claim.
async fn no_device_twice(client: &Client) {
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    let mut holders = BTreeMap::new();
    for claim in claims
        .list(&ListParams::default())
        .await
        .expect("claims")
        .items
    {
        let name = claim.metadata.name.unwrap_or_default();
        let allocation = claim.status.and_then(|status| status.allocation);
        let results = allocation.and_then(|allocation| allocation.devices?.results);
        for result in results.into_iter().flatten() {
            let device = (result.driver, result.pool, result.device);
            if let Some(other) = holders.insert(device.clone(), name.clone()) {
                panic!("{device:?} is in {other} and {name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_under_load_lose_nothing() {
    let directory = directory();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let next = Arc::new(AtomicUsize::new(0));
    let mut up = Up::start(directory.path(), &[]).await;
    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    let pod = example("example_claim_po.yaml");
    for index in 0..PODS {
        up.create(&pod.replace("name: example-claim", &format!("name: pod-{index}")))
            .await;
    }
    for kill in 0..KILLS {
        let writers: Vec<_> = (0..4)
            .map(|_| tokio::spawn(write(up.client.clone(), acknowledged.clone(), next.clone())))
            .collect();
        // Moments all over the half second that comes after some writes on any machine.
        let begun = async {
            while acknowledged.lock().len() < WRITES * (kill as usize + 1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begun)
            .await
            .expect("the writers get somewhere");
        tokio::time::sleep(Duration::from_millis(kill * 131 % 500)).await;
        up.kill();
        for writer in writers {
            writer.await.expect("writers stop by themselves");
        }
        up = Up::start(directory.path(), &[]).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(up.client.clone());
        let stored = maps.list(&ListParams::default()).await.expect("maps").items;
        let stored: BTreeSet<_> = stored
            .into_iter()
            .filter_map(|map| map.metadata.name)
            .collect();
        let lost: Vec<_> = acknowledged.lock().difference(&stored).cloned().collect();
        assert!(lost.is_empty(), "kill {kill} lost {lost:?}");
        no_device_twice(&up.client).await;
    }
    for index in 0..PODS {
        let name = format!("pod-{index}");
        up.running(&name).await;
        assert_eq!(
            up.gpus(&name, "ctr").await.len(),
            1,
            "{name} still sees its GPU"
        );
    }
    no_device_twice(&up.client).await;
    assert!(up.stop());
}

/// `allot up` said that it was ready by the Node of the run before, while nothing listened at its address yet.
#[tokio::test(flavor = "multi_thread")]
async fn regression_pods_can_be_reached_as_soon_as_a_restarted_cluster_is_ready() {
    let directory = directory();
    let mut up = Up::start(directory.path(), &["--no-driver"]).await;
    up.create(PLAIN_POD).await;
    up.running("plain").await;
    for _ in 0..5 {
        up.kill();
        up = Up::start(directory.path(), &["--no-driver"]).await;
        assert_eq!(up.exec("plain", "main", &["echo", "here"]).await, "here\n");
    }
    assert!(up.stop());
}

/// A pod that was created at once had no token: the API server accepts pods without an account if no controller creates
/// accounts.
#[tokio::test(flavor = "multi_thread")]
async fn regression_the_first_pod_of_a_cluster_has_a_token() {
    for _ in 0..5 {
        let directory = directory();
        let up = Up::start(directory.path(), &["--nodes", "0", "--no-driver"]).await;
        up.create(PLAIN_POD).await;
        let pod = up.pods().get("plain").await.expect("created");
        let spec = pod.spec.expect("a spec");
        assert_eq!(spec.service_account_name.as_deref(), Some("default"));
        let volumes = spec.volumes.unwrap_or_default();
        assert!(
            volumes
                .iter()
                .any(|it| it.name.starts_with("kube-api-access-")),
            "{volumes:?}"
        );
    }
}

/// Controllers that were still listing when they were told to stop waited 10 seconds for caches that had stopped.
#[test]
fn regression_a_cluster_told_to_stop_at_once_does() {
    let mut child = Command::new(ALLOT)
        .args(["up", "--listen", "127.0.0.1:0", "--in-memory"])
        .args(["--nodes", "0", "--no-driver"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with("ready"), "{line}");
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.expect("kill runs").success());
    let output = child.wait_with_output().expect("ended");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("not finished within"), "{errors}");
}

/// A cluster that was still starting ignored signals.
#[test]
fn regression_a_cluster_told_to_stop_while_it_starts_does() {
    for command in ["up", "apiserver"] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(ALLOT)
            .args([command, "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // Signals are caught before anything is made in the directory.
        let begun = || std::fs::read_dir(directory.path()).is_ok_and(|mut it| it.next().is_some());
        while !begun() {
            assert!(child.try_wait().expect("waited").is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        let killed = Command::new("kill").arg(child.id().to_string()).status();
        assert!(killed.expect("kill runs").success());
        let output = child.wait_with_output().expect("ended");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
    }
}
