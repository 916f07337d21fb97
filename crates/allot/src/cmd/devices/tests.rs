use allot_allocator::Features;
use serde_json::{Value, json};

use super::inventory::cluster;
use super::largest::Fragmentation;
use super::totals::sums;
use super::*;
use crate::cmd::output;
use crate::cmd::snapshot::Hidden;

/// A slice of driver `d` and pool `p` on `n`.
fn slice(name: &str, pool: Value, devices: Value, counters: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {
            "driver": "d", "nodeName": "n", "pool": pool, "devices": devices, "sharedCounters": counters,
        },
    })
}

fn pool(generation: i64, slices: i64) -> Value {
    json!({"name": "p", "generation": generation, "resourceSliceCount": slices})
}

/// A claim that has these devices, each as `name` or as an object with more.
fn claim(name: &str, pods: &[&str], devices: Value) -> Value {
    let devices = devices.as_array().cloned().unwrap_or_default();
    let result = |device: &Value| {
        let mut result = json!({"request": "r", "driver": "d", "pool": "p", "device": device});
        if let Some(more) = device.as_object() {
            more.iter().for_each(|(k, v)| result[k] = v.clone());
        }
        result
    };
    let results: Vec<Value> = devices.iter().map(result).collect();
    let pods: Vec<Value> = pods
        .iter()
        .map(|p| json!({"resource": "pods", "name": p, "uid": p}))
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns"}, "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": pods},
    })
}

fn check(objects: &[Value], expected: &str) {
    let devices = inventory(objects, Features::default(), true).expect("an inventory");
    let line = |d: &Device| {
        let line = format!("{} {} {}", d.device, d.state, d.why());
        line.trim_end().to_owned() + "\n"
    };
    assert_eq!(devices.iter().map(line).collect::<String>(), expected);
}

#[test]
fn devices_are_listed_with_the_claims_and_pods_that_hold_them() {
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let devices = json!([
        {"name": "a"}, {"name": "b"}, {"name": "c", "taints": [taint]}, {"name": "watched"}, {"name": "e"},
    ]);
    check(
        &[
            slice("s", pool(1, 1), devices, Value::Null),
            claim("x", &["pod", "pod-2"], json!(["a"])),
            claim("y", &[], json!(["e", "lost"])),
            claim(
                "admin",
                &["tool"],
                json!([{"device": "watched", "adminAccess": true}]),
            ),
        ],
        "a in-use ns/x (pod, pod-2)\n\
         b free\n\
         c tainted taint k=v:NoSchedule\n\
         watched free admin ns/admin (tool)\n\
         e in-use ns/y (no pod)\n\
         lost gone ns/y (no pod)\n",
    );
}

#[test]
fn only_the_newest_generation_counts_and_only_when_it_is_complete() {
    let one = |name: &str| json!([{"name": name}]);
    let old = slice("old", pool(1, 1), one("old"), Value::Null);
    let new = slice("new", pool(2, 2), one("new"), Value::Null);
    check(
        &[old.clone(), new.clone()],
        "new incomplete 1 of 2 slices of generation 2 not published\n",
    );
    let rest = slice("rest", pool(2, 2), one("rest"), Value::Null);
    check(&[old, new, rest], "new free\nrest free\n");
}

