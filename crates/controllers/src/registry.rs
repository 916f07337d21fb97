//! Which controllers exist, and what the API server has to serve for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio_util::sync::CancellationToken;

use crate::config::Controller as C;
use crate::error::Error;
use crate::inventory::Inventory;
use crate::kit::context::Context;

/// The task of one controller; it runs once its informers have their first list.
pub(crate) type Task = BoxFuture<'static, ()>;

/// Kinds that not every API server has.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// `group/version/resource` of everything that was asked for.
    resources: BTreeSet<String>,
    /// The release that the server is, or behaves like; known where it matters.
    minor: u32,
}

/// How a server serves claims of before 1.31.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassicVersion {
    /// `v1alpha1` or `v1alpha2`.
    pub(crate) version: &'static str,
    /// Generated claims are named after pod and entry, without a suffix (up to 1.27).
    pub(crate) deterministic_names: bool,
}

/// The last release that names generated claims after pod and entry alone.
const LAST_DETERMINISTIC: u32 = 27;

/// Group versions that matter for what controllers can do.
const ASKED: [&str; 15] = [
    "coordination.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1alpha2",
    "resource.k8s.io/v1alpha1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "discovery.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
];

impl Served {
    /// Whether the resource is served in that group version.
    pub(crate) fn has(&self, group_version: &str, resource: &str) -> bool {
        self.resources
            .contains(&format!("{group_version}/{resource}"))
    }

    /// How claims of before 1.31 are served, if they are.
    pub(crate) fn classic(&self) -> Option<ClassicVersion> {
        let version = ["v1alpha2", "v1alpha1"]
            .into_iter()
            .find(|v| self.has(&format!("resource.k8s.io/{v}"), "resourceclasses"))?;
        Some(ClassicVersion {
            version,
            deterministic_names: self.minor <= LAST_DETERMINISTIC,
        })
    }

    /// The best served version of DeviceTaintRule.
    pub(crate) fn taint_rules(&self) -> Option<ApiResource> {
        let versions = ["v1", "v1beta2", "v1alpha3"];
        self.best(
            "resource.k8s.io",
            &versions,
            "DeviceTaintRule",
            "devicetaintrules",
        )
    }

    /// The best served version of PodGroup.
    pub(crate) fn pod_groups(&self) -> Option<ApiResource> {
        let versions = ["v1", "v1beta1", "v1alpha3", "v1alpha2"];
        self.best("scheduling.k8s.io", &versions, "PodGroup", "podgroups")
    }

    fn best(
        &self,
        group: &str,
        versions: &[&str],
        kind: &str,
        plural: &str,
    ) -> Option<ApiResource> {
        let served = |v: &&&str| self.has(&format!("{group}/{v}"), plural);
        let version = versions.iter().find(served)?;
        Some(ApiResource {
            group: group.to_owned(),
            version: (*version).to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        })
    }
}

