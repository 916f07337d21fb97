//! Keeps one slice as it should be.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};

use super::{DEVICES, NAME, Raw, SHARED};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

async fn call(driver: &Raw, method: Method, path: &str, body: Value) -> Result<Value, String> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body);
    driver
        .client
        .request(request.unwrap())
        .await
        .map_err(|error| error.to_string())
}

pub async fn run(driver: Arc<Raw>) {
    let node = driver.settings.node.clone();
    let mut round = 0;
    loop {
        if let Err(error) = reconcile(&driver, &node, round).await {
            eprintln!("publishing: {error}");
        } else {
            round += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A fault: the slice is deleted, or loses its devices, when the driver ends.
pub async fn leave(driver: &Raw) {
    let node = &driver.settings.node;
    let path = format!("{SLICES}/{node}-{NAME}-0");
    let mut found = call(driver, Method::GET, &path, Value::Null).await.unwrap();
    found["spec"]["devices"] = json!([]);
    match driver.fault("removes-at-exit") {
        true => call(driver, Method::DELETE, &path, Value::Null).await,
        false => call(driver, Method::PUT, &path, found).await,
    }
    .unwrap();
}

fn slice(driver: &Raw, node: &str, uid: &Value, index: usize, of: usize) -> Value {
    let device = |index| {
        let mut device = json!({"name": format!("dev-{index}")});
        if index == DEVICES - 1 {
            device["taints"] = json!([{"key": "raw.example.com/old", "effect": "NoSchedule"}]);
        }
        device
    };
    let policy = json!({"default": "4Gi", "validRange": {"min": "1Gi", "max": "8Gi"}});
    let shared = json!({"name": SHARED, "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": policy}}});
    let owner =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    let owner = if driver.fault("no-owner") {
        json!([])
    } else {
        owner
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-{NAME}-{index}"), "ownerReferences": owner},
        "spec": {"driver": NAME, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": of},
            "devices": (0..DEVICES).map(device).chain([shared]).collect::<Vec<_>>()}})
}

/// Copies the times of stored taints.
fn keep_times(wanted: &mut Value, found: &Value) {
    for device in wanted.as_array_mut().into_iter().flatten() {
        let mut stored = found.as_array().into_iter().flatten();
        let Some(stored) = stored.find(|it| it["name"] == device["name"]) else {
            continue;
        };
        let taints = device.get_mut("taints").and_then(Value::as_array_mut);
        let taints = taints.into_iter().flatten();
        for (taint, stored) in taints.zip(stored["taints"].as_array().into_iter().flatten()) {
            taint["timeAdded"] = stored["timeAdded"].clone();
        }
    }
}

async fn reconcile(driver: &Raw, node: &str, round: usize) -> Result<(), String> {
    let object = call(
        driver,
        Method::GET,
        &format!("/api/v1/nodes/{node}"),
        Value::Null,
    )
    .await?;
    let uid = object["metadata"]["uid"].clone();
    let of = if driver.fault("duplicate-devices") {
        2
    } else {
        1
    };
    let wanted: Vec<Value> = (0..of)
        .map(|index| slice(driver, node, &uid, index, of))
        .collect();
    if driver.fault("invalid-slice") && round == 0 {
        let mut bad = wanted[0].clone();
        bad["spec"]["devices"][0]["name"] = json!("Not A Name");
        let _ = call(driver, Method::POST, SLICES, bad).await;
    }
    let all = call(
        driver,
        Method::GET,
        &format!("{SLICES}?fieldSelector=spec.driver%3D{NAME}"),
        Value::Null,
    )
    .await?;
    let mut present = Vec::new();
    for found in all["items"].as_array().cloned().unwrap_or_default() {
        let name = found["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let on_node = found["spec"]["nodeName"] == node || driver.fault("deletes-foreign");
        let ours = wanted.iter().any(|slice| slice["metadata"]["name"] == name);
        let anew = driver.fault("anew-at-start") && round == 0;
        if on_node && ((!ours && !driver.fault("keeps-stale-pools")) || anew) {
            call(
                driver,
                Method::DELETE,
                &format!("{SLICES}/{name}"),
                Value::Null,
            )
            .await?;
        } else if ours {
            present.push(found);
        }
    }
    for slice in wanted {
        let name = slice["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(mut found) = present
            .iter()
            .find(|found| found["metadata"]["name"] == name)
            .cloned()
        else {
            if !(driver.fault("publishes-once") && round > 0) {
                call(driver, Method::POST, SLICES, slice).await?;
            }
            continue;
        };
        let mut wanted = slice["spec"].clone();
        let anew = driver.fault("taints-anew") && round == 0;
        if !anew {
            keep_times(&mut wanted["devices"], &found["spec"]["devices"]);
        }
        let same = found["spec"]["devices"] == wanted["devices"];
        let again = driver.fault("republishes");
        if (!same && !driver.fault("looks-at-names-only")) || again {
            found["spec"] = wanted;
            if again {
                found["metadata"]["annotations"] = json!({"round": round.to_string()});
            }
            call(driver, Method::PUT, &format!("{SLICES}/{name}"), found).await?;
        }
    }
    Ok(())
}
