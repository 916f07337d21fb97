//! The assignment of hardware models to the nodes of a cluster.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::catalogue;
use crate::expand::{Expanded, NodeParts};
use crate::format::Model;
use crate::{Error, MOST_BYTES};

/// The hardware of a group of equal nodes.
#[derive(Debug, Clone)]
struct Choice {
    /// The models that each of the nodes has.
    models: Vec<Arc<Model>>,
    /// Number of nodes; without it all remaining ones.
    nodes: Option<usize>,
}

/// The hardware of all nodes.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    choices: Vec<Choice>,
}

impl Fleet {
    /// Parses a list such as `h100-mig=4,mi300x=2`: names of the catalogue or files, each with the number of its nodes.
    /// The last one may omit the number, and gets all remaining nodes. `h100+rdma-nic` are models of one node.
    ///
    /// # Errors
    /// A name is unknown, a file is not a model, a number is invalid, or two models of one node have the same driver.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, Error> {
        let entries = texts.iter().flat_map(|text| text.as_ref().split(','));
        let mut choices: Vec<Choice> = Vec::new();
        for entry in entries {
            let (names, nodes) = match entry.rsplit_once('=') {
                Some((names, nodes)) => {
                    let wrong =
                        || Error::Choice(format!("{entry:?}: {nodes:?} is no number of nodes"));
                    let nodes: usize = nodes.parse().map_err(|_| wrong())?;
                    (names, Some(nodes))
                }
                None => (entry, None),
            };
            if choices.last().is_some_and(|last| last.nodes.is_none()) {
                let text = format!(
                    "{entry:?} comes after hardware for all nodes that are left: give that a number"
                );
                return Err(Error::Choice(text));
            }
            let models = names
                .split('+')
                .map(|name| Model::named(name).map(Arc::new));
            let models = models.collect::<Result<Vec<_>, _>>()?;
            let mut drivers = BTreeSet::new();
            for driver in models.iter().flat_map(|model| model.drivers()) {
                if !drivers.insert(driver) {
                    let text =
                        format!("{names:?}: more than one model of driver {driver} for a node");
                    return Err(Error::Choice(text));
                }
            }
            choices.push(Choice { models, nodes });
        }
        Ok(Self { choices })
    }

    /// The number of nodes with hardware, as far as the list gives numbers.
    pub fn counted(&self) -> usize {
        let counts = self.choices.iter().filter_map(|choice| choice.nodes);
        counts.fold(0, usize::saturating_add)
    }

    /// The models of a node, and how many nodes before it have the same.
    pub fn of(&self, node: usize) -> Option<(&[Arc<Model>], usize)> {
        let mut first = 0_usize;
        for choice in &self.choices {
            let end = choice
                .nodes
                .map_or(usize::MAX, |nodes| first.saturating_add(nodes));
            if node < end {
                return Some((&choice.models, node - first));
            }
            first = end;
        }
        None
    }

    /// The hardware of a node, by its name and number.
    ///
    /// # Errors
    /// See [`Model::expand`].
    pub fn expand(&self, name: &str, node: usize) -> Result<Expanded, Error> {
        let mut all = Expanded::default();
        let Some((models, index)) = self.of(node) else {
            return Ok(all);
        };
        for model in models {
            let some = model.expand(name, index)?;
            all.labels.extend(some.labels);
            all.capacity.extend(some.capacity);
            all.slices.extend(some.slices);
        }
        Ok(all)
    }

    /// Labels and capacity of a node, by its name and number.
    ///
    /// # Errors
    /// See [`Model::expand`].
    pub fn node(&self, name: &str, node: usize) -> Result<NodeParts, Error> {
        let mut all = NodeParts::default();
        let Some((models, index)) = self.of(node) else {
            return Ok(all);
        };
        for model in models {
            let (labels, capacity) = model.expand_node(name, index)?;
            all.0.extend(labels);
            all.1.extend(capacity);
        }
        Ok(all)
    }

    /// The names of a node's models, as a value of a label.
    pub fn name(&self, node: usize) -> String {
        let models = self.of(node).map(|(models, _)| models).unwrap_or_default();
        let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
        let mut name = names.join(".");
        // A label has at most 63 bytes, and names are ASCII.
        name.truncate(63);
        name.trim_end_matches(['.', '-']).to_owned()
    }

    /// Every model once.
    pub fn models(&self) -> Vec<&Model> {
        let mut models: Vec<&Model> = Vec::new();
        for model in self.choices.iter().flat_map(|choice| &choice.models) {
            if models.iter().all(|other| other.name != model.name) {
                models.push(model);
            }
        }
        models
    }
}

impl Model {
    /// A model of the catalogue, or of a file.
    ///
    /// # Errors
    /// The name is unknown, or see [`Model::read`].
    pub fn named(name: &str) -> Result<Self, Error> {
        if let Some(text) = catalogue::source(name) {
            return Self::parse(text);
        }
        if !name.contains(['/', '.']) {
            let known: Vec<_> = catalogue::names().collect();
            return Err(Error::Unknown {
                name: name.to_owned(),
                known: known.join(", "),
            });
        }
        Self::read(Path::new(name))
    }

    /// Reads the model of a file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or is not a model.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let unreadable = |error: std::io::Error| Error::Shape(format!("{shown}: {error}"));
        // The size of a pipe or a device is not known before.
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_string(&mut text))
            .map_err(unreadable)?;
        Self::parse(&text).map_err(|error| Error::Shape(format!("{shown}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_their_hardware_in_order() {
        let fleet = Fleet::parse(&["h100-mig=2,mi300x=1", "example-gpu"]).expect("a fleet");
        let name = |node| {
            let (models, index) = fleet.of(node).expect("hardware");
            format!("{} {index}", models[0].name)
        };
        assert_eq!(name(1), "h100-mig 1");
        assert_eq!(name(2), "mi300x 0");
        assert_eq!(name(3), "example-gpu 0");
        assert_eq!(name(5), "example-gpu 2");
        assert_eq!(fleet.counted(), 3);
        let counted = Fleet::parse(&["h100=1"]).expect("a fleet");
        assert!(counted.of(1).is_none());
    }

    #[test]
    fn several_models_on_a_node_share_pcie_roots() {
        let fleet = Fleet::parse(&["h100+rdma-nic"]).expect("a fleet");
        let node = fleet.expand("n", 0).expect("expands");
        let roots = |driver: &str| {
            let slices = node.slices.iter().filter(|slice| slice.driver == driver);
            let devices = slices.flat_map(|slice| &slice.devices);
            let root = |device: &serde_json::Value| {
                let root = &device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"];
                root.as_str().map(str::to_owned)
            };
            // A virtual interface has no NUMA node.
            devices.filter_map(root).collect::<BTreeSet<_>>()
        };
        assert_eq!(roots("gpu.nvidia.com").len(), 8);
        assert_eq!(roots("gpu.nvidia.com"), roots("dra.net"));
    }

    #[test]
    fn bad_lists_have_a_reason() {
        for (text, expected) in [
            ("", "unknown hardware \"\""),
            (
                "h200x",
                "unknown hardware \"h200x\": the catalogue has a100",
            ),
            ("h100=x", "is no number of nodes"),
            ("h100=-1", "is no number of nodes"),
            ("h100,a100", "comes after hardware for all nodes"),
            ("h100+a100", "more than one model of driver gpu.nvidia.com"),
            ("./nowhere.yaml", "No such file"),
            // The attack: an endless file with the size 0.
            ("/dev/zero", "more than the 1048576 bytes"),
        ] {
            let error = Fleet::parse(&[text]).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
