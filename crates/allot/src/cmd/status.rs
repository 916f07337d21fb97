//! `allot status`: whether a cluster of `allot up` runs, and its content.

use std::collections::BTreeSet;
use std::io::stdout;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use allot_node::{REGISTERED_DRIVERS, remains};
use allot_reflector::{everything, list};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use super::output::{self, Format};
use crate::clusters::record::{self, Record};
use crate::clusters::{ClusterSelection, registry};

mod text;

use text::{rows, text};

/// The deadline of each request to the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags of `allot status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 0 if the cluster runs (with --all: if any does), and with 1 if not."
)]
pub struct Args {
    #[command(flatten)]
    which: ClusterSelection,
    /// Every cluster of this user
    #[arg(long, conflicts_with = "which")]
    all: bool,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The status of a cluster.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    running: bool,
    /// It was ready for pods.
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    data_dir: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<String>,
    /// The link to its dashboard, which gives its users the permissions of the kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    dashboard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
    /// Containers with processes on this machine, also of a cluster that has ended.
    containers: Vec<String>,
    /// The problem, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Information from the API server.
#[derive(Debug, Serialize)]
struct Content {
    nodes: Count,
    pods: Pods,
    drivers: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
struct Count {
    ready: usize,
    total: usize,
}

#[derive(Debug, Default, Serialize)]
struct Pods {
    running: usize,
    pending: usize,
    succeeded: usize,
    failed: usize,
    total: usize,
}

/// Prints the running clusters.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let records = registry::all();
    if args.all {
        let mut all = Vec::new();
        for record in records {
            let found = runtime.block_on(status(&record.data_dir, Some(record.clone())));
            if found.running || !found.containers.is_empty() {
                all.push(found);
            }
        }
        (args.output).print(&mut stdout(), &all, |mut out| {
            Ok(output::table(&mut out, &rows(&all))?)
        })?;
        return Ok(code(all.iter().any(|status| status.running)));
    }
    let directory = args.which.directory()?;
    let known = Record::known(&directory, &records);
    let mut found = runtime.block_on(status(&directory, known));
    found.name = found.name.or_else(|| args.which.name.clone());
    (args.output).print(&mut stdout(), &found, |out| {
        Ok(write!(out, "{}", text(&found, args.which.name.as_deref()))?)
    })?;
    if !found.running {
        super::down::name_others(&directory, &records);
    }
    Ok(code(found.running))
}

fn code(running: bool) -> ExitCode {
    match running {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    }
}

async fn status(directory: &Path, record: Option<Record>) -> Status {
    let containers = remains::find(directory);
    let mut status = Status {
        data_dir: directory.display().to_string(),
        containers: containers.iter().map(remains::Remaining::name).collect(),
        ..Status::default()
    };
    let alive = record.as_ref().and_then(Record::alive);
    let (Some(record), Some(process)) = (record, alive) else {
        status.problem = record::holder(directory).map(|pid| {
            format!(
                "process {pid} uses the data directory: a starting `allot up`, an `allot apiserver`, or another command"
            )
        });
        return status;
    };
    let age = Timestamp::now().as_second() - record.started.as_second();
    status.running = true;
    status.ready = record.ready;
    status.name = record.name;
    status.pid = Some(process.pid());
    status.version = Some(record.version);
    status.server = Some(record.server);
    status.dashboard = record.dashboard;
    status.log = record.log.map(|log| log.display().to_string());
    status.started = Some(record.started.to_string());
    status.age_seconds = Some(age.max(0));
    let content = async {
        let kubeconfig = Some(record.kubeconfig.as_path());
        content(super::component::client(kubeconfig, "allot-status").await?).await
    };
    let content = tokio::time::timeout(PATIENCE, content);
    match content.await {
        Ok(Ok(content)) => status.content = Some(content),
        Ok(Err(error)) => status.problem = Some(crate::describe(&error)),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            status.problem = Some(format!("the API server does not answer within {seconds} s"));
        }
    }
    status.kubeconfig = Some(record.kubeconfig.display().to_string());
    status
}

async fn content(client: Client) -> anyhow::Result<Content> {
    let all = ListParams::default();
    let nodes = list(&Api::<Node>::all(client.clone()), &all, everything).await?;
    let pods = list(&Api::<Pod>::all(client.clone()), &all, everything).await?;
    let ready = |node: &&Node| {
        let conditions = node.status.iter().flat_map(|status| &status.conditions);
        conditions
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    // Drivers with published devices, and registered ones: either may come first.
    let slices = match list(&Api::<ResourceSlice>::all(client), &all, everything).await {
        Ok(slices) => slices,
        // An older release, or one without devices.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let registered = nodes.iter().filter_map(|node| {
        let annotations = node.metadata.annotations.as_ref()?;
        annotations.get(REGISTERED_DRIVERS)
    });
    let registered = registered.flat_map(|names| names.split(','));
    let publishing = slices.iter().map(|slice| slice.spec.driver.as_str());
    let drivers = registered
        .chain(publishing)
        // A node that prepares claims of any driver reports `*`, and exceptions with `!`.
        .filter(|name| !name.is_empty() && !name.starts_with(['*', '!']))
        .map(str::to_owned)
        .collect();
    let mut count = Pods {
        total: pods.len(),
        ..Pods::default()
    };
    for pod in &pods {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        match phase {
            Some("Running") => count.running += 1,
            Some("Succeeded") => count.succeeded += 1,
            Some("Failed") => count.failed += 1,
            _ => count.pending += 1,
        }
    }
    Ok(Content {
        nodes: Count {
            ready: nodes.iter().filter(ready).count(),
            total: nodes.len(),
        },
        pods: count,
        drivers,
    })
}

#[cfg(test)]
mod tests {
    use allot_apiserver::Server;
    use allot_apiserver::identity::User;
    use kube::api::{Patch, PatchParams, PostParams};
    use serde_json::json;

    use super::*;

    /// The attack: a pod of any tenant with a time that cannot be parsed made the whole command fail.
    #[tokio::test]
    async fn regression_a_pod_with_a_time_of_the_last_day_is_counted() {
        let server = Server::in_memory().await.expect("a server");
        let client = Client::new(server.client_service(User::admin()), "default");
        let pods = Api::<kube::api::DynamicObject>::default_namespaced_with(
            client.clone(),
            &kube::api::ApiResource::erase::<Pod>(&()),
        );
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "poisoned"},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
        });
        let account = json!({"metadata": {"name": "default"}});
        let accounts = Api::default_namespaced(client.clone());
        let account: k8s_openapi::api::core::v1::ServiceAccount =
            serde_json::from_value(account).expect("an account");
        let made = accounts.create(&PostParams::default(), &account).await;
        made.expect("an account");
        let pod = serde_json::from_value(pod).expect("a pod");
        let made = pods.create(&PostParams::default(), &pod).await;
        made.expect("a pod");
        let status = json!({"status": {"phase": "Running", "conditions": [
            {"type": "a.example.com/b", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"},
        ]}});
        let patch = Patch::Merge(status);
        let params = PatchParams::default();
        let changed = pods.patch_status("poisoned", &params, &patch).await;
        changed.expect("a status");
        let content = content(client).await.expect("the content");
        assert_eq!((content.pods.running, content.pods.total), (1, 1));
    }
}
