//! Compiles the service definitions in `proto/` without protoc.

use std::error::Error;

/// Every file is compiled separately, into a separate directory: several services share the proto package `v1alpha1`.
const FILES: &[&str] = &[
    "cri_v1",
    "dra_v1",
    "dra_v1beta1",
    "dra_v1alpha4",
    "dra_v1alpha3",
    "dra_v1alpha2",
    "dra_v1alpha1",
    "dra_health_v1alpha1",
    "dra_health_v1",
    "nri_v1alpha1",
    "pluginregistration_v1",
    "podresources_v1",
    "podresources_v1alpha1",
    "ttrpc",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    for file in FILES {
        let source = format!("proto/{file}.proto");
        println!("cargo::rerun-if-changed={source}");
        let descriptors = protox::compile([&source], ["proto"])?;
        let directory = out.join(file);
        std::fs::create_dir_all(&directory)?;
        let mut builder = tonic_prost_build::configure()
            .build_transport(true)
            .out_dir(&directory);
        if file == &"nri_v1alpha1" {
            // In the order of their keys, so that what several plugins request is applied in the same order each time.
            builder = builder.btree_map(".");
        }
        if file == &"dra_health_v1" {
            // Only the service is another one.
            for message in ["NodeWatchResourcesRequest", "NodeWatchResourcesResponse"] {
                let ours = format!("crate::dra_health_v1alpha1::{message}");
                builder = builder.extern_path(format!(".v1.{message}"), ours);
            }
        }
        builder.compile_fds(descriptors)?;
    }
    Ok(())
}
