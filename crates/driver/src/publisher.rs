//! Publishes the ResourceSlices of a driver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use allot_reflector::{everything, request};
use k8s_openapi::api::core::v1::{Node, NodeSelector};
use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSlice, ResourceSliceSpec};
use kube::Resource as _;
use kube::api::{DynamicObject, GetParams};
use kube::core::Request;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::AccessError;
use crate::api::{ResourceApi, answered};
use crate::error::{BackgroundError, InvalidResources};

mod changes;
mod plan;
#[cfg(test)]
mod tests;
mod validate;

use changes::Changes;
use plan::{Plan, Target};

/// All devices of a driver, by pool. Without pools the slices are deleted; a pool with one empty slice stays visible.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    /// The pools by name.
    pub pools: BTreeMap<String, Pool>,
}

impl Resources {
    /// One pool; its name is usually the node's.
    pub fn pool(name: impl Into<String>, pool: Pool) -> Self {
        Self {
            pools: BTreeMap::from([(name.into(), pool)]),
        }
    }
}

/// A pool of devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool {
    /// Which nodes can use the devices, for pools that are not local to one node.
    pub node_selector: Option<NodeSelector>,
    /// Every node can use the devices.
    pub all_nodes: bool,
    /// Lower bound for the generation; 0 leaves it to the SDK.
    pub generation: i64,
    /// The slices, as they are published: the allocator takes devices in this order. At most 128 devices fit into one, 64
    /// when one of them has taints or uses counters.
    pub slices: Vec<Slice>,
}

impl Pool {
    /// A pool local to the node, with the devices in as many slices as they need.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Self {
        let all = Slice {
            devices: devices.into_iter().collect(),
            ..Slice::default()
        };
        Self {
            slices: all.split(),
            ..Self::default()
        }
    }

    /// Adds counters that devices of the pool draw from, in a separate slice before all others.
    #[must_use]
    pub fn shared_counters(mut self, counters: impl IntoIterator<Item = CounterSet>) -> Self {
        let slice = Slice {
            shared_counters: counters.into_iter().collect(),
            ..Slice::default()
        };
        self.slices.insert(0, slice);
        self
    }
}

/// The content of a ResourceSlice. Its name, pool, generation and node are set when it is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slice {
    /// The devices of the slice; the API server accepts 128 in one slice, or 64 if devices have taints or consume
    /// counters.
    pub devices: Vec<Device>,
    /// Counters that devices of the pool draw from; the API server requires them in a slice without devices.
    pub shared_counters: Vec<CounterSet>,
    /// Each device selects the nodes that can use it.
    pub per_device_node_selection: bool,
}

impl Slice {
    /// As many slices as the devices need, at least one.
    pub(crate) fn split(mut self) -> Vec<Self> {
        let costly = |device: &Device| {
            let taints = device.taints.iter().flatten().count();
            taints + device.consumes_counters.iter().flatten().count() > 0
        };
        let most = match self.devices.iter().any(costly) {
            true => MOST_COSTLY_DEVICES,
            false => MOST_DEVICES,
        };
        let (mut slices, mut devices) = (Vec::new(), std::mem::take(&mut self.devices));
        loop {
            let rest = devices.split_off(devices.len().min(most));
            slices.push(Self {
                devices,
                ..self.clone()
            });
            devices = rest;
            if devices.is_empty() {
                return slices;
            }
        }
    }
}

/// The owner and the pool of the slices. At least one of the two is set.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The Node object owns the slices: they are deleted with it.
    pub(crate) node: Option<Owner>,
    /// Only this pool, with the pool's node selection. Otherwise the devices are local to the node.
    pub(crate) cluster_pool: Option<String>,
    /// Labels of the slices; none of a name without a value.
    pub(crate) labels: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) name: String,
    /// Looked up if not known.
    pub(crate) uid: Option<String>,
}

impl Scope {
    /// The only node that can use the devices.
    fn node_name(&self) -> Option<&str> {
        let node = self.node.as_ref().filter(|_| self.cluster_pool.is_none());
        node.map(|node| node.name.as_str())
    }
}

const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// How many devices a slice holds, and how many when one of them has taints or uses counters.
const MOST_DEVICES: usize = 128;
const MOST_COSTLY_DEVICES: usize = 64;

/// How long a driver waits for its Node before that is an error.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

type OnError = Box<dyn Fn(BackgroundError) + Send + Sync>;

pub(crate) struct Publisher {
    api: Arc<ResourceApi>,
    driver: String,
    scope: Scope,
    on_error: OnError,
}

/// The stored form of a slice that was sent, by slice UID: sent and stored form.
type Stored = HashMap<String, (ResourceSliceSpec, ResourceSliceSpec)>;

impl Publisher {
    pub(crate) fn new(
        api: Arc<ResourceApi>,
        driver: String,
        scope: Scope,
        on_error: impl Fn(BackgroundError) + Send + Sync + 'static,
    ) -> Self {
        Self {
            api,
            driver,
            scope,
            on_error: Box::new(on_error),
        }
    }

    fn selector(&self) -> String {
        let node = self.scope.node_name().unwrap_or_default();
        format!("spec.driver={},spec.nodeName={node}", self.driver)
    }

