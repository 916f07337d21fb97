use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::{Plan, Target};
use super::*;

fn device(name: &str) -> Device {
    Device {
        name: name.into(),
        ..Device::default()
    }
}

fn pool(slices: &[&[&str]]) -> Pool {
    let slice = |names: &&[&str]| Slice {
        devices: names.iter().map(|name| device(name)).collect(),
        ..Slice::default()
    };
    Pool {
        slices: slices.iter().map(slice).collect(),
        ..Pool::default()
    }
}

/// A pool on an API server that stores what it is sent.
#[derive(Default)]
struct Server {
    slices: Vec<ResourceSlice>,
    next: usize,
}

impl Server {
    /// Plans and applies; returns `-deleted ~updated +created` and the generations afterwards.
    fn publish(&mut self, wanted: Option<&Pool>) -> (String, Vec<i64>) {
        let scope = Scope::Node {
            name: "n1".into(),
            uid: Some("u1".into()),
        };
        let target = Target {
            driver: "gpu.example.com",
            scope: &scope,
            pool: "n1",
        };
        let plan = Plan::new(
            &target,
            wanted,
            self.slices.iter().collect(),
            &Stored::new(),
        );
        let text = format!(
            "-{} ~{} +{}",
            plan.delete.len(),
            plan.update.len(),
            plan.create.len()
        );
        self.slices.retain(|slice| {
            !plan
                .delete
                .iter()
                .any(|gone| gone.metadata.name == slice.metadata.name)
        });
        for (_, updated) in plan.update {
            let found = self
                .slices
                .iter_mut()
                .find(|slice| slice.metadata.name == updated.metadata.name);
            *found.expect("updates are about existing slices") = updated;
        }
        for (_, mut created) in plan.create {
            self.next += 1;
            let prefix = created.metadata.generate_name.take().unwrap();
            created.metadata.name = Some(format!("{prefix}{:05}", self.next));
            created.metadata.uid = Some(format!("uid-{}", self.next));
            self.slices.push(created);
        }
        (
            text,
            self.slices
                .iter()
                .map(|slice| slice.spec.pool.generation)
                .collect(),
        )
    }

    fn check(&mut self, slices: &[&[&str]], writes: &str, generations: &[i64]) {
        let (got, found) = self.publish(Some(&pool(slices)));
        assert_eq!((got.as_str(), found.as_slice()), (writes, generations));
        assert!(
            self.slices
                .iter()
                .all(|slice| slice.spec.pool.resource_slice_count == slices.len() as i64)
        );
        let again = self.publish(Some(&pool(slices)));
        assert_eq!(
            again.0, "-0 ~0 +0",
            "publishing the same again changes nothing"
        );
    }
}

#[test]
fn generations_follow_the_upstream_rules() {
    let mut server = Server::default();
    server.check(&[&["a", "b"]], "-0 ~0 +1", &[1]);
    let name = server.slices[0].metadata.name.clone().unwrap();
    assert!(name.starts_with("n1-gpu.example.com-"), "{name}");
    // One changed slice is one write: no new generation.
    server.check(&[&["a"]], "-0 ~1 +0", &[1]);
    // A new slice changes the count of all.
    server.check(&[&["a"], &["c"]], "-0 ~1 +1", &[2, 2]);
    // Two changed slices.
    server.check(&[&["x"], &["y"]], "-0 ~2 +0", &[3, 3]);
    // Fewer slices: one goes, one changes its count.
    server.check(&[&["y"]], "-1 ~1 +0", &[3]);
    assert_eq!(server.publish(None).0, "-1 ~0 +0");
}

#[test]
fn slices_with_unchanged_devices_keep_their_object() {
    let mut server = Server::default();
    server.check(&[&["a"], &["b"]], "-0 ~0 +2", &[1, 1]);
    let name = |server: &Server, device: &str| {
        let found = server
            .slices
            .iter()
            .find(|s| s.spec.devices.as_ref().unwrap()[0].name == device)
            .unwrap();
        found.metadata.name.clone()
    };
    let before = name(&server, "b");
    server.check(&[&["c"], &["b"]], "-0 ~1 +0", &[1, 1]);
    assert_eq!(name(&server, "b"), before);
}

