use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, Snapshot};
use crate::storage::{Attachment, Capacity, limits};

mod counts;

/// A cluster in few words: the lists hold objects of one kind each.
#[derive(Default)]
struct Fixture {
    nodes: Vec<Value>,
    claims: Vec<Value>,
    volumes: Vec<Value>,
    classes: Vec<Value>,
    csi_nodes: Vec<Value>,
    attachments: Vec<Value>,
    capacities: Vec<Value>,
    /// Pods with the nodes on which they are.
    pods: Vec<(Value, &'static str)>,
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("an object")
}

fn name(value: &Value) -> String {
    value["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned()
}

/// A pod `ns/NAME` with these volumes.
fn pod(name: &str, volumes: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"containers": [], "volumes": volumes},
    })
}

/// A pod that uses claims.
fn user(name: &str, claims: &[&str]) -> Value {
    let volume = |c: &&str| json!({"name": c, "persistentVolumeClaim": {"claimName": c}});
    pod(name, claims.iter().map(volume).collect())
}

fn info(pod: &Value) -> PodInfo {
    PodInfo::new(Arc::new(read(pod)))
}

/// A claim for a gibibyte.
fn claim(name: &str, class: &str, more: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    merge(&mut claim, more);
    claim
}

/// A claim that has a volume.
fn bound(name: &str, volume: &str) -> Value {
    let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
    claim(
        name,
        "",
        json!({"metadata": {"annotations": done}, "spec": {"volumeName": volume}}),
    )
}

/// A free volume of the class `wait`; with nodes, it can be reached from those only.
fn volume(name: &str, size: &str, nodes: &[&str], more: Value) -> Value {
    let on = json!({"key": "host", "operator": "In", "values": nodes});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}});
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": "wait",
            "nodeAffinity": (!nodes.is_empty()).then_some(affinity),
        },
        "status": {"phase": "Available"},
    });
    merge(&mut volume, more);
    volume
}

fn class(name: &str, provisioner: &str, more: Value) -> Value {
    let mut class = json!({
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    merge(&mut class, more);
    class
}

fn merge(into: &mut Value, more: Value) {
    match more {
        Value::Object(map) => map
            .into_iter()
            .for_each(|(k, v)| merge(&mut into[k.as_str()], v)),
        other => *into = other,
    }
}

impl Fixture {
    fn snapshot(&self) -> Snapshot {
        let mut cache = Cache::default();
        for node in ["a", "b"] {
            let zone = format!("z-{node}");
            let labels = json!({"host": node, "topology.kubernetes.io/zone": zone});
            let object = json!({"metadata": {"name": node, "labels": labels}});
            cache.set_node(Arc::new(read::<Node>(&object)));
        }
        for node in &self.nodes {
            cache.set_node(Arc::new(read::<Node>(node)));
        }
        for (pod, node) in &self.pods {
            cache.assume(Arc::new(info(pod)), &Arc::from(*node));
        }
        let storage = cache.storage_mut();
        let key = |o: &Value| Key::new("ns", &name(o));
        storage.claims = self
            .claims
            .iter()
            .map(|c| (key(c), VolumeClaim::new(&read::<PersistentVolumeClaim>(c))))
            .collect();
        storage.volumes = self
            .volumes
            .iter()
            .map(|v| (name(v), Volume::new(&read::<PersistentVolume>(v))))
            .collect();
        storage.classes = self
            .classes
            .iter()
            .map(|c| (name(c), Class::new(&read::<StorageClass>(c))))
            .collect();
        storage.limits = self
            .csi_nodes
            .iter()
            .map(|n| (name(n), limits(&read::<CSINode>(n))))
            .collect();
        storage.attachments = self
            .attachments
            .iter()
            .filter_map(|a| Some((name(a), Attachment::new(&read::<VolumeAttachment>(a))?)))
            .collect();
        storage.capacities = self
            .capacities
            .iter()
            .map(|c| (key(c), Capacity::new(&read::<CSIStorageCapacity>(c))))
            .collect();
        storage.capacity_drivers.insert("measured".to_owned());
        cache.snapshot().clone()
    }

    /// What VolumeBinding and VolumeZone say about a pod: `node: volumes it gets and claims to provision for`, or the
    /// reason against it, or the reason against the pod.
    fn check(&self, pod: &Value, expected: &str) {
        let snapshot = self.snapshot();
        let pod = info(pod);
        let found = match PodVolumeClaims::prepare(&pod, &snapshot.storage) {
            Err(rejection) => rejection.message(),
            Ok(None) => "no volumes".to_owned(),
            Ok(Some(volumes)) => {
                let judge = |node: &Arc<NodeInfo>| {
                    let outcome = volumes
                        .find_pod_volumes(node)
                        .and_then(|choice| zones(&volumes, node).map(|()| choice));
                    let text = match outcome {
                        Ok(choice) => {
                            let bound = choice
                                .volumes
                                .iter()
                                .map(|(v, c)| format!("{}={v}", c.name));
                            let made = choice.provisions.iter().map(|c| format!("{}=new", c.name));
                            bound.chain(made).collect::<Vec<_>>().join(" ")
                        }
                        Err(rejection) => rejection.message(),
                    };
                    format!("{}: {text}", node.name)
                };
                let lines: Vec<String> = snapshot.nodes.iter().map(judge).collect();
                lines.join("; ").replace(": ;", ": yes;")
            }
        };
        let found = found
            .strip_suffix(": ")
            .map_or(found.clone(), |f| format!("{f}: yes"));
        assert_eq!(found, expected);
    }
}

const NONE: &str = "node(s) didn't find available persistent volumes to bind";
const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";

#[test]
fn claims_have_to_be_there() {
    let with = |claims: &[Value]| Fixture {
        claims: claims.to_vec(),
        volumes: vec![volume("pv", "1Gi", &[], json!({}))],
        ..Fixture::default()
    };
    let pod_x = user("p", &["x"]);
    let not_found = r#"persistentvolumeclaim "x" not found"#;
    with(&[]).check(&pod_x, not_found);
    with(&[claim("y", "", json!({}))]).check(&pod_x, not_found);
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    with(&[claim("x", "", going)]).check(&pod_x, r#"persistentvolumeclaim "x" is being deleted"#);
    let lost = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}});
    with(&[claim("x", "", lost)]).check(
        &pod_x,
        r#"persistentvolumeclaim "x" bound to non-existent persistentvolume "pv""#,
    );
    with(&[bound("x", "pv")]).check(&pod_x, "a: yes; b: yes");
    with(&[]).check(
        &pod("p", json!([{"name": "v", "emptyDir": {}}])),
        "no volumes",
    );
}

