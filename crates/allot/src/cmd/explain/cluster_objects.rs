//! A cluster as the scheduler sees it, built from objects of any source.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allot_model::features::{Feature, Features};
use allot_reflector::Observed;
use allot_scheduler::Config;
use allot_scheduler::core::{Core, Input, Time, has_gangs};
use allot_scheduler::metrics::Metrics;
use allot_scheduler::pod::{Key, PodInfo};
use allot_scheduler::podgroups::claims::PodGroup;
use allot_scheduler::taint_rules::DeviceTaintRule;
use allot_scheduler::watched::{self, POD_GROUPS, Plain, TAINT_RULES, Visitor};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::DynamicObject;
use serde_json::Value;

use super::quota::Quotas;
use crate::cmd::manifests::typed;
use crate::cmd::snapshot::{Hidden, Snapshot};

mod add;
mod consumers;
mod daemon_set;
mod own_pods;
mod place;

pub use add::{AddedPods, Workload};

/// What identifies an object: kind, namespace, name.
type Identity = (String, String, String);

/// The objects of a cluster, and added ones.
pub struct ClusterObjects {
    objects: Vec<Value>,
    hidden: Vec<Hidden>,
    places: HashMap<Identity, usize>,
    namespace: String,
    features: Features,
    now: Timestamp,
    /// Pods that are in files only.
    new: HashSet<(String, String)>,
}

/// A scheduler that has seen them.
pub struct LoadedScheduler {
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
    /// The gangs, if they are off.
    pub gangs_off: HashSet<Key>,
    /// What it could not read.
    pub hidden: Vec<Hidden>,
    /// When that was.
    pub time: Time,
    /// All objects, as they are written.
    pub objects: Vec<Value>,
    /// What quotas leave.
    pub quotas: Quotas,
    /// Pods that are in files only: the quotas have not been checked.
    pub new: HashSet<(String, String)>,
    /// The pods for which claims are reserved, by `namespace/name` of the claim.
    pub reserved: BTreeMap<String, Vec<String>>,
}

impl ClusterObjects {
    /// A cluster of these objects. `namespace` is the default for added objects.
    pub fn new(snapshot: Snapshot, namespace: String) -> Self {
        let features = snapshot.features();
        let Snapshot { objects, about, .. } = snapshot;
        let places = objects.iter().enumerate();
        let places = places.map(|(at, object)| (identity(object), at)).collect();
        Self {
            objects,
            hidden: about.hidden,
            places,
            namespace,
            features,
            // A deadline in a snapshot never passes.
            now: about.time.unwrap_or_else(Timestamp::now),
            new: HashSet::new(),
        }
    }

    /// With other feature gates than those that the cluster reported.
    #[must_use]
    pub fn with_features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }

    /// Shows everything to a scheduler.
    ///
    /// # Errors
    /// An object that does not match its kind; the message names it.
    pub fn load(self, mut config: Config) -> anyhow::Result<LoadedScheduler> {
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
        Ok(LoadedScheduler {
            core,
            taints,
            pods: whole,
            templates,
            has_gangs,
            gangs_off,
            hidden: self.hidden,
            time,
            quotas: Quotas::new(&objects),
            new: self.new,
            reserved: reserved(&objects),
            objects,
        })
    }
}

/// The consumers of each claim: `namespace/name` of pods, or `podgroups/name`.
fn reserved(objects: &[Value]) -> BTreeMap<String, Vec<String>> {
    let claims = objects.iter().filter(|o| o["kind"] == "ResourceClaim");
    let entry = |claim: &Value| {
        let (_, namespace, name) = identity(claim);
        let consumers = claim.pointer("/status/reservedFor");
        let consumers = consumers.and_then(Value::as_array).into_iter().flatten();
        let name_of = |c: &Value| {
            let name = c["name"].as_str().unwrap_or_default();
            match c["resource"].as_str() {
                Some("pods") | None => format!("{namespace}/{name}"),
                Some(other) => format!("{other}/{name}"),
            }
        };
        let consumers = consumers.map(name_of).collect();
        (format!("{namespace}/{name}"), consumers)
    };
    claims.map(entry).collect()
}

/// Kinds of which every further object can only reduce what fits.
const MORE_MEANS_LESS: [&str; 4] = ["Pod", "ResourceClaim", "DeviceTaintRule", "ResourceQuota"];

impl LoadedScheduler {
    /// The objects of a kind, as they are written.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |o| o["kind"] == kind)
    }

    /// Names of the objects of a kind in a namespace; an empty one for those without.
    pub fn names_of(&self, kind: &str, namespace: &str) -> Vec<&str> {
        let within = self.of_kind(kind).filter(|object| {
            object
                .pointer("/metadata/namespace")
                .and_then(Value::as_str)
                .unwrap_or_default()
                == namespace
        });
        within
            .filter_map(|o| o.pointer("/metadata/name")?.as_str())
            .collect()
    }

    /// The resource whose objects in a namespace are not shown.
    pub fn unseen(&self, kind: &str, namespace: &str) -> Option<&str> {
        let found = self.hidden.iter().find(|h| h.hides(kind, namespace));
        found.map(|hidden| &*hidden.resource)
    }

    /// Hidden kinds without which any explanation of a pending pod would be wrong.
    pub fn lacking(&self, pod: &PodInfo) -> Vec<Hidden> {
        let namespace = &*pod.key.namespace;
        let has_claims = pod.spec().resource_claims.iter().flatten().next().is_some();
        let mut volumes = pod.spec().volumes.iter().flatten();
        let has_volumes =
            volumes.any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
        let lacks = |hidden: &&Hidden| match &*hidden.kind {
            // Classes may also provide extended resources.
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

    /// The resources of which only a part is visible, so that what fits here may not fit.
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
