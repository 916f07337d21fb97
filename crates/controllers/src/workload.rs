//! Common parts of the workload controllers: pods from a template, adoption, revisions, hashes.

use std::sync::Arc;

use allot_apimachinery::names::GENERATED_NAME_ALPHABET;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Api, Client, Resource};
use serde_json::{Map, Value, json};

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Cached, Informer};
use crate::controller::meta;

mod conditions;
pub(crate) mod rank;
pub(crate) mod revision;
pub(crate) mod sets;

#[cfg(test)]
mod tests;

pub(crate) use conditions::{condition_status, disruption_target, remove_condition, set_condition};

/// Index of pods (and replica sets) by the UID of their controller.
pub(crate) const BY_CONTROLLER: &str = "controller";
/// Index of objects without a controller by namespace.
pub(crate) const ORPHANS: &str = "orphans";

/// Extracts [`BY_CONTROLLER`].
pub(crate) fn controller_uid<K: Resource>(obj: &K) -> Vec<String> {
    meta::controller_of(obj.meta())
        .map(|o| o.uid.clone())
        .into_iter()
        .collect()
}

/// Extracts the namespace of objects without a controller, which may be adopted. Index [`ORPHANS`].
pub(crate) fn orphan_namespace<K: Resource>(obj: &K) -> Vec<String> {
    if meta::controller_of(obj.meta()).is_some() {
        return Vec::new();
    }
    vec![meta::namespace(obj).to_owned()]
}

/// Labels of the template that decide about its hash and equality.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The 32-bit FNV-1a hash of the parts in a row, which names the pods and revisions of a template.
pub(crate) fn fnv<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0x811c_9dc5, |state, byte| {
        (state ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// A hash of canonical JSON, in the form used in names.
pub(crate) fn hash(parts: &[&Value], collisions: Option<i32>) -> String {
    // serde_json sorts the keys of objects.
    let texts: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
    let collisions = collisions.map(i32::to_le_bytes);
    let texts = texts.iter().map(String::as_bytes);
    fnv(texts.chain(collisions.as_ref().map(|c| c.as_slice())))
        .to_string()
        .bytes()
        .map(|b| {
            char::from(GENERATED_NAME_ALPHABET[usize::from(b) % GENERATED_NAME_ALPHABET.len()])
        })
        .collect()
}

/// A pod as JSON from a pod template, owned by `owner`.
pub(crate) fn pod_from_template(
    template: &Value,
    namespace: &str,
    generate_name: &str,
    owner: Value,
) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata.insert(field.to_owned(), template["metadata"][field].clone());
        }
    }
    metadata.insert("namespace".to_owned(), json!(namespace));
    // As in upstream: a long owner name is cut for the random suffix.
    let prefix = &generate_name[..generate_name.len().min(58)];
    metadata.insert("generateName".to_owned(), json!(prefix));
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

/// Creates and deletes pods on behalf of an owner and records events about it.
#[derive(Clone)]
pub(crate) struct PodControl {
    pub client: Client,
    pub events: Recorder,
    pub pods: Informer<Pod>,
}

impl PodControl {
    /// The pods of an owner, as [`claim`] returns them.
    pub(crate) async fn claim<O>(
        &self,
        owner: &O,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Pod>>, Error>
    where
        O: Resource<DynamicType = ()>,
    {
        claim(&self.client, owner, selector, None, &self.pods).await
    }

    pub(crate) async fn create<K>(&self, owner: &K, pod: &Value) -> Result<Pod, Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(owner));
        match api::create(&self.client, &pods, pod).await {
            Ok(created) => {
                self.events.event(
                    reference(owner),
                    Level::Normal,
                    "SuccessfulCreate",
                    format!("Created pod: {}", meta::name(&created)),
                );
                self.pods.assume(created.clone());
                Ok(created)
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.events.event(
                        reference(owner),
                        Level::Warning,
                        "FailedCreate",
                        format!("Error creating: {error}"),
                    );
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn delete<K>(&self, owner: &K, pod: &Pod) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(pod));
        match api::delete_cached(&self.pods, &pods, pod, Delete::default()).await {
            Ok(()) => {
                self.events.event(
                    reference(owner),
                    Level::Normal,
                    "SuccessfulDelete",
                    format!("Deleted pod: {}", meta::name(pod)),
                );
                Ok(())
            }
            Err(error) => {
                self.events.event(
                    reference(owner),
                    Level::Warning,
                    "FailedDelete",
                    format!("Error deleting: {error}"),
                );
                Err(error)
            }
        }
    }

