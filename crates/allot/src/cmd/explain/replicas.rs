//! How many pods of a workload fit, one after the other; of a DaemonSet, on which nodes.

use std::io::Write;

use serde::Serialize;

use super::cluster_objects::{LoadedScheduler, Workload};
use super::report::{Answer, Report, print_verdicts};
use crate::cmd::{count, some};

/// How many pods of a workload fit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replicas<'a> {
    workload: &'a str,
    /// The requested number of replicas; of a DaemonSet, the number of nodes that are to have a pod.
    replicas: usize,
    /// How many are on nodes already.
    #[serde(skip_serializing_if = "is_zero")]
    on_nodes: usize,
    /// How many on nodes make way for them, because they need something else.
    #[serde(skip_serializing_if = "is_zero")]
    replaced: usize,
    /// How many of the others fit together.
    fit: usize,
    /// Every one that fits is on one of these nodes.
    nodes: Vec<NodeCount>,
    /// Of a DaemonSet, the nodes that it does not fit on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<Answer>,
    /// The first that does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_without: Option<&'a Report>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[derive(Debug, Serialize)]
struct NodeCount {
    node: String,
    pods: usize,
}

/// Places the pods of a workload one after the other, as the scheduler would if nothing else changed, and prints how
/// many fit and what the next one lacks. Returns whether all fit.
///
/// # Errors
/// A pod cannot be explained, or the output is closed.
pub fn explain(
    loaded: &mut LoadedScheduler,
    workload: &Workload,
    out: &mut impl Write,
    json: bool,
) -> anyhow::Result<bool> {
    let (mut fit, mut without) = (0, None);
    let (mut nodes, mut lacking): (Vec<NodeCount>, Vec<Answer>) = (Vec::new(), Vec::new());
    for (index, (namespace, name)) in workload.pods.iter().enumerate() {
        let mut report = Report::new(loaded, namespace, name)?;
        if !report.fits || report.is_in_gang() {
            let node = workload.nodes.as_ref().and_then(|nodes| nodes.get(index));
            if let Some(rejected) = node.and_then(|node| report.take_rejection_of(node)) {
                lacking.push(rejected);
                continue;
            }
            without = Some(report);
            break;
        }
        if let Some(chosen) = &report.chosen {
            match nodes.iter_mut().find(|n| *n.node == *chosen.node) {
                Some(node) => node.pods += 1,
                None => nodes.push(NodeCount {
                    node: chosen.node.to_string(),
                    pods: 1,
                }),
            }
            loaded.place(namespace, name, chosen);
        }
        fit += 1;
    }
    let in_gang = without
        .as_ref()
        .is_some_and(|r: &Report| r.is_in_gang() && r.fits);
    let wanted = workload.replicas.saturating_sub(workload.on_nodes);
    // The result of pods that are not tried one by one is not known.
    let all = (without.is_none() && fit == wanted) || in_gang;
    if json {
        let replicas = Replicas {
            workload: &workload.title,
            replicas: workload.replicas,
            on_nodes: workload.on_nodes,
            replaced: workload.replaced,
            fit,
            nodes,
            lacking,
            first_without: without.as_ref(),
        };
        serde_json::to_writer(&mut *out, &replicas)?;
        writeln!(out)?;
        return Ok(all);
    }
    if !without.as_ref().is_some_and(Report::is_in_gang) {
        let title = &workload.title;
        let untried = match without.is_none() && fit + lacking.len() < wanted {
            true => "; more were not tried",
            false => "",
        };
        let is_daemon_set = workload.nodes.is_some();
        let sentence = match (workload.on_nodes, wanted, is_daemon_set) {
            (0, 0, true) => {
                "no node is to have it: node selector, affinity and taints leave none".to_owned()
            }
            (0, _, true) => format!("fits on {fit} of {}{untried}", count(wanted, "node")),
            (on_nodes, 0, true) => format!("on {}, no more wanted", count(on_nodes, "node")),
            (on_nodes, _, true) => {
                let on = count(on_nodes, "node");
                format!("on {on}, fits on {fit} of {wanted} more{untried}")
            }
            (0, _, false) => format!("{fit} of {wanted} replicas fit{untried}"),
            (on_nodes, 0, false) => format!("{on_nodes} on nodes, no more wanted"),
            (on_nodes, _, false) => {
                format!("{on_nodes} on nodes, {fit} of {wanted} more fit{untried}")
            }
        };
        let instead = match workload.replaced {
            0 => String::new(),
            1 => ", in place of 1 on a node that needs something else".to_owned(),
            pods => format!(", in place of {pods} on nodes that need something else"),
        };
        writeln!(out, "{title}: {sentence}{instead}")?;
        let place = |n: &NodeCount| match is_daemon_set {
            true => n.node.clone(),
            false => format!("{} on {}", n.pods, n.node),
        };
        let mut places: Vec<String> = nodes.iter().map(place).collect();
        places.sort();
        if !places.is_empty() {
            let on = if is_daemon_set { "on " } else { "" };
            writeln!(out, "  {on}{}", some(&places))?;
        }
        print_verdicts(&lacking, out)?;
    }
    if let Some(report) = &without {
        report.print(out, false)?;
    }
    Ok(all)
}
