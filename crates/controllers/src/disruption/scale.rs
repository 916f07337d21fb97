//! The expected number of pods, from the scale of their controllers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, oneshot};
use parking_lot::Mutex;
use serde_json::Value;

use crate::Error;
use crate::controller::meta;

/// Reads the scale of owners.
pub(super) struct Scales {
    client: Client,
    /// Known kinds, and whether they have a scale.
    kinds: Mutex<HashMap<GroupVersionKind, (ApiResource, bool)>>,
}

impl Scales {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Mutex::default(),
        }
    }

    /// The sum over the controllers of all pods, and whether there are pods without one.
    ///
    /// # Errors
    /// A controller that was deleted or has no scale, and errors of the API server.
    pub(super) async fn of(&self, pods: &[Arc<Pod>]) -> Result<(i32, bool), Error> {
        let mut owners: BTreeMap<&str, (&OwnerReference, &Pod)> = BTreeMap::new();
        let mut unmanaged = false;
        for pod in pods {
            match meta::controller_of(&pod.metadata) {
                Some(owner) => _ = owners.entry(&owner.uid).or_insert((owner, pod)),
                None => unmanaged = true,
            }
        }
        // Replica sets of one deployment count once.
        let mut sizes: BTreeMap<String, i32> = BTreeMap::new();
        for (owner, pod) in owners.into_values() {
            let Some((uid, size)) = self.size(meta::namespace(pod), owner).await? else {
                let message = format!("found no controllers for pod {:?}", meta::name(pod));
                return Err(Error::Invalid(message));
            };
            sizes.insert(uid, size);
        }
        let total = sizes.into_values().fold(0, i32::saturating_add);
        Ok((total, unmanaged))
    }

    /// The controller that determines the size, and the size; `None` if it was deleted.
    async fn size(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i32)>, Error> {
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        if !matches!((group, &*owner.kind), ("apps", "ReplicaSet")) {
            let found = self.get(namespace, &kind, &owner.name, "/scale").await?;
            return Ok(same(found, owner).map(|found| (owner.uid.clone(), replicas(&found))));
        }
        // It may be one step of a deployment, whose size counts.
        let found = self.get(namespace, &kind, &owner.name, "").await?;
        let Some(set) = same(found, owner) else {
            return Ok(None);
        };
        let above: Vec<OwnerReference> =
            serde_json::from_value(set["metadata"]["ownerReferences"].clone()).unwrap_or_default();
        let above = above
            .into_iter()
            .find(|o| o.controller == Some(true) && o.kind == "Deployment");
        match above {
            None => Ok(Some((owner.uid.clone(), replicas(&set)))),
            Some(above) => {
                let kind = GroupVersionKind::gvk(group, version, &above.kind);
                let found = self.get(namespace, &kind, &above.name, "/scale").await?;
                Ok(same(found, &above).map(|found| (above.uid.clone(), replicas(&found))))
            }
        }
    }

    async fn get(
        &self,
        namespace: &str,
        kind: &GroupVersionKind,
        name: &str,
        part: &str,
    ) -> Result<Option<Value>, Error> {
        let known = self.kinds.lock().get(kind).cloned();
        let (resource, has_scale) = match known {
            Some(known) => known,
            None => {
                let (resource, capabilities) = oneshot::pinned_kind(&self.client, kind).await?;
                let scale = format!("{}/scale", resource.plural);
                let mut parts = capabilities.subresources.iter();
                let found = (
                    resource,
                    parts.any(|(part, _)| part.plural == "scale" || part.plural == scale),
                );
                self.kinds.lock().insert(kind.clone(), found.clone());
                found
            }
        };
        let in_group = match resource.group.is_empty() {
            true => resource.plural.clone(),
            false => format!("{}.{}", resource.plural, resource.group),
        };
        if !part.is_empty() && !has_scale {
            // A definition may get one.
            self.kinds.lock().remove(kind);
            let message = format!("{in_group} does not implement the scale subresource");
            return Err(Error::Invalid(message));
        }
        let root = match resource.group.is_empty() {
            true => format!("/api/{}", resource.version),
            false => format!("/apis/{}", resource.api_version),
        };
        let path = format!(
            "{root}/namespaces/{namespace}/{}/{name}{part}",
            resource.plural
        );
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|e| Error::Invalid(e.to_string()))?;
        match self
            .client
            .request::<Value>(request)
            .await
            .map_err(Error::from)
        {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The object, if it is the one that is referred to.
fn same(found: Option<Value>, owner: &OwnerReference) -> Option<Value> {
    found.filter(|found| found["metadata"]["uid"] == owner.uid.as_str())
}

fn replicas(object: &Value) -> i32 {
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(0);
    i32::try_from(replicas).unwrap_or(i32::MAX)
}
