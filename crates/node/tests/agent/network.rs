//! Pod networks by CNI plugins: by a script that records its calls, and by the real plugins on a bridge.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_node::{Bridge, NetworkSettings, PodNetwork, Ranges};
use allot_testing::wait::{until, until_true};
use serde_json::{Value, json};

use super::harness::{Cluster, has_isolation, pod_path, shell, status};

/// The address that the plugin of the tests assigns to every pod.
pub(super) const ADDRESS: &str = "10.255.1.7";

pub(super) struct Plugin {
    directory: tempfile::TempDir,
}

impl Plugin {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let this = Self { directory };
        std::fs::create_dir(this.path("net.d")).expect("a directory");
        this.configure(r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fake"}]}"#);
        let shown = this.directory.path().display();
        let result = format!(
            r#"{{"cniVersion": "1.0.0", "ips": [{{"address": "{ADDRESS}/24"}}], "dns": {{"nameservers": ["10.255.1.1"]}}}}"#
        );
        let script = format!(
            "#!/bin/sh\ncd {shown}\ncat > input.$CNI_COMMAND\n\
             printf '%s\\n' \"$CNI_ARGS\" > args\nprintf '%s\\n' \"$CNI_COMMAND\" >> calls\n\
             if [ $CNI_COMMAND != ADD ]; then exit; fi\n\
             if [ -e hang ]; then sleep 1000; fi\n\
             if [ -e refuse ]; then echo '{{\"code\": 11, \"msg\": \"no more\", \"details\": \"of 254\"}}'; exit 1; fi\n\
             echo '{result}'\n"
        );
        let program = this.path("fake");
        std::fs::write(&program, script).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.path("net.d/10-net.conflist"), text).expect("written");
    }

    /// Creates a file that changes the behaviour of the plugin.
    fn touch(&self, name: &str) {
        std::fs::write(self.path(name), "").expect("written");
    }

    pub(super) fn settings(&self) -> NetworkSettings {
        NetworkSettings {
            mode: PodNetwork::Cni,
            conf_dir: self.path("net.d"),
            bin_dirs: vec![self.directory.path().to_owned()],
            ..NetworkSettings::default()
        }
    }

    /// The CNI commands that the plugin received.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn wait_for_calls(&self, expected: &[&str]) {
        until(&format!("calls are {expected:?}"), || async {
            let calls = self.calls();
            if calls == expected {
                Ok(())
            } else {
                Err(calls)
            }
        })
        .await;
    }
}

/// Whether the agent can create networks for pods on this machine; otherwise prints that the test is skipped.
pub(super) async fn can_create_pod_networks(cluster: &Cluster) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: networks of pods need root");
        return false;
    }
    has_isolation(cluster).await
}

