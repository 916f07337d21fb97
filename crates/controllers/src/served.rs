//! What the API server serves, discovered once before the controllers start.

use std::collections::BTreeSet;
use std::time::Duration;

use allot_client::discovery::{self, server_minor};
use allot_resourceclaim::LAST_RELEASE_WITH_DETERMINISTIC_NAMES;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

#[cfg(test)]
mod tests;

/// Kinds that not every API server has.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// `group/version/resource` of everything that was requested.
    resources: BTreeSet<String>,
    /// The release of the server, or the one it emulates; known if it matters.
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

/// Group versions that matter for what controllers can do.
pub(crate) const ASKED: [&str; 18] = [
    "coordination.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1alpha2",
    "resource.k8s.io/v1alpha1",
    "apps/v1",
    "batch/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "discovery.k8s.io/v1",
    "storage.k8s.io/v1",
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
            deterministic_names: self.minor <= LAST_RELEASE_WITH_DETERMINISTIC_NAMES,
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
        Some(discovery::resource(group, version, kind, plural))
    }
}

/// Discovers what the API server serves; waits while it cannot be reached.
pub(crate) async fn served(client: &Client, shutdown: &CancellationToken) -> Result<Served, Error> {
    let mut served = Served::default();
    let Some(groups) = answered(shutdown, || client.list_api_groups()).await else {
        return Ok(served);
    };
    for group_version in ASKED {
        // A version that is not listed is requested nevertheless: a server that emulates an old release serves newer
        // ones to its own components. But servers differ in how they report that they do not have it.
        let listed = match &groups {
            Answer::Is(list) => lists(list, group_version),
            Answer::Refused => true,
        };
        let ask = async || match client.list_api_group_resources(group_version).await {
            Err(error) if !listed && is_other_answer(&error) => Ok(APIResourceList::default()),
            answer => answer,
        };
        match answered(shutdown, ask).await {
            Some(Answer::Is(list)) => served.add(group_version, &list),
            Some(Answer::Refused) => {}
            None => return Ok(served),
        }
    }
    if served.classic().is_some() {
        served.minor = loop {
            let found = tokio::select! {
                () = shutdown.cancelled() => return Ok(served),
                found = server_minor(client) => found,
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

enum Answer<T> {
    Is(T),
    /// It does not exist, or access is denied.
    Refused,
}

/// Repeats the request until the server answers; `None` at a shutdown.
async fn answered<T, F>(shutdown: &CancellationToken, ask: impl Fn() -> F) -> Option<Answer<T>>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut delay = Duration::from_millis(20);
    loop {
        let error = tokio::select! {
            () = shutdown.cancelled() => return None,
            answer = ask() => match answer {
                Ok(found) => return Some(Answer::Is(found)),
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    return Some(Answer::Refused);
                }
                Err(error) => error,
            },
        };
        tracing::debug!(%error, "API server does not tell yet what it has");
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(delay) => {}
        }
        delay = (delay * 2).min(Duration::from_secs(2));
    }
}

/// Whether the answer is no Status: servers built on the generic server list their paths.
fn is_other_answer(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 0,
        kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

/// Whether a group version is among the served ones.
fn lists(groups: &APIGroupList, group_version: &str) -> bool {
    let mut versions = groups.groups.iter().flat_map(|g| &g.versions);
    versions.any(|v| v.group_version == group_version)
}

impl Served {
    fn add(&mut self, group_version: &str, list: &APIResourceList) {
        for resource in &list.resources {
            self.resources
                .insert(format!("{group_version}/{}", resource.name));
        }
    }
}