#[test]
fn partitions_are_blocked_by_what_others_have() {
    let part = |name: &str, memory: &str| {
        let counters = json!({"memory": {"value": memory}});
        json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": counters}]})
    };
    let counters = json!([{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]);
    let parts = json!([
        part("whole", "40Gi"),
        part("half", "20Gi"),
        part("other", "20Gi")
    ]);
    check(
        &[
            slice("counters", pool(1, 2), Value::Null, counters),
            slice("parts", pool(1, 2), parts, Value::Null),
            claim("x", &["pod"], json!(["half"])),
        ],
        "whole blocked counter gpu/memory: 20Gi left, it takes 40Gi\n\
         half in-use ns/x (pod)\n\
         other free\n",
    );
}

#[test]
fn an_invalid_pool_has_no_free_devices() {
    let one = |slice_name: &str, device: &str| {
        slice(
            slice_name,
            pool(1, 1),
            json!([{"name": device}]),
            Value::Null,
        )
    };
    check(
        &[one("s", "a"), one("t", "b")],
        "a invalid it has 2 slices and says that there are 1\n\
         b invalid it has 2 slices and says that there are 1\n",
    );
    let twice = slice(
        "s",
        pool(1, 1),
        json!([{"name": "a"}, {"name": "a"}]),
        Value::Null,
    );
    check(
        &[twice],
        "a invalid duplicate device name a\na invalid duplicate device name a\n",
    );
}

#[test]
fn the_capacity_of_all_shares_of_a_device_is_summed() {
    let device = json!([{
        "name": "nic", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10G"}},
    }]);
    let share = |amount: &str| json!([{"device": "nic", "shareID": "s", "consumedCapacity": {"bandwidth": amount}}]);
    check(
        &[
            slice("s", pool(1, 1), device.clone(), Value::Null),
            claim("x", &["p"], share("1G")),
            claim("y", &["q"], share("2G")),
        ],
        "nic shared ns/x (p); ns/y (q); bandwidth 3G of 10G\n",
    );
    check(
        &[
            slice("s", pool(1, 1), device, Value::Null),
            claim("x", &["p"], share("10G")),
        ],
        "nic in-use ns/x (p); bandwidth 10G of 10G\n",
    );
}

#[test]
fn rules_taint_what_they_select() {
    let rule = |selector: Value, effect: &str| {
        let taint = json!({"key": "k", "effect": effect});
        json!({
            "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
            "spec": {"deviceSelector": selector, "taint": taint},
        })
    };
    let devices = slice(
        "s",
        pool(1, 1),
        json!([{"name": "a"}, {"name": "b"}]),
        Value::Null,
    );
    let a = json!({"driver": "d", "device": "a"});
    check(
        &[devices.clone(), rule(a, "NoExecute")],
        "a tainted taint k:NoExecute\nb free\n",
    );
    check(
        &[devices.clone(), rule(Value::Null, "NoExecute")],
        "a free\nb free\n",
    );
    check(&[devices, rule(json!({}), "None")], "a free\nb free\n");
}

#[test]
fn what_can_not_be_read_is_named() {
    let broken =
        json!({"kind": "ResourceClaim", "metadata": {"name": "x", "namespace": "ns"}, "spec": 7});
    let error = inventory(&[broken], Features::default(), true).expect_err("no claim");
    assert_eq!(error.to_string(), "ResourceClaim ns/x cannot be read");
}

#[test]
fn regression_amounts_are_in_the_notation_of_the_device() {
    // Rounding by a policy writes amounts in binary notation, whatever the device has.
    let device = json!([{
        "name": "nic", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "40G"}},
    }]);
    let share = json!([
        {"device": "nic", "shareID": "s", "consumedCapacity": {"bandwidth": "19531250Ki"}},
    ]);
    check(
        &[
            slice("s", pool(1, 1), device, Value::Null),
            claim("x", &["p"], share),
        ],
        "nic shared ns/x (p); bandwidth 20G of 40G\n",
    );
    let takes =
        |amount: &str| json!([{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}]);
    let parts = json!([
        {"name": "a", "consumesCounters": takes("20G")}, {"name": "b", "consumesCounters": takes("25G")},
    ]);
    let counters = json!([{"name": "gpu", "counters": {"memory": {"value": "40G"}}}]);
    check(
        &[
            slice("counters", pool(1, 2), Value::Null, counters),
            slice("parts", pool(1, 2), parts, Value::Null),
            claim("x", &["pod"], json!(["a"])),
        ],
        "a in-use ns/x (pod)\nb blocked counter gpu/memory: 20G left, it takes 25G\n",
    );
}

