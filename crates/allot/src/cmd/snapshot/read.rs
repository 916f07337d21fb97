//! Reading a cluster, kind by kind.

use allot_model::{GROUP, Kind, Version};
use allot_reflector::{everything, parse};
use allot_scheduler::watched::{self, Watched};
use anyhow::Context as _;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::Hidden;
use super::current::current;
use super::served::Served;
use super::watch::Watching;
use crate::cmd::component;

/// Page size of lists: large pages are expensive for the server.
const PAGE: usize = 500;

/// Which kinds to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// Those about devices.
    Devices,
    /// All kinds that scheduling depends on.
    All,
}

impl Kinds {
    /// The kinds that the scheduler watches, and those that pods are created from.
    pub fn list(self) -> Vec<Watched> {
        let about_devices = [
            Watched::of::<ResourceSlice>(),
            Watched::of::<ResourceClaim>(),
            Watched::of::<DeviceClass>(),
            Watched::of::<Node>(),
            watched::TAINT_RULES,
        ];
        let mut kinds = watched::kinds();
        kinds.extend([
            Watched::of::<ResourceClaimTemplate>(),
            Watched::of::<PriorityClass>(),
        ]);
        kinds.retain(|kind| self == Self::All || about_devices.contains(kind));
        kinds
    }
}

/// Whether every server has the kind: a missing optional kind counts as one without objects.
fn is_everywhere(kind: &Watched) -> bool {
    let needed = [
        Watched::of::<ResourceSlice>(),
        Watched::of::<ResourceClaim>(),
        Watched::of::<DeviceClass>(),
        Watched::of::<ResourceClaimTemplate>(),
        Watched::of::<Pod>(),
    ];
    needed.contains(kind)
}

/// The versions in which a kind can be read, best first.
fn versions(kind: &Watched) -> Vec<&'static str> {
    let plain = Kind::from_name(kind.kind).filter(|k| kind.group == GROUP && known(*k));
    match plain {
        // Older ones are converted.
        Some(_) => Version::ALL.iter().map(|version| version.name()).collect(),
        None => kind.versions.to_vec(),
    }
}

/// Kinds that exist since the oldest supported version.
fn known(kind: Kind) -> bool {
    kind.hub() == Version::V1
}

/// The objects that a server returned.
#[derive(Debug, Default)]
pub struct Read {
    /// All objects, each with its `apiVersion` and `kind`; those of devices in `v1`.
    pub objects: Vec<Value>,
    /// What could not be read.
    pub hidden: Vec<Hidden>,
    /// Where watches of the lists continue.
    pub watching: Vec<Watching>,
}

/// Lists all objects of the kinds, and returns what could not be read. If a kind cannot be listed in the whole cluster,
/// only `namespace` is listed. Versions are negotiated through discovery.
///
/// # Errors
/// The server does not answer, does not serve a required kind, or permits no access at all.
pub async fn read(client: &Client, kinds: Kinds, namespace: &str) -> anyhow::Result<Read> {
    let mut read = Read::default();
    let now = Timestamp::now();
    let mut served = Served::default();
    let kinds = kinds.list();
    let mut asked = 0;
    for kind in &kinds {
        let candidates = served
            .of(client, kind.group, kind.plural, versions(kind))
            .await?;
        let mut found = false;
        for version in candidates {
            let api = match kind.group {
                "" => version.to_owned(),
                group => format!("{group}/{version}"),
            };
            let items = match list(client, &api, kind, None).await {
                Ok((items, from)) => {
                    read.watching.push(Watching::new(&api, kind, None, from));
                    items
                }
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let own = match kind.namespaced {
                        true => list(client, &api, kind, Some(namespace)).await.ok(),
                        false => None,
                    };
                    let resource = match kind.group {
                        "" => kind.plural.to_owned(),
                        group => format!("{}.{group}", kind.plural),
                    };
                    let seen_in = own.is_some().then_some(namespace);
                    tracing::debug!(status.message, "refused");
                    read.hidden.push(Hidden::new(resource, kind.kind, seen_in));
                    match own {
                        Some((items, from)) => {
                            let within = Watching::new(&api, kind, Some(namespace), from);
                            read.watching.push(within);
                            items
                        }
                        None => Vec::new(),
                    }
                }
                Err(error) => {
                    return Err(api_error(error))
                        .with_context(|| format!("cannot list {}", kind.plural));
                }
            };
            for item in items {
                read.objects.push(current(item, now)?);
            }
            found = true;
            asked += 1;
            break;
        }
        anyhow::ensure!(
            found || !is_everywhere(kind),
            "the API server does not serve {} in any of {}: devices can be looked at on Kubernetes 1.31 and newer, where DynamicResourceAllocation is on",
            kind.plural,
            versions(kind).join(", "),
        );
    }
    let nothing = read.hidden.iter().filter(|h| h.seen_in.is_none()).count();
    anyhow::ensure!(
        nothing < asked,
        "the API server shows nothing: the user has no right to list {}",
        super::names(&read.hidden)
    );
    Ok(read)
}

/// The API server does not answer, or not yet.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Away(String);

/// Whether an error of [`api_error`] may be over in a while.
pub fn is_away(error: &anyhow::Error) -> bool {
    error.is::<Away>() || error.is::<kube::Error>()
}

/// The error, with the server's message if it has one.
pub fn api_error(error: kube::Error) -> anyhow::Error {
    let text = component::failure(&error);
    match error {
        kube::Error::Api(status) if status.code < 500 => anyhow::anyhow!(text),
        kube::Error::Api(_) | kube::Error::Service(_) => Away(text).into(),
        other => anyhow::Error::new(other).context("the API server does not answer"),
    }
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    #[serde(default)]
    pub(super) items: Vec<Value>,
}

#[derive(Deserialize, Default)]
pub(super) struct PageMetadata {
    /// The continue token of the next page; empty for the last one.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
    #[serde(default, rename = "resourceVersion")]
    version: String,
}

/// The path of the objects of a resource, of one namespace or of all.
pub(super) fn path(api: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if api.contains('/') { "apis" } else { "api" };
    let within = namespace.map_or(String::new(), |name| format!("namespaces/{name}/"));
    format!("/{root}/{api}/{within}{plural}")
}

/// All objects of a kind, and the version of the list.
async fn list(
    client: &Client,
    api: &str,
    kind: &Watched,
    namespace: Option<&str>,
) -> Result<(Vec<Value>, String), kube::Error> {
    let path = path(api, kind.plural, namespace);
    let mut objects = Vec::new();
    let mut next = String::new();
    loop {
        // Continue tokens consist of characters that need no escaping in a query.
        let url = format!("{path}?limit={PAGE}&continue={next}");
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let text = client.request_text(request).await?;
        let page: Page = parse(&text, everything).map_err(kube::Error::SerdeError)?;
        for mut object in page.items {
            object["apiVersion"] = api.into();
            object["kind"] = kind.kind.into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            objects.push(object);
        }
        if page.metadata.next.is_empty() {
            return Ok((objects, page.metadata.version));
        }
        next = page.metadata.next;
    }
}
