//! The network driver on a real node agent, with a pair of virtual interfaces of this machine as the device: pods get
//! interfaces and addresses, and give them back, whenever the driver is killed.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, LogParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::deploy::{Component, kubeconfig_bound_to};
use super::harness::{ALLOT, Up, create, directory, objects};

/// Two interfaces of this machine that are each other's wire; gone when dropped.
struct Wire {
    name: String,
}

impl Wire {
    /// `None` if that is not permitted; this prints that the test is skipped.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = |kind: &str| format!("{kind}{}x{own}", std::process::id());
        let (name, peer) = (unique("alw"), unique("als"));
        let made = ip(&["link", "add", &name, "type", "veth", "peer", "name", &peer])
            && ip(&["link", "set", &name, "up"])
            && ip(&["link", "set", &peer, "up"]);
        if !made {
            eprintln!("skipped: interfaces cannot be made here");
            return None;
        }
        let wire = Self { name };
        // Interfaces on top of it, too, and namespaces for them.
        let probe = unique("alp");
        let macvlan = ip(&["link", "add", &probe, "link", &wire.name, "type", "macvlan"]);
        let space = Command::new("unshare").args(["-n", "true"]).status();
        if !macvlan || !space.is_ok_and(|it| it.success()) {
            eprintln!("skipped: macvlan or network namespaces are not permitted here");
            return None;
        }
        ip(&["link", "del", &probe]);
        Some(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        ip(&["link", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output();
    output.is_ok_and(|it| it.status.success())
}

struct Cluster {
    up: Up,
    root: std::path::PathBuf,
    wire: String,
    /// With the rights of the manifest for real clusters, and no others.
    kubeconfig: std::path::PathBuf,
}

/// The driver's rights as its manifest grants them.
async fn grant(up: &Up) -> std::path::PathBuf {
    let manifest = include_str!("../../../../deploy/net-interfaces-driver.yaml");
    for object in objects(manifest) {
        let kind = object.types.as_ref().map_or("", |it| it.kind.as_str());
        if !["DaemonSet", "DeviceClass"].contains(&kind) {
            let text = serde_json::to_string(&object).expect("JSON");
            create(&up.client, &text).await;
        }
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": "kube-system"},
        "spec": {"nodeName": "node-0", "serviceAccountName": "allot-net-interfaces",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "10000"]}]},
    });
    create(&up.client, &pod.to_string()).await;
    kubeconfig_bound_to(
        &up.client,
        &up.kubeconfig,
        "allot-net-interfaces",
        Some("driver"),
    )
    .await
}

