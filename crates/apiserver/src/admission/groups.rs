//! PodGroups: the Workload that they are created from.

use allot_model::features::Feature;
use serde_json::Value;

use super::Admission;
use super::{Attributes, Operation, forbidden};
use crate::error::Result;
use crate::object::meta;

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
    let concerns = attributes.operation == Operation::Create
        && attributes.subresource.is_empty()
        && attributes.resource.is("scheduling.k8s.io", "podgroups");
    if !concerns || !named.is_object() || !core.config.features.enabled(Feature::GenericWorkload) {
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
