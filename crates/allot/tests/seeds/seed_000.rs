//! Seed 000 (networks in 1.29): items 56 to 66.
//!
//! The manifests are `examples/classic/net`: the printed ones with the labels under `metadata` and a command for the
//! container, since images are not pulled. `--driver net` installs what the documents install with helm; its nodes
//! have a modelled eth0 in 172.18.0.0/16.

use std::path::PathBuf;

use super::harness::{Cluster, masked};

const NET: &str = "--emulated-version 1.29 --dra --driver net";

fn cluster(flags: &str) -> Option<Cluster> {
    let cluster = Cluster::up(&format!("{NET} {flags}"))?;
    cluster.ok("apply -f classic/net/network.yaml");
    Some(cluster)
}

/// The CDI file of the claim with a UID, on the node with a number.
fn cdi_file(cluster: &Cluster, node: &str, uid: &str) -> PathBuf {
    let name = format!("k8s.netresources.spidernet.io-claim_{uid}.yaml");
    cluster
        .directory()
        .join("nodes")
        .join(node)
        .join("cdi")
        .join(name)
}

fn demo(cluster: &Cluster) {
    cluster.ok("apply -f classic/net/demo.yaml");
    cluster.ok("rollout status deployment/demo --timeout=120s");
}

/// Waits until a command of the form `get …`, with `--watch`, prints a line with the text.
fn wait_for_line(cluster: &Cluster, command: &str, text: &str) {
    cluster
        .follow(&format!("{command} --watch"))
        .read_until(text);
}

#[test]
fn seed_000_item_56_the_class_is_there() {
    let Some(cluster) = Cluster::up(NET) else {
        return;
    };
    assert_eq!(
        cluster.rows("get resourceclass"),
        [
            ["NAME", "DRIVERNAME"],
            ["netresources.spidernet.io", "netresources.spidernet.io"],
        ]
    );
}

#[test]
fn seed_000_item_57_58_a_network_becomes_what_multus_reads_and_stays_so() {
    let Some(cluster) = cluster("") else { return };
    let wanted = r#""name":"macvlan-conf","plugins":[{"ipam":{"type":"spiderpool"},"master":"eth0","mode":"bridge","type":"macvlan"},{"type":"coordinator"}]"#;
    let get = r#"get net-attach-def -n kube-system -o jsonpath={.spec.config}{"\n"}"#;
    wait_for_line(&cluster, get, wanted);
    // If it is deleted or changed, it is restored.
    cluster.ok("delete net-attach-def macvlan-conf -n kube-system");
    wait_for_line(&cluster, get, wanted);
    cluster.ok(r#"patch net-attach-def macvlan-conf -n kube-system --type=merge -p {"spec":{"config":"{}"}}"#);
    wait_for_line(&cluster, get, wanted);
    cluster.ok("wait --for=jsonpath={.status.totalIPCount}=10 sp/ippool-test --timeout=120s");
    cluster.ok("wait --for=jsonpath={.status.allocatedIPCount}=0 sp/ippool-test --timeout=120s");
    let row = &cluster.rows("get sp")[1];
    assert_eq!(row[..5], ["ippool-test", "4", "172.18.0.0/16", "0", "10"]);
    let refused = cluster.create(
        "
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderMultusConfig
metadata: {name: both, namespace: kube-system}
spec: {cniType: macvlan, macvlan: {master: [eth0]}, sriov: {resourceName: x/y}}
",
    );
    let text = "sriov must be set for cniType sriov and for no other";
    assert!(
        !refused.success && refused.err.contains(text),
        "{refused:?}"
    );
    cluster.ok("delete smc macvlan-conf -n kube-system");
    cluster.ok("wait --for=delete net-attach-def/macvlan-conf -n kube-system --timeout=120s");
}

#[test]
fn seed_000_item_59_61_62_63_65_two_pods_with_a_claim_each() {
    let Some(cluster) = cluster("") else { return };
    demo(&cluster);
    let pods = cluster.ok("get pods -o jsonpath={.items[*].metadata.name}");
    let pods: Vec<&str> = pods.split_whitespace().collect();
    assert_eq!(pods.len(), 2, "{pods:?}");
    let claims = cluster.rows("get resourceclaim");
    assert_eq!(
        claims[0],
        ["NAME", "RESOURCECLASSNAME", "ALLOCATIONMODE", "STATE"]
    );
    for (row, pod) in claims[1..].iter().zip(&pods) {
        assert_eq!(masked(&row[0]), format!("{pod}-demo-*"));
        let rest = [
            "netresources.spidernet.io",
            "WaitForFirstConsumer",
            "allocated,reserved",
        ];
        assert_eq!(row[1..], rest);
    }
    let mut files = Vec::new();
    for (row, pod) in claims[1..].iter().zip(&pods) {
        let uid = cluster.ok(&format!(
            "get resourceclaim {} -o jsonpath={{.metadata.uid}}",
            row[0]
        ));
        let file = cdi_file(&cluster, "node-0", &uid);
        let expected = format!(
            "---\ncdiVersion: 0.6.0\ncontainerEdits: {{}}\ndevices:\n- containerEdits:\n    env:\n    - DRA_CLAIM_UID={uid}\n  name: {uid}\nkind: k8s.netresources.spidernet.io/claim\n"
        );
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), expected);
        let printed = cluster.ok(&format!("exec {pod} -- printenv DRA_CLAIM_UID"));
        assert_eq!(printed.trim(), uid);
        files.push(file);
    }
    cluster.ok("delete deployment demo");
    cluster.ok("wait --for=delete resourceclaim --all --timeout=120s");
    for file in files {
        assert!(!file.exists(), "{}", file.display());
    }
}