impl Cluster {
    async fn start(directory: &Path, wire: &Wire) -> Self {
        let flags = ["--no-driver", "--authorization-mode=Node,RBAC"];
        let up = Up::start(directory, &flags).await;
        allot_driver_net::install_v1(&up.client)
            .await
            .expect("installed");
        let cluster = Self {
            kubeconfig: grant(&up).await,
            up,
            root: directory.to_owned(),
            wire: wire.name.clone(),
        };
        let pool = json!({
            "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool", "metadata": {"name": "lab"},
            "spec": {"subnet": "10.77.0.0/24", "ips": ["10.77.0.2-10.77.0.3"], "namespaceName": ["default"]},
        });
        cluster.create_pool(pool).await;
        let parameters = json!({
            "apiVersion": "net.allot.dev/v1alpha1", "kind": "InterfaceConfig", "mode": "macvlan", "ipPools": ["lab"],
        });
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "lab-nic"},
            "spec": {"spec": {"devices": {
                "requests": [{"name": "nic", "exactly": {"deviceClassName": "net.allot.dev", "selectors": [
                    {"cel": {"expression": format!("device.attributes['dra.net'].ifName == '{}'", wire.name)}},
                ]}}],
                "config": [{"opaque": {"driver": "net.allot.dev", "parameters": parameters}}],
            }}},
        });
        cluster.up.create(&template.to_string()).await;
        cluster
    }

    fn pools(&self) -> Api<DynamicObject> {
        let kind = ApiResource {
            group: "spiderpool.spidernet.io".into(),
            version: "v2beta1".into(),
            api_version: "spiderpool.spidernet.io/v2beta1".into(),
            kind: "SpiderIPPool".into(),
            plural: "spiderippools".into(),
        };
        Api::all_with(self.up.client.clone(), &kind)
    }

    /// The kind may have been installed a moment ago.
    async fn create_pool(&self, pool: Value) {
        let pool: DynamicObject = serde_json::from_value(pool).expect("an object");
        let pools = self.pools();
        allot_testing::wait::until("the pool is created", || {
            let (pools, pool) = (pools.clone(), pool.clone());
            async move { pools.create(&Default::default(), &pool).await }
        })
        .await;
    }

    /// The number of allocated addresses in the status of the pool, and their records.
    async fn allocated_ips(&self) -> (i64, String) {
        let pool = self.pools().get("lab").await.expect("a pool");
        let status = &pool.data["status"];
        let text = status["allocatedIPs"].as_str().unwrap_or("{}");
        (
            status["allocatedIPCount"].as_i64().unwrap_or(0),
            text.to_owned(),
        )
    }

    async fn wait_for_allocated(&self, count: i64) {
        allot_testing::wait::until("the pool has allocated as many addresses", || async {
            match self.allocated_ips().await {
                (found, _) if found == count => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }

    fn driver(&self) -> Component {
        let node = self.root.join("nodes/node-0");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let kubeconfig = text(&self.kubeconfig);
        let (node, cdi) = (text(&node), text(&node.join("cdi")));
        let arguments = [
            "driver",
            "net",
            "node",
            "--node-name",
            "node-0",
            "--kubelet-dir",
            &node,
            "--cdi-dir",
            &cdi,
            "--interface",
            &self.wire,
            "--shares",
            "8",
            "--hook",
            ALLOT,
            "--kubeconfig",
            &kubeconfig,
        ];
        Component::start(&self.root, "net", &arguments)
    }

    async fn pod(&self, name: &str, script: &str) {
        let container = |name: &str, claims: Value| json!({"name": name, "image": "busybox", "command": ["sh", "-c", script], "resources": {"claims": claims}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "lab-nic"}],
                // The second one has no claim, and is in the network of the pod nevertheless.
                "containers": [container("first", json!([{"name": "nic"}])), container("second", json!([]))],
            },
        });
        self.up.create(&pod.to_string()).await;
    }

    async fn delete(&self, pod: &str) {
        let params = DeleteParams::default();
        self.up.pods().delete(pod, &params).await.expect("deleted");
    }

    async fn wait_until_gone(&self, pod: &str) {
        let pods = self.up.pods();
        allot_testing::wait::until("the pod is gone", || async {
            match pods.get_opt(pod).await.expect("an answer") {
                None => Ok(()),
                Some(pod) => Err(pod),
            }
        })
        .await;
    }

    /// The status that the driver gives the claim of a pod, when it says that the interface is there.
    async fn attached(&self, pod: &str) -> Value {
        let claims: Api<ResourceClaim> = Api::default_namespaced(self.up.client.clone());
        allot_testing::wait::until("the claim says that it is attached", || async {
            let listed = claims.list(&ListParams::default()).await.expect("claims");
            let prefix = format!("{pod}-nic-");
            let claim = listed.items.into_iter().find(|it| {
                it.metadata
                    .name
                    .as_ref()
                    .is_some_and(|it| it.starts_with(&prefix))
            });
            let status = serde_json::to_value(claim.and_then(|it| it.status)).expect("JSON");
            let device = status["devices"][0].clone();
            match device["conditions"][0]["status"] == "True" {
                true => Ok(device),
                false => Err(status),
            }
        })
        .await
    }
}

const LOOK: &str = "cat /proc/net/dev /proc/net/fib_trie; exec sleep 1000";

