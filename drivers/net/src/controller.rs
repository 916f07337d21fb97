//! The part that runs once per cluster: which node has the networks of a pod, and what Multus reads of them.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use allot_driver::Failure;
use allot_driver::classic::{
    Allocation, Claim, Class, Controller, Driver, Error, LeaderElection, Pod, Wanted, describe,
};
use allot_reflector::{everything, list};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod as ApiPod};
use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::interfaces::ANNOTATION;
use crate::objects::{self, ClaimParameterSpec, IpPool, MultusConfig, NetworkName};
use crate::{
    CDI_VERSION, DEFAULT_CDI_VERSION, DRIVER_NAME, Handle, definitions, selection, suitable,
};

mod networks;
mod pools;

/// Versions of CDI files that runtimes know. Before 0.5.0 the name of a device could not begin with a digit, and UIDs
/// do.
const CDI_VERSIONS: [&str; 6] = ["0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

/// How to run the controller.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many claims and pods are worked on at the same time.
    pub workers: usize,
    /// Work only while holding a Lease.
    pub election: Option<LeaderElection>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 10,
            election: None,
        }
    }
}

/// Runs the controller until `shutdown`, after installing the kinds.
///
/// # Errors
/// When the API server does not answer, or has none of the classic kinds.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    definitions::install(&client).await?;
    let driver = Networks {
        client: client.clone(),
        events: Recorder::new(client.clone(), DRIVER_NAME.to_owned().into()),
    };
    let mut controller =
        Controller::new(DRIVER_NAME, driver, client.clone()).workers(config.workers);
    if let Some(election) = config.election {
        controller = controller.leader_election(election);
    }
    // They end with the controller, also when it fails.
    let stop = shutdown.child_token();
    let attach = networks::define(client.clone(), stop.clone());
    let count = pools::count(client, stop.clone());
    let answer = async {
        let ended = controller.run(shutdown).await;
        stop.cancel();
        ended
    };
    let (ended, (), ()) = tokio::join!(answer, attach, count);
    ended
}

struct Networks {
    client: Client,
    events: Recorder,
}

/// What a claim asks for.
struct Parameters {
    spec: ClaimParameterSpec,
    cdi_version: String,
}

impl Parameters {
    /// Reads a SpiderClaimParameter; its annotation must name a version that there is.
    fn read(object: &DynamicObject) -> Result<Self, Failure> {
        let spec = match &object.data["spec"] {
            Value::Null => ClaimParameterSpec::default(),
            spec => serde_json::from_value(spec.clone())?,
        };
        let version = object.annotations().get(CDI_VERSION);
        let cdi_version = version.map_or(DEFAULT_CDI_VERSION, String::as_str);
        if !CDI_VERSIONS.contains(&cdi_version) {
            let known = CDI_VERSIONS.join(", ");
            return Err(
                format!("annotation {CDI_VERSION}: {cdi_version:?} is none of {known}").into(),
            );
        }
        Ok(Self {
            spec,
            cdi_version: cdi_version.to_owned(),
        })
    }
}

