//! Which of the kinds of `resource.k8s.io` the server has.

use allot_client::discovery::{self, Group, server_minor};
use allot_model::GROUP;
use allot_resourceclaim::LAST_RELEASE_WITH_DETERMINISTIC_NAMES;
use kube::Client;
use kube::core::ApiResource;

/// What a server has of the classic kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// `v1alpha1` or `v1alpha2`.
    pub version: &'static str,
    /// Structured parameters (1.30).
    pub structured: bool,
    /// Generated claims are named after pod and entry, without a suffix (up to 1.27).
    pub deterministic_names: bool,
    /// There are no newer kinds beside them.
    pub alone: bool,
}

impl Served {
    /// How the server calls the negotiations.
    pub fn scheduling(&self) -> ApiResource {
        match self.version {
            "v1alpha1" => self.resource("PodScheduling", "podschedulings"),
            _ => self.resource("PodSchedulingContext", "podschedulingcontexts"),
        }
    }

    /// The resource of claims in the version that is served.
    pub fn claims(&self) -> ApiResource {
        self.resource("ResourceClaim", "resourceclaims")
    }

    /// A kind in the version that is served.
    pub fn resource(&self, kind: &str, plural: &str) -> ApiResource {
        discovery::resource(GROUP, self.version, kind, plural)
    }
}

/// Discovers which classic kinds a server has in a group; `None` if it has none. `v1` says whether it has newer kinds.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub async fn discover(
    client: &Client,
    group: &Group,
    v1: bool,
) -> Result<Option<Served>, kube::Error> {
    let Some(version) = group.first_of(&["v1alpha2", "v1alpha1"]) else {
        return Ok(None);
    };
    let resources = discovery::resources(client, &format!("{GROUP}/{version}")).await?;
    let has = |name: &str| resources.iter().any(|resource| resource == name);
    if !has("resourceclasses") {
        return Ok(None);
    }
    Ok(Some(Served {
        version,
        structured: has("resourceclaimparameters"),
        deterministic_names: server_minor(client).await? <= LAST_RELEASE_WITH_DETERMINISTIC_NAMES,
        alone: !v1,
    }))
}
