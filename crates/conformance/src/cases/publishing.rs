//! What the driver publishes, and how calmly.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip, source};
use crate::fixture::{Fixture, SLICES, number, text};
use crate::options::AtExit;

pub(crate) const CASES: &[Case] = &[
    case!(complete, "publish-complete", process: false, devices: 0,
        rule: "Every pool has the number of slices that `resourceSliceCount` states, all of one generation, and device names are unique in a pool.",
        source: "KEP-4381, ResourcePool: generation and resourceSliceCount",
        hint: "publish a whole pool at once; raise the generation of all of its slices together"),
    case!(valid, "publish-valid", process: true, devices: 0,
        rule: "The API server's validation accepts every slice.",
        source: "resource.k8s.io/v1 ResourceSlice validation",
        hint: "limits: 128 devices in a slice, 64 with taints or counters; counters in a slice without devices; names are DNS labels"),
    case!(scope, "publish-node-scope", process: false, devices: 0,
        rule: "Slices of a node name exactly this node and are owned by its Node object, so that they are garbage-collected with it.",
        source: "KEP-4381, ResourceSlice.spec.nodeName and garbage collection",
        hint: "set an owner reference with the UID of the Node"),
    case!(idle, "publish-idle", process: true, devices: 0,
        rule: "Nothing is written while nothing changes.",
        source: source::PUBLISH,
        hint: "compare with what the API server stored, defaults included, before writing"),
    case!(deleted, "publish-deleted", process: false, devices: 0,
        rule: "A slice that another client deletes, as a kubelet does at startup, is created again.",
        source: "kubelet, deletion of ResourceSlices at start; KEP-4381",
        hint: "watch the slices, or list them periodically"),
    case!(changed, "publish-changed", process: false, devices: 1,
        rule: "A slice that another client changes is restored, without lowering the pool's generation.",
        source: source::PUBLISH,
        hint: "compare the whole spec with the desired one, not only whether the object exists"),
    case!(restart, "publish-restart", process: true, devices: 0,
        rule: "A restart changes nothing: no slice is deleted and recreated, and no generation is raised.",
        source: "kubernetes/kubernetes#125163; KEP-4381, ResourcePool generation",
        hint: "at startup, adopt existing slices; names and order of devices must be the same in every run"),
    case!(foreign, "publish-foreign", process: true, devices: 0,
        rule: "Slices of the same driver on other nodes, and slices of other drivers, are not changed.",
        source: source::PUBLISH,
        hint: "list with the field selectors spec.driver and spec.nodeName"),
    case!(stale, "publish-stale-pool", process: true, devices: 0,
        rule: "At startup, the driver removes slices of its pools on this node that no longer exist.",
        source: "KEP-4381, cleaning up ResourceSlices",
        hint: "list all slices of the driver on the node, and delete the obsolete ones"),
    case!(exit, "publish-exit", process: true, devices: 0,
        rule: "On SIGTERM the driver leaves its slices as they are, or removes all of them, as --slices-at-exit declares: never a part. They are published again after the next start.",
        source: "KEP-4381: a driver that is updated is back soon, and a kubelet deletes the slices of one that stays away",
        hint: "stop publishing before exit; delete slices only when the driver is uninstalled"),
];

async fn complete(w: &mut Fixture) -> Observed {
    w.published().await?;
    let slices = w.slices().await?;
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut devices = 0;
    for slice in &slices {
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            let pool = text(&slice["spec"]["pool"]["name"]);
            let name = text(&device["name"]);
            ensure!(
                names.entry(pool).or_default().insert(name),
                "pool {pool:?} has two devices {name:?}"
            );
            devices += 1;
        }
    }
    Ok(format!("{} slices with {devices} devices", slices.len()))
}

async fn valid(w: &mut Fixture) -> Observed {
    let writes = writes(w).await?;
    ensure!(
        writes.invalid == 0,
        "{} writes of slices were refused as invalid",
        writes.invalid
    );
    Ok(format!("{} writes, none refused", writes.all))
}

async fn writes(w: &Fixture) -> Result<crate::api::Writes, Stop> {
    w.api
        .slice_writes()
        .await
        .or_else(|error| fail(error.to_string()))
}