#[test]
fn slices_of_older_generations_are_deleted_and_larger_ones_win() {
    let mut server = Server::default();
    server.check(&[&["a"]], "-0 ~0 +1", &[1]);
    let mut newer = server.slices[0].clone();
    newer.metadata = ObjectMeta {
        name: Some("other".into()),
        uid: Some("other".into()),
        ..ObjectMeta::default()
    };
    newer.spec.pool.generation = 7;
    server.slices.push(newer);
    let (writes, generations) = server.publish(Some(&pool(&[&["a"]])));
    assert_eq!(
        (writes.as_str(), generations.as_slice()),
        ("-1 ~0 +0", &[7][..])
    );

    let mut wanted = pool(&[&["a"]]);
    wanted.generation = 20;
    let (writes, generations) = server.publish(Some(&wanted));
    assert_eq!(
        (writes.as_str(), generations.as_slice()),
        ("-0 ~1 +0", &[20][..])
    );
}

#[test]
fn equal_quantities_in_another_form_and_times_of_taints_are_no_change() {
    let wanted = |memory: &str| {
        let device: Device = serde_json::from_value(serde_json::json!({
            "name": "a",
            "capacity": {"memory": {"value": memory}},
            "taints": [{"key": "k", "effect": "NoSchedule"}],
        }))
        .unwrap();
        Pool::new([device])
    };
    let mut server = Server::default();
    assert_eq!(server.publish(Some(&wanted("81920Mi"))).0, "-0 ~0 +1");
    let taint = &mut server.slices[0].spec.devices.as_mut().unwrap()[0]
        .taints
        .as_mut()
        .unwrap()[0];
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
    );
    taint.time_added = Some(time.clone());
    assert_eq!(server.publish(Some(&wanted("80Gi"))).0, "-0 ~0 +0");
    assert_eq!(server.publish(Some(&wanted("40Gi"))).0, "-0 ~1 +0");
    let taint = &server.slices[0].spec.devices.as_ref().unwrap()[0]
        .taints
        .as_ref()
        .unwrap()[0];
    assert_eq!(
        taint.time_added,
        Some(time),
        "an update keeps the time of a taint"
    );
}

#[test]
fn dropped_fields_are_named() {
    let device: Device = serde_json::from_value(serde_json::json!({
        "name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}], "allowMultipleAllocations": true,
    }))
    .unwrap();
    let spec = |device: Device| ResourceSliceSpec {
        devices: Some(vec![device]),
        ..ResourceSliceSpec::default()
    };
    let stripped = Device {
        taints: None,
        allow_multiple_allocations: None,
        ..device.clone()
    };
    let dropped = plan::dropped_features(&spec(device.clone()), &spec(stripped));
    assert_eq!(
        dropped.as_deref(),
        Some("DRADeviceTaints DRAConsumableCapacity")
    );
    assert_eq!(
        plan::dropped_features(&spec(device.clone()), &spec(device)),
        None
    );
}

#[test]
fn contradictions_are_found_before_anything_is_written() {
    let check = |pool: serde_json::Value, expected: &str| {
        let slices: Vec<Slice> = pool
            .as_array()
            .unwrap()
            .iter()
            .map(|slice| Slice {
                devices: serde_json::from_value(slice["devices"].clone()).unwrap_or_default(),
                shared_counters: serde_json::from_value(slice["sharedCounters"].clone())
                    .unwrap_or_default(),
                ..Slice::default()
            })
            .collect();
        let resources = Resources::pool(
            "n1",
            Pool {
                slices,
                ..Pool::default()
            },
        );
        assert_eq!(validate::resources(&resources).unwrap_err(), expected);
    };
    let set = serde_json::json!({"name": "s", "counters": {"c": {"value": "1"}}});
    let uses = |set: &str, counter: &str| serde_json::json!({"name": "a", "consumesCounters": [{"counterSet": set, "counters": {counter: {"value": "1"}}}]});
    check(
        serde_json::json!([{"devices": [{"name": "a"}]}, {"devices": [{"name": "a"}]}]),
        "pool \"n1\": duplicate device \"a\"",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"sharedCounters": [set]}]),
        "pool \"n1\": duplicate counter set \"s\"",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"devices": [uses("t", "c")]}]),
        "pool \"n1\": device \"a\": unknown counter set \"t\"",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"devices": [uses("s", "d")]}]),
        "pool \"n1\": device \"a\": unknown counter \"d\" in counter set \"s\"",
    );
}
