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

/// What a server has of the whole group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The kinds since 1.34.
    pub v1: bool,
    /// The kinds up to 1.30.
    pub classic: Option<Served>,
}

/// Discovers what the server serves.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub async fn discover(client: &Client) -> Result<Found, kube::Error> {
    let group = Group::discover(client, GROUP).await?;
    if group == Group::default() {
        return Ok(Found::default());
    }
    let v1 = group.has("v1") || reaches_v1(client).await?;
    let Some(version) = group.first_of(&["v1alpha2", "v1alpha1"]) else {
        return Ok(Found { v1, classic: None });
    };
    let resources = discovery::resources(client, &format!("{GROUP}/{version}")).await?;
    let has = |name: &str| resources.iter().any(|resource| resource == name);
    if !has("resourceclasses") {
        return Ok(Found { v1, classic: None });
    }
    Ok(Found {
        v1,
        classic: Some(Served {
            version,
            structured: has("resourceclaimparameters"),
            deterministic_names: server_minor(client).await?
                <= LAST_RELEASE_WITH_DETERMINISTIC_NAMES,
            alone: !v1,
        }),
    })
}

/// Whether v1 can be used although discovery does not list it: the embedded server allows that to its own components.
async fn reaches_v1(client: &Client) -> Result<bool, kube::Error> {
    match discovery::resources(client, &format!("{GROUP}/v1")).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(false),
        Err(error) => Err(error),
    }
}
