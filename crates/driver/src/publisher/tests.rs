use k8s_openapi::api::resource::v1::DeviceTaint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::{Plan, Target};
use super::*;

mod labels;
mod upstream;

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

/// Devices of a node.
fn on_node(name: &str, uid: &str) -> Scope {
    let node = Owner {
        name: name.into(),
        uid: Some(uid.into()),
    };
    Scope {
        node: Some(node),
        cluster_pool: None,
        labels: BTreeMap::new(),
    }
}

/// A pool on an API server that stores what it is sent.
#[derive(Default)]
struct Server {
    slices: Vec<ResourceSlice>,
    next: usize,
    /// How many writes there are until the driver is killed.
    limit: Option<usize>,
}

impl Server {
    /// Plans and applies; returns `-deleted ~updated +created` and the generations afterwards.
    fn publish(&mut self, wanted: Option<&Pool>) -> (String, Vec<i64>) {
        let scope = on_node("n1", "u1");
        let target = Target {
            driver: "gpu.example.com",
            scope: &scope,
            pool: "n1",
        };
        let mut plan = Plan::new(
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
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut take = |count: usize| {
            let taken = count.min(left);
            left -= taken;
            taken
        };
        plan.delete.truncate(take(plan.delete.len()));
        plan.update.truncate(take(plan.update.len()));
        plan.create.truncate(take(plan.create.len()));
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
    // The name of an only slice says nothing about its place.
    server.check(&[&["a"], &["c"]], "-1 ~0 +2", &[2, 2]);
    // A new slice changes the count of all.
    server.check(&[&["a"], &["c"], &["d"]], "-0 ~2 +1", &[3, 3, 3]);
    server.check(&[&["a"], &["c"]], "-1 ~2 +0", &[4, 4]);
    // Two changed slices.
    server.check(&[&["x"], &["y"]], "-0 ~2 +0", &[5, 5]);
    // Fewer slices: one is deleted, one changes its count.
    server.check(&[&["y"]], "-1 ~1 +0", &[5]);
    assert_eq!(server.publish(None).0, "-1 ~0 +0");
}

#[test]
fn names_say_where_slices_belong() {
    let mut server = Server::default();
    server.check(&[&["a"], &["b"]], "-0 ~0 +2", &[1, 1]);
    server.check(&[&["c"], &["b"]], "-0 ~1 +0", &[1, 1]);
    // Whatever the order in which they are listed.
    server.slices.reverse();
    server.check(&[&["c"], &["d"]], "-0 ~1 +0", &[1, 1]);
    let places = |server: &Server| {
        let mut slices: Vec<_> = server.slices.iter().collect();
        slices.sort_by_key(|slice| slice.metadata.name.clone());
        let name = |slice: &&ResourceSlice| slice.spec.devices.as_ref().unwrap()[0].name.clone();
        slices.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(places(&server), ["c", "d"]);
    // A slice whose name says nothing, one too many for its place, and one for a place that there is not.
    for name in ["n1-gpu-x", "00001-gpu.example.com-n1-zzz", "00002-x", "0-x"] {
        let mut other = server.slices[0].clone();
        other.metadata.name = Some(name.into());
        server.slices.push(other);
        server.check(&[&["c"], &["d"]], "-1 ~0 +0", &[1, 1]);
        assert_eq!(places(&server), ["c", "d"], "{name}");
    }
}

#[test]
fn more_slices_have_longer_places() {
    let check = |slices, last, expected: &str| {
        assert_eq!(
            format!("{last:0width$x}", width = plan::digits(slices)),
            expected
        );
    };
    check(1, 0, "00000");
    check(0x100000, 0xfffff, "fffff");
    check(0x100001, 0x100000, "100000");
    for (name, digits, expected) in [
        ("00010-d-n", 5, Some(16)),
        ("00010-d-n", 6, None),
        ("+0010-d-n", 5, None),
        ("0000g-d-n", 5, None),
        ("-00010", 5, None),
        ("00010", 5, None),
    ] {
        assert_eq!(plan::place_of(name, digits), expected, "{name}");
    }
}

#[test]
fn slices_of_older_generations_are_deleted_and_larger_ones_win() {
    let mut server = Server::default();
    server.check(&[&["a"]], "-0 ~0 +1", &[1]);
    let mut newer = server.slices[0].clone();
    newer.metadata = ObjectMeta {
        name: Some("00000-other".into()),
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
    // A time that the driver gives counts, by the second.
    for (millis, writes) in [(400, "-0 ~0 +0"), (2600, "-0 ~1 +0"), (3400, "-0 ~0 +0")] {
        let mut wanted = wanted("40Gi");
        let time = k8s_openapi::jiff::Timestamp::from_millisecond(millis).unwrap();
        wanted.slices[0].devices[0].taints.as_mut().unwrap()[0].time_added =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
        assert_eq!(server.publish(Some(&wanted)).0, writes, "{millis}");
    }
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
    let other = Device {
        all_nodes: Some(true),
        ..device.clone()
    };
    let dropped = plan::dropped_features(&spec(other), &spec(device.clone()));
    assert_eq!(dropped.as_deref(), Some("unknown"));
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
        let error = validate::resources(&resources).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let set = serde_json::json!({"name": "s", "counters": {"c": {"value": "1"}}});
    let uses = |set: &str, counter: &str| serde_json::json!({"name": "a", "consumesCounters": [{"counterSet": set, "counters": {counter: {"value": "1"}}}]});
    check(
        serde_json::json!([{"devices": [{"name": "a"}]}, {"devices": [{"name": "a"}]}]),
        "found duplicate device \"a\" in pool \"n1\"",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"sharedCounters": [set]}]),
        "found duplicate counter set \"s\" in pool \"n1\"",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"devices": [uses("t", "c")]}]),
        "counter set \"t\" referenced by device \"a\" not found",
    );
    check(
        serde_json::json!([{"sharedCounters": [set]}, {"devices": [uses("s", "d")]}]),
        "counter \"d\" referenced by device \"a\" not found in counter set \"s\"",
    );
}

