//! A small Kubernetes API in memory: just what scheduler and controllers use. Deterministic, unlike a real server.
//!
//! This is the store; requests, watches and faults are in [`super::transport`]. Which kinds there are follows from the
//! [`Release`]; what has to hold, from the simulation that uses it ([`Rules`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

/// The newest version of `resource.k8s.io` in a release.
const NEWEST: &str = "";
/// Every release.
const ALL: RangeInclusive<u32> = 26..=36;
/// Releases that have classic kinds.
const CLASSIC: RangeInclusive<u32> = 26..=30;

/// Collections by path, with the kind of what is in them, its version, and the releases that have it.
const KINDS: [(&str, &str, &str, RangeInclusive<u32>); 23] = [
    ("nodes", "Node", "v1", ALL),
    ("pods", "Pod", "v1", ALL),
    ("namespaces", "Namespace", "v1", ALL),
    ("resourcequotas", "ResourceQuota", "v1", ALL),
    ("persistentvolumeclaims", "PersistentVolumeClaim", "v1", ALL),
    ("persistentvolumes", "PersistentVolume", "v1", ALL),
    ("storageclasses", "StorageClass", "storage.k8s.io/v1", ALL),
    ("csinodes", "CSINode", "storage.k8s.io/v1", ALL),
    ("csidrivers", "CSIDriver", "storage.k8s.io/v1", ALL),
    (
        "volumeattachments",
        "VolumeAttachment",
        "storage.k8s.io/v1",
        ALL,
    ),
    (
        "csistoragecapacities",
        "CSIStorageCapacity",
        "storage.k8s.io/v1",
        ALL,
    ),
    (
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "policy/v1",
        ALL,
    ),
    ("resourceclaims", "ResourceClaim", NEWEST, ALL),
    (
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        NEWEST,
        ALL,
    ),
    ("resourceslices", "ResourceSlice", NEWEST, 30..=36),
    ("deviceclasses", "DeviceClass", NEWEST, 36..=36),
    (
        "devicetaintrules",
        "DeviceTaintRule",
        "resource.k8s.io/v1beta2",
        36..=36,
    ),
    (
        "podgroups",
        "PodGroup",
        "scheduling.k8s.io/v1alpha2",
        36..=36,
    ),
    ("resourceclasses", "ResourceClass", NEWEST, CLASSIC),
    ("podschedulings", "PodScheduling", NEWEST, 26..=26),
    (
        "podschedulingcontexts",
        "PodSchedulingContext",
        NEWEST,
        27..=30,
    ),
    (
        "resourceclaimparameters",
        "ResourceClaimParameters",
        NEWEST,
        30..=30,
    ),
    (
        "resourceclassparameters",
        "ResourceClassParameters",
        NEWEST,
        30..=30,
    ),
];

/// A release of Kubernetes.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// The minor version.
    pub minor: u32,
    /// Versions of `resource.k8s.io`, newest first.
    pub versions: &'static [&'static str],
}

impl Release {
    /// The collections that it has: path, kind and version.
    pub fn kinds(self) -> impl Iterator<Item = (&'static str, &'static str, String)> {
        let has = KINDS
            .into_iter()
            .filter(move |(.., in_)| in_.contains(&self.minor));
        has.map(move |(collection, kind, version, _)| match version {
            NEWEST => (
                collection,
                kind,
                format!("resource.k8s.io/{}", self.versions[0]),
            ),
            version => (collection, kind, version.to_owned()),
        })
    }
}

/// What a simulation has to say about objects.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Whether validation lets a change pass: collection, whether it is one of the status, before and after.
    pub allow: fn(&str, bool, &Value, &Value) -> bool,
    /// What has to hold after every write; says what does not.
    pub broken: fn(&State) -> Option<String>,
}

/// Collection, and namespace with name.
pub type Id = (String, String);

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object.
    NotFound,
    /// It is not what the request says it is.
    Conflict,
    /// There is one of that name already.
    Exists,
    /// The new state is not allowed.
    Invalid,
}

/// The connected processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// One of the schedulers: each is for other pods, all for the same devices.
    Scheduler(usize),
    Controllers,
}

pub struct Watch {
    pub collection: String,
    pub sender: UnboundedSender<String>,
}

