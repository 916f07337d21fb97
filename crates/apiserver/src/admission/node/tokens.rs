//! Service account tokens for kubelets: each bound to a pod of its node, for an audience that the pod refers to.

use allot_apimachinery::field::joined;
use serde_json::Value;

use super::not_there;
use crate::admission::Admission;
use crate::admission::{Attributes, forbidden};
use crate::auth::AuthorizerAttributes;
use crate::error::Result;
use crate::object::{items, meta, strings, text};
use crate::references;
use allot_model::features::Feature;

/// In-tree volume types, and the CSI drivers to which they were migrated (KEP 625).
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

/// What of a pod decides about tokens for it.
const OF_POD: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.volumes",
];

pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    node: &str,
    request: &Value,
) -> Result<()> {
    let refuse = |why: &str| Err(forbidden(attributes, why));
    let reference = &request["spec"]["boundObjectRef"];
    let (name, uid) = (text(reference, &["name"]), text(reference, &["uid"]));
    if reference["apiVersion"] != "v1" || reference["kind"] != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let key = format!("{}/{name}", attributes.namespace);
    let Some(pod) = core.stored_parts("pods", &key, &OF_POD).await? else {
        return Err(not_there("pod", name));
    };
    if uid != meta(&pod, "uid") {
        return refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if text(&pod, &["spec", "nodeName"]) != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let restricted = Feature::ServiceAccountNodeAudienceRestriction;
    if !core.config.features.enabled(restricted) {
        return Ok(());
    }
    match audience_fault(core, attributes, request, &pod).await? {
        Some(why) => refuse(&why),
        None => Ok(()),
    }
}

/// Why the node may not have the token for the audience: the pod does not name it, and no role allows it.
async fn audience_fault(
    core: &Admission,
    attributes: &Attributes<'_>,
    request: &Value,
    pod: &Value,
) -> Result<Option<String>> {
    let audiences = strings(&request["spec"]["audiences"]);
    let audience = match audiences.as_slice() {
        [] => "",
        [one] => one,
        _ => return Ok(Some("node may only request 0 or 1 audiences".to_owned())),
    };
    match names_audience(core, pod, audience).await? {
        Ok(true) => return Ok(None),
        Ok(false) => {}
        Err(why) => {
            return Ok(Some(format!(
                "error validating audience {audience:?}: {why}"
            )));
        }
    }
    // Roles name audiences as resources, and accounts as resource names.
    let access = AuthorizerAttributes {
        namespace: attributes.namespace,
        name: attributes.name,
        ..AuthorizerAttributes::resource(
            attributes.user,
            "request-serviceaccounts-token-audience",
            "",
            audience,
        )
    };
    if core.authorizer.decide(core, &access).await?.allowed() {
        return Ok(None);
    }
    Ok(Some(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        attributes.user.name
    )))
}

/// A volume of the pod is for the audience: a token in a projected volume, or one for a CSI driver. Missing objects on
/// the way to a driver are reported if no volume matches.
async fn names_audience(
    core: &Admission,
    pod: &Value,
    audience: &str,
) -> Result<std::result::Result<bool, String>> {
    let mut missing: Vec<String> = Vec::new();
    for volume in items(&pod["spec"]["volumes"]) {
        let mut sources = items(&volume["projected"]["sources"]).iter();
        let is_for = |source: &Value| {
            let token = &source["serviceAccountToken"];
            token.is_object() && text(token, &["audience"]) == audience
        };
        if sources.any(is_for) {
            return Ok(Ok(true));
        }
        let driver = match references::volume_claim(pod, volume) {
            Some(claim) => driver_of_claim(core, meta(pod, "namespace"), &claim).await?,
            None => Ok(driver(volume)),
        };
        let found = match driver {
            Ok(driver) if driver.is_empty() => continue,
            Ok(driver) => driver_has(core, &driver, audience).await?,
            Err(why) => Err(why),
        };
        match found {
            Ok(true) => return Ok(Ok(true)),
            Ok(false) => {}
            Err(why) if missing.contains(&why) => {}
            Err(why) => missing.push(why),
        }
    }
    Ok(joined(&missing).map_or(Ok(false), Err))
}

/// The driver of a source that a volume of a pod, or a persistent volume, has; empty if it needs none.
fn driver(source: &Value) -> String {
    let named = text(source, &["csi", "driver"]);
    let migrated = || {
        let found = MIGRATED.iter().find(|(key, _)| !source[*key].is_null());
        found.map_or("", |(_, driver)| *driver)
    };
    match named {
        "" => migrated().to_owned(),
        named => named.to_owned(),
    }
}

type Found<T> = std::result::Result<T, String>;

/// The driver behind a persistent volume claim.
async fn driver_of_claim(core: &Admission, namespace: &str, name: &str) -> Result<Found<String>> {
    let key = format!("{namespace}/{name}");
    let collection = "persistentvolumeclaims";
    let Some(claim) = core
        .stored_parts(collection, &key, &["spec.volumeName"])
        .await?
    else {
        return Ok(Err(format!("persistentvolumeclaim {name:?} not found")));
    };
    let name = text(&claim, &["spec", "volumeName"]);
    let volume = match name {
        "" => None,
        name => {
            core.stored_parts("persistentvolumes", name, &["spec"])
                .await?
        }
    };
    Ok(match volume {
        Some(volume) => Ok(driver(&volume["spec"])),
        None => Err(format!("persistentvolume {name:?} not found")),
    })
}

/// A CSI driver wants tokens for the audience.
async fn driver_has(core: &Admission, driver: &str, audience: &str) -> Result<Found<bool>> {
    let collection = "storage.k8s.io/csidrivers";
    let Some(found) = core
        .stored_parts(collection, driver, &["spec.tokenRequests"])
        .await?
    else {
        return Ok(Err(format!(
            "csidriver.storage.k8s.io {driver:?} not found"
        )));
    };
    let mut requests = items(&found["spec"]["tokenRequests"]).iter();
    Ok(Ok(
        requests.any(|request| text(request, &["audience"]) == audience)
    ))
}
