//! Seed 003: the article of 1.26, items 5 to 25. (1 and 3 are in `served`.)
//!
//! The manifests are `examples/classic/1.26`: the printed ones, indented again, with the classes' and parameters' names
//! under `metadata` and `---` where a separator had been mangled.

use super::harness::{Cluster, pod_for_cat, pod_with_cat};

const V1_26: &str = "--emulated-version 1.26 --dra --driver test";
const CATS: &str =
    "--emulated-version 1.26 --dra --driver test --drivername resource-driver.example.com";

/// Types what the article types first.
fn created(cluster: &Cluster) {
    let class = cluster.ok("create -f classic/1.26/resourceclass.yaml");
    assert_eq!(class, "resourceclass.resource.k8s.io/example created\n");
    let pod = cluster.ok("create -f classic/1.26/pod-inline.yaml");
    assert_eq!(
        pod,
        "configmap/test-inline-claim-parameters created\n\
         resourceclaimtemplate.resource.k8s.io/test-inline-claim-template created\n\
         pod/test-inline-claim created\n"
    );
}

#[test]
fn seed_003_item_20_21_the_manifests_are_created_as_printed() {
    if let Some(cluster) = Cluster::up(V1_26) {
        created(&cluster);
    }
}

#[test]
fn seed_003_item_22_the_claim_is_allocated_and_reserved() {
    let Some(cluster) = Cluster::up(V1_26) else {
        return;
    };
    let (watch, header) = cluster.follow_claims("v1alpha1", "{resourceClassName: example}");
    assert_eq!(
        header,
        [
            "NAME",
            "RESOURCECLASSNAME",
            "ALLOCATIONMODE",
            "STATE",
            "AGE"
        ]
    );
    created(&cluster);
    let row = std::iter::repeat_with(|| watch.next())
        .find(|row| row[3] == "allocated,reserved")
        .expect("endless");
    let expected = [
        "test-inline-claim-resource",
        "example",
        "WaitForFirstConsumer",
        "allocated,reserved",
    ];
    assert_eq!(row[..4], expected);
}