async fn scope(w: &mut Fixture) -> Observed {
    let slices = w.slices().await?;
    let mut of_node = 0;
    for slice in &slices {
        if slice["spec"]["nodeName"].is_null() {
            continue;
        }
        of_node += 1;
        let owners = slice["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let node = |owner: &Value| owner["kind"] == "Node" && owner["uid"] == w.node_uid();
        let name = text(&slice["metadata"]["name"]);
        ensure!(
            owners.iter().any(node),
            "slice {name} is not owned by the Node object"
        );
    }
    match of_node {
        0 => skip("no slice is for a single node"),
        _ => Ok(format!("{of_node} slices are owned by the Node")),
    }
}

async fn idle(w: &mut Fixture) -> Observed {
    let quiet = w.options().quiet;
    // Follow-ups of the first publication, such as a second sync, may still be in progress.
    tokio::time::sleep(quiet / 2).await;
    let before = writes(w).await?;
    tokio::time::sleep(quiet).await;
    let count = writes(w).await?.all - before.all;
    ensure!(
        count == 0,
        "{count} writes of slices within {quiet:?} without a change of devices"
    );
    Ok(format!("no write within {quiet:?}"))
}

async fn deleted(w: &mut Fixture) -> Observed {
    let slices = w.slices().await?;
    let Some(slice) = slices.first() else {
        return fail("no slice is published");
    };
    let name = text(&slice["metadata"]["name"]).to_owned();
    let uid = slice["metadata"]["uid"].clone();
    let start = tokio::time::Instant::now();
    w.api
        .delete(&format!("{SLICES}/{name}"))
        .await
        .or_else(|error| fail(error.to_string()))?;
    let wanted = devices(&slices);
    w.until_repaired("the return of a deleted slice", || async {
        let now = w.slices().await.ok()?;
        let back =
            !now.iter().any(|slice| slice["metadata"]["uid"] == uid) && devices(&now) == wanted;
        back.then_some(())
    })
    .await?;
    w.published().await?;
    Ok(format!("back after {:.1?}", start.elapsed()))
}

fn devices(slices: &[Value]) -> BTreeSet<(String, String)> {
    let of = |slice: &Value| {
        let pool = text(&slice["spec"]["pool"]["name"]).to_owned();
        let devices = slice["spec"]["devices"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        devices
            .into_iter()
            .map(move |device| (pool.clone(), text(&device["name"]).to_owned()))
    };
    slices.iter().flat_map(of).collect()
}

async fn changed(w: &mut Fixture) -> Observed {
    let slices = w.slices().await?;
    let has_devices = |slice: &&Value| {
        slice["spec"]["devices"]
            .as_array()
            .is_some_and(|devices| !devices.is_empty())
    };
    let Some(slice) = slices.iter().find(has_devices) else {
        return fail("no slice with devices is published");
    };
    let (pool, generation) = (
        slice["spec"]["pool"]["name"].clone(),
        number(&slice["spec"]["pool"]["generation"]),
    );
    let wanted = devices(&slices);
    let name = text(&slice["metadata"]["name"]);
    let patch = json!({"spec": {"devices": [{"name": "made-up-by-the-kit"}]}});
    let start = tokio::time::Instant::now();
    let patched = w
        .api
        .call(Method::PATCH, &format!("{SLICES}/{name}"), Some(&patch))
        .await;
    patched.or_else(|error| fail(error.to_string()))?;
    w.until_repaired("the repair of a changed slice", || async {
        (devices(&w.slices().await.ok()?) == wanted).then_some(())
    })
    .await?;
    w.published().await?;
    let after = w.slices().await?;
    let of_pool = after
        .iter()
        .filter(|slice| slice["spec"]["pool"]["name"] == pool);
    let lowest = of_pool
        .map(|slice| number(&slice["spec"]["pool"]["generation"]))
        .min()
        .unwrap_or(0);
    ensure!(
        lowest >= generation,
        "the generation went from {generation} to {lowest}"
    );
    Ok(format!("restored after {:.1?}", start.elapsed()))
}

/// Name, UID and generation of each slice.
fn identity(slices: &[Value]) -> BTreeSet<(String, String, i64)> {
    let of = |slice: &Value| {
        let (name, uid) = (
            text(&slice["metadata"]["name"]),
            text(&slice["metadata"]["uid"]),
        );
        (
            name.to_owned(),
            uid.to_owned(),
            number(&slice["spec"]["pool"]["generation"]),
        )
    };
    slices.iter().map(of).collect()
}

async fn restart(w: &mut Fixture) -> Observed {
    let before = identity(&w.slices().await?);
    let quiet = w.options().quiet;
    for _ in 0..2 {
        w.restart().await?;
        tokio::time::sleep(quiet / 2).await;
    }
    w.published().await?;
    let after = identity(&w.slices().await?);
    let kept = before.intersection(&after).count();
    ensure!(
        before == after,
        "of {} slices {kept} are still the same after two restarts",
        before.len()
    );
    Ok(format!("{kept} slices are the same after two restarts"))
}

async fn publish(w: &Fixture, node: &str, driver: &str, pool: &str) -> Result<String, Stop> {
    let name = format!("kit-{}", uuid::Uuid::new_v4());
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
        "driver": driver, "nodeName": node, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "made-up-by-the-kit"}]}});
    match w.api.call(Method::POST, SLICES, Some(&slice)).await {
        Ok(_) => Ok(name),
        Err(error) => fail(error.to_string()),
    }
}

