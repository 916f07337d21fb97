use super::*;
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("fixture")
}

fn container(requests: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests}})
}

fn check(spec: Value, milli_cpu: i64, memory: i64) {
    let got = pod_requests(&pod(spec.clone()), false);
    assert_eq!((got.milli_cpu, got.memory), (milli_cpu, memory), "{spec}");
}

#[test]
fn containers_add_up() {
    let spec = json!({"containers": [container(json!({"cpu": "250m", "memory": "1Ki"})), container(json!({"cpu": "1"}))]});
    check(spec, 1250, 1024);
}

#[test]
fn init_containers_count_when_larger() {
    check(
        json!({"containers": [container(json!({"cpu": "1"}))], "initContainers": [container(json!({"cpu": "3", "memory": "5"}))]}),
        3000,
        5,
    );
}

#[test]
fn sidecars_add_to_containers_and_later_init_containers() {
    let mut sidecar = container(json!({"cpu": "1"}));
    sidecar["restartPolicy"] = json!("Always");
    check(
        json!({"containers": [container(json!({"cpu": "1"}))], "initContainers": [sidecar.clone(), container(json!({"cpu": "2"}))]}),
        3000,
        0,
    );
    check(
        json!({"containers": [container(json!({"cpu": "1"}))], "initContainers": [container(json!({"cpu": "2"})), sidecar]}),
        2000,
        0,
    );
}

#[test]
fn pod_level_and_overhead() {
    check(
        json!({"containers": [container(json!({"cpu": "1"}))], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "10m", "memory": "7"}}),
        4010,
        7,
    );
}

#[test]
fn scoring_defaults_apply_per_container() {
    let p = pod(
        json!({"containers": [container(json!({})), container(json!({"cpu": "1", "memory": "0"}))]}),
    );
    assert_eq!(pod_requests_nonzero(&p, false), (1100, DEFAULT_MEMORY));
}

#[test]
fn scalars_stay_sorted() {
    let mut r = Resources::default();
    for (name, n) in [("b", 2), ("a", 1), ("c", 3)] {
        r.set_scalar(name, n);
    }
    assert_eq!(
        (r.scalar("a"), r.scalar("b"), r.scalar("c"), r.scalar("d")),
        (1, 2, 3, 0)
    );
    let mut other = Resources::default();
    other.set_scalar("bb", 5);
    r.add(&other);
    assert_eq!(r.scalar("bb"), 5);
    r.sub(&other);
    assert_eq!(r.scalar("bb"), 0);
}
