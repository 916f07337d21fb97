//! SpiderIPPools stored in the API server, and the rules for which pods they serve.

use std::collections::BTreeMap;
use std::net::IpAddr;

use allot_driver::Failure;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::pools::{Consumer, Damage, Lease, Pool, Store};
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
    async fn serves(&self, consumer: &Consumer, pool: &Pool) -> Result<(), Failure> {
        let spec = &pool.spec;
        let mut wanted = Wanted {
            namespace: consumer.namespace.clone(),
            ..Wanted::default()
        };
        let mut node = suitable::Node {
            name: consumer.node.clone(),
            labels: LabelMap::new(),
            interfaces: Ok(Vec::<Interface>::new()),
        };
        if spec.namespace_affinity.is_some() {
            let namespaces = Api::<Namespace>::all(self.client.clone());
            wanted.namespace_labels = namespaces
                .get_metadata(&consumer.namespace)
                .await?
                .labels()
                .clone();
        }
        if spec.pod_affinity.is_some() {
            let pods = Api::<Pod>::namespaced(self.client.clone(), &consumer.namespace);
            wanted.labels = pods.get_metadata(&consumer.pod).await?.labels().clone();
        }
        if spec.node_affinity.is_some() {
            let nodes = Api::<Node>::all(self.client.clone());
            node.labels = nodes.get_metadata(&consumer.node).await?.labels().clone();
        }
        if !spec.multus_name.is_empty() {
            return Err(format!("pool {} is for networks of Multus", pool.name).into());
        }
        suitable::is_for_pod(&wanted, spec, pool.ending, &node)
            .map_err(|why| format!("pool {} {why}", pool.name).into())
    }

    async fn get(&self, name: &str) -> Result<Option<Pool>, Failure> {
        Ok(self.api.get_opt(name).await?.as_ref().map(read))
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
            all.extend(page.items.iter().map(read));
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

/// Parses a pool. Of one with an unreadable status the owners of its addresses are unknown: it is marked as damaged.
fn read(object: &DynamicObject) -> Pool {
    let name = object.name_any();
    let spec: Result<IpPool, _> = serde_json::to_value(object).and_then(serde_json::from_value);
    let text = object.data["status"]["allocatedIPs"]
        .as_str()
        .unwrap_or_default();
    let leases: Result<BTreeMap<IpAddr, Lease>, _> = match text {
        "" => Ok(BTreeMap::new()),
        text => serde_json::from_str(text),
    };
    let reason = match (&spec, &leases) {
        (Err(error), _) => Some(format!("spec: {error}")),
        (_, Err(error)) => Some(format!("status.allocatedIPs: {error}")),
        (Ok(_), Ok(_)) => None,
    };
    let mut spec = spec.map(|pool| pool.spec).unwrap_or_default();
    if spec.subnet.is_empty() {
        // Whom the damage concerns.
        object.data["spec"]["subnet"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut spec.subnet);
    }
    let created = object.metadata.creation_timestamp.as_ref();
    Pool {
        version: object.resource_version().unwrap_or_default(),
        created: created.map(|time| time.0.to_string()).unwrap_or_default(),
        ending: object.metadata.deletion_timestamp.is_some(),
        spec,
        leases: leases.unwrap_or_default(),
        damage: reason.map(|reason| Damage {
            reason,
            status: text.to_owned(),
        }),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(spec: serde_json::Value, allocated: &str) -> Pool {
        let object = json!({
            "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool", "metadata": {"name": "lab"},
            "spec": spec, "status": {"allocatedIPs": allocated},
        });
        read(&serde_json::from_value(object).expect("an object"))
    }

    #[test]
    fn regression_a_damaged_pool_is_an_object_of_its_own() {
        let spec = json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.2"]});
        let good = pool(spec.clone(), r#"{"10.0.0.2": {"claimUid": "u1"}}"#);
        assert_eq!((good.damage, good.leases.len()), (None, 1));
        let bad = pool(spec, r#"{"10.0.0.2": {"claimUid": "u1"}"#);
        let damage = bad.damage.clone().expect("damaged");
        assert!(
            damage.reason.starts_with("status.allocatedIPs: EOF"),
            "{damage:?}"
        );
        assert!(damage.status.contains("u1"));
        assert_eq!(
            bad.covers([10, 0, 1, 1].into()),
            Ok(false),
            "another subnet"
        );
        let refused = bad
            .covers([10, 0, 0, 2].into())
            .expect_err("unknown owners");
        assert!(
            refused.starts_with("pool lab can not be read: status.allocatedIPs"),
            "{refused}"
        );
        let spec = pool(json!({"subnet": "10.0.0.0/24", "ips": 7}), "");
        assert!(spec.covers([10, 0, 0, 2].into()).is_err());
        assert_eq!(spec.covers([10, 0, 1, 2].into()), Ok(false));
    }
}