#[test]
fn regression_counters_are_also_used_up_by_shares() {
    let takes = json!([{"counterSet": "gpu", "counters": {"slots": {"value": "1"}}}]);
    let parts = json!([
        {"name": "a", "allowMultipleAllocations": true, "consumesCounters": takes},
        {"name": "b", "consumesCounters": takes},
    ]);
    let counters = json!([{"name": "gpu", "counters": {"slots": {"value": "1"}}}]);
    check(
        &[
            slice("counters", pool(1, 2), Value::Null, counters),
            slice("parts", pool(1, 2), parts, Value::Null),
            claim("x", &["pod"], json!([{"device": "a", "shareID": "1"}])),
            claim("y", &["pod-2"], json!([{"device": "a", "shareID": "2"}])),
        ],
        "a shared ns/x (pod); ns/y (pod-2)\nb blocked counter gpu/slots: 0 left, it takes 1\n",
    );
}

#[test]
fn what_may_be_free_is_unknown_where_claims_are_not_shown() {
    let taint = json!({"key": "k", "effect": "NoSchedule"});
    let devices = json!([{"name": "a"}, {"name": "b", "taints": [taint]}, {"name": "c"}]);
    let objects = [
        slice("s", pool(1, 1), devices, Value::Null),
        claim("x", &["pod"], json!(["c"])),
    ];
    let devices = inventory(&objects, Features::default(), false).expect("an inventory");
    let states: Vec<String> = devices.iter().map(|d| d.state.to_string()).collect();
    assert_eq!(states, ["unknown", "tainted", "in-use"]);
}

/// Drivers may call the pools of all nodes alike; each has its own generation.
#[test]
fn regression_a_pool_of_one_node_does_not_hide_that_of_another() {
    let on = |node: &str, generation: i64, slices: i64| {
        let devices = json!([{"name": format!("of-{node}")}]);
        let mut slice = slice(node, pool(generation, slices), devices, Value::Null);
        slice["spec"]["nodeName"] = json!(node);
        slice
    };
    check(
        &[on("m", 1, 1), on("n", 7, 1), on("o", 2, 2)],
        "of-m free\nof-n free\nof-o incomplete 1 of 2 slices of generation 2 not published\n",
    );
}

fn class(name: &str, expression: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]}})
}

fn summed(objects: &[Value], by: By) -> String {
    summed_where(objects, by, true)
}