async fn foreign(w: &mut Fixture) -> Observed {
    let (driver, node) = (w.driver().to_owned(), w.options().node.clone());
    let others = [
        publish(w, "another-node", &driver, "another-node").await?,
        publish(w, &node, "other.conformance.example.com", &node).await?,
    ];
    w.restart().await?;
    let quiet = w.options().quiet;
    tokio::time::sleep(quiet).await;
    for name in &others {
        let found = w.api.get(&format!("{SLICES}/{name}")).await;
        ensure!(found.is_ok(), "the slice of another node or driver is gone");
    }
    Ok("slices of another node and of another driver are still there".to_owned())
}

async fn stale(w: &mut Fixture) -> Observed {
    let slices = w.slices().await?;
    if slices
        .iter()
        .all(|slice| slice["spec"]["nodeName"].is_null())
    {
        return skip("no slice is for a single node");
    }
    let (driver, node) = (w.driver().to_owned(), w.options().node.clone());
    w.kill().await;
    let name = publish(w, &node, &driver, "pool-of-before").await?;
    w.start_again().await?;
    let path = format!("{SLICES}/{name}");
    w.until(
        "the removal of a pool that the driver no longer has",
        || async {
            match w.api.get(&path).await {
                Err(error) if error.code == 404 => Some(()),
                _ => None,
            }
        },
    )
    .await?;
    Ok("the obsolete pool was removed".to_owned())
}

async fn exit(w: &mut Fixture) -> Observed {
    let before = w.slices().await?;
    let (declared, quiet) = (w.options().slices_at_exit, w.options().quiet);
    w.terminate("the driver").await?;
    w.kill().await;
    // A request that it sent before may still be carried out.
    tokio::time::sleep(quiet).await;
    let after = w.slices().await?;
    let kept = identity(&after) == identity(&before) && devices(&after) == devices(&before);
    let found = match (kept, after.is_empty()) {
        (true, _) => AtExit::Kept,
        (false, true) => AtExit::Removed,
        (false, false) => {
            return fail(format!(
                "of {} slices with {} devices it left {} with {}",
                before.len(),
                devices(&before).len(),
                after.len(),
                devices(&after).len()
            ));
        }
    };
    if let Some(declared) = declared.filter(|declared| *declared != found) {
        return fail(format!(
            "slices at exit are declared to be {declared}, and were {found}"
        ));
    }
    w.start_again().await?;
    let wanted = devices(&before);
    w.until("publishing the devices again", || async {
        (devices(&w.slices().await.ok()?) == wanted).then_some(())
    })
    .await?;
    w.published().await?;
    let declared = match declared {
        Some(_) => "as declared",
        None => "and nothing is declared",
    };
    Ok(format!("{found} at exit, {declared}"))
}
