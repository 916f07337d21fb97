//! Pods with volumes, from the first attempt to the binding.

use super::*;

/// Volume `pv` on `n1`, a class `wait` with `WaitForFirstConsumer`, and a class `make` that provisions volumes.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new("");
    for (name, provisioner) in [
        ("wait", "kubernetes.io/no-provisioner"),
        ("make", "csi.example.com"),
    ] {
        let class = fixture.object(json!({
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
        fixture.handle(Input::StorageClass(Observed::Applied(class)));
    }
    fixture.volume(json!({}));
    fixture
}

impl Fixture {
    fn volume(&mut self, claim: Value) {
        let on = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
        let volume = self.object(json!({
            "metadata": {"name": "pv"},
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "wait",
                "claimRef": (!claim.as_object().expect("a map").is_empty()).then_some(claim),
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}},
            },
            "status": {"phase": "Available"},
        }));
        self.handle(Input::Volume(Observed::Applied(volume)));
    }

    fn volume_claim(&mut self, name: &str, class: &str, annotations: Value, volume: Option<&str>) {
        let claim = self.object(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "annotations": annotations,
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": volume,
            },
        }));
        self.handle(Input::VolumeClaim(Observed::Applied(claim)));
    }

    fn pod_with(&mut self, name: &str, claim: &str) {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
        self.any_pod(name, &[], json!({"volumes": [volume]}));
    }

    /// The writes of a pod's volumes are answered.
    fn written(&mut self, pod: &str, volumes: &[&str], claims: &[&str]) {
        self.version += 1;
        let version = self.version.to_string();
        self.handle(Input::VolumesWritten {
            pod: format!("uid-{pod}").into(),
            volumes: volumes
                .iter()
                .map(|v| ((*v).to_owned(), version.clone()))
                .collect(),
            claims: claims
                .iter()
                .map(|c| (Key::new("ns", c), version.clone()))
                .collect(),
        });
        self.handle(Input::ClaimsReady(format!("uid-{pod}").into()));
    }

    /// What came of the binding of a pod: its node, a text, or nothing yet.
    fn ending(&mut self) -> Option<String> {
        self.core
            .take_actions()
            .into_iter()
            .find_map(|action| match action {
                Action::BindPod { node, .. } => Some(node.to_string()),
                Action::Reject(rejected) => Some(rejected.message),
                _ => None,
            })
    }
}

const DONE: &str = "pv.kubernetes.io/bind-completed";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

#[test]
fn a_pod_waits_for_its_claim_for_a_volume() {
    let mut fixture = fixture();
    fixture.pod_with("p", "x");
    let outcome = fixture.run();
    // DynamicResources has not come to prepare anything, which ends what would make room.
    let text = "0/2 nodes are available: persistentvolumeclaim \"x\" not found. not found";
    assert_eq!(outcome.message(), text);
    fixture.volume_claim("x", "", json!({}), None);
    let outcome = fixture.run();
    let text =
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    assert_eq!(outcome.message(), text);
    fixture.volume_claim("x", "", json!({DONE: "yes"}), Some("pv"));
    let outcome = fixture.run();
    assert_eq!(outcome.node(), Some("n1"));
    assert!(outcome.bound().expect("bound").volumes.is_empty());
}

#[test]
fn a_volume_is_bound_with_the_pod_and_chosen_once() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "wait", json!({}), None);
    fixture.volume_claim("y", "wait", json!({}), None);
    fixture.pod_with("p", "x");
    let outcome = fixture.run();
    let job = outcome.bound().expect("bound");
    assert_eq!((&*job.node, job.wait), ("n1", true));
    let task = &job.volumes.volumes[0];
    assert_eq!((&*task.volume, &task.claim.0), ("pv", &Key::new("ns", "x")));
    assert!(task.by_controller && task.version.is_some());
    // No other pod gets the volume, although the binding is not written yet.
    fixture.pod_with("q", "y");
    let none = "2 node(s) didn't find available persistent volumes to bind";
    assert!(fixture.run().message().contains(none));
    fixture.written("p", &["pv"], &[]);
    assert_eq!(fixture.ending(), None);
    // The watch shows the write, then the volume controller has bound the claim.
    fixture.volume(json!({"namespace": "ns", "name": "x", "uid": "uid-x"}));
    assert_eq!(fixture.ending(), None);
    fixture.volume_claim("x", "wait", json!({DONE: "yes"}), Some("pv"));
    assert_eq!(fixture.ending().as_deref(), Some("n1"));
}

#[test]
fn a_volume_is_free_again_when_the_binding_fails() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "wait", json!({}), None);
    fixture.volume_claim("y", "wait", json!({}), None);
    fixture.pod_with("p", "x");
    assert!(fixture.run().bound().is_some());
    let message = "the object has been modified".to_owned();
    fixture.handle(Input::Bound {
        pod: "uid-p".into(),
        outcome: Err(BindError::new(message)),
    });
    fixture.pod_with("q", "y");
    // The pod that is tried first gets the volume.
    assert_eq!(fixture.run().node(), Some("n1"));
}

