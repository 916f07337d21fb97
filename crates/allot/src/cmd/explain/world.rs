//! A cluster as the scheduler sees it, made of objects from anywhere.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allot_model::features::Feature;
use allot_model::{Kind, Version, convert, defaults, migrate};
use allot_reflector::Observed;
use allot_scheduler::Config;
use allot_scheduler::core::{Core, Input, Time, has_gangs};
use allot_scheduler::dra::podgroup::PodGroup;
use allot_scheduler::metrics::Metrics;
use allot_scheduler::pod::{Key, PodInfo};
use allot_scheduler::taint_rules::DeviceTaintRule;
use allot_scheduler::watched::{self, POD_GROUPS, Plain, TAINT_RULES, Visitor};
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cmd::manifests::{title, typed};
use crate::cmd::snapshot::{Hidden, Kinds, Picture};

/// What identifies an object: kind, namespace, name.
type Identity = (String, String, String);

/// The objects of a cluster, and what was added to them.
pub struct World {
    objects: Vec<Value>,
    hidden: Vec<Hidden>,
    places: HashMap<Identity, usize>,
    namespace: String,
    now: Timestamp,
}

/// A scheduler that has seen them.
pub struct Loaded {
    /// The scheduler.
    pub core: Core,
    /// The taints of nodes that have any.
    pub taints: HashMap<String, Vec<Taint>>,
    /// All pods.
    pub pods: HashMap<(String, String), Arc<PodInfo>>,
    /// Templates of claims, by namespace and name.
    pub templates: HashSet<(String, String)>,
    /// Whether the pods of gangs are placed together.
    pub has_gangs: bool,
    /// The gangs, where they are not.
    pub gangs_off: HashSet<Key>,
    /// What it can not have seen.
    pub hidden: Vec<Hidden>,
    /// When that was.
    pub time: Time,
}

impl World {
    /// A world of these objects. `namespace` is meant where an added object has none.
    pub fn new(picture: Picture, namespace: String) -> Self {
        let Picture { objects, about, .. } = picture;
        let places = objects.iter().enumerate();
        let places = places.map(|(at, object)| (identity(object), at)).collect();
        Self {
            objects,
            hidden: about.hidden,
            places,
            namespace,
            // What waits for a time waits for it in a file for ever.
            now: about.time.unwrap_or_else(Timestamp::now),
        }
    }

    /// Adds objects as a user writes them: older versions are converted, defaults filled in, claims of added pods made
    /// from their templates. Returns the pods among them.
    ///
    /// # Errors
    /// An object has no name, or is of no version that can be read.
    pub fn add(&mut self, objects: Vec<Value>) -> anyhow::Result<Vec<(String, String)>> {
        let mut pods = Vec::new();
        let objects = objects.into_iter().map(pod_of_template);
        for (number, mut object) in objects.enumerate() {
            if let (Value::Null, Value::String(prefix)) = (
                &object["metadata"]["name"],
                &object["metadata"]["generateName"],
            ) {
                object["metadata"]["name"] = json!(format!("{prefix}{number}"));
            }
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            anyhow::ensure!(
                text("/metadata/name").is_some_and(|name| !name.is_empty()),
                "{} has no name",
                title(&object)
            );
            if let Some(kind) = text("/kind").and_then(Kind::from_name) {
                object = current(kind, object, self.now)?;
            }
            let is_pod = object["kind"] == "Pod";
            if is_pod {
                // What a pod may say about claims in the form of 1.30, and what the server would fill in.
                migrate::pod::flatten_claims(&mut object);
                allot_schema::defaults::apply("", "v1", "Pod", &mut object);
            }
            if object["kind"].as_str().is_some_and(has_namespace) {
                let namespace = &mut object["metadata"]["namespace"];
                if namespace.is_null() {
                    *namespace = json!(self.namespace);
                }
            }
            let uid = &mut object["metadata"]["uid"];
            if uid.is_null() {
                *uid = json!(format!("added-{number}"));
            }
            let (_, namespace, name) = identity(&object);
            if is_pod {
                self.remove_claims_of(&namespace, &name);
            }
            self.put(object);
            if is_pod {
                pods.push((namespace, name));
            }
        }
        for pod in &pods {
            self.make_claims(pod);
        }
        Ok(pods)
    }

