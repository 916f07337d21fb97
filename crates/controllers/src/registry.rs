//! Which controllers exist, and what the API server has to serve for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Controller};
use crate::error::Error;
use crate::kit::context::Context;

/// The task of one controller; it runs once its informers have their first list.
pub(crate) type Task = BoxFuture<'static, ()>;

/// Kinds that not every API server has.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// `group/version/resource` of everything that was asked for.
    resources: BTreeSet<String>,
}

/// Group versions that matter for what controllers can do.
const ASKED: [&str; 6] = [
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1alpha3",
    "apps/v1",
    "batch/v1",
    "policy/v1",
];

impl Served {
    /// Whether the resource is served in that group version.
    pub(crate) fn has(&self, group_version: &str, resource: &str) -> bool {
        self.resources
            .contains(&format!("{group_version}/{resource}"))
    }

    /// The best served version of DeviceTaintRule.
    pub(crate) fn taint_rules(&self) -> Option<ApiResource> {
        let version = ["v1", "v1beta2", "v1alpha3"]
            .into_iter()
            .find(|v| self.has(&format!("resource.k8s.io/{v}"), "devicetaintrules"))?;
        Some(ApiResource {
            group: "resource.k8s.io".to_owned(),
            version: version.to_owned(),
            api_version: format!("resource.k8s.io/{version}"),
            kind: "DeviceTaintRule".to_owned(),
            plural: "devicetaintrules".to_owned(),
        })
    }
}

/// Asks the API server what it serves; waits while it can not be reached.
pub(crate) async fn served(
    client: &Client,
    _config: &Config,
    shutdown: &CancellationToken,
) -> Result<Served, Error> {
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
    Ok(served)
}

impl Served {
    fn add(&mut self, group_version: &str, list: &APIResourceList) {
        for resource in &list.resources {
            self.resources
                .insert(format!("{group_version}/{}", resource.name));
        }
    }
}

/// Builds the enabled controllers; their informers are registered, but do not run yet.
pub(crate) fn build(context: &Context, served: &Arc<Served>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for controller in context.config.controllers.clone() {
        tasks.extend(task(controller, context, served));
    }
    tasks
}

fn task(controller: Controller, context: &Context, served: &Arc<Served>) -> Option<Task> {
    match controller {
        Controller::ResourceClaim => served
            .has("resource.k8s.io/v1", "resourceclaims")
            .then(|| crate::claims::build(context)),
        _ => {
            let _ = served.taint_rules();
            None
        }
    }
}
