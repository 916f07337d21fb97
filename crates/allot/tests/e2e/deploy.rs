//! The manifests for real clusters: components work with the rights that they grant, and with no others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};

use futures::StreamExt as _;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::harness::{ALLOT, PATIENCE, apply, client, create, directory};

/// A process that is killed when dropped, and what it logged.
pub(super) struct Component {
    child: Child,
    log: PathBuf,
}

impl Component {
    pub(super) fn start(directory: &Path, name: &str, arguments: &[&str]) -> Self {
        let log = directory.join(format!("{name}.log"));
        let child = Command::new(ALLOT)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("the binary starts");
        Self { child, log }
    }

    /// What it logged so far.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Nothing that it tried was forbidden.
    pub(super) fn was_allowed_everything(&self) {
        let log = self.log();
        let refused: Vec<_> = log
            .lines()
            .filter(|line| line.contains("forbidden"))
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An API server with RBAC and more flags, and its administrator.
pub(super) async fn server(directory: &Path, flags: &[&str]) -> (Component, PathBuf, Client) {
    let kubeconfig = directory.join("admin");
    let data = directory.join("data");
    let [data, admin] = [&data, &kubeconfig].map(|path| path.to_str().expect("UTF-8"));
    let own = [
        "apiserver",
        "--in-memory",
        "--data-dir",
        data,
        "--listen",
        "127.0.0.1:0",
        "--kubeconfig-out",
        admin,
        "--authorization-mode=Node,RBAC",
    ];
    let server = Component::start(directory, "apiserver", &[&own, flags].concat());
    let written = async {
        while !kubeconfig.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written)
        .await
        .expect("the server starts");
    let client = client(&kubeconfig).await;
    (server, kubeconfig, client)
}

/// A kubeconfig with the token of a service account in place of the administrator's credentials.
async fn kubeconfig_of(client: &Client, admin: &Path, account: &str) -> PathBuf {
    kubeconfig_bound_to(client, admin, account, None).await
}

/// As [`kubeconfig_of`], with a token that is bound to a pod, as those in the volumes of pods are.
pub(super) async fn kubeconfig_bound_to(
    client: &Client,
    admin: &Path,
    account: &str,
    pod: Option<&str>,
) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: pod.map(|name| BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                uid: None,
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let issued = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .expect("a token");
    let text = std::fs::read_to_string(admin).expect("kubeconfig");
    let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
    config["users"][0]["user"] = json!({"token": issued.status.expect("issued").token});
    let path = admin.with_file_name(account);
    std::fs::write(&path, config.to_string()).expect("written");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_a_real_cluster_need_no_more_rights_than_their_manifests_grant() {
    let scratch = directory();
    let here = scratch.path();
    let (_server, admin, client) = server(here, &[]).await;
    for manifest in [
        include_str!("../../../../deploy/scheduler.yaml"),
        include_str!("../../../../deploy/controllers.yaml"),
        include_str!("../../../../deploy/gpu-driver.yaml"),
        include_str!("../../../../examples/example_resourceclaimtemplate.yaml"),
    ] {
        // Scheduler and controllers share a ClusterRole for readers of their metrics.
        apply(&client, manifest).await;
    }
    let mut configs = Vec::new();
    for account in ["allot-scheduler", "allot-controllers"] {
        configs.push(kubeconfig_of(&client, &admin, account).await);
    }
    let [scheduler, controllers] = &configs[..] else {
        unreachable!("two accounts");
    };
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps.get("allot-scheduler").await.expect("created");
    let profile = here.join("scheduler.yaml");
    std::fs::write(&profile, &map.data.expect("data")["scheduler.yaml"]).expect("written");
    let root = here.join("node");
    let administrator = admin.clone();
    let node_flags = [
        "node",
        "--node-name=node-0",
        "--runtime=simulated",
        "--listen=127.0.0.1:0",
        &format!("--root-dir={}", root.display()),
        &format!("--kubeconfig={}", admin.display()),
    ];
    let node = Component::start(here, "node", &node_flags);
    // What a real cluster has anyway.
    let admin = format!("--kubeconfig={}", admin.display());
    let manager = [
        "controllers",
        "--controllers=node-lifecycle,garbage-collector",
        &admin,
    ];
    let _manager = Component::start(here, "manager", &manager);
    let scheduler = Component::start(
        here,
        "scheduler",
        &[
            "scheduler",
            "--config",
            &text(&profile),
            "--kubeconfig",
            &text(scheduler),
        ],
    );
    let controllers = Component::start(
        here,
        "controllers",
        &[
            "controllers",
            "--leader-elect=true",
            // The API server of the test is allot's, where all of them would run.
            "--controllers=resourceclaim,device-taint-eviction,resourcepoolstatusrequest,slice-liveness",
            "--slice-liveness-delay=1",
            "--kubeconfig",
            &text(controllers),
        ],
    );
    // A driver needs the directory that the kubelet watches; where that runs already it is there.
    let nodes: Api<Node> = Api::all(client.clone());
    let up = await_condition(nodes, "node-0", |node: Option<&Node>| node.is_some());
    tokio::time::timeout(PATIENCE, up)
        .await
        .expect("the node registers")
        .expect("watch");
    // The policy of the manifest wants to know the node of the driver's pod.
    create(&client, DRIVER_POD).await;
    let driver = kubeconfig_bound_to(&client, &administrator, "allot-gpu-driver", Some("driver"));
    let driver_flags = [
        "driver",
        "gpu",
        "--node-name=node-0",
        &format!("--kubelet-dir={}", root.display()),
        &format!("--kubeconfig={}", text(&driver.await)),
    ];
    let driver = Component::start(here, "driver", &driver_flags);

    let manifest = include_str!("../../../../examples/example_claim_po.yaml")
        .replace("spec:\n", "spec:\n  schedulerName: allot-scheduler\n");
    create(&client, &manifest).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let running = await_condition(pods.clone(), "example-claim", conditions::is_pod_running());
    let running = tokio::time::timeout(PATIENCE, running).await;
    for component in [&scheduler, &controllers, &driver] {
        component.was_allowed_everything();
    }
    let Ok(Ok(_)) = running else {
        let pod = pods.get("example-claim").await.expect("the pod");
        let logs = [&scheduler, &controllers, &driver, &node].map(Component::log);
        let logs = logs.concat();
        panic!("the pod does not run: {:#?}\n{logs}", pod.status);
    };

    pods.delete("example-claim", &DeleteParams::default().grace_period(1))
        .await
        .expect("deleted");
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let gone = async {
        while !claims
            .list(&Default::default())
            .await
            .expect("claims")
            .items
            .is_empty()
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("the claim goes with its pod");

    driver.was_allowed_everything();
    drop(driver);
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let name = slices
        .list(&Default::default())
        .await
        .expect("slices")
        .items[0]
        .name_any();
    let tainted = await_condition(slices, &name, |slice: Option<&ResourceSlice>| {
        let devices = slice.and_then(|slice| slice.spec.devices.as_ref());
        devices.is_some_and(|all| all.iter().all(|device| device.taints.is_some()))
    });
    let tainted = tokio::time::timeout(PATIENCE, tainted).await;
    scheduler.was_allowed_everything();
    controllers.was_allowed_everything();
    tainted
        .expect("devices without a driver are tainted")
        .expect("watch");
}

/// As above, for the network driver of 1.27 to 1.30; and what it does about networks while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn components_of_a_real_cluster_need_no_more_rights_than_their_manifests_grant_for_networks()
{
    let scratch = directory();
    let here = scratch.path();
    let flags = [
        "--emulated-version=1.29",
        "--feature-gates=DynamicResourceAllocation=true",
        "--runtime-config=resource.k8s.io/v1alpha2=true",
    ];
    let (_server, admin, client) = server(here, &flags).await;
    create(
        &client,
        include_str!("../../../../drivers/net/manifests/classic.yaml"),
    )
    .await;
    let controller = kubeconfig_of(&client, &admin, "allot-net-controller").await;
    let plugin = kubeconfig_of(&client, &admin, "allot-net-plugin").await;
    let root = here.join("node");
    let admin = format!("--kubeconfig={}", admin.display());
    let (root_dir, kubelet_dir) = (
        format!("--root-dir={}", root.display()),
        format!("--kubelet-dir={}", root.display()),
    );
    let node = [
        "node",
        "--node-name=node-0",
        "--runtime=simulated",
        "--listen=127.0.0.1:0",
    ];
    let node = Component::start(here, "node", &[&node[..], &[&root_dir, &admin]].concat());
    let manager = "--controllers=node-lifecycle,garbage-collector,resourceclaim";
    let manager = Component::start(here, "manager", &["controllers", manager, &admin]);
    let scheduler = Component::start(here, "scheduler", &["scheduler", &admin]);
    let nodes: Api<Node> = Api::all(client.clone());
    let up = await_condition(nodes, "node-0", |node: Option<&Node>| node.is_some());
    within(up).await.expect("watch");
    let as_controller = format!("--kubeconfig={}", controller.display());
    let flags = [
        "driver",
        "net",
        "controller",
        "--leader-elect",
        &as_controller,
    ];
    let controller = Component::start(here, "net-controller", &flags);
    let as_plugin = format!("--kubeconfig={}", plugin.display());
    let flags = [
        "driver",
        "net",
        "kubelet-plugin",
        "--node-name=node-0",
        "--interface=eth0=172.18.0.2/16",
    ];
    let flags = [&flags[..], &[&kubelet_dir, &as_plugin]].concat();
    let plugin = Component::start(here, "net-plugin", &flags);

    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    const DEFINITIONS: &str = "network-attachment-definitions.k8s.cni.cncf.io";
    for name in ["spidermultusconfigs", "spiderippools"] {
        let name = format!("{name}.spiderpool.spidernet.io");
        let there = await_condition(crds.clone(), &name, conditions::is_crd_established());
        within(there).await.expect("watch");
    }
    create(
        &client,
        include_str!("../../../../examples/classic/net/network.yaml"),
    )
    .await;
    create(&client, NETWORKED).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let running = await_condition(pods, "networked", conditions::is_pod_running());
    if tokio::time::timeout(PATIENCE, running).await.is_err() {
        let logs = [&controller, &plugin, &scheduler, &manager, &node].map(Component::log);
        let logs = logs.concat();
        panic!("the pod does not run\n{logs}");
    }

    // Another name for the NetworkAttachmentDefinition: the one under the old name is deleted.
    let resource = |group: &str, version: &str, kind: &str, plural: &str| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::<DynamicObject>::namespaced_with(client.clone(), "kube-system", &resource)
    };
    let definitions = || {
        let plural = "network-attachment-definitions";
        resource(
            "k8s.cni.cncf.io",
            "v1",
            "NetworkAttachmentDefinition",
            plural,
        )
    };
    let networks = resource(
        "spiderpool.spidernet.io",
        "v2beta1",
        "SpiderMultusConfig",
        "spidermultusconfigs",
    );
    let is = |there: bool| move |o: Option<&DynamicObject>| o.is_some() == there;
    within(await_condition(definitions(), "macvlan-conf", is(true)))
        .await
        .expect("watch");
    let rename = json!({"metadata": {"annotations": {"multus.spidernet.io/cr-name": "other"}}});
    let params = PatchParams::default();
    networks
        .patch("macvlan-conf", &params, &Patch::Merge(&rename))
        .await
        .expect("patched");
    within(await_condition(definitions(), "other", is(true)))
        .await
        .expect("watch");
    within(await_condition(definitions(), "macvlan-conf", is(false)))
        .await
        .expect("watch");

    // If the kind NetworkAttachmentDefinition is deleted, it is restored with the objects of networks.
    crds.delete(DEFINITIONS, &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = |crd: Option<&CustomResourceDefinition>| {
        crd.is_none_or(|crd| crd.metadata.deletion_timestamp.is_none())
    };
    within(await_condition(crds.clone(), DEFINITIONS, gone))
        .await
        .expect("watch");
    let back = await_condition(crds, DEFINITIONS, conditions::is_crd_established());
    within(back).await.expect("watch");
    within(await_condition(definitions(), "other", is(true)))
        .await
        .expect("watch");

    // An invalid network gets an event.
    create(&client, NOTHING).await;
    let events: Api<Event> = Api::namespaced(client.clone(), "kube-system");
    let of = watcher::Config::default().fields("involvedObject.name=nothing");
    let mut events = pin!(watcher(events, of).applied_objects());
    let event = within(events.next())
        .await
        .expect("an event")
        .expect("watch");
    let message = event.message.unwrap_or_default();
    assert!(
        message.starts_with("spec.customCNI is no JSON object: "),
        "{message}"
    );
    for component in [&controller, &plugin] {
        component.was_allowed_everything();
    }
}

pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, what).await;
    done.expect("it happens in time")
}

/// Stands for the pod of the DaemonSet, which `allot driver gpu` runs outside of in the test.
const DRIVER_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: driver, namespace: kube-system}
spec:
  nodeName: node-0
  serviceAccountName: allot-gpu-driver
  containers: [{name: c, image: x, command: [x]}]
";

const NETWORKED: &str = "
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: net, namespace: default}
spec: {resourceClassName: netresources.spidernet.io}
---
apiVersion: v1
kind: Pod
metadata:
  name: networked
  namespace: default
  annotations: {v1.multus-cni.io/default-network: kube-system/macvlan-conf}
spec:
  containers: [{name: c, image: x, command: [x], resources: {claims: [{name: net}]}}]
  resourceClaims: [{name: net, source: {resourceClaimName: net}}]
";

const NOTHING: &str = "
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderMultusConfig
metadata: {name: nothing, namespace: kube-system}
spec: {cniType: custom, customCNI: '{'}
";
