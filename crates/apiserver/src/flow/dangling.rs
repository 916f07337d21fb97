//! The condition of a FlowSchema that its priority level exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use allot_store::{Entry, Expect, Write};
use serde_json::{Value, json};

use crate::error::Result;
use crate::flow_defaults::condition;
use crate::managed::{self, Known};
use crate::object::{self, meta, text};
use crate::registry::Resource;
use crate::state::ServerState;
use crate::storage::{self, Owned};
use crate::versions;

/// The field manager of the condition, as upstream.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Updates the condition of each schema. A conflict is left to the next update, which the other write triggers.
pub(super) async fn update_conditions(
    core: &ServerState,
    collection: &str,
    schemas: &[Arc<Entry>],
    levels: &BTreeSet<String>,
) {
    let registry = core.registry.load_full();
    let Some(resource) = registry.get(super::GROUP, "flowschemas") else {
        return;
    };
    for entry in schemas {
        let changed = versions::load(resource, &entry.value)
            .and_then(|schema| with_condition(resource, schema, levels));
        let changed = match changed {
            Ok(Some(changed)) => changed,
            Ok(None) => continue,
            Err(error) => {
                tracing::debug!(
                    ?error,
                    schema = &*entry.key,
                    "the condition of a flow schema cannot be determined"
                );
                continue;
            }
        };
        let expected = Expect::Revision(entry.revision);
        let draft = storage::draft_owned(&changed.object, &changed.owners);
        let write = Write::put(collection, entry.key.clone(), expected, draft);
        if let Err(error) = core.backend.commit(write).await {
            tracing::debug!(%error, schema = &*entry.key, "the condition of a flow schema is not written");
        }
    }
}

/// The schema after an apply of its condition; `None` if the condition is up to date.
fn with_condition(
    resource: &Resource,
    schema: Owned,
    levels: &BTreeSet<String>,
) -> Result<Option<Owned>> {
    let Owned { mut object, owners } = schema;
    let name = meta(&object, "name").to_owned();
    let level = text(&object, &["spec", "priorityLevelConfiguration", "name"]);
    let new = condition(level, levels.contains(level), &object::now());
    let is_same = |old: &Value| {
        let keys = ["type", "status", "reason", "message"];
        keys.iter().all(|key| old[key] == new[key])
    };
    let conditions = object::items(&object["status"]["conditions"]);
    if name.is_empty() || conditions.iter().any(is_same) {
        return Ok(None);
    }
    let version = &resource.storage_version;
    versions::set_type(&mut object, resource, version);
    let config = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": name}, "status": {"conditions": [new]},
    });
    let applied = managed::with_manager(
        resource,
        version,
        "status",
        &Known::default(),
        |fields, _| fields.apply(&object, &owners, &config, MANAGER, true),
    );
    let (object, owners) = applied.map_err(managed::apply_error)?;
    Ok(Some(Owned { object, owners }))
}

#[cfg(test)]
mod tests {
    use allot_model::features::Release;
    use allot_schema::apply::Managed;

    use super::*;
    use crate::registry::RuntimeConfig;

    #[test]
    fn a_schema_says_whether_its_level_exists() {
        let registry = crate::builtin::registry(&RuntimeConfig::default(), Release::new(36));
        let resource = registry.get(super::super::GROUP, "flowschemas").unwrap();
        let object = json!({
            "metadata": {"name": "s", "uid": "u"}, "spec": {"priorityLevelConfiguration": {"name": "l"}},
        });
        let (none, one) = (BTreeSet::new(), BTreeSet::from(["l".to_owned()]));
        let owners = Managed::default();
        let updated = |schema, levels| with_condition(resource, schema, levels).unwrap();
        let dangling = updated(Owned { object, owners }, &none).unwrap();
        let condition = &dangling.object["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "NotFound");
        assert_eq!(
            condition["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object"
        );
        assert_eq!(updated(dangling.clone(), &none), None);
        let found = updated(dangling, &one).unwrap();
        let conditions = found.object["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(
            conditions[0]["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"l\" and it exists"
        );
        let whole = found.clone().whole();
        let owner = &whole["metadata"]["managedFields"][0];
        assert_eq!(
            (
                &owner["manager"],
                &owner["operation"],
                &owner["subresource"]
            ),
            (&json!(MANAGER), &json!("Apply"), &json!("status"))
        );
        assert_eq!(updated(found, &one), None);
    }
}
