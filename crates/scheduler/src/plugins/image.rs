//! ImageLocality: prefers nodes that have the pod's images, damped by how few nodes have them.

use rustc_hash::FxHashMap;

use super::MAX_SCORE;
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::PodInfo;

const MIN_BYTES: i64 = 23 * 1024 * 1024;
const MAX_BYTES_PER_CONTAINER: i64 = 1000 * 1024 * 1024;

/// The scores of nodes; `None` if no node reports images.
pub(super) fn score(pod: &PodInfo, snapshot: &Snapshot, nodes: &[usize]) -> Option<Vec<i64>> {
    if snapshot.image_nodes.is_empty() {
        return None;
    }
    let images = ImageLocality::new(pod);
    let score = |at: &usize| {
        let node = &snapshot.nodes[*at];
        images.score(node, &snapshot.image_nodes, snapshot.nodes.len())
    };
    Some(nodes.iter().map(score).collect())
}

/// The images of a pod by the names under which nodes report them.
#[derive(Debug)]
pub struct ImageLocality {
    images: Vec<String>,
    containers: i64,
}

impl ImageLocality {
    /// Collects the images of the pod's containers and volumes.
    pub fn new(pod: &PodInfo) -> Self {
        let spec = pod.spec();
        let all = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        let volumes = spec.volumes.iter().flatten();
        let mounted = volumes.filter_map(|v| v.image.as_ref()?.reference.as_deref());
        let images: Vec<String> = all
            .filter_map(|c| c.image.as_deref())
            .chain(mounted)
            .map(normalized)
            .collect();
        // What counts as much is measured by containers alone.
        let containers = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
        Self {
            images,
            containers: i64::try_from(containers).unwrap_or(1),
        }
    }

    /// Score of a node; `spread` contains how many of `total` nodes have an image.
    pub fn score(&self, node: &NodeInfo, spread: &FxHashMap<String, usize>, total: usize) -> i64 {
        let mut sum = 0i64;
        for image in &self.images {
            if let Some(bytes) = node.images.get(image) {
                let share = spread.get(image).copied().unwrap_or(0) as f64 / total.max(1) as f64;
                sum = sum.saturating_add((*bytes as f64 * share) as i64);
            }
        }
        let max = (MAX_BYTES_PER_CONTAINER * self.containers).max(MIN_BYTES);
        let clamped = sum.clamp(MIN_BYTES, max);
        MAX_SCORE * (clamped - MIN_BYTES) / (max - MIN_BYTES).max(1)
    }
}

/// Adds the tag that is meant when none is given.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}
