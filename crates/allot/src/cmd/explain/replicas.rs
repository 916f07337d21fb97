//! How many pods of a workload fit, one after the other.

use std::io::Write;

use serde::Serialize;

use super::cluster_objects::{LoadedScheduler, Workload};
use super::report::Report;

/// How many pods of a workload fit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replicas<'a> {
    workload: &'a str,
    /// The requested number of replicas.
    replicas: usize,
    /// How many are on nodes already.
    #[serde(skip_serializing_if = "is_zero")]
    on_nodes: usize,
    /// How many of the others fit together.
    fit: usize,
    /// Every one that fits is on one of these nodes.
    nodes: Vec<NodeCount>,
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
    let mut nodes: Vec<NodeCount> = Vec::new();
    for (namespace, name) in &workload.pods {
        let report = Report::new(loaded, namespace, name)?;
        if !report.fits || report.is_in_gang() {
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
            fit,
            nodes,
            first_without: without.as_ref(),
        };
        serde_json::to_writer(&mut *out, &replicas)?;
        writeln!(out)?;
        return Ok(all);
    }
    if !without.as_ref().is_some_and(Report::is_in_gang) {
        let title = &workload.title;
        let untried = match without.is_none() && fit < wanted {
            true => "; more were not tried",
            false => "",
        };
        match (workload.on_nodes, wanted) {
            (0, _) => writeln!(out, "{title}: {fit} of {wanted} replicas fit{untried}")?,
            (on_nodes, 0) => writeln!(out, "{title}: {on_nodes} on nodes, no more wanted")?,
            (on_nodes, _) => writeln!(
                out,
                "{title}: {on_nodes} on nodes, {fit} of {wanted} more fit{untried}"
            )?,
        }
        let mut places: Vec<String> = nodes
            .iter()
            .map(|n| format!("{} on {}", n.pods, n.node))
            .collect();
        places.sort();
        if !places.is_empty() {
            writeln!(out, "  {}", crate::cmd::some(&places))?;
        }
    }
    if let Some(report) = &without {
        report.print(out, false)?;
    }
    Ok(all)
}
