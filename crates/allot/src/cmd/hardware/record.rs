//! `allot hardware record`.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use allot_hardware::{Cluster, record};
use allot_reflector::everything;
use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::cmd::access::Access;
use crate::cmd::{component, count};

/// Flags of `allot hardware record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Names of nodes, hosts, zones and node pools, UUIDs, serial numbers, hardware and IP addresses are
replaced; what is equal stays equal. Look at the files before you pass them on: a word that a
driver writes and that looks like none of these stays.")]
pub(super) struct Record {
    #[command(flatten)]
    access: Access,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Directory of the files; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: Record) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let client = args.access.client("allot-hardware").await?;
        let cluster = Cluster {
            nodes: list::<Node>(&client).await?,
            slices: list::<ResourceSlice>(&client).await?,
            classes: list::<DeviceClass>(&client).await?,
            only: args.node,
        };
        if let Some(node) = &cluster.only {
            let mut names = cluster.nodes.iter().map(|known| &known["metadata"]["name"]);
            ensure!(names.any(|name| name == node), "there is no node {node}");
        }
        let shared = cluster
            .slices
            .iter()
            .filter(|slice| !slice["spec"]["nodeName"].is_string());
        let shared = shared.count();
        let recorded = record(&cluster)?;
        ensure!(!recorded.is_empty(), "no node has ResourceSlices");
        std::fs::create_dir_all(&args.output_dir)
            .with_context(|| format!("cannot create {}", args.output_dir.display()))?;
        let mut flags = Vec::new();
        for kind in &recorded {
            let file = args.output_dir.join(format!("{}.yaml", kind.model.name));
            std::fs::write(&file, &kind.text)
                .with_context(|| format!("cannot write {}", file.display()))?;
            flags.push(format!("{}={}", file.display(), kind.nodes));
        }
        writeln!(
            stdout(),
            "allot up --runtime simulated --hardware {}",
            flags.join(",")
        )?;
        if shared > 0 {
            let shared = count(shared, "ResourceSlice");
            writeln!(std::io::stderr(), "{shared} of no single node left out")?;
        }
        Ok(())
    })
}

/// All objects of a kind, as they are.
async fn list<K: kube::Resource<DynamicType = ()>>(client: &Client) -> anyhow::Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let kind = K::plural(&());
    let list = allot_reflector::list(&api, &ListParams::default(), everything).await;
    let list = list.with_context(|| format!("cannot list {kind}"))?;
    list.into_iter()
        .map(|item| Ok(serde_json::to_value(item)?))
        .collect()
}