#[test]
fn claims_of_ephemeral_volumes_belong_to_the_pod() {
    let pod = pod(
        "p",
        json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]),
    );
    Fixture::default().check(
        &pod,
        r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v""#,
    );
    let of = |uid: &str| {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
        let mut claim = bound("p-v", "pv");
        merge(
            &mut claim,
            json!({"metadata": {"ownerReferences": [owner]}}),
        );
        Fixture {
            claims: vec![claim],
            volumes: vec![volume("pv", "1Gi", &[], json!({}))],
            ..Fixture::default()
        }
    };
    of("uid-p").check(&pod, "a: yes; b: yes");
    of("uid-q").check(
        &pod,
        "PVC ns/p-v was not created for pod ns/p (pod is not owner)",
    );
}

#[test]
fn claims_that_do_not_wait_for_a_pod_have_to_be_bound() {
    let immediate = "pod has unbound immediate PersistentVolumeClaims";
    let with = |claim: Value| Fixture {
        claims: vec![claim],
        volumes: vec![volume("pv", "1Gi", &[], json!({}))],
        classes: vec![
            class("wait", "kubernetes.io/no-provisioner", json!({})),
            class("now", "x", json!({"volumeBindingMode": "Immediate"})),
        ],
        ..Fixture::default()
    };
    let pod = user("p", &["x"]);
    with(claim("x", "", json!({}))).check(&pod, immediate);
    with(claim("x", "now", json!({}))).check(&pod, immediate);
    with(claim("x", "unknown", json!({}))).check(&pod, immediate);
    // A volume was named for it by hand.
    with(claim("x", "wait", json!({"spec": {"volumeName": "pv"}}))).check(&pod, immediate);
    with(claim("x", "wait", json!({}))).check(&pod, "a: x=pv; b: x=pv");
}

#[test]
fn bound_volumes_have_to_be_within_reach() {
    let fixture = Fixture {
        claims: vec![bound("x", "on-a"), bound("y", "gone")],
        volumes: vec![volume("on-a", "1Gi", &["a"], json!({}))],
        ..Fixture::default()
    };
    fixture.check(&user("p", &["x"]), &format!("a: yes; b: {AFFINITY}"));
    let gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    fixture.check(&user("p", &["y"]), &format!("a: {gone}; b: {gone}"));
}