    /// Creates `count` pods: one, then twice as many each time, so that a mistake in the template
    /// costs one refused request and not thousands. Returns the first error.
    pub(crate) async fn create_many<K>(
        &self,
        owner: &K,
        count: usize,
        pod: &Value,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Sync,
    {
        let mut left = count;
        let mut batch = 1;
        while left > 0 {
            let now = batch.min(left);
            let creations = (0..now).map(|_| self.create(owner, pod));
            for result in futures::future::join_all(creations).await {
                result?;
            }
            left -= now;
            batch *= 2;
        }
        Ok(())
    }
}

/// The objects of an owner: its own with matching labels, after adopting matching orphans and releasing those that do
/// not match. With a finalizer, adopted objects get it and released ones lose it.
pub(crate) async fn claim<O, K>(
    client: &Client,
    owner: &O,
    selector: &LabelSelector,
    finalizer: Option<&str>,
    cache: &Informer<K>,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Resource<DynamicType = ()>,
    K: Cached + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let namespace = meta::namespace(owner);
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let mut mine = Vec::new();
    for obj in cache.by_index(BY_CONTROLLER, meta::uid(owner)) {
        if selects(selector, &*obj) || meta::deleting(owner) {
            mine.push(obj);
        } else if !meta::deleting(&*obj) {
            let owners = obj.meta().owner_references.iter().flatten();
            let rest: Vec<_> = owners.filter(|o| o.uid != meta::uid(owner)).collect();
            let mut body = json!({"metadata": api::unchanged(&*obj)});
            body["metadata"]["ownerReferences"] = json!(rest);
            if let Some(finalizer) = finalizer {
                body["metadata"]["finalizers"] = json!(other_finalizers(&*obj, finalizer));
            }
            match api::patch(&api, meta::name(&*obj), Part::Main, &body).await {
                Ok(new) => cache.assume(new),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    if meta::deleting(owner) || meta::is_empty_selector(selector) {
        return Ok(mine);
    }
    for obj in cache.by_index(ORPHANS, namespace) {
        if meta::deleting(&*obj) || !selects(selector, &*obj) {
            continue;
        }
        let mut owners: Vec<Value> = obj
            .meta()
            .owner_references
            .iter()
            .flatten()
            .map(|o| json!(o))
            .collect();
        owners.push(meta::controller_ref(owner));
        let mut body = json!({"metadata": api::unchanged(&*obj)});
        body["metadata"]["ownerReferences"] = json!(owners);
        if let Some(finalizer) = finalizer {
            let mut all = other_finalizers(&*obj, finalizer);
            all.push(finalizer);
            body["metadata"]["finalizers"] = json!(all);
        }
        match api::patch(&api, meta::name(&*obj), Part::Main, &body).await {
            Ok(new) => {
                cache.assume(new.clone());
                mine.push(Arc::new(new));
            }
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(mine)
}

/// The finalizers of an object but for one.
pub(crate) fn other_finalizers<'a, K: Resource>(obj: &'a K, one: &str) -> Vec<&'a str> {
    let finalizers = obj.meta().finalizers.iter().flatten();
    finalizers
        .map(String::as_str)
        .filter(|f| *f != one)
        .collect()
}

fn selects<K: Resource>(selector: &LabelSelector, obj: &K) -> bool {
    meta::selects(selector, obj.meta().labels.as_ref())
}

/// Writes a status if it differs from the current one: `new` is merged, null removes.
pub(crate) async fn write_status<K>(
    api: &Api<K>,
    cache: &Informer<K>,
    obj: &K,
    old: &Value,
    new: Value,
) -> Result<(), Error>
where
    K: Cached,
{
    let changed = new.as_object().is_some_and(|fields| {
        fields.iter().any(|(k, v)| {
            let before = &old[k.as_str()];
            before != v && !(is_nothing(before) && is_nothing(v))
        })
    });
    if !changed {
        return Ok(());
    }
    let body = json!({"metadata": api::unchanged(obj), "status": new});
    match api::patch(api, meta::name(obj), Part::Status, &body).await {
        Ok(new) => {
            cache.assume(new);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::Array(a) => a.is_empty(),
        _ => false,
    }
}
