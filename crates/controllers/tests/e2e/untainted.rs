//! Slices that the server does not accept with taints.

use std::time::Duration;

use allot_controllers::Config;
use allot_controllers::controller::clock::Clock;
use allot_controllers::drain::{Drain, Progress, drain};
use allot_controllers::liveness::{DRIVERS, TAINT};
use allot_model::features::Features;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::eviction::{SLICES, slice, user};
use super::harness::Cluster;

/// More devices than a slice may have with taints.
fn many() -> Value {
    (0..65)
        .map(|n| json!({"name": format!("gpu-{n}")}))
        .collect()
}

/// A slice whose devices have a node each, so that a rule for the pool would be about too many.
fn per_device() -> Value {
    let device = |n: i32| json!({"name": format!("gpu-{n}"), "nodeName": "n"});
    let mut slice = slice((0..65).map(device).collect());
    let spec = slice["spec"].as_object_mut().unwrap();
    spec.remove("nodeName");
    spec.insert("perDeviceNodeSelection".to_owned(), json!(true));
    slice
}

#[tokio::test]
async fn a_slice_that_can_not_have_taints_gets_a_rule() {
    let mut cluster = Cluster::bare_with("resource.k8s.io/v1beta2=true", Features::default()).await;
    let mut config = Config::embedded();
    config.slice_liveness_delay = Duration::from_millis(100);
    cluster.start_controllers(config);
    cluster.node("n").await;
    let drivers = |list: &str| json!({"metadata": {"annotations": {DRIVERS: list}}});
    cluster.patch("/api/v1/nodes/n", drivers("")).await;
    cluster.create(SLICES, slice(many())).await;
    let rule = "/apis/resource.k8s.io/v1beta2/devicetaintrules/allot-driver-gone-s";
    cluster
        .until(rule, "made", |r| r["spec"]["taint"]["key"] == TAINT)
        .await;
    let back = drivers("d.example.com");
    cluster.patch("/api/v1/nodes/n", back).await;
    cluster.until_gone(rule).await;
    // One that becomes small enough gets taints instead.
    cluster.patch("/api/v1/nodes/n", drivers("")).await;
    cluster
        .until(rule, "made", |r| r["spec"]["taint"]["key"] == TAINT)
        .await;
    let small = json!({"spec": {"devices": [{"name": "gpu-0"}]}});
    let path = format!("{SLICES}/s");
    cluster.patch(&path, small).await;
    cluster
        .until(&path, "tainted", |s| {
            s["spec"]["devices"][0]["taints"][0]["key"] == TAINT
        })
        .await;
    cluster.until_gone(rule).await;
}

#[tokio::test]
async fn a_slice_that_can_not_have_taints_is_left_as_it_is() {
    let mut cluster = Cluster::bare().await;
    let mut config = Config::embedded();
    config.slice_liveness_delay = Duration::from_millis(100);
    cluster.start_controllers(config);
    cluster.node("n").await;
    let drivers = |list: &str| json!({"metadata": {"annotations": {DRIVERS: list}}});
    cluster.patch("/api/v1/nodes/n", drivers("")).await;
    let large = cluster.create(SLICES, per_device()).await;
    let told = |list: &Value| {
        let events = list["items"].as_array().into_iter().flatten();
        let mine = events.filter(|e| e["reason"] == "DriverGone");
        mine.filter(|e| {
            let message = e["message"].as_str().unwrap_or_default();
            message.starts_with("devices cannot be tainted")
        })
        .count()
    };
    let events = "/api/v1/namespaces/default/events";
    let list = cluster.until(events, "told", |list| told(list) > 0).await;
    assert_eq!(told(&list), 1);
    let slice = format!("{SLICES}/s");
    let version = |slice: &Value| slice["metadata"]["resourceVersion"].clone();
    let now = cluster.get(&slice).await.unwrap();
    assert_eq!(version(&now), version(&large));
    // Once it is small enough it is tainted.
    let small = json!({"spec": {"devices": [{"name": "gpu-0", "nodeName": "n"}]}});
    cluster.patch(&slice, small).await;
    cluster
        .until(&slice, "tainted", |s| {
            s["spec"]["devices"][0]["taints"][0]["key"] == TAINT
        })
        .await;
}

#[tokio::test]
async fn a_driver_is_drained_whose_slice_can_not_have_taints() {
    let cluster = Cluster::start().await;
    cluster.node("n").await;
    cluster.create(SLICES, slice(many())).await;
    user(&cluster, Value::Null).await;
    let what = Drain {
        driver: "d.example.com".to_owned(),
        node: None,
        evict: false,
        clock: Clock::System,
        hold: None,
    };
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let client = cluster.client.clone();
    let work = tokio::spawn(async move {
        drain(client, what, CancellationToken::new(), |p| {
            sender.send(p).unwrap()
        })
        .await
    });
    let none = Progress::Tainted {
        slices: 0,
        devices: 0,
    };
    assert_eq!(progress.recv().await, Some(none));
    let Some(Progress::Untainted { slices, .. }) = progress.recv().await else {
        panic!("it says which slices have no taints");
    };
    assert_eq!(slices, ["s"]);
    let users = Progress::InUse(vec!["default/c".to_owned()]);
    assert_eq!(progress.recv().await, Some(users));
    cluster.finish_pod("default", "p", "Succeeded").await;
    assert_eq!(progress.recv().await, Some(Progress::Removed(1)));
    work.await.unwrap().unwrap();
}
