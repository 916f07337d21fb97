//! Pods with their own addresses on the bridge of `allot up`: the API server reaches an admission webhook in a pod through its
//! service, pods reach the API server, a killed cluster continues, and nothing is left at the end.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use allot_apiserver::pki::Authority;
use allot_node::{Bridge, NetworkSettings, Ranges};
use allot_testing::wait::until;
use base64::Engine as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::harness::{ALLOT, Directory, PATIENCE, Up, create, directory};
use super::webhook::{GPU, call, gpu, install, spec};

const FLAGS: [&str; 5] = ["--pod-network", "bridge", "--nodes", "2", "--no-driver"];

/// Whether a bridge can be created on this machine; otherwise prints that the test is skipped.
async fn can_create_bridge() -> bool {
    let scratch = tempfile::tempdir().expect("a directory");
    let plugins = NetworkSettings::default().bin_dirs;
    let missing = match Bridge::open(scratch.path(), plugins, 2, &Ranges::default()).await {
        Err(error) => error.to_string(),
        Ok(bridge) => {
            bridge.remove().expect("removed");
            match Command::new("python3").arg("--version").output() {
                Ok(_) => return true,
                Err(error) => format!("python3: {error}"),
            }
        }
    };
    eprintln!("skipped: pods on a bridge: {missing}");
    false
}

/// A pod with a webhook, with a certificate for its service; returns the `clientConfig` that names the service.
async fn webhook(up: &Up, directory: &Path) -> Value {
    let authority = Authority::generate("webhook").expect("a CA");
    let names = ["hook.default.svc".to_owned()];
    let identity = authority.server("webhook", &names, &[]);
    let identity = identity.expect("a certificate");
    let files = directory.join("hook");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("tls.crt"), identity.certificate).expect("written");
    std::fs::write(files.join("tls.key"), identity.key).expect("written");
    let program = Path::new(ALLOT);
    let flags = [
        "--bind-address=0.0.0.0",
        "--port=8443",
        "--tls-cert-file=/c/tls.crt",
        "--tls-private-key-file=/c/tls.key",
    ];
    let command = [&["/b/allot", "driver", "webhook"][..], &flags[..]].concat();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hook", "labels": {"app": "hook"}},
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "c", "image": "host", "command": command,
                "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
                "volumeMounts": [
                    {"name": "c", "mountPath": "/c", "readOnly": true},
                    {"name": "b", "mountPath": "/b", "readOnly": true},
                ]}],
            "volumes": [
                {"name": "c", "hostPath": {"path": files}},
                {"name": "b", "hostPath": {"path": program.parent()}},
            ],
        },
    });
    create(&up.client, &pod.to_string()).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443, "targetPort": 8443}]},
    });
    create(&up.client, &service.to_string()).await;
    let path = "/validate-resource-claim-parameters";
    let service = json!({"namespace": "default", "name": "hook", "path": path});
    let bundle = base64::prelude::BASE64_STANDARD.encode(authority.certificate());
    json!({"service": service, "caBundle": bundle})
}

async fn address(up: &Up, pod: &str) -> String {
    let pod = up.pods().get(pod).await.expect("the pod");
    let ip = pod.status.and_then(|status| status.pod_ip);
    ip.expect("an address")
}

/// The first address of the ready endpoints of the service `hook`, once there are any.
async fn endpoint(up: &Up) -> String {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
        ?labelSelector=kubernetes.io/service-name%3Dhook";
    until("the service has an endpoint", || async {
        let found = call(&up.client, "GET", slices, &Value::Null).await?;
        let endpoint = &found["items"][0]["endpoints"][0];
        let ready = endpoint["conditions"]["ready"] == true;
        let address = endpoint["addresses"][0].as_str().filter(|_| ready);
        address.map(str::to_owned).ok_or(found.to_string())
    })
    .await
}