    /// Runs until dropped. Nothing is written before the first value.
    pub(crate) async fn run(mut self, mut wanted: watch::Receiver<Option<Arc<Resources>>>) {
        if wanted.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut stored = Stored::new();
        let mut delay = RETRY.0;
        let mut changes = None;
        loop {
            let desired = wanted.borrow_and_update().clone().unwrap_or_default();
            let wake = match self.sync(&desired, &mut stored).await {
                Ok(()) => {
                    delay = RETRY.0;
                    None
                }
                Err(error @ BackgroundError::InvalidResources(_)) => {
                    (self.on_error)(error);
                    None
                }
                Err(error) => {
                    (self.on_error)(error);
                    delay = (delay * 2).min(RETRY.1);
                    Some(delay)
                }
            };
            // After the first request, which finds out which version of the API the server has.
            let changes =
                changes.get_or_insert_with(|| Changes::watch(&self.api, &self.selector()));
            let wait = async {
                match wake {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => changes.due().await,
                }
            };
            tokio::select! {
                result = wanted.changed() => if result.is_err() { return },
                () = wait => {}
            }
        }
    }

    async fn sync(
        &mut self,
        desired: &Resources,
        stored: &mut Stored,
    ) -> Result<(), BackgroundError> {
        if let Some(pool) = &self.scope.cluster_pool {
            let others = desired.pools.keys().any(|name| name != pool);
            if others || desired.pools.len() > 1 {
                let (name, pools) = (pool.clone(), desired.pools.len());
                return Err(InvalidResources::OtherPools { name, pools }.into());
            }
        }
        validate::resources(desired)?;
        let failed = |error: &dyn std::fmt::Display| BackgroundError::Sync(error.to_string());
        self.resolve_node().await?;
        let existing = self
            .api
            .list_slices(&self.selector())
            .await
            .map_err(|error| failed(&error))?;
        let exists = |uid: &String| {
            existing
                .iter()
                .any(|it| it.metadata.uid.as_ref() == Some(uid))
        };
        stored.retain(|uid, _| exists(uid));
        let names: BTreeSet<&str> = existing
            .iter()
            .map(|slice| slice.spec.pool.name.as_str())
            .chain(desired.pools.keys().map(String::as_str))
            .filter(|name| {
                let only = self.scope.cluster_pool.as_deref();
                only.is_none_or(|pool| pool == *name)
            })
            .collect();
        let mut result = Ok(());
        for name in names {
            let target = Target {
                driver: &self.driver,
                scope: &self.scope,
                pool: name,
            };
            let existing = existing
                .iter()
                .filter(|slice| slice.spec.pool.name == name)
                .collect();
            let plan = Plan::new(&target, desired.pools.get(name), existing, stored);
            // What one pool meets with is no reason to leave out the others.
            result = result.and(self.execute(&plan, stored).await);
        }
        result
    }

    /// The owner of the slices is the Node object, known by UID.
    async fn resolve_node(&mut self) -> Result<(), BackgroundError> {
        if let Some(Owner {
            name,
            uid: uid @ None,
        }) = &mut self.scope.node
        {
            let failed = |text: String| BackgroundError::Sync(format!("get node {name}: {text}"));
            // Drivers and the kubelet are started together, and either may be first.
            let (deadline, mut pause) = (Instant::now() + NODE_PATIENCE, RETRY.0);
            *uid = loop {
                match node(self.api.client(), name).await {
                    Ok(Some(node)) => break node.metadata.uid,
                    Ok(None) if Instant::now() < deadline => tokio::time::sleep(pause).await,
                    Ok(None) => return Err(failed(format!("nodes \"{name}\" not found"))),
                    Err(error) => return Err(failed(error.to_string())),
                }
                pause = (pause * 2).min(NODE_PATIENCE / 5);
            };
        }
        Ok(())
    }

    /// Obsolete slices are deleted first, so that the pool is incomplete rather than wrong while it changes.
    async fn execute(&self, plan: &Plan, stored: &mut Stored) -> Result<(), BackgroundError> {
        let failed = |error: AccessError| BackgroundError::Sync(error.to_string());
        for slice in &plan.delete {
            self.api.delete_slice(slice).await.map_err(failed)?;
        }
        for (index, slice) in &plan.update {
            let result = self.api.update_slice(slice).await.map_err(failed)?;
            self.compare(*index, slice, result, stored);
        }
        for (index, slice) in &plan.create {
            let result = self.api.create_slice(slice).await.map_err(failed)?;
            self.compare(*index, slice, result, stored);
        }
        let (created, updated, deleted) = (plan.create.len(), plan.update.len(), plan.delete.len());
        if created + updated + deleted > 0 {
            tracing::info!(
                driver = self.driver,
                pool = plan.pool,
                created,
                updated,
                deleted,
                "published devices"
            );
        }
        Ok(())
    }

    /// Reports what the server did not store.
    fn compare(&self, index: usize, sent: &ResourceSlice, got: ResourceSlice, stored: &mut Stored) {
        if let Some(features) = plan::dropped_features(&sent.spec, &got.spec) {
            let pool = sent.spec.pool.name.clone();
            (self.on_error)(BackgroundError::DroppedFields {
                pool,
                slice: index,
                features,
            });
        }
        plan::remember(stored, sent, &got);
    }
}

/// The metadata of a Node, or `None` if it does not exist.
async fn node(client: &kube::Client, name: &str) -> Result<Option<DynamicObject>, AccessError> {
    let request_for = Request::new(Node::url_path(&(), None));
    let asked = request_for.get_metadata(name, &GetParams::default());
    let asked = asked.map_err(kube::Error::BuildRequest)?;
    let answer = request::<DynamicObject>(client, asked, everything);
    match answered(answer).await? {
        Ok(node) => Ok(Some(node)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
