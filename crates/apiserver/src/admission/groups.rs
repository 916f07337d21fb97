//! PodGroups: the Workload that they are created from, and Jobs whose pods belong to one.

use allot_model::features::Feature;
use serde_json::Value;

use super::Admission;
use super::storage::add_finalizer;
use super::{Attributes, Operation, forbidden, stored_in};
use crate::error::Result;
use crate::object::{at, items, meta, text};

const GROUPS: &str = "scheduling.k8s.io/podgroups";
/// Keeps a group until its pods have ended; a controller removes it.
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Whether a request creates a PodGroup, and these are served.
fn creates_group(core: &Admission, attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Create
        && attributes.subresource.is_empty()
        && attributes.resource.is("scheduling.k8s.io", "podgroups")
        && core.config.features.enabled(Feature::GenericWorkload)
}

/// Rejects a new PodGroup that names a Workload, or a template of one, that does not exist.
///
/// # Errors
/// 403, and errors of the store.
pub(super) async fn workload_exists(
    core: &Admission,
    attributes: &Attributes<'_>,
    group: &Value,
) -> Result<()> {
    let named = &group["spec"]["podGroupTemplateRef"]["workload"];
    if !creates_group(core, attributes) || !named.is_object() {
        return Ok(());
    }
    let text = |key: &str| named[key].as_str().unwrap_or_default();
    let (name, template) = (text("workloadName"), text("podGroupTemplateName"));
    let key = format!("{}/{name}", attributes.namespace);
    let found = core.stored("scheduling.k8s.io/workloads", &key).await?;
    let why = match found {
        None => format!("PodGroup rejected: Workload {name:?} not found"),
        Some(workload) if !meta(&workload, "deletionTimestamp").is_empty() => {
            format!("PodGroup rejected: Workload {name:?} is being deleted")
        }
        Some(workload) => {
            let templates = workload["spec"]["podGroupTemplates"].as_array();
            if templates
                .into_iter()
                .flatten()
                .any(|it| it["name"] == template)
            {
                return Ok(());
            }
            format!(
                "PodGroup rejected: PodGroupTemplate {template:?} not found in Workload {name:?}"
            )
        }
    };
    Err(forbidden(attributes, &why))
}

/// The plugin PodGroupProtection: a new group has the finalizer.
pub(super) fn protect(core: &Admission, attributes: &Attributes<'_>, group: &mut Value) {
    if creates_group(core, attributes) {
        add_finalizer(group, FINALIZER);
    }
}

/// The plugin JobValidation: the number of pods that are scheduled together or not at all stays.
///
/// # Errors
/// 403, and errors of the store.
pub(super) async fn keep_parallelism(
    core: &Admission,
    attributes: &Attributes<'_>,
    job: &Value,
) -> Result<()> {
    let concerns = attributes.operation == Operation::Update
        && attributes.subresource.is_empty()
        && attributes.resource.is("batch", "jobs");
    let old = attributes.old.filter(|_| concerns);
    let Some(old) = old.filter(|old| old["spec"]["parallelism"] != job["spec"]["parallelism"])
    else {
        return Ok(());
    };
    if !core.config.features.enabled(Feature::GenericWorkload) {
        return Ok(());
    }
    let path = [
        "spec",
        "template",
        "spec",
        "schedulingGroup",
        "podGroupName",
    ];
    let groups: Vec<Value> = match at(old, &path).as_str() {
        Some(name) => {
            let key = format!("{}/{name}", attributes.namespace);
            core.stored(GROUPS, &key).await?.into_iter().collect()
        }
        None => {
            let mut groups = stored_in(core, GROUPS, attributes.namespace).await?;
            groups.retain(|group| is_controlled_by(group, meta(old, "uid")));
            groups
        }
    };
    let is_gang = |group: &&Value| group["spec"]["schedulingPolicy"]["gang"].is_object();
    let Some(gang) = groups.iter().find(is_gang) else {
        return Ok(());
    };
    let why = format!(
        "cannot change parallelism for a Job referencing gang-scheduled PodGroup {:?}",
        meta(gang, "name")
    );
    Err(forbidden(attributes, &why))
}

fn is_controlled_by(object: &Value, uid: &str) -> bool {
    let owners = items(&object["metadata"]["ownerReferences"]);
    let mut controllers = owners.iter().filter(|owner| owner["controller"] == true);
    controllers
        .next()
        .is_some_and(|owner| text(owner, &["uid"]) == uid)
}