#[test]
fn seed_003_item_23_24_25_the_pod_completes_and_only_its_first_container_saw_the_resource() {
    let Some(cluster) = Cluster::up(V1_26) else {
        return;
    };
    created(&cluster);
    cluster.completed("test-inline-claim");
    let pods = cluster.rows("get pods");
    assert_eq!(pods[0], ["NAME", "READY", "STATUS", "RESTARTS"]);
    assert_eq!(pods[1], ["test-inline-claim", "0/2", "Completed", "0"]);
    let user_a = |container: &str| {
        let log = cluster.ok(&format!("logs test-inline-claim {container}"));
        let lines = log.lines().filter(|line| line.contains("user_a"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(user_a("with-resource"), ["user_a='b'"]);
    assert_eq!(user_a("without-resource"), Vec::<String>::new());
}

#[test]
fn seed_003_item_05_06_07_two_cats_are_two_claims_one_for_each_container() {
    let Some(cluster) = Cluster::up(CATS) else {
        return;
    };
    cluster.ok("create -f classic/1.26/class-of-cats.yaml");
    cluster.ok("wait --for=condition=Established crd --all --timeout=120s");
    cluster.ok("create -f classic/1.26/pod-with-cats.yaml");
    cluster.ready("pod-with-cats");
    let claims = cluster.rows("get resourceclaims");
    let names: Vec<_> = claims[1..]
        .iter()
        .map(|row| (row[0].as_str(), row[3].as_str()))
        .collect();
    let reserved = "allocated,reserved";
    assert_eq!(
        names,
        [
            ("pod-with-cats-cat-0", reserved),
            ("pod-with-cats-cat-1", reserved)
        ]
    );
    for container in ["first-example", "second-example"] {
        let environment = cluster.ok(&format!("exec pod-with-cats -c {container} -- printenv"));
        assert!(environment.contains("user_color=black\n"), "{environment}");
        assert!(environment.contains("user_size=large\n"), "{environment}");
    }
}

#[test]
fn seed_003_item_08_the_text_as_printed_is_refused() {
    let Some(cluster) = Cluster::up(V1_26) else {
        return;
    };
    let class = "
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClass
name: resource.example.com
driverName: resource-driver.example.com
";
    let refused = cluster.create(class);
    let unknown = "ResourceClass in version \"v1alpha1\" cannot be handled as a ResourceClass: \
                   strict decoding error: unknown field \"name\"";
    assert!(
        !refused.success && refused.err.contains(unknown),
        "{refused:?}"
    );
    // The separator before the pod was mangled in print.
    let separated = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: before
β--
apiVersion: v1
kind: ConfigMap
metadata:
  name: after
";
    let refused = cluster.create(separated);
    assert!(
        !refused.success && refused.err.contains("error converting YAML to JSON"),
        "{refused:?}"
    );
    assert_eq!(
        cluster.ok("get configmap before after --ignore-not-found"),
        ""
    );
}

#[test]
fn seed_003_item_09_an_immediate_claim_is_allocated_without_a_pod() {
    let Some(cluster) = Cluster::up(V1_26) else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    let claim = |name: &str, mode: &str| {
        let text = format!(
            "
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClaim
metadata: {{name: {name}}}
spec: {{resourceClassName: example{mode}}}
"
        );
        assert!(cluster.create(&text).success, "{name}");
    };
    claim("delayed", "");
    claim("now", ", allocationMode: Immediate");
    cluster.ok("wait --for=jsonpath={.status.driverName}=test-driver.cdi.k8s.io resourceclaim/now --timeout=120s");
    let rows = cluster.rows("get resourceclaims");
    assert_eq!(rows[1][1..], ["example", "WaitForFirstConsumer", "pending"]);
    assert_eq!(rows[2][1..], ["example", "Immediate", "allocated"]);
}

#[test]
fn seed_003_item_10_13_scheduler_and_driver_agree_on_a_node_through_pod_scheduling() {
    let Some(cluster) = Cluster::up("--emulated-version 1.26 --dra --driver none") else {
        return;
    };
    created(&cluster);
    cluster.ok("wait --for=create podscheduling/test-inline-claim --timeout=120s");
    let negotiation = cluster.ok(
        "get podscheduling test-inline-claim -o jsonpath={.metadata.ownerReferences[0].name}|{.spec.selectedNode}",
    );
    assert_eq!(negotiation, "test-inline-claim|node-0");
    // Nothing more happens without a driver, whose controller then allocates.
    assert_eq!(cluster.rows("get resourceclaims")[1][3], "pending");
    let node = "get pod test-inline-claim -o jsonpath={.spec.nodeName}";
    assert_eq!(cluster.ok(node), "");
    let _controller = cluster.allot(&["driver", "test", "controller"]);
    cluster.ok("wait --for=condition=PodScheduled pod/test-inline-claim --timeout=120s");
    assert_eq!(cluster.ok(node), "node-0");
    assert_eq!(
        cluster.rows("get resourceclaims")[1][3],
        "allocated,reserved"
    );
}

#[test]
fn seed_003_item_12_a_claim_that_is_not_shareable_is_used_by_one_pod() {
    let Some(cluster) = Cluster::up(V1_26) else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    assert!(
        cluster
            .create(&pod_with_cat("v1alpha1", "first", ""))
            .success
    );
    cluster.ready("first");
    assert!(cluster.create(&pod_for_cat("second", "")).success);
    cluster.ok("wait --for=condition=PodScheduled=False pod/second --timeout=120s");
    let reserved = "get resourceclaim cat -o jsonpath={.status.reservedFor[*].name}";
    assert_eq!(cluster.ok(reserved), "first");
    // The second one is scheduled once the first is deleted.
    cluster.ok("delete pod first --grace-period=1");
    cluster.ready("second");
    assert_eq!(cluster.ok(reserved), "second");
}

#[test]
fn seed_003_item_18_the_test_driver_takes_the_flags_that_are_printed() {
    let Some(cluster) = Cluster::up("--emulated-version 1.26 --dra --driver none") else {
        return;
    };
    cluster.ok("create -f classic/1.26/resourceclass.yaml");
    let flags = [
        "driver",
        "test",
        "--feature-gates",
        "ContextualLogging=true",
        "-v=5",
        "controller",
    ];
    let _controller = cluster.allot(&flags);
    let claim = "
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClaim
metadata: {name: now}
spec: {resourceClassName: example, allocationMode: Immediate}
";
    assert!(cluster.create(claim).success);
    cluster.ok("wait --for=jsonpath={.status.driverName}=test-driver.cdi.k8s.io resourceclaim/now --timeout=120s");
}
