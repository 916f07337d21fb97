//! `allot bench node`: how long a node takes until the containers of pods run, and its memory.

use std::collections::HashMap;
use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use allot_reflector::{Collection, Observed, everything, list, observe};
use anyhow::{Context as _, anyhow, bail};
use futures::stream::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::super::access::Access;
use super::super::bounds;
use super::measure::{Process, millis, percentile};
use crate::component;

/// Time limit for all pods of a step.
const PATIENCE: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "bench-node";

/// Flags of `allot bench node`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Pods are created for a node, without the scheduler, first one after the other and then all at once.
They sleep. The namespace bench-node is created, and deleted in the end.

  allot up --images host &
  allot bench node --process agent=$!")]
pub struct Args {
    #[command(flatten)]
    access: Access,
    /// The node; default is the first one
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// How many pods are created one after the other
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = bounds::within(1..=1000_usize))]
    singles: usize,
    /// How many pods are created at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = bounds::within(1..=1000_usize))]
    pods: usize,
    /// Image of the pods, which should be on the node
    #[arg(long, value_name = "IMAGE", default_value = "allot.dev/none:1")]
    image: String,
    /// Process whose memory is printed
    #[arg(long, value_name = "NAME=PID")]
    process: Vec<Process>,
    /// `json` for one object
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json", "text"], default_value = "text")]
    output: String,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        let client = args.access.client("allot-bench").await?;
        let namespaces = Api::<Namespace>::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        let made = namespaces.create(&PostParams::default(), &namespace).await;
        made.context("cannot create the namespace of the pods")?;
        let measured = tokio::select! {
            measured = measure(&client, &args) => measured,
            () = shutdown.cancelled() => Err(anyhow!(component::INTERRUPTED)),
        };
        let deleted = namespaces.delete(NAMESPACE, &DeleteParams::default()).await;
        measured?;
        deleted.context("cannot delete the namespace of the pods")?;
        Ok(())
    })
}

async fn measure(client: &Client, args: &Args) -> anyhow::Result<()> {
    let node = match &args.node {
        Some(node) => node.clone(),
        None => {
            let nodes = Api::<Node>::all(client.clone());
            let all = list(&nodes, &ListParams::default().limit(1), everything).await?;
            let first = all.into_iter().next();
            first.context("there is no node")?.name_any()
        }
    };
    wait_for_account(client).await?;
    let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let mut pods = observe::<Pod>(Collection::new(api.clone(), None));
    let mut singles = Vec::new();
    for number in 0..args.singles {
        let name = format!("single-{number}");
        let since = Instant::now();
        create(&api, &name, &node, &args.image).await?;
        let seen = running(&mut pods, HashMap::from([(name, since)])).await?;
        singles.extend(seen);
    }
    let start = Instant::now();
    let names: Vec<String> = (0..args.pods).map(|at| format!("many-{at}")).collect();
    let created = names
        .iter()
        .map(|name| create(&api, name, &node, &args.image));
    futures::future::try_join_all(created).await?;
    let waiting = names.into_iter().map(|name| (name, start)).collect();
    let many = running(&mut pods, waiting).await?;
    report(args, &millis(&singles), &millis(&many))
}

/// Waits for the account that pods run as, without which none can be created.
async fn wait_for_account(client: &Client) -> anyhow::Result<()> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let default = Collection::new(accounts, Some("metadata.name=default"));
    let mut accounts = observe::<ServiceAccount>(default);
    let account = async {
        while let Some(observed) = accounts.next().await {
            match observed {
                Observed::Listed { items, .. } if items.is_empty() => {}
                Observed::Deleted(_) => {}
                Observed::Listed { .. } | Observed::Applied(_) => break,
            }
        }
    };
    let account = tokio::time::timeout(PATIENCE, account).await;
    account.context("the namespace has no service account")
}

/// Creates a pod that is bound to the node.
async fn create(api: &Api<Pod>, name: &str, node: &str, image: &str) -> anyhow::Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
            }],
        },
    }))?;
    let created = api.create(&PostParams::default(), &pod).await;
    created.with_context(|| format!("cannot create pod {name}"))?;
    Ok(())
}

/// Waits until pods run; the time that each took from its moment on.
async fn running(
    pods: &mut (impl Stream<Item = Observed<Pod>> + Unpin),
    mut since: HashMap<String, Instant>,
) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    let end = tokio::time::Instant::now() + PATIENCE;
    while !since.is_empty() {
        let Ok(observed) = tokio::time::timeout_at(end, pods.next()).await else {
            bail!("{} pods do not run after {PATIENCE:?}", since.len());
        };
        let changed = match observed.context("the watch of the pods has ended")? {
            Observed::Listed { items, .. } => items,
            Observed::Applied(pod) => vec![*pod],
            Observed::Deleted(_) => continue,
        };
        for pod in changed {
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            match phase {
                Some("Running") => {
                    let since = since.remove(&pod.name_any());
                    took.extend(since.map(|since| since.elapsed()));
                }
                Some("Failed" | "Succeeded") => bail!("pod {} has ended", pod.name_any()),
                _ => {}
            }
        }
    }
    Ok(took)
}

fn report(args: &Args, singles: &[f64], many: &[f64]) -> anyhow::Result<()> {
    let all = many.last().copied().unwrap_or_default();
    let (p50, p99) = (percentile(singles, 0.5), percentile(singles, 0.99));
    let memory = args.process.iter().map(|process| {
        let resident = process.resident_mib().unwrap_or_default();
        (process.label.as_str(), resident)
    });
    let memory: Vec<(&str, f64)> = memory.collect();
    if args.output == "json" {
        let memory: serde_json::Map<_, _> = memory
            .into_iter()
            .map(|(label, mib)| (label.to_owned(), json!(mib)))
            .collect();
        let line = json!({
            "singles": singles.len(), "boundToRunningMillis": {"p50": p50, "p99": p99},
            "pods": many.len(), "atOnceSeconds": all / 1e3, "memoryMiB": memory,
        });
        writeln!(stdout(), "{line}")?;
        return Ok(());
    }
    writeln!(
        stdout(),
        "bound to Running, {} pods one after the other: p50 {p50:.0} ms, p99 {p99:.0} ms",
        singles.len()
    )?;
    writeln!(
        stdout(),
        "{} pods at once: {:.1} s until all run",
        many.len(),
        all / 1e3
    )?;
    for (label, mib) in memory {
        writeln!(stdout(), "memory of {label} with all of them: {mib:.0} MiB")?;
    }
    Ok(())
}
