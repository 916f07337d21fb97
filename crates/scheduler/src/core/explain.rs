//! What a scheduling cycle would decide about a pod, node by node; for `allot explain`, not for the scheduling loop.

use std::sync::Arc;

use allot_allocator::explain::Explanation;
use k8s_openapi::api::resource::v1::AllocationResult;

use super::{Core, GangVerdict, Time};
use crate::attempt::Rank;
use crate::config::Profile;
use crate::dra::claims::key_of;
use crate::framework::Plugin;
use crate::plugins::affinity::NodeAffinity;
use crate::pod::{Key, PodInfo, scheduler_name};
use crate::status::Rejection;

/// The result of a scheduling attempt for a pod, if it were made now.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Why no node is considered: gates, or claims that do not exist or were created for another pod.
    pub before: Option<Rejection>,
    /// The verdict of each node, in the order of the cluster.
    pub nodes: Vec<NodeVerdict>,
    /// The node that would be chosen.
    pub chosen: Option<Chosen>,
    /// The node that the pod is nominated to, with the victims that are terminating there.
    pub expected: Option<Expected>,
    /// The verdict about its gang, if it is in one; `nodes` then considers the pod alone.
    pub gang: Option<GangVerdict>,
}

impl Verdict {
    fn before(rejection: Rejection) -> Self {
        Self {
            before: Some(rejection),
            ..Self::default()
        }
    }
}

/// A nominated node on which victims terminate.
#[derive(Debug)]
pub struct Expected {
    /// Name of the node.
    pub node: Arc<str>,
    /// The pods that are leaving it.
    pub leaving: Vec<Key>,
}

/// The verdict of a node about a pod.
#[derive(Debug)]
pub struct NodeVerdict {
    /// The name of the node that the pod was filtered on.
    pub name: Arc<str>,
    /// The reasons why the node is not feasible.
    pub rejection: Option<Rejection>,
    /// Which check left no device, when that is the reason.
    pub explanation: Option<Explanation>,
    /// The reason why allocated claims cannot be used on the node.
    pub unavailable: Vec<String>,
    /// How near the node comes to being feasible, when it rejects the pod; `None` also for a node that the pod does not name
    /// though it names some.
    pub rank: Option<Rank>,
    /// The pods that are nominated to the node, and that this pod may not preempt. Empty if the node would not be
    /// feasible without them either.
    pub kept_for: Vec<Key>,
}

/// The chosen node, and what would be allocated there.
#[derive(Debug)]
pub struct Chosen {
    /// Name of the node.
    pub node: Arc<str>,
    /// Allocations of its claims that have none yet.
    pub allocations: Vec<(Key, Arc<AllocationResult>)>,
}

impl Core {
    /// Filters every node for a pod and returns the node it would be placed on; for a pod in a gang also the verdict
    /// about the gang. All changes made for that are reverted. `None` when no profile has the pod's `schedulerName`.
    ///
    /// Unlike an attempt it filters all nodes, and does not report what preemption would do for a pod alone.
    pub fn explain(&mut self, pod: &Arc<PodInfo>, time: Time) -> Option<Verdict> {
        let pod = &self.with_effective_tolerations(pod.clone());
        let profile = self.profile(scheduler_name(&pod.pod))?.clone();
        let gang = self.explain_gang(pod, time);
        let mut verdict = match self.pre_enqueue_rejection(pod) {
            Some(rejection) => Verdict::before(rejection),
            None => match self.filter_and_score(pod, &profile, time) {
                Ok((nodes, chosen)) => Verdict {
                    nodes,
                    chosen,
                    ..Verdict::default()
                },
                Err(rejection) => Verdict::before(rejection),
            },
        };
        verdict.expected = self.expected(pod);
        if let Some((gang, chosen)) = gang {
            verdict.chosen = chosen;
            verdict.gang = Some(gang);
        }
        Some(verdict)
    }

    fn expected(&self, pod: &PodInfo) -> Option<Expected> {
        let snapshot = self.cache.snapshot();
        let node = &snapshot.nodes[snapshot.position(self.nominated_node(pod)?)?];
        let leaving = |p: &&Arc<PodInfo>| p.is_terminating() && p.priority() < pod.priority();
        let leaving = node.pods.iter().filter(leaving);
        Some(Expected {
            node: node.name.clone(),
            leaving: leaving.map(|p| p.key.clone()).collect(),
        })
    }