#[test]
fn a_volume_is_provisioned_for_the_node() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "make", json!({}), None);
    fixture.pod_with("p", "x");
    let outcome = fixture.run();
    let job = outcome.bound().expect("bound");
    let node = job.node.to_string();
    assert_eq!(job.volumes.claims[0].0, Key::new("ns", "x"));
    // A second pod with the claim goes where the first one goes.
    fixture.pod_with("q", "x");
    assert_eq!(fixture.run().node(), Some(&*node));
    fixture.written("p", &[], &["x"]);
    assert_eq!(fixture.ending(), None);
    fixture.volume_claim("x", "make", json!({SELECTED: node}), None);
    assert_eq!(fixture.ending(), None);
    fixture.volume_claim(
        "x",
        "make",
        json!({SELECTED: node, DONE: "yes"}),
        Some("pv-new"),
    );
    // The volume itself is not seen yet.
    assert_eq!(fixture.ending(), None);
    let volume = fixture.object(json!({"metadata": {"name": "pv-new"}, "spec": {}}));
    fixture.handle(Input::Volume(Observed::Applied(volume)));
    assert_eq!(fixture.ending(), Some(node));
}

#[test]
fn provisioning_that_fails_sends_the_pod_back() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "make", json!({}), None);
    fixture.pod_with("p", "x");
    assert!(fixture.run().bound().is_some());
    fixture.written("p", &[], &["x"]);
    // The provisioner takes the node back.
    fixture.volume_claim("x", "make", json!({}), None);
    let text = "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"x\"";
    assert_eq!(fixture.ending().as_deref(), Some(text));
}

#[test]
fn volumes_that_are_not_bound_in_time_send_the_pod_back() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "wait", json!({}), None);
    fixture.pod_with("p", "x");
    assert!(fixture.run().bound().is_some());
    fixture.written("p", &["pv"], &[]);
    let mut time = fixture.time();
    assert!(fixture.core.next_wakeup(time).is_some());
    time.wall += jiff::SignedDuration::from_secs(599);
    fixture.core.tick(time);
    assert_eq!(fixture.ending(), None);
    time.wall += jiff::SignedDuration::from_secs(1);
    fixture.core.tick(time);
    let text =
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(fixture.ending().as_deref(), Some(text));
}

#[test]
fn a_deleted_pod_waits_for_no_volume() {
    let mut fixture = fixture();
    fixture.volume_claim("x", "wait", json!({}), None);
    fixture.pod_with("p", "x");
    assert!(fixture.run().bound().is_some());
    fixture.written("p", &["pv"], &[]);
    let pod: Box<Pod> = fixture.object(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": {"containers": []},
    }));
    let info = Arc::new(PodInfo::observed(*pod));
    fixture.handle(Input::Pod(Observed::Deleted(Box::new(info))));
    assert!(fixture.core.bindings.is_empty());
    fixture.volume_claim("y", "wait", json!({}), None);
    fixture.pod_with("q", "y");
    assert_eq!(fixture.run().node(), Some("n1"));
}

#[test]
fn a_node_has_room_when_a_volume_is_off_it() {
    let mut fixture = fixture();
    for node in ["n0", "n1"] {
        let driver = json!({"name": "d", "nodeID": node, "allocatable": {"count": 1}});
        let limit = json!({"metadata": {"name": node}, "spec": {"drivers": [driver]}});
        let limit = fixture.object(limit);
        fixture.handle(Input::CsiNode(Observed::Applied(limit)));
    }
    for (volume, claim) in [("old-1", "gone"), ("old-2", "gone"), ("new", "x")] {
        let volume = fixture.object(json!({
            "metadata": {"name": volume},
            "spec": {
                "csi": {"driver": "d", "volumeHandle": volume},
                "claimRef": {"namespace": "ns", "name": claim},
            },
        }));
        fixture.handle(Input::Volume(Observed::Applied(volume)));
    }
    fixture.volume_claim("x", "make", json!({DONE: "yes"}), Some("new"));
    let attachment = |node: &str, volume: &str| {
        let source = json!({"persistentVolumeName": volume});
        let spec = json!({"attacher": "d", "nodeName": node, "source": source});
        json!({"metadata": {"name": format!("on-{node}")}, "spec": spec})
    };
    for (node, volume) in [("n0", "old-1"), ("n1", "old-2")] {
        let attached = fixture.object(attachment(node, volume));
        fixture.handle(Input::VolumeAttachment(Observed::Applied(attached)));
    }
    fixture.pod_with("p", "x");
    let full = "2 node(s) exceed max volume count";
    let outcome = fixture.run();
    assert!(outcome.message().contains(full), "{}", outcome.message());
    let detached = fixture.object(attachment("n1", "old-2"));
    fixture.handle(Input::VolumeAttachment(Observed::Deleted(detached)));
    assert_eq!(fixture.run().node(), Some("n1"));
}