fn condition(node: &Value, kind: &str) -> Value {
    let all = node["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    found.cloned().unwrap_or_default()
}

/// The number of attachments that the node has recorded.
fn records(cluster: &Cluster) -> usize {
    std::fs::read_dir(cluster.root().join("cni/pods")).map_or(0, Iterator::count)
}

fn namespaces(cluster: &Cluster) -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let root = cluster.root().canonicalize().expect("a directory");
    let root = root.to_str().expect("UTF-8");
    let lines = mounts.lines();
    lines
        .filter(|line| line.contains(root) && line.contains("/netns "))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_the_network_that_a_plugin_gave_it() {
    let plugin = Plugin::new();
    let mut cluster = Cluster::with_network(plugin.settings()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let node = cluster.get("/api/v1/nodes/n1").await;
    assert_eq!(condition(&node, "NetworkReady")["status"], "True");
    let show = "cat /etc/hosts /etc/resolv.conf; cut -d: -f1 /proc/net/dev | tr -d ' ' | grep -x 'lo\\|eth.*'; echo $IP; sleep 1000";
    let mut container = shell(show);
    let field = json!({"fieldRef": {"fieldPath": "status.podIP"}});
    container["env"] = json!([{"name": "IP", "valueFrom": field}]);
    let of_host = shell("grep -c : /proc/net/dev; sleep 1000");
    cluster.pod("p", json!({"containers": [container]})).await;
    let host = json!({"hostNetwork": true, "containers": [of_host]});
    cluster.pod("h", host).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], ADDRESS);
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": ADDRESS}]));
    assert_eq!(pod["status"]["hostIP"], "127.0.0.1");
    let host = cluster.wait_for_phase("h", "Running").await;
    assert_eq!(host["status"]["podIP"], "127.0.0.1");
    until_true("the pod has said all", || {
        cluster.log("p", "c", 0).ends_with(&format!("{ADDRESS}\n"))
    })
    .await;
    let log = cluster.log("p", "c", 0);
    let expected =
        format!("fe00::2\tip6-allrouters\n{ADDRESS}\tp\nnameserver 10.255.1.1\nlo\n{ADDRESS}\n");
    assert!(log.ends_with(&expected), "{log}");
    let args = std::fs::read_to_string(plugin.path("args")).expect("called");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
    assert_eq!(
        args.trim(),
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID={uid};K8S_POD_UID={uid}"
        )
    );
    plugin.wait_for_calls(&["ADD"]).await;
    assert_eq!((records(&cluster), namespaces(&cluster)), (1, 1));

    // The next agent takes the pod over as it is.
    cluster.stop_agent().await;
    cluster.start_agent().await;
    plugin.wait_for_calls(&["ADD", "CHECK"]).await;
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(pod["status"]["podIP"], ADDRESS);
    assert_eq!(status(&pod, "c")["restartCount"], 0);

    let path = format!("{}?gracePeriodSeconds=1", pod_path("p"));
    cluster.delete(&path).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(plugin.calls(), ["ADD", "CHECK", "DEL"]);
    let input = std::fs::read_to_string(plugin.path("input.DEL")).expect("called");
    let input: Value = serde_json::from_str(&input).expect("JSON");
    let before = &input["prevResult"]["ips"][0]["address"];
    assert_eq!(*before, format!("{ADDRESS}/24"));
    assert_eq!((records(&cluster), namespaces(&cluster)), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_refuses_is_an_event_and_leaves_nothing() {
    let plugin = Plugin::new();
    plugin.touch("refuse");
    let cluster = Cluster::with_network(plugin.settings()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let spec = json!({"containers": [shell("sleep 1000")]});
    let uid = cluster.pod("p", spec).await;
    let message = cluster.wait_for_event("p", "FailedCreatePodSandBox").await;
    assert_eq!(
        message,
        format!(
            "Failed to create pod sandbox: failed to setup network for sandbox {uid:?}: plugin type=\"fake\" failed \
             (add): no more; of 254"
        )
    );
    std::fs::remove_file(plugin.path("refuse")).expect("removed");
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], ADDRESS);
    let calls = plugin.calls();
    // Every attempt was undone before the next.
    let (last, before) = calls.split_last().expect("called");
    assert_eq!(last, "ADD");
    assert!(before.chunks(2).all(|it| it == ["ADD", "DEL"]), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_did_for_an_agent_that_ended_is_undone() {
    let plugin = Plugin::new();
    plugin.touch("hang");
    let mut cluster = Cluster::with_network(plugin.settings()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let spec = || json!({"containers": [shell("sleep 1000")]});
    cluster.pod("p", spec()).await;
    plugin.wait_for_calls(&["ADD"]).await;
    assert_eq!(records(&cluster), 1, "it is recorded before it is asked");
    cluster.stop_agent().await;
    std::fs::remove_file(plugin.path("hang")).expect("removed");
    cluster.start_agent().await;
    cluster.wait_for_phase("p", "Running").await;
    assert_eq!(plugin.calls(), ["ADD", "DEL", "ADD"]);

    // A pod that is deleted while no agent runs, with a record that cannot be read.
    cluster.stop_agent().await;
    let entries = std::fs::read_dir(cluster.root().join("cni/pods")).expect("records");
    for entry in entries {
        std::fs::write(entry.expect("a record").path(), "{").expect("written");
    }
    let path = format!("{}?gracePeriodSeconds=0", pod_path("p"));
    cluster.delete(&path).await;
    cluster.start_agent().await;
    plugin.wait_for_calls(&["ADD", "DEL", "ADD", "DEL"]).await;
    until_true("nothing is left", || {
        (records(&cluster), namespaces(&cluster)) == (0, 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_at_fault_is_told_by_the_node() {
    let plugin = Plugin::new();
    let cluster = Cluster::with_network(plugin.settings()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    plugin.configure("{");
    let node = cluster
        .wait_until("/api/v1/nodes/n1", "not ready", |node| {
            condition(node, "Ready")["status"] == "False"
        })
        .await;
    let ready = condition(&node, "Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    let expected = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
        message:Network plugin returns error: cni plugin not initialized: ";
    let text = ready["message"].as_str().expect("a message");
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(
        condition(&node, "NetworkReady")["reason"],
        "NetworkPluginNotReady"
    );
    let container = shell("sleep 1000");
    let spec = json!({"containers": [container]});
    cluster.pod("p", spec.clone()).await;
    let message = cluster.wait_for_event("p", "NetworkNotReady").await;
    assert!(
        message.starts_with(&format!("network is not ready: {expected}")),
        "{message}"
    );
    // It does not need the plugins.
    let mut host = spec;
    host["hostNetwork"] = json!(true);
    cluster.pod("h", host).await;
    cluster.wait_for_phase("h", "Running").await;
    plugin.configure(r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fake"}]}"#);
    cluster.wait_for_phase("p", "Running").await;
    cluster
        .wait_until("/api/v1/nodes/n1", "ready", |node| {
            condition(node, "Ready")["status"] == "True"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configuration_pods_share_the_network_of_the_host() {
    let empty = tempfile::tempdir().expect("a directory");
    let settings = NetworkSettings {
        mode: PodNetwork::Auto,
        conf_dir: empty.path().to_owned(),
        ..NetworkSettings::default()
    };
    let mut cluster = Cluster::with_network(settings).await;
    let told = |node: &Value| condition(node, "NetworkReady");
    let network = told(&cluster.get("/api/v1/nodes/n1").await);
    assert_eq!(network["status"], "False");
    assert_eq!(network["reason"], "HostNetwork");
    let text = network["message"].as_str().expect("a message");
    assert!(text.contains("there is no CNI configuration in "), "{text}");
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let spec = json!({"containers": [shell("sleep 1000")]});
    cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], "127.0.0.1");

    // A pod that runs stays in the network that it has; the next one gets its own.
    cluster.stop_agent().await;
    let plugin = Plugin::new();
    cluster.network = plugin.settings();
    cluster.start_agent().await;
    let spec = json!({"containers": [shell("sleep 1000")]});
    cluster.pod("q", spec).await;
    let pod = cluster.wait_for_phase("q", "Running").await;
    assert_eq!(pod["status"]["podIP"], ADDRESS);
    assert_eq!(
        cluster.get(&pod_path("p")).await["status"]["podIP"],
        "127.0.0.1"
    );
    for pod in ["p", "q"] {
        let path = format!("{}?gracePeriodSeconds=1", pod_path(pod));
        cluster.delete(&path).await;
        cluster.wait_until_gone(pod).await;
    }
    plugin.wait_for_calls(&["ADD", "DEL"]).await;
}

/// A bridge that is removed with its test.
struct Own(Bridge);

impl Drop for Own {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            eprintln!("{error}");
        }
    }
}

/// Says what a server answers to a request over HTTP; empty where there is none.
fn answer(ip: IpAddr, port: u16) -> String {
    let limit = Duration::from_secs(5);
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect_timeout(&(ip, port).into(), limit) {
        let _ = stream.set_read_timeout(Some(limit));
        let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_a_bridge_reach_each_other_and_leave_nothing() {
    let python = std::process::Command::new("python3")
        .arg("--version")
        .output();
    if python.is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let dirs = NetworkSettings::default().bin_dirs;
    let bridge = match Bridge::open(directory.path(), dirs, 1, &Ranges::default()).await {
        Ok(bridge) => Own(bridge),
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    let root = directory.path().join("n");
    let mut config = allot_node::Config::new("n1", &root);
    bridge.0.equip(0, &mut config).expect("files");
    let cluster = Cluster::with_network(config.network.clone()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let node = cluster.get("/api/v1/nodes/n1").await;
    assert_eq!(
        node["spec"]["podCIDR"].as_str(),
        config.network.pod_cidrs.first().map(String::as_str)
    );

    let mut server =
        shell("mkdir /tmp/w; cd /tmp/w; echo hello > index.html; exec python3 -m http.server 8000");
    let port = {
        let free = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a port");
        free.local_addr().expect("an address").port()
    };
    server["ports"] = json!([{"containerPort": 8000, "hostPort": port}]);
    server["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1});
    server["livenessProbe"] = json!({"tcpSocket": {"port": 8000}, "initialDelaySeconds": 30});
    cluster.pod("server", json!({"containers": [server]})).await;
    let ready = |pod: &Value| status(pod, "c")["ready"] == true;
    let pod = cluster
        .wait_until(&pod_path("server"), "ready", ready)
        .await;
    let ip: IpAddr = pod["status"]["podIP"]
        .as_str()
        .and_then(|ip| ip.parse().ok())
        .expect("an address");
    assert!(answer(ip, 8000).ends_with("hello\n"));
    let text = std::fs::read_to_string(config.network.conf_dir.join("10-allot.conflist"));
    if text.expect("a configuration").contains("portmap") {
        let gateway = IpAddr::from(bridge.0.gateway());
        assert!(answer(gateway, port).ends_with("hello\n"), "host port");
    } else {
        eprintln!("skipped in part: iptables does not work here");
    }
    let ask = format!(
        "import urllib.request as r; print(r.urlopen('http://{ip}:8000/', timeout=60).read().decode())"
    );
    let container = json!({"name": "c", "image": "none", "command": ["python3", "-c", ask]});
    let client = json!({"restartPolicy": "Never", "containers": [container]});
    cluster.pod("client", client).await;
    let ended = cluster.wait_for_phase("client", "Succeeded").await;
    assert_eq!(cluster.log("client", "c", 0), "hello\n\n");
    assert_ne!(ended["status"]["podIP"], pod["status"]["podIP"]);
    assert!(
        ended["status"]["podIP"]
            .as_str()
            .is_some_and(|it| it.starts_with("10."))
    );

    for pod in ["server", "client"] {
        let path = format!("{}?gracePeriodSeconds=1", pod_path(pod));
        cluster.delete(&path).await;
        cluster.wait_until_gone(pod).await;
    }
    assert_eq!((records(&cluster), namespaces(&cluster)), (0, 0));
    let name = node["spec"]["podCIDR"].as_str().expect("a network");
    let name = format!("allot-10-{}", name.split('.').nth(1).expect("a number"));
    let ports = Path::new("/sys/class/net").join(&name).join("brif");
    assert_eq!(std::fs::read_dir(ports).expect("a bridge").count(), 0);
    let leases = std::fs::read_dir(root.join("cni/ipam").join(format!("{name}-0")));
    let leases: Vec<_> = leases
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().parse::<IpAddr>().is_ok())
        .collect();
    assert!(leases.is_empty(), "{leases:?}");
    drop(bridge);
    assert!(!Path::new("/sys/class/net").join(&name).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_a_bridge_have_addresses_of_both_families() {
    let directory = tempfile::tempdir().expect("a directory");
    let dirs = NetworkSettings::default().bin_dirs;
    let network = format!("fd7c:a110:{:x}::/48", std::process::id() % 0xffff + 1);
    let ranges = Ranges::default().with_ipv6(network.parse().expect("a network"));
    let bridge = match Bridge::open(directory.path(), dirs, 1, &ranges).await {
        Ok(bridge) => Own(bridge),
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    let mut config = allot_node::Config::new("n1", directory.path().join("n"));
    bridge.0.equip(0, &mut config).expect("files");
    let cluster = Cluster::with_network(config.network.clone()).await;
    if !can_create_pod_networks(&cluster).await {
        return;
    }
    let node = cluster.get("/api/v1/nodes/n1").await;
    let cidrs = &node["spec"]["podCIDRs"];
    assert_eq!(*cidrs, json!(config.network.pod_cidrs));
    assert_eq!(cidrs[1], network.replace("/48", "/64"));
    let show = "cat /proc/net/if_inet6 /etc/hosts; exec sleep 1000";
    cluster.pod("p", json!({"containers": [shell(show)]})).await;
    let pod = cluster.wait_for_phase("p", "Running").await;
    let ips = &pod["status"]["podIPs"];
    assert_eq!(pod["status"]["podIP"], ips[0]["ip"]);
    let of = |index: usize| ips[index]["ip"].as_str().and_then(|ip| ip.parse().ok());
    let (Some(IpAddr::V4(four)), Some(IpAddr::V6(six))) = (of(0), of(1)) else {
        panic!("{ips}");
    };
    let shown = format!("{:032x}", six.to_bits());
    until_true("the pod has the addresses", || {
        let log = cluster.log("p", "c", 0);
        log.contains(&shown) && log.contains(&six.to_string())
    })
    .await;
    // The host reaches it by both: nothing listens, and the pod refuses the connection.
    for ip in [IpAddr::from(four), six.into()] {
        until_true("the pod answers", || {
            let tried = TcpStream::connect_timeout(&(ip, 9).into(), Duration::from_secs(2));
            tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        })
        .await;
    }
    let path = format!("{}?gracePeriodSeconds=1", pod_path("p"));
    cluster.delete(&path).await;
    cluster.wait_until_gone("p").await;
    assert_eq!((records(&cluster), namespaces(&cluster)), (0, 0));
}