    /// The verdict of each node about a pod, and the node that would be chosen.
    ///
    /// # Errors
    /// The reason why no node is filtered.
    pub(super) fn filter_and_score(
        &self,
        pod: &Arc<PodInfo>,
        profile: &Profile,
        time: Time,
    ) -> Result<(Vec<NodeVerdict>, Option<Chosen>), Rejection> {
        let attempt = self.prepare(pod, profile, self.dra(profile, time))?;
        let nominated = |node: &str| self.nominated_to(node, pod);
        let mut nodes = Vec::new();
        let affinity = NodeAffinity::new(pod);
        let names = affinity.names();
        let names = names.filter(|_| profile.filters.contains(Plugin::NodeAffinity));
        let is_named = |node: &str| names.as_ref().is_none_or(|names| names.contains(&node));
        for node in &attempt.snapshot.nodes {
            let rejection = attempt.evaluate(node, &nominated).err();
            // A pod of a DaemonSet names one node: the devices of all other nodes are not evaluated.
            if rejection.is_some() && !is_named(&node.name) {
                nodes.push(NodeVerdict {
                    name: node.name.clone(),
                    rejection,
                    explanation: None,
                    unavailable: Vec::new(),
                    rank: None,
                    kept_for: Vec::new(),
                });
                continue;
            }
            let lacks_devices = |r: &Rejection| r.plugin == Plugin::DynamicResources;
            let explanation = match (&rejection, attempt.devices()) {
                (Some(r), Some(devices)) if lacks_devices(r) => {
                    devices.explanation(node, &attempt.dra, None)
                }
                _ => None,
            };
            let unavailable = attempt.devices().map(|d| d.unavailable(node));
            let rank = rejection.as_ref().map(|r| attempt.rank(node, r));
            let mut expected = nominated(&node.name);
            if rejection.is_some()
                && !expected.is_empty()
                && attempt.evaluate(node, &|_: &str| Vec::new()).is_err()
            {
                expected.clear();
            }
            nodes.push(NodeVerdict {
                name: node.name.clone(),
                unavailable: unavailable.unwrap_or_default(),
                rank,
                rejection,
                explanation,
                kept_for: expected.iter().map(|p| p.key.clone()).collect(),
            });
        }
        let chosen = attempt.place(0, &nominated).ok().map(|placement| {
            let devices = placement.devices;
            let extended = devices.extended.map(|s| (key_of(&s.claim), s.allocation));
            let own = devices.allocations.into_iter();
            Chosen {
                node: attempt.snapshot.nodes[placement.node].name.clone(),
                allocations: own.map(|(key, _, a)| (key, a)).chain(extended).collect(),
            }
        });
        Ok((nodes, chosen))
    }

    /// What holds a pod back from being tried, in words.
    pub(super) fn pre_enqueue_rejection(&self, pod: &PodInfo) -> Option<Rejection> {
        match self.gate(pod)? {
            Plugin::DynamicResources => {
                crate::dra::pre_enqueue(pod, &self.claims, self.claim_plugin.as_deref()).err()
            }
            Plugin::DefaultPreemption => {
                let own = self.pods.get(&pod.key);
                let gang = own.into_iter().chain(self.other_pods_of_gang(pod));
                let leaving = gang.filter_map(|p| self.preempting.get(&p.uid));
                let count: usize = leaving.map(|leaving| leaving.len()).sum();
                let text =
                    format!("waiting for preemption to complete: {count} pods have to leave");
                Some(Rejection::unresolvable(Plugin::DefaultPreemption, text))
            }
            Plugin::GangScheduling => {
                let waits = self.gangs.as_ref()?.admit(pod).err()?;
                Some(Rejection::unresolvable(
                    Plugin::GangScheduling,
                    waits.to_string(),
                ))
            }
            plugin => {
                let gates = pod.spec().scheduling_gates.iter().flatten();
                let names: Vec<&str> = gates.map(|g| &*g.name).collect();
                let text = format!("waiting for scheduling gates: [{}]", names.join(" "));
                Some(Rejection::unresolvable(plugin, text))
            }
        }
    }
}
