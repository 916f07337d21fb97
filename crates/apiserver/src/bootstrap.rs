//! What every cluster has from the start.

pub(crate) mod flow;
mod kubernetes;
pub(crate) mod registered;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_store::{Error as StoreError, Expect, Write};
use serde_json::{Value, json};

use crate::auth::policy;
use crate::error::Result;
use crate::object::{self, meta};
use crate::server::{Core, Server};

/// Makes what is missing; what is there stays as it is.
pub(crate) async fn run(server: &Server) -> Result<()> {
    let mut objects: Vec<(String, String, Value)> = Vec::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        objects.push(("namespaces".to_owned(), name.to_owned(), namespace));
    }
    for (plural, role) in policy::objects() {
        let name = meta(&role, "name").to_owned();
        objects.push((format!("rbac.authorization.k8s.io/{plural}"), name, role));
    }
    for (name, value, description) in PRIORITIES {
        let class = json!({
            "metadata": {"name": name, "generation": 1},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        objects.push((
            "scheduling.k8s.io/priorityclasses".to_owned(),
            name.to_owned(),
            class,
        ));
    }
    objects.extend(flow::objects(&object::now()));
    // All at once, so that they share one sync.
    let writes = objects
        .into_iter()
        .map(|(collection, key, object)| ensure(&server.0, collection, key, object));
    futures::future::try_join_all(writes).await?;
    if let Some(address) = server.0.config.advertise {
        kubernetes::run(server, address).await?;
    }
    crate::services::start(&server.0).await?;
    crate::custom::lifecycle::start(server).await?;
    tidy(server.0.clone());
    Ok(())
}

/// How often the store is told to give back what recent changes took.
const TIDY_EVERY: Duration = Duration::from_secs(15);

fn tidy(core: Arc<Core>) {
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = core.shutdown.cancelled() => return,
                () = tokio::time::sleep(TIDY_EVERY) => core.backend.tidy(Instant::now()),
            }
        }
    });
}

/// Priority classes for what keeps a cluster running.
const PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Stores an object unless its key is taken.
pub(crate) async fn ensure(
    core: &Core,
    collection: impl Into<String>,
    key: impl Into<String>,
    mut object: Value,
) -> Result<()> {
    let (collection, key) = (collection.into(), key.into());
    if core.backend.get(&collection, &key).await?.is_some() {
        return Ok(());
    }
    let metadata = object::metadata_mut(&mut object);
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), object::now().into());
    // Without it there is no server to delete anything on a full disk.
    let write = Write::put(collection, key, Expect::Absent, object::draft(&object)).frees(true);
    match core.backend.commit(write).await {
        Ok(_) | Err(StoreError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Stores an object, or brings the parts that are this server's to what they should be.
async fn reconcile(
    server: &Server,
    collection: &str,
    key: &str,
    wanted: Value,
    adjust: impl Fn(&mut Value, &Value),
) -> Result<()> {
    let backend = &server.0.backend;
    let Some(entry) = backend.get(collection, key).await? else {
        return ensure(&server.0, collection, key, wanted).await;
    };
    // What the store holds was written by this server as JSON.
    let old: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
    let mut new = old.clone();
    adjust(&mut new, &wanted);
    if new == old {
        return Ok(());
    }
    if let Some(generation) = old["metadata"]["generation"].as_i64() {
        new["metadata"]["generation"] = (generation + 1).into();
    }
    let expect = Expect::Revision(entry.revision);
    backend
        .commit(Write::put(collection, key, expect, object::draft(&new)).frees(true))
        .await?;
    Ok(())
}
