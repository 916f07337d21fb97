//! Plugins about volumes and ingresses: protection of volumes in use, resize, and default classes.

use allot_apimachinery::Quantity;
use allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION;
use allot_store::ListOptions;
use serde_json::{Value, json};

use super::Admission;
use super::{Attributes, Operation, forbidden};
use crate::error::Result;
use crate::object::{meta, metadata_mut};

/// Adds the finalizers that keep volumes, claims and attribute classes until a controller has found them unused.
pub(super) fn protect(attributes: &Attributes<'_>, object: &mut Value) {
    if let Some(finalizer) = attributes.resource.rules.protection_finalizer {
        add_finalizer(object, finalizer);
    }
}

/// Adds a finalizer, unless the object has it.
pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let list = metadata_mut(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.iter().any(|it| it == finalizer)
    {
        list.push(finalizer.into());
    }
}

/// Permits the resize of a claim only if it is bound and its class allows it.
///
/// # Errors
/// 403, and those of the store.
pub(super) async fn resize(
    core: &Admission,
    attributes: &Attributes<'_>,
    claim: &Value,
) -> Result<()> {
    let Some(old) = attributes.old else {
        return Ok(());
    };
    let changes = attributes.operation == Operation::Update && attributes.subresource.is_empty();
    if !changes || !attributes.resource.is("", "persistentvolumeclaims") {
        return Ok(());
    }
    let size = |claim: &Value| {
        let amount = claim["spec"]["resources"]["requests"]["storage"].as_str()?;
        amount.parse::<Quantity>().ok()
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(forbidden(attributes, why));
    }
    let class = |claim: &Value| {
        let annotated = claim["metadata"]["annotations"][BETA_STORAGE_CLASS_ANNOTATION].as_str();
        let named = annotated.or(claim["spec"]["storageClassName"].as_str());
        named.unwrap_or_default().to_owned()
    };
    let name = class(claim);
    let found = match name.is_empty() || name != class(old) {
        true => None,
        false => core.stored("storage.k8s.io/storageclasses", &name).await?,
    };
    if found.is_some_and(|it| it["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(forbidden(attributes, why))
}

/// The classes of a collection that an annotation marks as default.
async fn defaults(core: &Admission, collection: &str, annotation: &str) -> Result<Vec<Value>> {
    let page = core
        .backend
        .list(collection, ListOptions::default())
        .await?;
    let classes = page
        .entries
        .iter()
        .filter_map(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
    Ok(classes
        .filter(|class| class["metadata"]["annotations"][annotation] == "true")
        .collect())
}

/// A claim of a volume without a class gets the default one, the newest if there are several.
pub(super) async fn default_class(
    core: &Admission,
    attributes: &Attributes<'_>,
    claim: &mut Value,
) -> Result<()> {
    if !attributes.resource.is("", "persistentvolumeclaims")
        || claim["spec"]["storageClassName"].is_string()
        || claim["metadata"]["annotations"]
            .get(BETA_STORAGE_CLASS_ANNOTATION)
            .is_some()
    {
        return Ok(());
    }
    let mark = "storageclass.kubernetes.io/is-default-class";
    let classes = defaults(core, "storage.k8s.io/storageclasses", mark).await?;
    let newest = classes.iter().max_by_key(|class| {
        let age = meta(class, "creationTimestamp").to_owned();
        (age, std::cmp::Reverse(meta(class, "name").to_owned()))
    });
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = meta(class, "name").into();
    }
    Ok(())
}

/// An ingress without a class gets the default one.
pub(super) async fn default_ingress_class(
    core: &Admission,
    attributes: &Attributes<'_>,
    ingress: &mut Value,
) -> Result<()> {
    let annotation = "kubernetes.io/ingress.class";
    if !attributes.resource.is("networking.k8s.io", "ingresses")
        || ingress["spec"]["ingressClassName"].is_string()
        || ingress["metadata"]["annotations"].get(annotation).is_some()
    {
        return Ok(());
    }
    let mark = "ingressclass.kubernetes.io/is-default-class";
    let classes = defaults(core, "networking.k8s.io/ingressclasses", mark).await?;
    match classes.as_slice() {
        [] => {}
        [class] => ingress["spec"]["ingressClassName"] = meta(class, "name").into(),
        several => {
            let count = several.len();
            let why = format!("{count} default IngressClasses were found, only 1 allowed");
            return Err(forbidden(attributes, &why));
        }
    }
    Ok(())
}