impl Networks {
    async fn pools(&self) -> Result<Vec<IpPool>, Failure> {
        let api: Api<IpPool> = Api::all_with(self.client.clone(), &objects::ip_pools());
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// The configuration of a network.
    async fn network(&self, name: &NetworkName) -> Result<MultusConfig, Failure> {
        let kind = objects::multus_configs();
        let api: Api<MultusConfig> =
            Api::namespaced_with(self.client.clone(), &name.namespace, &kind);
        let found = api.get_opt(&name.name).await?;
        Ok(found.ok_or_else(|| format!("there is no SpiderMultusConfig {name}"))?)
    }

    /// The nodes with these names that exist.
    async fn nodes(&self, names: &[String]) -> Result<Vec<Node>, Failure> {
        let all = Api::<Node>::all(self.client.clone());
        let all = list(&all, &ListParams::default(), everything).await?;
        Ok(all
            .into_iter()
            .filter(|node| names.contains(&node.name_any()))
            .collect())
    }

    async fn namespace_labels(&self, name: &str) -> Result<suitable::LabelMap, Failure> {
        let all = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
        let found = all.get_opt(name).await?;
        Ok(found.and_then(|n| n.metadata.labels).unwrap_or_default())
    }

    /// How much of a resource pods have, by node.
    async fn taken(&self, resource: &str) -> Result<BTreeMap<String, Quantity>, Failure> {
        let unfinished =
            ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let kind = ApiResource::erase::<ApiPod>(&());
        let pods = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
        let mut taken: BTreeMap<String, Quantity> = BTreeMap::new();
        for pod in pods.list(&unfinished).await? {
            let spec = &pod.data["spec"];
            let Some(node) = spec["nodeName"].as_str() else {
                continue;
            };
            for container in spec["containers"].as_array().into_iter().flatten() {
                let amount = container["resources"]["requests"][resource].as_str();
                let amount = amount.and_then(|text| text.parse().ok());
                let sum = taken.entry(node.to_owned()).or_default();
                *sum = sum
                    .checked_add(&amount.unwrap_or_default())
                    .unwrap_or_default();
            }
        }
        Ok(taken)
    }

    /// The nodes that have too little of what device plugins give, with the reason.
    async fn short_of(
        &self,
        wanted: &BTreeMap<String, Value>,
        nodes: &[Node],
    ) -> Result<BTreeMap<String, String>, Failure> {
        let mut short = BTreeMap::new();
        for (resource, amount) in wanted {
            let amount = Quantity::from_json(amount)
                .map_err(|error| format!("netResources.{resource}: {error}"))?;
            let taken = self.taken(resource).await?;
            for node in nodes {
                let name = node.name_any();
                let status = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
                let has = status.and_then(|a| a.get(resource)?.0.parse::<Quantity>().ok());
                let has = has.unwrap_or_default();
                let taken = taken.get(&name).cloned().unwrap_or_default();
                let left = has.checked_sub(&taken).unwrap_or_default();
                if left < amount {
                    short.insert(name, format!("{left} of {resource} left, {amount} wanted"));
                }
            }
        }
        Ok(short)
    }

    /// The nodes that will not do for a claim, with the reasons.
    async fn unsuitable(
        &self,
        pod: &Pod,
        claim: &Wanted<Self>,
        nodes: &[Node],
        pools: &[IpPool],
    ) -> Result<Vec<(String, String)>, Failure> {
        let spec = &claim.claim_parameters.spec;
        let namespace = claim.claim.namespace();
        let annotations = pod.annotations();
        let mut wanted = suitable::Wanted {
            pools: spec.ippools.clone(),
            rdma: spec.enable_rdma,
            namespace: namespace.to_owned(),
            namespace_labels: self.namespace_labels(namespace).await?,
            labels: pod.labels().clone(),
            ..suitable::Wanted::default()
        };
        if wanted.pools.is_empty() {
            wanted.pools = selection::pools(annotations)?;
        }
        for name in selection::networks(spec, annotations, namespace)? {
            let config = self.network(&name).await?;
            wanted.networks.push((name, config.spec));
        }
        let mut resources = spec.net_resources.clone();
        // What each network takes for itself; a claim that says how much knows better.
        for resource in wanted.networks.iter().filter_map(|(_, n)| n.resource()) {
            if !spec.net_resources.contains_key(resource) {
                let before = resources.get(resource).and_then(Value::as_i64).unwrap_or(0);
                resources.insert(resource.to_owned(), Value::from(before + 1));
            }
        }
        let short = self.short_of(&resources, nodes).await?;
        let mut unsuitable = Vec::new();
        for node in nodes {
            let name = node.name_any();
            let judged = suitable::check(&wanted, pools, &described(node));
            if let Err(reason) = short.get(&name).cloned().map_or(judged, Err) {
                tracing::info!(claim = %claim.claim, node = name, reason, "unsuitable");
                unsuitable.push((name, reason));
            }
        }
        Ok(unsuitable)
    }

    /// Tells the pod why it waits. The scheduler only knows which nodes will not do.
    async fn tell(&self, pod: &Pod, note: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: "NetworksNotAvailable".to_owned(),
            note: Some(note),
            action: "Scheduling".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.events.publish(&event, &pod.object_ref(&())).await {
            tracing::warn!(pod = pod.name_any(), %error, "cannot write an event");
        }
    }
}

/// Reasons with their nodes, as many as fit into an event.
fn told(unsuitable: &[(String, String)]) -> String {
    const SHOWN: usize = 3;
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, reason) in unsuitable {
        by_reason.entry(reason).or_default().push(node);
    }
    let line = |(reason, nodes): (&&str, &Vec<&str>)| match nodes.as_slice() {
        [node] => format!("{node}: {reason}"),
        nodes => format!("{} and {} more: {reason}", nodes[0], nodes.len() - 1),
    };
    let mut lines: Vec<String> = by_reason.iter().take(SHOWN).map(line).collect();
    if by_reason.len() > SHOWN {
        lines.push(format!("and {} more reasons", by_reason.len() - SHOWN));
    }
    lines.join("; ")
}

