//! Names of objects for completion, as the cluster has them.

use std::path::PathBuf;
use std::time::Duration;

use allot_reflector::everything;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};

use crate::cmd::access::Access;
use crate::cmd::snapshot::Served;
use crate::component;

/// A user waits at the shell for the answer.
const LIMIT: Duration = Duration::from_secs(2);
/// More objects are not listed.
const MOST: u32 = 500;
const GROUP: &str = "resource.k8s.io";
/// Kind and plural.
const SLICES: (&str, &str) = ("ResourceSlice", "resourceslices");
/// Versions of the group, the newest first.
const VERSIONS: [&str; 4] = ["v1", "v1beta2", "v1beta1", "v1alpha3"];

/// What a word of the command line names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Pod,
    Namespace,
    Node,
    Class,
    Driver,
    Pool,
}

impl Named {
    /// By the ID of an argument.
    pub fn of(argument: &clap::Arg) -> Option<Self> {
        Some(match argument.get_id().as_str() {
            "pod" => Self::Pod,
            "namespace" => Self::Namespace,
            "node" => Self::Node,
            "class" => Self::Class,
            "driver" => Self::Driver,
            "pool" => Self::Pool,
            _ => return None,
        })
    }
}

/// Which cluster and namespace the words before select.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub namespace: Option<String>,
}

/// The names that there are; none if the cluster does not answer at once, or does not show them.
pub fn find(named: Named, place: Place) -> Vec<String> {
    let found =
        component::read(async move { tokio::time::timeout(LIMIT, list(named, place)).await? });
    let mut names: Vec<String> = found.unwrap_or_default();
    names.sort_unstable();
    names.dedup();
    names
}

async fn list(named: Named, place: Place) -> anyhow::Result<Vec<String>> {
    let access = Access::of(place.kubeconfig, place.context);
    let client = access.client("allot").await?;
    let name = |object: &DynamicObject| object.metadata.name.clone();
    let core = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    Ok(match named {
        Named::Pod => {
            let namespace = place.namespace;
            let namespace = namespace.unwrap_or(client.default_namespace().to_owned());
            let api = Api::namespaced_with(client, &namespace, &core("Pod"));
            names(api, name).await?
        }
        Named::Namespace => names(Api::all_with(client, &core("Namespace")), name).await?,
        Named::Node => names(Api::all_with(client, &core("Node")), name).await?,
        Named::Class => of_devices(client, ("DeviceClass", "deviceclasses"), name).await?,
        Named::Driver => of_devices(client, SLICES, |slice| text(slice, "/spec/driver")).await?,
        Named::Pool => of_devices(client, SLICES, |slice| text(slice, "/spec/pool/name")).await?,
    })
}

fn text(object: &DynamicObject, pointer: &str) -> Option<String> {
    object.data.pointer(pointer)?.as_str().map(str::to_owned)
}

/// Names of objects of `resource.k8s.io`, in the newest version that the server has.
async fn of_devices(
    client: Client,
    (kind, plural): (&str, &str),
    name: impl Fn(&DynamicObject) -> Option<String>,
) -> anyhow::Result<Vec<String>> {
    let mut served = Served::default();
    let versions = served.of(&client, GROUP, plural, VERSIONS.to_vec()).await?;
    let Some(version) = versions.first() else {
        return Ok(Vec::new());
    };
    let gvk = GroupVersionKind::gvk(GROUP, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    names(Api::all_with(client, &resource), name).await
}

async fn names(
    api: Api<DynamicObject>,
    name: impl Fn(&DynamicObject) -> Option<String>,
) -> anyhow::Result<Vec<String>> {
    let params = ListParams::default().limit(MOST);
    let list = allot_reflector::list(&api, &params, everything).await?;
    Ok(list.iter().filter_map(name).collect())
}