/// Names of interfaces in `/proc/net/dev`, which the routes may follow.
fn interfaces(text: &str) -> Vec<&str> {
    let of_routes = |line: &&str| line.starts_with("Main:") || line.starts_with("Local:");
    let lines = text.lines().take_while(|line| !of_routes(line));
    let names = lines.filter_map(|line| line.split_once(':'));
    let mut names: Vec<_> = names.map(|(name, _)| name.trim()).collect();
    // What some kernels put into every namespace.
    names.retain(|it| !["sit0", "tunl0", "ip6tnl0", "gre0"].contains(it));
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_interfaces_and_addresses_and_give_them_back() {
    let Some(wire) = Wire::new() else { return };
    let directory = directory();
    let cluster = Cluster::start(directory.path(), &wire).await;
    let up = &cluster.up;
    let driver = cluster.driver();
    let slices: Api<ResourceSlice> = Api::all(up.client.clone());
    let slice = allot_testing::wait::until("the interface is published", || async {
        let slices = slices.list(&ListParams::default()).await.expect("slices");
        slices.items.into_iter().next().ok_or("no slice")
    })
    .await;
    let slice = serde_json::to_value(slice.spec).expect("JSON");
    let attributes = &slice["devices"][0]["attributes"];
    assert_eq!(attributes["dra.net/ifName"]["string"], wire.name);
    assert_eq!(attributes["dra.net/type"]["string"], "veth");

    cluster.pod("a", LOOK).await;
    up.running("a").await;
    for container in ["first", "second"] {
        let params = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        let pods = up.pods();
        let log = allot_testing::wait::until("the log is there", || async {
            let log = pods.logs("a", &params).await.expect("a log");
            match log.contains("Local:") {
                true => Ok(log),
                false => Err(log),
            }
        })
        .await;
        assert_eq!(interfaces(&log), ["lo", "net1"], "{container}: {log}");
        assert!(log.contains("10.77.0.2"), "{container}: {log}");
    }
    // Later programs are in it, too.
    let seen = up.exec("a", "first", &["cat", "/proc/net/dev"]).await;
    assert_eq!(interfaces(&seen), ["lo", "net1"]);
    let device = cluster.attached("a").await;
    let network = &device["networkData"];
    assert_eq!(network["interfaceName"], "net1");
    assert_eq!(network["ips"], json!(["10.77.0.2/24"]));
    assert!(
        network["hardwareAddress"]
            .as_str()
            .is_some_and(|it| it.starts_with("0a:"))
    );
    assert_eq!(device["conditions"][0]["type"], "Ready");
    assert_eq!(cluster.allocated_ips().await.0, 1);

    // The next pod gets the next address, the third one none until an address is released.
    cluster.pod("b", LOOK).await;
    up.running("b").await;
    let second = cluster.attached("b").await;
    assert_eq!(second["networkData"]["ips"], json!(["10.77.0.3/24"]));
    cluster.pod("c", LOOK).await;
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(up.client.clone());
    allot_testing::wait::until("the event says why the third one waits", || async {
        let params = ListParams::default().fields("involvedObject.name=c");
        let events = events.list(&params).await.expect("events").items;
        let mut messages = events.into_iter().filter_map(|it| it.message);
        let all: Vec<String> = messages.by_ref().collect();
        match all
            .iter()
            .any(|it| it.contains("pool lab has no free address"))
        {
            true => Ok(()),
            false => Err(all),
        }
    })
    .await;

    // No driver runs that could restore the interfaces; the next process does.
    driver.was_allowed_everything();
    drop(driver);
    cluster.delete("a").await;
    let _driver = cluster.driver();
    cluster.wait_until_gone("a").await;
    up.running("c").await;
    let third = cluster.attached("c").await;
    assert_eq!(third["networkData"]["ips"], json!(["10.77.0.2/24"]));
    for pod in ["b", "c"] {
        cluster.delete(pod).await;
        cluster.wait_until_gone(pod).await;
    }
    cluster.wait_for_allocated(0).await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let root = directory.path().to_str().expect("UTF-8");
    let left = mounts
        .lines()
        .find(|it| it.contains(root) && it.contains("netns"));
    assert_eq!(left, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_killed_at_any_time_gives_no_address_twice_and_loses_none() {
    let Some(wire) = Wire::new() else { return };
    let directory = directory();
    let cluster = Cluster::start(directory.path(), &wire).await;
    let mut driver = cluster.driver();
    // The driver is killed twice in each round, at random times.
    let kills = std::env::var("ALLOT_NETWORK_KILLS").ok();
    let rounds: u64 = kills.map_or(6, |it| it.parse::<u64>().expect("a number") / 2);
    let mut random = StdRng::seed_from_u64(28);
    for round in 0..rounds {
        let names = [format!("x{round}"), format!("y{round}")];
        for name in &names {
            cluster.pod(name, "exec sleep 1000").await;
        }
        // Somewhere in the middle of it, each time somewhere else.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..700))).await;
        drop(driver);
        driver = cluster.driver();
        let mut all = Vec::new();
        for name in &names {
            cluster.up.running(name).await;
            all.push(cluster.attached(name).await["networkData"]["ips"].clone());
        }
        assert_ne!(all[0], all[1], "round {round}");
        for name in &names {
            cluster.delete(name).await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
        drop(driver);
        driver = cluster.driver();
        for name in &names {
            cluster.wait_until_gone(name).await;
        }
        cluster.wait_for_allocated(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters_and_the_network_of_the_node_are_refused() {
    let Some(wire) = Wire::new() else { return };
    let directory = directory();
    let cluster = Cluster::start(directory.path(), &wire).await;
    let _driver = cluster.driver();
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "wrong"},
        "spec": {"devices": {
            "requests": [{"name": "nic", "exactly": {"deviceClassName": "net.allot.dev"}}],
            "config": [{"opaque": {"driver": "net.allot.dev", "parameters": {
                "apiVersion": "net.allot.dev/v1alpha1", "kind": "InterfaceConfig", "mode": "vlan",
            }}}],
        }},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "nic", "resourceClaimName": "wrong"}],
            "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"],
                "resources": {"claims": [{"name": "nic"}]}}],
        },
    });
    cluster.up.create(&claim.to_string()).await;
    cluster.up.create(&pod.to_string()).await;
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::default_namespaced(cluster.up.client.clone());
    allot_testing::wait::until("the event says what is wrong", || async {
        let params = ListParams::default().fields("involvedObject.name=w");
        let events = events.list(&params).await.expect("events").items;
        let all: Vec<String> = events.into_iter().filter_map(|it| it.message).collect();
        match all
            .iter()
            .any(|it| it.contains("InterfaceConfig: vlanId: is required in the mode vlan"))
        {
            true => Ok(()),
            false => Err(all),
        }
    })
    .await;
    // A pod in the network of the node is not connected: its container does not start.
    let mut host = pod.clone();
    host["metadata"]["name"] = json!("h");
    host["spec"]["hostNetwork"] = json!(true);
    host["spec"]["restartPolicy"] = json!("Never");
    host["spec"]["resourceClaims"] =
        json!([{"name": "nic", "resourceClaimTemplateName": "lab-nic"}]);
    cluster.up.create(&host.to_string()).await;
    let over = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        pod.and_then(|it| it.status.as_ref()?.phase.clone())
            .is_some_and(|it| it == "Failed")
    };
    cluster.up.wait_until("h", "fail", over).await;
    cluster.wait_for_allocated(0).await;
}