/// A node as the rule looks at it.
fn described(node: &Node) -> suitable::Node {
    let interfaces = node.annotations().get(ANNOTATION);
    suitable::Node {
        name: node.name_any(),
        labels: node.labels().clone(),
        interfaces: interfaces.and_then(|text| serde_json::from_str(text).ok()),
    }
}

impl Driver for Networks {
    type ClassParameters = ();
    type ClaimParameters = Parameters;

    async fn class_parameters(&self, _: &Class) -> Result<(), Failure> {
        Ok(())
    }

    async fn claim_parameters(
        &self,
        claim: &Claim,
        _: &Class,
        (): &(),
    ) -> Result<Parameters, Failure> {
        let Some(reference) = claim.parameters() else {
            return Ok(Parameters {
                spec: ClaimParameterSpec::default(),
                cdi_version: DEFAULT_CDI_VERSION.to_owned(),
            });
        };
        let kind = objects::claim_parameters();
        if reference.api_group != objects::GROUP {
            return Err(format!("incorrect API Group: {}", reference.api_group).into());
        }
        if reference.kind != kind.kind {
            return Err(format!("{} is no {}", describe(&reference), kind.kind).into());
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), claim.namespace(), &kind);
        let found = api.get_opt(&reference.name).await?;
        let missing = || {
            format!(
                "there is no SpiderClaimParameter {}/{}",
                claim.namespace(),
                reference.name
            )
        };
        Parameters::read(&found.ok_or_else(missing)?)
    }

    async fn allocate(
        &self,
        claims: &[Wanted<Self>],
        node: Option<&str>,
    ) -> Vec<Result<Allocation, Failure>> {
        let allocate = |claim: &Wanted<Self>| {
            let node = node.ok_or(
                "claims for networks are allocated for a pod: use the allocationMode WaitForFirstConsumer",
            )?;
            let parameters = &claim.claim_parameters;
            let handle = Handle {
                cdi_version: parameters.cdi_version.clone(),
                rdma_acc: parameters.spec.rdma_acc,
            };
            let data = serde_json::to_string(&handle)?;
            tracing::info!(claim = %claim.claim, node, "allocated");
            Ok(Allocation::opaque(DRIVER_NAME, data).on_node(node))
        };
        claims.iter().map(allocate).collect()
    }

    async fn deallocate(&self, claim: &Claim) -> Result<(), Failure> {
        // Nothing is held but what the claim itself says.
        tracing::info!(%claim, "deallocated");
        Ok(())
    }

    async fn unsuitable_nodes(
        &self,
        pod: &Pod,
        claims: &[Wanted<Self>],
        names: &[String],
    ) -> Result<Vec<Vec<String>>, Failure> {
        let (nodes, pools) = tokio::try_join!(self.nodes(names), self.pools())?;
        let mut results = Vec::new();
        for claim in claims {
            let about = format!("claim {}: ", claim.claim);
            let unsuitable = match self.unsuitable(pod, claim, &nodes, &pools).await {
                Ok(unsuitable) => unsuitable,
                Err(error) => {
                    self.tell(pod, about + &error.to_string()).await;
                    return Err(error);
                }
            };
            if !nodes.is_empty() && unsuitable.len() == nodes.len() {
                self.tell(pod, about + &told(&unsuitable)).await;
            }
            results.push(unsuitable.into_iter().map(|(node, _)| node).collect());
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn reasons_are_told_once() {
        let of = |node: &str, reason: &str| (node.to_owned(), reason.to_owned());
        let unsuitable = [
            of("a", "no interface eth0"),
            of("b", "no interface eth0"),
            of("c", "interface eth0 is down"),
        ];
        assert_eq!(
            super::told(&unsuitable),
            "c: interface eth0 is down; a and 1 more: no interface eth0"
        );
    }
}
