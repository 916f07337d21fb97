//! Seeds 004 (1.27) and 001 (1.30): items 28 to 33 and 38 to 49. (26, 27, 34 to 37 and 50, 51 are in `served`.)
//!
//! The manifests are `examples/classic/1.27` and `1.30`: the printed ones with the names under `metadata`.

use super::harness::{Cluster, masked, pod_with_cat};

const CATS: &str = "--dra --driver test --drivername resource-driver.example.com";

/// The two-cat pod runs, with a claim for each container, named as the release names them.
fn two_cats(release: &str, class: &str) -> Option<Cluster> {
    let cluster = Cluster::up(&format!("--emulated-version {release} {CATS}"))?;
    cluster.ok(&format!("create -f classic/{release}/{class}.yaml"));
    cluster.ok("wait --for=condition=Established crd --all --timeout=120s");
    cluster.ok(&format!("create -f classic/{release}/pod-with-cats.yaml"));
    cluster.ready("pod-with-cats");
    let claims = cluster.rows("get resourceclaims");
    assert_eq!(
        claims[0],
        ["NAME", "RESOURCECLASSNAME", "ALLOCATIONMODE", "STATE"]
    );
    let names: Vec<_> = claims[1..].iter().map(|row| masked(&row[0])).collect();
    let expected = match release {
        "1.27" => ["pod-with-cats-cat-0", "pod-with-cats-cat-1"],
        _ => ["pod-with-cats-cat-0-*", "pod-with-cats-cat-1-*"],
    };
    assert_eq!(names, expected);
    for row in &claims[1..] {
        assert_eq!(
            row[1..],
            [
                "resource.example.com",
                "WaitForFirstConsumer",
                "allocated,reserved"
            ]
        );
    }
    for container in ["container0", "container1"] {
        let environment = cluster.ok(&format!("exec pod-with-cats -c {container} -- printenv"));
        assert!(environment.contains("user_color=black\n"), "{environment}");
        assert!(environment.contains("user_size=large\n"), "{environment}");
    }
    Some(cluster)
}

#[test]
fn seed_004_item_28_30_31_two_cats_through_a_driver_s_controller() {
    two_cats("1.27", "class-of-cats");
}

#[test]
fn seed_004_item_29_the_allocation_says_where_the_claim_is_usable() {
    let Some(cluster) = two_cats("1.27", "class-of-cats") else {
        return;
    };
    let allocation = cluster.ok("get resourceclaims -o jsonpath={.items[*].status.driverName}");
    assert_eq!(
        allocation,
        "resource-driver.example.com resource-driver.example.com"
    );
    let handle = cluster.ok("get resourceclaims -o jsonpath={.items[0].status.allocation.resourceHandles[0].driverName}");
    assert_eq!(handle, "resource-driver.example.com");
}

#[test]
fn seed_001_item_40_41_two_cats_in_1_30_through_a_driver_s_controller() {
    two_cats("1.30", "class-of-cats");
}

#[test]
fn seed_001_item_38_39_43_45_two_cats_through_structured_parameters() {
    let Some(cluster) = two_cats("1.30", "structured-class-of-cats") else {
        return;
    };
    // The driver translated the vendor's parameters; the scheduler wrote them into the claims.
    let converted =
        cluster.ok("get resourceclaimparameters -o jsonpath={.items[*].generatedFrom.name}");
    assert_eq!(converted, "large-black-cat-claim-parameters");
    let instances = cluster.ok(
        "get resourceclaims -o jsonpath={.items[*].status.allocation.resourceHandles[0].structuredData.results[0].namedResources.name}",
    );
    let mut instances: Vec<_> = instances.split(' ').collect();
    instances.sort_unstable();
    instances.dedup();
    assert_eq!(instances.len(), 2, "{instances:?}");
    let finalizers = cluster.ok("get resourceclaims -o jsonpath={.items[0].metadata.finalizers}");
    assert_eq!(finalizers, "[\"dra.k8s.io/delete-protection\"]");
    cluster.ok("delete pod pod-with-cats --grace-period=1");
    cluster.ok("wait --for=delete resourceclaim --all --timeout=120s");
}

#[test]
fn seed_001_item_47_48_a_pod_that_went_around_the_scheduler_is_repaired_by_the_controller() {
    let Some(cluster) = Cluster::up("--emulated-version 1.30 --dra --driver test") else {
        return;
    };
    cluster.ok("create -f classic/1.30/resourceclass.yaml");
    let pod = pod_with_cat("v1alpha2", "placed", "nodeName: node-0");
    assert!(cluster.create(&pod).success);
    cluster.ready("placed");
    assert_eq!(
        cluster.rows("get resourceclaim cat")[1][3],
        "allocated,reserved"
    );
}

#[test]
fn parameters_of_a_structured_class_reach_the_containers() {
    let Some(cluster) = Cluster::up(&format!("--emulated-version 1.30 {CATS}")) else {
        return;
    };
    cluster.ok("create -f classic/1.30/structured-class-of-cats.yaml");
    cluster.ok("wait --for=condition=Established crd --all --timeout=120s");
    let objects = "
apiVersion: cats.resource.example.com/v1
kind: ClaimParameters
metadata: {name: for-all}
spec: {size: small}
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: example}
driverName: resource-driver.example.com
structuredParameters: true
parametersRef: {apiGroup: cats.resource.example.com, kind: ClaimParameters, name: for-all, namespace: default}
---";
    let objects = format!("{objects}{}", pod_with_cat("v1alpha2", "with-cat", ""));
    assert!(cluster.create(&objects).success);
    cluster.ready("with-cat");
    let environment = cluster.ok("exec with-cat -- printenv");
    assert!(environment.contains("admin_size=small\n"), "{environment}");
}

#[test]
fn seed_001_item_49_a_node_selector_places_the_pod_instead() {
    let Some(cluster) = Cluster::up(&format!("--emulated-version 1.30 {CATS}")) else {
        return;
    };
    cluster.ok("create -f classic/1.30/class-of-cats.yaml");
    cluster.ok("wait --for=condition=Established crd --all --timeout=120s");
    // The parameters and the template, without the pod that comes with them.
    cluster.ok("create -f classic/1.30/pod-with-cats.yaml");
    cluster.ok("delete pod pod-with-cats --grace-period=1");
    cluster.ok("create -f classic/1.30/pod-on-intended-node.yaml");
    cluster.ready("pod-with-cats");
    assert_eq!(
        cluster.ok("get pod pod-with-cats -o jsonpath={.spec.nodeName}"),
        "node-0"
    );
}

#[test]
fn classic_and_newer_claims_serve_one_pod_together() {
    let Some(cluster) = Cluster::up("--dra --driver test") else {
        return;
    };
    cluster.ok("create -f classic/1.27/resourceclass.yaml");
    let objects = "
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: old}
spec: {resourceClassName: example}
---
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  containers:
  - {name: c, image: busybox, command: [sleep, '9999'], resources: {claims: [{name: old}]}}
  resourceClaims: [{name: old, resourceClaimName: old}]
";
    assert!(cluster.create(objects).success);
    cluster.ready("both");
}
