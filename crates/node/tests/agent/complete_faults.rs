//! A container runtime whose sandboxes are gone, and one that sends garbage.

use allot_testing::wait::until_true;
use serde_json::{Value, json};

use super::complete::{app, condition, start};
use super::harness::{pod_path, status};

const NODE: &str = "/api/v1/nodes/n1";

/// In a new sandbox nothing is there of what init containers have set up: they run again, as with a kubelet, also if the agent ends
/// meanwhile. The pod has the address of the new one alone; a patch of the status that adds it to the old one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_pod_whose_sandbox_is_gone_begins_again() {
    let (fake, mut cluster, _directory) = start().await;
    let networks =
        |address: &str| fake.state.lock().expect("a state").address = Some(address.into());
    networks("10.88.0.7");
    cluster
        .wait_until(NODE, "with a network", |node| {
            condition(node, "NetworkReady")["status"] == "True"
        })
        .await;
    let before = app(json!({"name": "before"}));
    let spec = json!({"initContainers": [before], "containers": [app(json!({}))]});
    cluster.pod("p", spec).await;
    let init = |runs: u64| {
        move |pod: &Value| {
            let status = &pod["status"]["initContainerStatuses"][0];
            status["restartCount"] == runs && !status["state"]["running"].is_null()
        }
    };
    cluster
        .wait_until(&pod_path("p"), "initializing", init(0))
        .await;
    let end = |name: &str| {
        let id = fake.running(name).expect("a container");
        let mut state = fake.state.lock().expect("a state");
        state.end(&id, 0, "Completed");
    };
    end("before");
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], "10.88.0.7");

    // The machine is started again.
    cluster.stop_agent().await;
    fake.state.lock().expect("a state").end_all();
    networks("10.88.0.8");
    cluster.start_agent().await;
    cluster
        .wait_until(&pod_path("p"), "beginning again", init(1))
        .await;
    assert_eq!(fake.running("c"), None, "init containers come first");
    cluster.wait_for_event("p", "SandboxChanged").await;
    cluster.stop_agent().await;
    end("before");
    cluster.start_agent().await;
    let pod = cluster
        .wait_until(&pod_path("p"), "running again", |pod| {
            let status = status(pod, "c");
            status["restartCount"] == 1 && !status["state"]["running"].is_null()
        })
        .await;
    assert_eq!(
        status(&pod, "c")["lastState"]["terminated"]["exitCode"],
        255
    );
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": "10.88.0.8"}]));
    assert_eq!(pod["status"]["phase"], "Running");

    // A pod whose sandbox is gone keeps the address that was reported until it is deleted.
    cluster.stop_agent().await;
    {
        let mut state = fake.state.lock().expect("a state");
        state.sandboxes.clear();
        state.containers.clear();
    }
    cluster.delete(&pod_path("p")).await;
    cluster.start_agent().await;
    cluster.wait_until_gone("p").await;
}

/// The same if the agent ends as soon as the new sandbox is there, before it has reported anything of it.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_pod_begins_again_if_the_agent_ends_with_a_new_sandbox() {
    let (fake, mut cluster, _directory) = start().await;
    let before = app(json!({"name": "before"}));
    let spec = json!({"initContainers": [before], "containers": [app(json!({}))]});
    cluster.pod("p", spec).await;
    until_true("the init container runs", || {
        fake.running("before").is_some()
    })
    .await;
    {
        let id = fake.running("before").expect("a container");
        fake.state.lock().expect("a state").end(&id, 0, "Completed");
    }
    cluster.wait_for_phase("p", "Running").await;
    cluster.stop_agent().await;
    {
        let mut state = fake.state.lock().expect("a state");
        state.end_all();
        let mut new = state.sandboxes.values().next().expect("a sandbox").clone();
        new.ready = true;
        new.config.metadata.as_mut().expect("metadata").attempt = 1;
        state.sandboxes.insert("new".to_owned(), new);
    }
    cluster.start_agent().await;
    until_true("the init container runs again", || {
        assert_eq!(fake.running("c"), None, "init containers come first");
        fake.running("before").is_some()
    })
    .await;
    let state = fake.state.lock().expect("a state");
    let running = state.containers.values().filter(|it| it.sandbox == "new");
    assert_eq!(running.count(), 1);
}

