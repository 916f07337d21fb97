//! Endpoints and EndpointSlices: the pods of services.
//!
//! Nothing here routes traffic; these objects are for clients and `kubectl get endpoints`. Both controllers do the same
//! with different objects, so they share everything but the writing.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Change, Informer, Key, key_of, split_key};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;

const BY_NAMESPACE: &str = "namespace";
const BY_SERVICE: &str = "service";

/// Services with the pods behind them, for both controllers.
struct Services {
    client: Client,
    services: Informer<Service>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

fn namespace_of<K: kube::Resource>(object: &K) -> Vec<String> {
    vec![meta::namespace(object).to_owned()]
}

impl Services {
    fn new(context: &Context, name: &'static str) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            services: context.informer::<Service>(),
            pods: context.informer::<Pod>(),
            queue: context.queue(name),
        });
        this.pods.index(BY_NAMESPACE, namespace_of);
        this.services.index(BY_NAMESPACE, namespace_of);
        let queue = this.queue.clone();
        this.services
            .on(move |change| queue.add(key_of(&**change.object())));
        let weak = Arc::downgrade(&this);
        this.pods.on(move |change| {
            if let Some(this) = weak.upgrade() {
                this.pod_changed(change);
            }
        });
        this
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        if self.services.is_empty() || !plan::matters(change.old().map(|p| &**p), change) {
            return;
        }
        let namespace = meta::namespace(&**change.object());
        for service in self.services.by_index(BY_NAMESPACE, namespace) {
            let versions = change.old().into_iter().chain([change.object()]);
            if versions.into_iter().any(|pod| plan::selects(&service, pod)) {
                self.queue.add(key_of(&*service));
            }
        }
    }

    /// A service with the pods that it selects; users write the endpoints of services without a selector themselves.
    fn selected(&self, key: &str) -> Option<(Arc<Service>, Vec<Arc<Pod>>)> {
        let service = self.services.get(key)?;
        if meta::deleting(&*service) || !plan::has_selector(&service) {
            return None;
        }
        let mut pods = self.pods.by_index(BY_NAMESPACE, meta::namespace(&*service));
        pods.retain(|pod| plan::selects(&service, pod));
        Some((service, pods))
    }
}

/// Sets the controller of Endpoints up.
pub(crate) fn endpoints(context: &Context) -> Task {
    let services = Services::new(context, "endpoint");
    let objects = context.informer::<Whole<Endpoints>>();
    let queue = services.queue.clone();
    let again = queue.clone();
    // Another component changed or removed an object of this controller: both have the service's name.
    objects.on(move |change| again.add(key_of(&**change.object())));
    let both = Arc::new((services, objects));
    context.run_workers(queue, both, |both, key| async move {
        sync_endpoints(&both.0, &both.1, &key).await
    })
}

async fn sync_endpoints(
    services: &Services,
    objects: &Informer<Whole<Endpoints>>,
    key: &str,
) -> Result<Next, Error> {
    let (namespace, name) = split_key(key);
    let api: Api<Whole<Endpoints>> = Api::namespaced(services.client.clone(), namespace);
    let existing = objects.get(key);
    let Some((service, pods)) = services.selected(key) else {
        // Endpoints of a deleted service are deleted, too; those created by hand stay.
        let orphan = existing.filter(|e| {
            services.services.get(key).is_none() && plan::is_ours(&e.metadata, plan::ENDPOINTS)
        });
        if let Some(orphan) = orphan {
            api::delete_cached(objects, &api, &*orphan, Delete::default()).await?;
        }
        return Ok(Next::Done);
    };
    let wanted = plan::endpoints(&service, &pods);
    match existing {
        None => {
            let new: Whole<Endpoints> = api::create(&services.client, &api, &wanted).await?;
            objects.assume(new);
        }
        Some(old) if plan::differs(old.at(""), &wanted, &["subsets"]) => {
            let body = with_version(&wanted, &*old);
            let new = api::patch(&api, name, Part::Main, &body).await?;
            objects.assume(new);
        }
        Some(_) => {}
    }
    Ok(Next::Done)
}

/// Sets the controller of EndpointSlices up.
pub(crate) fn slices(context: &Context) -> Task {
    let services = Services::new(context, "endpoint_slice");
    let objects = context.informer::<Whole<EndpointSlice>>();
    objects.index(BY_SERVICE, |slice: &Whole<EndpointSlice>| {
        plan::service_of(slice).into_iter().collect()
    });
    let queue = services.queue.clone();
    let again = queue.clone();
    objects.on(move |change| {
        let versions = change.old().into_iter().chain([change.object()]);
        for service in versions.into_iter().filter_map(|s| plan::service_of(s)) {
            again.add(service);
        }
    });
    let both = Arc::new((services, objects));
    context.run_workers(queue, both, |both, key| async move {
        sync_slices(&both.0, &both.1, &key).await
    })
}

async fn sync_slices(
    services: &Services,
    objects: &Informer<Whole<EndpointSlice>>,
    key: &str,
) -> Result<Next, Error> {
    let (namespace, _) = split_key(key);
    let api: Api<Whole<EndpointSlice>> = Api::namespaced(services.client.clone(), namespace);
    let existing = objects.by_index(BY_SERVICE, key);
    let mut wanted = match services.selected(key) {
        Some((service, pods)) => plan::slices(&service, &pods),
        // The garbage collector deletes the slices of a deleted service.
        None => return Ok(Next::Done),
    };
    // First slices that can stay unchanged, then those to update: slices are not created and deleted without need.
    let mut rest = Vec::new();
    for old in existing {
        let same = |new: &Value| !plan::differs(old.at(""), new, &["endpoints", "ports"]);
        match wanted.iter().position(same) {
            Some(at) => drop(wanted.swap_remove(at)),
            None => rest.push(old),
        }
    }
    for new in wanted {
        let reusable =
            |old: &Arc<Whole<EndpointSlice>>| old.at("/addressType") == &new["addressType"];
        if let Some(at) = rest.iter().position(reusable) {
            let old = rest.swap_remove(at);
            let body = with_version(&new, &*old);
            let changed = api::patch(&api, meta::name(&*old), Part::Main, &body).await?;
            objects.assume(changed);
        } else {
            let created = api::create(&services.client, &api, &new).await?;
            objects.assume(created);
        }
    }
    for old in rest {
        api::delete_cached(objects, &api, &*old, Delete::default()).await?;
    }
    Ok(Next::Done)
}

/// The wanted content as a patch that conflicts if the object changed since it was read.
fn with_version<K: kube::Resource>(wanted: &Value, old: &K) -> Value {
    let mut body = wanted.clone();
    body["metadata"] = json!({
        "uid": meta::uid(old),
        "resourceVersion": old.meta().resource_version,
        "labels": wanted["metadata"]["labels"],
    });
    body
}
