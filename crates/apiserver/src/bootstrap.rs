//! What every cluster has from the start.

mod kubernetes;
mod lease;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_store::{Embedded, Expect, Write};
use serde_json::{Value, json};

use crate::admission::plugins::Plugin;
use crate::auth::policy;
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::object::{self, meta, text};
use crate::own_objects::{self, ensure};
use crate::server::Server;
use crate::state::ServerState;
use crate::storage;

impl Server {
    /// Creates an in-memory server with default options for tests.
    ///
    /// # Errors
    /// As for [`Server::bootstrap`]; they do not occur in practice.
    pub async fn in_memory() -> Result<Self> {
        let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
        let server = Server::new(backend, Config::default());
        server.bootstrap().await?;
        Ok(server)
    }

    /// Creates the objects that every cluster has: system namespaces, default roles and priority classes.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn bootstrap(&self) -> Result<()> {
        run(self).await
    }
}

/// Adds to a default role or binding what it lacks, unless its annotation forbids that; what users have added stays.
fn complete(kept: &mut Value, wanted: &Value) {
    let known: &Value = kept;
    if known["metadata"]["annotations"][policy::AUTOUPDATE] == "false"
        || known["roleRef"] != wanted["roleRef"]
    {
        return;
    }
    for part in ["labels", "annotations"] {
        let wanted = wanted["metadata"][part].as_object().into_iter().flatten();
        for (key, value) in wanted {
            let there = &mut kept["metadata"][part][key];
            if there.is_null() {
                *there = value.clone();
            }
        }
    }
    // A controller collects the rules of those that aggregate others.
    let lists: &[&str] = match wanted["aggregationRule"].is_null() {
        true => &["rules", "subjects"],
        false => &[],
    };
    for list in lists {
        for item in wanted[*list].as_array().into_iter().flatten() {
            match &mut kept[*list] {
                Value::Array(items) if items.contains(item) => {}
                Value::Array(items) => items.push(item.clone()),
                other => *other = json!([item]),
            }
        }
    }
}

/// A default binding that is missing begins with the subjects of the one that older releases had in its place: the public pages
/// of the server stay with those that an administrator has permitted discovery.
async fn inherit(server: &Server, defaults: &mut [(&str, Value)]) -> Result<()> {
    const BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
    let backend = &server.0.backend;
    let (source, target) = policy::SPLIT;
    if backend.get(BINDINGS, target).await?.is_some() {
        return Ok(());
    }
    let Some(entry) = backend.get(BINDINGS, source).await? else {
        return Ok(());
    };
    // What the store holds was written by this server as JSON.
    let source: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    for (plural, wanted) in defaults {
        if *plural != "clusterrolebindings" || meta(wanted, "name") != target {
            continue;
        }
        let mut split = wanted.clone();
        split["subjects"] = source["subjects"].clone();
        for part in ["labels", "annotations"] {
            split["metadata"][part] = source["metadata"][part].clone();
        }
        complete(&mut split, wanted);
        *wanted = split;
    }
    Ok(())
}

/// Makes what is missing. What is there stays as it is, but for default roles and what describes this server.
async fn run(server: &Server) -> Result<()> {
    crate::zpages::started();
    crate::admission::dynamic::manifests::start(&server.0).map_err(ApiError::unknown)?;
    if let Some(policy) = &server.0.image_policy {
        policy.usable().map_err(|why| {
            let plugin = Plugin::ImagePolicyWebhook.name();
            ApiError::unknown(format!(
                "couldn't init admission plugin \"{plugin}\": {why}"
            ))
        })?;
    }
    let mut objects: Vec<(String, String, Value)> = Vec::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        objects.push(("namespaces".to_owned(), name.to_owned(), namespace));
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
    let tracking = json!({
        "metadata": {"name": TOKEN_TRACKING, "namespace": "kube-system"},
        "data": {"since": object::now()[..10]},
    });
    objects.push((
        "configmaps".to_owned(),
        format!("kube-system/{TOKEN_TRACKING}"),
        tracking,
    ));
    let mut owned: Vec<_> = objects
        .into_iter()
        .map(|it| (own_objects::SERVER, it))
        .collect();
    let of_flows = crate::flow_defaults::objects(&object::now()).into_iter();
    owned.extend(of_flows.map(|mut it| {
        let (_, _, object) = &mut it;
        if !object["status"]["conditions"].is_null() {
            let api_version = text(object, &["apiVersion"]);
            let applied = ["lastTransitionTime", "message", "reason", "status", "type"];
            let status = own_objects::applied_condition(
                api_version,
                crate::flow_defaults::CONSUMER,
                crate::flow_defaults::DANGLING,
                &applied,
            );
            object["metadata"]["managedFields"] = json!([status]);
        }
        (crate::flow_defaults::PRODUCER, it)
    }));
    // All at once, so that they share one sync.
    let writes = owned
        .into_iter()
        .map(|(manager, (collection, key, object))| {
            ensure(&*server.0.backend, collection, key, object, manager)
        });
    futures::future::try_join_all(writes).await?;
    let mut roles = policy::objects(&server.0.config.features);
    inherit(server, &mut roles).await?;
    let roles = roles.into_iter().map(|(plural, role)| async move {
        let key = match meta(&role, "namespace") {
            "" => meta(&role, "name").to_owned(),
            namespace => format!("{namespace}/{}", meta(&role, "name")),
        };
        let collection = format!("rbac.authorization.k8s.io/{plural}");
        reconcile(server, &collection, &key, role, complete).await
    });
    futures::future::try_join_all(roles).await?;
    if let Some(address) = server.0.config.advertise {
        kubernetes::run(server, address).await?;
        lease::run(server, address).await?;
    }
    crate::services::start(&server.0.state).await?;
    crate::apiextensions::start(server.0.state.clone()).await?;
    crate::aggregator::start(server.0.state.clone()).await?;
    tidy(server.0.state.clone());
    Ok(())
}

/// Interval at which the store releases the memory of changes that are no longer recent.
const TIDY_EVERY: Duration = Duration::from_secs(15);

fn tidy(state: Arc<ServerState>) {
    tokio::spawn(async move {
        while state.pause(TIDY_EVERY).await {
            state.backend.tidy(Instant::now());
        }
    });
}

/// The ConfigMap that says since when the use of old tokens of service accounts is recorded.
const TOKEN_TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// Priority classes for system-critical pods.
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
        return ensure(
            &*server.0.backend,
            collection,
            key,
            wanted,
            own_objects::SERVER,
        )
        .await;
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
        .commit(Write::put(collection, key, expect, storage::draft(&new)).frees(true))
        .await?;
    Ok(())
}
