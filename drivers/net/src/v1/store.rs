//! SpiderIPPools stored in the API server, and the rules for which pods they serve.

use std::collections::BTreeMap;
use std::net::IpAddr;

use allot_driver::Failure;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::pools::{Lease, Pool, Store, User};
use crate::interfaces::Interface;
use crate::objects::{IpPool, ip_pools};
use crate::suitable::{self, LabelMap, Wanted};

/// Page size when listing pools.
const PAGE: u32 = 500;

/// SpiderIPPools in the API server.
pub(super) struct Pools {
    client: Client,
    api: Api<DynamicObject>,
}

impl Pools {
    pub(super) fn new(client: Client) -> Self {
        let api = Api::all_with(client.clone(), &ip_pools());
        Self { client, api }
    }
}

impl Store for Pools {
    /// Checks whether a pool may serve a pod, by the rules of the classic driver. Labels are fetched only if the pool has
    /// label selectors.
    async fn serves(&self, user: &User, pool: &Pool) -> Result<(), Failure> {
        let spec = &pool.spec;
        let mut wanted = Wanted {
            namespace: user.namespace.clone(),
            ..Wanted::default()
        };
        let mut node = suitable::Node {
            name: user.node.clone(),
            labels: LabelMap::new(),
            interfaces: Ok(Vec::<Interface>::new()),
        };
        if spec.namespace_affinity.is_some() {
            let namespaces = Api::<Namespace>::all(self.client.clone());
            wanted.namespace_labels = namespaces
                .get_metadata(&user.namespace)
                .await?
                .labels()
                .clone();
        }
        if spec.pod_affinity.is_some() {
            let pods = Api::<Pod>::namespaced(self.client.clone(), &user.namespace);
            wanted.labels = pods.get_metadata(&user.pod).await?.labels().clone();
        }
        if spec.node_affinity.is_some() {
            let nodes = Api::<Node>::all(self.client.clone());
            node.labels = nodes.get_metadata(&user.node).await?.labels().clone();
        }
        if !spec.multus_name.is_empty() {
            return Err(format!("pool {} is for networks of Multus", pool.name).into());
        }
        suitable::is_for_pod(&wanted, spec, pool.ending, &node)
            .map_err(|why| format!("pool {} {why}", pool.name).into())
    }

    async fn get(&self, name: &str) -> Result<Option<Pool>, Failure> {
        match self.api.get_opt(name).await? {
            Some(object) => Ok(Some(read(&object)?)),
            None => Ok(None),
        }
    }

    async fn list(&self) -> Result<Vec<Pool>, Failure> {
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = match self.api.list(&params).await {
                // The CRD is not installed, so there are no pools.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
                page => page?,
            };
            for object in &page.items {
                all.push(read(object)?);
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn put(&self, pool: &Pool) -> Result<bool, Failure> {
        let leases: BTreeMap<String, &Lease> = pool
            .leases
            .iter()
            .map(|(address, lease)| (address.to_string(), lease))
            .collect();
        let mut object = DynamicObject::new(&pool.name, &ip_pools());
        object.metadata.resource_version = Some(pool.version.clone());
        // The API server validates the whole object, although only its status is updated.
        object.data = json!({
            "spec": {"subnet": pool.spec.subnet},
            "status": {
                "allocatedIPs": serde_json::to_string(&leases)?,
                "allocatedIPCount": leases.len(),
                "totalIPCount": pool.total(),
            },
        });
        let params = PostParams::default();
        match self.api.replace_status(&pool.name, &params, &object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses a pool. One with an unreadable status is an error, since the owners of its addresses are unknown.
fn read(object: &DynamicObject) -> Result<Pool, Failure> {
    let name = object.name_any();
    let typed: IpPool = serde_json::from_value(serde_json::to_value(object)?)
        .map_err(|error| format!("pool {name}: {error}"))?;
    let text = object.data["status"]["allocatedIPs"]
        .as_str()
        .filter(|text| !text.is_empty());
    let leases: BTreeMap<IpAddr, Lease> = match text {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("pool {name}: status.allocatedIPs: {error}"))?,
        None => BTreeMap::new(),
    };
    Ok(Pool {
        version: object.resource_version().unwrap_or_default(),
        ending: object.metadata.deletion_timestamp.is_some(),
        spec: typed.spec,
        leases,
        name,
    })
}