/// The sums, where all claims are shown or not.
fn summed_where(objects: &[Value], by: By, all_claims: bool) -> String {
    let devices = inventory(objects, Features::default(), all_claims).expect("an inventory");
    let cluster = cluster(objects, Features::default()).expect("a cluster");
    let fragmentation = Fragmentation::new(cluster, &devices, objects).expect("nodes");
    let sums = sums(&devices, by, |class| fragmentation.largest(class));
    let mut out = Vec::new();
    output::table(&mut out, &totals::table(&sums, by)).expect("written");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn devices_are_summed_up_by_class_with_the_largest_request_that_fits() {
    let on = |node: &str, devices: Value| {
        let own = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let mut slice = slice(node, own, devices, Value::Null);
        slice["spec"]["nodeName"] = json!(node);
        slice
    };
    let kind =
        |name: &str, kind: &str| json!({"name": name, "attributes": {"kind": {"string": kind}}});
    let objects = [
        class("gpu", "device.attributes['d'].kind == 'gpu'"),
        class("nic", "device.attributes['d'].kind == 'nic'"),
        class("none", "false"),
        on(
            "m",
            json!([kind("a", "gpu"), kind("b", "gpu"), kind("c", "nic")]),
        ),
        on("n", json!([kind("a", "gpu")])),
        claim("x", &["pod"], json!([{"device": "c", "pool": "m"}])),
    ];
    assert_eq!(
        summed(&objects, By::Class),
        "CLASS   DEVICES   FREE   IN-USE   LARGEST REQUEST\n\
         gpu     3         3      0        2 on m\n\
         nic     1         0      1        none\n"
    );
    // The claims of other namespaces may have every device.
    assert_eq!(
        summed_where(&objects, By::Class, false),
        "CLASS   DEVICES   FREE   IN-USE   UNKNOWN   LARGEST REQUEST\n\
         gpu     3         0      0        3         unknown\n\
         nic     1         0      1        0         none\n"
    );
    assert_eq!(
        summed(&objects, By::Node),
        "NODE   DEVICES   FREE   IN-USE\n\
         m      3         2      1\n\
         n      1         1      0\n"
    );
}

#[test]
fn what_is_left_for_a_request_is_what_counters_and_shares_leave() {
    let takes =
        |amount: &str| json!([{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}]);
    let part = |name: &str| json!({"name": name, "consumesCounters": takes("20Gi")});
    let shared = json!({"name": "nic", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "10G"}}});
    let counters = json!([{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]);
    let parts = json!([part("a"), part("b"), part("c"), shared]);
    let share = json!([{"device": "nic", "shareID": "s", "consumedCapacity": {"bandwidth": "4G"}}]);
    let objects = [
        class("nic", "device.allowMultipleAllocations"),
        class("part", "!device.allowMultipleAllocations"),
        slice("counters", pool(1, 2), Value::Null, counters),
        slice("parts", pool(1, 2), parts, Value::Null),
        claim("x", &["p"], share),
    ];
    let text = summed(&objects, By::Class);
    assert!(
        // A request that names no amount takes all of it.
        text.contains("none; bandwidth 6G of one device\n"),
        "{text}"
    );
    assert!(text.contains("2 on n\n"), "{text}");
}

#[test]
fn who_uses_how_many_is_summed_up_by_namespace() {
    let devices = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "free"}]);
    let mut other = claim("z", &["r"], json!(["c"]));
    other["metadata"]["namespace"] = json!("other");
    other["spec"]["devices"]["requests"] =
        json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
    let objects = [
        slice("s", pool(1, 1), devices, Value::Null),
        claim("x", &["p", "q"], json!(["a"])),
        claim("y", &["p"], json!(["b"])),
        other,
    ];
    assert_eq!(
        summed(&objects, By::Namespace),
        "NAMESPACE   CLASS   DEVICES   CLAIMS   PODS\n\
         ns                  2         2        2\n\
         other       gpu     1         1        1\n"
    );
}

#[test]
fn a_name_that_no_device_has_is_refused_with_what_was_meant() {
    let objects = [slice("s", pool(1, 1), json!([{"name": "a"}]), Value::Null)];
    let devices = inventory(&objects, Features::default(), true).expect("an inventory");
    let error = check_known("driver", &Some("e".to_owned()), &devices, |d| {
        vec![&d.driver]
    });
    let expected = "no device of driver e; did you mean d?; there are: d";
    assert_eq!(error.expect_err("unknown").to_string(), expected);
}

#[test]
fn regression_what_may_not_be_seen_is_not_said_to_be_absent() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let mut snapshot = Snapshot::default();
    snapshot.about.hidden = vec![
        Hidden::new("deviceclasses.resource.k8s.io", "DeviceClass", None),
        Hidden::new(
            "resourceclaims.resource.k8s.io",
            "ResourceClaim",
            Some("own"),
        ),
    ];
    let refused = |line: &[&str]| {
        let words = std::iter::once(&"devices").chain(line);
        let Line { args } = <Line as clap::Parser>::parse_from(words);
        let error = check_rights(&args, &snapshot).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    for line in [&["--by", "class"][..], &["--class", "gpu"]] {
        assert!(refused(line).contains("no right to list"), "{line:?}");
    }
    let other = refused(&["-n", "other"]);
    assert!(other.contains("resourceclaims.resource.k8s.io"), "{other}");
    for line in [&["-n", "own"][..], &["--by", "namespace"], &[]] {
        assert_eq!(refused(line), "", "{line:?}");
    }
}
