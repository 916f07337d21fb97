//! Claims from preparation to return.

use std::sync::atomic::Ordering;
use std::time::Duration;

use allot_protos::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use allot_protos::podresources_v1::{GetPodResourcesRequest, ListPodResourcesRequest};
use allot_testing::wait::until_true;
use serde_json::json;

use super::harness::{Cluster, pod_path, shell};

fn with_claim(script: &str) -> serde_json::Value {
    let mut container = shell(script);
    container["resources"] = json!({"claims": [{"name": "device"}]});
    json!({
        "containers": [container, {"name": "other", "image": "none", "command": ["sh", "-c", "echo $DEVICE; sleep 1000"]}],
        "resourceClaims": [{"name": "device", "resourceClaimName": "claim"}],
    })
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_device_and_gives_it_back() {
    let cluster = Cluster::start().await;
    let (plugin, calls) = cluster.driver().await;
    cluster.claim("claim", "b").await;
    let uid = cluster
        .pod("p", with_claim("echo device $DEVICE; sleep 1000"))
        .await;
    cluster.reserve("claim", "p", &uid).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster.wait_for_logs("p", &["c", "other"]).await;
    assert_eq!(cluster.log("p", "c", 0), "device b\n");
    assert_eq!(
        cluster.log("p", "other", 0),
        "\n",
        "a container without the claim does not see the device"
    );
    assert_eq!(*calls.log.lock().unwrap(), ["prepare default/claim"]);
    assert!(
        cluster.checkpoint().contains("DeviceName\\\":\\\"b"),
        "{}",
        cluster.checkpoint()
    );

    let socket = cluster.root().join("pod-resources/kubelet.sock");
    let channel = allot_protos::transport::connect(&socket).await.unwrap();
    let mut lister = PodResourcesListerClient::new(channel);
    let list = lister
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    let resources = &list.pod_resources[0].containers[0].dynamic_resources[0];
    assert_eq!(
        (
            resources.claim_name.as_str(),
            resources.claim_resources[0].device_name.as_str()
        ),
        ("claim", "b")
    );
    assert!(
        list.pod_resources[0].containers[1]
            .dynamic_resources
            .is_empty()
    );
    let request = GetPodResourcesRequest {
        pod_name: "q".into(),
        pod_namespace: "default".into(),
    };
    let error = lister.get(request).await.unwrap_err();
    assert_eq!(error.message(), "pod q in namespace default not found");

    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(
        *calls.log.lock().unwrap(),
        ["prepare default/claim", "unprepare default/claim"]
    );
    assert!(
        !cluster.checkpoint().contains("claim\\\""),
        "{}",
        cluster.checkpoint()
    );
    assert_eq!(
        std::fs::read_dir(cluster.cdi()).unwrap().count(),
        0,
        "no CDI file stays"
    );
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_driver_is_reported_and_tried_again() {
    let cluster = Cluster::start().await;
    let (_plugin, calls) = cluster.driver().await;
    calls.prepare_fails.store(true, Ordering::Relaxed);
    cluster.claim("claim", "a").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    let failed = "NodePrepareResources failed for ResourceClaim claim: the device is on fire";
    let expected =
        format!("Failed to prepare dynamic resources: prepare dynamic resources: {failed}");
    loop {
        // Until the reservation is there, another reason may be the first.
        let message = cluster
            .wait_for_event("p", "FailedPrepareDynamicResources")
            .await;
        if message == expected {
            break;
        }
        let events = cluster
            .get("/api/v1/namespaces/default/events")
            .await
            .to_string();
        if events.contains(&expected) {
            break;
        }
    }
    calls.prepare_fails.store(false, Ordering::Relaxed);
    cluster.wait_for_phase("p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_driver_nothing_starts() {
    let cluster = Cluster::start().await;
    cluster.claim("claim", "a").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    let wanted = "DRA driver test.example.com is not registered";
    cluster
        .wait_until("/api/v1/namespaces/default/events", wanted, |events| {
            events.to_string().contains(wanted)
        })
        .await;
    let (_plugin, _) = cluster.driver().await;
    cluster.wait_for_phase("p", "Running").await;
}

/// Without the event of the registration the next attempt would be a day later.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_prepared_at_once_when_its_driver_registers() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    cluster.adjust = |config| config.setup_backoff = (DAY, DAY);
    cluster.start_agent().await;
    cluster.claim("claim", "b").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    cluster
        .wait_for_event("p", "FailedPrepareDynamicResources")
        .await;
    let (_plugin, calls) = cluster.driver().await;
    cluster.wait_for_phase("p", "Running").await;
    assert_eq!(*calls.log.lock().unwrap(), ["prepare default/claim"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_a_driver_that_no_longer_runs_are_deleted() {
    let cluster = Cluster::start().await;
    let (plugin, _) = cluster.driver().await;
    let count = |list: &serde_json::Value| list["items"].as_array().map_or(0, Vec::len);
    let list = cluster
        .wait_until(SLICES, "published", |list| count(list) == 1)
        .await;
    let slice = &list["items"][0];
    assert!(
        slice["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("n1-test.example.com-")
    );
    assert_eq!(
        slice["spec"]["pool"],
        json!({"name": "n1", "generation": 1, "resourceSliceCount": 1})
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Node");
    cluster
        .wait_until("/api/v1/nodes/n1", "announced", |node| {
            node["metadata"]["annotations"]["allot.dev/registered-drivers"] == "test.example.com"
        })
        .await;
    plugin.stop().await;
    cluster
        .wait_until(SLICES, "empty", |list| count(list) == 0)
        .await;
    cluster
        .wait_until("/api/v1/nodes/n1", "announced", |node| {
            node["metadata"]["annotations"]["allot.dev/registered-drivers"] == ""
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_pods_that_were_deleted_meanwhile_are_unprepared() {
    let mut cluster = Cluster::start().await;
    let (_plugin, calls) = cluster.driver().await;
    cluster.claim("claim", "a").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster.stop_agent().await;
    let force = json!({"gracePeriodSeconds": 0});
    cluster
        .call(http::Method::DELETE, &pod_path("p"), Some(force))
        .await
        .unwrap();
    cluster.start_agent().await;
    until_true("the driver is called again", || {
        calls.log.lock().unwrap().len() >= 2
    })
    .await;
    assert_eq!(calls.log.lock().unwrap()[1], "unprepare default/claim");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_reads_about_its_device() {
    let cluster = Cluster::start().await;
    if !super::harness::has_isolation(&cluster).await {
        return;
    }
    let (_plugin, _) = cluster.driver().await;
    cluster.claim("claim", "b").await;
    let file = allot_driver::metadata::claim_file("test.example.com", "claim", "r");
    let mut spec = with_claim(&format!("cat {}", file.display()));
    spec["restartPolicy"] = json!("Never");
    let other = format!("test ! -e {}", file.display());
    spec["containers"][1]["command"] = json!(["sh", "-c", other]);
    let uid = cluster.pod("p", spec).await;
    cluster.reserve("claim", "p", &uid).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    let content = cluster.log("p", "c", 0);
    let file = allot_driver::metadata::decode(content.as_bytes()).unwrap();
    assert_eq!(file.metadata.name.as_deref(), Some("claim"));
    assert_eq!(file.requests[0].name, "r");
    assert_eq!(file.requests[0].devices[0].name, "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_preparation_failed_is_unprepared() {
    let cluster = Cluster::start().await;
    let (_plugin, calls) = cluster.driver().await;
    calls.prepare_fails.store(true, Ordering::Relaxed);
    cluster.claim("claim", "a").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    let events = "/api/v1/namespaces/default/events";
    cluster
        .wait_until(events, "reported", |events| {
            events.to_string().contains("the device is on fire")
        })
        .await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(*calls.log.lock().unwrap(), ["unprepare default/claim"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_a_killed_driver_had_begun_are_unprepared() {
    let cluster = Cluster::start().await;
    let process = tokio::runtime::Runtime::new().unwrap();
    let (_plugin, calls) = std::thread::scope(|scope| {
        let started = scope.spawn(|| process.block_on(cluster.driver()));
        started.join().unwrap()
    });
    calls.prepare_hangs.store(true, Ordering::Relaxed);
    cluster.claim("claim", "a").await;
    let uid = cluster.pod("p", with_claim("sleep 1000")).await;
    cluster.reserve("claim", "p", &uid).await;
    until_true("the driver is called", || {
        !calls.log.lock().unwrap().is_empty()
    })
    .await;
    // All of its tasks end where they are, and its connections are closed.
    process.shutdown_background();
    let (_plugin, calls) = cluster.driver().await;
    calls.prepare_fails.store(true, Ordering::Relaxed);
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(
        calls.log.lock().unwrap().last().map(String::as_str),
        Some("unprepare default/claim")
    );
}

/// A driver that needed longer than a kubelet waits was stopped in the middle each time, and never got done.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_driver_is_not_stopped_by_an_impatient_caller() {
    use allot_protos::dra_v1::dra_plugin_client::DraPluginClient;
    use allot_protos::dra_v1::{Claim, NodePrepareResourcesRequest};

    let cluster = Cluster::start().await;
    let (_plugin, calls) = cluster.driver().await;
    calls.prepare_hangs.store(true, Ordering::Relaxed);
    cluster.claim("claim", "a").await;
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim";
    let object = cluster.get(path).await;
    let claim = Claim {
        namespace: "default".into(),
        name: "claim".into(),
        uid: object["metadata"]["uid"].as_str().unwrap().into(),
    };
    let request = || NodePrepareResourcesRequest {
        claims: vec![claim.clone()],
    };
    let socket = cluster.root().join("plugins/test.example.com/dra.sock");
    let channel = allot_protos::transport::connect(&socket).await.unwrap();
    let mut driver = DraPluginClient::new(channel);
    {
        let mut impatient = driver.clone();
        let call = impatient.node_prepare_resources(request());
        let called = until_true("the driver is called", || {
            !calls.log.lock().unwrap().is_empty()
        });
        tokio::select! {
            _ = call => panic!("the driver waits"),
            () = called => {}
        }
    }
    let again = driver.node_prepare_resources(request());
    calls.resume.notify_one();
    let answer = again.await.unwrap().into_inner();
    let answer = &answer.claims[&claim.uid];
    assert_eq!(
        (
            answer.error.as_str(),
            answer.devices[0].device_name.as_str()
        ),
        ("", "a")
    );
    assert_eq!(
        *calls.log.lock().unwrap(),
        ["stuck", "prepare default/claim"]
    );
}

/// Connections that a socket has accepted, as the kernel lists them.
fn connections(socket: &std::path::Path) -> usize {
    const CONNECTED: &str = "03";
    let all = std::fs::read_to_string("/proc/net/unix").expect("the sockets");
    let path = socket.to_str().expect("a path");
    let own = all.lines().filter(|line| line.ends_with(path));
    own.filter(|line| line.split_whitespace().nth(5) == Some(CONNECTED))
        .count()
}

/// There was another one, which only told whether the driver is there.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_driver_has_one_connection_for_calls_health_and_its_end() {
    let cluster = Cluster::start().await;
    let socket = cluster.root().join("plugins/test.example.com/dra.sock");
    for _ in 0..2 {
        let (plugin, _) = cluster.driver().await;
        cluster.claim("claim", "a").await;
        let uid = cluster.pod("p", with_claim("sleep 1000")).await;
        cluster.reserve("claim", "p", &uid).await;
        cluster.wait_for_phase("p", "Running").await;
        until_true("one connection is left", || connections(&socket) == 1).await;
        let path = format!("{}?gracePeriodSeconds=0", pod_path("p"));
        cluster.delete(&path).await;
        let claim = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim";
        cluster.delete(claim).await;
        plugin.stop().await;
        // Its end is noticed, also while nothing is called.
        let annotation = |node: &serde_json::Value| {
            node["metadata"]["annotations"]["allot.dev/registered-drivers"] == ""
        };
        cluster
            .wait_until("/api/v1/nodes/n1", "without a driver", annotation)
            .await;
    }
}