/// A plugin of the network that hangs: the runtime has four minutes for a sandbox, and a pod that is deleted does not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_sandbox_that_is_never_created_keeps_no_pod() {
    let (fake, cluster, _directory) = start().await;
    fake.state.lock().expect("a state").creations_hang = true;
    cluster
        .pod("p", json!({"containers": [app(json!({}))]}))
        .await;
    let asked = || fake.state.lock().expect("a state").count("RunPodSandbox") > 0;
    until_true("the sandbox is asked for", asked).await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    // That it ends is no failure of the pod. Events are recorded in order.
    fake.state.lock().expect("a state").creations_hang = false;
    cluster
        .pod("q", json!({"containers": [app(json!({}))]}))
        .await;
    cluster.wait_for_event("q", "Started").await;
    let events = cluster.get("/api/v1/namespaces/default/events").await;
    let events = events["items"].as_array().expect("a list");
    let of_pod = events
        .iter()
        .filter(|it| it["involvedObject"]["name"] == "p");
    let failures: Vec<&Value> = of_pod.filter(|it| it["type"] == "Warning").collect();
    assert_eq!(failures, Vec::<&Value>::new());
}

/// The same of a pod that has run, and gets another sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_new_sandbox_that_is_never_created_keeps_no_pod() {
    let (fake, cluster, _directory) = start().await;
    cluster
        .pod("p", json!({"containers": [app(json!({}))]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    {
        let mut state = fake.state.lock().expect("a state");
        state.creations_hang = true;
        state.end_all();
    }
    let asked = || fake.state.lock().expect("a state").count("RunPodSandbox") > 1;
    until_true("another sandbox is asked for", asked).await;
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
}

/// A sandbox that could not be created at once got the number of the first one: the runtime refuses it while that is being removed, and
/// the next agent takes the older one for the newer.
#[tokio::test(flavor = "multi_thread")]
async fn regression_no_sandbox_has_the_number_of_an_earlier_one() {
    let (fake, cluster, _directory) = start().await;
    cluster
        .pod("p", json!({"containers": [app(json!({}))]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    {
        let mut state = fake.state.lock().expect("a state");
        state.removals_hang = true;
        state.sandbox_error = Some("no address is left".into());
        state.end_all();
    }
    let asked = || fake.state.lock().expect("a state").count("RunPodSandbox") > 2;
    until_true("another sandbox is refused", asked).await;
    fake.state.lock().expect("a state").sandbox_error = None;
    cluster
        .wait_until(&pod_path("p"), "running again", |pod| {
            let status = status(pod, "c");
            status["restartCount"] == 1 && !status["state"]["running"].is_null()
        })
        .await;
    let state = fake.state.lock().expect("a state");
    let metadata = state.sandboxes.values().map(|it| &it.config.metadata);
    let mut attempts: Vec<u32> = metadata.flatten().map(|it| it.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_answers_are_absurd_harms_nothing() {
    let (fake, mut cluster, _directory) = start().await;
    let spec = |name: &str| json!({"containers": [app(json!({"name": name}))]});
    cluster.pod("before", spec("c")).await;
    cluster.wait_for_phase("before", "Running").await;
    fake.state.lock().expect("a state").sends_garbage = true;
    cluster.stop_agent().await;
    cluster.start_agent().await;
    // Pods are run, and their end is reported.
    let once = json!({"restartPolicy": "Never", "containers": [app(json!({"name": "d"}))]});
    cluster.pod("during", once).await;
    let pod = cluster.wait_for_phase("during", "Running").await;
    let image = status(&pod, "d")["imageID"].as_str().unwrap_or_default();
    assert!(image.len() <= 1024, "{} bytes", image.len());
    let id = fake.running("d").expect("a container");
    fake.state.lock().expect("a state").end(&id, 1, "Error");
    cluster.wait_for_phase("during", "Failed").await;
    // The one that was adopted has a number of restarts that the API takes.
    let id = fake.running("c").expect("a container");
    fake.state.lock().expect("a state").end(&id, 1, "Error");
    let pod = cluster
        .wait_until(&pod_path("before"), "restarted", |pod| {
            let status = status(pod, "c");
            !status["lastState"]["terminated"].is_null()
        })
        .await;
    assert!(status(&pod, "c")["restartCount"].as_i64() <= Some(i32::MAX.into()));
    cluster
        .wait_until(NODE, "with a version", |node| {
            let info = &node["status"]["nodeInfo"]["containerRuntimeVersion"];
            info.as_str().is_some_and(|text| text.len() > 100)
        })
        .await;
    // Events without end are not the pace at which it is asked.
    let counts = || {
        let state = fake.state.lock().expect("a state");
        (state.events, state.lists)
    };
    until_true("there are many events", || counts().0 > 100).await;
    let (events, lists) = counts();
    assert!(lists < events, "{lists} lists for {events} events");
    for pod in ["before", "during"] {
        cluster
            .delete(&format!("{}?gracePeriodSeconds=0", pod_path(pod)))
            .await;
        cluster.wait_until_gone(pod).await;
    }
}