/// Asks the API server what it serves; waits while it can not be reached.
pub(crate) async fn served(client: &Client, shutdown: &CancellationToken) -> Result<Served, Error> {
    let mut served = Served::default();
    for group_version in ASKED {
        let mut delay = Duration::from_millis(20);
        loop {
            let found = tokio::select! {
                () = shutdown.cancelled() => return Ok(served),
                found = client.list_api_group_resources(group_version) => found,
            };
            match found {
                Ok(list) => {
                    served.add(group_version, &list);
                    break;
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => break,
                Err(error) => {
                    tracing::debug!(%error, "API server not reached yet");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(Duration::from_secs(2));
                }
            }
        }
    }
    if served.classic().is_some() {
        served.minor = loop {
            let found = tokio::select! {
                () = shutdown.cancelled() => return Ok(served),
                found = minor(client) => found,
            };
            match found {
                Ok(minor) => break minor,
                Err(error) => tracing::debug!(%error, "API server does not tell its version"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
    }
    Ok(served)
}

/// The release that the server is, or that it behaves like.
async fn minor(client: &Client) -> Result<u32, Error> {
    let request = http::Request::get("/version")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let version: serde_json::Value = client.request(request).await?;
    let number = |field: &str| {
        let text = version[field].as_str()?;
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok()
    };
    let minor = number("emulationMinor").or_else(|| number("minor"));
    Ok(minor.unwrap_or(u32::MAX))
}

impl Served {
    fn add(&mut self, group_version: &str, list: &APIResourceList) {
        for resource in &list.resources {
            self.resources
                .insert(format!("{group_version}/{}", resource.name));
        }
    }
}

/// Controllers that are set up.
pub(crate) struct Built {
    pub tasks: Vec<Task>,
    /// Filled before the tasks run, if one of them needs it.
    pub inventory: Option<Inventory>,
}

/// Builds the enabled controllers; their informers are registered, but do not run yet.
pub(crate) fn build(context: &Context, served: &Arc<Served>) -> Built {
    let enabled = &context.config.controllers;
    let everything = [C::GarbageCollector, C::Namespace, C::ResourceQuota];
    let inventory = everything
        .iter()
        .any(|c| enabled.contains(c))
        .then(|| Inventory::new(context, served));
    let tasks = enabled
        .iter()
        .filter_map(|c| task(*c, context, served, inventory.as_ref()))
        .collect();
    Built { tasks, inventory }
}

fn task(
    controller: C,
    context: &Context,
    served: &Arc<Served>,
    inventory: Option<&Inventory>,
) -> Option<Task> {
    // Without the kind there is nothing to do, and its informer would never be ready.
    let needed = match controller {
        C::ResourceClaim if served.classic().is_some() => ("", ""),
        C::ResourceClaim => ("resource.k8s.io/v1", "resourceclaims"),
        C::DeviceTaintEviction => ("resource.k8s.io/v1", "resourceslices"),
        C::ResourcePoolStatusRequest => ("resource.k8s.io/v1alpha3", "resourcepoolstatusrequests"),
        C::SliceLiveness => ("resource.k8s.io/v1", "resourceslices"),
        C::Disruption => ("policy/v1", "poddisruptionbudgets"),
        C::Deployment => ("apps/v1", "deployments"),
        C::ReplicaSet => ("apps/v1", "replicasets"),
        C::DaemonSet => ("apps/v1", "daemonsets"),
        C::StatefulSet => ("apps/v1", "statefulsets"),
        C::Job | C::TtlAfterFinished => ("batch/v1", "jobs"),
        C::CronJob => ("batch/v1", "cronjobs"),
        C::NodeLifecycle => ("coordination.k8s.io/v1", "leases"),
        C::EndpointSlice => ("discovery.k8s.io/v1", "endpointslices"),
        _ => ("", ""),
    };
    if !needed.0.is_empty() && !served.has(needed.0, needed.1) {
        tracing::info!(
            controller = controller.name(),
            resource = needed.1,
            "not served, not started"
        );
        return None;
    }
    Some(match controller {
        C::ResourceClaim => crate::claims::build(context, served),
        C::DeviceTaintEviction => crate::taints::build(context, served),
        C::ResourcePoolStatusRequest => crate::pool_status::build(context),
        C::Deployment => crate::deployment::build(context),
        C::ReplicaSet => crate::replicaset::build(context),
        C::DaemonSet => crate::daemonset::build(context),
        C::StatefulSet => crate::statefulset::build(context),
        C::SliceLiveness => crate::liveness::build(context),
        C::Disruption => crate::disruption::build(context),
        C::ResourceQuota => crate::quota::build(context, served, inventory?),
        C::Job => crate::job::build(context),
        C::CronJob => crate::cronjob::build(context),
        C::TtlAfterFinished => crate::ttl::build(context),
        C::Endpoints => crate::endpoints::endpoints(context),
        C::EndpointSlice => crate::endpoints::slices(context),
        C::NodeLifecycle => crate::nodes::build(context),
        C::PodGarbageCollector => crate::podgc::build(context),
        C::ServiceAccount => crate::accounts::service_accounts(context),
        C::RootCaPublisher => crate::accounts::root_ca(context)?,
        C::GarbageCollector => crate::gc::build(context, inventory?),
        C::Namespace => crate::namespace::build(context, inventory?),
    })
}
