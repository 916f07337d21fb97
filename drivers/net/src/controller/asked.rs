//! The requests of all claims of one pod, and the unsuitable nodes.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::known::Known;
use crate::interfaces::{self, ANNOTATION};
use crate::suitable;

/// The request of a claim of a pod.
pub(super) struct Asked {
    pub(super) wanted: suitable::Wanted,
    /// The networks are those of the pod's annotations, which other claims of the pod may request as well.
    pub(super) of_the_pod: bool,
    /// Its requests of device plugin resources.
    pub(super) resources: BTreeMap<String, Quantity>,
}

/// What all claims of a pod take together of the resources of device plugins.
fn resources(asked: &[Asked]) -> BTreeMap<String, Quantity> {
    let mut sum: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut add = |resource: &str, amount: &Quantity| {
        let before = sum.entry(resource.to_owned()).or_default();
        *before = before.checked_add(amount).unwrap_or_default();
    };
    for one in once(asked).map(|index| &asked[index]) {
        // The requests of each network; explicit amounts of a claim take precedence.
        let networks = one.wanted.networks.iter().filter_map(|(_, n)| n.resource());
        for resource in networks.filter(|name| !one.resources.contains_key(*name)) {
            add(resource, &Quantity::from(1));
        }
    }
    for (resource, amount) in asked.iter().flat_map(|one| &one.resources) {
        add(resource, amount);
    }
    sum
}

/// For each claim the nodes that will not do for it, with the reasons.
pub(super) fn unsuitable(
    known: &Known,
    asked: &[Asked],
    nodes: &[Node],
) -> Vec<Vec<(String, String)>> {
    let pools = known.pools();
    let resources = resources(asked);
    let short = known.short_of(&resources, nodes);
    let mut unsuitable = vec![Vec::new(); asked.len()];
    for node in nodes {
        let described = described(node);
        let check = |one: &Asked| suitable::check(&one.wanted, &pools, &described);
        let judged: Vec<_> = asked.iter().map(check).collect();
        let short = short.get(&described.name).map_or(&[][..], Vec::as_slice);
        // The claims of one pod are allocated on the node together, or none of them is.
        let demands = once(asked).filter_map(|index| judged[index].as_ref().ok());
        let demands: Vec<_> = demands.flatten().cloned().collect();
        let together = suitable::together(&demands);
        for ((one, judged), list) in asked.iter().zip(judged).zip(&mut unsuitable) {
            let lacks = short.iter().find(|(resource, _)| one.takes(resource));
            let reason = match (lacks, judged) {
                (Some((_, reason)), _) => Some(reason.clone()),
                (None, Err(reason)) => Some(reason),
                (None, Ok(demands)) if demands.is_empty() => None,
                (None, Ok(_)) => together.clone().err(),
            };
            list.extend(reason.map(|reason| (described.name.clone(), reason)));
        }
    }
    unsuitable
}

/// The indexes of the claims, without those that request the networks of the pod after the first of them: the pod has
/// these once.
fn once(asked: &[Asked]) -> impl Iterator<Item = usize> {
    let first = asked.iter().position(|one| one.of_the_pod);
    (0..asked.len()).filter(move |index| !asked[*index].of_the_pod || Some(*index) == first)
}

impl Asked {
    fn takes(&self, resource: &str) -> bool {
        let mut networks = self.wanted.networks.iter();
        self.resources.contains_key(resource)
            || networks.any(|(_, network)| network.resource() == Some(resource))
    }
}

/// A node in the form of the rule.
fn described(node: &Node) -> suitable::Node {
    suitable::Node {
        name: node.name_any(),
        labels: node.labels().clone(),
        interfaces: interfaces::read_annotation(node.annotations().get(ANNOTATION)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::objects::{MultusConfigSpec, NetworkName};

    /// A claim that requests this many of `x/vf`, with its own networks or those of the pod.
    fn asked(vf: i64, network: Value, of_the_pod: bool) -> Asked {
        let amount = (vf > 0).then(|| ("x/vf".to_owned(), Quantity::from(vf)));
        let spec: Option<MultusConfigSpec> = serde_json::from_value(network).expect("a network");
        let networks = spec.map(|spec| (NetworkName::read("n", "ns"), spec));
        Asked {
            wanted: suitable::Wanted {
                networks: networks.into_iter().collect(),
                ..suitable::Wanted::default()
            },
            of_the_pod,
            resources: amount.into_iter().collect(),
        }
    }

    /// The verdict of a node with three of `x/vf` and a pool with two addresses about each claim.
    fn check(asked: &[Asked], expected: &[&str]) {
        let known = Known::of(
            json!({
                "metadata": {"name": "n", "annotations": {ANNOTATION: r#"[{"name": "eth0", "up": true}]"#}},
                "status": {"allocatable": {"x/vf": "3"}},
            }),
            json!({
                "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool", "metadata": {"name": "p"},
                "spec": {"subnet": "10.0.0.0/8", "ips": ["10.0.0.1-10.0.0.2"], "default": true},
            }),
        );
        let reasons = unsuitable(&known, asked, &known.nodes(&["n".to_owned()])).into_iter();
        let reasons = reasons.map(|list| list.into_iter().map(|(_, reason)| reason).collect());
        let reasons: Vec<String> = reasons.collect();
        assert_eq!(reasons, expected);
    }

    #[test]
    fn regression_claims_of_one_pod_are_summed() {
        let none = || Value::Null;
        let short = "3 of x/vf left, 4 wanted";
        check(&[asked(3, none(), false)], &[""]);
        check(
            &[asked(2, none(), false), asked(1, none(), false)],
            &["", ""],
        );
        let two = [
            asked(2, none(), false),
            asked(2, none(), false),
            asked(0, none(), false),
        ];
        check(&two, &[short, short, ""]);
        // What networks take for themselves counts as well.
        let vf =
            || json!({"cniType": "sriov", "disableIPAM": true, "sriov": {"resourceName": "x/vf"}});
        check(
            &[asked(3, none(), false), asked(0, vf(), false)],
            &[short, short],
        );
        // The networks of the pod exist once, however many claims request them.
        check(
            &[
                asked(0, vf(), true),
                asked(2, none(), false),
                asked(0, vf(), true),
            ],
            &["", "", ""],
        );
    }

    #[test]
    fn regression_claims_of_one_pod_share_addresses() {
        let on = || json!({"cniType": "macvlan", "macvlan": {"master": ["eth0"]}});
        let short = "network ns/n: the pod's networks need more addresses than p has left";
        let own = || asked(0, on(), false);
        check(&[own(), own()], &["", ""]);
        check(
            &[own(), own(), own(), asked(1, Value::Null, false)],
            &[short, short, short, ""],
        );
        let pods = || asked(0, on(), true);
        check(&[own(), pods(), pods(), pods()], &["", "", "", ""]);
    }
}
