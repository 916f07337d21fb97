//! Reading a cluster, kind by kind.

use anyhow::Context as _;
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

/// How many objects to ask for at once: as many as keeps an answer small for the server.
const PAGE: usize = 500;

/// Which kinds to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// Those about devices.
    Devices,
    /// All that decide where a pod goes.
    All,
}

/// A kind, and how badly it is needed.
struct Wanted {
    /// Versions in which the kind may be served, best first.
    versions: &'static [&'static str],
    plural: &'static str,
    kind: &'static str,
    need: Need,
}

#[derive(PartialEq)]
enum Need {
    /// Nothing can be said about devices without it.
    Devices,
    /// Nothing can be said about pods without it.
    Pods,
    /// Not every cluster has it, and not everybody may see it.
    Optional,
}

const fn wanted(
    versions: &'static [&'static str],
    plural: &'static str,
    kind: &'static str,
    need: Need,
) -> Wanted {
    Wanted {
        versions,
        plural,
        kind,
        need,
    }
}

const CORE: &[&str] = &["v1"];
const DRA: &[&str] = &["resource.k8s.io/v1"];
const STORAGE: &[&str] = &["storage.k8s.io/v1"];
const RULES: &[&str] = &[
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1alpha3",
];

const KINDS: [Wanted; 16] = [
    wanted(DRA, "resourceslices", "ResourceSlice", Need::Devices),
    wanted(DRA, "resourceclaims", "ResourceClaim", Need::Devices),
    wanted(RULES, "devicetaintrules", "DeviceTaintRule", Need::Optional),
    wanted(DRA, "deviceclasses", "DeviceClass", Need::Pods),
    wanted(
        DRA,
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        Need::Pods,
    ),
    wanted(CORE, "nodes", "Node", Need::Pods),
    wanted(CORE, "pods", "Pod", Need::Pods),
    wanted(CORE, "namespaces", "Namespace", Need::Optional),
    wanted(
        CORE,
        "persistentvolumes",
        "PersistentVolume",
        Need::Optional,
    ),
    wanted(
        CORE,
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        Need::Optional,
    ),
    wanted(STORAGE, "storageclasses", "StorageClass", Need::Optional),
    wanted(STORAGE, "csinodes", "CSINode", Need::Optional),
    wanted(STORAGE, "csidrivers", "CSIDriver", Need::Optional),
    wanted(
        STORAGE,
        "csistoragecapacities",
        "CSIStorageCapacity",
        Need::Optional,
    ),
    wanted(
        STORAGE,
        "volumeattachments",
        "VolumeAttachment",
        Need::Optional,
    ),
    wanted(
        &["scheduling.k8s.io/v1"],
        "priorityclasses",
        "PriorityClass",
        Need::Optional,
    ),
];

/// Reads all objects of the kinds, each with its `apiVersion` and `kind`.
///
/// # Errors
/// The server does not answer, does not have a kind that is needed, or refuses to show it.
pub async fn read(client: &Client, kinds: Kinds) -> anyhow::Result<Vec<Value>> {
    client.apiserver_version().await.map_err(told)?;
    let mut objects = Vec::new();
    for kind in &KINDS {
        if kinds == Kinds::Devices && kind.need == Need::Pods {
            continue;
        }
        let optional = kind.need == Need::Optional;
        let mut found = false;
        for api in kind.versions {
            match list(client, api, kind).await {
                Ok(items) => {
                    objects.extend(items);
                    found = true;
                    break;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(kube::Error::Api(status)) if status.code == 403 && optional => {
                    tracing::warn!("left out: {}", status.message);
                    found = true;
                    break;
                }
                Err(error) => {
                    return Err(told(error))
                        .with_context(|| format!("cannot list {}", kind.plural));
                }
            }
        }
        anyhow::ensure!(
            found || optional,
            "the API server does not serve {} in {}: devices can be looked at on Kubernetes 1.34 and newer",
            kind.plural,
            kind.versions[0],
        );
    }
    Ok(objects)
}

/// What went wrong, in the words of the server if it has any.
fn told(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => anyhow::Error::new(other).context("the API server does not answer"),
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

async fn list(client: &Client, api: &str, kind: &Wanted) -> Result<Vec<Value>, kube::Error> {
    let root = if api.contains('/') { "apis" } else { "api" };
    let mut objects = Vec::new();
    let mut next = String::new();
    loop {
        // Marks of a server are made of letters that need no escaping in a query.
        let url = format!("/{root}/{api}/{}?limit={PAGE}&continue={next}", kind.plural);
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let page: Page = client.request(request).await?;
        for mut object in page.items {
            object["apiVersion"] = api.into();
            object["kind"] = kind.kind.into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            objects.push(object);
        }
        if page.metadata.next.is_empty() {
            return Ok(objects);
        }
        next = page.metadata.next;
    }
}
