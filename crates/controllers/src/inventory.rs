//! The metadata of all objects of all kinds, for garbage collection, namespaces and quotas.
//!
//! Kinds come from discovery, which is repeated when CRDs or the list of groups change. A kind that has an informer is
//! read from there. Every other kind is watched in its most stable version; everything but the
//! metadata is dropped on arrival.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::discovery::{ApiCapabilities, ApiResource, Scope, verbs};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::controller::context::Context;
use crate::controller::informer::{Change, Informer};
use crate::controller::meta;
use crate::served::Served;

mod discovered;
mod kind;
mod metadata;

use discovered::{Discovered, versions_of};
pub(crate) use kind::Kind;
pub(crate) use metadata::MetaObject;

/// Index of each kind's objects by namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";
/// How long the first lists may take before controllers start without the missing ones.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the list of groups is compared: extension API servers come and go without a CRD. As upstream.
const COMPARE: Duration = Duration::from_secs(30);
/// After a discovery that has left out groups.
const COMPLETE: Duration = Duration::from_secs(5);

/// Group and kind.
pub(crate) type GroupKind = (String, String);

type Handler = Arc<dyn Fn(&Arc<Kind>, &Change<MetaObject>) + Send + Sync>;

/// The kinds that the garbage collector and the namespace controller follow; cheap to clone.
#[derive(Clone)]
pub(crate) struct Inventory(Arc<Inner>);

struct Inner {
    context: Context,
    kinds: RwLock<BTreeMap<GroupKind, Arc<Kind>>>,
    handlers: Mutex<Vec<Handler>>,
    rediscover: Notify,
    failed: RwLock<Option<String>>,
    /// The group versions of the last discovery.
    listed: Mutex<BTreeSet<String>>,
}

fn namespace_of(obj: &MetaObject) -> Vec<String> {
    vec![meta::namespace(obj).to_owned()]
}

/// Whether objects of the kind are cached; not if they change often, own nothing and are owned by
/// nothing.
fn is_kept(resource: &ApiResource) -> bool {
    resource.kind != "Event"
}

impl Inventory {
    /// An inventory that begins to fill once its task runs (see [`Inventory::run`]).
    pub(crate) fn new(context: &Context, served: &Served) -> Self {
        let this = Self(Arc::new(Inner {
            context: context.clone(),
            kinds: RwLock::default(),
            handlers: Mutex::default(),
            rediscover: Notify::new(),
            failed: RwLock::default(),
            listed: Mutex::default(),
        }));
        if !served.has("apiextensions.k8s.io/v1", "customresourcedefinitions") {
            return this;
        }
        let crds = context.informer::<CustomResourceDefinition>();
        let weak = Arc::downgrade(&this.0);
        crds.on(move |change| {
            let established = |c: &CustomResourceDefinition| {
                let conditions = c.status.iter().flat_map(|s| s.conditions.iter().flatten());
                conditions
                    .filter(|c| c.type_ == "Established")
                    .any(|c| c.status == "True")
            };
            let news = match change {
                Change::Added(_) | Change::Deleted(_) => true,
                Change::Updated(old, new) => {
                    established(old) != established(new)
                        || meta::generation(&**old) != meta::generation(&**new)
                }
            };
            if let Some(inner) = weak.upgrade().filter(|_| news) {
                inner.rediscover.notify_one();
            }
        });
        this
    }

    /// Adds a handler for changes of all kinds. Call before the inventory runs.
    pub(crate) fn on(
        &self,
        handler: impl Fn(&Arc<Kind>, &Change<MetaObject>) + Send + Sync + 'static,
    ) {
        self.0.handlers.lock().push(Arc::new(handler));
    }

    /// The kind of that group and name.
    pub(crate) fn kind(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.0
            .kinds
            .read()
            .get(&(group.to_owned(), kind.to_owned()))
            .cloned()
    }

