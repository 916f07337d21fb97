use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, volume: &Value) -> Arc<PodInfo> {
    let mut spec = json!({"containers": [], "nodeName": "n"});
    spec["volumes"] = json!([volume]);
    let pod = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
    // As pods on nodes are kept.
    Arc::new(PodInfo::observed(
        serde_json::from_value(pod).expect("a pod"),
    ))
}

fn check(own: Value, other: Value, fits: bool) {
    for (one, two) in [(&own, &other), (&other, &own)] {
        let mut node = NodeInfo::new("n".into());
        node.add_pod(pod("q", two));
        let outcome = filter(&pod("p", one), &node);
        assert_eq!(outcome.is_ok(), fits, "{one} beside {two}");
    }
}

#[test]
fn disks_are_shared_by_readers_at_most() {
    let gce = |name: &str, read: bool| json!({"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": read}});
    check(gce("a", false), gce("a", false), false);
    check(gce("a", true), gce("a", false), false);
    check(gce("a", true), gce("a", true), true);
    check(gce("a", false), gce("b", false), true);
    let iscsi = |iqn: &str, lun: i32, read: bool| json!({"name": "v", "iscsi": {"iqn": iqn, "lun": lun, "targetPortal": "t", "readOnly": read}});
    check(iscsi("a", 0, false), iscsi("a", 1, false), false);
    check(iscsi("a", 0, true), iscsi("a", 1, true), true);
    let aws = |id: &str, read: bool| json!({"name": "v", "awsElasticBlockStore": {"volumeID": id, "readOnly": read}});
    check(aws("a", true), aws("a", true), false);
    check(aws("a", false), aws("b", false), true);
    check(aws("a", false), gce("a", false), true);
}

#[test]
fn images_are_the_same_where_a_monitor_is() {
    let rbd = |monitors: &[&str], image: &str, read: bool| json!({"name": "v", "rbd": {"monitors": monitors, "image": image, "readOnly": read}});
    check(rbd(&["a", "b"], "i", false), rbd(&["b"], "i", false), false);
    check(rbd(&["a"], "i", false), rbd(&["b"], "i", false), true);
    check(rbd(&["a"], "i", false), rbd(&["a"], "j", false), true);
    check(rbd(&["a"], "i", true), rbd(&["a"], "i", true), true);
}
