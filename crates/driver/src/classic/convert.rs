//! Generates parameters for the scheduler of 1.30 from a vendor's own kinds.

use std::sync::Arc;

use allot_model::classic::objects::{ClaimParameters, ClassParameters, ParametersReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::ClassicVersion;
use super::cache::{Cache, Name, keep};
use super::claims::SyncError;
use super::events::Recorder;
use super::queue::{self, Queue};
use crate::Failure;

/// Namespace of class parameters that are generated from cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Parameters that the scheduler understands: [`ClaimParameters`] or [`ClassParameters`].
pub trait Parameters:
    Serialize + DeserializeOwned + Default + Clone + PartialEq + Send + Sync
{
    /// Begins the names of generated objects.
    const STEM: &str;
    /// Whether a reference to the original names its namespace, as a class has to.
    const NAMES_NAMESPACE: bool;

    /// The kind.
    fn resource() -> ApiResource;
    /// The metadata of the object, for the annotations that a conversion writes.
    fn metadata(&mut self) -> &mut ObjectMeta;
    /// The reference to the original.
    fn generated_from(&mut self) -> &mut Option<ParametersReference>;
}

impl Parameters for ClaimParameters {
    const STEM: &str = "resource-claim-parameters";
    const NAMES_NAMESPACE: bool = false;

    fn resource() -> ApiResource {
        ClassicVersion::V1alpha2.claim_parameters()
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn generated_from(&mut self) -> &mut Option<ParametersReference> {
        &mut self.generated_from
    }
}

impl Parameters for ClassParameters {
    const STEM: &str = "resource-class-parameters";
    const NAMES_NAMESPACE: bool = true;

    fn resource() -> ApiResource {
        ClassicVersion::V1alpha2.class_parameters()
    }

    fn metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn generated_from(&mut self) -> &mut Option<ParametersReference> {
        &mut self.generated_from
    }
}

/// Maintains a ResourceClaimParameters or ResourceClassParameters object for every object of a vendor's kind, until
/// `shutdown`: created and updated with it, restored after other changes, and deleted with it, because it is owned.
///
/// What `convert` returns needs neither metadata nor `generatedFrom`. Its errors reach the events of the vendor's
/// object, and it is called again when that changes.
pub async fn generate_parameters<P: Parameters>(
    client: Client,
    driver_name: &str,
    kind: ApiResource,
    convert: impl Fn(&DynamicObject) -> Result<P, Failure> + Send + Sync,
    shutdown: CancellationToken,
) {
    let generated = P::resource();
    let mut background = JoinSet::new();
    let (events, sending) = Recorder::new(client.clone(), driver_name);
    background.spawn(sending);
    let queue: Arc<Queue<Name>> = Arc::new(queue::new());
    let (originals, copies) = (Arc::new(Cache::default()), Arc::new(Cache::default()));
    let mut ready = Vec::new();
    for (kind, cache) in [(&kind, &originals), (&generated, &copies)] {
        let (synced, done) = watch::channel(false);
        let api = Api::all_with(client.clone(), kind);
        let (queue, is_copy) = (Arc::clone(&queue), Arc::ptr_eq(cache, &copies));
        background.spawn(keep(api, Arc::clone(cache), synced, move |change| {
            let Some(object) = change.after.or(change.before) else {
                return;
            };
            match source(&object).filter(|_| is_copy) {
                Some(from) if P::NAMES_NAMESPACE => queue.add((from.namespace, from.name)),
                Some(from) => queue.add((change.name.0, from.name)),
                None => queue.add(change.name),
            }
        }));
        ready.push(done);
    }
    for mut done in ready {
        tokio::select! {
            // An error means that the watch ended, which it does not before this function does.
            _ = done.wait_for(|done| *done) => {}
            () = shutdown.cancelled() => return,
        }
    }
    loop {
        let name = tokio::select! {
            () = shutdown.cancelled() => return,
            (name, _) = queue.next() => name,
        };
        if let Some(original) = originals.get(&name) {
            let result = match convert(&original) {
                Ok(wanted) => store(&client, &kind, &generated, &original, wanted, &copies).await,
                Err(error) => {
                    events.failed(&kind, &original, &format!("generating parameters: {error}"));
                    Ok(())
                }
            };
            match result {
                Ok(()) => queue.forget(&name),
                Err(error) => {
                    tracing::debug!(?name, error.message, "to be tried again");
                    queue.retry(name.clone());
                }
            }
        }
        queue.done(&name);
    }
}

fn source(copy: &DynamicObject) -> Option<ParametersReference> {
    serde_json::from_value(copy.data.get("generatedFrom")?.clone()).ok()
}

/// Creates or updates the generated object if it differs.
async fn store<P: Parameters>(
    client: &Client,
    kind: &ApiResource,
    generated: &ApiResource,
    original: &DynamicObject,
    mut wanted: P,
    copies: &Cache,
) -> Result<(), SyncError> {
    let metadata = &original.metadata;
    let own = metadata.namespace.clone().unwrap_or_default();
    let namespace = match own.as_str() {
        "" => DEFAULT_NAMESPACE.to_owned(),
        own => own.to_owned(),
    };
    let uid = metadata.uid.clone().unwrap_or_default();
    // One name per original: two attempts cannot create two objects.
    let name = format!("{}-{uid}", P::STEM);
    *wanted.generated_from() = Some(ParametersReference {
        api_group: kind.group.clone(),
        kind: kind.kind.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        namespace: if P::NAMES_NAMESPACE {
            own
        } else {
            String::new()
        },
    });
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, generated);
    let known = copies.get(&(namespace.clone(), name.clone()));
    let stored = match known {
        Some(known) => {
            let value = serde_json::to_value(&*known);
            let mut stored: P = value.and_then(serde_json::from_value).unwrap_or_default();
            *wanted.metadata() = stored.metadata().clone();
            if stored == wanted {
                return Ok(());
            }
            let mut object = DynamicObject::clone(&known);
            object.data = data(&wanted);
            api.replace(&name, &PostParams::default(), &object).await
        }
        None => {
            let mut object = DynamicObject::new(&name, generated).data(data(&wanted));
            object.metadata.owner_references = Some(vec![OwnerReference {
                api_version: kind.api_version.clone(),
                kind: kind.kind.clone(),
                name: metadata.name.clone().unwrap_or_default(),
                uid,
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]);
            api.create(&PostParams::default(), &object).await
        }
    };
    let stored = stored.map_err(|error| SyncError::of("store generated parameters", &error))?;
    copies.wrote(Arc::new(stored));
    Ok(())
}

/// Everything but the metadata.
fn data(parameters: &impl Serialize) -> serde_json::Value {
    let mut data = json!(parameters);
    if let Some(members) = data.as_object_mut() {
        members.remove("metadata");
    }
    data
}
