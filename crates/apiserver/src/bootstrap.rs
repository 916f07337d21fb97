//! What every cluster has from the start.

use allot_store::{Error as StoreError, Expect, Write};
use serde_json::{Value, json};

use crate::auth::policy;
use crate::error::Result;
use crate::object::{self, meta};
use crate::server::Server;

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
    if let Some(address) = server.0.config.advertise {
        let service = kubernetes_service(address.port());
        objects.push((
            "services".to_owned(),
            "default/kubernetes".to_owned(),
            service,
        ));
    }
    // All at once, so that they share one sync.
    let writes = objects
        .into_iter()
        .map(|(collection, key, object)| ensure(server, collection, key, object));
    futures::future::try_join_all(writes).await?;
    crate::custom::lifecycle::start(server).await
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

fn kubernetes_service(port: u16) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// Stores an object unless its key is taken.
async fn ensure(server: &Server, collection: String, key: String, mut object: Value) -> Result<()> {
    if server.0.backend.get(&collection, &key).await?.is_some() {
        return Ok(());
    }
    let metadata = object::metadata_mut(&mut object);
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), object::now().into());
    let write = Write::put(collection, key, Expect::Absent, object::draft(&object));
    match server.0.backend.commit(write).await {
        Ok(_) | Err(StoreError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
