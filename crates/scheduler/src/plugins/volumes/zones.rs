//! VolumeZone: a volume with labels of a zone or region is used there.

use allot_apimachinery::well_known;

use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::status::Rejection;

use super::PodVolumeClaims;

/// Topology labels: the current name and the deprecated one.
const TOPOLOGY: [(&str, &str); 2] = [
    (
        well_known::LABEL_TOPOLOGY_ZONE,
        well_known::LABEL_FAILURE_DOMAIN_BETA_ZONE,
    ),
    (
        well_known::LABEL_TOPOLOGY_REGION,
        well_known::LABEL_FAILURE_DOMAIN_BETA_REGION,
    ),
];

/// Rejects a node outside of a volume's zone. Nodes without topology labels accept all volumes.
pub fn zones(volumes: &PodVolumeClaims<'_>, node: &NodeInfo) -> Result<(), Rejection> {
    let labels = node.labels();
    let names = || TOPOLOGY.into_iter().flat_map(|(new, old)| [new, old]);
    if !names().any(|name| labels.contains_key(name)) {
        return Ok(());
    }
    let of_node = |(new, old)| labels.get(new).or_else(|| labels.get(old));
    for volume in volumes.bound.iter().flatten() {
        for pair in TOPOLOGY {
            for name in [pair.0, pair.1] {
                let Some(places) = volume.labels.get(name) else {
                    continue;
                };
                // A volume in several zones has them all in one value.
                let is_there = |value: &String| places.split("__").any(|place| place == value);
                if !of_node(pair).is_some_and(is_there) {
                    return Err(Rejection::unresolvable(
                        Plugin::VolumeZone,
                        "node(s) had no available volume zone",
                    ));
                }
            }
        }
    }
    Ok(())
}