/// The state of the API.
pub struct State {
    pub release: Release,
    pub rules: Rules,
    pub objects: BTreeMap<Id, Value>,
    pub log: VecDeque<(u64, String, String)>,
    pub version: u64,
    pub watches: Vec<Watch>,
    pub rng: StdRng,
    /// Chance of a fault per request, in percent.
    pub faults: u32,
    /// How often watches break: the chance that the history is gone when one is asked for, in percent; a tenth of a
    /// percent of that is the chance at each event.
    pub breaks: u32,
    /// Chance that the writing process dies before it gets the answer, in thousandths.
    pub deaths: u32,
    /// Chance that a request which was under way when its sender died is carried out nevertheless, in percent.
    pub late: u32,
    /// Processes that died and must be restarted.
    pub dead: Vec<Who>,
    /// UIDs of all pods and groups that ever existed.
    pub born: BTreeSet<String>,
    /// What was written, for comparing runs.
    pub trace: Vec<String>,
    /// A broken invariant.
    pub broken: Option<String>,
}

/// The API; cheap to clone.
#[derive(Clone)]
pub struct Api(pub Arc<Mutex<State>>);

/// Where an object is.
pub fn id(collection: &str, namespace: &str, name: &str) -> Id {
    (collection.to_owned(), format!("{namespace}/{name}"))
}

/// Where a given object is.
pub fn at(collection: &str, object: &Value) -> Id {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    id(collection, text("namespace"), text("name"))
}

/// What a claim got.
pub fn results_of(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["status"]["allocation"]["devices"]["results"]
        .as_array()
        .into_iter()
        .flatten()
}

/// Devices that a claim holds.
pub fn devices_of(claim: &Value) -> impl Iterator<Item = &str> {
    results_of(claim).filter_map(|r| r["device"].as_str())
}

impl Api {
    /// An empty API.
    pub fn new(seed: u64, release: Release, rules: Rules) -> Self {
        Self(Arc::new(Mutex::new(State {
            release,
            rules,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            version: 100,
            watches: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            faults: 0,
            breaks: 0,
            deaths: 0,
            late: 0,
            dead: Vec::new(),
            born: BTreeSet::new(),
            trace: Vec::new(),
            broken: None,
        })))
    }

    /// An object.
    pub fn get(&self, id: &Id) -> Option<Value> {
        self.0.lock().objects.get(id).cloned()
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.0.lock().version
    }

    /// All objects of a collection.
    pub fn all(&self, collection: &str) -> Vec<Value> {
        let s = self.0.lock();
        let of = |((c, _), _): &(&Id, &Value)| c == collection;
        s.objects
            .iter()
            .filter(of)
            .map(|(_, o)| o.clone())
            .collect()
    }

    /// Creates an object.
    pub fn create(&self, collection: &str, mut object: Value) -> Result<Value, Refusal> {
        let (serial, release) = {
            let s = self.0.lock();
            (s.version, s.release)
        };
        let known = release.kinds().find(|(c, ..)| *c == collection);
        let (_, kind, version) = known.expect("a kind of the release");
        object["kind"] = kind.into();
        object["apiVersion"] = version.into();
        let meta = &mut object["metadata"];
        if let (Some(prefix), None) = (meta["generateName"].as_str(), meta["name"].as_str()) {
            meta["name"] = format!("{prefix}{serial}").into();
        }
        meta["uid"] = format!("uid-{serial}").into();
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        let id = at(collection, &object);
        if self.get(&id).is_some() {
            return Err(Refusal::Exists);
        }
        self.put(id, object)
    }

    /// Stores an object in a new version and tells the watches. What is being deleted and held by nothing goes.
    pub fn put(&self, id: Id, mut object: Value) -> Result<Value, Refusal> {
        let mut s = self.0.lock();
        let old = s.objects.get(&id);
        if old.is_some_and(|old| {
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            object == *old
        }) {
            return Ok(object);
        }
        // The status of devices that are no longer allocated to a claim is removed.
        if object["status"]["allocation"].is_null()
            && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
            && id.0 == "resourceclaims"
        {
            status.remove("devices");
        }
        s.version += 1;
        object["metadata"]["resourceVersion"] = s.version.to_string().into();
        let finalizers = object["metadata"]["finalizers"].as_array();
        let held = finalizers.is_some_and(|f| !f.is_empty()) || id.0 == "pods";
        let what = match s.objects.contains_key(&id) {
            true if !object["metadata"]["deletionTimestamp"].is_null() && !held => "DELETED",
            true => "MODIFIED",
            false => "ADDED",
        };
        if what == "DELETED" {
            s.objects.remove(&id);
        } else {
            s.objects.insert(id.clone(), object.clone());
        }
        if id.0 == "pods" || id.0 == "podgroups" {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            s.born.insert(uid.to_owned());
        }
        s.tell(what, &id, &object);
        Ok(object)
    }

