//! What containers use, as the node tells it: measured by the kernel.

use allot_node::RuntimeKind;
use allot_testing::wait::until;
use http::Method;
use serde_json::{Value, json};

use super::harness::shell;
use super::setup::{Credentials, Setup};

const SCRAPER: Credentials<'_> = Credentials::Certificate("scraper", &[]);

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_measured_by_their_cgroups() {
    let setup = Setup::with(RuntimeKind::Process, false).await;
    let node = setup.get("/api/v1/nodes/n1").await.expect("the node");
    let conditions = node["status"]["conditions"].as_array().cloned();
    let limits = json!({"type": "ContainerLimits", "status": "True"});
    let mut conditions = conditions.unwrap_or_default().into_iter();
    if !conditions.any(|it| it["type"] == limits["type"] && it["status"] == limits["status"]) {
        eprintln!("skipped: cgroups cannot be written here");
        return;
    }
    setup.allow("scraper", &["get"], "metrics").await;
    setup.allow("scraper", &["get"], "stats").await;
    let mut container = shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 300");
    container["resources"] = json!({"limits": {"memory": "64Mi"}});
    setup.create_pod(container).await;

    let labels = ",namespace=\"default\",pod=\"p\"}";
    let sample = |text: &str, family: &str| {
        let start = format!("{family}{{container=\"c\",");
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(&start) && line.contains(labels))?;
        let (_, values) = line.split_once("} ")?;
        let value: f64 = values.split(' ').next()?.parse().ok()?;
        Some(value)
    };
    let families = [
        "container_cpu_usage_seconds_total",
        "container_memory_usage_bytes",
        "container_memory_working_set_bytes",
        "container_processes",
    ];
    until("the container is measured", || async {
        let (code, text) = setup
            .request(&SCRAPER, Method::GET, "/metrics/cadvisor")
            .await;
        let values = families.map(|family| sample(&text, family));
        match code == 200 && values.iter().all(|value| value.is_some_and(|it| it > 0.0)) {
            true => Ok(()),
            false => Err(format!("{code} {values:?} {text}")),
        }
    })
    .await;
    let (_, text) = setup
        .request(&SCRAPER, Method::GET, "/metrics/cadvisor")
        .await;
    let limit = sample(&text, "container_spec_memory_limit_bytes");
    assert_eq!(limit, Some(f64::from(64 << 20)));
    let (_, text) = setup
        .request(&SCRAPER, Method::GET, "/metrics/resource")
        .await;
    assert!(sample(&text, "container_cpu_usage_seconds_total") > Some(0.0));
    let (_, text) = setup.request(&SCRAPER, Method::GET, "/stats/summary").await;
    // Its chunk, without the lengths around it.
    let object = text.lines().find(|line| line.starts_with('{'));
    let summary: Value = serde_json::from_str(object.unwrap_or_default()).expect("an object");
    let of_pod = &summary["pods"][0];
    assert_eq!(of_pod["containers"][0]["name"], "c");
    assert!(of_pod["memory"]["workingSetBytes"].as_u64() > Some(0));
    setup.delete_pod().await;
}
