use super::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn container(name: &str, n: u32) -> Value {
    json!({"name": name, "resources": {"requests": {"x.example/gpu": n.to_string()}}})
}

fn sidecar(name: &str, n: u32) -> Value {
    let mut c = container(name, n);
    c["restartPolicy"] = json!("Always");
    c
}

/// Requests as `name*count`, mappings as `container>request`.
fn check(init: Vec<Value>, containers: Vec<Value>, requests: &[&str], mappings: &[&str]) {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": init}});
    let info = PodInfo::new(Arc::new(serde_json::from_value(pod).expect("fixture")));
    let got = super::requests(&info, &[("x.example/gpu".to_owned(), "gpu".to_owned())]);
    let names: Vec<String> = got
        .requests
        .iter()
        .map(|r| {
            format!(
                "{}*{}",
                r.name,
                r.exactly.as_ref().and_then(|e| e.count).unwrap_or(0)
            )
        })
        .collect();
    assert_eq!(names, requests);
    let used: Vec<String> = got
        .mappings
        .iter()
        .map(|m| format!("{}>{}", m.container_name, m.request_name))
        .collect();
    assert_eq!(used, mappings);
}

#[test]
fn one_request_per_container() {
    check(
        vec![],
        vec![container("a", 1), container("b", 0), container("c", 3)],
        &["container-0-request-0*1", "container-2-request-0*3"],
        &["a>container-0-request-0", "c>container-2-request-0"],
    );
}

#[test]
fn init_containers_use_what_comes_later() {
    check(
        vec![container("init", 2)],
        vec![container("main", 1)],
        &["container-0-request-0*1", "container-1-request-0*1"],
        &[
            "main>container-1-request-0",
            "init>container-1-request-0",
            "init>container-0-request-0",
        ],
    );
    check(
        vec![container("init", 1)],
        vec![container("main", 2)],
        &["container-1-request-0*2"],
        &["main>container-1-request-0", "init>container-1-request-0"],
    );
}

#[test]
fn what_a_sidecar_before_has_is_not_free() {
    check(
        vec![sidecar("side", 1), container("init", 1)],
        vec![container("main", 0)],
        &["container-0-request-0*1", "container-1-request-0*1"],
        &["side>container-0-request-0", "init>container-1-request-0"],
    );
}

#[test]
fn the_neediest_init_container_decides() {
    check(
        vec![container("i1", 2), container("i2", 4)],
        vec![container("main", 1)],
        &["container-1-request-0*3", "container-2-request-0*1"],
        &[
            "main>container-2-request-0",
            "i1>container-2-request-0",
            "i1>container-1-request-0",
            "i2>container-2-request-0",
            "i2>container-1-request-0",
        ],
    );
}