/// They were undone half a second after the driver had started, and 30 s after they were set.
#[test]
fn regression_taints_of_a_drain_stay() {
    let mut server = Server::default();
    let names: Vec<String> = (0..65).map(|n| format!("d{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    server.check(&[&["d0", "d1"]], "-0 ~0 +1", &[1]);
    let taint = |key: &str| DeviceTaint {
        key: key.into(),
        effect: "NoSchedule".into(),
        ..DeviceTaint::default()
    };
    let tainted = |server: &Server| {
        let devices = server.slices[0].spec.devices.iter().flatten();
        let tainted = devices.filter(|device| device.taints.is_some());
        tainted.map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    let drain = |server: &mut Server| {
        for device in server.slices[0].spec.devices.iter_mut().flatten() {
            device.taints = Some(vec![taint("allot.dev/draining")]);
        }
    };
    drain(&mut server);
    server.check(&[&["d0", "d1"]], "-0 ~0 +0", &[1]);
    server.check(&[&["d1", "d2"]], "-0 ~1 +0", &[1]);
    assert_eq!(tainted(&server), ["d1"]);
    // Other taints are the driver's.
    server.slices[0].spec.devices.as_mut().unwrap()[1].taints = Some(vec![taint("other")]);
    server.check(&[&["d1", "d2"]], "-0 ~1 +0", &[1]);
    assert_eq!(tainted(&server), ["d1"]);
    // The server does not take so many devices with taints.
    server.check(&[&names], "-0 ~1 +0", &[1]);
    assert_eq!(tainted(&server), [""; 0]);
    // The taints are removed again.
    server.check(&[&["d0"]], "-0 ~1 +0", &[1]);
    drain(&mut server);
    server.slices[0].spec.devices.as_mut().unwrap()[0].taints = None;
    server.check(&[&["d0"]], "-0 ~0 +0", &[1]);
    assert_eq!(tainted(&server), [""; 0]);
}

#[test]
fn devices_are_spread_over_as_many_slices_as_they_need() {
    let check = |count: usize, tainted: bool, expected: &[usize]| {
        let mut devices: Vec<Device> = (0..count).map(|n| device(&format!("d{n}"))).collect();
        if let (Some(last), true) = (devices.last_mut(), tainted) {
            last.taints = Some(vec![DeviceTaint::default()]);
        }
        let pool = Pool::new(devices.clone());
        let sizes: Vec<usize> = pool.slices.iter().map(|s| s.devices.len()).collect();
        assert_eq!(sizes, expected, "{count} {tainted}");
        let all: Vec<Device> = pool.slices.into_iter().flat_map(|s| s.devices).collect();
        assert_eq!(all, devices);
    };
    check(0, false, &[0]);
    check(128, false, &[128]);
    check(129, false, &[128, 1]);
    check(128, true, &[64, 64]);
    check(65, true, &[64, 1]);
}

#[test]
fn a_pool_for_the_cluster_goes_with_the_node_of_its_driver() {
    let mut scope = on_node("n1", "u1");
    scope.cluster_pool = Some("rack".into());
    let created = |scope: &Scope| {
        let target = Target {
            driver: "gpu.example.com",
            scope,
            pool: "rack",
        };
        let wanted = pool(&[&["a"]]);
        let mut plan = Plan::new(&target, Some(&wanted), Vec::new(), &Stored::new());
        plan.create.remove(0).1
    };
    let slice = created(&scope);
    assert_eq!(slice.spec.node_name, None);
    let owners = slice.metadata.owner_references.as_deref();
    assert_eq!(owners.map(|owners| owners[0].name.as_str()), Some("n1"));
    scope.node = None;
    assert_eq!(created(&scope).metadata.owner_references, None);
}

/// Killed after any number of writes, the next process finishes: all slices of one generation, with the wanted devices.
#[test]
fn wherever_publishing_is_interrupted_the_next_one_finishes() {
    let wanted: [&[&[&str]]; 5] = [
        &[&["a"], &["b"], &["c"]],
        &[&["a"], &["x"]],
        &[&["y"]],
        &[&["y"], &["z"], &["a", "b"]],
        &[],
    ];
    for (before, after) in wanted
        .iter()
        .flat_map(|b| wanted.iter().map(move |a| (b, a)))
    {
        for writes in 0..8 {
            let mut server = Server::default();
            server.publish(Some(&pool(before)));
            server.limit = Some(writes);
            server.publish(Some(&pool(after)));
            server.limit = None;
            server.publish(Some(&pool(after)));
            let at = format!("{before:?} to {after:?}, killed after {writes} writes");
            let (again, generations) = server.publish(Some(&pool(after)));
            assert_eq!(again, "-0 ~0 +0", "{at}");
            assert!(generations.iter().all(|g| *g == generations[0]), "{at}");
            server
                .slices
                .sort_by_key(|slice| slice.metadata.name.clone());
            let devices: Vec<Vec<Device>> = server
                .slices
                .iter()
                .map(|slice| slice.spec.devices.clone().unwrap_or_default())
                .collect();
            let expected: Vec<Vec<Device>> = pool(after)
                .slices
                .into_iter()
                .map(|slice| slice.devices)
                .collect();
            assert_eq!(devices, expected, "{at}");
        }
    }
}
