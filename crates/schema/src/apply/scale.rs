//! Owners of the replicas of an object, which are written through its scale.

use super::Managed;
use crate::fields::{PathElement, Set};

impl Managed {
    /// The owners after an update of the scale of an object: `self` as the change of the object alone makes them, from those
    /// `before`; `path` leads to the replicas.
    ///
    /// Upstream tracks the owners of the scale, which is an object of its own. If no manager owns the replicas of a scale, it has no
    /// owners, and an update does not add them. A scale to zero has no replicas that a manager could own.
    pub fn of_scale(self, before: &Self, path: &[&str], is_zero: bool) -> Self {
        let elements = path.iter().map(|name| PathElement::Field((*name).into()));
        let elements: Vec<_> = elements.collect();
        let mut owners = before.owners.values();
        if !owners.any(|entry| entry.fields.contains(&elements)) {
            return before.clone();
        }
        let mut after = self;
        if is_zero {
            let replicas = Set::of_fields([path]);
            for entry in after.owners.values_mut() {
                entry.fields = entry.fields.difference(&replicas);
            }
            after.owners.retain(|_, entry| !entry.fields.is_empty());
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn managed(entries: Value) -> Managed {
        Managed::of(&json!({"metadata": {"managedFields": entries}}))
    }

    fn entry(manager: &str, subresource: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "apps/v1", "subresource": subresource,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
        })
    }

    /// What a kube-apiserver 1.36.2 answered.
    #[test]
    fn regression_nobody_owns_the_replicas_of_a_scale_to_zero() {
        let path = &["spec", "replicas"];
        let both = json!({"f:replicas": {}, "f:selector": {}});
        let rest = entry("m", "", json!({"f:selector": {}}));
        let before = managed(json!([entry("m", "", both)]));
        let scaled = managed(json!([
            entry("n", "scale", json!({"f:replicas": {}})),
            rest
        ]));
        assert_eq!(scaled.clone().of_scale(&before, path, false), scaled);
        let to_zero = scaled.clone().of_scale(&before, path, true);
        assert_eq!(to_zero, managed(json!([rest])));
        assert_eq!(scaled.of_scale(&to_zero, path, false), to_zero);
    }
}