    /// Every kind.
    pub(crate) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.0.kinds.read().values().cloned().collect()
    }

    /// Why discovery failed the last time.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.failed.read().clone()
    }

    /// Discovers kinds and waits until all have their first list.
    pub(crate) async fn start(&self) {
        let mut delay = Duration::from_millis(50);
        while let Err(error) = self.discover().await {
            tracing::warn!(%error, "discovery failed");
            tokio::select! {
                () = self.0.context.shutdown.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
            delay = (delay * 2).min(Duration::from_secs(5));
        }
        let all = async {
            for kind in self.kinds() {
                if let Some(cache) = &kind.cache {
                    cache.wait_synced().await;
                }
            }
        };
        tokio::select! {
            // Caches that stop are never synced.
            () = self.0.context.shutdown.cancelled() => {}
            () = all => {}
            () = tokio::time::sleep(SYNC_TIMEOUT) => {
                tracing::warn!("some kinds could not be listed; going on without them");
            }
        }
    }

    /// Follows new and removed kinds until shutdown.
    pub(crate) async fn run(self) {
        loop {
            let pause = match self.failure() {
                Some(_) => COMPLETE,
                None => COMPARE,
            };
            tokio::select! {
                () = self.0.context.shutdown.cancelled() => return,
                // Batches CRDs that arrive together.
                () = self.0.rediscover.notified() => tokio::time::sleep(Duration::from_millis(50)).await,
                () = tokio::time::sleep(pause) => {
                    if self.failure().is_none() && !self.has_other_groups().await {
                        continue;
                    }
                }
            }
            if let Err(error) = self.discover().await {
                tracing::warn!(%error, "discovery failed, will retry");
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.0.rediscover.notify_one();
            }
        }
    }

    /// Whether the server lists other group versions than at the last discovery.
    async fn has_other_groups(&self) -> bool {
        let Ok(groups) = self.0.context.client.list_api_groups().await else {
            return false;
        };
        versions_of(&groups) != *self.0.listed.lock()
    }

    async fn discover(&self) -> Result<(), kube::Error> {
        let listed = match self.0.context.client.list_api_groups().await {
            Ok(groups) => versions_of(&groups),
            Err(_) => BTreeSet::new(),
        };
        let discovered = match Discovered::read(&self.0.context.client).await {
            Ok(discovered) => discovered,
            Err(error) => {
                *self.0.failed.write() = Some(error.to_string());
                return Err(error);
            }
        };
        *self.0.listed.lock() = listed;
        *self.0.failed.write() = discovered.error();
        let mut current: BTreeMap<GroupKind, Arc<Kind>> = BTreeMap::new();
        for group in discovered.discovery.groups() {
            for (resource, capabilities) in group.resources_by_stability() {
                let can = |verb| capabilities.supports_operation(verb);
                if !can(verbs::LIST) || !can(verbs::WATCH) || !can(verbs::DELETE) {
                    continue;
                }
                // events.k8s.io and the core group serve the same objects.
                if resource.group == "events.k8s.io" {
                    continue;
                }
                let id = (resource.group.clone(), resource.kind.clone());
                let known = self.0.kinds.read().get(&id).cloned();
                let kind = match known {
                    Some(kind) if kind.resource == resource => kind,
                    _ => self.open(resource, &capabilities),
                };
                current.insert(id, kind);
            }
        }
        let mut kinds = self.0.kinds.write();
        for (id, kind) in &*kinds {
            // What is known of a group stays while the group cannot be read.
            if discovered.failed.contains_key(&id.0) {
                current.insert(id.clone(), kind.clone());
            }
            if current.get(id).is_none_or(|c| !Arc::ptr_eq(c, kind)) {
                kind.stop.cancel();
            }
        }
        *kinds = current;
        Ok(())
    }

    /// Follows a kind of which nothing is known yet.
    fn open(&self, resource: ApiResource, capabilities: &ApiCapabilities) -> Arc<Kind> {
        let stop = self.0.context.shutdown.child_token();
        let cache = is_kept(&resource).then(Informer::<MetaObject>::new);
        let kind = Arc::new(Kind {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
            delete_collection: capabilities.supports_operation(verbs::DELETE_COLLECTION),
            cache: cache.clone(),
            stop: stop.clone(),
        });
        if let Some(cache) = cache {
            cache.index(BY_NAMESPACE, namespace_of);
            for handler in self.0.handlers.lock().iter().cloned() {
                let kind = Arc::downgrade(&kind);
                cache.on(move |change| {
                    if let Some(kind) = kind.upgrade() {
                        handler(&kind, change);
                    }
                });
            }
            self.fill(&kind.resource, cache, stop);
        }
        kind
    }

    /// Fills a cache from the existing informer of the kind, or with a separate watch.
    fn fill(&self, resource: &ApiResource, cache: Informer<MetaObject>, stop: CancellationToken) {
        let (context, sink) = (&self.0.context, cache.clone());
        let shared = context.follow_metadata(
            &resource.group,
            &resource.plural,
            Box::new(move |metadata, gone| {
                let object = MetaObject::new(metadata);
                if gone {
                    sink.delete(&object);
                } else {
                    sink.apply(object);
                }
            }),
        );
        if shared {
            cache.set_synced();
        } else {
            let api = Api::all_with(context.client.clone(), resource);
            tokio::spawn(cache.run(api, stop));
        }
    }
}
