//! Seed 002: 1.32 and 1.34 with the GPU driver, items 70 to 78. (67 is in `served`; 68 and 69 are about static pods and
//! images, which an embedded cluster does not have.)

use super::harness::{Cluster, masked};

const V1_32: &str = "--emulated-version 1.32 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1beta1=true";
const V1_34: &str = "--emulated-version 1.34";

/// Runs a check on both releases that the seed speaks of; it gets the template's file as well.
fn both(check: impl Fn(&Cluster, &str)) {
    for (flags, template) in [
        (V1_32, "1.32/example_resourceclaimtemplate.yaml"),
        (V1_34, "example_resourceclaimtemplate.yaml"),
    ] {
        let Some(cluster) = Cluster::up(flags) else {
            return;
        };
        check(&cluster, template);
    }
}

#[test]
fn seed_002_item_72_slices_are_listed_with_node_driver_and_pool() {
    both(|cluster, _| {
        let rows = cluster.rows("get resourceslice");
        assert_eq!(rows[0], ["NAME", "NODE", "DRIVER", "POOL"]);
        assert_eq!(masked(&rows[1][0]), "node-0-gpu.example.com-*");
        assert_eq!(rows[1][1..], ["node-0", "gpu.example.com", "node-0"]);
        assert_eq!(rows.len(), 2);
    });
}

#[test]
fn seed_002_item_73_the_class_is_listed() {
    both(|cluster, _| {
        assert_eq!(
            cluster.ok("get deviceclasses --no-headers -o name"),
            "deviceclass.resource.k8s.io/gpu.example.com\n"
        )
    });
}

#[test]
fn seed_002_item_74_describe_shows_the_devices_of_v1beta1() {
    let Some(cluster) = Cluster::up(V1_32) else {
        return;
    };
    let described = cluster.ok("describe resourceslice");
    let expected = "\
API Version:  resource.k8s.io/v1beta1
Kind:         ResourceSlice
";
    assert!(described.contains(expected), "{described}");
    let uuid = described
        .lines()
        .find_map(|line| line.trim().strip_prefix("String:  gpu-"))
        .unwrap_or_else(|| panic!("no uuid in {described}"));
    let device = format!(
        "\
Spec:
  Devices:
    Basic:
      Attributes:
        Driver Version:
          Version:  1.0.0
        Index:
          Int:  0
        Model:
          String:  LATEST-GPU-MODEL
        Uuid:
          String:  gpu-{uuid}
      Capacity:
        Memory:
          Value:  80Gi
    Name:         gpu-0
"
    );
    assert!(described.contains(&device), "{described}");
    assert_eq!(described.matches("String:  LATEST-GPU-MODEL").count(), 8);
}

#[test]
fn seed_002_item_75_slices_are_deleted_by_their_driver() {
    both(|cluster, _| {
        let name = cluster.ok("get resourceslice -o jsonpath={.items[0].metadata.name}");
        assert_eq!(
            cluster.ok("delete resourceslice --field-selector spec.driver=gpu.example.com"),
            format!("resourceslice.resource.k8s.io \"{name}\" deleted\n")
        );
    });
}

#[test]
fn seed_002_item_76_77_78_the_claim_of_a_pod_is_seen_to_come_and_go() {
    both(|cluster, template| {
        assert_eq!(
            cluster.ok(&format!("apply -f {template}")),
            "resourceclaimtemplate.resource.k8s.io/example created\n"
        );
        let version = if template.starts_with("1.32") {
            "v1beta1"
        } else {
            "v1"
        };
        let (watch, header) = cluster.follow_claims(version, "{devices: {}}");
        assert_eq!(header, ["NAME", "STATE", "AGE"]);
        cluster.ok("apply -f example_claim_po.yaml");
        let state = || {
            let row = watch.next();
            assert_eq!(masked(&row[0]), "example-claim-example-*");
            row[1].clone()
        };
        for expected in ["pending", "pending", "allocated,reserved"] {
            assert_eq!(state(), expected);
        }
        cluster.ready("example-claim");
        let owners = cluster.ok(
            "get resourceclaim -o jsonpath={.items[*].metadata.ownerReferences[0]['kind','name']}",
        );
        assert_eq!(owners, "Pod example-claim");
        cluster.ok("delete pod example-claim");
        for expected in ["pending", "pending", "pending"] {
            assert_eq!(state(), expected);
        }
        assert_eq!(
            cluster.rows("get resourceclaim").len(),
            2,
            "only the unused one is left"
        );
    });
}