#[test]
fn the_smallest_volume_that_suits_is_chosen() {
    let fixture = |volumes: Vec<Value>| Fixture {
        claims: vec![
            claim("x", "wait", json!({})),
            claim(
                "big",
                "wait",
                json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}),
            ),
        ],
        volumes,
        classes: vec![class("wait", "kubernetes.io/no-provisioner", json!({}))],
        ..Fixture::default()
    };
    let plain = json!({});
    let three = vec![
        volume("l", "10Gi", &["a", "b"], plain.clone()),
        volume("m", "5Gi", &["a"], plain.clone()),
        volume("s", "100Mi", &["a"], plain.clone()),
    ];
    fixture(three.clone()).check(&user("p", &["x"]), "a: x=m; b: x=l");
    // The smaller claim is served first, and each gets a separate volume.
    fixture(three).check(
        &user("p", &["big", "x"]),
        &format!("a: x=m big=l; b: {NONE}"),
    );
    let unsuited = [
        json!({"spec": {"volumeMode": "Block"}}),
        json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        json!({"spec": {"storageClassName": "other"}}),
        json!({"spec": {"claimRef": {"namespace": "ns", "name": "y"}}}),
        json!({"status": {"phase": "Released"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ];
    for more in unsuited {
        fixture(vec![volume("v", "1Gi", &[], more)])
            .check(&user("p", &["x"]), &format!("a: {NONE}; b: {NONE}"));
    }
    // A volume that was pre-bound to this claim comes before smaller ones.
    let own = json!({"spec": {"claimRef": {"namespace": "ns", "name": "x"}}, "status": {"phase": "Pending"}});
    let two = vec![
        volume("other", "1Gi", &[], plain),
        volume("own", "9Gi", &["b"], own),
    ];
    fixture(two).check(&user("p", &["x"]), &format!("a: {NONE}; b: x=own"));
}

#[test]
fn volumes_are_provisioned_where_the_class_and_the_driver_can() {
    let zone = json!({"key": "host", "values": ["b", "c"]});
    let capacity = |name: &str, amounts: Value, host: &str| {
        let mut capacity = json!({
            "metadata": {"name": name, "namespace": "ns"},
            "storageClassName": "measured",
            "nodeTopology": {"matchLabels": {"host": host}},
        });
        merge(&mut capacity, amounts);
        capacity
    };
    let mut fixture = Fixture {
        classes: vec![
            class("any", "x", json!({})),
            class(
                "some",
                "x",
                json!({"allowedTopologies": [{"matchLabelExpressions": [zone]}]}),
            ),
            class("measured", "measured", json!({})),
            class("wait", "kubernetes.io/no-provisioner", json!({})),
        ],
        capacities: vec![
            capacity(
                "a",
                json!({"capacity": "9Gi", "maximumVolumeSize": "1Mi"}),
                "a",
            ),
            capacity("b", json!({"capacity": "9Gi"}), "b"),
        ],
        ..Fixture::default()
    };
    let mut check = |class: &str, more: Value, expected: &str| {
        fixture.claims = vec![claim("x", class, more)];
        fixture.check(&user("p", &["x"]), expected);
    };
    check("any", json!({}), "a: x=new; b: x=new");
    check("some", json!({}), &format!("a: {NONE}; b: x=new"));
    check("wait", json!({}), &format!("a: {NONE}; b: {NONE}"));
    let space = "node(s) did not have enough free storage";
    check("measured", json!({}), &format!("a: {space}; b: x=new"));
    // A volume is being made for a node.
    let selected = json!({"metadata": {"annotations": {storage::SELECTED_NODE: "a"}}});
    check("any", selected, &format!("a: x=new; b: {NONE}"));
}

#[test]
fn volumes_with_zones_are_used_there() {
    let labelled = |key: &str, value: &str| Fixture {
        claims: vec![bound("x", "pv")],
        volumes: vec![volume(
            "pv",
            "1Gi",
            &[],
            json!({"metadata": {"labels": {key: value}}}),
        )],
        nodes: vec![json!({"metadata": {"name": "nowhere"}})],
        ..Fixture::default()
    };
    let zone = "node(s) had no available volume zone";
    let pod = user("p", &["x"]);
    let on_a = format!("a: yes; b: {zone}; nowhere: yes");
    labelled("topology.kubernetes.io/zone", "z-a").check(&pod, &on_a);
    labelled("failure-domain.beta.kubernetes.io/zone", "z-a").check(&pod, &on_a);
    labelled("topology.kubernetes.io/zone", "z-b__z-a").check(&pod, "a: yes; b: yes; nowhere: yes");
    labelled("topology.kubernetes.io/region", "r")
        .check(&pod, &format!("a: {zone}; b: {zone}; nowhere: yes"));
}

#[test]
fn exclusive_claims_have_one_user() {
    let exclusive = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    let mut fixture = Fixture {
        claims: vec![claim("x", "", exclusive), claim("y", "", json!({}))],
        ..Fixture::default()
    };
    fixture.pods = vec![(user("q", &["y"]), "b")];
    let new =
        |fixture: &Fixture, pod: &Value| ExclusiveClaims::new(&info(pod), &fixture.snapshot());
    let of = |fixture: &Fixture| {
        new(fixture, &user("p", &["x", "y"]))
            .expect("claims")
            .expect("one")
    };
    assert_eq!(of(&fixture).filter(), Ok(()));
    let other = user("r", &["x"]);
    fixture.pods.push((other.clone(), "a"));
    let mut found = of(&fixture);
    let rejection = found.filter().expect_err("in use");
    assert_eq!(rejection.code, Code::Unschedulable);
    assert_eq!(
        rejection.message(),
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
    );
    // Preemption would help.
    found.update(&info(&other), -1);
    assert_eq!(found.filter(), Ok(()));
    assert!(new(&fixture, &user("p", &["y"])).expect("claims").is_none());
    let missing = new(&fixture, &user("p", &["z"])).expect_err("no claim");
    assert_eq!(missing.message(), r#"persistentvolumeclaim "z" not found"#);
}
