//! Whether claims can fail on some node, as slices come and go.

use allot_allocator::{Claims, Cluster, Doubts, Features, SelectorCache};
use serde_json::{Value, json};

use crate::make::{self, DRIVER, device, read};

fn claims(selector: &str, mode: Value) -> Claims {
    let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": [
        {"cel": {"expression": format!("device.driver == '{DRIVER}'")}},
    ]}});
    let selectors = json!([{"cel": {"expression": selector}}]);
    let mut exactly = json!({"deviceClassName": "c", "selectors": selectors});
    exactly["allocationMode"] = mode;
    exactly["count"] = json!(1);
    let claim = make::claim(
        "a",
        vec![json!({"name": "r", "exactly": exactly})],
        json!({}),
    );
    let classes: Vec<_> = vec![read(class)];
    Claims::prepare(
        &Features::default(),
        &SelectorCache::new(),
        &classes,
        [&read(claim)],
    )
}

fn slice(pool: &str, attributes: Value) -> k8s_openapi::api::resource::v1::ResourceSlice {
    let devices = vec![device("d", json!({"attributes": attributes}))];
    read(make::slice(pool, devices, json!({"nodeName": pool})))
}

#[test]
fn a_selector_fails_as_long_as_some_device_lacks_what_it_reads() {
    let mut cluster = Cluster::new(Features::default());
    let mut doubts = Doubts::default();
    let reads = claims(
        &format!("device.attributes['{DRIVER}'].k == 1"),
        json!("ExactCount"),
    );
    let asks = claims(
        &format!("'k' in device.attributes['{DRIVER}']"),
        json!("ExactCount"),
    );
    let mut check = |cluster: &Cluster, expected: bool| {
        assert_eq!(doubts.may_fail(cluster, &reads), expected);
        // Again, from memory.
        assert_eq!(doubts.may_fail(cluster, &reads), expected);
        assert!(!doubts.may_fail(cluster, &asks));
    };
    check(&cluster, false);
    cluster.apply(&slice("n1", json!({"k": {"int": 1}})));
    check(&cluster, false);
    cluster.apply(&slice("n2", json!({})));
    check(&cluster, true);
    let before = cluster.clone();
    cluster.apply(&slice("n2", json!({"k": {"int": 2}})));
    check(&cluster, false);
    check(&before, true);
    cluster.apply(&slice("n3", json!({})));
    check(&cluster, true);
    cluster.remove("slice-n3");
    check(&cluster, false);
}

#[test]
fn devices_that_the_class_rules_out_do_not_matter() {
    let mut cluster = Cluster::new(Features::default());
    let mut other = slice("n1", json!({}));
    other.spec.driver = "nic.example.com".to_owned();
    cluster.apply(&other);
    let reads = claims(
        &format!("device.attributes['{DRIVER}'].k == 1"),
        json!("ExactCount"),
    );
    assert!(!Doubts::default().may_fail(&cluster, &reads));
}

#[test]
fn what_all_devices_are_depends_on_the_node() {
    let cluster = Cluster::new(Features::default());
    assert!(Doubts::default().may_fail(&cluster, &claims("true", json!("All"))));
}
