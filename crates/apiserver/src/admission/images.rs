//! The plugin AlwaysPullImages: a pod gets an image only if it may pull it, also on nodes that have the image.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, Path, joined};
use serde_json::Value;

use super::{Attributes, Operation, forbidden, is_whole_pod};
use crate::error::{ApiError, Result};
use crate::object::{at, items, items_mut, text};

/// In the order of upstream's messages.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const ALWAYS: &str = "Always";
/// The number of containers and volumes that an error is about.
const MOST_ERRORS: usize = 100;

/// Whether the images of the pod matter: it is new, or has one that it did not have.
fn concerns(attributes: &Attributes<'_>, pod: &Value) -> bool {
    let images = |pod: &Value| -> BTreeSet<String> {
        let lists = LISTS
            .iter()
            .flat_map(|list| items(at(pod, &["spec", list])));
        lists.map(|it| text(it, &["image"]).to_owned()).collect()
    };
    match attributes.old {
        _ if is_whole_pod(attributes, Operation::Create) => true,
        Some(old) if is_whole_pod(attributes, Operation::Update) => {
            !images(pod).is_subset(&images(old))
        }
        _ => false,
    }
}

/// Sets the policy of containers and of volumes with an image.
pub(super) fn pull_always(attributes: &Attributes<'_>, pod: &mut Value) {
    if !concerns(attributes, pod) {
        return;
    }
    for list in LISTS {
        for container in items_mut(pod, &["spec", list]) {
            set(container, "imagePullPolicy");
        }
    }
    for volume in items_mut(pod, &["spec", "volumes"]) {
        if let Some(image) = volume.get_mut("image") {
            set(image, "pullPolicy");
        }
    }
}

fn set(holder: &mut Value, key: &str) {
    if let Some(map) = holder.as_object_mut() {
        map.insert(key.to_owned(), ALWAYS.into());
    }
}

/// Refuses another policy, which a webhook may have set.
///
/// # Errors
/// 500, as upstream.
pub(super) fn check(attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    if !concerns(attributes, pod) {
        return Ok(());
    }
    let spec = Path::new("spec");
    let mut found = Vec::new();
    for list in LISTS {
        for (index, container) in items(at(pod, &["spec", list])).iter().enumerate() {
            let path = spec.child(list).index(index).child("imagePullPolicy");
            found.push((path, text(container, &["imagePullPolicy"])));
        }
    }
    for (index, volume) in items(at(pod, &["spec", "volumes"])).iter().enumerate() {
        if volume["image"].is_object() {
            let path = spec.child("volumes").index(index).child("image");
            let policy = text(volume, &["image", "pullPolicy"]);
            found.push((path.child("pullPolicy"), policy));
        }
    }
    let wrong = found.into_iter().filter(|(_, policy)| *policy != ALWAYS);
    let errors: Vec<String> = wrong
        .take(MOST_ERRORS)
        .map(|(path, policy)| {
            let error = Error::not_supported(&path, policy, &[ALWAYS]);
            forbidden(attributes, &error.to_string()).0.message
        })
        .collect();
    match joined(&errors) {
        None => Ok(()),
        Some(errors) => Err(ApiError::unknown(errors)),
    }
}
