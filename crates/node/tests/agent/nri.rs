//! NRI plugins and real containers: a test plugin adjusts a pod and receives the events of its life cycle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use allot_node::Config;
use allot_protos::nri::{
    Container, ContainerAdjustment, ContainerState, CreateContainerRequest,
    CreateContainerResponse, KeyValue, LinuxContainerAdjustment, LinuxCpu, LinuxDevice,
    LinuxResources, Mount, PodSandbox, RegisterPluginRequest, StopContainerRequest,
    SynchronizeRequest, SynchronizeResponse,
};
use allot_protos::ttrpc::{Request, Response};
use allot_testing::wait::{until, until_true};
use prost::Message;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::harness::{Cluster, has_isolation, pod_path, shell, status};
use super::network::{ADDRESS, Plugin as Network};
use super::resize::enforces_limits;

const SOCKET: &str = "nri/nri.sock";

/// What the plugin received.
#[derive(Debug, Default)]
struct Received {
    /// Methods, with the pod if the request has one.
    calls: Vec<String>,
    pods: BTreeMap<String, PodSandbox>,
    containers: Vec<Container>,
    /// Whether the network namespace of a pod existed when it was about to be removed.
    network_at_the_end: Option<bool>,
    exit_code: Option<i32>,
}

/// The adjustments that the plugin requests.
#[derive(Clone, Default)]
struct Adjustments {
    directory: PathBuf,
    cpus: String,
}

/// Runs the test plugin until its connection ends.
async fn plugin(socket: PathBuf, adjustments: Adjustments, received: Arc<Mutex<Received>>) {
    // The agent may have ended at this moment.
    let Ok(mut stream) = UnixStream::connect(socket).await else {
        return;
    };
    let register = RegisterPluginRequest {
        plugin_name: "test".to_owned(),
        plugin_idx: "42".to_owned(),
        nri_version: String::new(),
    };
    let request = Request {
        service: "nri.pkg.api.v1alpha1.Runtime".to_owned(),
        method: "RegisterPlugin".to_owned(),
        payload: register.encode_to_vec(),
        ..Request::default()
    };
    send_frame(&mut stream, 2, 1, 1, &request.encode_to_vec()).await;
    let mut buffer = Vec::new();
    loop {
        let mut header = [0; 8];
        if stream.read_exact(&mut header).await.is_err() {
            return;
        }
        let number = |at: usize, from: &[u8]| {
            u32::from_be_bytes(from[at..at + 4].try_into().expect("four bytes"))
        };
        let mut part = vec![0; number(4, &header) as usize];
        if stream.read_exact(&mut part).await.is_err() {
            return;
        }
        if number(0, &header) != 1 {
            continue;
        }
        buffer.extend(part);
        while buffer.len() >= 10 && buffer.len() >= 10 + number(0, &buffer) as usize {
            let rest = buffer.split_off(10 + number(0, &buffer) as usize);
            let message = std::mem::replace(&mut buffer, rest);
            let request = Request::decode(&message[10..]).expect("a request");
            let payload = answer(
                &request,
                &adjustments,
                &mut received.lock().expect("no panic"),
            );
            let response = Response {
                status: None,
                payload,
            };
            send_frame(
                &mut stream,
                1,
                number(4, &message),
                2,
                &response.encode_to_vec(),
            )
            .await;
        }
    }
}