#[test]
fn seed_000_item_60_the_deployment_as_printed_is_refused() {
    let Some(cluster) = cluster("") else { return };
    let manifest = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/classic/net/demo.yaml"
    ));
    let manifest = manifest.expect("the example").replace(
        "      labels:\n        app: demo\n    spec:",
        "    labels:\n        app: demo\n    spec:",
    );
    let printed = cluster.create(&manifest);
    assert!(!printed.success, "{printed:?}");
    assert!(
        printed
            .err
            .contains("unknown field \"spec.template.labels\""),
        "{printed:?}"
    );
}

#[test]
fn seed_000_item_64_a_parameter_lowers_the_version_of_the_file() {
    let Some(cluster) = cluster("") else { return };
    cluster.ok("apply -f classic/net/demo.yaml --dry-run=client -o name");
    let version = |version: &str| {
        cluster.create(&format!(
            "
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderClaimParameter
metadata: {{name: demo, annotations: {{dra.spidernet.io/cdi-version: '{version}'}}}}
"
        ))
    };
    assert!(version("0.5.0").success);
    demo(&cluster);
    let uid = cluster.ok("get resourceclaim -o jsonpath={.items[0].metadata.uid}");
    let text = std::fs::read_to_string(cdi_file(&cluster, "node-0", &uid)).expect("a file");
    assert!(text.starts_with("---\ncdiVersion: 0.5.0\n"), "{text}");

    // A version that no runtime supports, or with which the file would be invalid: the claim reports it, and the pod
    // waits.
    cluster.ok("delete deployment,scp,resourceclaimtemplate demo");
    assert!(version("0.4.0").success);
    cluster.ok("apply -f classic/net/demo.yaml");
    wait_for_line(&cluster, "get events", "\"0.4.0\" is none of 0.5.0, 0.6.0");
    // No parameters at all.
    cluster.ok("delete scp demo");
    wait_for_line(
        &cluster,
        "get events",
        "there is no SpiderClaimParameter default/demo",
    );
    let pods = cluster.ok("get pods -o jsonpath={.items[*].status.phase}");
    assert_eq!(pods, "Pending Pending");
    // As soon as they exist it continues.
    demo(&cluster);
}

#[test]
fn seed_000_item_66_pods_go_where_their_networks_are() {
    let Some(cluster) = cluster("--nodes 3") else {
        return;
    };
    // One node has the interface and the subnet, one the interface in another subnet, one has it down.
    for (node, eth1) in [
        (
            "node-0",
            r#"{"name":"eth1","up":true,"addresses":["10.9.0.2/16"]}"#,
        ),
        (
            "node-1",
            r#"{"name":"eth1","up":true,"addresses":["10.8.0.2/16"]}"#,
        ),
        (
            "node-2",
            r#"{"name":"eth1","up":false,"addresses":["10.8.0.3/16"]}"#,
        ),
    ] {
        cluster.ok(&format!(
            "annotate node {node} --overwrite dra.spidernet.io/interfaces=[{eth1}]"
        ));
    }
    let network = cluster.create(
        "
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderMultusConfig
metadata: {name: second, namespace: kube-system}
spec: {cniType: macvlan, macvlan: {master: [eth1]}}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: second}
spec: {subnet: 10.8.0.0/16, ips: [10.8.1.1-10.8.1.9], multusName: [kube-system/second]}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderClaimParameter
metadata: {name: demo}
spec: {defaultNic: {multusName: second, namespace: kube-system}}
",
    );
    assert!(network.success, "{network:?}");
    let demo_yaml = "apply -f classic/net/demo.yaml --selector=!none";
    let applied = cluster.run(demo_yaml);
    assert!(applied.success, "{applied:?}");
    // The example has the parameters without a spec: those of this test again.
    cluster.ok(r#"patch scp demo --type=merge -p {"spec":{"defaultNic":{"multusName":"second","namespace":"kube-system"}}}"#);
    cluster.ok("rollout status deployment/demo --timeout=120s");
    let nodes = cluster.ok("get pods -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(nodes, "node-1 node-1");

    // Resources of device plugins count as well, without the pod asking for them.
    cluster
        .ok(r#"patch scp demo --type=merge -p {"spec":{"netResources":{"spidernet.io/vf":"1"}}}"#);
    cluster.ok("scale deployment demo --replicas=3");
    wait_for_line(&cluster, "get pods", "Pending");
    wait_for_line(
        &cluster,
        "get events",
        "0 of spidernet.io/vf left, 1 wanted",
    );
    cluster.ok(r#"patch scp demo --type=merge -p {"spec":{"netResources":null}}"#);
    cluster.ok("rollout status deployment/demo --timeout=120s");
}
