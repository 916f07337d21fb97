//! The part that runs once per cluster: which node has the networks of a pod, and what Multus reads of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::quantity::Quantity;
use allot_driver::Failure;
use allot_driver::classic::{
    Allocation, Claim, Class, Controller, Driver, Error, LeaderElection, Pod, Wanted, describe,
};
use kube::api::DynamicObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::objects::{self, ClaimParameterSpec};
use crate::{
    CDI_VERSION, DEFAULT_CDI_VERSION, DRIVER_NAME, Handle, definitions, selection, suitable,
};

mod asked;
mod known;
mod networks;
mod pools;

use asked::Asked;
use known::Known;

/// Versions of CDI files that runtimes support. Before 0.5.0 the name of a device could not begin with a digit, and
/// UIDs do.
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
    let known = Arc::new(Known::default());
    let events = Recorder::new(client.clone(), DRIVER_NAME.to_owned().into());
    let driver = Networks {
        client: client.clone(),
        known: Arc::clone(&known),
        events: events.clone(),
    };
    let mut controller =
        Controller::new(DRIVER_NAME, driver, client.clone()).workers(config.workers);
    if let Some(election) = config.election {
        controller = controller.leader_election(election);
    }
    // They end with the controller, also when it fails.
    let stop = shutdown.child_token();
    let attach = networks::define(client.clone(), Arc::clone(&known), events, stop.clone());
    let count = pools::count(client.clone(), &known, stop.clone());
    let watch = known.watch(client.clone(), stop.clone());
    let keep = definitions::keep(client, stop.clone());
    let answer = async {
        let ended = controller.run(shutdown).await;
        stop.cancel();
        ended
    };
    let (ended, ..) = tokio::join!(answer, attach, count, watch, keep);
    ended
}

struct Networks {
    client: Client,
    known: Arc<Known>,
    events: Recorder,
}

/// The parameters of a claim.
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
    async fn asked(&self, pod: &Pod, claim: &Wanted<Self>) -> Result<Asked, Failure> {
        let spec = &claim.claim_parameters.spec;
        let namespace = claim.claim.namespace();
        let annotations = pod.annotations();
        let mut wanted = suitable::Wanted {
            pools: spec.ippools.clone(),
            rdma: spec.enable_rdma,
            namespace: namespace.to_owned(),
            namespace_labels: self.known.namespace_labels(namespace),
            labels: pod.labels().clone(),
            ..suitable::Wanted::default()
        };
        if wanted.pools.is_empty() {
            wanted.pools = selection::pools(annotations)?;
        }
        for name in selection::networks(spec, annotations, namespace)? {
            let config = known::network(&self.known, &self.client, &name).await?;
            wanted.networks.push((name, config.spec));
        }
        let mut resources = BTreeMap::new();
        for (resource, amount) in &spec.net_resources {
            let amount = Quantity::from_json(amount)
                .map_err(|error| format!("netResources.{resource}: {error}"))?;
            resources.insert(resource.clone(), amount);
        }
        Ok(Asked {
            of_the_pod: spec.networks(namespace).is_empty(),
            wanted,
            resources,
        })
    }

    /// Records an event on the pod about why it waits. The scheduler only knows which nodes are unsuitable.
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
        // The claim itself is the only state.
        tracing::info!(%claim, "deallocated");
        Ok(())
    }

    async fn unsuitable_nodes(
        &self,
        pod: &Pod,
        claims: &[Wanted<Self>],
        names: &[String],
    ) -> Result<Vec<Vec<String>>, Failure> {
        self.known.ready().await;
        let mut asked = Vec::new();
        for claim in claims {
            match self.asked(pod, claim).await {
                Ok(one) => asked.push(one),
                Err(error) => {
                    self.tell(pod, format!("claim {}: {error}", claim.claim))
                        .await;
                    return Err(error);
                }
            }
        }
        let mut results = Vec::new();
        let nodes = self.known.nodes(names);
        for (claim, unsuitable) in claims
            .iter()
            .zip(asked::unsuitable(&self.known, &asked, &nodes))
        {
            for (node, reason) in &unsuitable {
                tracing::info!(claim = %claim.claim, node, reason, "unsuitable");
            }
            if !nodes.is_empty() && unsuitable.len() == nodes.len() {
                let note = format!("claim {}: {}", claim.claim, told(&unsuitable));
                self.tell(pod, note).await;
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