async fn send_frame(
    stream: &mut UnixStream,
    conversation: u32,
    call: u32,
    kind: u8,
    content: &[u8],
) {
    let length = u32::try_from(content.len()).expect("short");
    let mut frame = conversation.to_be_bytes().to_vec();
    frame.extend((length + 10).to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend(call.to_be_bytes());
    frame.extend([kind, 0]);
    frame.extend(content);
    // The agent may end at any moment.
    let _ = stream.write_all(&frame).await;
}

fn answer(request: &Request, adjustments: &Adjustments, received: &mut Received) -> Vec<u8> {
    let payload = &*request.payload;
    if request.method == "Configure" {
        return Vec::new();
    }
    if request.method == "Synchronize" {
        let all = SynchronizeRequest::decode(payload).expect("a request");
        received.containers = all.containers;
        received.pods = all
            .pods
            .into_iter()
            .map(|pod| (pod.name.clone(), pod))
            .collect();
        received.calls.push("Synchronize".to_owned());
        return SynchronizeResponse::default().encode_to_vec();
    }
    // The pod is the first field of all others.
    let of_all = CreateContainerRequest::decode(payload).unwrap_or_default();
    let pod = of_all.pod.unwrap_or_default();
    received
        .calls
        .push(format!("{} {}", request.method, pod.name));
    match request.method.as_str() {
        "RunPodSandbox" => {
            received.pods.insert(pod.name.clone(), pod);
        }
        "StopPodSandbox" => received.network_at_the_end = Some(network(&pod).exists()),
        "StopContainer" => {
            let request = StopContainerRequest::decode(payload).expect("a request");
            received.exit_code = request.container.map(|it| it.exit_code);
        }
        "PostStartContainer" => received.containers.extend(of_all.container),
        "CreateContainer" => {
            let answer = CreateContainerResponse {
                adjust: Some(adjustment(&pod, adjustments)),
                ..CreateContainerResponse::default()
            };
            return answer.encode_to_vec();
        }
        _ => {}
    }
    Vec::new()
}

fn adjustment(pod: &PodSandbox, adjustments: &Adjustments) -> ContainerAdjustment {
    let cpu = LinuxCpu {
        cpus: adjustments.cpus.clone(),
        ..LinuxCpu::default()
    };
    ContainerAdjustment {
        env: vec![KeyValue {
            key: "ADJUSTED".to_owned(),
            value: pod.labels.get("app").cloned().unwrap_or_default(),
        }],
        mounts: vec![Mount {
            destination: "/adjusted".to_owned(),
            r#type: "bind".to_owned(),
            source: adjustments.directory.to_string_lossy().into_owned(),
            options: vec!["rbind".to_owned(), "ro".to_owned()],
        }],
        linux: Some(LinuxContainerAdjustment {
            devices: vec![LinuxDevice {
                path: "/dev/adjusted".to_owned(),
                r#type: "c".to_owned(),
                major: 1,
                minor: 3,
                ..LinuxDevice::default()
            }],
            resources: Some(LinuxResources {
                cpu: Some(cpu),
                ..LinuxResources::default()
            }),
            cgroups_path: match pod.name.as_str() {
                "refused" => "/elsewhere".to_owned(),
                _ => String::new(),
            },
            ..LinuxContainerAdjustment::default()
        }),
        ..ContainerAdjustment::default()
    }
}

/// The network namespace of a pod.
fn network(pod: &PodSandbox) -> PathBuf {
    let linux = pod.linux.clone().unwrap_or_default();
    let own = linux.namespaces.iter().find(|it| it.r#type == "network");
    own.map(|it| it.path.clone().into()).unwrap_or_default()
}

fn with_socket(config: &mut Config) {
    config.nri_socket = Some(config.root_dir.join(SOCKET));
}

/// Starts the plugin again whenever its connection ends, as programs with upstream's stub do.
fn connect(
    root: &Path,
    adjustments: Adjustments,
) -> (Arc<Mutex<Received>>, tokio::task::JoinHandle<()>) {
    let received = Arc::new(Mutex::new(Received::default()));
    let task = tokio::spawn({
        let (socket, received) = (root.join(SOCKET), Arc::clone(&received));
        async move {
            loop {
                until_true("the socket is there", || {
                    std::os::unix::net::UnixStream::connect(&socket).is_ok()
                })
                .await;
                plugin(socket.clone(), adjustments.clone(), Arc::clone(&received)).await;
            }
        }
    });
    (received, task)
}

async fn wait_for_call(received: &Arc<Mutex<Received>>, what: &str, count: usize) {
    until(&format!("the plugin received {what}"), || async {
        let calls = received.lock().expect("no panic").calls.clone();
        match calls.iter().filter(|call| *call == what).count() {
            // A plugin that reconnected receives some events again.
            found if found >= count => Ok(()),
            _ => Err(calls),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_adjusts_containers_and_follows_their_life() {
    let net = Network::new();
    let mut cluster = Cluster::with_network(net.settings()).await;
    if !super::network::can_create_pod_networks(&cluster).await {
        return;
    }
    cluster.stop_agent().await;
    cluster.adjust = with_socket;
    cluster.start_agent().await;
    let shared = tempfile::tempdir().expect("a directory");
    std::fs::write(shared.path().join("file"), "shared\n").expect("written");
    let limited = enforces_limits(&cluster).await;
    let adjustments = Adjustments {
        directory: shared.path().to_owned(),
        cpus: if limited { "0" } else { "" }.to_owned(),
    };
    let (received, task) = connect(cluster.root(), adjustments);
    wait_for_call(&received, "Synchronize", 1).await;

    let script = "echo $ADJUSTED; cat /adjusted/file; echo x > /dev/adjusted && echo device; \
        grep Cpus_allowed_list /proc/self/status; sleep 1000";
    let uid = cluster
        .pod("p", json!({"containers": [shell(script)]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    until_true("the pod has said all", || {
        cluster.log("p", "c", 0).contains("Cpus_allowed_list")
    })
    .await;
    let log = cluster.log("p", "c", 0);
    assert!(log.starts_with("test\nshared\ndevice\n"), "{log}");
    assert!(
        !limited || log.ends_with("Cpus_allowed_list:\t0\n"),
        "{log}"
    );
    wait_for_call(&received, "PostStartContainer p", 1).await;
    {
        let received = received.lock().expect("no panic");
        let pod = &received.pods["p"];
        assert_eq!(
            (pod.uid.as_str(), pod.ips.as_slice()),
            (uid.as_str(), &[ADDRESS.to_owned()][..])
        );
        assert!(network(pod).exists(), "{pod:?}");
        let linux = pod.linux.clone().unwrap_or_default();
        assert_eq!(linux.cgroup_parent, format!("/allot/pod{uid}"));
        let container = received.containers.last().expect("a container");
        assert_eq!(container.state, ContainerState::ContainerRunning as i32);
        assert!(container.pid > 0 && container.env.contains(&"ADJUSTED=test".to_owned()));
    }

    // What the runtime cannot do is no success.
    cluster
        .pod("refused", json!({"containers": [shell("sleep 1000")]}))
        .await;
    let message = cluster.wait_for_event("refused", "Failed").await;
    assert!(
        message.starts_with(r#"Error: NRI plugin "42-test" requires CgroupsPath: "#),
        "{message}"
    );
    cluster
        .delete(&format!("{}?gracePeriodSeconds=0", pod_path("refused")))
        .await;
    wait_for_call(&received, "RemovePodSandbox refused", 1).await;

    // The next agent tells what runs, and nothing twice.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    wait_for_call(&received, "Synchronize", 2).await;
    {
        let received = received.lock().expect("no panic");
        assert_eq!(received.pods.keys().collect::<Vec<_>>(), ["p"]);
        assert!(network(&received.pods["p"]).exists());
        let running: Vec<_> = received
            .containers
            .iter()
            .map(|it| (it.name.as_str(), it.state))
            .collect();
        assert_eq!(running, [("c", ContainerState::ContainerRunning as i32)]);
    }
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(status(&pod, "c")["restartCount"], 0);

    cluster
        .delete(&format!("{}?gracePeriodSeconds=1", pod_path("p")))
        .await;
    cluster.wait_until_gone("p").await;
    wait_for_call(&received, "RemovePodSandbox p", 1).await;
    let received = received.lock().expect("no panic");
    let of_pod = received
        .calls
        .iter()
        .filter_map(|call| call.strip_suffix(" p"));
    let calls: Vec<&str> = of_pod
        .filter(|it| *it != "ValidateContainerAdjustment")
        .collect();
    let expected = [
        "RunPodSandbox",
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "StopContainer",
        "StopPodSandbox",
        "RemoveContainer",
        "RemovePodSandbox",
    ];
    assert_eq!(calls, expected);
    assert_eq!(received.network_at_the_end, Some(true));
    assert!(
        received.exit_code.is_some_and(|code| code != 0),
        "{received:?}"
    );
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_dies_takes_no_container_with_it() {
    let mut cluster = Cluster::start().await;
    if !rustix::process::geteuid().is_root() || !has_isolation(&cluster).await {
        eprintln!("skipped: plugins need containers of root");
        return;
    }
    cluster.stop_agent().await;
    cluster.adjust = with_socket;
    cluster.start_agent().await;
    let adjustments = Adjustments {
        directory: cluster.root().join("logs"),
        ..Adjustments::default()
    };
    let (received, task) = connect(cluster.root(), adjustments);
    wait_for_call(&received, "Synchronize", 1).await;
    cluster
        .pod("p", json!({"containers": [shell("sleep 1000")]}))
        .await;
    cluster.wait_for_phase("p", "Running").await;
    task.abort();
    // Without a plugin nothing is adjusted, and nothing waits for one.
    cluster
        .pod(
            "q",
            json!({"containers": [shell("echo plain$ADJUSTED; sleep 1000")]}),
        )
        .await;
    cluster.wait_for_logs("q", &["c"]).await;
    assert_eq!(cluster.log("q", "c", 0), "plain\n");
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(status(&pod, "c")["restartCount"], 0);
}