    /// A pod that is replaced gives back the claims that were made for it.
    fn remove_claims_of(&mut self, namespace: &str, name: &str) {
        let Some(uid) = self
            .get("Pod", namespace, name)
            .map(|p| p["metadata"]["uid"].clone())
        else {
            return;
        };
        for object in self
            .objects
            .iter_mut()
            .filter(|o| o["kind"] == "ResourceClaim")
        {
            let owners = object["metadata"]["ownerReferences"].as_array();
            if owners
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == uid)
            {
                self.places.remove(&identity(object));
                *object = Value::Null;
            }
        }
    }

    fn put(&mut self, object: Value) {
        let identity = identity(&object);
        match self.places.get(&identity) {
            Some(at) => self.objects[*at] = object,
            None => {
                self.places.insert(identity, self.objects.len());
                self.objects.push(object);
            }
        }
    }

    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.places.get(&identity).map(|at| &self.objects[*at])
    }

    /// Makes the claims of a pod that come from templates, as the claim controller would, and gives it the priority of
    /// its class.
    fn make_claims(&mut self, (namespace, name): &(String, String)) {
        let Some(mut pod) = self.get("Pod", namespace, name).cloned() else {
            return;
        };
        let mut statuses = Vec::new();
        for entry in pod["spec"]["resourceClaims"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let (Some(entry_name), Some(template)) = (
                entry["name"].as_str(),
                entry["resourceClaimTemplateName"].as_str(),
            ) else {
                continue;
            };
            let found = self.get("ResourceClaimTemplate", namespace, template);
            let Some(found) = found else {
                // The answer about the pod says so.
                continue;
            };
            let claim_name = format!("{name}-{entry_name}");
            let claim = json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": claim_name,
                    "namespace": namespace,
                    "uid": format!("{}-{entry_name}", pod["metadata"]["uid"].as_str().unwrap_or_default()),
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Pod", "name": name, "controller": true,
                        "uid": pod["metadata"]["uid"],
                    }],
                },
                "spec": found["spec"]["spec"],
            });
            statuses.push(json!({"name": entry_name, "resourceClaimName": claim_name}));
            self.put(claim);
        }
        if !statuses.is_empty() {
            pod["status"]["resourceClaimStatuses"] = json!(statuses);
        }
        let class = pod["spec"]["priorityClassName"].as_str();
        let class = class.and_then(|class| self.get("PriorityClass", "", class));
        if let (Some(class), true) = (class, pod["spec"]["priority"].is_null()) {
            let value = class["value"].clone();
            pod["spec"]["priority"] = value;
        }
        self.put(pod);
    }

    /// Shows everything to a scheduler.
    ///
    /// # Errors
    /// An object that is not what its kind says; the message names it.
    pub fn load(self, mut config: Config) -> anyhow::Result<Loaded> {
        let time = Time {
            now: Duration::ZERO,
            wall: self.now,
        };
        let objects: Vec<Value> = self.objects;
        if !config.features.enabled(Feature::DRADeviceTaints) {
            config.features = config.features.with(Feature::DRADeviceTaintRules, false);
        }
        let rules = config.features.enabled(Feature::DRADeviceTaintRules);
        let has_gangs = has_gangs(&config.features);
        let mut show = Show {
            core: Core::new(config, Metrics::new()),
            objects: &objects,
            time,
            result: Ok(()),
        };
        watched::everywhere(&mut show);
        watched::of_devices(&mut show);
        show.result?;
        let mut core = show.core;
        let nodes: Vec<Node> = typed(&objects, "Node")?;
        let taints = nodes.iter().filter_map(|node| {
            let taints = node.spec.as_ref()?.taints.clone()?;
            Some((node.metadata.name.clone()?, taints))
        });
        let taints = taints.collect();
        if rules {
            let rules: Vec<DynamicObject> = typed(&objects, TAINT_RULES.kind)?;
            let rules = rules.iter().filter_map(DeviceTaintRule::read).collect();
            core.handle(Input::TaintRule(listed(rules)), time);
        }
        let groups: Vec<DynamicObject> = typed(&objects, POD_GROUPS.kind)?;
        let groups: Vec<PodGroup> = groups.iter().filter_map(PodGroup::read).collect();
        let gangs_off = groups
            .iter()
            .filter(|g| !has_gangs && g.min_count.is_some());
        let gangs_off = gangs_off.map(|g| g.key.clone()).collect();
        core.handle(Input::PodGroup(listed(groups)), time);
        let templates = objects.iter().map(identity);
        let templates = templates.filter(|(kind, ..)| kind == "ResourceClaimTemplate");
        let templates = templates.map(|(_, namespace, name)| (namespace, name));
        let templates = templates.collect();
        let pods: Vec<Pod> = typed(&objects, "Pod")?;
        // The scheduler forgets of pods on nodes what they mean to themselves.
        let key = |pod: &PodInfo| (pod.key.namespace.to_string(), pod.key.name.to_string());
        let whole = pods
            .iter()
            .map(|pod| Arc::new(PodInfo::new(Arc::new(pod.clone()))));
        let whole = whole.map(|pod| (key(&pod), pod)).collect();
        let observed = pods.into_iter().map(PodInfo::observed).map(Arc::new);
        let unfinished = observed.filter(|pod| !pod.is_finished());
        core.handle(Input::Pod(listed(unfinished.collect())), time);
        Ok(Loaded {
            core,
            taints,
            pods: whole,
            templates,
            has_gangs,
            gangs_off,
            hidden: self.hidden,
            time,
        })
    }
}

