//! The models that are built into the binary.

use crate::format::Model;

/// Lists every file of the catalogue once.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../catalogue/", $name, ".yaml")))),*];
    };
}

files![
    "a100",
    "a100-mig",
    "cpu",
    "example-cpu",
    "example-gpu",
    "example-net",
    "gaudi3",
    "gb200-nvl72",
    "gpu-shared",
    "h100",
    "h100-mig",
    "mi300x",
    "mi300x-cpx",
    "nvme",
    "rdma-nic",
    "sriov",
    "tpu-v5e",
];

/// Names of the models, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The content of a model's file.
pub fn source(name: &str) -> Option<&'static str> {
    let file = FILES.iter().find(|(known, _)| *known == name);
    file.map(|(_, text)| *text)
}

/// The model of that name.
pub fn find(name: &str) -> Option<Model> {
    // A test parses each model.
    Model::parse(source(name)?).ok()
}
