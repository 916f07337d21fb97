//! Which of the kinds of `resource.k8s.io` the server has.

use allot_reflector::server_minor;
use kube::Client;
use kube::core::ApiResource;

/// Group of all kinds here.
const GROUP: &str = "resource.k8s.io";
/// The last release that gives generated claims a name which follows from that of the pod.
const LAST_DETERMINISTIC: u32 = 27;

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
        ApiResource {
            group: GROUP.to_owned(),
            version: self.version.to_owned(),
            api_version: format!("{GROUP}/{}", self.version),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
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
    let groups = client.list_api_groups().await?;
    let Some(group) = groups.groups.into_iter().find(|g| g.name == GROUP) else {
        return Ok(Found::default());
    };
    let served = |version: &str| group.versions.iter().any(|v| v.version == version);
    let v1 = served("v1") || reaches_v1(client).await?;
    let Some(version) = ["v1alpha2", "v1alpha1"].into_iter().find(|v| served(v)) else {
        return Ok(Found { v1, classic: None });
    };
    let list = client
        .list_api_group_resources(&format!("{GROUP}/{version}"))
        .await?;
    let has = |name: &str| list.resources.iter().any(|r| r.name == name);
    if !has("resourceclasses") {
        return Ok(Found { v1, classic: None });
    }
    Ok(Found {
        v1,
        classic: Some(Served {
            version,
            structured: has("resourceclaimparameters"),
            deterministic_names: server_minor(client).await? <= LAST_DETERMINISTIC,
            alone: !v1,
        }),
    })
}

/// Whether v1 can be used although discovery does not list it: the embedded server allows that to its own components.
async fn reaches_v1(client: &Client) -> Result<bool, kube::Error> {
    let list = client
        .list_api_group_resources(&format!("{GROUP}/v1"))
        .await;
    match list {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(false),
        Err(error) => Err(error),
    }
}