/// Kinds of which every further object can only make less fit.
const MORE_MEANS_LESS: [&str; 3] = ["Pod", "ResourceClaim", "DeviceTaintRule"];

impl Loaded {
    /// The resource whose objects in a namespace are not shown.
    pub fn unseen(&self, kind: &str, namespace: &str) -> Option<&str> {
        let of_kind = |h: &&Hidden| h.kind == kind && h.seen_in.as_deref() != Some(namespace);
        let found = self.hidden.iter().find(of_kind);
        found.map(|hidden| &*hidden.resource)
    }

    /// What is not shown without which any answer about a pod that waits would be wrong.
    pub fn lacking(&self, pod: &PodInfo) -> Vec<Hidden> {
        let namespace = &*pod.key.namespace;
        let has_claims = pod.spec().resource_claims.iter().flatten().next().is_some();
        let mut volumes = pod.spec().volumes.iter().flatten();
        let has_volumes =
            volumes.any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
        let lacks = |hidden: &&Hidden| match &*hidden.kind {
            // Classes may also stand for extended resources.
            "Node" | "DeviceClass" | "ResourceSlice" => true,
            "PodGroup" => {
                self.has_gangs
                    && pod.group().is_some()
                    && hidden.seen_in.as_deref() != Some(namespace)
            }
            "ResourceClaim" => has_claims && hidden.seen_in.as_deref() != Some(namespace),
            "StorageClass" | "PersistentVolume" => has_volumes,
            "PersistentVolumeClaim" => has_volumes && hidden.seen_in.as_deref() != Some(namespace),
            _ => false,
        };
        self.hidden.iter().filter(lacks).cloned().collect()
    }

    /// The resources of which more would be known to others, so that what fits here may not fit.
    pub fn partly(&self) -> Vec<String> {
        let less = |h: &&Hidden| MORE_MEANS_LESS.contains(&&*h.kind);
        let hidden = self.hidden.iter().filter(less);
        hidden.map(|h| h.resource.clone()).collect()
    }
}

fn listed<K>(items: Vec<K>) -> Observed<K> {
    Observed::Listed {
        items,
        version: String::new(),
    }
}

/// Shows the objects of each kind to a scheduler.
struct Show<'a> {
    core: Core,
    objects: &'a [Value],
    time: Time,
    result: anyhow::Result<()>,
}

impl Visitor for Show<'_> {
    fn visit<K: Plain>(&mut self, input: fn(Observed<K>) -> Input) {
        if self.result.is_err() {
            return;
        }
        match typed(self.objects, K::KIND) {
            Ok(objects) => self.core.handle(input(listed(objects)), self.time),
            Err(error) => self.result = Err(error),
        }
    }
}

fn identity(object: &Value) -> Identity {
    let text = |pointer| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

/// A pod of a workload, for a workload; anything else as it is.
fn pod_of_template(object: Value) -> Value {
    let workload = matches!(
        object["kind"].as_str(),
        Some("Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job")
    );
    if !workload {
        return object;
    }
    let mut pod = object["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    for field in ["name", "namespace"] {
        pod["metadata"][field] = object["metadata"][field].clone();
    }
    pod
}

/// Whether objects of a kind that is read here are in namespaces.
fn has_namespace(kind: &str) -> bool {
    Kinds::All
        .list()
        .iter()
        .any(|known| known.kind == kind && known.namespaced)
}

/// An object of DRA as `v1` has it, with defaults.
fn current(kind: Kind, object: Value, now: Timestamp) -> anyhow::Result<Value> {
    let title = title(&object);
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let version: Version = version
        .parse()
        .with_context(|| format!("{title}: apiVersion {version:?}"))?;
    let mut object = object;
    defaults::default(kind, version, &mut object, now);
    // Their versions do not differ, and there is no v1 of them.
    if kind == Kind::DeviceTaintRule {
        return Ok(object);
    }
    convert::convert(kind, version, Version::V1, object).with_context(|| title)
}
