//! The aggregator: group versions that extension API servers serve, as kube-aggregator.
//!
//! One task follows the APIServices and makes the table of extensions. For each extension another one checks at intervals,
//! and when its APIService, its service or the service's endpoints change, whether the service answers: it writes the
//! condition `Available` and keeps what the service says about its resources, for discovery and in OpenAPI documents
//! ([`documents`]). [`proxy`] passes requests on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_store::{Error as StoreError, Event, Expect, ListOptions, Watcher, Write};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::Result;
use crate::extensions::{Discovered, Extension, OWN_GROUP};
use crate::object::{self, items, text};
use crate::own_objects;
use crate::select::extract;
use crate::state::ServerState;

mod check;
mod documents;
mod fetch;
mod head;
mod proxy;

use check::Condition;
pub(crate) use proxy::answer;

const PLURAL: &str = "apiservices";
const COLLECTION: &str = "apiregistration.k8s.io/apiservices";
const SERVICES: &str = "services";
const SLICES: &str = "discovery.k8s.io/endpointslices";
/// How often an extension that answers is checked, and its discovery document read again, as upstream.
const REFRESH: Duration = Duration::from_secs(60);
/// After the first failure; it doubles with each further one.
const RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How many extensions are checked at the same time, as upstream.
const WORKERS: usize = 5;
/// After an error of the store.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Makes the table of extensions and starts to follow changes.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn start(core: Arc<ServerState>) -> Result<()> {
    let mut keepers = Keepers::new(core.clone());
    let from = core.backend.revision();
    keepers.sync().await?;
    tokio::spawn(async move {
        let mut from = from;
        loop {
            match keepers.follow(from).await {
                Ok(()) | Err(StoreError::Closed) => return,
                // A watch that fell behind begins again, with a list and a check of everything.
                Err(error) => tracing::debug!(%error, "following APIServices"),
            }
            from = core.backend.revision();
            while let Err(error) = keepers.sync().await {
                tracing::warn!(%error, "following APIServices");
                if !core.pause(STORE_RETRY).await {
                    return;
                }
            }
            keepers.wake_all();
        }
    });
    Ok(())
}

/// The task that keeps the state of one extension.
struct Keeper {
    /// UID and spec of the APIService that it was made of.
    basis: Value,
    extension: Arc<Extension>,
    wake: Arc<Notify>,
    /// The condition that it wrote last.
    written: Arc<Mutex<Value>>,
    _stop: DropGuard,
}

/// All of them by the name of the APIService.
struct Keepers {
    core: Arc<ServerState>,
    all: HashMap<String, Keeper>,
    workers: Arc<Semaphore>,
    turns: Arc<documents::Turns>,
}

impl Keepers {
    fn new(core: Arc<ServerState>) -> Self {
        Keepers {
            core,
            all: HashMap::new(),
            workers: Arc::new(Semaphore::new(WORKERS)),
            turns: Arc::default(),
        }
    }

    /// Follows APIServices, services and endpoints until the server ends.
    async fn follow(&mut self, from: u64) -> Result<(), StoreError> {
        let core = self.core.clone();
        let watch = |collection: &str| core.backend.watch(collection, "", from);
        let mut definitions = watch(COLLECTION)?;
        let (mut services, mut slices) = (watch(SERVICES)?, watch(SLICES)?);
        loop {
            tokio::select! {
                () = core.shutdown.cancelled() => return Ok(()),
                changes = definitions.changes() => {
                    changes?;
                    while let Err(error) = self.sync().await {
                        tracing::warn!(%error, "following APIServices");
                        if !core.pause(STORE_RETRY).await {
                            return Ok(());
                        }
                    }
                }
                changes = relevant(&mut services, !self.all.is_empty()) => {
                    for event in changes? {
                        self.wake(|(namespace, name)| {
                            event.entry.key.strip_prefix(namespace.as_str())
                                .and_then(|rest| rest.strip_prefix('/')) == Some(name.as_str())
                        });
                    }
                }
                changes = relevant(&mut slices, !self.all.is_empty()) => {
                    for event in changes? {
                        self.wake_owner(&event);
                    }
                }
            }
        }
    }

    /// Wakes the keepers of the service that an EndpointSlice belongs to.
    fn wake_owner(&self, event: &Event) {
        let Some((namespace, _)) = event.entry.key.split_once('/') else {
            return;
        };
        if !self
            .all
            .values()
            .any(|it| it.extension.service.0 == namespace)
        {
            return;
        }
        let slice = extract(&event.entry.value, &["metadata.labels"]);
        let owner = &slice["metadata"]["labels"]["kubernetes.io/service-name"];
        self.wake(|service| service.0 == namespace && owner == service.1.as_str());
    }

    fn wake(&self, is_concerned: impl Fn(&(String, String)) -> bool) {
        for keeper in self.all.values() {
            if is_concerned(&keeper.extension.service) {
                keeper.wake.notify_one();
            }
        }
    }

    fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// Brings the table of extensions, and the conditions of APIServices without a service, in line with the store.
    async fn sync(&mut self) -> Result<()> {
        let page = self
            .core
            .backend
            .list(COLLECTION, ListOptions::default())
            .await?;
        let (mut current, mut local) = (HashMap::new(), Vec::new());
        for entry in page.entries {
            // What the store holds was written by this server as JSON.
            let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
            let name = entry.key.to_string();
            let basis = json!([object["metadata"]["uid"], object["spec"]]);
            let found = condition(&object);
            match self.all.remove(&name) {
                Some(keeper) if keeper.basis == basis => {
                    if found != *keeper.written.lock() {
                        keeper.wake.notify_one();
                    }
                    current.insert(name, keeper);
                }
                _ => {
                    let own = self.core.config.front_proxy.client.as_ref();
                    match Extension::of(&object, own) {
                        Some(extension) => {
                            extension.set_available(found["status"] == "True");
                            current.insert(name, self.keep(basis, extension));
                        }
                        None if object["spec"]["service"].is_object() => {}
                        None if found["status"] == "True" && found["reason"] == "Local" => {}
                        None => local.push((name, basis)),
                    }
                }
            }
        }
        self.all = current;
        let all = self.all.values().map(|keeper| keeper.extension.clone());
        self.core.extensions.set(all);
        // They say what the table already does.
        for (name, basis) in local {
            write(&self.core, &name, &basis, &Condition::local()).await?;
        }
        Ok(())
    }

    /// Starts the task of an extension.
    fn keep(&self, basis: Value, extension: Extension) -> Keeper {
        let (extension, stop) = (Arc::new(extension), CancellationToken::new());
        let keeper = Keeper {
            basis: basis.clone(),
            extension: extension.clone(),
            wake: Arc::default(),
            written: Arc::default(),
            _stop: stop.clone().drop_guard(),
        };
        let (wake, written) = (keeper.wake.clone(), keeper.written.clone());
        let (core, workers, turns) = (self.core.clone(), self.workers.clone(), self.turns.clone());
        tokio::spawn(async move {
            let (shutdown, answers) = (core.shutdown.clone(), Notify::new());
            let keep = keep(
                &core,
                &extension,
                &basis,
                (&wake, &answers),
                &written,
                &workers,
            );
            tokio::select! {
                () = stop.cancelled() => {}
                () = shutdown.cancelled() => {}
                () = keep => {}
                () = documents::keep(&core, &extension, &answers, &turns) => {}
            }
        });
        keeper
    }
}

/// The next changes of a watch. Without extensions nothing is looked at; the watch continues where they are now.
async fn relevant(watcher: &mut Watcher, wanted: bool) -> Result<Vec<Arc<Event>>, StoreError> {
    let changes = watcher.changes().await?;
    Ok(if wanted { changes } else { Vec::new() })
}

/// Checks an extension again and again, when it is woken and at intervals. Tells `answers` each time that it does answer.
async fn keep(
    core: &ServerState,
    extension: &Extension,
    basis: &Value,
    (wake, answers): (&Notify, &Notify),
    written: &Mutex<Value>,
    workers: &Semaphore,
) {
    let mut failures = 0;
    loop {
        let Ok(turn) = workers.acquire().await else {
            return;
        };
        let found = check::check(core, extension).await;
        extension.set_available(found.is_true());
        let resources = match found.is_true() {
            true => check::discover(core, extension).await,
            false => None,
        };
        drop(turn);
        if found.is_true() {
            answers.notify_one();
        }
        let is_current = resources.is_some();
        // What was known before stays, marked as stale.
        let resources = resources.unwrap_or_else(|| extension.discovered().resources.clone());
        extension.set_discovered(Discovered {
            resources,
            current: is_current,
        });
        match write(core, &extension.name, basis, &found).await {
            Ok(Some(condition)) => *written.lock() = condition,
            Ok(None) => {}
            Err(error) => {
                let name = &extension.name;
                tracing::warn!(name, %error, "the condition of an APIService");
            }
        }
        let pause = match is_current {
            true => {
                failures = 0;
                REFRESH
            }
            false => {
                let pause = RETRY.saturating_mul(1 << failures.min(10));
                failures += 1;
                pause.min(LONGEST_RETRY)
            }
        };
        // A change in the meantime is not lost.
        let _elapsed = tokio::time::timeout(pause, wake.notified()).await;
    }
}

/// The condition `Available` of an APIService.
fn condition(object: &Value) -> Value {
    let mut conditions = items(&object["status"]["conditions"]).iter();
    let found = conditions.find(|it| it["type"] == "Available");
    found.cloned().unwrap_or_default()
}

/// Writes the condition of an APIService unless it is there, or the APIService is another one by now. Returns the condition
/// as it is stored.
async fn write(
    core: &ServerState,
    name: &str,
    basis: &Value,
    found: &Condition,
) -> Result<Option<Value>> {
    /// How often a concurrent change is tolerated; the next check tries again.
    const ATTEMPTS: usize = 5;
    for _ in 0..ATTEMPTS {
        let Some(entry) = core.backend.get(COLLECTION, name).await? else {
            return Ok(None);
        };
        let mut object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        if json!([object["metadata"]["uid"], object["spec"]]) != *basis {
            return Ok(None);
        }
        let known = condition(&object);
        let same_status = known["status"] == found.status;
        let since = match text(&known, &["lastTransitionTime"]) {
            since if same_status && !since.is_empty() => since.to_owned(),
            _ => object::now(),
        };
        let wanted = json!({
            "type": "Available", "status": found.status, "lastTransitionTime": since,
            "reason": found.reason, "message": found.message,
        });
        if known == wanted {
            return Ok(Some(known));
        }
        let conditions = items(&object["status"]["conditions"]).iter();
        let others = conditions.filter(|it| it["type"] != "Available");
        let all: Vec<Value> = others.cloned().chain([wanted.clone()]).collect();
        object["status"]["conditions"] = all.into();
        let draft =
            own_objects::status_draft(&core.registry.load(), OWN_GROUP, PLURAL, &entry, &object)?;
        let write = Write::put(COLLECTION, name, Expect::Revision(entry.revision), draft);
        match core.backend.commit(write).await {
            Ok(_) => return Ok(Some(wanted)),
            Err(StoreError::Conflict(_) | StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
