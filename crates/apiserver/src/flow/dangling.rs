//! The condition of a FlowSchema that its priority level exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use allot_store::{Backend, Entry, Expect, Write};
use serde_json::Value;

use crate::flow_defaults::condition;
use crate::object::{self, meta, text};
use crate::storage;

/// Version of the API that the objects are written in.
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Updates the condition of each schema. A conflict is left to the next update, which the other write triggers.
pub(super) async fn update_conditions(
    backend: &dyn Backend,
    collection: &str,
    schemas: &[Arc<Entry>],
    levels: &BTreeSet<String>,
) {
    for entry in schemas {
        let Ok(schema) = serde_json::from_slice::<Value>(&entry.value) else {
            continue;
        };
        let Some(changed) = with_condition(schema, levels) else {
            continue;
        };
        let expected = Expect::Revision(entry.revision);
        let write = Write::put(
            collection,
            entry.key.clone(),
            expected,
            storage::draft(&changed),
        );
        if let Err(error) = backend.commit(write).await {
            tracing::debug!(%error, schema = &*entry.key, "the condition of a flow schema is not written");
        }
    }
}

/// The schema with its condition; `None` if it is as it should be.
fn with_condition(mut schema: Value, levels: &BTreeSet<String>) -> Option<Value> {
    if meta(&schema, "name").is_empty() {
        return None;
    }
    let level = text(&schema, &["spec", "priorityLevelConfiguration", "name"]);
    let new = condition(level, levels.contains(level), &object::now());
    if !object::set_condition(&mut schema, new) {
        return None;
    }
    schema["apiVersion"] = API_VERSION.into();
    schema["kind"] = "FlowSchema".into();
    Some(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_says_whether_its_level_exists() {
        let schema = json!({
            "metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "l"}},
        });
        let (none, one) = (BTreeSet::new(), BTreeSet::from(["l".to_owned()]));
        let dangling = with_condition(schema, &none).unwrap();
        let condition = &dangling["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "NotFound");
        assert_eq!(
            condition["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object"
        );
        assert_eq!(with_condition(dangling.clone(), &none), None);
        let found = with_condition(dangling, &one).unwrap();
        let conditions = found["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(
            conditions[0]["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"l\" and it exists"
        );
        assert_eq!(with_condition(found, &one), None);
    }
}
