//! The manifests for real clusters: components work with the rights that they grant, and with no others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::harness::{ALLOT, PATIENCE, client, create, directory};

/// A process that is killed when dropped, and what it logged.
struct Component {
    child: Child,
    log: PathBuf,
}

impl Component {
    fn start(directory: &Path, name: &str, arguments: &[&str]) -> Self {
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

    /// Nothing that it tried was forbidden.
    fn was_allowed_everything(&self) {
        let log = std::fs::read_to_string(&self.log).expect("a log");
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

/// An API server with RBAC, and its administrator.
async fn server(directory: &Path) -> (Component, PathBuf, Client) {
    let kubeconfig = directory.join("admin");
    let data = directory.join("data");
    let [data, admin] = [&data, &kubeconfig].map(|path| path.to_str().expect("UTF-8"));
    let server = Component::start(
        directory,
        "apiserver",
        &[
            "apiserver",
            "--in-memory",
            "--data-dir",
            data,
            "--listen",
            "127.0.0.1:0",
            "--kubeconfig-out",
            admin,
            "--authorization-mode=Node,RBAC",
        ],
    );
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
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec::default()),
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
    let (_server, admin, client) = server(here).await;
    for manifest in [
        include_str!("../../../../deploy/scheduler.yaml"),
        include_str!("../../../../deploy/controllers.yaml"),
        include_str!("../../../../deploy/gpu-driver.yaml"),
        include_str!("../../../../examples/example_resourceclaimtemplate.yaml"),
    ] {
        create(&client, manifest).await;
    }
    let mut configs = Vec::new();
    for account in ["allot-scheduler", "allot-controllers", "allot-gpu-driver"] {
        configs.push(kubeconfig_of(&client, &admin, account).await);
    }
    let [scheduler, controllers, driver] = &configs[..] else {
        unreachable!("three accounts");
    };
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps.get("allot-scheduler").await.expect("created");
    let profile = here.join("scheduler.yaml");
    std::fs::write(&profile, &map.data.expect("data")["scheduler.yaml"]).expect("written");
    let root = here.join("node");
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
    let driver_flags = [
        "driver",
        "gpu",
        "--node-name=node-0",
        &format!("--kubelet-dir={}", root.display()),
        &format!("--kubeconfig={}", text(driver)),
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
        let log = |component: &Component| std::fs::read_to_string(&component.log).expect("a log");
        let logs = [&scheduler, &controllers, &driver, &node].map(log).concat();
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
