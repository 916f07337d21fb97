//! Drivers with invalid answers and CDI files.

use std::sync::Arc;

use allot_protos::dra_v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use allot_protos::dra_v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use allot_protos::registration::registration_server::{Registration, RegistrationServer};
use allot_protos::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use allot_protos::transport::{Incoming, Services};
use allot_protos::{DRA_PLUGIN_TYPE, service_name};
use allot_testing::wait::until_true;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::harness::{Cluster, DRIVER, has_isolation, pod_path, shell, status};

/// The response to `NodePrepareResources` for the UID of a claim.
pub(super) type Answer = fn(&str) -> Vec<(String, NodePrepareResourceResponse)>;

#[derive(Clone)]
pub(super) struct Hostile(pub(super) Arc<Mutex<Answer>>);

#[tonic::async_trait]
impl Registration for Hostile {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: DRA_PLUGIN_TYPE.into(),
            name: DRIVER.into(),
            supported_versions: vec![service_name::DRA_V1.into()],
            ..PluginInfo::default()
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Hostile {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let answer = *self.0.lock();
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.flat_map(|claim| answer(&claim.uid)).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.map(|claim| (claim.uid, NodeUnprepareResourceResponse::default()));
        let claims = claims.collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// Starts the driver, and waits until the node agent has registered it.
pub(super) async fn driver(cluster: &Cluster) -> (Hostile, tokio_util::sync::DropGuard) {
    let hostile = Hostile(Arc::new(Mutex::new(|_| Vec::new())));
    let socket = cluster.root().join("plugins_registry").join("d.sock");
    let incoming = Incoming::bind(socket).expect("a socket");
    let stop = CancellationToken::new();
    let services = Services::new()
        .with(RegistrationServer::new(hostile.clone()))
        .with(DraPluginServer::new(hostile.clone()));
    tokio::spawn(services.serve(incoming, stop.clone().cancelled_owned()));
    cluster
        .wait_until("/api/v1/nodes/n1", "registered", |node| {
            node["metadata"]["annotations"]["allot.dev/registered-drivers"] == DRIVER
        })
        .await;
    (hostile, stop.drop_guard())
}

/// The response for one claim, with a device that has these CDI IDs.
pub(super) fn prepare_response(
    uid: &str,
    ids: Vec<String>,
) -> Vec<(String, NodePrepareResourceResponse)> {
    let device = Device {
        pool_name: "n1".into(),
        device_name: "a".into(),
        request_names: vec!["r".into()],
        cdi_device_ids: ids,
        ..Device::default()
    };
    let devices = vec![device];
    vec![(
        uid.to_owned(),
        NodePrepareResourceResponse {
            devices,
            ..NodePrepareResourceResponse::default()
        },
    )]
}

/// Creates a pod with a claim for the driver.
async fn pod(cluster: &Cluster, name: &str) {
    cluster.claim(name, "a").await;
    let mut container = shell("echo $DEVICE; sleep 1000");
    container["resources"] = json!({"claims": [{"name": "d"}]});
    let spec = json!({"containers": [container],
        "resourceClaims": [{"name": "d", "resourceClaimName": name}]});
    let uid = cluster.pod(name, spec).await;
    cluster.reserve(name, name, &uid).await;
}

/// Waits for an event of a pod whose message contains a text; checks that messages are short.
pub(super) async fn wait_for_event_message(cluster: &Cluster, pod: &str, part: &str) {
    let path = "/api/v1/namespaces/default/events";
    let events = cluster
        .wait_until(path, part, |events| {
            let items = events["items"].as_array().into_iter().flatten();
            let mut own = items.filter(|event| event["involvedObject"]["name"] == pod);
            own.any(|event| event["message"].as_str().unwrap_or_default().contains(part))
        })
        .await;
    for event in events["items"].as_array().into_iter().flatten() {
        let message = event["message"].as_str().unwrap_or_default();
        assert!(message.len() <= 1024, "{} bytes", message.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_answers_are_told_and_the_next_good_one_counts() {
    let cluster = Cluster::start().await;
    let (hostile, _stop) = driver(&cluster).await;
    let hostile_answers: [(&str, Answer, &str); 5] = [
        ("nothing", |_| Vec::new(), "skipped 1 ResourceClaims"),
        (
            "other",
            |_| prepare_response("another", Vec::new()),
            "returned result for unknown claim UID another",
        ),
        (
            "error",
            |uid| {
                let error = "x".repeat(500_000);
                let mut answer = prepare_response(uid, Vec::new());
                answer[0].1.error = error;
                answer
            },
            "failed for ResourceClaim error: xxx",
        ),
        (
            "large",
            |uid| prepare_response(uid, vec!["v.com/c=".to_owned() + &"d".repeat(2 << 20)]),
            "rpc error: code = OutOfRange",
        ),
        (
            "many",
            |uid| prepare_response(uid, vec!["a".into(); 50_000]),
            "returned more than 16384 devices, CDI device IDs and requests, up to ResourceClaim many",
        ),
    ];
    for (name, answer, part) in hostile_answers {
        *hostile.0.lock() = answer;
        pod(&cluster, name).await;
        wait_for_event_message(&cluster, name, part).await;
        assert!(!cluster.checkpoint().contains("CDIDeviceIDs\\\":[\\\""));
    }
    // None of the others kept the node from anything.
    *hostile.0.lock() = |uid| prepare_response(uid, Vec::new());
    for (name, ..) in hostile_answers {
        cluster.wait_for_phase(name, "Running").await;
    }
}

/// A device and the file that defines it: the error is in the status of the container, which does not start.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_cdi_files_are_told_and_the_next_good_one_counts() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let (hostile, _stop) = driver(&cluster).await;
    *hostile.0.lock() = |uid| prepare_response(uid, vec!["test.example.com/device=a".into()]);
    let file = cluster.cdi().join("a.json");
    std::fs::create_dir_all(cluster.cdi()).expect("a directory");
    let spec = |edits: serde_json::Value| {
        json!({"cdiVersion": "0.6.0", "kind": "test.example.com/device",
            "devices": [{"name": "a", "containerEdits": edits}]})
        .to_string()
    };
    let newest = |edits| spec(edits).replace("0.6.0", "1.1.0");
    let mount = |path: &str| json!({"mounts": [{"hostPath": "/tmp", "containerPath": path}]});
    let many: Vec<_> = (0..5000)
        .map(|n| json!({"hostPath": "/tmp", "containerPath": format!("/m{n}")}))
        .collect();
    let as_root = |root, other| match rustix::process::geteuid().is_root() {
        true => root,
        false => other,
    };
    let node = |path: &str| json!({"deviceNodes": [{"path": path, "hostPath": "/dev/null"}]});
    let long = spec(json!({"env": ["A=1"]})) + &" ".repeat(16 << 20);
    for (name, text, part) in [
        ("none", "{".to_owned(), "a.json: EOF while parsing"),
        ("huge", long, "a.json: larger than 16 MiB"),
        (
            "proc",
            spec(mount("/proc/sys")),
            "/proc/sys: cannot be mounted on",
        ),
        ("up", spec(mount("/a/../../../x")), "cannot be mounted on"),
        (
            "mounts",
            spec(json!({"mounts": many})),
            "they have 5000 mounts, device nodes, network interfaces and hooks, more than 4096",
        ),
        (
            "node",
            spec(node("/proc/kcore")),
            "/proc/kcore: cannot be a device of the container",
        ),
        (
            "disk",
            spec(json!({"deviceNodes": [{"path": "/dev/x", "hostPath": "/etc/passwd"}]})),
            "not a device node on the host",
        ),
        ("line", spec(json!({"env": ["A\u{0}B=1"]})), "invalid"),
        (
            "interfaces",
            newest(json!({"netDevices": [{"hostInterfaceName": "lo", "name": "net1"}]})),
            as_root(
                "it is the loopback interface",
                "network interfaces need an agent that runs as root",
            ),
        ),
        (
            "one-name",
            newest(json!({"netDevices": [
                {"hostInterfaceName": "ac-none0", "name": "net1"},
                {"hostInterfaceName": "ac-none1", "name": "net1"},
            ]})),
            r#"netDevices[1].name: duplicate "net1""#,
        ),
        (
            "long-name",
            newest(
                json!({"netDevices": [{"hostInterfaceName": "ac-none", "name": "0123456789abcdef"}]}),
            ),
            as_root(
                "\"0123456789abcdef\" is not a valid name",
                "network interfaces need an agent that runs as root",
            ),
        ),
        (
            "no-interface",
            newest(json!({"netDevices": [{"hostInterfaceName": "ac-none", "name": "net1"}]})),
            as_root(
                "there is no network interface \"ac-none\" on this node",
                "network interfaces need an agent that runs as root",
            ),
        ),
        (
            "rdt",
            newest(json!({"intelRdt": {"closID": "info"}})),
            match std::path::Path::new("/sys/fs/resctrl/schemata").exists() {
                true => as_root(
                    "is not a valid closID",
                    "Intel RDT settings need an agent that runs as root",
                ),
                false => "resctrl is not mounted at /sys/fs/resctrl",
            },
        ),
    ] {
        std::fs::write(&file, text).expect("a file");
        pod(&cluster, name).await;
        // In the current state of the container, or the last one.
        let pod = cluster
            .wait_until(&pod_path(name), part, |pod| {
                // Quotation marks as they are in the message.
                let text = status(pod, "c").to_string().replace("\\\"", "\"");
                text.contains(part)
            })
            .await;
        assert!(status(&pod, "c")["state"]["running"].is_null(), "{name}");
        cluster
            .delete(&format!("{}?gracePeriodSeconds=0", pod_path(name)))
            .await;
    }
    // Lines and names that a loader reads are a matter of the program that has them.
    let good = spec(json!({"env": ["DEVICE=two\nlines", "LD_PRELOAD=/none"]}));
    std::fs::write(&file, good).expect("a file");
    pod(&cluster, "good").await;
    cluster.wait_for_phase("good", "Running").await;
    until_true("the variable is printed", || {
        cluster.log("good", "c", 0).contains("two lines\n")
    })
    .await;
}
