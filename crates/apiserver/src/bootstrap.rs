//! What every cluster has from the start.

use allot_store::{Error as StoreError, Expect, Write};
use serde_json::{Value, json};

use crate::error::Result;
use crate::object;
use crate::server::Server;

/// Makes what is missing; what is there stays as it is.
pub(crate) async fn run(server: &Server) -> Result<()> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        ensure(server, "namespaces", name, namespace).await?;
    }
    crate::custom::lifecycle::start(server).await
}

/// Stores an object unless its key is taken.
async fn ensure(server: &Server, collection: &str, key: &str, mut object: Value) -> Result<()> {
    if server.0.backend.get(collection, key).await?.is_some() {
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