/// Waits until the webhook refuses a claim that its driver would refuse.
async fn wait_until_refused(up: &Up) {
    let wrong = gpu(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Long"}}));
    let claim = json!({"metadata": {"generateName": "x-"}, "spec": spec("v1", GPU, &wrong)});
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All";
    until("the webhook refuses a claim", || async {
        match call(&up.client, "POST", path, &claim).await {
            Err(said) if said.contains("unknown field `intervall`") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn delete(up: &Up, name: &str) {
    let pods = up.pods();
    let pod = pods.get(name).await.expect("the pod");
    let params = DeleteParams::default().grace_period(1);
    pods.delete(name, &params).await.expect("deleted");
    let uid = pod.metadata.uid.expect("stored");
    let gone = await_condition(up.pods(), name, is_deleted(&uid));
    let gone = tokio::time::timeout(PATIENCE, gone).await.expect("it goes");
    gone.expect("a watch");
}

/// Addresses that are taken below a cluster's directory.
fn leases(directory: &Directory) -> Vec<String> {
    let mut all = Vec::new();
    for node in ["node-0", "node-1"] {
        let ipam = directory.path().join("nodes").join(node).join("cni/ipam");
        let networks = std::fs::read_dir(ipam).into_iter().flatten().flatten();
        for network in networks {
            let files = std::fs::read_dir(network.path())
                .into_iter()
                .flatten()
                .flatten();
            let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            all.extend(names.filter(|name| name.parse::<IpAddr>().is_ok()));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_in_a_pod_is_reached_by_its_service() {
    if !can_create_bridge().await {
        return;
    }
    let directory = directory();
    let up = Up::start(directory.path(), &FLAGS).await;
    let reached = webhook(&up, directory.path()).await;
    // On the other node, with the API server's address from the environment.
    let ask = "import os, ssl, urllib.request as r\n\
        d = '/var/run/secrets/kubernetes.io/serviceaccount/'\n\
        h, p = os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']\n\
        c = ssl.create_default_context(cafile=d + 'ca.crt')\n\
        print(r.urlopen(f'https://{h}:{p}/version', context=c, timeout=60).status)";
    let container = json!({"name": "c", "image": "host", "command": ["python3", "-c", ask]});
    let client = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"},
        "spec": {"nodeName": "node-1", "restartPolicy": "Never", "containers": [container]},
    });
    create(&up.client, &client.to_string()).await;
    let done = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
    };
    up.wait_until("client", "reach the API server", done).await;
    up.running("hook").await;
    let before = address(&up, "hook").await;
    assert_eq!(endpoint(&up).await, before);
    assert_ne!(address(&up, "client").await, before);
    install(&up.client, reached).await;
    wait_until_refused(&up).await;

    up.kill();
    let up = Up::start(directory.path(), &FLAGS).await;
    wait_until_refused(&up).await;
    assert_eq!(address(&up, "hook").await, before);
    let pod = up.pods().get("hook").await.expect("the pod");
    let containers = pod.status.and_then(|status| status.container_statuses);
    assert_eq!(containers.expect("a status")[0].restart_count, 0);

    for pod in ["hook", "client"] {
        delete(&up, pod).await;
    }
    assert_eq!(leases(&directory), Vec::<String>::new());
    let network = before.split('.').nth(1).expect("an address");
    let bridge = Path::new("/sys/class/net").join(format!("allot-10-{network}"));
    let ports = std::fs::read_dir(bridge.join("brif")).expect("a bridge");
    assert_eq!(ports.count(), 0);

    // What runs when the cluster ends is ended by `allot down`, with its network.
    let late = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"},
        "spec": {"nodeName": "node-1", "containers": [
            {"name": "c", "image": "host", "command": ["sleep", "1000"]}]},
    });
    create(&up.client, &late.to_string()).await;
    up.running("late").await;
    assert_eq!(leases(&directory).len(), 1);
    up.kill();
    let down = Command::new(ALLOT)
        .args(["down", "--grace-period", "1", "--data-dir"])
        .arg(directory.path())
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&down.stdout).into_owned();
    assert!(said.contains("removed the network of 1 pod\n"), "{said}");
    assert!(said.contains("removed the bridge allot-10-"), "{said}");
    assert_eq!(leases(&directory), Vec::<String>::new());
    assert!(!bridge.exists());
}
