//! `allot demo`: a temporary cluster, the example manifests, and the output that a user would see.

mod measure;
mod shell;

use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Args as ClusterArgs, Cluster};
use shell::Shell;

/// How long one step may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The manifests of `examples/`, in the order of the story.
const EXAMPLES: &[Example] = &[
    example(
        "shared-by-containers.yaml",
        include_str!("../../../../examples/shared-by-containers.yaml"),
        &[
            ("shared-by-containers", "ctr0"),
            ("shared-by-containers", "ctr1"),
        ],
    ),
    example(
        "shared-by-pods.yaml",
        include_str!("../../../../examples/shared-by-pods.yaml"),
        &[("shared-by-pods-0", "ctr"), ("shared-by-pods-1", "ctr")],
    ),
    example(
        "two-requests.yaml",
        include_str!("../../../../examples/two-requests.yaml"),
        &[("two-requests", "ctr0"), ("two-requests", "ctr1")],
    ),
    example(
        "cel-selector.yaml",
        include_str!("../../../../examples/cel-selector.yaml"),
        &[("cel-selector", "ctr")],
    ),
    example(
        "deployment.yaml",
        include_str!("../../../../examples/deployment.yaml"),
        &[("gpu-workers", "worker")],
    ),
];

const TEMPLATE: &str = include_str!("../../../../examples/example_resourceclaimtemplate.yaml");
const POD: &str = include_str!("../../../../examples/example_claim_po.yaml");

/// A manifest and the containers whose logs are shown.
struct Example {
    file: &'static str,
    manifest: &'static str,
    /// Pod, or prefix of generated pods' names, and container.
    containers: &'static [(&'static str, &'static str)],
}

const fn example(
    file: &'static str,
    manifest: &'static str,
    containers: &'static [(&'static str, &'static str)],
) -> Example {
    Example {
        file,
        manifest,
        containers,
    }
}

/// Flags of `allot demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  allot demo")]
pub struct Args {
    /// Print the measurements as JSON on the last line
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// Runs the demo; an error names the step that failed.
pub fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    super::component::block_on(async move |shutdown| {
        let mut cluster = tokio::select! {
            started = Cluster::start(ClusterArgs::temporary()?) => started?,
            () = shutdown.cancelled() => anyhow::bail!("interrupted"),
        };
        let told = tokio::select! {
            told = run_steps(&mut cluster, started, &shutdown) => told,
            () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
        };
        cluster.stop().await;
        let measured = told?;
        if args.output.is_some() {
            writeln!(stdout(), "{}", serde_json::to_string(&measured)?)?;
        } else {
            writeln!(stdout(), "{measured}")?;
        }
        Ok(())
    })
}

async fn run_steps(
    cluster: &mut Cluster,
    started: Instant,
    shutdown: &CancellationToken,
) -> anyhow::Result<measure::Measured> {
    within("the cluster gets ready", cluster.ready()).await?;
    let ready = started.elapsed();
    writeln!(
        stdout(),
        "# a cluster in memory is ready at {}\n",
        cluster.url
    )?;
    // From here on as any other client: over TLS, with the kubeconfig.
    let client = super::component::client(Some(&cluster.kubeconfig), "allot-demo").await?;
    let shell = Shell::new(client.clone());
    shell.get("resourceslices").await?;
    shell.get("deviceclasses").await?;

    let states = tokio::spawn(claim_states(client.clone(), shutdown.child_token()));
    let first = Instant::now();
    shell
        .apply("example_resourceclaimtemplate.yaml", TEMPLATE)
        .await?;
    shell.apply("example_claim_po.yaml", POD).await?;
    let pods = shell::pods(&client);
    within(
        "the first pod runs",
        shell::until_running(&pods, "example-claim"),
    )
    .await?;
    let (since_exec, since_apply) = (started.elapsed(), first.elapsed());
    let memory = measure::resident()?;
    shell.get("pods").await?;
    shell.get("resourceclaims").await?;
    let environment = within(
        "exec answers",
        shell.gpu_environment("example-claim", "ctr"),
    )
    .await?;
    ensure!(
        environment.len() == 1,
        "the container should see one GPU, it sees {environment:?}"
    );
    within("the log is read", shell.logs("example-claim", "GPU_DEVICE")).await?;

    shell.delete(&pods, "example-claim").await?;
    writeln!(stdout(), "$ kubectl get resourceclaim -w")?;
    writeln!(stdout(), "{:<30}STATE", "NAME")?;
    for (name, state) in within("the claim goes away", async { states.await? }).await? {
        writeln!(stdout(), "{name:<30}{state}")?;
    }
    writeln!(stdout())?;

    for example in EXAMPLES {
        shell.apply(example.file, example.manifest).await?;
        for (pod, container) in example.containers {
            let what = format!("{pod} of {} runs", example.file);
            let name = within(&what, shell::running_with_prefix(&pods, pod)).await?;
            within("exec answers", shell.gpu_environment(&name, container)).await?;
        }
    }
    shell.get("pods").await?;
    shell.get("resourceclaims").await?;
    for example in EXAMPLES {
        shell.remove(example.manifest).await?;
    }
    within("everything is released", released(&client)).await?;
    shell.get("resourceclaims").await?;
    measure::Measured::new(ready, since_exec, since_apply, memory)
}

/// Waits for one step; names it when it fails or takes too long.
async fn within<T>(what: &str, step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(result) => result.with_context(|| format!("waiting until {what}")),
        Err(_) => bail!("gave up waiting until {what} after {}s", PATIENCE.as_secs()),
    }
}

/// Every state of the first claim, until it is deleted.
async fn claim_states(
    client: kube::Client,
    stop: CancellationToken,
) -> anyhow::Result<Vec<(String, String)>> {
    let claims = claims(&client);
    let mut events = std::pin::pin!(watcher::watcher(claims, watcher::Config::default()));
    let mut states = Vec::new();
    while !stop.is_cancelled() {
        match events.try_next().await? {
            Some(Event::Apply(claim) | Event::InitApply(claim)) => states.push(row(&claim)),
            Some(Event::Delete(claim)) => {
                states.push(row(&claim));
                break;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(states)
}

fn claims(client: &kube::Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ResourceClaim>(&());
    Api::default_namespaced_with(client.clone(), &kind)
}

fn row(claim: &DynamicObject) -> (String, String) {
    let name = claim.metadata.name.clone().unwrap_or_default();
    let status = &claim.data["status"];
    let state = match (&status["allocation"], &status["reservedFor"][0]) {
        (Value::Null, _) => "pending",
        (_, Value::Null) => "allocated",
        _ => "allocated,reserved",
    };
    (name, state.to_owned())
}

/// Waits until only the claim that was created by hand remains, and deletes that.
async fn released(client: &kube::Client) -> anyhow::Result<()> {
    let claims = claims(client);
    let mut left = std::collections::BTreeSet::new();
    let mut events = std::pin::pin!(watcher::watcher(claims.clone(), watcher::Config::default()));
    loop {
        match events.try_next().await? {
            Some(Event::Apply(claim) | Event::InitApply(claim)) => {
                left.extend(claim.metadata.name);
            }
            Some(Event::Delete(claim)) => {
                left.remove(&claim.metadata.name.unwrap_or_default());
            }
            Some(Event::InitDone | Event::Init) => {}
            None => bail!("the watch ended"),
        }
        if left.is_empty()
            && claims
                .list_metadata(&Default::default())
                .await?
                .items
                .is_empty()
        {
            return Ok(());
        }
    }
}

/// Deletes without waiting; the object need not exist.
async fn delete<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}