    /// Deletes an object. With finalizers, or as a pod on a node, it is only marked: the answer is what is left.
    pub fn delete(&self, id: &Id, uid: Option<&str>) -> Result<Option<Value>, Refusal> {
        let mut object = self.get(id).ok_or(Refusal::NotFound)?;
        if uid.is_some_and(|uid| object["metadata"]["uid"] != *uid) {
            return Err(Refusal::Conflict);
        }
        let finalizers = object["metadata"]["finalizers"].as_array();
        let on_node = id.0 == "pods" && object["spec"]["nodeName"].is_string();
        if finalizers.is_none_or(|f| f.is_empty()) && !on_node {
            self.remove(id);
            return Ok(None);
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            object = self.put(id.clone(), object)?;
        }
        Ok(Some(object))
    }

    /// Removes an object, whatever holds it.
    pub fn remove(&self, id: &Id) {
        let mut s = self.0.lock();
        let Some(mut object) = s.objects.remove(id) else {
            return;
        };
        s.version += 1;
        object["metadata"]["resourceVersion"] = s.version.to_string().into();
        s.tell("DELETED", id, &object);
    }

    /// Applies a patch to an object, or to its status.
    pub fn patch(
        &self,
        id: &Id,
        status: bool,
        patch: &Value,
        strategic: bool,
    ) -> Result<Value, Refusal> {
        let old = self.expected(id, patch)?;
        let mut new = old.clone();
        if status {
            merge(&mut new, &json!({"status": patch["status"]}), strategic);
        } else {
            merge(&mut new, patch, strategic);
            match old.get("status") {
                Some(status) => new["status"] = status.clone(),
                None => drop(new.as_object_mut().and_then(|o| o.remove("status"))),
            }
        }
        self.change(id, status, &old, new)
    }

    /// Replaces the status of an object.
    pub fn put_status(&self, id: &Id, body: &Value) -> Result<Value, Refusal> {
        let old = self.expected(id, body)?;
        let mut new = old.clone();
        new["status"] = body["status"].clone();
        self.change(id, true, &old, new)
    }

    /// The object that a change is meant for.
    fn expected(&self, id: &Id, change: &Value) -> Result<Value, Refusal> {
        let old = self.get(id).ok_or(Refusal::NotFound)?;
        let meta = &change["metadata"];
        let differs = |field: &str| !meta[field].is_null() && meta[field] != old["metadata"][field];
        match differs("resourceVersion") || differs("uid") {
            true => Err(Refusal::Conflict),
            false => Ok(old),
        }
    }

    fn change(&self, id: &Id, status: bool, old: &Value, new: Value) -> Result<Value, Refusal> {
        let allow = self.0.lock().rules.allow;
        match allow(&id.0, status, old, &new) {
            true => self.put(id.clone(), new),
            false => Err(Refusal::Invalid),
        }
    }
}

impl State {
    fn tell(&mut self, what: &str, id: &Id, object: &Value) {
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        let devices: Vec<&str> = devices_of(object).collect();
        let users = object["status"]["reservedFor"].as_array();
        let users = users
            .into_iter()
            .flatten()
            .filter_map(|u| u["name"].as_str());
        let entry = format!(
            "{} {what} {} {} {node} {} {}",
            self.version,
            id.0,
            id.1,
            devices.join(","),
            users.collect::<Vec<_>>().join(","),
        );
        self.trace.push(entry);
        let line = format!("{}\n", json!({"type": what, "object": object}));
        let collection = id.0.clone();
        self.watches
            .retain(|w| w.collection != collection || w.sender.send(line.clone()).is_ok());
        self.log.push_back((self.version, collection, line));
        if self.broken.is_none() {
            self.broken = (self.rules.broken)(self);
        }
    }
}

/// JSON merge patch; lists with a merge key as the strategic one has them.
fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(patch) = patch else { return };
    // The order of elements decides nothing here.
    let ordered = |key: &String| strategic && key.starts_with("$setElementOrder/");
    for (key, value) in patch.iter().filter(|(key, _)| !ordered(key)) {
        match value {
            Value::Null => {
                if let Some(map) = target.as_object_mut() {
                    map.remove(key);
                }
            }
            Value::Object(_) => {
                if !target[key].is_object() {
                    target[key] = json!({});
                }
                merge(&mut target[key], value, strategic);
            }
            Value::Array(items) if strategic => {
                let merge_key = match key.as_str() {
                    "conditions" => "type",
                    "resourceClaimStatuses" => "name",
                    _ => "uid",
                };
                let mut list = target[key].as_array().cloned().unwrap_or_default();
                for item in items {
                    list.retain(|old| old[merge_key] != item[merge_key]);
                    if item["$patch"] != "delete" {
                        list.push(item.clone());
                    }
                }
                target[key] = list.into();
            }
            other => target[key] = other.clone(),
        }
    }
}
